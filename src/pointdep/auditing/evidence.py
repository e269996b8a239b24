"""What an audit asks of the fitted rows, held in memory or read from where they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.auditing.partners import Partners, copies_by_key, duplicates
from pointdep.core.ratio import RatioModel
from pointdep.data.row_source import Rows
from pointdep.estimators.fit_rows import FitRows, PairedRows, StreamedFitRows
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.data_flags import row_keys
from pointdep.fitting.fold_plan import FoldPlan
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Split
from pointdep.fitting.streamed_rows import Prepared
from pointdep.inference.scoring import score_blocks, score_replicas

# How a pair stands among mismatched pairs: of all rows, of its own x, and of its own y.

_BLOCK = 128
_CELLS_OF_REPLICA = 1 << 21  # mismatched pairs kept, of each replica


@dataclass(frozen=True)
class Mismatched:
    """PMI of mismatched pairs, both of whose rows the model did not see, and the pairs beside them.

    pmi: (m,), of a sample of them. standing: (n,) for each pair of the data, the higher of two
    shares: of its x with other y, and of its y with other x, how many have at most its PMI.
    standings: (m,), the same of the mismatched pairs.
    """

    pmi: NDArray[np.float32]
    standing: NDArray[np.float32]
    standings: NDArray[np.float32]


@torch.no_grad()
def mismatched_pairs(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
) -> Mismatched:
    """Blocks of rows that a replica did not see, each x set against each y of its block."""
    standing = np.zeros(len(x), np.float32)
    sampled = []
    for replica, split in enumerate(splits):
        if not len(split.report):  # of a chunk of the rows
            continue
        cells, index = held_out_cells(x, y, [split.report], block=_BLOCK, seed=seed, groups=groups)
        pmi = score_blocks(model.select([replica]), cells.x[0], cells.y[0])
        others = cells.product[0].view(pmi.shape).cpu() > 0
        standings = find_standings(pmi, others)
        own = standings.diagonal(dim1=1, dim2=2).reshape(-1).numpy()
        real = index[0] >= 0
        standing[index[0][real]] = own[real]
        some = _sample(others, seed, replica)
        sampled.append((pmi.view(-1)[some], standings.view(-1)[some]))
    pmis, all_standings = (torch.cat(side).numpy() for side in zip(*sampled, strict=True))
    return Mismatched(pmis, standing, all_standings)


def find_standings(pmi: Tensor, others: Tensor) -> Tensor:
    """For each cell (G, b, b), of the mismatched cells in its row and in its column, the share that
    is at most as high; the higher of the two, and 0 where there are none."""
    shares = []
    for dim in (2, 1):
        values = torch.where(others, pmi, torch.inf)
        ordered = values.sort(dim).values.movedim(dim, -1).contiguous()
        found = torch.searchsorted(ordered, pmi.movedim(dim, -1).contiguous(), right=True)
        count = others.sum(dim).unsqueeze(-1)
        shares.append((found.minimum(count) / count.clamp(min=1)).movedim(-1, dim))
    return torch.maximum(*shares)


def _sample(others: Tensor, seed: int, replica: int) -> Tensor:
    """Places of mismatched cells in the flattened blocks, at most so many."""
    places = others.view(-1).nonzero().squeeze(1)
    if len(places) <= _CELLS_OF_REPLICA:
        return places
    generator = torch.Generator().manual_seed(seed * 1_000_003 + replica)
    return places[torch.randint(len(places), (_CELLS_OF_REPLICA,), generator=generator)]


Array32 = NDArray[np.float32]

_CELLS = 1 << 23  # mismatched pairs kept, of all chunks


class Evidence(Protocol):
    """All of (n,) for the n rows of the data."""

    def mismatched(self, progress: Progress) -> Mismatched: ...

    def stderr(self, jackknife: float, progress: Progress) -> Array32: ...

    def searched(self, pmi: Array32, doubtful: Rows) -> Searched: ...

    def duplicates(self) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Searched:
    """Rows among which better partners are looked for, as `find_partners` takes them.

    numbers: (m,), which of all n rows these are; None where they are all of them.
    """

    x: Tensor
    y: Tensor
    splits: Sequence[Split]
    pmi: Array32
    doubtful: Rows
    codes: NDArray[np.int64] | None
    numbers: Rows | None = None
    rows: int = 0

    def placed(self, found: Partners) -> Partners:
        """What was found among these, by the numbers of all rows."""
        if self.numbers is None:
            return found
        places = np.full((2, self.rows), -1, np.int64)
        for place, local in zip(places, (found.row, found.swapped), strict=True):
            place[self.numbers] = np.where(local >= 0, self.numbers[local], -1)
        pmi = np.full(self.rows, np.nan, np.float32)
        pmi[self.numbers] = found.pmi
        return Partners(places[0], pmi, places[1])


class HeldRows:
    """Of rows in memory."""

    def __init__(self, model: RatioModel, rows: PairedRows) -> None:
        self.model, self.rows = model, rows

    def mismatched(self, progress: Progress) -> Mismatched:
        del progress  # seconds
        rows = self.rows
        return mismatched_pairs(
            self.model, rows.x, rows.y, rows.splits, seed=rows.seed, groups=rows.groups
        )

    def stderr(self, jackknife: float, progress: Progress) -> Array32:
        rows = self.rows
        saw = np.ones((len(rows.splits), len(rows.x)), dtype=bool)
        for replica, split in enumerate(rows.splits):
            saw[replica, split.report] = False
        scores = score_replicas(self.model, rows.x, rows.y, progress).double().numpy()
        return spread(scores, saw, jackknife)

    def searched(self, pmi: Array32, doubtful: Rows) -> Searched:
        rows = self.rows
        return Searched(rows.x, rows.y, rows.splits, pmi, doubtful, rows.codes)

    def duplicates(self) -> Rows:
        return duplicates(self.rows.x, self.rows.y)


class StoredRows:
    """Of rows that are read again, chunk by chunk, in one pass.

    Partners are looked for among the kept rows, a uniform sample, and the doubtful ones; copies
    are rows that are equal, not those that nearly are.
    """

    def __init__(self, model: RatioModel, mapped: StreamedFitRows) -> None:
        self.model, self.mapped = model, mapped
        self._scores: Array32 | None = None
        self._keys = np.empty((2, mapped.count))

    def mismatched(self, progress: Progress) -> Mismatched:
        stream, plan = self.mapped.mapped, self.mapped.plan
        standing = np.zeros(stream.rows, np.float32)
        self._scores = np.empty((self.model.replicas, stream.rows), np.float32)
        share = min(1.0, _CELLS / (128.0 * stream.rows))
        random = np.random.default_rng([plan.seed, 23])
        sampled: list[tuple[Array32, Array32]] = []
        done = 0
        for chunk in stream.shuffled(0):  # rows that lie together may be alike
            found = self._of_chunk(chunk)
            standing[chunk.numbers] = found.standing
            some = random.random(len(found.pmi)) < share
            sampled.append((found.pmi[some], found.standings[some]))
            self._scores[:, chunk.numbers] = score_replicas(self.model, chunk.x, chunk.y).numpy()
            for keys, side in zip(self._keys, (chunk.x, chunk.y), strict=True):
                keys[chunk.numbers] = row_keys(side)
            done += len(chunk.numbers)
            progress.update(done, stream.rows, "rows compared")
        pmis, standings = (np.concatenate(side) for side in zip(*sampled, strict=True))
        return Mismatched(pmis, standing, standings)

    def _of_chunk(self, chunk: Prepared) -> Mismatched:
        plan = self.mapped.plan
        splits = _reported(plan, chunk.numbers)
        codes = None if plan.codes is None else torch.from_numpy(plan.codes[chunk.numbers])
        groups = None if codes is None else codes.to(chunk.x.device)
        return mismatched_pairs(self.model, chunk.x, chunk.y, splits, seed=plan.seed, groups=groups)

    def stderr(self, jackknife: float, progress: Progress) -> Array32:
        assert self._scores is not None
        found = np.empty(self._scores.shape[1], np.float32)
        step = 1 << 18
        for first in range(0, len(found), step):
            part = slice(first, first + step)
            fold = self.mapped.plan.fold[part]
            saw = np.arange(self.model.replicas)[:, None] != fold
            found[part] = spread(self._scores[:, part].astype(np.float64), saw, jackknife)
            progress.update(min(first + step, len(found)), len(found), "rows")
        return found

    def searched(self, pmi: Array32, doubtful: Rows) -> Searched:
        plan, stream = self.mapped.plan, self.mapped.mapped
        some = np.union1d(plan.kept, doubtful)
        x, y = (
            side.tensor(source.take(some))
            for side, source in ((stream.x, stream.pairs.x), (stream.y, stream.pairs.y))
        )
        return Searched(
            x,
            y,
            _reported(plan, some),
            pmi[some],
            np.searchsorted(some, doubtful).astype(np.int64),
            None if plan.codes is None else plan.codes[some],
            some,
            stream.rows,
        )

    def duplicates(self) -> Rows:
        return copies_by_key(*self._keys)


def evidence_of(model: RatioModel, rows: FitRows) -> Evidence:
    """What an audit asks of the rows of a fit."""
    if isinstance(rows, StreamedFitRows):
        return StoredRows(model, rows)
    return HeldRows(model, rows.paired)


def _reported(plan: FoldPlan, numbers: Rows) -> list[Split]:
    """Which of these rows each replica reports, by their positions among them."""
    nothing = np.empty(0, np.int64)
    return [
        Split(nothing, nothing, np.flatnonzero(plan.fold[numbers] == r).astype(np.int64))
        for r in range(plan.replicas)
    ]


def spread(scores: NDArray[np.float64], saw: NDArray[np.bool_], jackknife: float) -> Array32:
    """The standard error of the out-of-fold PMI, (n,): how much it changes with the other rows.

    The jackknife by parts, over the replicas that trained on the row, `saw`: (R, n): of these each
    left out another part of the others. With fewer than two of them, over all replicas.
    """
    saw[:, saw.sum(0) < 2] = True
    mean = np.where(saw, scores, 0.0).sum(0) / saw.sum(0)
    variance = np.where(saw, np.square(scores - mean), 0.0).sum(0) / saw.sum(0)
    found: Array32 = np.sqrt(jackknife * variance).astype(np.float32)
    return found
