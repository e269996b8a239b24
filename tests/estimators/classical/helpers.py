"""Data whose answer is known, and fits that ask for little."""

from typing import Any

import numpy as np
from scipy.stats import multivariate_normal

from pointdep import ClassicalDependency

TABLE = np.array([[0.2, 0.05, 0.05], [0.1, 0.1, 0.1], [0.02, 0.08, 0.3]])


def gaussians(rows: int, correlations=(0.8, 0.5), *, seed: int = 0):
    """x, y: (rows, k), and their PMI by scipy's densities."""
    random, rho = np.random.default_rng(seed), np.asarray(correlations, dtype=float)
    x, noise = random.standard_normal((2, rows, rho.size))
    y, pmi = rho * x + np.sqrt(1 - rho**2) * noise, np.zeros(rows)
    for k, r in enumerate(rho):
        both = np.column_stack([x[:, k], y[:, k]])
        pmi += multivariate_normal([0, 0], [[1, r], [r, 1]]).logpdf(both)
        pmi -= multivariate_normal(0, 1).logpdf(x[:, k]) + multivariate_normal(0, 1).logpdf(y[:, k])
    return x, y, pmi


def gaussian_mi(correlations=(0.8, 0.5)) -> float:
    return float(-0.5 * np.log1p(-np.square(correlations)).sum())


def table_rows(rows: int, *, seed: int = 0):
    """Integer x, y: (rows,) drawn from TABLE."""
    cells = np.random.default_rng(seed).choice(TABLE.size, size=rows, p=TABLE.ravel())
    return cells // TABLE.shape[1], cells % TABLE.shape[1]


def labelled(rows: int, *, seed: int = 0):
    """Labels (rows,), values (rows, 2) around a centre per label, and their PMI."""
    random = np.random.default_rng(seed)
    names, centres, shares = np.array(["a", "b", "c"]), [(0, 0), (2, 0), (0, 2)], [0.5, 0.3, 0.2]
    codes = random.choice(3, size=rows, p=shares)
    values = np.array(centres)[codes] + random.standard_normal((rows, 2))
    density = np.stack([multivariate_normal(c, np.eye(2)).pdf(values) for c in centres], axis=1)
    return names[codes], values, np.log(density[np.arange(rows), codes] / (density @ shares))


def fit(method: str, *data: Any, groups: Any = None, **options: Any) -> ClassicalDependency:
    """Quietly, with the same numbers each time; other options than the estimator's go to it."""
    names = ("folds", "discrete_x", "discrete_y", "missing")
    own = {name: options.pop(name) for name in names if name in options}
    model = ClassicalDependency(
        method, method_options=options or None, random_state=0, progress=False, **own
    )
    return model.fit(*data, groups=groups)
