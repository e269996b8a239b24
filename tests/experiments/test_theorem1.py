"""Theorem 1: the fits, the errors and their slope."""

import csv
import json
import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from pointdep.experiments import theorem1
from pointdep.experiments.theorem1 import Theorem1, bias_share, draw, fit_slope, slopes, summarise
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.engine import Trained
from refusals import refused

CPU = torch.device("cpu")
SMALL = Theorem1(rows=(60, 90), dim=2, hidden=(8,), seeds=2, device="cpu")
ROWS = (300, 1_000, 3_000, 10_000)


def outcome_of(errors, *, rows=ROWS, method="pc", in_sample=None, **more):
    """An outcome with these held-out errors, (numbers of rows, seeds)."""
    seen = errors if in_sample is None else in_sample
    settings = Theorem1(methods=(method,), rows=rows, seeds=errors.shape[1], device="cpu")
    known = {"exact": 1.0, "at_limit": 0.0, "limit_error": 0.0, "epochs": 5.0, "ended_early": 0}
    runs = [
        {
            **{"method": method, "rows": count, "seed": seed, **known, **more},
            **{"held_out": 1 + errors[k, seed], "in_sample": 1 + seen[k, seed]},
        }
        for k, count in enumerate(rows)
        for seed in range(errors.shape[1])
    ]
    return theorem1.Outcome(settings, runs, 99, (1.0,) * len(rows), "cpu")


def falling(exponent, seeds=8, rows=ROWS, scale=3.0):
    """Errors of both signs whose RMSE is exactly scale * rows^exponent."""
    signs = np.linspace(-1.5, 1.5, seeds)
    signs /= np.sqrt(np.square(signs).mean())
    return scale * np.power(rows, float(exponent))[:, None] * signs


class TestSlope:
    @pytest.mark.parametrize("seeds", [5, 10])
    @pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
    def test_the_interval_holds_the_truth_as_often_as_it_says(self, seeds, bias):
        """Errors of which none, half and nine tenths of the square are bias."""
        random, rows = np.random.default_rng(0), Theorem1().rows
        scale = np.power(rows, -0.5)[:, None]
        held, last = 0, 0
        for _ in range(2_000):
            errors = scale * (random.normal(size=(len(rows), seeds)) - bias)
            _, low, high = fit_slope(rows, errors)
            held += low <= -0.5 <= high
            _, low, high = fit_slope(rows[-2:], errors[-2:])
            last += low <= -0.5 <= high
        # Three standard errors of 2,000 runs are 1.5%; resampled seeds gave 84 to 92%.
        assert 0.93 <= held / 2_000 <= 0.97
        assert 0.925 <= last / 2_000 <= 0.975

    def test_of_an_outcome(self):
        held, seen = slopes(outcome_of(falling(-0.5), in_sample=falling(-1.0)))
        assert (held["quantity"], seen["quantity"]) == ("held_out", "in_sample")
        assert (held["value"], held["last"]) == pytest.approx((-0.5, -0.5))
        assert (seen["value"], seen["last"]) == pytest.approx((-1.0, -1.0))
        # An error that stays shows in the last step.
        errors = falling(-1.0)
        errors[-1] = errors[-2]
        assert slopes(outcome_of(errors))[0]["last"] == pytest.approx(0.0, abs=1e-12)
        intervals = (-0.7, -0.51), (-0.6, -0.4), (-0.4, -0.1)
        assert [theorem1.verdict(*one) for one in intervals] == ["steeper", "agrees", "shallower"]
        # Its interval is that of the jackknife.
        errors = np.random.default_rng(0).normal(size=(4, 6))
        value, low, high = fit_slope(ROWS, errors)
        x, parts = np.log(ROWS), []
        for k in range(4):
            slopes_without = []
            for seed in range(6):
                logs = [math.log(theorem1.rmse(e)) for e in errors]
                logs[k] = math.log(theorem1.rmse(np.delete(errors[k], seed)))
                slopes_without.append(np.polyfit(x, logs, 1)[0])
            parts.append(5 / 6 * np.square(slopes_without - np.mean(slopes_without)).sum())
        freedom = 5 * sum(parts) ** 2 / np.square(parts).sum()
        reach = student.ppf(0.975, freedom) * math.sqrt(sum(parts))
        assert value == pytest.approx(np.polyfit(x, 0.5 * np.log(np.square(errors).mean(1)), 1)[0])
        assert (value - low, high - value) == pytest.approx((reach, reach))


