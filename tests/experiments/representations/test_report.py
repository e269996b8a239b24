"""What the folder holds: runs of several commands merged, and what was shortened said."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.experiments.representations.departures import choices, departures, note
from pointdep.experiments.representations.pixels import read_pixels, write_pixels
from pointdep.experiments.representations.report import write_report
from pointdep.experiments.representations.run import run_experiment
from pointdep.experiments.representations.settings import Experiment
from pointdep.experiments.representations.text import legend, text_report

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
    page = (tmp_path / "report.md").read_text()
    assert "| DM I | - | - | 1 | 1 | - | - | - |" in page
    assert "Runs that diverged are not in mean and standard deviation; in the verdicts" in page
    assert "they have the accuracy of chance, 10%." in page
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
            "runs: DM I 1; the paper does not say how many of these",
            "5,000 iterations, not 21,000",
            "width 64, not the paper's 512",
        ]
        write_report(found_in(tmp_path, asked), tmp_path)
        assert "; ".join(said) in (tmp_path / "report.md").read_text()

    def test_fewer_images(self, tmp_path):
        asked = Experiment("shallow", seeds=10)
        data = {"train": 60_000 - 1}
        write_run(tmp_path, asked, of_paper(), data=data)
        assert departures(found_in(tmp_path, asked)) == ["59,999 of 60,000 training images"]

    def test_simclr_says_how_many_epochs_each_had(self, tmp_path):
        asked = Experiment("simclr", seeds=1, length=30, loss={"drfc": {"scale": 12}})
        for objective, looks in (("cpc", 5), ("pcc", 6), ("drfc", 7)):
            write_run(tmp_path, asked, {(objective, 0): [0.9] * looks}, data={"name": "cifar10"})
        assert departures(found_in(tmp_path, asked)) == [
            "runs: CPC 1, PCC 1, D-RFC 1, not 5 each",
            "10 to 14 epochs; the paper prints no number of its long runs",
        ]
        write_report(found_in(tmp_path, asked), tmp_path)
        page = (tmp_path / "report.md").read_text()
        assert "| CPC | 90.00 | - | 1 | 0 | 10 | 2.5 | 91.04 |" in page
        assert "| PCC | 90.00 | - | 1 | 0 | 12 | 3.0 | 88.69 |" in page
        assert "| D-RFC | 90.00 | - | 1 | 0 | 14 | 3.5 | 91.51 |" in page

    def test_options_are_those_of_the_runs(self, tmp_path):
        """Not of the command, which may ask for other objectives."""
        asked = Experiment("shallow", objectives=("drfc",), seeds=10, loss={"drfc": {"alpha": 0.1}})
        write_run(tmp_path, asked, of_paper(objectives=("drfc",)))
        others = Experiment("shallow", objectives=("cpc", "pcc"), seeds=10)
        write_run(tmp_path, others, of_paper(objectives=("cpc", "pcc")))
        assert departures(found_in(tmp_path, others)) == ["D-RFC with alpha 0.1"]

    def test_options_that_are_the_default_are_none(self, tmp_path):
        asked = Experiment("shallow", objectives=("drfc",), seeds=10, loss={"drfc": {"alpha": 0.0}})
        write_run(tmp_path, asked, of_paper(objectives=("drfc",)))
        assert all("alpha" not in said for said in departures(found_in(tmp_path, asked)))


class TestOurs:
    def simclr(self, tmp_path, **changed):
        asked = Experiment("simclr", seeds=1, **changed)
        for objective in MAIN:
            write_run(tmp_path, asked, {(objective, 0): [0.9]}, data={"name": "cifar10"})
        return found_in(tmp_path, asked)

    def test_the_rate_and_the_scales_of_simclr(self, tmp_path):
        found = self.simclr(tmp_path)
        assert choices(found) == [
            "SGD (momentum 0.9, weight decay 0.0005), learning rate 0.4 (batch 512), up over a "
            "tenth of the run, then down a cosine",
            "scores: CPC temperature 0.2, PCC temperature 0.2, D-RFC scale 10",
        ]
        claims = write_report(found, tmp_path)
        page = (tmp_path / "report.md").read_text()
        for text in (page, " ".join(text_report(found, claims).split())):
            assert "; ".join(choices(found)) in text
            assert "the public recipe's 0.4" not in text
        assert "68.9 % with a rate of 0.12 and the public recipe's temperature of 0.5" in page
        assert json.loads((tmp_path / "results.json").read_text())["ours"] == choices(found)

    def test_as_the_runs_had_them(self, tmp_path):
        loss = {"drfc": {"scale": 12, "alpha": 0.1}, "cpc": {"temperature": 0.5}}
        found = self.simclr(tmp_path, loss=loss, batch_size=256)
        rate, scores = choices(found)
        assert "learning rate 0.2 (batch 256)" in rate
        assert (
            scores == "scores: CPC temperature 0.5, PCC temperature 0.2, D-RFC scale 12, alpha 0.1"
        )
        assert "batch size 256, not the public recipe's 512" in departures(found)
        assert not any("learning rate" in said for said in departures(found))

    def test_the_optimiser_is_that_of_the_recipe(self):
        recipe = make_recipe(Settings("simclr", width=4), (3, 32, 32), 10)
        (group,) = recipe.optimizer(0.4).param_groups
        assert (group["momentum"], group["weight_decay"]) == (0.9, 0.0005)
        rates = [recipe.rate(done, 0) for done in (0.05, 0.1, 0.55, 1.0)]
        assert rates == pytest.approx([0.5, 1.0, 0.5, 0.0])

    def test_what_other_objectives_have_of_pcc_in_the_deep_part(self, tmp_path):
        asked = Experiment("deep", objectives=("cpc", "dm1", "variational"))
        for objective in asked.objectives:
            write_run(tmp_path, asked, {(objective, 0): [0.9]}, data={"name": "cifar10"})
        found = found_in(tmp_path, asked)
        assert choices(found) == [
            "Variational, DM I with the batch norm and the gradient clipping of PCC, which CPC has "
            "not"
        ]
        assert choices(found)[0] in note(found)
        assert "CPC alone trains without batch norm in its blocks" in legend(found)

    def test_nothing_of_the_paper_s_own(self, folder):
        assert choices(found_in(folder)) == []
        assert note(found_in(folder)) == ""


class TestLegend:
    def test_minutes_and_the_whole_time(self, folder, tmp_path):
        assert "evaluations and checkpoints are not in them." in legend(found_in(folder))
        write_run(tmp_path, PAPER, {("dm1", 0): [0.9]}, wall_seconds=90.0)
        said = legend(found_in(folder))
        assert "with these and compiling, 1 of 3 jobs took 1.5 minutes." in said
        write_report(found_in(folder), folder)
        runs = json.loads((folder / "results.json").read_text())["runs"]
        assert [run["wall_seconds"] for run in runs] == [None, None, 90.0]

    @pytest.mark.parametrize(
        ("device", "precision", "told"),
        [
            ("cuda", "32-true", "(32 (TF32 products))"),
            ("cpu", "32-true", "(32)"),
            ("cuda", "bf16-mixed", "(bf16-mixed)"),
        ],
    )
    def test_precision(self, tmp_path, device, precision, told):
        asked = Experiment("shallow", objectives=("cpc",), seeds=1)
        where = {"device": device, "precision": precision}
        write_run(tmp_path, asked, {("cpc", 0): [0.9]}, where=where)
        write_report(found_in(tmp_path, asked), tmp_path)
        assert f"Trained on an unknown device {told}, 1 job" in (tmp_path / "report.md").read_text()

    def test_pixels_that_did_not_converge(self, folder):
        assert "did not converge" not in legend(found_in(folder))
        write_pixels(replace(read_pixels(folder), converged=False), folder)
        assert "the pixels of the upper half, which did not converge" in legend(found_in(folder))

    def test_flags_of_the_runs(self, tmp_path):
        asked = Experiment("shallow", objectives=("dm1",), seeds=1)
        flags = [
            {"name": "collapsed", "replicas": [0], "message": "all codes are the same (dm1-0)"}
        ]
        write_run(tmp_path, asked, {("dm1", 0): [0.9]}, flags=flags)
        found = found_in(tmp_path, asked)
        claims = write_report(found, tmp_path)
        said = "Noticed in training: dm1-0: collapsed, all codes are the same (dm1-0)."
        assert said in (tmp_path / "report.md").read_text()
        assert said in " ".join(text_report(found, claims).split())
        (run,) = json.loads((tmp_path / "results.json").read_text())["runs"]
        assert run["flags"] == [{"name": "collapsed", "message": "all codes are the same (dm1-0)"}]


def test_a_broken_off_report_leaves_the_results_before(folder, monkeypatch):
    """results.json says whose folder it is."""
    write_report(found_in(folder), folder)
    before = (folder / "results.json").read_text()
    write_text = Path.write_text

    def killed(path, text, *args):
        if path.name.startswith("results.json"):
            write_text(path, text[:50], *args)
            raise KeyboardInterrupt
        return write_text(path, text, *args)

    monkeypatch.setattr(Path, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        write_report(found_in(folder), folder)
    assert (folder / "results.json").read_text() == before
