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

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import RankMap
from pointdep.data import sides
from pointdep.data.encoder import EncodedRows
from pointdep.data.raw import group_codes
from pointdep.data.row_source import ColumnMoments, RowSource
from pointdep.data.sides import RawSide, SideEncoder
from pointdep.data.stored_pairs import PairSource
from pointdep.errors import Flag, InputError
from pointdep.estimators.base import fit_encoders, left_out_rows, read_pairs, without_gaps
from pointdep.fitting import streamed_rows
from pointdep.fitting.batches import SplitRows, TrainingOptions
from pointdep.fitting.closed_form import WIDEST, plain_sides
from pointdep.fitting.data_flags import CopyCount, duplicate_flags, shared_column
from pointdep.fitting.engine import is_lean
from pointdep.fitting.fold_plan import FoldPlan, make_plan
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress
from pointdep.fitting.sharing import Sharing
from pointdep.fitting.splits import Split, curve_splits, make_splits
from pointdep.fitting.streamed_batches import StreamedBatches
from pointdep.fitting.streamed_rows import StreamedRows, StreamedSide
from pointdep.inference.out_of_fold import Kept, OutOfFold, out_of_fold, streamed_out_of_fold

IN_MEMORY = 1 << 27
"""Numbers in the rows of both sides up to which a fit holds them all."""

LARGEST_BATCH = 1024
"""Rows per step of streamed rows: there are rows enough for steps enough."""

