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
    asked = batches()
    for step in np.random.default_rng(0).permutation(40):
        assert torch.equal(asked.indices(int(step), 1, [0, 1, 2])[0], wanted[step])
    assert torch.equal(asked.indices(7, 5, [0, 1, 2]), wanted[7:12])
    assert not torch.equal(batches(seed=4).indices(0, 40, [0, 1, 2]), wanted)


def test_whichever_other_replicas_train():
    together = batches().indices(5, 9, [0, 1, 2])
    assert torch.equal(batches().indices(5, 9, [1]), together[:, [1]])
    assert torch.equal(batches().indices(5, 9, [2, 0]), together[:, [2, 0]])


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


def test_a_batch_is_a_whole_number_of_blocks():
    made = batches(batch_size=15)
    assert made.batch_size == 12
    assert made.indices(0, 1, [0]).shape == (1, 1, 12)


def test_cells():
    made = batches()
    index = made.indices(2, 1, [0, 2])[0]
    cells = made.cells(index)
    assert cells.x.shape == (2, 4, 4, 2)
    assert cells.y.shape == (2, 4, 4, 3)
    for replica in range(2):
        for block in range(4):
            for row in range(4):
                number = index[replica, 4 * block + row]
                assert torch.equal(cells.x[replica, block, row], X[number])
                assert torch.equal(cells.y[replica, block, row], Y[number])
                weights = [float(column == row) for column in range(4)]
                assert cells.joint[4 * block + row].tolist() == weights
                assert cells.product[4 * block + row].tolist() == [1 - w for w in weights]


def test_cells_within_a_group_are_no_product_samples():
    made = batches(parts=[np.arange(20), np.arange(40)], groups=GROUPS)
    index = made.indices(0, 1, [0, 1])[0]
    product = made.cells(index).product
    assert product.shape == (2, 16, 4)
    masked = 0
    for replica in range(2):
        for row in range(16):
            for column in range(4):
                other = row - row % 4 + column
                same = GROUPS[index[replica, row]] == GROUPS[index[replica, other]]
                assert product[replica, row, column] == (0.0 if same else 1.0)
                masked += int(same and other != row)
    assert masked > 0


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["rows", "groups"])
@pytest.mark.parametrize("block", [4, 16, 200])
def test_held_out_cells(block, groups):
    cells, index = held_out_cells(X, Y, PARTS, block=block, seed=1, groups=groups)
    size = min(block, 77)
    count = -(-77 // size)
    assert index.shape == (3, count * size)
    assert cells.x.shape == (3, count, size, 2)
    assert cells.joint.shape == cells.product.shape == (3, count * size, size)
    for replica, part in enumerate(PARTS):
        row_numbers = index[replica]
        assert sorted(row_numbers[row_numbers >= 0]) == part.tolist()
        for position, number in enumerate(row_numbers):
            first = position - position % size
            for column in range(size):
                other = row_numbers[first + column]
                there = number >= 0 and other >= 0
                own = first + column == position
                apart = groups is None or bool(groups[number] != groups[other])
                joint, product = (
                    w[replica, position, column] for w in (cells.joint, cells.product)
                )
                assert joint == float(there and own)
                assert product == float(there and not own and apart)
            if number >= 0:
                assert torch.equal(cells.x.flatten(1, 2)[replica, position], X[number])
                assert torch.equal(cells.y.flatten(1, 2)[replica, position], Y[number])


@settings(max_examples=40)
@given(st.integers(2, 100), st.integers(4, 40))
def test_no_row_is_left_alone_in_its_block(rows, block):
    cells, index = held_out_cells(X, Y, [np.arange(rows)], block=block, seed=0)
    assert (cells.product.sum(-1)[0][torch.from_numpy(index[0] >= 0)] >= 1).all()
