"""Asking a model about many pairs, and the balanced classifier that a log-ratio implies."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import log_loss

from pointdep.inference import scoring
from pointdep.inference.scoring import score_blocks, score_matrix, score_pairs

from .models import log_ratio_by_hand, model_of, rows

X, Y = rows(24)
every_reference = pytest.mark.parametrize("key", ["pc", "nwj", "drf", "dv", "cpc"])


def by_hand(model, i, j):
    return np.mean([log_ratio_by_hand(model, r, X[i], Y[j]) for r in range(model.replicas)])


@every_reference
def test_pairs_matrix_and_blocks_agree_with_the_definition(key):
    model = model_of(key)
    wanted = np.array([[by_hand(model, i, j) for j in range(6)] for i in range(6)])
    pairs, matrix = score_pairs(model, X[:6], Y[:6]), score_matrix(model, X[:6], Y[:6])
    blocks = score_blocks(model, X[:6].view(2, 3, 2), Y[:6].view(2, 3, 3))
    np.testing.assert_allclose(pairs, wanted.diagonal(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(matrix, wanted, rtol=1e-4, atol=1e-5)
    for block, part in zip(blocks, (slice(3), slice(3, 6)), strict=True):
        np.testing.assert_allclose(block, wanted[part, part], rtol=1e-4, atol=1e-5)
    assert (pairs.dtype, matrix.dtype) == (torch.float32, np.float32)


@every_reference
@pytest.mark.parametrize("budget", [1, 100, 1000])
def test_however_the_work_is_cut(key, budget, monkeypatch):
    model, blocks = model_of(key), (X.view(4, 6, 2), Y.view(4, 6, 3))

    def scores():
        return score_pairs(model, X, Y), score_matrix(model, X, Y[:7]), score_blocks(model, *blocks)

    wanted = scores()
    monkeypatch.setattr(scoring, "_BUDGET", budget)
    for a, b in zip(scores(), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert score_pairs(model, X[:0], Y[:0]).shape == (0,)
    assert score_matrix(model, X[:0], Y).shape == (0, 24)
    assert score_matrix(model, X, Y[:0]).shape == (24, 0)


@pytest.mark.parametrize("groups", [None, np.arange(20) // 2])
def test_the_log_loss_is_that_of_scikit_learn(groups):
    table, asked = 3 * np.random.default_rng(0).normal(size=(20, 20)), []

    def score(a, b):
        asked.extend(zip(a, b, strict=True))
        return table[a, b]

    found = scoring.shuffled_log_likelihood(score, 20, seed=0, groups=groups)
    names = np.arange(20) if groups is None else groups
    pairs = [(a, b) for a, b in asked if a == b]
    others = [(a, b) for a, b in asked if names[a] != names[b]]
    labels = [1] * len(pairs) + [0] * len(others)
    weights = [1 / len(pairs)] * len(pairs) + [1 / len(others)] * len(others)
    values = expit([table[cell] for cell in pairs + others])
    assert len(set(pairs)) == 20
    assert found == pytest.approx(-log_loss(labels, values, sample_weight=weights), rel=1e-6)


@pytest.mark.parametrize(("sure", "wanted"), [(0, -math.log(2)), (1e4, 0.0), (-1e4, -1e4)])
def test_chance_and_extreme_values(sure, wanted):
    def score(a, b):
        return np.where(a == b, sure, -sure).astype(np.float32)

    assert scoring.shuffled_log_likelihood(score, 9, seed=0) == pytest.approx(wanted)
