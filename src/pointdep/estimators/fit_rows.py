"""The rows of a fit behind one interface: held in memory, or read as they are needed.

Of rows that are read as they are needed, these are held: for each row, its fold, whether it decides
when to stop, and its out-of-fold PMI; and whatever the number of rows, a uniform sample of at most
131,072 rows and 2^26 numbers, and a few chunks of at most 2^25 numbers. From the sample come the
rank maps (the share of rows below a value is then off by at most 0.008, with a probability of 99.9
%; the extremes are those of all rows), the stopping rows, how closed form and network are mixed,
and the bias of fitting. Centre and scale come from all rows, and so does the check for copies; the
closed form comes from the moments of all rows or of 1,048,576.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.linear import Canonical
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import RankMap
from pointdep.data.encoder import EncodedRows
from pointdep.data.raw import group_codes
from pointdep.data.row_source import ColumnMoments, RowSource
from pointdep.data.sides import (
    RawSide,
    SideEncoder,
    as_source,
    side_digest,
    warn_of_other_order,
)
from pointdep.data.stored_pairs import PairSource
from pointdep.errors import Flag, InputError
from pointdep.estimators.base import read_pairs
from pointdep.fitting.batches import Batches, SplitRows, TrainingOptions
from pointdep.fitting.data_flags import CopyCount, duplicate_flags, shared_column
from pointdep.fitting.engine import is_lean
from pointdep.fitting.fold_plan import FoldPlan, make_plan
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress
from pointdep.fitting.sharing import Sharing
from pointdep.fitting.splits import Split, make_splits
from pointdep.fitting.streamed_batches import StreamedBatches
from pointdep.fitting.streamed_rows import (
    StreamedRows,
    StreamedSide,
    as_tensor,
    canonical_of_replicas,
    survey,
)
from pointdep.inference.out_of_fold import OutOfFold, out_of_fold, streamed_out_of_fold

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


@dataclass(frozen=True, kw_only=True)
class PairedRows(SplitRows):
    """The user's pairs, encoded.

    numbers: (n,), which rows of the data these are, where they are a sample of them. digests: of x
    and of y as they were given, where all were read.
    """

    encoder_x: SideEncoder
    encoder_y: SideEncoder
    numbers: NDArray[np.int64] | None = None
    digests: tuple[str, str] | None = None

    @property
    def both_numeric(self) -> bool:
        """Whether each side has a column of numbers."""
        return all(bool(e.numeric_mask.any()) for e in (self.encoder_x, self.encoder_y))

    def values(self, of_all: NDArray[Any]) -> NDArray[Any]:
        """Of values for all rows of the data those of these rows."""
        return of_all if self.numbers is None else of_all[self.numbers]

    def to(self, device: torch.device) -> PairedRows:
        """The same rows on another device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def jackknife_factor(self) -> float:
        """What the variance over replicas that each left some rows out is multiplied by.

        The jackknife by parts: rows fitted over rows left out; folds - 1 for plain folds.
        """
        left_out = [len(split.report) for split in self.splits]
        return float(np.mean([(len(self.x) - count) / count for count in left_out]))

    def shared_column(self) -> str:
        """Columns that both sides have in common, in words; "" where there are none."""
        return shared_column(self.x, self.y, (self.encoder_x, self.encoder_y))


