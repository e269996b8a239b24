"""Candidates and ranks against loops, and what matching makes of scores that say nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.experiments.words.matching import (
    all_scores,
    fixed_candidates,
    match,
    random_candidates,
    ranks_of_first,
)
from pointdep.experiments.words.settings import Table2, words_method
from pointdep.experiments.words.training import Job, Sides, make_engine, split_words

from .synthetic import SMALL, make_words


def test_fixed_candidates():
    found = fixed_candidates(23)
    assert found[0].tolist() == [0, 5, 10, 15, 20]
    assert found[21].tolist() == [21, 3, 8, 13, 18]
    assert all(len(set(row)) == 5 for row in found.tolist())


@settings(deadline=None, max_examples=30)
@given(n=st.integers(6, 40), seed=st.integers(0, 1000))
def test_random_candidates_are_different_words(n, seed):
    found = random_candidates(n, np.random.default_rng(seed))
    assert found[:, 0].tolist() == list(range(n))
    assert all(len(set(row)) == 5 for row in found.tolist())
    assert found.min() >= 0
    assert found.max() < n


def test_random_candidates_are_drawn_evenly():
    random = np.random.default_rng(0)
    drawn = np.concatenate([random_candidates(8, random)[3:4, 1:] for _ in range(3000)])
    counts = np.bincount(drawn.ravel(), minlength=8)
    assert counts[3] == 0
    assert np.allclose(np.delete(counts, 3) / 3000, 4 / 7, atol=0.04)


def test_ranks():
    scores = np.array([[3, 1, 2], [2, 3, 1], [1, 2, 3], [2, 2, 1], [0, 0, 0]], np.float32)
    assert ranks_of_first(scores).tolist() == [1, 2, 3, 2, 3]
    scores[0, 1] = np.nan
    assert ranks_of_first(scores)[0] == 2


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), add=st.floats(-5, 5), times=st.floats(0.1, 10))
def test_ranks_do_not_change_with_the_unit(seed, add, times):
    scores = np.random.default_rng(seed).integers(-9, 9, size=(20, 5)).astype(np.float64)
    assert np.array_equal(ranks_of_first(scores), ranks_of_first(add + times * scores))


@pytest.fixture(scope="module", params=["pc", "drf", "drf_relative"])
def untrained(request):
    pairs, options = make_words(150), Table2(methods=(request.param,), **SMALL)
    sides = Sides.of(pairs, options)
    train, test = split_words(options, len(pairs))
    model, _ = make_engine(options, sides, [Job(words_method(request.param), train)], 1)
    model.requires_grad_(False)
    return model, sides, test


def test_match_against_loops(untrained):
    model, sides, test = untrained
    found = match(model, 0, sides, test, draws=3, seed=0)
    n = len(test)
    own, above, positive = [], 0, 0
    for i in range(n):
        x = sides.x[test[i]][None, None]
        row = [float(model.critic.pairs(x, sides.y[j][None, None])) for j in test]
        pmi = [float(model.log_ratio_pairs(x, sides.y[j][None, None])) for j in test]
        candidates = [(i + 5 * k) % n for k in range(5)]
        assert found.scores[i] == pytest.approx([row[j] for j in candidates], abs=1e-5)
        assert found.pmi[i] == pytest.approx([pmi[j] for j in candidates], abs=1e-3)
        own.append(1 + sum(row[j] >= row[i] for j in candidates[1:]))
        above += sum(row[j] < row[i] for j in range(n) if j != i)
        positive += sum(pmi[j] > 0 for j in range(n) if j != i)
        assert found.ranks_of_all[i] == 1 + sum(row[j] >= row[i] for j in range(n) if j != i)
    assert found.ranks.tolist() == own
    assert found.above.mean() == pytest.approx(above / (n * (n - 1)))
    assert found.positive == pytest.approx(positive / (n * (n - 1)))
    assert found.drawn.shape == (3,)
    assert found.at_floor == pytest.approx(float((np.abs(found.pmi) > 9.2).mean()))


def test_a_network_that_says_nothing_finds_nothing(untrained):
    model, sides, test = untrained
    silent = model.select([0])
    for parameter in silent.critic.parameters():
        parameter.data.zero_()
    assert not all_scores(silent, sides, test).any()
    found = match(silent, 0, sides, test, draws=2, seed=0)
    assert not found.right.any()
    assert found.drawn.tolist() == [0.0, 0.0]
    assert found.ranks_of_all.tolist() == [len(test)] * len(test)


def test_pmi_does_not_depend_on_who_sits_beside(untrained):
    model, sides, test = untrained
    few = test[:25]
    assert np.allclose(all_scores(model, sides, test)[:25, :25], all_scores(model, sides, few))
    assert torch.equal(sides.x, Sides.of(make_words(150), Table2(**SMALL)).x)
