"""Figure 2 and SimCLR: differences against scipy's, verdicts, the folder, and the figure."""

import csv
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scipy import stats

from pointdep.contrastive import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.experiments import figure2, reports
from pointdep.experiments.figure2 import PAR, departures, difference, draw, judge_claims, mean_curve
from pointdep.experiments.pretraining_runs import read_pixels, run_experiment
from pointdep.experiments.representations import MAIN, PARTS, Experiment

from .representation_samples import PIXELS, curve, no_images, write_run

SENTENCES = reports.PAPER["claims"]["figure2"]
MANY = replace(PIXELS, test=10**6)  # images, so that small differences can be told
SHARES = st.lists(st.floats(0.01, 0.99), min_size=2, max_size=8)
Z = stats.norm.ppf(0.975)


def half(found):
    return (found.high - found.low) / 2


class TestDifferences:
    @given(SHARES, st.integers(0, 2**32 - 1))
    def test_students_interval(self, values, seed):
        """With test images without end, what differs between seeds is left."""
        other = np.random.default_rng(seed).uniform(0, 1, len(values))
        for against in (other, np.full(len(values), 0.4)):
            ours = difference(dict(enumerate(values)), dict(enumerate(against)), 10**15)
            if np.ptp(np.array(values) - against) > 1e-6:
                paired = stats.ttest_rel(100 * np.array(values), 100 * against)
                theirs = tuple(paired.confidence_interval(0.95))
                assert (ours.low, ours.high) == pytest.approx(theirs, abs=1e-5)

    def test_the_error_of_images_and_seeds_and_of_runs_that_diverged(self):
        """Seeds that all differ by the same do not make a difference certain."""
        for seeds in (1, 2, 10):
            for runs in (1, 2):
                one, other = (dict.fromkeys(range(seeds), share) for share in (0.9, 0.89))
                found = difference(one, other, 10_000, runs)
                guess = runs * figure2.SEED_SD**2 if seeds == 1 else 0.0
                expected = Z * math.sqrt(100**2 * 0.01 * 0.99 / 10_000 + guess)
                assert half(found) == pytest.approx(expected, rel=1e-6)
        # What one gets right beyond the other differs by images; each run by its seed.
        random, test, draws = np.random.default_rng(0), 2_000, 200_000
        seeds = figure2.SEED_SD * random.standard_normal((2, draws))
        drawn = 100 * random.binomial(test, 0.1, draws) / test + seeds[0] - seeds[1]
        found = difference({0: 0.9}, {0: 0.8}, test)
        assert half(found) / Z == pytest.approx(drawn.std(), rel=0.01)
        found = difference({0: 0.5, 1: 0.6, 7: 0.9}, {1: 0.5, 0: 0.5, 3: 0.0}, 10_000)
        assert (found.value, found.n) == (pytest.approx(5.0), 2)
        assert difference({0: 0.5}, {1: 0.5}, 10_000) is None
        curves = [curve("dm1", 0, 0.5, None), curve("dm1", 1, 0.5, 0.6), curve("dm1", 2)]
        finals = figure2.Evidence(Experiment("shallow"), curves, PIXELS).finals("dm1")
        assert finals == {0: 0.1, 1: 0.6, 2: 0.1}
        (line,) = figure2.summarise(curves, Experiment("shallow"))
        assert [line[k] for k in ("runs", "diverged", "mean", "sd")] == [3, 2, 0.6, None]


NEAR = np.array([0.0, 0.0005, -0.0005, 0.0002])  # of four seeds
NONE = [None] * 4
HOLDS, NOT, OPEN = "holds", "does not hold", "cannot tell"


def up(share):
    return list(share + NEAR)


def down(share):
    return list(share - NEAR)


def verdicts(part, dataset=None, pixels=MANY, **shares):
    """shares: of each objective, one per seed."""
    curves = [curve(o, seed, 0.5, v) for o in shares for seed, v in enumerate(shares[o])]
    claims = judge_claims(Experiment(part, dataset), curves, pixels)
    return {claim.key: claim.verdict for claim in claims}


