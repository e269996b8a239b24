"""Runs of Figure 1 whose bias and spread are known, because they are made up."""

import numpy as np

from pointdep.experiments.figure1 import Curves, Figure1

# Bias and standard deviation at MI 2, 4, 6, 8, 10, much as the authors' code has them.
REFERENCE = {
    "cpc": ((-0.16, -0.70, -1.83, -3.39, -5.23), (0.15, 0.15, 0.12, 0.07, 0.04)),
    "nwj": ((-0.15, -0.40, -1.00, -2.00, -3.50), (0.25, 0.80, 2.70, 9.00, 30.0)),
    "js": ((-0.20, -0.50, -1.10, -2.40, -4.00), (0.25, 0.80, 2.70, 9.00, 30.0)),
    "dv": ((-0.12, -0.30, -0.70, -1.30, -2.20), (0.22, 0.35, 0.60, 1.00, 1.70)),
    "smile": ((-0.14, -0.20, -0.30, -0.40, -0.50), (0.21, 0.28, 0.37, 0.44, 0.54)),
    "variational": ((-0.14, -0.27, -0.44, -0.70, -0.90), (0.21, 0.28, 0.37, 0.43, 0.53)),
    "pc": ((-0.09, -0.15, -0.27, -0.45, -0.68), (0.18, 0.23, 0.26, 0.27, 0.29)),
    "dm1": ((-0.08, -0.20, -0.52, -1.29, -2.77), (0.18, 0.28, 0.49, 0.89, 2.18)),
    "dm2": ((0.43, 0.34, 0.16, -0.09, -0.17), (0.19, 0.27, 0.36, 0.44, 0.73)),
    "drf": ((-0.31, -0.50, -0.77, -1.10, -1.56), (0.20, 0.24, 0.29, 0.30, 0.31)),
}


def make_curves(shapes=None, **settings):
    """Curves whose second halves have exactly the bias and sd of REFERENCE.

    shapes: other biases and sds, by method or by (method, task), a number a level each.
    settings: of Figure1, with 1000 iterations where it is not said.
    """
    asked = Figure1(**{"iterations": 1000, **settings})
    shapes = {**REFERENCE, **(shapes or {})}
    values = np.empty((asked.iterations, len(asked.cells)))
    for column, cell in enumerate(asked.cells):
        bias, sd = shapes.get((cell.method, cell.task), shapes[cell.method])
        rng = np.random.default_rng(column)
        for level, true in enumerate(asked.levels):
            own, half = np.flatnonzero(asked.level_of() == level), asked.second_half(level)
            noise = rng.uniform(-1, 1, len(half))  # bounded, as CPC is
            noise = (noise - noise.mean()) / (noise.std() or 1.0)
            values[own, column] = true + bias[level]
            values[half, column] += sd[level] * noise
    return with_values(asked, values)


def with_values(settings, values):
    """Curves of these (iterations, cells) values."""
    return Curves(settings, values.astype(np.float32), 1.5, 40.0, "cpu", "float32")


def blow_up(curves, method, task="gaussian", *, after=0.0, value=np.nan, seeds=None):
    """The same with a curve that is not finite after a share of the iterations."""
    values, start = curves.values.copy(), int(after * curves.settings.iterations)
    for column, cell in enumerate(curves.cells):
        if (cell.method, cell.task) == (method, task) and (seeds is None or cell.seed in seeds):
            values[start:, column] = value
    return with_values(curves.settings, values)