def encode_rows(
    raw: tuple[RawSide, RawSide],
    encoders: tuple[SideEncoder, SideEncoder],
    splits: Sequence[Split],
    *,
    codes: NDArray[np.int64] | None,
    seed: int,
    device: torch.device,
) -> PairedRows:
    """Both sides, x first, as numbers on the device."""
    x, y = (
        torch.from_numpy(encoder.encode(side)).to(device)
        for encoder, side in zip(encoders, raw, strict=True)
    )
    digests = side_digest(raw[0]), side_digest(raw[1])
    return PairedRows(
        x, y, splits, codes, seed, encoder_x=encoders[0], encoder_y=encoders[1], digests=digests
    )


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit, and each step of it that depends on how they are stored.

    This class is of rows that are all in memory; `StreamedFitRows` answers the same calls for rows
    that are read as they are needed. paired: the rows in memory, all of them here, a sample there.
    processes: that fit together.
    """

    paired: PairedRows
    processes: Processes = ALONE

    @property
    def count(self) -> int:
        """All rows of the data."""
        return len(self.paired.x)

    @property
    def codes(self) -> NDArray[np.int64] | None:
        """(count,) group of each row, or None."""
        return self.paired.codes

    @property
    def streamed(self) -> bool:
        """Whether `paired` is only a sample of the rows."""
        return False

    @property
    def share(self) -> str:
        """For the title of the progress bar: the part of the work that this process does."""
        return ""

    def smallest_training(self) -> int:
        """Rows that the replica with the fewest trains on."""
        return min(len(split.train) for split in self.paired.splits)

    def batch_limits(self) -> dict[str, int]:
        """What differs from the defaults of `assembly.batch_shape`."""
        return {}

    def prepare(self, model: RatioModel) -> FitRows:
        """Fit the maps that all replicas share, each on its own side alone, and apply them."""
        return replace(self, paired=prepare(model, self.paired))

    def copies(self) -> list[Flag]:
        """The flag of pairs that occur more than once, or none."""
        return duplicate_flags(self.paired.x, self.paired.y)

    def identity(self) -> dict[str, Any]:
        """What identifies rows that are not in `paired`, for a checkpoint."""
        return {}

    def canonical(self, model: RatioModel, progress: Progress) -> list[Canonical] | None:
        """Each replica's coordinates of the closed form; None where `paired` has them all."""
        del model, progress
        return None

    def batches(
        self, model: RatioModel, options: TrainingOptions, progress: Progress
    ) -> Batches | None:
        """Where training steps get their pairs from; None for `paired`."""
        del model, options, progress
        return None

    def out_of_fold(self, model: RatioModel, progress: Progress) -> OutOfFold:
        """PMI of every row, by replicas that did not train on it."""
        del progress  # seconds
        rows = self.paired
        return self.processes.first(
            lambda: out_of_fold(
                model, rows.x, rows.y, rows.splits, seed=rows.seed, groups=rows.groups
            )
        )

    def kept(self) -> FitRows:
        """The same after the fit: for one process, without memory of a device."""
        return FitRows(self.paired.to(torch.device("cpu")))