class TestSummary:
    def test_parts_of_the_error(self):
        errors = np.array([[0.1, 0.3], [-0.3, 0.1]])
        first, second = summarise(outcome_of(errors, rows=(100, 200), at_limit=0.25))
        assert first["rmse"] == pytest.approx(math.sqrt(0.05))
        assert (first["bias"], first["sd"]) == pytest.approx((0.2, 0.1))
        assert bias_share(first) == pytest.approx((0.04 - 0.01) / 0.05)
        # Without one seed the logarithm is that of the other: half their difference is the
        # standard error, and Student's t of one degree of freedom is a Cauchy variable.
        reach = math.tan(0.475 * math.pi) * math.log(3) / 2
        said = first["rmse"] / math.exp(reach), first["rmse"] * math.exp(reach)
        assert (first["low"], first["high"]) == pytest.approx(said)
        assert [second[k] for k in ("bias", "at_limit", "seeds")] == pytest.approx([-0.1, 0.25, 2])
        assert (first["exact_rmse"], first["in_sample_rmse"]) == pytest.approx((0.0, first["rmse"]))
        # An error that is always the same is bias.
        first, *_ = summarise(outcome_of(np.full((4, 3), 0.2)))
        assert (bias_share(first), first["low"], first["high"]) == pytest.approx((1.0, 0.2, 0.2))
        for dim, mi in ((5, 1.0), (1, 0.2), (20, 8.0)):
            settings = Theorem1(dim=dim, mi=mi)
            _, _, pmi = settings.joint.sample(200_000, np.random.default_rng(0))
            assert settings.exact_sd(1) == pytest.approx(pmi.std(), rel=0.02)
            assert settings.exact_sd(400) == pytest.approx(settings.exact_sd(1) / 20)

    @pytest.mark.parametrize("seeds", [5, 10])
    @pytest.mark.parametrize(("bias", "share"), [(0.0, 0.0), (1.0, 0.5), (3.0, 0.9)])
    def test_share_of_bias(self, seeds, bias, share):
        """Over many estimates it is right, where bias^2 / rmse^2 is 1/seeds too much."""
        errors = np.random.default_rng(1).normal(size=(300, seeds)) - bias
        lines = summarise(outcome_of(errors, rows=tuple(range(100, 400))))
        shares, squares = np.array([(bias_share(line), line["rmse"] ** 2) for line in lines]).T
        if bias:
            assert np.average(shares, weights=squares) == pytest.approx(share, abs=0.3 / seeds)
        else:
            assert np.median(shares) == 0.0


