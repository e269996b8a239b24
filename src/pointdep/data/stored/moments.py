"""Mean, spread and extremes of columns from one pass, whatever the pieces."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pointdep.data.raw import Array, column_label
from pointdep.data.stored.base import RowSource
from pointdep.errors import InputError

_SMALLEST = 1e-150  # deviations whose squares are still exact


class ColumnMoments:
    """Of columns seen piece by piece; two of them can be merged (Chan, Golub and LeVeque, 1979).

    mean, squares (of deviations from the mean), low, high: (width,) float64.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean, self.squares = np.zeros(width), np.zeros(width)
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)

    def add(self, rows: Tensor) -> None:
        """rows: (n, width) float64, on any device."""
        piece = ColumnMoments(rows.shape[1])
        mean = rows.mean(0)
        found = mean, (rows - mean).square().sum(0), rows.amin(0), rows.amax(0)
        piece.mean, piece.squares, piece.low, piece.high = (part.cpu().numpy() for part in found)
        piece.count = len(rows)
        self.merge(piece)

    def merge(self, other: ColumnMoments) -> None:
        """Take in what another has seen."""
        count = self.count + other.count
        apart = other.mean - self.mean
        with np.errstate(over="ignore", invalid="ignore"):
            self.squares = (
                self.squares + other.squares + np.square(apart) * (self.count * other.count / count)
            )
        self.mean = self.mean + apart * (other.count / count)
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        self.count = count

    def scale(self) -> Array:
        """(width,) the standard deviation, 0 for columns of one value.

        Of values so small or large that their squares are no numbers it is half their range.
        """
        deviation = np.sqrt(self.squares / max(self.count, 1))
        known = np.isfinite(deviation) & (deviation > _SMALLEST)
        with np.errstate(invalid="ignore"):
            return np.where(known, deviation, self.high / 2 - self.low / 2)


def require_finite_piece(rows: Tensor, source: RowSource, side: str, first: int) -> None:
    """InputError naming column and row, of rows: (n, width) from this row on, with NaN or inf."""
    if bool(torch.isfinite(rows.sum())) or bool(torch.isfinite(rows).all()):
        return
    row, column = torch.nonzero(~torch.isfinite(rows))[0].tolist()
    what = "NaN" if bool(rows[row, column].isnan()) else "infinity"
    raise InputError(
        f"{column_label(side, source.names[column])} holds {what} in "
        f"{source.whereabouts(first + row)}: drop such rows from both sides or fill the values in"
    )