class TestSentences:
    def test_who_is_above_whom_on_a_par_and_below(self):
        for cpc, verdict in ((0.85, HOLDS), (0.88, NOT), (0.87, OPEN)):
            assert verdicts("shallow", cpc=up(cpc), pcc=up(0.84), drfc=down(0.87))["a"] == verdict
            assert verdicts("deep", cpc=up(cpc), drfc=down(0.89))["a"] == OPEN  # PCC was not run
        above = ("shallow", "cifar10")  # is PCC, elsewhere CPC
        for where in (above, ("shallow", "mnist"), ("deep", "cifar10")):
            better = verdicts(*where, cpc=up(0.85), pcc=down(0.86))["b"]
            worse = verdicts(*where, cpc=up(0.86), pcc=down(0.85))["b"]
            assert (better, worse) == ((HOLDS, NOT) if where == above else (NOT, HOLDS))
        close = verdicts("simclr", cpc=up(0.9), pcc=up(0.898), drfc=up(0.898))
        assert (close["c"], close["f1"], close["f2"]) == (HOLDS, NOT, HOLDS)
        far = verdicts("simclr", cpc=up(0.9), pcc=down(0.88), drfc=down(0.91))
        assert (far["c"], far["f1"], far["f2"]) == (NOT, HOLDS, HOLDS)
        curves = [curve("cpc", 0, 0.9), curve("drfc", 1, 0.95)]
        claims = {c.key: c for c in judge_claims(Experiment("simclr"), curves, MANY)}
        assert claims["f1"].verdict == OPEN
        assert "no seed in common" in claims["f1"].because
        good = {"cpc": up(0.85), "pcc": up(0.84), "drfc": up(0.87)}
        assert verdicts("shallow", **good, dm1=down(0.8), dm2=NONE)["d"] == HOLDS
        assert verdicts("shallow", **good, dm1=down(0.845), dm2=down(0.8))["d"] == NOT
        found = verdicts("shallow", **good, dm1=down(0.8))
        assert found["d"] == found["e"] == OPEN

    @pytest.mark.parametrize("part", PARTS)
    def test_variational_is_pcc(self, part):
        """Equal results contradict a lower one, and of 10,000 images too."""
        near, good, at_chance = up(0.85), up(0.9), up(0.1)
        for share in (0.85, 0.851, 0.849, 0.87):
            assert verdicts(part, pixels=PIXELS, pcc=near, variational=up(share))["e"] == NOT
        for pcc, variational, verdict in (
            (near, up(0.83), HOLDS),
            (near, [0.84, 0.86, 0.85, 0.855], OPEN),
            (near, NONE, HOLDS),
            (NONE, NONE, OPEN),
            (near, [0.85], OPEN),
        ):
            shares = {"pcc": pcc, "variational": variational}
            assert verdicts(part, pixels=PIXELS, **shares)["e"] == verdict
        # Where all diverged, nothing is on a par.
        for *shares, verdict in (
            (NONE, NONE, NONE, OPEN),
            (NONE, good, good, OPEN),
            (good, NONE, good, NOT),
            (good, good, NONE, NOT),
            (at_chance, at_chance, at_chance, OPEN),
            (good, good, good, HOLDS),
        ):
            assert verdicts(part, **dict(zip(MAIN, shares, strict=True)))["c"] == verdict
        assert verdicts(part, pcc=at_chance, drfc=good)["c"] == OPEN

    @given(SHARES, st.integers(0, 2**32 - 1), st.sampled_from(list(PARTS)))
    def test_verdict_and_interval(self, values, seed, part):
        """Of every sentence: holds, where all its intervals are above; not, where one is below."""
        random = np.random.default_rng(seed)
        names = ("cpc", "pcc", "drfc", "dm1", "dm2", "variational")
        shares = {name: random.permutation(values) for name in names}
        curves = [curve(o, k, float(share)) for o in names for k, share in enumerate(shares[o])]
        for claim in judge_claims(Experiment(part), curves, PIXELS):
            ends = {f.about.split(",")[0]: (f.low, f.high) for f in claim.findings}
            limits = {about: -PAR if claim.key == "c" and "pixels" not in about else 0.0
                      for about in ends}  # fmt: skip
            for about, both in ends.items():
                for limit in (limits[about], -PAR, PAR):
                    assume(all(not math.isclose(end, limit, abs_tol=1e-9) for end in both))
            expected = HOLDS if all(ends[k][0] > limits[k] for k in ends) else OPEN
            if any(ends[k][1] < limits[k] for k in ends):
                expected = NOT
            if claim.key == "c" and ends["CPC less pixels"][0] < 0:
                expected = OPEN
            if claim.key == "e":
                low, high = ends["PCC less Variational"]
                within = low > -PAR and high < PAR
                expected = NOT if high < 0 or within else HOLDS if low > 0 else OPEN
                expected = OPEN if ends["PCC less pixels"][0] < 0 else expected
            assert claim.verdict == expected

    def test_in_the_deep_experiment_cpc_trains_otherwise(self):
        """What the rule says of batch norm and clipping is what the model does."""
        models = {
            o: make_recipe(Settings("amdim", (o,), width=4, depth=1), (3, 32, 32), 10)
            for o in ("cpc", "pcc", "dm1", "variational")
        }
        heads = {o: model.encoder.head_five for o, model in models.items()}
        normed = {o: isinstance(head.bn_hidden, torch.nn.BatchNorm2d) for o, head in heads.items()}
        clipped = {o: model.clips_gradient(1000) for o, model in models.items()}
        assert normed == clipped == {"cpc": False, "pcc": True, "dm1": True, "variational": True}
        rules = {part: s["rule"] for s in SENTENCES for part in s["parts"] if s["key"] == "d"}
        assert ["batch norm" in rules[part] for part in PARTS] == [False, True, False]

    def test_each_part_has_its_sentences_and_the_papers_numbers(self):
        keys = {part: [s["key"] for s in SENTENCES if part in s["parts"]] for part in PARTS}
        assert keys == {
            "shallow": ["a", "b", "c", "d", "e", "g"],
            "deep": ["a", "b", "c", "d", "e", "f1", "f2", "g"],
            "simclr": ["c", "d", "e", "f1", "f2", "g"],
        }
        curves = [curve(o, 0, 0.9) for o in MAIN]
        claims = {c.key: c for c in judge_claims(Experiment("simclr"), curves, PIXELS)}
        assert claims["f1"].findings[0].paper == pytest.approx(91.51 - 91.04)
        assert claims["f2"].findings[0].paper == pytest.approx(91.04 - 88.69)
        other = judge_claims(Experiment("simclr", dataset="digits"), curves, PIXELS)
        assert all(finding.paper is None for claim in other for finding in claim.findings)
        # Sentences about several experiments say which is judged.
        for part, dataset, here in (
            ("shallow", "mnist", "[here: Figure 2, shallow, MNIST]"),
            ("deep", "cifar10", "[here: Figure 2, deep, CIFAR-10]"),
            ("simclr", "digits", "[here: SimCLR, 8 x 8 digits]"),
        ):
            claims = judge_claims(Experiment(part, dataset), curves, PIXELS)
            marked = [claim.key for claim in claims if claim.quote.endswith(here)]
            assert marked == [key for key in ("b", "f1", "f2") if key in {c.key for c in claims}]
            assert not any("{" in claim.quote for claim in claims)


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
    text = figure2.text_report(found, figure2.write_report(found, folder))
    assert max(map(len, text.splitlines())) <= 100
    results = json.loads((folder / "results.json").read_text())
    return found, (folder / "report.md").read_text(), results, " ".join(text.split())


