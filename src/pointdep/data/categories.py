"""One category column: its values in training, how often each came, and where a value stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pointdep.data.raw import Array, column_label
from pointdep.errors import InputError

# JSON keeps ints, strings, booleans and floats apart, but an empty or edited list would not.
_KINDS: dict[str, type] = {"i": int, "u": int, "U": str, "b": bool, "f": float}


@dataclass(frozen=True, eq=False)
class CategoryColumn:
    """values: (categories,) sorted and distinct; counts: (categories,) rows of each in training."""

    name: str
    values: Array
    counts: Array

    @classmethod
    def count(cls, name: str, column: Array) -> CategoryColumn:
        """The categories of column: (rows,)."""
        values, counts = np.unique(column, return_counts=True)
        return cls(name, values, counts)

    def codes(self, column: Array, side: str) -> Array:
        """(rows,) index into values of each entry of column: (rows,)."""
        label = column_label(side, self.name)
        if (column.dtype.kind == "U") != (self.values.dtype.kind == "U"):
            expected, found = _kind_name(self.values), _kind_name(column)
            raise InputError(
                f"{label} held categories of type {expected} in training but now holds {found}: "
                "give the column as it was in training"
            )
        codes: Array = np.searchsorted(self.values, column)
        codes = np.minimum(codes, self.values.size - 1)
        unseen = self.values[codes] != column
        if unseen.any():
            row = int(unseen.argmax())
            raise InputError(
                f"{label} holds {column[row].item()!r} in row {row}, a category unseen in training "
                f"({int(unseen.sum())} such row(s)): drop these rows, or fit on data that has them"
            )
        return codes

    def to_dict(self) -> dict[str, Any]:
        """The column in JSON's types."""
        return {
            "name": self.name,
            "type": _kind_name(self.values),
            "values": self.values.tolist(),
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> CategoryColumn:
        """The column that to_dict described; InputError when saved is something else."""
        values, counts = list(saved["values"]), list(saved["counts"])
        allowed = {kind.__name__: kind for kind in _KINDS.values()}
        kind = allowed.get(saved["type"])
        if kind is None or not all(type(value) is kind for value in values):
            raise InputError(f"saved categories must all be of the type {saved['type']!r}")
        if not all(type(count) is int and count > 0 for count in counts):
            raise InputError("saved category counts must be positive integers")
        if len(values) != len(counts) or len(values) < 2:
            raise InputError("a saved category column needs two or more values, each with a count")
        if any(not low < high for low, high in pairwise(values)):
            raise InputError("saved categories must be sorted and distinct")
        return cls(str(saved["name"]), np.array(values), np.array(counts, dtype=np.int64))


def _kind_name(values: Array) -> str:
    return _KINDS[values.dtype.kind].__name__
