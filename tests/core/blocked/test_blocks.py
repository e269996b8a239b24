"""How cells are cut into blocks, and how many at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pointdep.core.blocked import Others
from pointdep.core.blocked import walk as module
from pointdep.core.blocked.walk import block_sizes, blocks, cells_at_hand, OtherCells


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 40), st.integers(1, 3000))
def test_every_cell_once(matrices, rows, columns, cells):
    count = torch.zeros(matrices, rows, columns)
    size = block_sizes(matrices, rows, columns, cells)
    assert size[0] * size[1] * size[2] <= cells
    shapes = []
    for block in blocks(matrices, rows, columns, cells):
        part = count[block.matrices, block.rows, block.columns]
        shapes.append((part.shape, block.common))
        part += 1
    assert (count == 1).all()
    full = size
    many = sum(shape == full for shape, _ in shapes) >= 4
    assert all(common == (many and shape == full) for shape, common in shapes)


def test_large_batches_are_cut_without_a_rest():
    for cells in (1 << 18, 1 << 25):
        for rows in (16_384, 32_768, 65_536):
            assert all(block.common for block in blocks(1, rows, rows, cells))


@pytest.mark.parametrize("free", [1 << 16, 1 << 24, 1 << 34])
def test_block_by_the_memory_at_hand(free, monkeypatch):
    monkeypatch.setattr(module, "_free_memory", lambda: free)
    cells = cells_at_hand(torch.device("cpu"), 4)
    assert cells == {1 << 16: 1 << 16, 1 << 24: 1 << 17}.get(
        free, (1 << 18) * min(16, torch.get_num_threads())
    )


def test_free_memory_is_known_or_guessed(monkeypatch):
    assert module._free_memory() > 1 << 20

    def absent(name):
        raise ValueError(name)

    monkeypatch.setattr(module.os, "sysconf", absent)
    assert module._free_memory() == 1 << 30


def test_whether_there_are_others():
    ids = torch.tensor([[0, 0, 0], [0, 1, 0]])
    assert Others(ids=ids).exist().tolist() == [False, True]
    rows = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 2.0]])
    assert Others(rows, ids).exist().tolist() == [False, False]
    assert Others(rows).exist().tolist() == [True, True]
    assert Others(torch.tensor([0.0, 3.0, 0.0])).exist().item() is False


def test_sums_of_many_matrices_need_no_room_for_ids_they_do_not_have(monkeypatch):
    """Each of the matrices has its own few of all ids."""
    ids = torch.arange(60 * 8).view(60, 8) // 2
    sizes = []
    made = torch.Tensor.new_zeros

    def new_zeros(self, *size, **options):
        sizes.append(size[0])
        return made(self, *size, **options)

    monkeypatch.setattr(torch.Tensor, "new_zeros", new_zeros)
    sums = OffDiagonal(60, 8, torch.device("cpu"), None, ids).row_sums()
    assert (sums == 6).all()
    assert max(sizes) <= ids.numel()
