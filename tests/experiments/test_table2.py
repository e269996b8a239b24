"""Networks of words against the released notebook; Table 2: candidates, ranks, verdicts, folder."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from pointdep.experiments import table2, words
from pointdep.experiments.figure3 import Figure3
from pointdep.experiments.table2 import Table2, match
from pointdep.experiments.words import Job, Sides, Training, make_engine, train
from pointdep.fitting.batches import RowBatches, TrainingOptions
from pointdep.inference.scoring import score_replicas
from refusals import refused

from .word_samples import SMALL, kept, make_matched, make_matching, make_words, verdicts


class TestCandidates:
    def test_candidates_and_ranks(self):
        found = table2.fixed_candidates(23)
        assert (found[0].tolist(), found[21].tolist()) == ([0, 5, 10, 15, 20], [21, 3, 8, 13, 18])
        assert all(len(set(row)) == 5 for row in found.tolist())
        scores = np.array([[3, 1, 2], [2, 3, 1], [1, 2, 3], [2, 2, 1], [0, 0, 0]], np.float32)
        assert table2.ranks_of_first(scores).tolist() == [1, 2, 3, 2, 3]
        scores[0, 1] = np.nan
        assert table2.ranks_of_first(scores)[0] == 2
        # Random ones are drawn evenly.
        random = np.random.default_rng(0)
        drawn = np.concatenate([table2.random_candidates(8, random)[3:4, 1:] for _ in range(3000)])
        counts = np.bincount(drawn.ravel(), minlength=8)
        assert counts[3] == 0
        assert np.allclose(np.delete(counts, 3) / 3000, 4 / 7, atol=0.04)

    @settings(deadline=None, max_examples=30)
    @given(n=st.integers(6, 40), seed=st.integers(0, 1000))
    def test_random_ones_are_different_words(self, n, seed):
        found = table2.random_candidates(n, np.random.default_rng(seed))
        assert found[:, 0].tolist() == list(range(n))
        assert all(len(set(row)) == 5 and set(row) <= set(range(n)) for row in found.tolist())


@pytest.mark.parametrize("method", ["pc", "drf", "drf_relative"])
def test_matching_against_loops(method):
    pairs, asked = make_words(150), Table2(methods=(method,), **SMALL)
    sides, test = Sides.of(pairs, asked), asked.split(150)[1]
    model, _ = make_engine(asked, sides, asked.turns(150)[0], 1)
    model.requires_grad_(False)
    found, n = match(model, 0, sides, test, draws=3, seed=0), len(test)
    own, above, positive = [], 0, 0
    for i in range(n):
        x, others = sides.x[test[i]][None, None], [j for j in range(n) if j != i]
        row = [float(model.critic.pairs(x, sides.y[j][None, None])) for j in test]
        pmi = [float(model.log_ratio_pairs(x, sides.y[j][None, None])) for j in test]
        candidates = [(i + 5 * k) % n for k in range(5)]
        assert found.scores[i] == pytest.approx([row[j] for j in candidates], abs=1e-5)
        assert found.pmi[i] == pytest.approx([pmi[j] for j in candidates], abs=1e-3)
        own.append(1 + sum(row[j] >= row[i] for j in candidates[1:]))
        above += sum(row[j] < row[i] for j in others)
        positive += sum(pmi[j] > 0 for j in others)
        assert found.ranks_of_all[i] == 1 + sum(row[j] >= row[i] for j in others)
    assert found.ranks.tolist() == own
    assert found.above.mean() == pytest.approx(above / (n * (n - 1)))
    assert found.positive == pytest.approx(positive / (n * (n - 1)))
    assert found.drawn.shape == (3,)
    assert found.at_floor == pytest.approx(float((np.abs(found.pmi) > 9.2).mean()))
    # A network that says nothing finds nothing.
    silent = model.select([0])
    for parameter in silent.critic.parameters():
        parameter.data.zero_()
    found = match(silent, 0, sides, test, draws=2, seed=0)
    assert not found.scores.any()
    assert not found.right.any()
    assert found.drawn.tolist() == [0.0, 0.0]
    assert found.ranks_of_all.tolist() == [len(test)] * len(test)


RIGHT = [4.0, -1.0, -2.0, -3.0, -4.0]
SECOND = [-1.0, -0.5, -2.0, -3.0, -4.0]
THIRD = [-3.0, -0.5, -2.0, -5.0, -4.0]
POSITIVE_OTHER = [4.0, 1.0, -2.0, -3.0, -4.0]


def trials(*kinds, method="pc"):
    """A matching of pairs (how often, row of five)."""
    return make_matching(np.concatenate([np.tile(row, (count, 1)) for count, row in kinds]), method)


def judged(*matchings):
    """The verdicts, and the values of the findings, by key."""
    claims = table2.judge_table2(make_matched(*matchings))
    return verdicts(claims), {c.key: [one.value for one in c.findings] for c in claims}


class TestClaims:
    def test_the_papers_numbers_hold(self):
        drf = trials((4613, RIGHT), (387, SECOND), method="drf_relative")
        found, _ = judged(trials((4812, RIGHT), (188, SECOND)), drf)
        assert found.pop("d") == "cannot tell"  # so by its own words
        assert set(found.values()) == {"holds"}
        assert list(found) == ["a", "b", "ab", "c", "e", "f", "g", "h"]
        # One failure in third place refutes all of them.
        found, values = judged(trials((4811, RIGHT), (188, SECOND), (1, THIRD)))
        assert found["e"] == "does not hold"
        assert values["e"] == pytest.approx([188 / 189, 188, 1, 0, 0])
        assert judged(trials((60, RIGHT)))[0]["e"] == "cannot tell"
        # Chance does not generalise.
        found, _ = judged(trials((200, RIGHT), (800, SECOND)))  # with a mean PMI of zero
        assert (found["h"], found["g"], found["a"]) == ("cannot tell",) * 2 + ("does not hold",)
        found, _ = judged(trials((100, RIGHT), (900, SECOND)))
        assert found["h"] == found["g"] == "does not hold"

    def test_only_the_right_ones_are_positive_and_the_better_of_two(self):
        shares = {0: "holds", 10: "holds", 40: "cannot tell", 300: "does not hold"}
        for others, verdict in shares.items():
            found, values = judged(trials((4000 - others, RIGHT), (others, POSITIVE_OTHER)))
            assert found["f"] == verdict
            assert values["f"][:2] == pytest.approx([others / (4000 + others), 1 - others / 4000])
        # A failure with positive PMI counts against it.
        found, values = judged(trials((50, RIGHT), (50, [1.0, 2.0, -2.0, -3.0, -4.0])))
        assert found["f"] == "does not hold"
        assert values["f"][0] == pytest.approx(100 / 150)  # both of each failure are positive
        pc = trials((500, SECOND), (500, RIGHT))
        drf = trials((450, SECOND), (550, RIGHT), method="drf")
        other = trials((560, SECOND), (440, RIGHT), method="drf_relative")
        assert judged(pc, other)[0]["ab"] == "holds"
        assert judged(pc, drf)[0]["ab"] == judged(pc, drf, other)[0]["ab"] == "does not hold"
        assert "ab" not in judged(pc)[0]
        assert list(judged(drf)[0]) == ["b"]


def test_files_and_text(tmp_path):
    matched = table2.run_table2(Table2(**SMALL, draws=3), make_words(300))
    claims = table2.write_report(matched, tmp_path)
    names = {"table2.md", "claims.md", "trials.csv", "training.csv", "results.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert results["command"] == matched.settings.command
    assert [line["method"] for line in results["matching"]] == ["pc", "drf", "drf_relative"]
    assert sum(results["matching"][0]["places"]) == results["test"] == 60
    assert [one["verdict"] for one in results["claims"]] == [one.verdict for one in claims]
    table = pd.read_csv(tmp_path / "trials.csv")
    assert len(table) == 3 * 60 * 5
    own = table[(table.method == "pc") & (table.heard == table.read)]
    assert own.heard.tolist() == matched.test.tolist()
    assert np.allclose(own.pmi, matched.matchings[0].pmi[:, 0])
    curve = pd.read_csv(tmp_path / "training.csv")
    assert list(curve.columns) == ["epoch", "pc", "drf", "drf_relative"]
    assert curve.epoch.tolist() == [1, 2, 3, 4, 5, 6]
    for name in ("table2.md", "claims.md"):
        page = (tmp_path / name).read_text("utf-8")
        assert "not the paper's experiment" in page
        assert "300 words that are not the paper's" in page
    text = table2.text_report(matched, claims)
    assert max(map(len, text.splitlines())) <= 100
    assert all(f"\n{one.key:<3} {one.verdict}" in text for one in claims)


def test_examples_are_ranked():
    found = make_matching([[1, 2, 3, -4, 0], [9, 2, 3, -4, 0], *[[0, 1, 1, 1, 1]] * 28])
    matched = make_matched(found)
    (right,) = matched.examples(found, right=True)
    assert (right["heard"], right["candidates"]) == ("t1", ["t1", "t11", "t6", "t21", "t16"])
    assert right["pmi"] == [9, 3, 2, 0, -4]
    wrong = matched.examples(found, right=False)
    assert (len(wrong), wrong[0]["candidates"]) == (5, ["t10", "t5", "t0", "t20", "t15"])
    assert "*t0 (1.00)*" in table2.text_report(matched, [])
    # What ties is before the word's own text.
    found = make_matching([[0.0] * 5] * 30)
    told = make_matched(found).examples(found, right=False)
    assert all(example["candidates"][-1] == example["heard"] for example in told)
    assert found.as_dict()["tied"] == 1.0


def test_the_results_in_docs():
    """They are of the paper's settings, and the pages say what was measured."""
    results, page = kept("table2")
    assert results["command"] == Table2(files=("--data", "words.npz")).command
    rows = dict(re.findall(r"^\| `(pc|drf|drf_relative)` \| (\d.*) \|$", page, re.M))
    for line in results["matching"]:
        shares = [100 * line[name] for name in ("accuracy", "low", "high", "random_accuracy")]
        said = "{:.2f} % | {:.2f} to {:.2f} | {:.2f} %".format(*shares)
        assert rows[line["method"]].startswith(said)


