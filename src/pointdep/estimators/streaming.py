"""A fit on rows that are not held in memory: what is read when, and what is kept of it.

Held are, for each row, its fold, whether it decides when to stop, and its out-of-fold PMI; and
whatever the number of rows, a uniform sample of at most 131,072 rows and 2^26 numbers, and a few
chunks of at most 2^25 numbers. From the sample come the rank maps (the share of rows below a value
is then off by at most 0.008, with a probability of 99.9 %; the extremes are those of all rows),
the stopping rows, how closed form and network are mixed, and the bias of fitting. Centre and scale
come from all rows, and so does the check for copies; the closed form comes from the moments of all
rows or of 1,048,576.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.linear import Canonical
from pointdep.core.rank_map import RankMap
from pointdep.core.ratio import RatioModel
from pointdep.data.encoder import EncodedRows
from pointdep.data.row_source import ColumnMoments, RowSource
from pointdep.data.sides import RawSide, SideEncoder, as_source
from pointdep.data.stored_pairs import PairSource
from pointdep.errors import InputError
from pointdep.estimators.assembly import PairedRows
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.data_flags import CopyCount
from pointdep.fitting.engine import is_lean
from pointdep.fitting.fold_plan import FoldPlan, make_plan
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress
from pointdep.fitting.sharing import Sharing
from pointdep.fitting.streamed_batches import StreamedBatches
from pointdep.fitting.streamed_rows import (
    StreamedRows,
    StreamedSide,
    as_tensor,
    canonical_of_replicas,
    survey,
)
from pointdep.inference.out_of_fold import OutOfFold, streamed_out_of_fold

IN_MEMORY = 1 << 27
"""Numbers in the rows of both sides up to which a fit holds them all."""

LARGEST_BATCH = 1024
"""Rows per step, where they are left to the estimator: there are rows enough for steps enough."""

_KEPT_ROWS, _KEPT_NUMBERS = 1 << 17, 1 << 26
_MAPPED = 1 << 22  # numbers mapped at a time
_STOP_ROWS, _STOP_NUMBERS = 1 << 14, 1 << 25  # the numbers are those of all replicas


def is_large(X: Any, Y: Any) -> bool:
    """Whether the rows are more than a fit holds in memory."""
    shapes: list[tuple[int, ...]] = [tuple(getattr(side, "shape", ())) for side in (X, Y)]
    if any(len(shape) not in (1, 2) for shape in shapes):
        return False
    return int(shapes[0][0]) * sum(int(np.prod(shape[1:])) for shape in shapes) > IN_MEMORY


@dataclass(frozen=True, eq=False)
class Stream:
    """Pairs of which a fit has read what it must know before it can build a model.

    kept: x, y, splits and all of the kept rows, encoded but not yet mapped. moments: of the columns
    of both sides as they are stored.
    """

    pairs: PairSource
    plan: FoldPlan
    kept: PairedRows
    moments: tuple[ColumnMoments, ColumnMoments]
    copies: CopyCount
    device: torch.device
    processes: Processes = ALONE

    @property
    def rows(self) -> int:
        return self.pairs.rows

    def prepare(self, model: RatioModel) -> Mapped:
        """Fit the maps that all replicas share, and apply them to the kept rows."""
        model.to(self.device)
        kept, sides, tensors = self.kept, [], []
        for source, encoder, front, rows, moments in (
            (self.pairs.x, kept.encoder_x, model.x_front, kept.x, self.moments[0]),
            (self.pairs.y, kept.encoder_y, model.y_front, kept.y, self.moments[1]),
        ):
            own = None if isinstance(source, EncodedRows) else encoder
            side = StreamedSide(source, own, front, self.device)
            if isinstance(front, RankMap):
                extremes = _extremes(side, moments) if len(rows) < self.rows else rows[:0]
                every = torch.cat([rows, extremes.to(rows.device)])
                front.fit(every, torch.from_numpy(encoder.numeric_mask))
            sides.append(side)
            with torch.no_grad():
                parts = torch.split(rows, max(1, _MAPPED // rows.shape[1]))
                tensors.append(torch.cat([front(part) for part in parts]))
        return Mapped(
            replace(kept, x=tensors[0], y=tensors[1]),
            self.plan,
            StreamedRows(self.pairs, sides[0], sides[1], kept.seed, self.processes),
        )


@dataclass(frozen=True, eq=False)
class Mapped:
    """The same with the maps of a model: the kept rows, and all of them as they are read."""

    kept: PairedRows
    plan: FoldPlan
    stream: StreamedRows

    def read_alone(self, kept: PairedRows) -> Mapped:
        """The same for one process, whichever others took part in the fit; kept: its kept rows."""
        stream = self.stream
        alone = StreamedRows(stream.pairs, stream.x, stream.y, stream.seed, keep=False)
        return Mapped(kept, self.plan, alone)

    def canonical(self, model: RatioModel, progress: Progress) -> list[Canonical] | None:
        """The coordinates of the default critic's closed form; None for other critics."""
        if not model.critic.has_closed_form:
            return None
        return canonical_of_replicas(self.stream, self.plan, progress)

    def batches(
        self, model: RatioModel, options: TrainingOptions, progress: Progress
    ) -> StreamedBatches:
        """Where training steps get their pairs from."""
        processes = self.stream.processes
        return StreamedBatches(
            self.stream,
            self.plan,
            batch_size=options.batch_size,
            block=options.block,
            seed=options.seed,
            max_epochs=options.max_epochs,
            progress=progress,
            lean=is_lean(model, options.batch_size, options.block),
            sharing=Sharing(processes, model.critic) if processes.several else None,
        )

    def out_of_fold(self, model: RatioModel, progress: Progress) -> OutOfFold:
        """PMI of every row, by the replica that did not train on it."""
        kept = self.kept
        return streamed_out_of_fold(
            model,
            self.stream,
            self.plan,
            (kept.x, kept.y, kept.splits, kept.groups),
            seed=kept.seed,
            progress=progress,
        )


