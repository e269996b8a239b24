"""How the answer grows with the rows: the same fit on a quarter, a half and all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import MEANINGS, Flag
from pointdep.fitting.splits import Split
from pointdep.inference.scoring import score_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pointdep.inference.mutual_information import MIEstimate


@dataclass(frozen=True)
class LearningCurve:
    """Mean log r of rows that the models did not see, for models of growing parts of the rows.

    Attributes
    ----------
    rows : tuple of int
        Rows that each part has, ascending; the last is all of them.
    mean : tuple of float
        Mean log r in nats, before any correction for the bias of fitting.
    stderr : tuple of float
        Standard error of the difference from the last mean; for the last, of that mean itself.
    """

    rows: tuple[int, ...]
    mean: tuple[float, ...]
    stderr: tuple[float, ...]

    @property
    def rise(self) -> tuple[float, float]:
        """What the last doubling of the rows has added, and its standard error; 0, inf of none."""
        if len(self.rows) < 2:
            return 0.0, math.inf
        return self.mean[-1] - self.mean[-2], self.stderr[-2]

    @property
    def earlier(self) -> float | None:
        """What the doubling before that has added; None where it is not known."""
        return self.mean[-2] - self.mean[-3] if len(self.rows) > 2 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {name: list(values) for name, values in asdict(self).items()}

    def __str__(self) -> str:
        return f"held-out mean: {self.in_words()}"

    def in_words(self, unit: str = "nats") -> str:
        """The means and the rows that they come from, in one line; unit: or "bits"."""
        scale = math.log(2.0) if unit == "bits" else 1.0
        first, *others = (
            (f"{round(mean / scale, 3) + 0.0:.3f}", f"{rows:,}")
            for mean, rows in zip(self.mean, self.rows, strict=True)
        )
        told = (f"{value} from {rows}" for value, rows in others)
        return ", ".join([f"{first[0]} {unit} from {first[1]} rows", *told])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The means with two standard errors of what they lack, against the rows.

        An earlier point is compared with the last one, row by row: its bar is the error of the
        distance between the two.
        """
        from pointdep.display.plots import plot_mi_against_n

        both = zip(self.mean, self.stderr, strict=True)
        intervals = [(mean - 2 * error, mean + 2 * error) for mean, error in both]
        told = {"what": "held-out mean of log r in nats", "name": "mean, with two standard errors"}
        told["band"] = "two standard errors of the last mean"
        return plot_mi_against_n(self.rows, self.mean, intervals, ax=ax, **told)


# A rise that the correction for fitting and its doubt do not cover; set on the tuning half of the
# further tasks (benchmarks/further.py).
_CLEAR, _LEAST_RISE, _LEAST_SHARE = 2.0, 0.03, 0.06


def rise_flags(found: MIEstimate) -> list[Flag]:
    """Whether the last doubling of the rows has added so much that the next may add more."""
    if found.curve is None or found.estimates != "mutual information":
        return []
    rise, stderr = found.curve.rise
    if not rise > max(_CLEAR * stderr, _LEAST_RISE, _LEAST_SHARE * found.curve.mean[-1]):
        return []
    (*_, half, rows), (*_, before, now) = found.curve.rows, found.curve.mean
    message = (
        f"{MEANINGS['rises_with_rows']} ({now:.2f} nats of held-out rows at {rows:,} rows, "
        f"{before:.2f} at {half:,}: more rows would find more)"
    )
    return [Flag("rises_with_rows", (), message)]


def learning_curve(
    parts: Sequence[tuple[RatioModel, Sequence[Split]]],
    x: Tensor,
    y: Tensor,
    values: NDArray[np.float64],
    *,
    shares: Sequence[float],
    stderr: float,
    codes: NDArray[np.int64] | None = None,
) -> LearningCurve:
    """The curve that ends in values (n,), log r of each row by a model of all rows, NaN if unknown.

    parts: the models of each share of the rows, one replica per split. Each is compared with
    `values` on the rows it did not see, row by row, which leaves the spread of the rows out.
    stderr: of the mean of values; codes: (n,) group of each row, or None.
    """
    known = ~np.isnan(values)
    last = float(values[known].mean())
    rows, means, errors = [], [], []
    for share, (model, splits) in zip(shares, parts, strict=True):
        apart, ids, each = [], [], []
        for replica, split in enumerate(splits):
            report = split.report[known[split.report]]
            index = torch.from_numpy(report).to(x.device)
            scores = score_pairs(model.select([replica]), x[index], y[index])
            apart.append(values[report] - scores.double().numpy())
            ids.append(report if codes is None else codes[report])
            each.append(float(apart[-1].mean()))
        # What differs between replicas of one size is the luck of their rows and initial weights.
        luck = float(np.std(each, ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else 0.0
        rows.append(round(share * len(values)))
        means.append(last - float(np.mean(each)))
        errors.append(math.hypot(_error(np.concatenate(apart), np.concatenate(ids)), luck))
    return LearningCurve((*rows, len(values)), (*means, last), (*errors, stderr))


def _error(values: NDArray[np.float64], ids: NDArray[np.int64]) -> float:
    """The standard error of the mean of values, those of one id being one draw."""
    sums = np.bincount(np.unique(ids, return_inverse=True)[1], weights=values - values.mean())
    return float(np.sqrt(np.square(sums).sum()) / len(values))