METHODS = ("pc", "drf", "drf_relative")


def plain_tower(tower, replica):
    """The same layers as a torch.nn.Sequential."""
    layers = []
    for layer in tower.layers:
        linear = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
        linear.weight.data = layer.weight[replica].detach().T.clone()
        linear.bias.data = layer.bias[replica, 0].detach().clone()
        layers += [nn.ReLU(), linear]
    return nn.Sequential(*layers[1:])


def plain_loss(method, scores):
    n = len(scores)
    if method == "pc":
        return F.binary_cross_entropy_with_logits(scores, torch.eye(n))
    alpha = 0.001 if method == "drf_relative" else 0.0
    own, others = scores.diag(), scores[~torch.eye(n, dtype=bool)]
    gain = own.mean() - alpha / 2 * own.square().mean()
    return (1 - alpha) / 2 * others.square().mean() - gain


@pytest.fixture(scope="module")
def small():
    pairs, asked = make_words(230), Table2(**SMALL)
    ((*jobs,),) = asked.turns(len(pairs))
    return asked, Sides.of(pairs, asked), jobs, asked.split(len(pairs))[1]


@pytest.mark.parametrize("replica", range(3), ids=METHODS)
def test_the_released_loop_gives_the_same_networks(small, replica):
    asked, sides, jobs, test = small
    critic = make_engine(asked, sides, jobs, 1)[0].critic
    g, h = (plain_tower(tower, replica) for tower in (critic.x_tower, critic.y_tower))
    batches = RowBatches(*sides, [job.rows for job in jobs], TrainingOptions(32, 32))
    optimizer = torch.optim.Adam([*g.parameters(), *h.parameters()], lr=asked.learning_rate)
    for index in batches.indices(0, asked.steps(jobs), range(3)):
        x, y = sides.x[index[replica]], sides.y[index[replica]]
        optimizer.zero_grad()
        plain_loss(METHODS[replica], g(x) @ h(y).T).backward()
        optimizer.step()
    trained, _ = train(asked, sides, jobs)
    with torch.no_grad():
        logits = (g(sides.x[test]) * h(sides.y[test])).sum(1)
        found = trained.critic.pairs(*(side[test].expand(3, -1, -1) for side in sides))
    offset = math.log(31) if METHODS[replica] == "pc" else 0.0
    assert np.allclose(found[replica], logits + offset, atol=1e-3)
    if METHODS[replica] == "pc":  # the released read-out, with the batch it was trained on
        pmi = score_replicas(trained, sides.x[test], sides.y[test])[replica]
        assert np.allclose(pmi, logits + math.log(32 - 1), atol=1e-3)


