"""Mismatched pairs against loops over the rows of a block."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep import PointwiseDependency
from pointdep.auditing.evidence import HeldRows, find_standings, mismatched_pairs
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
        shares = [np.mean(v[there] <= pmi[g, i, j]) if there.any() else 0.0 for v, there in sides]
        assert found[g, i, j] == pytest.approx(max(shares))


@pytest.mark.filterwarnings("ignore:wide_interval")  # of so few rows
def test_every_row_by_the_model_that_did_not_see_it():
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 2))
    y = x + 0.3 * random.normal(size=(150, 2))
    options = {"hidden": (16,), "max_epochs": 40, "folds": 3, "device": "cpu", "progress": False}
    fitted = PointwiseDependency(**options, random_state=0).fit(x, y)
    rows = fitted.training_rows_.paired
    held, total = HeldRows(fitted.model_, rows), 0
    found = held.mismatched(Silent())
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
    groups = torch.arange(150) // 2  # rows of one group are not mismatched
    found = mismatched_pairs(fitted.model_, rows.x, rows.y, held.fold, rows.seed, groups)
    pairs = sum(int((groups[s.report][:, None] != groups[s.report]).sum()) for s in rows.splits)
    assert len(found.pmi) == pairs
