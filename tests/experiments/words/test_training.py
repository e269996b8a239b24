"""The networks against the released notebook's loop, written out in plain torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pointdep.errors import InputError
from pointdep.experiments.words import training
from pointdep.experiments.words.settings import Figure3, Table2, Training, words_method
from pointdep.experiments.words.training import (
    Job,
    Sides,
    expected_seconds,
    make_engine,
    split_words,
    steps_of,
    train,
)
from pointdep.fitting.batches import RowBatches
from pointdep.inference.scoring import score_replicas

from .synthetic import SMALL, make_words

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
    pairs, settings = make_words(230), Table2(**SMALL)
    rows, test = split_words(settings, len(pairs))
    sides = Sides.of(pairs, settings)
    jobs = [Job(words_method(name), rows) for name in METHODS]
    return settings, sides, jobs, test


@pytest.mark.parametrize("replica", range(3), ids=METHODS)
def test_the_released_loop_gives_the_same_networks(small, replica):
    settings, sides, jobs, test = small
    untrained, _ = make_engine(settings, sides, jobs, 1)
    g, h = (
        plain_tower(tower, replica)
        for tower in (untrained.critic.x_tower, untrained.critic.y_tower)
    )
    batches = RowBatches(
        sides.x, sides.y, [job.rows for job in jobs], batch_size=32, block=32, seed=0
    )
    optimizer = torch.optim.Adam([*g.parameters(), *h.parameters()], lr=settings.learning_rate)
    for index in batches.indices(0, steps_of(settings, len(jobs[0].rows)), range(3)):
        x, y = sides.x[index[replica]], sides.y[index[replica]]
        optimizer.zero_grad()
        plain_loss(METHODS[replica], g(x) @ h(y).T).backward()
        optimizer.step()
    trained = train(settings, sides, jobs).model
    with torch.no_grad():
        logits = (g(sides.x[test]) * h(sides.y[test])).sum(1)
        found = trained.critic.pairs(
            sides.x[test].expand(3, -1, -1), sides.y[test].expand(3, -1, -1)
        )
    offset = math.log(31) if METHODS[replica] == "pc" else 0.0
    assert np.allclose(found[replica], logits + offset, atol=1e-3)
    if METHODS[replica] == "pc":  # the released read-out, with the batch it was trained on
        pmi = score_replicas(trained, sides.x[test], sides.y[test])[replica]
        assert np.allclose(pmi, logits + math.log(32 - 1), atol=1e-3)


def test_it_learns_from_words():
    pairs, settings = make_words(600), Table2(**{**SMALL, "epochs": 60}, learning_rate=5e-3)
    rows, test = split_words(settings, len(pairs))
    sides = Sides.of(pairs, settings)
    trained = train(settings, sides, [Job(words_method("pc"), rows)])
    model = trained.model
    mixed = sides.y[test].roll(1, 0)
    own = score_replicas(model, sides.x[test], sides.y[test])[0]
    other = score_replicas(model, sides.x[test], mixed)[0]
    assert own.mean() > 1.0
    assert trained.curve.shape == (60, 1)
    # The last epoch's batches, as they were learned from, are much like the end.
    seen = score_replicas(model, sides.x[rows], sides.y[rows])[0]
    assert trained.curve[-1, 0] == pytest.approx(float(seen.mean()), abs=0.3)
    assert (own > other).float().mean() > 0.9
    assert not any(parameter.requires_grad for parameter in model.parameters())


class TestSplit:
    @pytest.mark.parametrize(("words", "test"), [(37_622, 5_000), (20_000, 4_000), (640, 128)])
    def test_sizes(self, words, test):
        assert Training().split_sizes(words) == (words - test, test)
        assert Training(test_words=60).split_sizes(words) == (words - 60, 60)

    def test_every_word_is_on_one_side_in_random_order(self):
        rows, test = split_words(Training(), 2000)
        assert sorted([*rows, *test]) == list(range(2000))
        assert sorted(test) != list(test)
        again, other = split_words(Training(), 2000), split_words(Training(seed=1), 2000)
        assert np.array_equal(again[1], test)
        assert not np.array_equal(other[1], test)

    @pytest.mark.parametrize(
        ("settings", "words", "message"),
        [
            (Training(), 600, "480 of 600 words would train.* give a smaller --batch-size or --te"),
            (Training(), 500, "need 512: give a smaller --batch-size, or more words"),
            (Training(batch_size=8), 100, "20 of 100 words would test.* give --test-words 21, or"),
            (Training(batch_size=50), 60, "12 of 60 .* --test-words 21 with a smaller --batch-s"),
            (Training(test_words=99, batch_size=8), 50, "0 of 50 .* --batch-size or --test-words"),
            (Figure3(folds=2), 1200, "960 of 1200 words would train.* need 1025"),
        ],
    )
    def test_too_few_words(self, settings, words, message):
        with pytest.raises(InputError, match=message):
            settings.split_sizes(words)

    def test_the_advice_on_too_few_words_helps(self):
        assert Training(batch_size=8, test_words=21).split_sizes(100) == (79, 21)
        assert Training(batch_size=30, test_words=21).split_sizes(60) == (39, 21)
        assert Training(test_words=21).split_sizes(600) == (579, 21)

    def test_each_fold_has_a_batch(self):
        settings = Figure3(batch_size=64, folds=3)
        train_words = settings.rows_needed()
        assert train_words - math.ceil(train_words / 3) >= 64


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"batch_size": 1}, "batch_size=1 must be at least 2"),
            ({"epochs": 0}, "epochs=0 must be at least 1"),
            ({"test_words": 20}, "test_words=20 must be at least 21"),
            ({"hidden": ()}, "hidden must name"),
            ({"hidden": (4, 0)}, "hidden=0"),
            ({"learning_rate": 0.0}, "learning_rate=0.0 must be positive"),
            ({"methods": ()}, "methods must name"),
            ({"methods": ("pcc",)}, "unknown method 'pcc': did you mean 'pc'"),
            ({"methods": ("cpc",)}, "'cpc' needs more than the pair"),
            ({"methods": ("mine",)}, "'mine' needs more than the pair"),
            ({"draws": 1}, "draws=1 must be at least 2"),
        ],
    )
    def test_refused(self, given, message):
        with pytest.raises(InputError, match=message):
            Table2(**given)

    def test_the_papers_have_no_departures(self):
        assert Table2().departures(37_622) == Figure3().departures(37_622) == []
        assert Table2(test_words=5000, seed=3).departures(37_622) == []
        said = Figure3(test_words=60).quick().departures(20_000)
        assert [text.split()[0] for text in said] == ["20,000", "test", "batch", "epochs", "hidden"]

    def test_a_path_with_a_space_stays_one(self):
        assert "--data 'my words.npz' " in Figure3(files=("--data", "my words.npz")).command


def test_expected_seconds(small, monkeypatch):
    settings, sides, jobs, _ = small
    assert 0 < expected_seconds(settings, sides, [jobs]) < 600
    monkeypatch.setattr(training, "_seconds_a_step", lambda *_: 0.5)
    fewer = [Job(job.method, job.rows[:70]) for job in jobs]  # 2 batches where the others have 5
    assert expected_seconds(settings, sides, [jobs, fewer]) == 0.5 * settings.epochs * (5 + 2)
