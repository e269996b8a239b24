"""How good the features of a recipe are while it trains, and at the end."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pointdep.contrastive.evaluation.features import features
from pointdep.contrastive.evaluation.linear import linear_evaluation
from pointdep.contrastive.evaluation.neighbours import knn_accuracy
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError, FitWarning

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_MONITOR_TRAIN, _MONITOR_TEST = 10_000, 2_000  # images that the monitor looks at


def evaluate(
    recipe: Recipe, images: ImageSet, fabric: Fabric, monitor: str, end: bool
) -> dict[str, list[float]]:
    """Nearest neighbours on some images, or a linear classifier on all; at the end both on all."""
    if fabric.global_rank:
        return {}
    linear, whole = end or monitor == "linear", (_MONITOR_TRAIN, _MONITOR_TEST)
    if linear:
        whole = len(images.train), len(images.test)
    recipe.eval()
    try:
        with fabric.autocast():
            train, test = (
                features(recipe.encode, part[:count])
                for part, count in zip((images.train, images.test), whole, strict=True)
            )
    finally:
        recipe.train()
    labels = images.train_labels[: whole[0]], images.test_labels[: whole[1]]
    train, test = (part.reshape(recipe.replicas, -1, part.shape[-1]) for part in (train, test))
    sound = train.isfinite().all((1, 2)) & test.isfinite().all((1, 2))
    if not sound.any():
        raise DivergedError("the features are not finite: lower the learning rate")
    if not sound.all():
        train, test = train[sound], test[sound]
    found = {}
    if end or not linear:
        accuracy = knn_accuracy(train, labels[0], test, labels[1], k=min(20, train.shape[1]))
        found["knn"] = _spread_out(accuracy, sound)
    if linear:
        fitted = linear_evaluation(
            train, labels[0], test, labels[1], scaling=recipe.scaling, C=recipe.regularisation
        )
        _warn_unless_converged(fitted.converged)
        found["linear"] = _spread_out(fitted.accuracy, sound)
    return found


def _warn_unless_converged(converged: NDArray[np.bool_]) -> None:
    if not converged.all():
        warnings.warn(
            f"the linear classifier of {int((~converged).sum())} of {len(converged)} runs did not "
            "converge: its accuracy may be low",
            FitWarning,
            stacklevel=2,
        )


def _spread_out(values: NDArray[np.float64], sound: Tensor) -> list[float]:
    """One value a replica, NaN for those that diverged; values: of the sound ones."""
    whole = np.full(len(sound), np.nan)
    whole[sound.cpu().numpy()] = values
    return [float(value) for value in whole]