def test_files(folder, monkeypatch):
    found, page, results, _ = reported(folder)
    assert departures(found) == figure2.choices(found) == []
    assert figure2.note(found) == ""
    assert "Not as in the paper" not in page
    lines = list(csv.DictReader((folder / "curves.csv").open()))
    head = ["run", "objective", "seed", "iteration", "epoch", "seconds", "accuracy"]
    assert (list(lines[0]), len(lines)) == (head, 3 * 10 * 21)
    assert {line["run"] for line in lines} == {"cpc+pcc+drfc-0+1+2+3+4", "cpc+pcc+drfc-5+6+7+8+9"}
    last = [line for line in lines if (line["objective"], line["seed"]) == ("pcc", "7")][-1]
    assert (last["iteration"], float(last["accuracy"])) == ("21000", pytest.approx(0.8307))
    summary = csv.DictReader((folder / "summary.csv").open())
    summary = {line["objective"]: line for line in summary}
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
    figure2.write_report(found, folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    # A report that breaks off leaves results.json, which says whose folder it is.
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        figure2.write_report(found, folder)
    assert json.loads((folder / "results.json").read_text()) == results


def test_nothing_but_runs_that_diverged(tmp_path):
    place = write_run(tmp_path, PAPER, {("dm1", 0): [None]})
    about = json.loads((place / "run.json").read_text())
    (place / "run.json").unlink()
    (place / "diverged.json").write_text(json.dumps({**about, "where": {}, "history": []}))
    _, page, results, _ = reported(tmp_path, Experiment("shallow", objectives=("dm1",), seeds=1))
    assert {claim["verdict"] for claim in results["claims"]} == {"cannot tell"}
    assert "| DM I | - | - | 1 | 1 | - | - | - |" in page
    assert "in the verdicts they have the accuracy of chance, 10%." in page
    assert (tmp_path / "curves.csv").read_text().count("\n") == 1


class TestShortened:
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
        write_run(tmp_path / "fewer", PAPER, of_paper(), data={"train": 60_000 - 1})
        assert departures(found_in(tmp_path / "fewer")) == ["59,999 of 60,000 training images"]

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

    def test_the_rate_the_scales_and_the_optimiser_of_simclr(self, tmp_path):
        found, page, results, text = self.simclr(tmp_path)
        rate, scores = figure2.choices(found)
        assert "learning rate 0.4 (batch 512), up over a tenth of the run" in rate
        assert scores == "scores: CPC temperature 0.2, PCC temperature 0.2, D-RFC scale 10"
        for told in (page, text):
            assert f"{rate}; {scores}" in told
            assert "the public recipe's 0.4" not in told
        assert "68.9 % with a rate of 0.12 and the public recipe's temperature of 0.5" in page
        assert results["ours"] == [rate, scores]
        # As the runs had them.
        loss = {"drfc": {"scale": 12, "alpha": 0.1}, "cpc": {"temperature": 0.5}}
        found, *_ = self.simclr(tmp_path / "other", loss=loss, batch_size=256)
        rate, scores = figure2.choices(found)
        assert "learning rate 0.2 (batch 256)" in rate
        told = "CPC temperature 0.5, PCC temperature 0.2, D-RFC scale 12, alpha 0.1"
        assert scores == f"scores: {told}"
        assert "batch size 256, not the public recipe's 512" in departures(found)
        assert not any("learning rate" in said for said in departures(found))
        recipe = make_recipe(Settings("simclr", width=4), (3, 32, 32), 10)
        (group,) = recipe.optimizer(0.4).param_groups
        assert (group["momentum"], group["weight_decay"]) == (0.9, 0.0005)

    def test_what_other_objectives_have_of_pcc_in_the_deep_part(self, tmp_path):
        asked = Experiment("deep", objectives=("cpc", "dm1", "variational"))
        for objective in asked.objectives:
            write_run(tmp_path, asked, {(objective, 0): [0.9]}, data={"name": "cifar10"})
        found = found_in(tmp_path, asked)
        (said,) = figure2.choices(found)
        assert said.startswith("Variational, DM I with the batch norm and the gradient clipping of")
        assert said in figure2.note(found)
        assert "CPC alone trains without batch norm in its blocks" in figure2.legend(found)


class TestLegend:
    def test_minutes_and_pixels(self, folder):
        told = figure2.legend(found_in(folder))
        assert "evaluations and checkpoints are not in them." in told
        assert "did not converge" not in told
        pixels = asdict(replace(read_pixels(folder), converged=False))
        reports.write_json(folder / "pixels.json", pixels)
        told = figure2.legend(found_in(folder))
        assert "the pixels of the upper half, which did not converge" in told
        write_run(folder, PAPER, {("dm1", 0): [0.9]}, wall_seconds=90.0)
        found, _, results, _ = reported(folder)
        assert "with these and compiling, 1 of 3 jobs took 1.5 minutes." in figure2.legend(found)
        assert [run["wall_seconds"] for run in results["runs"]] == [None, None, 90.0]

    def test_precision_and_flags(self, tmp_path):
        asked = Experiment("shallow", objectives=("cpc",), seeds=1)
        for device, precision, told in (
            ("cuda", "32-true", "(32 (TF32 products))"),
            ("cpu", "32-true", "(32)"),
            ("cuda", "bf16-mixed", "(bf16-mixed)"),
        ):
            where = {"device": device, "precision": precision}
            write_run(tmp_path / told, asked, {("cpc", 0): [0.9]}, where=where)
            page = reported(tmp_path / told, asked)[1]
            assert f"Trained on an unknown device {told}, 1 job" in page
        asked = Experiment("shallow", objectives=("dm1",), seeds=1)
        flag = {"name": "collapsed", "message": "all codes are the same (dm1-0)"}
        write_run(tmp_path, asked, {("dm1", 0): [0.9]}, flags=[{**flag, "replicas": [0]}])
        _, page, results, text = reported(tmp_path, asked)
        said = "Noticed in training: dm1-0: collapsed, all codes are the same (dm1-0)."
        assert said in page
        assert said in text
        assert results["runs"][0]["flags"] == [flag]


def test_mean_curve():
    own = [curve("cpc", 0, 0.5, 0.7, 0.8), curve("cpc", 1, 0.6, None, 0.9, every=500)]
    where, mean, sd = mean_curve(own, "steps")
    assert (where.tolist(), mean) == ([750, 1500, 2250], pytest.approx([55, 70, 85]))
    assert sd == pytest.approx([50 * math.sqrt(0.02), 0, 50 * math.sqrt(0.02)])
    assert mean_curve(own, "seconds")[0] == pytest.approx(np.array([750, 1500, 2250]) / 60)
    # Runs that the clock ended meet at their ends.
    own = [curve("cpc", 0, 0.1, 0.2, 0.3, 0.4), curve("cpc", 1, 0.1, 0.2, 0.6)]
    where, mean, _ = mean_curve(own, "steps")
    assert (where.tolist(), mean) == ([1000, 2000, 3500], pytest.approx([10, 20, 50]))
    # Of runs that diverged.
    assert mean_curve([curve("dm1", 0)], "steps")[0].size == 0
    where, mean, _ = mean_curve([curve("dm1", 0, 0.3, None), curve("dm1", 1)], "steps")
    assert (where.tolist(), mean) == ([1000, 2000], pytest.approx([30, math.nan], nan_ok=True))
    # Those that ended so are drawn where there is nothing else, and shorten no other.
    cut = [replace(curve("dm1", k, *a), cut=True) for k, a in enumerate([(0.3,), (0.4, 0.5)])]
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


@pytest.mark.parametrize(
    ("part", "panels", "marks"), [("shallow", 1, 0), ("deep", 2, 0), ("simclr", 2, 3)]
)
def test_what_is_drawn(part, panels, marks):
    figure = draw(Experiment(part), CURVES, PIXELS, NOTE)
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
    # Nothing lies on top of something else.
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    parts = [figure.legends[0], figure._suptitle, figure._supxlabel, *figure.axes]
    boxes, page = [one.get_tightbbox(renderer) for one in parts], figure.bbox
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[k + 1 :])
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0
