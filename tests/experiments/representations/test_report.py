"""What the folder holds: runs of several commands merged, and what was shortened said."""

import csv
import json

import pytest

from pointdep.experiments.representations.report import write_report
from pointdep.experiments.representations.run import run_experiment
from pointdep.experiments.representations.settings import Experiment
from pointdep.experiments.representations.text import departures, text_report

from .synthetic import PIXELS, no_images, write_run

PAPER = Experiment("shallow")
MAIN = ("cpc", "pcc", "drfc")


def of_paper(seeds=range(10), objectives=MAIN):
    """The accuracies of 21 evaluations."""
    return {
        (o, s): [0.8 + 0.001 * k + 0.01 * MAIN.index(o) + 0.0001 * s for k in range(21)]
        for o in objectives
        for s in seeds
    }


@pytest.fixture
def folder(tmp_path):
    """Two commands' runs of the whole experiment."""
    write_run(tmp_path, PAPER, of_paper(range(5)))
    write_run(tmp_path, PAPER, of_paper(range(5, 10)))
    return tmp_path


def found_in(folder, experiment=PAPER):
    return run_experiment(experiment, folder, no_images)


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_files(folder):
    claims = write_report(found_in(folder), folder)
    lines = read_csv(folder / "curves.csv")
    assert list(lines[0]) == [
        "run",
        "objective",
        "seed",
        "iteration",
        "epoch",
        "seconds",
        "accuracy",
    ]
    assert len(lines) == 3 * 10 * 21
    assert {line["run"] for line in lines} == {"cpc+pcc+drfc-0+1+2+3+4", "cpc+pcc+drfc-5+6+7+8+9"}
    last = [line for line in lines if (line["objective"], line["seed"]) == ("pcc", "7")][-1]
    assert (last["iteration"], float(last["accuracy"])) == ("21000", pytest.approx(0.8307))
    summary = {line["objective"]: line for line in read_csv(folder / "summary.csv")}
    assert list(summary) == [*MAIN, "pixels"]
    assert float(summary["drfc"]["mean"]) == pytest.approx(0.84045)
    assert float(summary["drfc"]["sd"]) == pytest.approx(0.0001 * 3.0276503)
    assert (summary["drfc"]["runs"], summary["drfc"]["paper"]) == ("10", "")
    assert float(summary["pixels"]["mean"]) == PIXELS.accuracy
    results = json.loads((folder / "results.json").read_text())
    assert results["experiment"] == "shallow mnist"
    assert [claim["verdict"] for claim in results["claims"]] == [one.verdict for one in claims]
    assert (folder / "figure.png").stat().st_size > 10_000
    assert (folder / "figure.svg").exists()


def test_the_page(folder):
    claims = write_report(found_in(folder), folder)
    page = (folder / "report.md").read_text()
    assert "![Linear accuracy while the encoders train](figure.png)" in page
    assert "| D-RFC | 84.05 | 0.03 | 10 | 0 | 21,000 |" in page
    assert "| pixels | 80.00 |" in page
    assert "the order that its text gives, best first: D-RFC, CPC, PCC" in page
    for claim in claims:
        assert f"### {claim.key}: {claim.verdict}" in page
        assert claim.quote in page
        assert f"Rule: {claim.rule}" in page
    assert max(map(len, text_report(found_in(folder), claims).splitlines())) <= 100


def test_written_again_the_same(folder):
    write_report(found_in(folder), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    write_report(found_in(folder), folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_nothing_but_runs_that_diverged(tmp_path):
    place = write_run(tmp_path, PAPER, {("dm1", 0): [None]})
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").unlink()
    (place / "diverged.json").write_text(json.dumps({**about, "where": {}, "history": []}))
    found = found_in(tmp_path, Experiment("shallow", objectives=("dm1",), seeds=1))
    claims = write_report(found, tmp_path)
    assert {claim.verdict for claim in claims} == {"cannot tell"}
    assert "| DM I | - | - | 1 | 1 | - | - | - |" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "curves.csv").read_text().count("\n") == 1


class TestShortened:
    def test_the_whole_experiment_is_not(self, folder):
        assert departures(found_in(folder)) == []
        write_report(found_in(folder), folder)
        assert "Not as in the paper" not in (folder / "report.md").read_text()

    def test_runs_images_and_iterations(self, tmp_path):
        asked = Experiment("shallow", seeds=2, length=5000, width=64)
        few = {pair: values[:5] for pair, values in of_paper(range(2)).items()}
        write_run(tmp_path, asked, few, data={"lossy": True})
        write_run(tmp_path, asked, {("dm1", 0): [0.5] * 5}, data={"lossy": True})
        said = departures(found_in(tmp_path, asked))
        assert said == [
            "images that went through a lossy format (JPEG)",
            "runs: CPC 2, PCC 2, D-RFC 2, not 10 each",
            "5,000 iterations, not 21,000",
            "width 64, not the paper's 512",
        ]
        write_report(found_in(tmp_path, asked), tmp_path)
        assert "; ".join(said) in (tmp_path / "report.md").read_text()

    def test_fewer_images(self, tmp_path):
        asked = Experiment("shallow", seeds=10)
        data = {"train": 60_000 - 1}
        write_run(tmp_path, asked, of_paper(), data=data)
        pixels = json.loads((tmp_path / "pixels.json").read_text())
        (tmp_path / "pixels.json").write_text(json.dumps({**pixels, **data}))
        assert departures(found_in(tmp_path, asked)) == ["59,999 of 60,000 training images"]

    def test_simclr_says_how_many_epochs_each_had(self, tmp_path):
        asked = Experiment("simclr", seeds=1, length=30, loss={"drfc": {"scale": 12}})
        for objective, looks in (("cpc", 5), ("pcc", 6), ("drfc", 7)):
            write_run(tmp_path, asked, {(objective, 0): [0.9] * looks}, data={"name": "cifar10"})
        assert departures(found_in(tmp_path, asked)) == [
            "runs: CPC 1, PCC 1, D-RFC 1, not 5 each",
            "10 to 14 epochs; the paper prints no number of its long runs",
            "D-RFC with scale 12",
        ]
        write_report(found_in(tmp_path, asked), tmp_path)
        page = (tmp_path / "report.md").read_text()
        assert "| CPC | 90.00 | - | 1 | 0 | 10 | 2.5 | 91.04 |" in page
        assert "| PCC | 90.00 | - | 1 | 0 | 12 | 3.0 | 88.69 |" in page
        assert "| D-RFC | 90.00 | - | 1 | 0 | 14 | 3.5 | 91.51 |" in page
