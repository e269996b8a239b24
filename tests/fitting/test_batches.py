"""Batches of rows, blocks of cells and their weights."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.fitting.batches import RowBatches, TrainingOptions, held_out_cells

X = torch.arange(200.0).view(100, 2)
Y = -torch.arange(300.0).view(100, 3)
PARTS = [np.arange(0, 50), np.arange(20, 97), np.arange(60, 100)]
GROUPS = torch.arange(100) // 5


def batches(parts=PARTS, seed=3, **changed):
    return RowBatches(X, Y, parts, TrainingOptions(16, 4, seed=seed), **changed)


def test_a_pure_function_of_seed_replica_and_step():
    wanted = batches().indices(0, 40, [0, 1, 2])
    assert wanted.shape == (40, 3, 16)
    uneven = RowBatches(X, Y, PARTS, TrainingOptions(15, 4))
    assert uneven.indices(0, 1, [0]).shape == (1, 1, 12)  # a whole number of blocks
    asked = batches()
    for step in np.random.default_rng(0).permutation(40):
        assert torch.equal(asked.indices(int(step), 1, [0, 1, 2])[0], wanted[step])
    assert torch.equal(asked.indices(7, 5, [0, 1, 2]), wanted[7:12])
    for some in ([1], [2, 0]):  # whichever other replicas train
        assert torch.equal(batches().indices(5, 9, some), wanted[5:14, some])
    assert not torch.equal(batches(seed=4).indices(0, 40, [0, 1, 2]), wanted)


@settings(max_examples=30)
@given(st.integers(16, 90), st.integers(16, 90), st.integers(0, 99))
def test_a_pass_uses_each_row_at_most_once(first, second, seed):
    parts = [np.arange(first), np.arange(5, 5 + second)]
    made = batches(parts=parts, seed=seed)
    for replica, part in enumerate(parts):
        steps = len(part) // 16
        passes = made.indices(0, 3 * steps, [replica]).view(3, -1)
        for one in passes.tolist():
            assert len(set(one)) == len(one)
            assert set(one) <= set(part.tolist())
            assert len(part) - len(one) < 16
        assert steps == 1 or len({tuple(one) for one in passes.tolist()}) == 3


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
def test_cells(groups):
    made = batches(groups=groups)
    index = made.indices(2, 1, [0, 2])[0]
    cells, numbers = made.cells(index), index.view(2, 4, 4)
    assert torch.equal(cells.x, X[numbers])
    assert torch.equal(cells.y, Y[numbers])
    kinds = numbers if groups is None else groups[numbers]
    apart = (kinds.unsqueeze(-1) != kinds.unsqueeze(-2)).flatten(1, 2)
    assert torch.equal(cells.joint, torch.eye(4).repeat(4, 1))
    assert torch.equal(cells.product.expand(2, 16, 4).bool(), apart)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
@pytest.mark.parametrize("block", [4, 16, 200])
def test_held_out_cells(block, groups):
    cells, index = held_out_cells(X, Y, PARTS, block=block, seed=1, groups=groups)
    size = min(block, 77)
    numbers = torch.from_numpy(index).view(3, -1, size)
    assert numbers.shape[1] == -(-77 // size)
    for own, part in zip(index, PARTS, strict=True):
        assert sorted(own[own >= 0]) == part.tolist()
    there = numbers >= 0
    assert torch.equal(cells.x[there], X[numbers[there]])
    assert torch.equal(cells.y[there], Y[numbers[there]])
    kinds = numbers if groups is None else groups[numbers]
    apart = kinds.unsqueeze(-1) != kinds.unsqueeze(-2)
    both, eye = there.unsqueeze(-1) & there.unsqueeze(-2), torch.eye(size, dtype=torch.bool)
    assert torch.equal(cells.joint.bool(), (both & eye).flatten(1, 2))
    assert torch.equal(cells.product.bool(), (both & apart & ~eye).flatten(1, 2))
    assert (held_out_cells(X, Y, PARTS, block=block, seed=2)[1] != index).any()


@settings(max_examples=40)
@given(st.integers(2, 100), st.integers(4, 40))
def test_no_row_is_left_alone_in_its_block(rows, block):
    cells, index = held_out_cells(X, Y, [np.arange(rows)], block=block, seed=0)
    assert (cells.product.sum(-1)[0][torch.from_numpy(index[0] >= 0)] >= 1).all()
