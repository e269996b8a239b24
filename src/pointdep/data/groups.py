"""Group ids: which rows are not independent draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError


def group_codes(groups: Any) -> NDArray[np.int64] | None:
    """(n,) whole numbers, equal where the given ids are equal; None stays None."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.ndim != 1:
        raise InputError(f"groups has shape {values.shape}: give one value per row, (n,)")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError("groups holds NaN: give every row a group")
    if values.dtype.kind == "O" and not all(isinstance(v, str | int | np.integer) for v in values):
        raise InputError("groups holds Python objects: give every row a number or a string")
    if values.dtype.kind == "O":
        values = values.astype(str)
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
