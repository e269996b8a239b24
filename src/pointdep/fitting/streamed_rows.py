"""Pairs that are read, encoded and mapped chunk by chunk."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pointdep.core.linear import Canonical, CrossMoments, canonical_from_moments, part_count
from pointdep.core.transforms import RankMap
from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import Array
from pointdep.data.row_source import ColumnMoments, RowSource, ahead, require_finite_piece
from pointdep.data.stored_pairs import Chunk, PairSource
from pointdep.errors import InputError
from pointdep.fitting.data_flags import CopyCount
from pointdep.fitting.fold_plan import FoldPlan
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Rows

# One side of stored rows: from what was read to what the critics take.

_PART = 1 << 17  # numbers encoded at a time: they stay in the cache
_PART_GPU = 1 << 24
_TABLE_ROWS = 1 << 16  # with fewer a table of all values does not pay
_UNSIGNED = {"u2": np.int32, "u4": np.int64, "u8": np.float64}  # which torch cannot compute with


class StreamedSide:
    """Encodes and maps rows as they come, on the device, to the numbers they have in memory.

    encoder: None for a source that gives encoded rows already. Columns of float16 or int8 have few
    possible values: on the CPU, where a rank map is slow, it is looked up in a table of them all.
    """

    def __init__(
        self, source: RowSource, encoder: SideEncoder | None, front: nn.Module, device: torch.device
    ) -> None:
        self.source, self.encoder, self.front, self.device = source, encoder, front, device
        self.dim = source.width if encoder is None else encoder.dim
        # Where there is no float64 the encoding is done before the rows go there.
        self._early = torch.device("cpu") if device.type == "mps" else device
        self._table: Tensor | None = None

    def tensor(self, values: Array) -> Tensor:
        """values: (n, width) as read -> (n, dim) float32 on the device, prepared."""
        if self._uses_table:
            return self._looked_up(values)
        return self._prepared(self._chosen(as_tensor(values).to(self._early)))

    def encoded(self, rows: Tensor) -> Tensor:
        """(n, width) of any type -> (n, dim) float32, as `SideEncoder.encode` does."""
        return self._scaled(self._chosen(rows))

    def _chosen(self, rows: Any) -> Any:
        """The columns that are encoded: (n, width) -> (n, dim)."""
        if self.encoder is None or self.dim == rows.shape[1]:
            return rows
        return rows[:, list(self.encoder.numeric_at)]

    def _scaled(self, chosen: Tensor) -> Tensor:
        if self.encoder is None:
            return chosen.float()
        known = self.encoder.center, self.encoder.scale
        center, scale = (torch.from_numpy(part).to(chosen.device) for part in known)
        values = chosen.double()
        if self.encoder.limits:
            values = values.clone()
        for column, limits in self.encoder.limits:
            one = values[:, column]
            clean = one.where(one >= limits.low, limits.below)
            values[:, column] = clean.where(one <= limits.high, limits.above)
        return ((values - center) / scale).float()

    def _prepared(self, chosen: Tensor) -> Tensor:
        """(n, dim) of any type -> (n, dim) float32 on the device, encoded and mapped."""
        out = torch.empty(len(chosen), self.dim, device=self.device)
        # A GPU would rather have them all at once.
        step = max(1, (_PART if self.device.type == "cpu" else _PART_GPU) // max(1, self.dim))
        for part, place in zip(torch.split(chosen, step), torch.split(out, step), strict=True):
            place.copy_(self.front(self._scaled(part).to(self.device)))
        return out

    @property
    def _uses_table(self) -> bool:
        size = self.source.dtype.itemsize
        maps = isinstance(self.front, RankMap) and self.encoder is not None
        few = size == 1 or (size == 2 and self.source.rows >= _TABLE_ROWS)
        return maps and few and self.device.type == "cpu"

    def _looked_up(self, values: Array) -> Tensor:
        size, dtype = values.dtype.itemsize, self.source.dtype
        if self._table is None:
            # Every possible value of a column, mapped, by its bits: (dim, 256 or 65,536).
            bits = np.arange(256**size, dtype=np.uint8 if size == 1 else np.uint16)
            every = as_tensor(np.nan_to_num(bits.view(dtype), posinf=0.0, neginf=0.0))
            self._table = self._prepared(every.unsqueeze(1).expand(-1, self.dim)).T.contiguous()
        codes = self._chosen(values.view(np.uint8 if size == 1 else np.int16))
        out = torch.empty(len(values), self.dim)
        step = max(1, _PART // self.dim)
        for first in range(0, len(values), step):
            part = torch.from_numpy(np.ascontiguousarray(codes[first : first + step].T)).long()
            if size == 2:
                part &= 0xFFFF
            out[first : first + step] = self._table.gather(1, part).T
        return out


def as_tensor(values: Array) -> Tensor:
    """As torch can compute with it: unsigned integers of many bits become wider ones."""
    wider = _UNSIGNED.get(values.dtype.str[1:])
    if wider is not None:
        return torch.from_numpy(values.astype(wider))
    if values.dtype.byteorder not in "=|<" or not values.flags.writeable:
        values = np.array(values, dtype=values.dtype.newbyteorder("="))
    return torch.from_numpy(values)


_SHARE = 0.25  # of a GPU's free memory that the rows may take


@dataclass(frozen=True, eq=False)
class Prepared:
    """Some rows: their numbers (n,), and x: (n, dx), y: (n, dy) float32 on the device."""

    numbers: Rows
    x: Tensor
    y: Tensor


class StreamedRows:
    """All pairs as often as they are asked for; a thread reads the next chunk meanwhile.

    On a GPU the chunk is copied there as it was stored, from pinned memory, and converted there;
    and where all rows fit in a quarter of its free memory, it keeps them when they are shuffled for
    the first time. Of several processes each reads a part of its own.
    """

    def __init__(
        self,
        pairs: PairSource,
        x: StreamedSide,
        y: StreamedSide,
        seed: int,
        processes: Processes = ALONE,
        *,
        keep: bool = True,
    ) -> None:
        """keep: all rows on a GPU, where they fit."""
        self.pairs, self.x, self.y, self.seed = pairs, x, y, seed
        self.processes = processes
        self._kept: tuple[Tensor, Tensor] | None = None
        needed = self.rows * (x.dim + y.dim) * 4
        alone = keep and not processes.several
        self._keeps = alone and needed <= _SHARE * _free_bytes(x.device)

    @property
    def rows(self) -> int:
        return self.pairs.rows

    def ordered(self) -> Iterator[Prepared]:
        """In the order they are stored in."""
        own, step = self.processes.own(self.rows), self.pairs.chunk_rows()
        if self._kept is None:
            yield from self._prepared(self.pairs.read(own.start, own.stop, step))
            return
        parts = (torch.split(side, step) for side in self._kept)
        for number, (x, y) in enumerate(zip(*parts, strict=True)):
            yield Prepared(np.arange(number * step, number * step + len(x)), x, y)

    def shuffled(
        self, number: int, least: int = 1, most: int | None = None, part: slice | None = None
    ) -> Iterator[Prepared]:
        """In the random order of this number; a chunk has at least `least` rows, if there are.

        least: in all processes together. part: of the rows in this order, for this process.
        """
        own = part or self.processes.own(self.rows)
        random = np.random.default_rng([self.seed, number, 22])
        together = self.pairs.chunk_rows(least, self.processes.size)
        rows = -(-together * (own.stop - own.start) // self.rows)
        if not self._keeps:
            yield from self._prepared(self.pairs.shuffled(rows, random, most, own))
            return
        x, y = self._all_rows()
        for chunk in ahead(self.pairs.numbers_only().shuffled(rows, random, most, own)):
            at = torch.from_numpy(chunk.numbers).to(x.device)
            yield Prepared(chunk.numbers, x[at], y[at])

    def _all_rows(self) -> tuple[Tensor, Tensor]:
        """x: (rows, dx) and y: (rows, dy), prepared, on the device; read when first asked for."""
        if self._kept is None:
            x, y = (torch.empty(self.rows, s.dim, device=s.device) for s in (self.x, self.y))
            for part in self.ordered():
                first, stop = int(part.numbers[0]), int(part.numbers[-1]) + 1
                x[first:stop], y[first:stop] = part.x, part.y
            self._kept = x, y
        return self._kept

    def _prepared(self, chunks: Iterator[Chunk]) -> Iterator[Prepared]:
        on_gpu = self.x.device.type == "cuda"
        for chunk in ahead(_pinned(chunks) if on_gpu else chunks):
            yield Prepared(chunk.numbers, self.x.tensor(chunk.x), self.y.tensor(chunk.y))


def _free_bytes(device: torch.device) -> int:
    """Of a GPU; of others, whose memory is the host's, none."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def _pinned(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        x, y = (as_tensor(side).pin_memory().numpy() for side in (chunk.x, chunk.y))
        yield Chunk(chunk.numbers, x, y)


