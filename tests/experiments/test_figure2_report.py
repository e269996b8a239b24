"""What the folder holds: runs of several commands merged, what was shortened, and the figure."""

import csv
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.experiments.figure2 import (
    choices,
    departures,
    draw,
    legend,
    mean_curve,
    note,
    text_report,
    write_report,
)
from pointdep.experiments.pretraining_runs import read_pixels, run_experiment
from pointdep.experiments.reports import write_json
from pointdep.experiments.representations import MAIN, PARTS, Experiment

from .representation_samples import PIXELS, curve, no_images, write_run

PAPER = Experiment("shallow")


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


def reported(folder, experiment=PAPER):
    """What was found, the page, results.json and what a terminal shows."""
    found = found_in(folder, experiment)
    text = text_report(found, write_report(found, folder))
    assert max(map(len, text.splitlines())) <= 100
    results = json.loads((folder / "results.json").read_text())
    return found, (folder / "report.md").read_text(), results, " ".join(text.split())


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_files(folder):
    found, page, results, _ = reported(folder)
    lines = read_csv(folder / "curves.csv")
    head = ["run", "objective", "seed", "iteration", "epoch", "seconds", "accuracy"]
    assert list(lines[0]) == head
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
    assert results["experiment"] == "shallow mnist"
    assert (folder / "figure.png").stat().st_size > 10_000
    assert (folder / "figure.svg").exists()
    assert "![Linear accuracy while the encoders train](figure.png)" in page
    assert "| D-RFC | 84.05 | 0.03 | 10 | 0 | 21,000 |" in page
    assert "| pixels | 80.00 |" in page
    assert "best first: D-RFC, CPC, PCC" in page
    for claim in results["claims"]:
        assert f"### {claim['key']}: {claim['verdict']}" in page
        assert claim["quote"] in page
        assert f"Rule: {claim['rule']}" in page
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    write_report(found, folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_nothing_but_runs_that_diverged(tmp_path):
    place = write_run(tmp_path, PAPER, {("dm1", 0): [None]})
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").unlink()
    (place / "diverged.json").write_text(json.dumps({**about, "where": {}, "history": []}))
    asked = Experiment("shallow", objectives=("dm1",), seeds=1)
    _, page, results, _ = reported(tmp_path, asked)
    assert {claim["verdict"] for claim in results["claims"]} == {"cannot tell"}
    assert "| DM I | - | - | 1 | 1 | - | - | - |" in page
    assert "in the verdicts they have the accuracy of chance, 10%." in page
    assert (tmp_path / "curves.csv").read_text().count("\n") == 1


class TestShortened:
    def test_the_whole_experiment_is_not(self, folder):
        found, page, _, _ = reported(folder)
        assert departures(found) == choices(found) == []
        assert note(found) == ""
        assert "Not as in the paper" not in page

    def test_runs_images_and_iterations(self, tmp_path):
        asked = Experiment("shallow", seeds=2, length=5000, width=64)
        few = {pair: values[:5] for pair, values in of_paper(range(2)).items()}
        write_run(tmp_path, asked, few, data={"lossy": True})
        write_run(tmp_path, asked, {("dm1", 0): [0.5] * 5}, data={"lossy": True})
        found, page, _, _ = reported(tmp_path, asked)
        assert departures(found) == [
            "images that went through a lossy format (JPEG)",
            "runs: CPC 2, PCC 2, D-RFC 2, not 10 each",
            "runs: DM I 1; the paper does not say how many of these",
            "5,000 iterations, not 21,000",
            "width 64, not the paper's 512",
        ]
        assert "; ".join(departures(found)) in page

    def test_fewer_images(self, tmp_path):
        write_run(tmp_path, PAPER, of_paper(), data={"train": 60_000 - 1})
        assert departures(found_in(tmp_path)) == ["59,999 of 60,000 training images"]

    def test_simclr_says_how_many_epochs_each_had(self, tmp_path):
        asked = Experiment("simclr", seeds=1, length=30, loss={"drfc": {"scale": 12}})
        for objective, looks in (("cpc", 5), ("pcc", 6), ("drfc", 7)):
            write_run(tmp_path, asked, {(objective, 0): [0.9] * looks}, data={"name": "cifar10"})
        found, page, _, _ = reported(tmp_path, asked)
        assert departures(found) == [
            "runs: CPC 1, PCC 1, D-RFC 1, not 5 each",
            "10 to 14 epochs; the paper prints no number of its long runs",
        ]
        assert "| CPC | 90.00 | - | 1 | 0 | 10 | 2.5 | 91.04 |" in page
        assert "| PCC | 90.00 | - | 1 | 0 | 12 | 3.0 | 88.69 |" in page
        assert "| D-RFC | 90.00 | - | 1 | 0 | 14 | 3.5 | 91.51 |" in page

    @pytest.mark.parametrize(("alpha", "told"), [(0.1, ["D-RFC with alpha 0.1"]), (0.0, [])])
    def test_options_are_those_of_the_runs(self, tmp_path, alpha, told):
        """Not of the command, which may ask for other objectives; the default is not told."""
        loss = {"drfc": {"alpha": alpha}}
        asked = Experiment("shallow", objectives=("drfc",), seeds=10, loss=loss)
        write_run(tmp_path, asked, of_paper(objectives=("drfc",)))
        others = Experiment("shallow", objectives=("cpc", "pcc"), seeds=10)
        write_run(tmp_path, others, of_paper(objectives=("cpc", "pcc")))
        assert departures(found_in(tmp_path, others)) == told


class TestOurs:
    def simclr(self, tmp_path, **changed):
        asked = Experiment("simclr", seeds=1, **changed)
        for objective in MAIN:
            write_run(tmp_path, asked, {(objective, 0): [0.9]}, data={"name": "cifar10"})
        return reported(tmp_path, asked)

    def test_the_rate_and_the_scales_of_simclr(self, tmp_path):
        found, page, results, text = self.simclr(tmp_path)
        rate, scores = choices(found)
        assert "learning rate 0.4 (batch 512), up over a tenth of the run" in rate
        assert scores == "scores: CPC temperature 0.2, PCC temperature 0.2, D-RFC scale 10"
        for told in (page, text):
            assert f"{rate}; {scores}" in told
            assert "the public recipe's 0.4" not in told
        assert "68.9 % with a rate of 0.12 and the public recipe's temperature of 0.5" in page
        assert results["ours"] == [rate, scores]

    def test_as_the_runs_had_them(self, tmp_path):
        loss = {"drfc": {"scale": 12, "alpha": 0.1}, "cpc": {"temperature": 0.5}}
        found, *_ = self.simclr(tmp_path, loss=loss, batch_size=256)
        rate, scores = choices(found)
        assert "learning rate 0.2 (batch 256)" in rate
        assert scores.endswith(
            "CPC temperature 0.5, PCC temperature 0.2, D-RFC scale 12, alpha 0.1"
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
        (said,) = choices(found)
        assert said.startswith("Variational, DM I with the batch norm and the gradient clipping of")
        assert said in note(found)
        assert "CPC alone trains without batch norm in its blocks" in legend(found)


class TestLegend:
    def test_minutes_and_the_whole_time(self, folder):
        assert "evaluations and checkpoints are not in them." in legend(found_in(folder))
        write_run(folder, PAPER, {("dm1", 0): [0.9]}, wall_seconds=90.0)
        found, _, results, _ = reported(folder)
        assert "with these and compiling, 1 of 3 jobs took 1.5 minutes." in legend(found)
        assert [run["wall_seconds"] for run in results["runs"]] == [None, None, 90.0]

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
        assert f"Trained on an unknown device {told}, 1 job" in reported(tmp_path, asked)[1]

    def test_pixels_that_did_not_converge(self, folder):
        assert "did not converge" not in legend(found_in(folder))
        write_json(folder / "pixels.json", asdict(replace(read_pixels(folder), converged=False)))
        assert "the pixels of the upper half, which did not converge" in legend(found_in(folder))

    def test_flags_of_the_runs(self, tmp_path):
        asked = Experiment("shallow", objectives=("dm1",), seeds=1)
        flag = {"name": "collapsed", "message": "all codes are the same (dm1-0)"}
        write_run(tmp_path, asked, {("dm1", 0): [0.9]}, flags=[{**flag, "replicas": [0]}])
        _, page, results, text = reported(tmp_path, asked)
        said = "Noticed in training: dm1-0: collapsed, all codes are the same (dm1-0)."
        assert said in page
        assert said in text
        assert results["runs"][0]["flags"] == [flag]


def test_a_broken_off_report_leaves_the_results_before(folder, monkeypatch):
    """results.json says whose folder it is."""
    found, _, before, _ = reported(folder)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_report(found, folder)
    assert json.loads((folder / "results.json").read_text()) == before


class TestMeanCurve:
    def test_by_hand(self):
        own = [curve("cpc", 0, 0.5, 0.7, 0.8), curve("cpc", 1, 0.6, None, 0.9, every=500)]
        where, mean, sd = mean_curve(own, "steps")
        assert where.tolist() == [750, 1500, 2250]
        assert mean == pytest.approx([55, 70, 85])
        assert sd == pytest.approx([50 * math.sqrt(0.02), 0, 50 * math.sqrt(0.02)])
        assert mean_curve(own, "seconds")[0] == pytest.approx(np.array([750, 1500, 2250]) / 60)

    def test_runs_that_the_clock_ended_meet_at_their_ends(self):
        own = [curve("cpc", 0, 0.1, 0.2, 0.3, 0.4), curve("cpc", 1, 0.1, 0.2, 0.6)]
        where, mean, _ = mean_curve(own, "steps")
        assert where.tolist() == [1000, 2000, 3500]
        assert mean == pytest.approx([10, 20, 50])

    def test_diverged_runs(self):
        assert mean_curve([curve("dm1", 0)], "steps")[0].size == 0
        where, mean, _ = mean_curve([curve("dm1", 0, 0.3, None), curve("dm1", 1)], "steps")
        assert where.tolist() == [1000, 2000]
        assert mean == pytest.approx([30, math.nan], nan_ok=True)

    def test_runs_that_ended_because_they_diverged(self):
        """They are drawn where there is nothing else, and shorten no other."""
        cut = [
            replace(curve("dm1", 0, 0.3), cut=True),
            replace(curve("dm1", 1, 0.4, 0.5), cut=True),
        ]
        whole = curve("dm1", 2, 0.3, 0.5, 0.6)
        assert mean_curve([*cut, whole], "steps")[1] == pytest.approx([30, 50, 60])
        where, mean, _ = mean_curve(cut[1:], "steps")
        assert (where.tolist(), mean.tolist()) == ([1000, 2000], pytest.approx([40, 50]))
        figure = draw(Experiment("shallow"), [*cut, whole], replace(PIXELS, converged=False), "")
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels == ["DM I (3 runs, 2 diverged)", "pixels, upper half\n(not converged)"]


NOTE = "Not as in the paper: images that went through a lossy format (JPEG); runs: CPC 1. " * 6
CURVES = [
    curve(objective, seed, *(0.7 + 0.02 * k + 0.004 * seed for k in range(10)))
    for objective in ("cpc", "pcc", "drfc", "dm1", "dm2", "variational")
    for seed in range(3)
]


class TestFigure:
    @pytest.mark.parametrize("part", PARTS)
    def test_nothing_lies_on_top_of_something_else(self, part):
        figure = draw(Experiment(part), CURVES, PIXELS, NOTE)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        parts = [figure.legends[0], figure._suptitle, figure._supxlabel, *figure.axes]
        boxes, page = [one.get_tightbbox(renderer) for one in parts], figure.bbox
        for k, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[k + 1 :])
            assert page.x0 <= box.x0
            assert box.x1 <= page.x1
            assert page.y0 <= box.y0

    @pytest.mark.parametrize(
        ("part", "panels", "marks"), [("shallow", 1, 0), ("deep", 2, 0), ("simclr", 2, 3)]
    )
    def test_what_is_drawn(self, part, panels, marks):
        figure = draw(Experiment(part), CURVES, PIXELS, "")
        assert len(figure.axes) == panels
        for axis in figure.axes:
            drawn = [line for line in axis.lines if list(line.get_xdata()) == [0.94, 1.0]]
            heights = sorted(line.get_ydata()[0] for line in drawn)
            assert heights == pytest.approx([88.69, 91.04, 91.51][:marks])
            assert any(list(line.get_ydata()) == [80.0, 80.0] for line in axis.lines)  # pixels
            assert len(axis.collections) == 6  # bands
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels[:3] == ["CPC (3 runs)", "PCC (3 runs)", "D-RFC (3 runs)"]
        assert "pixels, upper half" in labels