@dataclass(frozen=True, eq=False)
class StreamedFitRows(FitRows):
    """Rows that are read as they are needed, of which a fit has read what it must know at once.

    paired: the kept rows, encoded, and mapped once `prepare` was called. moments: of the columns
    of both sides as they are stored. stream: the rows as they are read, with the maps of a model.
    """

    pairs: PairSource = field(kw_only=True)
    plan: FoldPlan = field(kw_only=True)
    moments: tuple[ColumnMoments, ColumnMoments] = field(kw_only=True)
    copy_count: CopyCount = field(kw_only=True)
    stream: StreamedRows | None = field(default=None, kw_only=True)

    @property
    def count(self) -> int:
        return self.pairs.rows

    @property
    def codes(self) -> NDArray[np.int64] | None:
        return self.plan.codes

    @property
    def streamed(self) -> bool:
        return True

    @property
    def share(self) -> str:
        return self.processes.share

    @property
    def mapped(self) -> StreamedRows:
        """All rows as they are read, once `prepare` was called."""
        assert self.stream is not None
        return self.stream

    def smallest_training(self) -> int:
        return min(self.plan.training_rows())

    def batch_limits(self) -> dict[str, int]:
        return {"largest": LARGEST_BATCH}

    def prepare(self, model: RatioModel) -> StreamedFitRows:
        rows, device = self.paired, self.paired.x.device
        model.to(device)
        sides, tensors = [], []
        for source, encoder, front, values, moments in (
            (self.pairs.x, rows.encoder_x, model.x_front, rows.x, self.moments[0]),
            (self.pairs.y, rows.encoder_y, model.y_front, rows.y, self.moments[1]),
        ):
            own = None if isinstance(source, EncodedRows) else encoder
            side = StreamedSide(source, own, front, device)
            if isinstance(front, RankMap):
                extremes = _extremes(side, moments) if len(values) < self.count else values[:0]
                every = torch.cat([values, extremes.to(values.device)])
                front.fit(every, torch.from_numpy(encoder.numeric_mask))
            sides.append(side)
            with torch.no_grad():
                parts = torch.split(values, max(1, _MAPPED // values.shape[1]))
                tensors.append(torch.cat([front(part) for part in parts]))
        stream = StreamedRows(self.pairs, sides[0], sides[1], rows.seed, self.processes)
        return replace(self, paired=replace(rows, x=tensors[0], y=tensors[1]), stream=stream)

    def copies(self) -> list[Flag]:
        return self.copy_count.flags()

    def identity(self) -> dict[str, Any]:
        said: dict[str, Any] = {"stored": [self.count, int(self.copy_count.digest)]}
        if self.codes is not None:
            said["groups"] = hashlib.sha256(self.codes.tobytes()).hexdigest()
        if self.processes.several:
            said["processes"] = self.processes.size  # on which the batches depend
        return said

    def canonical(self, model: RatioModel, progress: Progress) -> list[Canonical] | None:
        if not model.critic.has_closed_form:
            return None
        return canonical_of_replicas(self.mapped, self.plan, progress)

    def batches(
        self, model: RatioModel, options: TrainingOptions, progress: Progress
    ) -> StreamedBatches:
        return StreamedBatches(
            self.mapped,
            self.plan,
            options,
            progress=progress,
            lean=is_lean(model, options.batch_size, options.block),
            sharing=Sharing(self.processes, model.critic) if self.processes.several else None,
        )

    def out_of_fold(self, model: RatioModel, progress: Progress) -> OutOfFold:
        rows = self.paired
        return streamed_out_of_fold(
            model,
            self.mapped,
            self.plan,
            (rows.x, rows.y, rows.splits, rows.groups),
            seed=rows.seed,
            progress=progress,
        )

    def kept(self) -> StreamedFitRows:
        read = self.mapped
        alone = StreamedRows(read.pairs, read.x, read.y, read.seed, keep=False)
        on_cpu = self.paired.to(torch.device("cpu"))
        return replace(self, paired=on_cpu, processes=ALONE, stream=alone)


def prepare(model: RatioModel, rows: PairedRows) -> PairedRows:
    """Fit the maps that all replicas share, each on its own side alone, and apply them."""
    model.to(rows.x.device)
    for front, values, encoder in (
        (model.x_front, rows.x, rows.encoder_x),
        (model.y_front, rows.y, rows.encoder_y),
    ):
        if isinstance(front, RankMap):
            front.fit(values, torch.from_numpy(encoder.numeric_mask))
    x, y = model.prepare(rows.x, rows.y)
    return replace(rows, x=x, y=y)


def fingerprint(model: RatioModel, rows: PairedRows, settings: dict[str, Any]) -> str:
    """What identifies a fit: its data, its splits, its settings, and the user's own modules."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
    digest.update(repr(model.critic).encode())
    parts = [torch.from_numpy(p) for s in rows.splits for p in (s.train, s.stop, s.report)]
    for tensor in (rows.x, rows.y, rows.groups, *parts, *model.critic.state_dict().values()):
        if tensor is not None:
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def streams(stream: Any, cv: Any, X: Any, Y: Any) -> bool:
    """Whether rows are read as they are needed; stream, cv: the options of the estimator."""
    if stream is not None and not isinstance(stream, bool | np.bool_):
        raise InputError(f"stream={stream!r} must be True, False or None")
    if stream and cv is not None:
        raise InputError("cv splits rows that are held in memory: use folds with stream=True")
    return bool(cv is None and is_large(X, Y) if stream is None else stream)


def hold_rows(
    X: Any,
    Y: Any,
    groups: Any,
    *,
    discrete: tuple[bool | None, bool | None],
    folds: int,
    cv: Any,
    stop_fraction: float,
    seed: int,
    device: torch.device,
    processes: Processes = ALONE,
) -> FitRows:
    """Check, split and encode rows that are all held in memory."""
    raw_x, raw_y, codes = read_pairs(X, Y, groups, discrete)
    splits = make_splits(
        raw_x.rows, folds=folds, cv=cv, groups=codes, stop_fraction=stop_fraction, seed=seed
    )
    encoders = SideEncoder.fit(raw_x, "X"), SideEncoder.fit(raw_y, "Y")
    how: dict[str, Any] = {"codes": codes, "seed": seed, "device": device}
    return FitRows(encode_rows((raw_x, raw_y), encoders, splits, **how), processes)


def stream_rows(
    X: Any,
    Y: Any,
    groups: Any,
    *,
    discrete: tuple[bool | None, bool | None],
    folds: int,
    stop_fraction: float,
    seed: int,
    device: torch.device,
    progress: Progress,
    processes: Processes = ALONE,
) -> StreamedFitRows:
    """One pass over the rows: everything a fit needs to know before it can build a model.

    processes: that share the reading.
    """
    warn_of_other_order(X, Y)
    codes = group_codes(groups)
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
    return StreamedFitRows(
        kept,
        processes,
        pairs=pairs,
        plan=plan,
        moments=(found.x, found.y),
        copy_count=found.copies,
    )


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
