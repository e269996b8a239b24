"""How cells are cut into blocks, what they weigh, and the steps that are compiled for a GPU."""

import itertools
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.core.blocked import Others, sums, walk
from pointdep.core.blocked.walk import OtherCells, block_sizes, blocks, cells_at_hand

from ..reference import CASES
from .drawn import draw
from .test_inner_scores import assert_same

COMPILE = torch.compile


@settings(deadline=None)
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
    many = sum(shape == size for shape, _ in shapes) >= 4
    assert all(common == (many and shape == size) for shape, common in shapes)


def test_large_batches_are_cut_without_a_rest_and_others_exist():
    for cells, rows in itertools.product((1 << 18, 1 << 25), (16_384, 32_768, 65_536)):
        assert all(block.common for block in blocks(1, rows, rows, cells))
    ids = torch.tensor([[0, 0, 0], [0, 1, 0]])
    assert Others(ids=ids).exist().tolist() == [False, True]
    rows = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 2.0]])
    assert Others(rows, ids).exist().tolist() == [False, False]
    assert Others(rows).exist().tolist() == [True, True]
    assert Others(torch.tensor([0.0, 3.0, 0.0])).exist().item() is False


@pytest.mark.parametrize(("free", "bits"), [(1 << 16, 16), (1 << 24, 17), (1 << 40, 18), (0, 18)])
def test_block_by_the_free_memory(free, bits, monkeypatch):
    def sysconf(name):
        if not free:  # a system that does not say
            raise ValueError(name)
        return free if name == "SC_AVPHYS_PAGES" else 1

    monkeypatch.setattr(os, "sysconf", sysconf)
    threads = min(16, torch.get_num_threads()) if bits == 18 else 1
    assert cells_at_hand(torch.device("cpu"), 4) == (1 << bits) * threads


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 14), st.booleans(), st.booleans())
def test_other_cells(n, m, period, with_ids, with_rows):
    """Blocks and sums of rows against the mask of the whole matrix."""
    m = n if with_rows or not with_ids else m
    generator = torch.Generator().manual_seed(n + 13 * m)
    ids = [torch.randint(0, 4, (2, size), generator=generator) for size in (n, m)]
    numbers = torch.arange(max(n, m)).expand(2, -1) % period
    of_rows, of_columns = ids if with_ids else (numbers[:, :n], numbers[:, :m])
    full = (of_rows.unsqueeze(-1) != of_columns.unsqueeze(-2)).double()
    rows = torch.rand(2, n, generator=generator) if with_rows else None
    if rows is not None:
        full = full * rows.unsqueeze(-1) * rows.unsqueeze(-2)
    cells = OtherCells(torch.zeros(2, n, 1), rows, tuple(ids) if with_ids else None, period)
    for at in blocks(2, n, m, 20):
        expected, found = full[at.matrices, at.rows, at.columns], cells.block(at)
        found = torch.ones(()) if found is None else found
        torch.testing.assert_close(found.double().expand_as(expected), expected)
    if with_ids or period >= n:
        torch.testing.assert_close(cells.row_sums().double(), full.sum(-1))


@pytest.fixture
def compiled(monkeypatch):
    """Blocks of a common size go through torch.compile; the steps that did."""
    asked = []

    def traced(function, **options):
        asked.append(function)
        return COMPILE(function, backend="aot_eager", fullgraph=True, **options)

    monkeypatch.setattr(torch, "compile", traced)
    monkeypatch.setattr(sums._Scored, "compiled", property(lambda block: block.at.common))
    walk.compiled_step.cache_clear()
    yield asked
    walk.compiled_step.cache_clear()
    torch._dynamo.reset()


def test_objectives_of_compiled_blocks(compiled):
    # With ids, drf walks cells too.
    for name, weights in itertools.product(("pc", "cpc", "dv", "drf"), ("none", "rows and ids")):
        assert_same(CASES[name], draw((2,), 19, 3, cells=64, weights=weights, own=1), 1e-10)
    # Sums alone, and sums with slopes, of three functions; log sums and their slopes.
    assert len(compiled) == 3 * 2 + 2
    assert any(function.__name__.startswith("_cell_step_1x8x8") for function in compiled)


@pytest.mark.usefixtures("compiled")
def test_many_sizes_of_blocks_and_another_thread():
    """More than torch compiles of one function before it gives up."""
    sizes = range(3, 13)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in sizes:
            assert_same(CASES["js"], draw((8,), n, 3, cells=2 * n * n), 1e-10)
    assert walk.compiled_step.cache_info().currsize == 2 * len(sizes)
    # As on a GPU, where the backward pass runs in a thread of its own.
    scores, rows = torch.randn(1, 8, 8), torch.randn(1, 8)
    step = walk.compiled_step(sums._softmax_step, None, (1, 8, 8))
    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pool.submit(step, scores, None, None, rows, rows).result()
    torch.testing.assert_close(found, sums._softmax_step(None, scores, None, None, rows, rows))


def test_a_machine_that_cannot_compile(compiled, monkeypatch):
    def fails(function, **options):
        def broken(*args):
            raise RuntimeError("no C compiler\nand more lines")

        return broken

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.warns(RuntimeWarning, match=r"\(no C compiler\)"):
        assert_same(CASES["js"], draw(n=19, cells=16), 1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(CASES["js"], draw(n=19, cells=16), 1e-10)
