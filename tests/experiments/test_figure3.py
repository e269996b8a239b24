"""Figure 3: shapes and ratios against scipy, verdicts on PMI made up, the folder and the figure."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from pointdep.experiments import figure3
from pointdep.experiments.figure3 import Figure3, draw, judge_figure3, ratio_of_shares, run_figure3
from pointdep.experiments.table2 import Table2
from pointdep.experiments.words import Sides, train
from pointdep.inference.scoring import score_replicas

from .word_samples import SMALL, kept, make_pmi, make_words, verdicts

VALUES = np.random.default_rng(0).gamma(3.0, size=500)


class TestNumbers:
    @settings(deadline=None, max_examples=30)
    @given(shift=st.floats(-50, 50), scale=st.floats(0.1, 20))
    def test_distance_is_kolmogorov_and_smirnovs(self, shift, scale):
        theirs = stats.kstest(VALUES, stats.norm(VALUES.mean(), VALUES.std()).cdf).statistic
        found = figure3.distance_from_gaussian(shift + scale * VALUES)
        assert found == pytest.approx(theirs, abs=1e-8)

    def test_ratio_of_shares_separation_and_bootstrap(self):
        found = ratio_of_shares(300, 1000, 1200, 10_000)  # 30 % of the part, 10 % of the rest
        assert found.value == pytest.approx(3.0, rel=0.01)
        theirs = stats.contingency.relative_risk(300, 1000, 900, 9000).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=0.01)
        assert ratio_of_shares(0, 0, 5, 10) is ratio_of_shares(5, 10, 5, 10) is None
        # The separation is the area under the curve.
        random = np.random.default_rng(2)
        low, high = random.integers(0, 6, 40), random.integers(1, 8, 70)
        found = figure3.separation(low.astype(float), high.astype(float))
        labels = np.repeat([0, 1], [40, 70])
        assert found.value == pytest.approx(roc_auc_score(labels, np.concatenate([low, high])))
        assert found.low < found.value < found.high
        assert figure3.separation(np.array([]), VALUES) is None
        found = figure3.bootstrapped(stats.skew, np.random.default_rng(1).normal(size=2000), 0)
        assert found.low <= found.value <= found.high
        assert (found.high - found.low) / 2 == pytest.approx(1.96 * np.sqrt(6 / 2000), rel=0.3)

    def test_words_by_hand(self):
        words = ["badly", "cats", "dog", "only", "my", "runs"]
        found = figure3.endings(words, np.array([-1, -1, 1, 1, -1, 0.0]))
        lines = {line["ending"]: line for line in found}
        assert (lines["ly"]["negative"], lines["ly"]["words"]) == (1, 2)
        assert (lines["s"]["negative"], lines["s"]["words"]) == (1, 2)
        assert (lines["ing"]["negative"], lines["ing"]["words"]) == (0, 0)
        assert {line["all_negative"] for line in lines.values()} == {3}
        found = make_pmi([-1, -3, 2, -2, -0.5], words=["aly", "bly", "cly", "ds", "ely"])
        assert figure3.lowest_words(found, "ly", 2) == ["bly", "aly"]
        assert figure3.lowest_words(found, "s", 9) == ["ds"]
        sounds = np.array([[1, 2], [3, 4], [1, 2], [1, 2], [5, 6]], np.float32)
        assert figure3.count_shared(sounds) == 3


def judged(seen, unseen=None):
    return verdicts(judge_figure3(make_pmi(seen, unseen)))


class TestClaims:
    def test_gaussian_in_sample_and_out_of_it(self):
        random = np.random.default_rng(0)
        found = judged(8 + 2 * random.normal(size=4000))
        assert found["i"] == found["j"] == found["k"] == "holds"
        for other in (random.exponential(size=4000), random.standard_t(3, size=4000)):
            assert judged(other)["i"] == "does not hold"
        # The shape out of sample does not decide.
        random = np.random.default_rng(0)
        seen, unseen = random.normal(size=4000), random.exponential(size=4000)
        first, *_ = judge_figure3(make_pmi(seen, unseen))
        assert first.verdict == "holds"
        assert [finding.supports for finding in first.findings[:3]] == [True] * 3
        assert False in [finding.supports for finding in first.findings[3:]]
        for unseen, verdict in ((7.5, "holds"), (6.5, "does not hold"), (-3.0, "does not hold")):
            noise = np.random.default_rng(0).normal(size=1000)
            found = judged(8 + noise, unseen + noise)
            assert (found["j"], found["k"]) == (verdict, "holds")
        random = np.random.default_rng(0)
        seen = random.normal(1, 1, size=1000)
        assert judged(seen, seen + random.normal(size=1000))["n"] == "holds"
        assert judged(seen, -seen)["n"] == "does not hold"

    def test_share_below_zero_and_endings(self):
        values = 1 + 1e-3 * np.random.default_rng(0).normal(size=20_000)
        values[:90] = -1
        assert judged(values)["l"] == "holds"  # 0.45 %
        values[:300] = -1
        claims = judge_figure3(make_pmi(values))
        assert verdicts(claims)["l"] == "does not hold"
        assert claims[3].findings[0].value == pytest.approx(0.015)
        # In `make_words` a quarter of the words end in each of ly, s, ing and a.
        random = np.random.default_rng(0)
        values, place = 1 + 0.1 * random.normal(size=2000), np.arange(2000) % 4
        for chosen, verdict in ((place < 2, "holds"), (place > 1, "does not hold")):
            turned = np.where(random.random(2000) < 0.2, -1, 1)
            assert judged(np.where(chosen, turned * values, values))["m"] == verdict
        few = np.where(np.arange(2000) < 4, -1, values)
        assert judged(few)["m"] == judged(few)["n"] == judged(values)["n"] == "cannot tell"


def test_run(tmp_path):
    pairs, told = make_words(300), []
    shown = SimpleNamespace(update=lambda done, total, detail="": told.append((done, total)))
    found = run_figure3(Figure3(**SMALL, folds=3), pairs, shown)
    done, totals = zip(*told, strict=True)  # one piece of work
    assert (len(set(totals)), list(done)) == (1, sorted(done))
    assert done[-1] == totals[0] == 6 * (240 // 32) + 3 * 6 * (160 // 32)
    figure3.write_report(found, tmp_path)
    names = "figure3.png figure3.svg figure3.pdf table.md claims.md pmi.csv results.json"
    assert {path.name for path in tmp_path.iterdir()} == set(names.split())
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert (results["command"], results["train"]) == (found.settings.command, 240)
    table = pd.read_csv(tmp_path / "pmi.csv")
    assert table.in_sample.is_monotonic_increasing
    assert set(table.word) == set(found.names)
    assert (table.in_sample < 0).sum() == results["pmi"][0]["negative"]
    assert results["pmi"][1]["mean"] == pytest.approx(table.out_of_sample.mean())
    assert max(map(len, figure3.text_report(found, judge_figure3(found)).splitlines())) <= 100
    # In sample is by the network of all training words.
    asked = Table2(**SMALL, methods=("pc",))
    rows, test = asked.split(len(pairs))
    x, y = sides = Sides.of(pairs, asked)
    model, _ = train(asked, sides, asked.turns(len(pairs))[0])
    assert found.names.tolist() == pairs.words[rows].tolist()
    assert np.allclose(found.in_sample, score_replicas(model, x[rows], y[rows])[0], atol=1e-5)
    assert np.allclose(found.test, score_replicas(model, x[test], y[test])[0])
    # With another text for one word, only its own number and those of other folds change.
    changed = make_words(300)
    changed.text[rows[4]] += 3.0
    again = run_figure3(found.settings, changed)
    same = np.isclose(again.out_of_sample, found.out_of_sample, rtol=0, atol=1e-7)
    fold = np.arange(len(rows)) % 3 == 4 % 3
    assert not same[4]
    assert not same[~fold].any()
    fold[4] = False
    assert same[fold].all()


def test_bars_add_up_and_the_negative_part_is_marked(tmp_path):
    values = np.random.default_rng(0).normal(1, 1, size=3000)
    axes = draw(make_pmi(values, 2 * values)).axes
    for axis, shown in zip(axes, (values, 2 * values), strict=False):
        bars = [bar for bar in axis.patches if bar.get_height()]
        left = [bar for bar in bars if bar.get_x() + bar.get_width() <= 1e-9]
        low, high = axis.get_xlim()
        inside = shown[(shown >= low) & (shown <= high)]
        assert sum(bar.get_height() for bar in bars) == len(inside)
        assert sum(bar.get_height() for bar in left) == (inside < 0).sum()
        colours = {bar.get_facecolor() for bar in left}
        assert len(colours) == 1
        assert colours.isdisjoint(bar.get_facecolor() for bar in bars if bar not in left)
        assert f"below zero: {(shown < 0).sum():,}" in axis.texts[0].get_text()
    # All on one side of zero.
    for values in (np.linspace(1, 2, 60), -np.linspace(1, 2, 60)):
        figure3.write_report(make_pmi(values), tmp_path)
        assert (tmp_path / "figure3.png").stat().st_size > 10_000


def test_the_results_in_docs():
    """They are of the paper's settings, and the pages say what was measured."""
    results, page = kept("figure3")
    assert results["command"] == Figure3(files=("--data", "words.npz")).command
    names = {"in_sample": "in sample", "out_of_sample": "out of sample", "test": "test words"}
    for line in results["pmi"]:
        numbers = f"{line['mean']:.2f} | {line['sd']:.2f} | {100 * line['negative_share']:.2f} %"
        assert f"\n| {names[line['of']]} | {numbers} |" in page