# What one pass over all rows finds out, and one over many of them.

_IN_CACHE, _ON_GPU = 1 << 18, 1 << 24  # numbers worked on at a time
_CPU = torch.device("cpu")

Sums = list[list[CrossMoments]]  # by fold, and by part

MOST_MOMENT_ROWS = 1 << 20
"""Rows whose moments give the closed form: with more of them it is no better."""


@dataclass(frozen=True, eq=False)
class Survey:
    """x, y: moments and extremes of the columns; kept_x, kept_y: the kept rows as stored."""

    x: ColumnMoments
    y: ColumnMoments
    kept_x: Array
    kept_y: Array
    copies: CopyCount


def survey(
    pairs: PairSource, plan: FoldPlan, shown: Progress, device: torch.device, processes: Processes
) -> Survey:
    """One pass in the order of storage: moments, extremes, copies, and the rows to keep.

    Of several processes each reads a part, and they tell each other what they found.
    """
    shapes = processes.every(lambda: (pairs.rows, pairs.x.names, pairs.y.names))
    if len(set(shapes)) > 1:
        raise InputError(
            "the processes were given different rows or columns: all must call fit with the same "
            "ones, which are then shared out"
        )
    own = processes.own(pairs.rows)
    return _merged(processes.every(lambda: _surveyed(pairs, plan, shown, device, own)))


