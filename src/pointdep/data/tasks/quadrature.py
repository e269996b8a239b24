"""Mutual information in the plane, by the trapezoidal rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pointdep.data.raw import Array

_STEP = 0.05


def plane_expectation(
    log_density: Callable[[Array, Array], Array],
    values: Callable[[Array, Array], Array],
    reach: float,
) -> float:
    """E[values] under a density of two numbers, both functions of (n, 1), (n, 1) -> (n,).

    For smooth densities that vanish before `reach` the trapezoidal rule converges faster than any
    power of its step: with standard deviations of 0.3 or more the error is below 1e-9.
    """
    axis = np.arange(-reach, reach + _STEP / 2, _STEP)
    x, y = (grid.reshape(-1, 1) for grid in np.meshgrid(axis, axis, indexing="ij"))
    density = np.exp(log_density(x, y))
    # Where the density underflows, the values may be infinite; such points weigh nothing.
    weighed = density > 0
    weighted = density[weighed] * values(x[weighed], y[weighed])
    return float(weighted.sum() * _STEP**2)
