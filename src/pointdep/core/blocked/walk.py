"""The walk over a large matrix of scores: which cells at a time, of what weight, by which kernels.

Matrices of scores come as (L, n, m): L matrices of n rows and m columns. A block is a rectangle of
cells in some of them.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pointdep.errors import InputError

# One block of scores should stay in the cache until the products that use it are done: 1 MiB of
# float32 for each thread of a CPU. A GPU's block, 256 MiB, is larger than its cache, because each
# block keeps the host busy for half a millisecond (benchmarks/results/blocked_objectives.json).
_CPU_CELLS, _MOST_THREADS = 1 << 18, 16
_GPU_CELLS = 1 << 26
_MANY = 4  # blocks of one size: worth compiling the steps on them
_COPIES = 4  # of a block alive at a time
_SHARE = 8  # at most an eighth of the free memory
_LEAST_BITS = 16  # 256 KiB of float32 are always available


class Block(NamedTuple):
    """A rectangle of cells in some of the matrices."""

    matrices: slice
    rows: slice
    columns: slice
    common: bool = False  # one of many of this size


def best_cells(device: torch.device) -> int:
    """Cells of a block that suit the caches of the device."""
    if device.type == "cuda":
        return _GPU_CELLS
    return _CPU_CELLS * min(torch.get_num_threads(), _MOST_THREADS)


def cells_at_hand(device: torch.device, itemsize: int) -> int:
    """`best_cells`, or fewer if there is little free memory."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        # Memory that torch has reserved and does not use is free too.
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    else:
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):  # a system that does not say
            free = 1 << 30
    allowed = free // (_SHARE * _COPIES * itemsize)
    # A power of two, so that small changes of the free memory do not change the block.
    return min(best_cells(device), 1 << max(_LEAST_BITS, allowed.bit_length() - 1))


