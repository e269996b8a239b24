"""What an audit asks of the fitted rows, held in memory or read from where they are stored."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.auditing.partners import Searched, copies_by_key, duplicates
from pointdep.core.ratio import RatioModel
from pointdep.data.row_source import Rows
from pointdep.estimators.fit_rows import PairedRows, StreamedFitRows
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.data_flags import row_keys
from pointdep.fitting.progress import Progress
from pointdep.inference.scoring import score_blocks, score_matrix, score_replicas

Array32 = NDArray[np.float32]
Fold = NDArray[np.signedinteger[Any]]

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
    model: RatioModel, x: Tensor, y: Tensor, fold: Fold, seed: int, groups: Tensor | None = None
) -> Mismatched:
    """Blocks of rows that a replica did not see, each x set against each y of its block.

    fold: (n,), the replica that did not see the row.
    """
    standing = np.zeros(len(x), np.float32)
    sampled = []
    for replica in np.unique(fold):
        report = [np.flatnonzero(fold == replica)]
        cells, index = held_out_cells(x, y, report, block=_BLOCK, seed=seed, groups=groups)
        pmi = score_blocks(model.select([int(replica)]), cells.x[0], cells.y[0])
        others = cells.product[0].view(pmi.shape).cpu() > 0
        standings = find_standings(pmi, others)
        own = standings.diagonal(dim1=1, dim2=2).reshape(-1).numpy()
        real = index[0] >= 0
        standing[index[0][real]] = own[real]
        some = others.view(-1).nonzero().squeeze(1)  # mismatched cells of the flattened blocks
        if len(some) > _CELLS_OF_REPLICA:
            generator = torch.Generator().manual_seed(seed * 1_000_003 + int(replica))
            some = some[torch.randint(len(some), (_CELLS_OF_REPLICA,), generator=generator)]
        sampled.append((pmi.view(-1)[some], standings.view(-1)[some]))
    pmis, all_standings = (torch.cat(side).numpy() for side in zip(*sampled, strict=True))
    return Mismatched(pmis, standing, all_standings)


def find_standings(pmi: Tensor, others: Tensor) -> Tensor:
    """For each cell (G, b, b), of the mismatched cells in its row and in its column, the share that
    is at most as high; the higher of the two, and 0 where there are none."""
    shares = []
    for dim in (2, 1):
        ordered = torch.where(others, pmi, torch.inf).sort(dim).values.movedim(dim, -1).contiguous()
        found = torch.searchsorted(ordered, pmi.movedim(dim, -1).contiguous(), right=True)
        count = others.sum(dim).unsqueeze(-1)
        shares.append((found.minimum(count) / count.clamp(min=1)).movedim(-1, dim))
    return torch.maximum(*shares)


_CELLS = 1 << 23  # mismatched pairs kept, of all chunks
_STEP = 1 << 18  # rows at a time


class HeldRows:
    """Of rows in memory."""

    def __init__(self, model: RatioModel, rows: PairedRows) -> None:
        self.model, self.rows = model, rows
        self.fold = np.empty(len(rows.x), np.int64)
        for replica, split in enumerate(rows.splits):
            self.fold[split.report] = replica

    def mismatched(self, progress: Progress) -> Mismatched:
        del progress  # seconds
        rows = self.rows
        return mismatched_pairs(self.model, rows.x, rows.y, self.fold, rows.seed, rows.groups)

    def of_labels(self, first: Rows) -> Array32:
        """log r of each row with the labels of the rows `first`, (n, k)."""
        labels = self.rows.y[torch.from_numpy(first).to(self.rows.y.device)]
        return unseen_matrix(self.model, self.rows.x, self.fold, labels)

    def stderr(self, jackknife: float, progress: Progress) -> Array32:
        scores = score_replicas(self.model, self.rows.x, self.rows.y, progress).numpy()
        return spread(scores, self.fold, jackknife)

    def searched(self, pmi: Array32, doubtful: Rows) -> Searched:
        rows, every = self.rows, np.arange(len(pmi))
        return Searched(rows.x, rows.y, self.fold, pmi, doubtful, rows.codes, every, len(pmi))

    def duplicates(self) -> Rows:
        if self.model.critic.is_table:  # numbers of categories, which are equal or not
            keys = (side[:, 0].double().cpu().numpy() for side in (self.rows.x, self.rows.y))
            return copies_by_key(*keys)
        return duplicates(self.rows.x, self.rows.y)


class StoredRows:
    """Of rows that are read again, chunk by chunk, in one pass.

    Partners are looked for among the kept rows, a uniform sample, and the doubtful ones; copies
    are rows that are equal, not those that nearly are.
    """

    def __init__(self, model: RatioModel, mapped: StreamedFitRows) -> None:
        self.model, self.mapped = model, mapped
        self._scores = np.empty((model.replicas, mapped.count), np.float32)
        self._keys = np.empty((2, mapped.count))

    def mismatched(self, progress: Progress) -> Mismatched:
        stream, plan = self.mapped.mapped, self.mapped.plan
        standing = np.zeros(stream.rows, np.float32)
        share = min(1.0, _CELLS / (128.0 * stream.rows))
        random = np.random.default_rng([plan.seed, 23])
        sampled: list[tuple[Array32, Array32]] = []
        done = 0
        for chunk in stream.shuffled(0):  # rows that lie together may be alike
            codes = None if plan.codes is None else torch.from_numpy(plan.codes[chunk.numbers])
            groups = None if codes is None else codes.to(chunk.x.device)
            fold = plan.fold[chunk.numbers]
            found = mismatched_pairs(self.model, chunk.x, chunk.y, fold, plan.seed, groups)
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

    def of_labels(self, first: Rows) -> Array32:
        """log r of each row with the labels of the rows `first`, (n, k)."""
        read, plan = self.mapped.mapped, self.mapped.plan
        labels = read.y.tensor(read.pairs.y.take(first))
        found = np.empty((read.rows, len(first)), np.float32)
        for chunk in read.shuffled(0):
            fold = plan.fold[chunk.numbers]
            found[chunk.numbers] = unseen_matrix(self.model, chunk.x, fold, labels)
        return found

    def stderr(self, jackknife: float, progress: Progress) -> Array32:
        del progress  # seconds
        return spread(self._scores, self.mapped.plan.fold, jackknife)

    def searched(self, pmi: Array32, doubtful: Rows) -> Searched:
        plan, read = self.mapped.plan, self.mapped.mapped
        some = np.union1d(plan.kept, doubtful)
        x, y = read.x.tensor(read.pairs.x.take(some)), read.y.tensor(read.pairs.y.take(some))
        places = np.searchsorted(some, doubtful).astype(np.int64)
        codes = None if plan.codes is None else plan.codes[some]
        return Searched(x, y, plan.fold[some], pmi[some], places, codes, some, read.rows)

    def duplicates(self) -> Rows:
        return copies_by_key(*self._keys)


def unseen_matrix(model: RatioModel, x: Tensor, fold: Fold, labels: Tensor) -> Array32:
    """log r of each x with each label by the replica that did not see it, (n, k)."""
    found = np.empty((len(x), len(labels)), np.float32)
    for replica in np.unique(fold):
        rows = np.flatnonzero(fold == replica)
        part = x[torch.from_numpy(rows).to(x.device)]
        found[rows] = score_matrix(model.select([int(replica)]), part, labels)
    return found


def spread(scores: Array32, fold: Fold, jackknife: float) -> Array32:
    """The standard error of the out-of-fold PMI, (n,): how much it changes with the other rows.

    The jackknife by parts, over the replicas that trained on the row: of these each left out
    another part of the others. With fewer than two of them, over all replicas. scores: (R, n);
    fold: (n,), the replica that did not see the row.
    """
    found = np.empty(len(fold), np.float32)
    for first in range(0, len(fold), _STEP):
        part = slice(first, first + _STEP)
        values = scores[:, part].astype(np.float64)
        saw = np.arange(len(scores))[:, None] != fold[part]
        saw[:, saw.sum(0) < 2] = True
        mean = np.where(saw, values, 0.0).sum(0) / saw.sum(0)
        variance = np.where(saw, np.square(values - mean), 0.0).sum(0) / saw.sum(0)
        found[part] = np.sqrt(jackknife * variance)
    return found