_KEPT_ROWS, _KEPT_NUMBERS = 1 << 17, 1 << 26
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
        encoders = self.encoder_x, self.encoder_y
        if (self.x.shape[1], self.y.shape[1]) != tuple(encoder.dim for encoder in encoders):
            return ""  # features, which have no names
        return shared_column(self.x, self.y, encoders)

    @property
    def parts(self) -> Kept:
        """x, y, splits and groups."""
        return self.x, self.y, self.splits, self.groups


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
    sides_of = zip(encoders, raw, strict=True)
    x, y = (torch.from_numpy(encoder.encode(side)).to(device) for encoder, side in sides_of)
    digests = sides.side_digest(raw[0]), sides.side_digest(raw[1])
    return PairedRows(
        x, y, splits, codes, seed, encoder_x=encoders[0], encoder_y=encoders[1], digests=digests
    )


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit, and each step of it that depends on how they are stored.

    This class is of rows that are all in memory; `StreamedFitRows` answers the same calls for rows
    that are read as they are needed. paired: the rows in memory, all of them here, a sample there.
    processes: that fit together. given: rows of the data, if some of them were dropped. left_out:
    rows that could not be read, and why.
    """

    paired: PairedRows
    processes: Processes = ALONE
    given: int = 0
    left_out: Mapping[int, str] = field(default_factory=dict)
    largest_batch: ClassVar[int] = 256
    """Rows per step, where they are left to the estimator."""

    @property
    def count(self) -> int:
        """All rows of the data."""
        return len(self.paired.x)

    @property
    def codes(self) -> NDArray[np.int64] | None:
        """(count,) group of each row, or None."""
        return self.paired.codes

    def smallest_training(self) -> int:
        """Rows that the replica with the fewest trains on."""
        return min(len(split.train) for split in self.paired.splits)

    def prepare(self, model: RatioModel) -> FitRows:
        """Fit the maps that all replicas share, each on its own side alone, and apply them."""
        return replace(self, paired=prepare(model, self.paired))

    def copies(self) -> list[Flag]:
        """The flag of pairs that occur more than once, or none."""
        return duplicate_flags(self.paired.x, self.paired.y)

    def identity(self) -> dict[str, Any]:
        """What identifies rows that are not in `paired`, for a checkpoint."""
        return {}

    def training_sources(
        self, model: RatioModel, options: TrainingOptions, progress: Progress
    ) -> dict[str, Any]:
        """`canonical` and `batches` of `assembly.train_model`, where `paired` is a sample."""
        del model, options, progress
        return {}

    def curve_splits(self, least: int) -> list[list[Split]]:
        """Splits of the models of a learning curve; least: rows that each must train on."""
        rows = self.paired
        return curve_splits(rows.splits, groups=rows.codes, seed=rows.seed, least=least)

    def out_of_fold(self, model: RatioModel, progress: Progress, smaller: Any = ()) -> OutOfFold:
        """PMI of every row, by replicas that did not train on it; smaller: of a learning curve."""
        del progress  # seconds
        rows = self.paired
        how: dict[str, Any] = {"seed": rows.seed, "groups": rows.groups, "smaller": smaller}
        found = self.processes.first(lambda: out_of_fold(model, *rows.parts[:3], **how))
        if rows.numbers is None:
            return found
        pmi = np.full(self.given, np.nan, dtype=found.pmi.dtype)  # of dropped rows too
        pmi[rows.numbers] = found.pmi
        return replace(found, pmi=pmi)

    def kept(self) -> FitRows:
        """The same after the fit: for one process, without memory of a device."""
        on_cpu = self.paired.to(torch.device("cpu"))
        return FitRows(on_cpu, given=self.given, left_out=self.left_out)


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
    largest_batch: ClassVar[int] = LARGEST_BATCH

    @property
    def count(self) -> int:
        return self.pairs.rows

    @property
    def codes(self) -> NDArray[np.int64] | None:
        return self.plan.codes

    @property
    def mapped(self) -> StreamedRows:
        """All rows as they are read, once `prepare` was called."""
        assert self.stream is not None
        return self.stream

    def smallest_training(self) -> int:
        return min(self.plan.training_rows())

    def prepare(self, model: RatioModel) -> StreamedFitRows:
        rows, (x, y) = self.paired, (self.pairs.x, self.pairs.y)
        of_x = _streamed_side(x, rows.encoder_x, model.x_front, rows.x.device)
        of_y = _streamed_side(y, rows.encoder_y, model.y_front, rows.x.device)
        extremes = None
        if len(rows.x) < self.count:
            low_and_high = [np.stack([moments.low, moments.high]) for moments in self.moments]
            extremes = [
                side.encoded(streamed_rows.as_tensor(values))
                for side, values in zip((of_x, of_y), low_and_high, strict=True)
            ]
        stream = StreamedRows(self.pairs, of_x, of_y, rows.seed, self.processes)
        return replace(self, paired=prepare(model, rows, extremes), stream=stream)

    def copies(self) -> list[Flag]:
        return self.copy_count.flags()

    def identity(self) -> dict[str, Any]:
        said: dict[str, Any] = {"stored": [self.count, int(self.copy_count.digest)]}
        if self.codes is not None:
            said["groups"] = hashlib.sha256(self.codes.tobytes()).hexdigest()
        if self.processes.several:
            said["processes"] = self.processes.size  # on which the batches depend
        return said

    def training_sources(
        self, model: RatioModel, options: TrainingOptions, progress: Progress
    ) -> dict[str, Any]:
        canonical = None
        if model.critic.has_closed_form:
            canonical = streamed_rows.canonical_of_replicas(self.mapped, self.plan, progress)
        return {"canonical": canonical, "batches": self.batches(model, options, progress)}

    def batches(
        self, model: RatioModel, options: TrainingOptions, progress: Progress
    ) -> StreamedBatches:
        how: dict[str, Any] = {"lean": is_lean(model, options.batch_size, options.block)}
        how["sharing"] = Sharing(self.processes, model.critic) if self.processes.several else None
        return StreamedBatches(self.mapped, self.plan, options, progress=progress, **how)

    def curve_splits(self, least: int) -> list[list[Split]]:
        """None: rows that are streamed are many, and each model reads them all."""
        del least
        return []

    def out_of_fold(self, model: RatioModel, progress: Progress, smaller: Any = ()) -> OutOfFold:
        del smaller  # there is no curve
        kept = self.paired.parts
        return streamed_out_of_fold(model, self.mapped, self.plan, kept, progress=progress)

    def kept(self) -> StreamedFitRows:
        read = self.mapped
        alone = StreamedRows(read.pairs, read.x, read.y, read.seed, keep=False)
        on_cpu = self.paired.to(torch.device("cpu"))
        return replace(self, paired=on_cpu, processes=ALONE, stream=alone)


def prepare(
    model: RatioModel, rows: PairedRows, extremes: Sequence[Tensor] | None = None
) -> PairedRows:
    """Fit the maps that all replicas share, each on its own side alone, and apply them.

    extremes: the lowest and highest values of each side, where the rows are a sample.
    """
    model.to(rows.x.device)
    fronts, plain = (model.x_front, model.y_front), []
    narrow = max(rows.x.shape[1], rows.y.shape[1]) <= WIDEST
    for number, (front, values, encoder) in enumerate(
        zip(fronts, (rows.x, rows.y), (rows.encoder_x, rows.encoder_y), strict=True)
    ):
        if isinstance(front, RankMap):
            more = values[:0] if extremes is None else extremes[number].to(values.device)
            seen, numeric = torch.cat([values, more]), torch.from_numpy(encoder.numeric_mask)
            front.fit(seen, numeric)
            if narrow:  # of many columns the analyses would take long
                plain.append(copy.deepcopy(front).fit_plain(seen, numeric))
    x, y = model.prepare(rows.x, rows.y)
    ranked = replace(rows, x=x, y=y)
    if not plain:
        return ranked
    x, y = (front(values) for front, values in zip(plain, (rows.x, rows.y), strict=True))
    chosen = plain_sides(ranked, replace(rows, x=x, y=y))
    for side, front, other in zip(chosen, fronts, plain, strict=True):
        if side:
            front.load_state_dict(other.state_dict())
    return replace(rows, x=x if chosen[0] else ranked.x, y=y if chosen[1] else ranked.y)


def _streamed_side(
    source: RowSource, encoder: SideEncoder, front: torch.nn.Module, device: torch.device
) -> StreamedSide:
    own = None if isinstance(source, EncodedRows) else encoder
    return StreamedSide(source, own, front, device)


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
    missing: str,
    seed: int,
    device: torch.device,
    processes: Processes = ALONE,
    **how: Any,
) -> FitRows:
    """Check, split and encode rows that are all held in memory; how: `make_splits` splits them."""
    raw_x, raw_y, codes = read_pairs(X, Y, groups, discrete, missing)
    given, left_out = raw_x.rows, left_out_rows(raw_x, raw_y)
    raw_x, raw_y, codes, kept = without_gaps(raw_x, raw_y, codes, missing)
    splits = make_splits(raw_x.rows, groups=codes, seed=seed, **how)
    of_x, of_y = fit_encoders(raw_x, raw_y, missing)
    rows = encode_rows((raw_x, raw_y), (of_x, of_y), splits, codes=codes, seed=seed, device=device)
    return FitRows(replace(rows, numbers=kept), processes, given, left_out)


def stream_rows(
    X: Any,
    Y: Any,
    groups: Any,
    *,
    discrete: tuple[bool | None, bool | None],
    missing: str,
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
    sides.warn_of_other_order(X, Y)
    codes = group_codes(groups)
    sources: list[RowSource] = []
    encoders: list[SideEncoder | None] = []
    for values, name, flag in zip((X, Y), "XY", discrete, strict=True):
        side = sides.as_source(values, name, discrete=flag, missing=missing)
        encoder = None
        if isinstance(side, RawSide):
            if missing == "drop" and side.gaps().any():
                raise InputError(
                    f"{name} has missing values, and rows that are streamed are all "
                    "used: missing='indicator', or drop these rows first"
                )
            if side.faults:
                raise InputError(
                    f"{side.faults[0].message}: rows that are streamed are all used: leave out "
                    "stream, or these rows"
                )
            encoder = SideEncoder.fit(side, name, missing)
            side = EncodedRows(side, encoder)
        sources.append(side)
        encoders.append(encoder)
    pairs = PairSource(*sources)
    if codes is not None and len(codes) != pairs.rows:
        raise InputError(f"groups has {len(codes)} rows but X and Y have {pairs.rows}")
    how: dict[str, Any] = {"folds": folds, "stop_fraction": stop_fraction}
    how["most_stop"] = min(_STOP_ROWS, max(64, _STOP_NUMBERS // (pairs.width * max(1, folds))))
    how["most_kept"] = min(_KEPT_ROWS, max(1024, _KEPT_NUMBERS // pairs.width))
    plan = make_plan(pairs.rows, codes=codes, seed=seed, **how)
    found = streamed_rows.survey(pairs, plan, progress, device, processes)
    both = (
        encoders[0] or SideEncoder.of_numbers(pairs.x, "X", found.x, found.kept_x),
        encoders[1] or SideEncoder.of_numbers(pairs.y, "Y", found.y, found.kept_y),
    )
    x, y = (
        _streamed_side(source, encoder, torch.nn.Identity(), torch.device("cpu")).tensor(values)
        for source, encoder, values in zip(sources, both, (found.kept_x, found.kept_y), strict=True)
    )
    own = None if codes is None else codes[plan.kept]
    how = {"encoder_x": both[0], "encoder_y": both[1], "numbers": plan.kept}
    kept = PairedRows(x, y, plan.splits(), own, seed, **how).to(device)
    moments = found.x, found.y
    return StreamedFitRows(
        kept, processes, pairs=pairs, plan=plan, moments=moments, copy_count=found.copies
    )
