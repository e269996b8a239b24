"""Y and Z, each as the user gave it, side by side as one table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pointdep.data.sides import RawSide, SideEncoder, as_side, warn_of_other_order
from pointdep.errors import DataWarning, InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Conditions:
    """How Y and Z are read, the same way in fit and after: the columns that fit has seen."""

    y: SideEncoder
    z: SideEncoder

    @classmethod
    def fit(cls, raw_y: RawSide, raw_z: RawSide) -> Conditions:
        """Learn the columns; warns of constant ones, and refuses what cannot be learned from."""
        return cls(SideEncoder.fit(raw_y, "Y"), SideEncoder.fit(raw_z, "Z"))

    @property
    def discrete_both(self) -> bool | None:
        """What `discrete_y` is for Y and Z together: all categories, all numbers, or by type."""
        return self.y.discrete if self.y.discrete is self.z.discrete else None

    def read(self, Y: Any, Z: Any) -> tuple[RawSide, RawSide]:
        """New rows of both sides, checked."""
        found = []
        for values, encoder in ((Y, self.y), (Z, self.z)):
            raw = as_side(values, encoder.side, discrete=encoder.discrete)
            # For its errors alone: the models take Z, or Y and Z together, for their Y, and would
            # name the wrong side.
            encoder.encode(raw)
            found.append(raw)
        return found[0], found[1]

    def tables(self, raw_y: RawSide, raw_z: RawSide) -> tuple[pd.DataFrame, pd.DataFrame]:
        """(rows, dy + dz) the columns of Y and Z together, and (rows, dz) those of Z."""
        import pandas as pd

        y, z = _columns(raw_y, self.y), _columns(raw_z, self.z)
        frames = []
        for columns in ((*y, *z), z):
            frame = pd.DataFrame(dict(enumerate(values for _, values in columns)))
            frame.columns = pd.Index([name for name, _ in columns])  # which need not be distinct
            frames.append(frame)
        return frames[0], frames[1]

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to read again, in JSON's types."""
        return {"y": self.y.to_dict(), "z": self.z.to_dict()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Conditions:
        """What to_dict described."""
        return cls(SideEncoder.from_dict(saved["y"]), SideEncoder.from_dict(saved["z"]))


def _columns(raw: RawSide, encoder: SideEncoder) -> tuple[tuple[str, Any], ...]:
    """(name, (rows,) values) of each column, categories declared as such.

    Columns of a table keep the names they had in fit, those of an array are "Y0", "Y1", ...
    """
    return tuple(
        (
            name if encoder.named else f"{encoder.side}{position}",
            _column(raw.column(position), category=raw.category_mask[position]),
        )
        for position, name in enumerate(encoder.names)
    )


def _column(values: Any, *, category: bool) -> Any:
    import pandas as pd

    if category:
        return pd.Categorical(values)
    # Booleans here were declared numbers, and would be read as categories again.
    return values.astype(np.uint8) if values.dtype.kind == "b" else values


def require_same_lengths(**lengths: int) -> None:
    """Row i of X belongs with row i of Y, of Z and of groups."""
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {rows} rows" for name, rows in lengths.items())
        raise InputError(
            f"inconsistent numbers of samples: {listed}; row i of each must describe the same case"
        )


def warn_of_other_orders(X: Any, Y: Any, Z: Any) -> None:
    """Rows belong together by position: one pandas index in two orders is likely a mistake."""
    for name, side in (("Y", Y), ("Z", Z)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            warn_of_other_order(X, side)
        if caught:
            warnings.warn(
                f"X and {name} have the same index in another order, and rows belong together by "
                f"position: align them first, as with {name}.loc[X.index]",
                DataWarning,
                stacklevel=3,
            )