def test_fits_and_estimates_row_by_row():
    fits = theorem1.make_fits(SMALL, 60, CPU)
    assert [method.key for method in fits.methods] == ["pc", "pc", "drf", "drf"] * 2
    assert fits.x.shape == fits.y.shape == (120, 2)
    assert fits.pmi.shape == (2, 60)
    for number, split in enumerate(fits.splits):
        own = np.sort(np.concatenate([split.train, split.stop, split.report]))
        np.testing.assert_array_equal(own, np.arange(60) + 60 * (number // 4))
    # The methods see the same rows, held out from the same folds.
    np.testing.assert_array_equal(fits.splits[0].report, fits.splits[2].report)
    exact = SMALL.joint.log_ratio(fits.x.double().numpy(), fits.y.double().numpy())
    np.testing.assert_allclose(exact, fits.pmi.ravel(), atol=1e-5)
    # No row is drawn twice.
    values = torch.cat([fits.x, theorem1.make_fits(SMALL, 90, CPU).x]).ravel()
    assert len(values.unique()) == len(values)
    # Each row by the network that did not see it, and by the one that trained on it.
    model = theorem1.make_model(SMALL, fits)
    runs = list(theorem1.compare(SMALL, fits, model, Trained((), [], list(range(8)))))
    ran = [(run["seed"], run["method"]) for run in runs]
    assert ran == [(0, "pc"), (0, "drf"), (1, "pc"), (1, "drf")]
    for position, run in enumerate(runs):
        held, seen, excess, limited = [], [], 0.0, 0
        for replica in (2 * position, 2 * position + 1):
            one, split = model.select([replica]), fits.splits[replica]
            for row in range(60 * run["seed"], 60 * run["seed"] + 60):
                pair = fits.x[row].view(1, 1, -1), fits.y[row].view(1, 1, -1)
                value = one.log_ratio_pairs(*pair).item()
                if row in split.train:
                    seen.append(value)
                if row not in split.report:
                    continue
                held.append(value)
                if run["method"] == "drf" and value < -9.2:
                    limited += 1
                    excess += value - fits.pmi[run["seed"], row % 60]
        assert len(held) == 60
        assert len(seen) == sum(len(s.train) for s in fits.splits[:2]) < 60
        assert run["held_out"] == pytest.approx(np.mean(held), abs=1e-5)
        assert run["in_sample"] == pytest.approx(np.mean(seen), abs=1e-5)
        assert run["exact"] == pytest.approx(fits.pmi[run["seed"]].mean())
        assert run["at_limit"] == pytest.approx(limited / 60)
        assert run["limit_error"] == pytest.approx(excess / 60, abs=1e-4)
        assert run["epochs"] == 2 * position + 0.5
    # An untrained score is near zero: the read-out of drf stops it at the floor about half the
    # time, so that the check above had something to check.
    assert 0 < runs[1]["at_limit"] < 1


def test_run(monkeypatch, tmp_path):
    monkeypatch.setattr(theorem1, "TrainingOptions", partial(TrainingOptions, max_epochs=25))
    told = []
    shown = SimpleNamespace(update=lambda *words: told.append(words))
    outcome = theorem1.run_theorem1(SMALL, shown)
    assert [(r["rows"], r["seed"], r["method"]) for r in outcome.runs] == [
        *product((60, 90), (0, 1), ("pc", "drf"))
    ]
    assert (outcome.weights, outcome.device) == (2 * 8 + 8 + 2 * 8 + 8 + 1, "cpu")
    # Two networks of each, of which drf learns slowly.
    assert {run["ended_early"] for run in outcome.runs if run["method"] == "drf"} == {2}
    done = [done for done, _, _ in told]
    assert (done, {total for _, total, _ in told}) == (sorted(done), {2_000})
    assert told[0][2].startswith("of the work, 60 rows: 1 epochs")
    assert [one for one in told if one[2].endswith("rows: done")] == [
        (1_000, 2_000, "of the work, 60 rows: done"),
        (2_000, 2_000, "of the work, 90 rows: done"),
    ]
    # Not from the limit on epochs, which few networks come to.
    half = next(one for one in told if one[2].startswith("of the work, 60 rows: 21 epochs"))
    assert half[0] == pytest.approx(500, rel=0.02)
    more = theorem1.run_theorem1(Theorem1(**{**vars(SMALL), "seeds": 3}))
    same = [run for run in more.runs if run["seed"] < 2]
    for one, other in zip(outcome.runs, same, strict=True):
        assert other["held_out"] == pytest.approx(one["held_out"], abs=1e-3)
        assert (other["exact"], other["epochs"]) == (one["exact"], one["epochs"])
    theorem1.write_report(outcome, tmp_path)
    names = "runs.csv", "summary.csv", "results.json", "figure.png", "figure.svg", "figure.pdf"
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    content = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert (content["command"], content["weights"]) == (SMALL.command, outcome.weights)
    assert (set(content["seconds"]), len(content["slopes"])) == ({"60", "90"}, 4)
    lines = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert float(lines[3]["held_out"]) == outcome.runs[3]["held_out"]
    assert len(list(csv.DictReader((tmp_path / "summary.csv").open()))) == 4
    before = {name: (tmp_path / name).read_bytes() for name in names[3:]}
    theorem1.write_report(outcome, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names[3:]} == before
    # Networks learn most of the nat between 400 pairs.
    larger = {"rows": (400, 500), "hidden": (32,), "methods": ("pc",)}
    for run in theorem1.run_theorem1(Theorem1(**{**vars(SMALL), **larger})).runs:
        assert abs(run["held_out"] - run["exact"]) < 0.3
        assert abs(run["in_sample"] - run["exact"]) < 0.3


class TestWords:
    def test_table_and_reading(self):
        lines = theorem1.text_table(summarise(outcome_of(falling(-0.5)))).splitlines()
        assert len(lines) == 5
        assert max(map(len, lines)) <= 100
        assert lines[4].split()[:3] == ["pc", "10,000", "0.0300"]
        for exponent, said in (
            (-0.5, "-1/2 lies in it"),
            (-1.0, "steeper than -1/2, which is no contradiction"),
            (-0.1, ": shallower than -1/2."),
        ):
            outcome = outcome_of(falling(exponent))
            (text,) = theorem1.reading(summarise(outcome), slopes(outcome))
            assert text.startswith(f"pc: the held-out RMSE falls like n^{exponent:.2f}, 95% ")
            assert said in text
            assert "limit of the read-out" not in text
            assert "train to their end" not in text
        more = {"at_limit": 0.02, "limit_error": -0.03, "ended_early": 1}
        outcome = outcome_of(falling(-0.5) - 0.1, method="drf", **more)
        (text,) = theorem1.reading(summarise(outcome), slopes(outcome))
        assert "2.0% of the held-out pairs are at a limit of the read-out" in text
        assert "-0.0300 nats of the bias of -0.1000" in text
        assert "32 network(s) did not train to their end" in text
        assert f"Bias makes up {(0.01 - 0.03 / 7) / 0.04:.0%}" in text

    def test_figure(self):
        outcome = outcome_of(falling(-0.7))
        figure = draw(outcome)
        errors, parts = figure.axes
        assert errors.get_xscale() == errors.get_yscale() == parts.get_yscale() == "log"
        legend = [text.get_text() for text in errors.get_legend().get_texts()]
        assert legend[0].startswith("pc, held out: slope -0.70 (")
        assert legend[1].startswith("pc, in sample: slope -0.70 (")
        assert "99 weights" in figure.get_suptitle()
        lines = {line.get_label(): line for line in errors.get_lines()}
        x, y = lines["slope -0.50, for comparison"].get_data()
        assert np.diff(np.log(y)) == pytest.approx(-0.5 * np.diff(np.log(x)))
        exact = next(line for label, line in lines.items() if label.startswith("exact"))
        assert exact.get_linestyle() == "--"
        assert exact.get_ydata() == pytest.approx([outcome.settings.exact_sd(n) for n in ROWS])
        # What is far off does not squeeze it: a bias of nothing, and an interval from two seeds.
        assert draw(outcome_of(falling(-0.5, seeds=2))).axes[1].get_ylim()[0] > 1e-3
        wide = np.array([[1e-4, 0.2]] * 4)
        assert summarise(outcome_of(wide))[0]["high"] > 1e6
        assert draw(outcome_of(wide)).axes[0].get_ylim()[1] < 2.0


def test_settings():
    repeated = Theorem1(rows=(300, 100, 300), methods=("pc", "pc"))
    assert repeated == Theorem1(rows=(100, 300), methods=("pc",))
    for change, message in (
        ({"methods": ("pcc",)}, "unknown method 'pcc': did you mean 'pc'"),
        ({"methods": ("cpc",)}, "'cpc' infers something else.*variational, pc, dm1, dm2, drf"),
        ({"methods": ()}, "methods must name at least one"),
        ({"rows": (100,)}, "at least two"),
        ({"rows": (100, 20)}, "rows=20 must be at least 50"),
        ({"critic": "conct"}, "unknown critic 'conct': did you mean 'concat'"),
        ({"activation": "rleu"}, "unknown activation 'rleu': did you mean 'relu'"),
        ({"folds": 1}, "folds=1 must be at least 2"),
        ({"seed": 2**32 - 9}, f"seed={2**32 - 9} must be at most {2**32 - 10}"),
        ({"hidden": (8, 0)}, "hidden=0"),
        ({"mi": 0.0}, "mi=0.0 must be positive"),
        ({"mi": 100.0, "dim": 1}, "more than 1 dimension"),
    ):
        refused(message, Theorem1, **change)