def test_it_learns_from_words():
    pairs, asked = make_words(600), Table2(**{**SMALL, "epochs": 60}, learning_rate=5e-3)
    rows, test = asked.split(len(pairs))
    x, y = sides = Sides.of(pairs, asked)
    model, curve = train(asked, sides, [Job(table2.words_method("pc"), rows)])
    own = score_replicas(model, x[test], y[test])[0]
    other = score_replicas(model, x[test], y[test].roll(1, 0))[0]
    assert own.mean() > 1.0
    assert (own > other).float().mean() > 0.9
    # The last epoch's batches, as they were learned from, are much like the end.
    seen = score_replicas(model, x[rows], y[rows])[0]
    assert curve.shape == (60, 1)
    assert curve[-1, 0] == pytest.approx(float(seen.mean()), abs=0.3)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_expected_seconds(small, monkeypatch):
    """Each list of networks by its own steps: 5 batches of all words, 4 of those of two folds."""
    pairs = make_words(230)
    assert words.expected_seconds(small[0], pairs) > 0
    engine = SimpleNamespace(run=lambda steps: SimpleNamespace(train_seconds=0.5))
    monkeypatch.setattr(words, "make_engine", lambda *_: (None, engine))
    assert words.expected_seconds(Table2(**SMALL), pairs) == 0.5 * 6 * (184 // 32)
    assert words.expected_seconds(Figure3(**SMALL), pairs) == 0.5 * 6 * (184 // 32 + 147 // 32)


def test_split():
    for n, test in ((37_622, 5_000), (20_000, 4_000), (640, 128)):
        assert Training().split_sizes(n) == (n - test, test)
        assert Training(test_words=60).split_sizes(n) == (n - 60, 60)
    rows, test = Training().split(2000)
    assert sorted([*rows, *test]) == list(range(2000))
    assert sorted(test) != list(test)
    assert np.array_equal(Training().split(2000)[1], test)
    assert not np.array_equal(Training(seed=1).split(2000)[1], test)
    # Each fold has a batch.
    needed = Figure3(batch_size=64, folds=3).rows_needed()
    assert needed - math.ceil(needed / 3) >= 64
    # Of too few words, the advice helps.
    for asked, n, cause, advice in (
        (Training(), 600, "480 of 600 words would train", {"test_words": 21}),
        (Training(), 500, "need 512: give a smaller --batch-size, or", {"batch_size": 32}),
        (Training(batch_size=8), 100, "20 of 100 words would test", {"test_words": 21}),
        (Training(batch_size=50), 60, "21 with a smaller", {"test_words": 21, "batch_size": 30}),
        (Training(test_words=99, batch_size=8), 50, "0 of 50 .*-words", {"test_words": 21}),
        (Figure3(folds=2), 1200, "960 of 1200 words would train.*1025", {"batch_size": 32}),
    ):
        refused(cause, asked.split_sizes, n)
        assert sum(replace(asked, **advice).split_sizes(n)) == n


def test_settings_and_shares():
    for asked, cause in (
        ({"batch_size": 1}, "batch_size=1"),
        ({"test_words": 20}, "test_words=20 must be at least 21"),
        ({"hidden": ()}, "hidden must name"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"methods": ()}, "methods must name"),
        ({"methods": ("pcc",)}, "'pcc': did you mean 'pc'"),
        ({"methods": ("cpc",)}, "'cpc' needs more than the pair"),
        ({"draws": 1}, "draws=1"),
    ):
        refused(cause, Table2, **asked)
    assert "--data 'my words.npz' " in Figure3(files=("--data", "my words.npz")).command
    # The paper's have no departures.
    assert Table2().departures(37_622) == Figure3().departures(37_622) == []
    assert Table2(test_words=5000, seed=3).departures(37_622) == []
    said = Figure3(test_words=60).quick().departures(20_000)
    assert [text.split()[0] for text in said] == ["20,000", "test", "batch", "epochs", "hidden"]
    for epochs, n in ((100, 37_622), (100, 37_621), (3, 37_622)):
        run = SimpleNamespace(settings=Table2(epochs=epochs), words=n)
        told = words.text_run(run, [], []).startswith("This is not the paper's experiment")
        assert told == ((epochs, n) != (100, 37_622))
    # A share is Wilson's.
    found = words.share(np.arange(50) < 7)
    p, n, z = 0.14, 50, 1.959964
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), rel=1e-5)


@settings(deadline=None, max_examples=60)
@given(a=st.integers(1, 199), b=st.integers(1, 399))
def test_two_shares_agree_where_the_chi_squared_test_says_so(a, b):
    p = stats.chi2_contingency([[a, 200 - a], [b, 400 - b]], correction=False).pvalue
    if abs(p - 0.05) > 1e-4:
        assert words.agrees(words.share(np.arange(200) < a), b / 400, 400) == (p > 0.05)
