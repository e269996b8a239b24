"""The two fits whose difference is taken: alike in everything but the data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from pointdep.core.methods import METHODS, Method, get_method
from pointdep.errors import InputError
from pointdep.estimator import PointwiseDependency
from pointdep.inference.bias import FittingBias
from pointdep.inference.mutual_information import Array, standard_error

JOINT, MARGINAL = "joint", "marginal"
FIT_OF = {JOINT: "X with (Y, Z)", MARGINAL: "X with Z"}
_PROOF = 2.0  # standard errors


def make_parts(
    estimator: PointwiseDependency | None, *, random_state: Any, progress: bool
) -> dict[str, PointwiseDependency]:
    """Two copies of the estimator, not yet fitted, that will split the rows alike."""
    given = PointwiseDependency() if estimator is None else estimator
    if not isinstance(given, PointwiseDependency):
        raise InputError(f"estimator={given!r} must be a PointwiseDependency(...)")
    _require_mean_of_pmi(get_method(given.method, given.method_options))
    if not isinstance(given.critic, str):
        raise InputError(
            "the estimator has a critic of your own, which takes a y of one width, but it is "
            "fitted to (Y, Z) and to Z: name a critic, such as critic='auto'"
        )
    state = given.random_state if random_state is None else random_state
    if given.checkpoint is not None and state is None:
        raise InputError(
            "checkpoint needs a fixed random_state: another seed has nothing to resume"
        )
    shared = {
        # One whole number for both: a generator would go on between the fits.
        "random_state": int(check_random_state(state).randint(2**31 - 1)),
        "cv": SplitOnce(given.cv) if hasattr(given.cv, "split") else given.cv,
        "progress": bool(progress and given.progress),
    }
    parts = {}
    for part in FIT_OF:
        file = given.checkpoint
        checkpoint = None if file is None else Path(f"{file}.{part}")
        parts[part] = clone(given).set_params(**shared, checkpoint=checkpoint)
    return parts


def _require_mean_of_pmi(method: Method) -> None:
    if method.is_mean_of_pmi:
        return
    allowed = [key for key, other in METHODS.items() if other.is_mean_of_pmi]
    raise InputError(
        f"method {method.key!r} does not infer the mean of PMI over rows, so that its difference "
        f"is no conditional mutual information: choose from {', '.join(allowed)}"
    )


class SplitOnce:
    """A splitter that splits once and says the same again: one that shuffles would not."""

    def __init__(self, cv: Any) -> None:
        self.cv = cv
        self.pairs: list[Any] | None = None

    def split(self, X: Any, y: Any = None, groups: Any = None) -> list[Any]:
        """The splits of `cv`, as it gave them first."""
        if self.pairs is None:
            self.pairs = list(self.cv.split(X, y, groups))
        return self.pairs

    def __repr__(self) -> str:
        return repr(self.cv)


def bias_of_difference(
    joint: FittingBias, marginal: FittingBias, values: Array, groups: NDArray[np.int64] | None
) -> tuple[float, float]:
    """What to add to the mean of the differences over unseen rows, and its standard error.

    values: (n,), the differences of the unseen rows. Where they are not above zero beyond chance, y
    tells nothing that z does not, and what the first network learned beyond the second is noise.
    The closed forms are nested, the second having dx dz of the dx (dy + dz) parameters of the
    first: what is wrong with one is wrong with both, and only the excess is in doubt. Two networks
    stop each at their own time, so that their doubts add up as those of independent errors.
    """
    if float(values.mean()) <= _PROOF * standard_error(values, groups):
        joint, marginal = (replace(bias, proven=False) for bias in (joint, marginal))
    excess = FittingBias(
        closed_form=joint.closed_form - marginal.closed_form,
        resolution=math.sqrt(max(joint.resolution**2 - marginal.resolution**2, 0.0)),
    )
    networks = (replace(bias, closed_form=0.0, resolution=0.0) for bias in (joint, marginal))
    doubt = math.hypot(excess.stderr, *(network.stderr for network in networks))
    return joint.correction - marginal.correction, doubt
