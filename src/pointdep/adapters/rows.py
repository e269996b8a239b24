"""Rows as an outside model takes them: neither scaled nor told apart from categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pointdep.assembly import PairedRows, encode_rows
from pointdep.data.groups import group_codes
from pointdep.data.sides import (
    RawSide,
    SideEncoder,
    as_side,
    require_same_length,
    warn_of_other_order,
)
from pointdep.errors import InputError
from pointdep.fitting.splits import Rows, Split, make_splits
from pointdep.inference.checks import FEWEST_ROWS

_EXACT = 1 << 24  # whole numbers up to here are exact in float32


class RowKind(NamedTuple):
    """A row's shape, as (3, 32, 32), and whether a function is to be given whole numbers."""

    shape: tuple[int, ...]
    whole: bool


def row_kind(values: Any, for_function: bool) -> RowKind:
    """Of rows (n,) or (n, ...)."""
    shape = tuple(int(size) for size in np.shape(values)[1:])
    dtype = str(getattr(values, "dtype", ""))
    whole = dtype.removeprefix("torch.").startswith(("int", "uint"))
    return RowKind(shape or (1,), for_function and whole)


def flat(values: Any, kind: RowKind, side: str) -> Any:
    """Rows of more than two dimensions as (n, d); others as they are."""
    shape = tuple(getattr(values, "shape", ()))
    if len(shape) <= 2:
        return values
    if shape[1:] != kind.shape:
        raise InputError(f"{side} has rows of shape {shape[1:]}, calibrated were {kind.shape}")
    return values.reshape(shape[0], -1)


def require_exact(raw: RawSide, kind: RowKind, side: str) -> None:
    """Refuse whole numbers that would reach a function of the user's rounded."""
    numbers = raw.numeric if kind.whole else None
    if numbers is None or not numbers.size:
        return
    largest = max(int(numbers.max()), -int(numbers.min()))
    if largest > _EXACT:
        raise InputError(
            f"{side} holds {largest}, and whole numbers above {_EXACT} reach a function rounded: "
            "number the rows anew from 0, or give such numbers in two columns"
        )


def fold_of(splits: Sequence[Split], rows: int) -> Rows:
    """(n,): the split that reports each row."""
    fold = np.full(rows, -1, dtype=np.int64)
    for number, split in enumerate(splits):
        fold[split.report] = number
    return fold


def draws(codes: NDArray[np.int64] | None, rows: int) -> int:
    """How many independent draws there are: groups, or rows where each is its own."""
    return rows if codes is None else len(np.unique(codes))


def read_rows(
    X: Any,
    Y: Any,
    groups: Any,
    kinds: tuple[RowKind, RowKind],
    *,
    folds: int,
    seed: int,
    device: torch.device,
) -> PairedRows:
    """Check, split and encode the pairs that are to calibrate."""
    raw_x, raw_y = (
        as_side(flat(values, kind, name), name, discrete=False)
        for values, kind, name in zip((X, Y), kinds, "XY", strict=True)
    )
    warn_of_other_order(X, Y)
    for raw, kind, name in zip((raw_x, raw_y), kinds, "XY", strict=True):
        require_exact(raw, kind, name)
    codes = group_codes(groups)
    require_same_length(raw_x, raw_y, codes)
    splits = [
        Split(np.sort(np.concatenate([s.train, s.stop])), s.stop[:0], s.report)
        for s in make_splits(raw_x.rows, folds=folds, groups=codes, seed=seed)
    ]
    count = draws(codes, raw_x.rows)
    if count < FEWEST_ROWS:
        raise InputError(
            f"{count} {'pairs' if codes is None else 'groups'} are too few to calibrate by: give "
            f"at least {FEWEST_ROWS}, and thousands where the mutual information is many nats"
        )
    return encode_rows(
        (raw_x, raw_y),
        (_as_they_are(raw_x, "X"), _as_they_are(raw_y, "Y")),
        splits,
        codes=codes,
        seed=seed,
        device=device,
    )


def _as_they_are(raw: RawSide, name: str) -> SideEncoder:
    """An encoder that leaves numbers alone."""
    width = raw.width
    return SideEncoder(
        side=name,
        names=raw.names,
        named=raw.named,
        category_mask=(False,) * width,
        numeric_at=tuple(range(width)),
        center=np.zeros(width),
        scale=np.ones(width),
        category_at=(),
        categories=(),
    )
