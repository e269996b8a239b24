"""The calls of a fitted estimator that draw: each takes a matplotlib axis and gives it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from pointdep.core.ratio import RatioModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pointdep.inference.out_of_fold import HeldOut


class ModelPictures:
    """Pictures of an estimator with a fitted model."""

    model_: RatioModel
    oof_pmi_: NDArray[np.float32]
    history_: list[Any]

    if TYPE_CHECKING:

        def pmi(self, X: Any, Y: Any) -> NDArray[np.float32]: ...
        def _held_out(self, X: Any, Y: Any, groups: Any, call: str) -> HeldOut: ...

    def plot_pmi(
        self, X: Any = None, Y: Any = None, *, groups: Any = None, ax: Axes | None = None
    ) -> Axes:
        """Histogram of PMI: of pairs, and of mismatched pairs, which should lie below.

        Without X and Y of the training rows out of fold, otherwise of the given rows.
        """
        from pointdep.plots.histogram import plot_pmi

        check_is_fitted(self, "model_")
        log_ratio, joint, product, _ = self._held_out(X, Y, groups, "plot_pmi").blocks()
        return plot_pmi(log_ratio[joint > 0].numpy(), log_ratio[product > 0].numpy(), ax=ax)

    def plot_training(self, ax: Axes | None = None) -> Axes:
        """The objective on training batches and on held-out rows, by epoch and replica."""
        from pointdep.plots.training import plot_training

        check_is_fitted(self, "model_")
        return plot_training(self.history_, ax)

    def plot_pairs(
        self,
        X: Any = None,
        Y: Any = None,
        *,
        k: int = 10,
        labels: Sequence[Any] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """The k pairs of highest and the k of lowest PMI, as bars.

        Without X and Y of the training rows out of fold, otherwise of the given rows. labels: what
        to call the rows, one a row; their numbers where it is None.
        """
        from pointdep.plots.pairs import plot_pairs

        check_is_fitted(self, "model_")
        pmi = self.oof_pmi_ if X is None and Y is None else self.pmi(X, Y)
        return plot_pairs(pmi, k=k, labels=labels, ax=ax)