def open_stream(
    X: Any,
    Y: Any,
    codes: NDArray[np.int64] | None,
    *,
    discrete: tuple[bool | None, bool | None],
    folds: int,
    stop_fraction: float,
    seed: int,
    device: torch.device,
    progress: Progress,
    processes: Processes = ALONE,
) -> Stream:
    """One pass over the rows: everything a fit needs to know before it can build a model.

    processes: that share the reading.
    """
    given = [as_source(v, n, discrete=d) for v, n, d in zip((X, Y), "XY", discrete, strict=True)]
    encoders = [
        SideEncoder.fit(side, name) if isinstance(side, RawSide) else None
        for side, name in zip(given, "XY", strict=True)
    ]
    pairs = PairSource(
        *(
            EncodedRows(side, encoder) if isinstance(side, RawSide) and encoder else _source(side)
            for side, encoder in zip(given, encoders, strict=True)
        )
    )
    if codes is not None and len(codes) != pairs.rows:
        raise InputError(f"groups has {len(codes)} rows but X and Y have {pairs.rows}")
    plan = make_plan(
        pairs.rows,
        folds=folds,
        stop_fraction=stop_fraction,
        most_stop=min(_STOP_ROWS, max(64, _STOP_NUMBERS // (pairs.width * max(1, folds)))),
        most_kept=min(_KEPT_ROWS, max(1024, _KEPT_NUMBERS // pairs.width)),
        codes=codes,
        seed=seed,
    )
    found = survey(pairs, plan, progress, device, processes)
    encoder_x = encoders[0] or SideEncoder.of_numbers(pairs.x, "X", found.x)
    encoder_y = encoders[1] or SideEncoder.of_numbers(pairs.y, "Y", found.y)
    kept = PairedRows(
        x=_encoded(found.kept_x, pairs.x, encoder_x).to(device),
        y=_encoded(found.kept_y, pairs.y, encoder_y).to(device),
        encoder_x=encoder_x,
        encoder_y=encoder_y,
        splits=plan.splits(),
        codes=None if codes is None else codes[plan.kept],
        seed=seed,
        numbers=plan.kept,
    )
    return Stream(pairs, plan, kept, (found.x, found.y), found.copies, device, processes)


def _source(side: RowSource | RawSide) -> RowSource:
    assert isinstance(side, RowSource)
    return side


def _encoded(values: NDArray[Any], source: RowSource, encoder: SideEncoder) -> Tensor:
    own = None if isinstance(source, EncodedRows) else encoder
    side = StreamedSide(source, own, torch.nn.Identity(), torch.device("cpu"))
    return side.tensor(values)


def _extremes(side: StreamedSide, moments: ColumnMoments) -> Tensor:
    """The lowest and the highest value of each encoded column, (2, dim)."""
    return side.encoded(as_tensor(np.stack([moments.low, moments.high])))
