"""The networks against the released notebook's loop, settings, and intervals against scipy."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from pointdep.experiments import words
from pointdep.experiments.figure3 import Figure3
from pointdep.experiments.table2 import Table2, words_method
from pointdep.experiments.words import Job, Sides, Training, make_engine, train
from pointdep.fitting.batches import RowBatches, TrainingOptions
from pointdep.inference.scoring import score_replicas
from refusals import refused

from .word_samples import SMALL, make_words

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
    model, curve = train(asked, sides, [Job(words_method("pc"), rows)])
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


def test_settings():
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


def test_share_is_wilsons():
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
