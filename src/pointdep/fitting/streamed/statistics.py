"""What one pass over all rows finds out, and one over many of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pointdep.core.canonical import Canonical, part_count
from pointdep.core.cross_moments import CrossMoments, canonical_from_moments
from pointdep.data.raw import Array
from pointdep.data.stored.ahead import ahead
from pointdep.data.stored.moments import ColumnMoments, require_finite_piece
from pointdep.data.stored.pairs import PairSource
from pointdep.errors import InputError
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress
from pointdep.fitting.streamed.copies import CopyCount
from pointdep.fitting.streamed.plan import FoldPlan
from pointdep.fitting.streamed.rows import StreamedRows
from pointdep.fitting.streamed.side import as_tensor

_IN_CACHE, _ON_GPU = 1 << 18, 1 << 24  # numbers worked on at a time
_CPU = torch.device("cpu")

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
    pairs: PairSource,
    plan: FoldPlan,
    progress: Progress,
    device: torch.device = _CPU,
    processes: Processes = ALONE,
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
    return _merged(processes.every(lambda: _surveyed(pairs, plan, progress, device, own)))


def _merged(parts: list[Survey]) -> Survey:
    whole = parts[0]
    for part in parts[1:]:
        whole.x.merge(part.x)
        whole.y.merge(part.y)
        whole.copies.merge(part.copies)
    if len(parts) == 1:
        return whole
    kept_x, kept_y = (
        np.concatenate([side[number] for side in ((p.kept_x, p.kept_y) for p in parts)])
        for number in (0, 1)
    )
    return replace(whole, kept_x=kept_x, kept_y=kept_y)


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
    return [
        canonical_from_moments(
            [
                _total([sums[f][p] for f in range(-1, plan.replicas) if f != r])
                for p in range(parts)
            ],
            dx,
            max(1, round(share * plan.draws(r))),
        )
        for r in range(plan.replicas)
    ]


def _add_moments(
    rows: StreamedRows,
    plan: FoldPlan,
    sums: list[list[CrossMoments]],
    most: int,
    progress: Progress,
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
                    sums[f][p] = sums[f][p].add_(_both(chunk.x, chunk.y, some, device))
        done += len(chunk.numbers)
        progress.update(done, most, "rows for the closed form")
    return done


def _of_all(sums: CrossMoments, processes: Processes) -> CrossMoments:
    """Those of all processes."""
    count = torch.tensor([sums.count], device=sums.total.device)
    for part in (count, sums.total, sums.second):
        processes.add_(part)
    return CrossMoments(int(count), sums.total, sums.second)


def _both(x: Tensor, y: Tensor, index: Tensor, device: torch.device) -> Tensor:
    return torch.cat([x[index], y[index]], 1).to(device).double()


def _total(sums: list[CrossMoments]) -> CrossMoments:
    whole = sums[0]
    for one in sums[1:]:
        whole = whole + one
    return whole