def block_sizes(matrices: int, rows: int, columns: int, cells: int) -> tuple[int, int, int]:
    """Whole matrices if one is small, else nearly square pieces of one."""
    if rows * columns <= cells:
        return min(matrices, cells // (rows * columns)), rows, columns
    # A power of two, of which the usual batch sizes are multiples.
    side = 1 << (math.isqrt(cells).bit_length() - 1)
    wide = min(columns, side if rows >= side else max(1, cells // rows))
    return 1, min(rows, max(1, cells // wide)), wide


def blocks(matrices: int, rows: int, columns: int, cells: int) -> Iterator[Block]:
    """All cells of matrices of this size, about `cells` at a time; the last ones are smaller."""
    size = block_sizes(matrices, rows, columns, cells)
    full = (matrices // size[0]) * (rows // size[1]) * (columns // size[2])
    for m in spans(matrices, size[0]):
        for r in spans(rows, size[1]):
            for c in spans(columns, size[2]):
                found = tuple(part.stop - part.start for part in (m, r, c))
                yield Block(m, r, c, found == size and full >= _MANY)


def spans(total: int, size: int) -> list[slice]:
    """Slices of `size` that cover `total`."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def require_pairs(shape: tuple[int, ...]) -> None:
    """Refuse scores of a shape without a diagonal of pairs, or with nothing beside it."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InputError(
            f"scores of shape {tuple(shape)} are not a square matrix of pairs: give `joint` and "
            "`product` weights that say which cells are samples of which distribution"
        )
    if shape[-1] < 2:
        raise InputError("a batch of one pair has no product samples: at least two rows are needed")


def expanded(weights: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The weights at the shape of the scores."""
    try:
        return weights.expand(shape)
    except RuntimeError:
        raise InputError(
            f"weights of shape {tuple(weights.shape)} do not fit scores of shape {tuple(shape)}"
        ) from None


@dataclass(frozen=True)
class Pairs:
    """Row i and column i are a pair, of weight `rows[..., i]` (1 if omitted)."""

    rows: Tensor | None = None

    def __getitem__(self, index: Any) -> Pairs:
        return Pairs(_at(self.rows, index))


@dataclass(frozen=True)
class Others:
    """Cell (i, j) is a sample of the product if i and j differ, and so do their ids.

    Its weight is `rows[..., i] * rows[..., j]`, 1 if they are omitted. Both: (..., n).
    """

    rows: Tensor | None = None
    ids: Tensor | None = None

    def __getitem__(self, index: Any) -> Others:
        return Others(_at(self.rows, index), _at(self.ids, index))

    def exist(self) -> Tensor:
        """Whether any cell has weight, (...,); requires rows or ids."""
        rows, ids = self.rows, self.ids
        if ids is None:
            assert rows is not None
            ids = torch.arange(rows.shape[-1], device=rows.device).expand_as(rows)
        kept = torch.ones_like(ids, dtype=torch.bool) if rows is None else rows > 0
        ends = torch.iinfo(torch.long)
        lowest = torch.where(kept, ids.long(), ends.max).amin(-1)
        return lowest < torch.where(kept, ids.long(), ends.min).amax(-1)


def _at(tensor: Tensor | None, index: Any) -> Tensor | None:
    return None if tensor is None else tensor[index]


class OtherCells:
    """Cells whose row and column differ in their ids: `Others`, of matrices of any shape.

    x: (L, n, ...) gives size and device. rows: (L, n), of square matrices, or None. ids: those of
    the rows, (L, n), and of the columns, (L, m); without them the id of row or column i is
    i modulo `period`, which is n unless given.
    """

    def __init__(
        self,
        x: Tensor,
        rows: Tensor | None = None,
        ids: tuple[Tensor, Tensor] | None = None,
        period: int | None = None,
    ) -> None:
        self.shape, self.device, self.rows, self.ids = x.shape[:2], x.device, rows, ids
        self.period = period or x.shape[1]

    def block(self, at: Block) -> Tensor | None:
        """Weights or a mask that broadcast against the block; None if all are one."""
        mask = self._mask(at)
        if self.rows is None:
            return mask
        rows, columns = self.rows[at.matrices, at.rows], self.rows[at.matrices, at.columns]
        weights = rows.unsqueeze(-1) * columns.unsqueeze(-2)
        return weights if mask is None else weights * mask

    def _mask(self, at: Block) -> Tensor | None:
        if self.ids is not None:
            rows, columns = self.ids[0][at.matrices, at.rows], self.ids[1][at.matrices, at.columns]
            return rows.unsqueeze(-1) != columns.unsqueeze(-2)
        # Few blocks have a cell of equal ids, and the others need no mask.
        least, most = at.rows.start - at.columns.stop + 1, at.rows.stop - at.columns.start - 1
        if most // self.period * self.period < least:
            return None
        rows, columns = (
            torch.arange(part.start, part.stop, device=self.device) % self.period
            for part in (at.rows, at.columns)
        )
        return (rows[:, None] != columns).unsqueeze(0)

    def row_sums(self) -> Tensor:
        """(L, n), whole numbers or float64."""
        if self.ids is None:
            if self.rows is None:
                return torch.full(self.shape, self.shape[1] - 1, device=self.device)
            rows = self.rows.double()
            return rows * (rows.sum(-1, keepdim=True) - rows)
        order, first, last = self.alike()
        if self.rows is None:
            return self.ids[1].shape[-1] - (last - first)
        rows = self.rows.double()
        until = torch.nn.functional.pad(rows.gather(-1, order).cumsum(-1), (1, 0))
        return rows * (until[:, -1:] - (until.gather(-1, last) - until.gather(-1, first)))

    def alike(self) -> tuple[Tensor, Tensor, Tensor]:
        """Columns in the order of their ids, (L, m), and where in it those of a row's id begin and
        end, (L, n) each; the host need not wait for any of it."""
        assert self.ids is not None
        ids, (ordered, order) = self.ids[0].contiguous(), self.ids[1].sort(-1)
        first, last = (torch.searchsorted(ordered, ids, right=right) for right in (False, True))
        return order, first, last


class Dense:
    """Weights that the caller holds, as a view of (R, G, n, m) with R G = L."""

    def __init__(self, weights: Tensor, shape: tuple[int, ...], parts: int) -> None:
        """weights: broadcast against scores of this shape, (..., parts n, m)."""
        weights = expanded(weights, shape)
        self.weights: Tensor = weights.reshape(-1, parts, shape[-2] // parts, shape[-1])

    def block(self, at: Block) -> Tensor:
        part = self.weights[:, :, at.rows, at.columns]
        if part.shape[0] == part.shape[1] == 1:
            return part[0]
        numbers = torch.arange(at.matrices.start, at.matrices.stop, device=part.device)
        return part[numbers // part.shape[1], numbers % part.shape[1]]

    def row_sums(self) -> Tensor:
        return self.weights.sum(-1, dtype=torch.float64).flatten(0, 1)

    def diagonal(self) -> Tensor:
        """Of weights that are on the diagonal alone: (R, G, n)."""
        found = self.weights.diagonal(dim1=-2, dim2=-1)
        if int(self.weights.count_nonzero()) != int(found.count_nonzero()):
            raise InputError("cpc without a matrix of scores takes joint weights on its diagonal")
        return found


CellWeights = OtherCells | Dense
"""Weights of the cells of L matrices: `block` gives those of a block, and `row_sums` (L, n)."""

Step = Callable[..., Any]
_numbers = itertools.count()


@cache
def compiled_step(step: FunctionType, option: Any, shape: tuple[int, ...]) -> Step:
    """step(option, ...) by torch.compile; as it is, from the day that fails on this machine."""
    # torch counts how often a function was compiled and gives up at eight, so each combination of
    # option and block shape has a function of its own.
    name = f"{step.__name__}_{'x'.join(map(str, shape))}_{next(_numbers)}"
    own = FunctionType(step.__code__.replace(co_name=name), step.__globals__, name)
    run: Step = torch.compile(own, dynamic=False)

    def safely(*tensors: Tensor | None) -> Any:
        nonlocal run
        try:
            return run(option, *tensors)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a missing compiler, driver or Triton raises
            if run is step:
                raise
            lines = str(error).strip().splitlines() or [type(error).__name__]
            said = f"torch.compile failed ({lines[0]}): large batches are computed more slowly"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
            run = step
        return run(option, *tensors)

    return safely
