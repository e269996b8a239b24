"""Mismatched pairs against loops over the rows of a block."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep import FitWarning, PointwiseDependency
from pointdep.auditing.evidence import HeldRows, find_standings, mismatched_pairs
from pointdep.auditing.result import Contamination
from pointdep.fitting.progress import Silent
from pointdep.inference.scoring import score_matrix


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 6))
def test_standings_by_hand(seed, blocks, rows):
    random = np.random.default_rng(seed)
    pmi = random.integers(0, 4, (blocks, rows, rows)).astype(np.float32)
    others = random.random((blocks, rows, rows)) < 0.7
    found = find_standings(torch.from_numpy(pmi), torch.from_numpy(others)).numpy()
    for g, i, j in np.ndindex(pmi.shape):
        sides = [(pmi[g, i], others[g, i]), (pmi[g, :, j], others[g, :, j])]
        wanted = max(
            np.mean(values[there] <= pmi[g, i, j]) if there.any() else 0.0
            for values, there in sides
        )
        assert found[g, i, j] == pytest.approx(wanted)


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 2))
    y = x + 0.3 * random.normal(size=(150, 2))
    model = PointwiseDependency(
        hidden=(16,), max_epochs=40, folds=3, random_state=0, device="cpu", progress=False
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "wide_interval", FitWarning)  # of so few rows
        return model.fit(x, y)


def test_every_row_by_the_model_that_did_not_see_it(fitted):
    rows = fitted.training_rows_.paired
    found = HeldRows(fitted.model_, rows).mismatched(Silent())
    total = 0
    for replica, split in enumerate(rows.splits):
        part = torch.from_numpy(split.report)
        one = fitted.model_.select([replica])
        matrix = score_matrix(one, rows.x[part], rows.y[part])  # one block holds them all
        off = ~np.eye(len(part), dtype=bool)
        for k, row in enumerate(split.report):
            of_x = np.mean(matrix[k][off[k]] <= matrix[k, k])
            of_y = np.mean(matrix[:, k][off[k]] <= matrix[k, k])
            assert found.standing[row] == pytest.approx(max(of_x, of_y), abs=1e-6)
        total += off.sum()
    assert len(found.pmi) == len(found.standings) == total


def test_rows_of_one_group_are_not_mismatched(fitted):
    rows = fitted.training_rows_.paired
    groups = torch.arange(150) // 2
    fold = HeldRows(fitted.model_, rows).fold
    found = mismatched_pairs(fitted.model_, rows.x, rows.y, fold, rows.seed, groups)
    pairs = sum(int((groups[s.report][:, None] != groups[s.report]).sum()) for s in rows.splits)
    assert len(found.pmi) == pairs


def test_a_pair_unlike_all_others_is_acquitted():
    """Its PMI is low with everything, but least low with its partner."""
    from pointdep.auditing.decision import mismatched_shares, posteriors

    random = np.random.default_rng(0)
    mismatched, standings = random.normal(-8, 3, 20_000), random.random(20_000)
    pmi = np.concatenate([random.normal(3, 1, 970), random.normal(-8, 3, 30)])
    standing = np.concatenate([random.uniform(0.97, 1.0, 970), random.random(30)])
    pmi[0], standing[0] = -20.0, 1.0
    shares, beside = mismatched_shares(pmi, mismatched), mismatched_shares(standing, standings)
    share = Contamination(0.03, given=True).share
    assert posteriors(pmi, shares, share)[0] > 0.5
    assert posteriors(pmi, shares, share, beside)[0] < 0.01
    assert posteriors(pmi, shares, share, beside)[970:].mean() > 0.6
