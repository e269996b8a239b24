"""Rows as an outside model takes them: neither scaled nor told apart from categories."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from pointdep.assembly import PairedRows
from pointdep.data.groups import group_codes
from pointdep.data.sides import (
    RawSide,
    SideEncoder,
    as_side,
    require_same_length,
    warn_of_other_order,
)
from pointdep.errors import InputError
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference.checks import FEWEST_ROWS


class RowKind(NamedTuple):
    """What a row of one side is: its shape, as (3, 32, 32), and whether it holds whole numbers."""

    shape: tuple[int, ...]
    whole: bool


def row_kind(values: Any) -> RowKind:
    """Of rows (n,) or (n, ...)."""
    shape = tuple(int(size) for size in np.shape(values)[1:])
    dtype = str(getattr(values, "dtype", ""))
    return RowKind(shape or (1,), dtype.removeprefix("torch.").startswith(("int", "uint")))


def flat(values: Any, kind: RowKind, side: str) -> Any:
    """Rows of more than two dimensions as (n, d); others as they are."""
    shape = tuple(getattr(values, "shape", ()))
    if len(shape) <= 2:
        return values
    if shape[1:] != kind.shape:
        raise InputError(f"{side} has rows of shape {shape[1:]}, calibrated were {kind.shape}")
    return values.reshape(shape[0], -1)


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
    codes = group_codes(groups)
    require_same_length(raw_x, raw_y, codes)
    rows = raw_x.rows
    if rows < FEWEST_ROWS:
        raise InputError(
            f"{rows} pairs are too few to calibrate by: give at least {FEWEST_ROWS}, and thousands "
            "where the mutual information is many nats"
        )
    splits = [
        Split(np.sort(np.concatenate([s.train, s.stop])), s.stop[:0], s.report)
        for s in make_splits(rows, folds=folds, groups=codes, seed=seed)
    ]
    encoder_x, encoder_y = _as_they_are(raw_x, "X"), _as_they_are(raw_y, "Y")
    return PairedRows(
        x=torch.from_numpy(encoder_x.encode(raw_x)).to(device),
        y=torch.from_numpy(encoder_y.encode(raw_y)).to(device),
        encoder_x=encoder_x,
        encoder_y=encoder_y,
        splits=splits,
        codes=codes,
        seed=seed,
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
