"""How many cells are scored at a time, and which."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch

# One block of scores should stay in the cache until the products that use it are done: 1 MiB of
# float32 for each thread of a CPU. A GPU's block, 256 MiB, is larger than its cache, because each
# block keeps the host busy for half a millisecond.
_CPU_CELLS, _MOST_THREADS = 1 << 18, 16
_GPU_CELLS = 1 << 26
_MANY = 4  # blocks of one size: worth compiling the steps on them
_COPIES = 4  # of a block alive at a time
_SHARE = 8  # at most an eighth of the memory at hand
_LEAST_BITS = 16  # 256 KiB of float32 are always there


@dataclass(frozen=True)
class Block:
    """A rectangle of cells in some of the matrices."""

    matrices: slice
    rows: slice
    columns: slice
    common: bool = False  # one of many of this size


@dataclass(frozen=True)
class Sizes:
    """Matrices, rows and columns of a block."""

    matrices: int
    rows: int
    columns: int


def cells_at_hand(device: torch.device, itemsize: int) -> int:
    """Cells of a block: what suits the caches, if the memory at hand allows."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        # What torch keeps for itself is free too.
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        best = _GPU_CELLS
    else:
        free = _free_memory()
        best = _CPU_CELLS * min(torch.get_num_threads(), _MOST_THREADS)
    allowed = free // (_SHARE * _COPIES * itemsize)
    # A power of two: the little that is free now and not next time should not change the block.
    return min(best, 1 << max(_LEAST_BITS, allowed.bit_length() - 1))


def _free_memory() -> int:
    """Bytes of physical memory that nothing uses; a GiB where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 30


def block_sizes(matrices: int, rows: int, columns: int, cells: int) -> Sizes:
    """Whole matrices where one is small, else nearly square pieces of one."""
    if rows * columns <= cells:
        return Sizes(min(matrices, cells // (rows * columns)), rows, columns)
    # A power of two, of which the usual sizes of batches are multiples.
    side = 1 << (math.isqrt(cells).bit_length() - 1)
    wide = min(columns, side if rows >= side else max(1, cells // rows))
    return Sizes(1, min(rows, max(1, cells // wide)), wide)


def blocks(matrices: int, rows: int, columns: int, cells: int) -> Iterator[Block]:
    """All cells of matrices of this size, about `cells` at a time; the last ones are smaller."""
    size = block_sizes(matrices, rows, columns, cells)
    full = (matrices // size.matrices) * (rows // size.rows) * (columns // size.columns)
    for m in _slices(matrices, size.matrices):
        for r in _slices(rows, size.rows):
            for c in _slices(columns, size.columns):
                found = Sizes(m.stop - m.start, r.stop - r.start, c.stop - c.start)
                yield Block(m, r, c, found == size and full >= _MANY)


def _slices(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