def _merged(parts: list[Survey]) -> Survey:
    whole = parts[0]
    for part in parts[1:]:
        whole.x.merge(part.x)
        whole.y.merge(part.y)
        whole.copies.merge(part.copies)
    if len(parts) == 1:
        return whole
    kept_x = np.concatenate([part.kept_x for part in parts])
    return replace(whole, kept_x=kept_x, kept_y=np.concatenate([part.kept_y for part in parts]))


def _surveyed(
    pairs: PairSource, plan: FoldPlan, progress: Progress, device: torch.device, own: slice
) -> Survey:
    """What a survey finds in the rows of a part."""
    sides = ("X", pairs.x), ("Y", pairs.y)
    moments = [ColumnMoments(source.width) for _, source in sides]
    before, after = np.searchsorted(plan.kept, [own.start, own.stop]).tolist()
    kept = [np.empty((after - before, source.width), source.dtype) for _, source in sides]
    copies, done = CopyCount(), 0
    on_gpu = device.type == "cuda"
    step = max(1, (_ON_GPU if on_gpu else _IN_CACHE) // pairs.width)
    for chunk in ahead(pairs.read(own.start, own.stop, step if on_gpu else pairs.step())):
        first, last = np.searchsorted(plan.kept, [chunk.numbers[0], chunk.numbers[-1] + 1])
        at = plan.kept[first:last] - chunk.numbers[0]
        values = chunk.x, chunk.y
        for place, side in zip(kept, values, strict=True):
            place[first - before : last - before] = side[at]
        for parts in zip(*(torch.split(as_tensor(side), step) for side in values), strict=True):
            x, y = (part.to(device if on_gpu else _CPU).double() for part in parts)
            start = own.start + moments[0].count
            for rows, of_side, (name, source) in zip((x, y), moments, sides, strict=True):
                require_finite_piece(rows, source, name, own.start + of_side.count)
                of_side.add(rows)
            copies.add(x, y, start)
        done += len(chunk.numbers)
        progress.update(done, own.stop - own.start, "rows read")
    return Survey(moments[0], moments[1], kept[0], kept[1], copies)


@torch.no_grad()
def canonical_of_replicas(
    rows: StreamedRows, plan: FoldPlan, progress: Progress
) -> list[Canonical]:
    """Canonical coordinates of each replica's training rows, by one pass of running sums.

    Sums are kept for every fold and part, of which those of a replica are added up. With more than
    1,048,576 rows, blocks of that many in all are drawn at random.
    """
    dx, dy = rows.x.dim, rows.y.dim
    parts = part_count(dx, dy)
    device = torch.device("cpu") if rows.x.device.type == "mps" else rows.x.device
    # One more fold, for rows that none reports.
    sums = [
        [CrossMoments.zero(dx + dy, device) for _ in range(parts)] for _ in range(plan.replicas + 1)
    ]
    most = min(rows.rows, MOST_MOMENT_ROWS)
    counts = rows.processes.every(lambda: _add_moments(rows, plan, sums, most, progress))
    share = sum(counts) / rows.rows
    for of_fold in sums:
        of_fold[:] = [_of_all(one, rows.processes) for one in of_fold]
    found = []
    for r in range(plan.replicas):
        others = [sums[f] for f in range(-1, plan.replicas) if f != r]
        whole = [reduce(add, of_part) for of_part in zip(*others, strict=True)]
        found.append(canonical_from_moments(whole, dx, max(1, round(share * plan.draws(r)))))
    return found


def _add_moments(
    rows: StreamedRows, plan: FoldPlan, sums: Sums, most: int, progress: Progress
) -> int:
    """Add the rows of this process, `most` in all processes; returns how many."""
    parts, device, done = len(sums[0]), sums[0][0].total.device, 0
    most = -(-most // rows.processes.size)
    for chunk in rows.shuffled(0, most=most):
        fold = np.where(plan.held[chunk.numbers], -2, plan.fold[chunk.numbers])
        part = plan.parts(chunk.numbers, parts)
        for f in range(-1, plan.replicas):
            for p in range(parts):
                index = torch.from_numpy(np.flatnonzero((fold == f) & (part == p)))
                for some in torch.split(index.to(chunk.x.device), 1 << 12):
                    both = torch.cat([chunk.x[some], chunk.y[some]], 1).to(device).double()
                    sums[f][p] = sums[f][p].add_(both)
        done += len(chunk.numbers)
        progress.update(done, most, "rows for the closed form")
    return done


def _of_all(sums: CrossMoments, processes: Processes) -> CrossMoments:
    """Those of all processes."""
    count = torch.tensor([sums.count], device=sums.total.device)
    for part in (count, sums.total, sums.second):
        processes.add_(part)
    return CrossMoments(int(count), sums.total, sums.second)
