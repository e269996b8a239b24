"""Whole runs on few words, the folders they leave, and the figure."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from pointdep.experiments.words.claims_figure3 import judge_figure3
from pointdep.experiments.words.claims_table2 import judge_table2
from pointdep.experiments.words.claims_text import text_claims, text_departures
from pointdep.experiments.words.draw import draw
from pointdep.experiments.words.figure3 import (
    count_shared,
    endings,
    expected_seconds_figure3,
    lowest_words,
    run_figure3,
)
from pointdep.experiments.words.report import write_figure3, write_table2
from pointdep.experiments.words.settings import Figure3, Table2, words_method
from pointdep.experiments.words.table2 import examples, expected_seconds_table2, run_table2
from pointdep.experiments.words.tables import text_figure3, text_table2
from pointdep.experiments.words.training import Job, Sides, split_words, train
from pointdep.inference.scoring import score_replicas

from .synthetic import SMALL, make_matched, make_matching, make_pmi, make_words


class Told:
    """A progress that keeps what it is told."""

    def __init__(self):
        self.seen = []

    def update(self, done, total, detail=""):
        self.seen.append((done, total))


@pytest.fixture(scope="module")
def pairs():
    return make_words(300)


@pytest.fixture(scope="module")
def matched(pairs):
    return run_table2(Table2(**SMALL, draws=3), pairs)


@pytest.fixture(scope="module")
def found(pairs):
    return run_figure3(Figure3(**SMALL, folds=3), pairs)


class TestTable2:
    def test_files(self, matched, tmp_path):
        claims = write_table2(matched, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {
            *("table2.md", "claims.md", "trials.csv", "training.csv", "results.json")
        }
        kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
        assert kept["command"] == matched.settings.command
        assert [line["method"] for line in kept["matching"]] == ["pc", "drf", "drf_relative"]
        assert sum(kept["matching"][0]["places"]) == kept["test"] == 60
        assert [one["verdict"] for one in kept["claims"]] == [one.verdict for one in claims]
        trials = pd.read_csv(tmp_path / "trials.csv")
        assert len(trials) == 3 * 60 * 5
        own = trials[(trials.method == "pc") & (trials.heard == trials.read)]
        assert own.heard.tolist() == matched.test.tolist()
        assert np.allclose(own.pmi, matched.matchings[0].pmi[:, 0])
        curve = pd.read_csv(tmp_path / "training.csv")
        assert list(curve.columns) == ["epoch", "pc", "drf", "drf_relative"]
        assert curve.epoch.tolist() == [1, 2, 3, 4, 5, 6]
        page = (tmp_path / "table2.md").read_text("utf-8")
        assert "300 words that are not the paper's" in page
        assert "not the paper's experiment" in (tmp_path / "claims.md").read_text("utf-8")

    def test_text(self, matched):
        claims = judge_table2(matched)
        text = text_table2(matched) + text_claims(claims, matched.settings, matched.words)
        assert max(map(len, text.splitlines())) <= 100
        assert all(f"\n{one.key:<3} {one.verdict}" in "\n" + text for one in claims)

    def test_examples_are_ranked(self):
        pmi = [[1, 2, 3, -4, 0], [9, 2, 3, -4, 0], *[[0, 1, 1, 1, 1]] * 28]
        found = make_matching(pmi)
        matched = make_matched(found)
        (right,) = examples(matched, found, right=True)
        assert right.heard == "t1"
        assert right.candidates == ("t1", "t11", "t6", "t21", "t16")
        assert right.pmi == (9, 3, 2, 0, -4)
        wrong = examples(matched, found, right=False)
        assert len(wrong) == 5
        assert wrong[0].candidates == ("t10", "t5", "t0", "t20", "t15")
        assert "*t0 (1.00)*" in text_table2(matched)

    def test_what_ties_is_before_the_words_own_text(self):
        found = make_matching([[0.0] * 5] * 30)
        told = examples(make_matched(found), found, right=False)
        assert all(example.candidates[-1] == example.heard for example in told)
        assert found.tied == 1.0

    def test_the_same_again(self, matched, pairs):
        again = run_table2(matched.settings, pairs)
        assert np.array_equal(again.matchings[0].pmi, matched.matchings[0].pmi)


def test_only_another_experiment_is_called_so():
    paper, other = (Table2(epochs=epochs) for epochs in (100, 3))
    assert text_departures(paper, 37_622) == ""
    assert "not the paper's" not in text_claims([], paper, 37_622)
    for settings, words in ((paper, 37_621), (other, 37_622)):
        assert text_departures(settings, words).startswith("This is not the paper's experiment: ")
        assert "not the paper's experiment" in text_claims([], settings, words)


class TestFigure3:
    def test_files(self, found, tmp_path):
        write_figure3(found, tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {
            *("figure3.png", "figure3.svg", "figure3.pdf"),
            *("table.md", "claims.md", "pmi.csv", "results.json"),
        }
        kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
        assert kept["command"] == found.settings.command
        assert kept["train"] == 240
        table = pd.read_csv(tmp_path / "pmi.csv")
        assert table.in_sample.is_monotonic_increasing
        assert set(table.word) == set(found.words)
        assert (table.in_sample < 0).sum() == kept["pmi"][0]["negative"]
        assert kept["pmi"][1]["mean"] == pytest.approx(table.out_of_sample.mean())

    def test_text(self, found):
        claims = judge_figure3(found)
        text = text_figure3(found) + text_claims(claims, found.settings, found.all_words)
        assert max(map(len, text.splitlines())) <= 100

    def test_in_sample_is_by_the_network_of_all_training_words(self, found, pairs):
        settings = Table2(**SMALL, methods=("pc",))
        rows, test = split_words(settings, len(pairs))
        sides = Sides.of(pairs, settings)
        model = train(settings, sides, [Job(words_method("pc"), rows)]).model
        assert found.words.tolist() == pairs.words[rows].tolist()
        own = score_replicas(model, sides.x[rows], sides.y[rows])[0]
        assert np.allclose(found.in_sample, own, atol=1e-5)
        assert np.allclose(found.test, score_replicas(model, sides.x[test], sides.y[test])[0])

    def test_out_of_sample_knows_nothing_of_the_word(self, pairs, found):
        """With another text for one word, only its own number and those of other folds change."""
        rows, _ = split_words(found.settings, len(pairs))
        changed = make_words(300)
        changed.text[rows[4]] += 3.0
        again = run_figure3(found.settings, changed)
        same = np.isclose(again.out_of_sample, found.out_of_sample, rtol=0, atol=1e-7)
        fold = np.arange(len(rows)) % 3 == 4 % 3
        fold[4] = False
        assert same[fold].all()
        assert not same[4]
        assert not same[np.arange(len(rows)) % 3 != 4 % 3].any()

    def test_progress_is_one_piece_of_work(self, pairs):
        told = Told()
        run_figure3(Figure3(**SMALL, folds=3), pairs, told)
        done, totals = zip(*told.seen, strict=True)
        assert len(set(totals)) == 1
        assert list(done) == sorted(done)
        assert done[-1] == totals[0] == 6 * (240 // 32) + 3 * 6 * (160 // 32)

    def test_endings_by_hand(self):
        words = ["badly", "cats", "dog", "only", "my", "runs"]
        lines = {line.ending: line for line in endings(words, np.array([-1, -1, 1, 1, -1, 0.0]))}
        assert (lines["ly"].negative, lines["ly"].words) == (1, 2)
        assert (lines["s"].negative, lines["s"].words) == (1, 2)
        assert (lines["ing"].negative, lines["ing"].words) == (0, 0)
        assert {line.all_negative for line in lines.values()} == {3}

    def test_lowest_words(self):
        found = make_pmi([-1, -3, 2, -2, -0.5], words=["aly", "bly", "cly", "ds", "ely"])
        assert lowest_words(found, "ly", 2) == ["bly", "aly"]
        assert lowest_words(found, "s", 9) == ["ds"]

    def test_shared_sounds(self):
        assert count_shared(np.array([[1, 2], [3, 4], [1, 2], [1, 2], [5, 6]], np.float32)) == 3


class TestFigure:
    def test_bars_add_up_and_the_negative_part_is_marked(self):
        random = np.random.default_rng(0)
        values = random.normal(1, 1, size=3000)
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

    @pytest.mark.parametrize("values", [np.linspace(1, 2, 60), -np.linspace(1, 2, 60)])
    def test_all_on_one_side_of_zero(self, values, tmp_path):
        write_figure3(make_pmi(values), tmp_path)
        assert (tmp_path / "figure3.png").stat().st_size > 10_000


def test_expected_seconds(pairs):
    assert expected_seconds_table2(Table2(**SMALL), pairs) > 0
    assert expected_seconds_figure3(Figure3(**SMALL), pairs) > 0
