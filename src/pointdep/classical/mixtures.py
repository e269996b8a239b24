"""A mixture of Gaussians, any part of which has an exact density."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointdep.classical.sides import Array

_WHOLE = slice(None)
_STARTS, _PATIENCE = 3, 2


@dataclass(frozen=True, eq=False)
class Mixture:
    """weights: (c,), means: (c, d), covariances: (c, d, d)."""

    weights: Array
    means: Array
    covariances: Array

    def log_density(self, values: Array, part: slice = _WHOLE) -> Array:
        """(n,) log p of values: (n, columns), those columns of the d that `part` names."""
        covariances = self.covariances[:, part, part]
        centred = values - self.means[:, None, part]
        whitened = np.linalg.solve(np.linalg.cholesky(covariances), centred.transpose(0, 2, 1))
        logs = -0.5 * np.square(whitened).sum(1) + log_constant(covariances)[:, None]
        return self.mix(logs)

    def mix(self, logs: Array) -> Array:
        """(c, ...) log densities of the components -> (...) of the mixture."""
        weights = np.log(self.weights).reshape(-1, *(1,) * (logs.ndim - 1))
        mixed: Array = np.logaddexp.reduce(logs + weights, axis=0)
        return mixed


def log_constant(covariances: Array) -> Array:
    """-1/2 log det(2 pi S) of each of (c, d, d): (c,)."""
    width = covariances.shape[-1]
    constant: Array = -0.5 * (width * np.log(2 * np.pi) + np.linalg.slogdet(covariances)[1])
    return constant


def fit_mixture(
    values: Array, *, seed: int, components: int | None, max_components: int, ridge: float
) -> Mixture:
    """`components` Gaussians, or as many as BIC finds up to `max_components`; values: (n, d).

    Never so many that a component has fewer than 2 (d + 1) rows on average.
    More are tried until BIC has not fallen twice in a row. `ridge` is added to every variance.
    """
    from sklearn.mixture import GaussianMixture

    # A component on hardly more rows than columns collapses onto them.
    most = max(1, len(values) // (2 * (values.shape[1] + 1)))
    tried = range(1, min(most, max_components) + 1) if components is None else [components]
    best, least, failures = None, np.inf, 0
    for count in tried:
        # One start often ends with components across each other; the best of a few seldom does.
        made = GaussianMixture(
            min(count, most),
            reg_covar=ridge,
            max_iter=300,
            n_init=1 if count == 1 else _STARTS,
            random_state=seed,
        ).fit(values)
        score = made.bic(values)
        failures = 0 if score < least else failures + 1
        if score < least:
            best, least = made, score
        if failures == _PATIENCE:
            break
    assert best is not None
    return Mixture(best.weights_, best.means_, best.covariances_)
