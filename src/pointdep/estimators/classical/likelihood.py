"""Likelihoods: PMI = log p(y|x) - log p(y), the densities being mixtures of Gaussians."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pointdep.errors import InputError
from pointdep.estimators.classical.prepared import Array, Codes, PairModel, Side

# A mixture of Gaussians, any part of which has an exact density.

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


Fit = Callable[[Array], Mixture]
"""From values, (n, d), to their mixture."""


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
        how = {"n_init": 1 if count == 1 else _STARTS, "max_iter": 300, "random_state": seed}
        made = GaussianMixture(min(count, most), reg_covar=ridge, **how).fit(values)
        score = made.bic(values)
        failures = 0 if score < least else failures + 1
        if score < least:
            best, least = made, score
        if failures == _PATIENCE:
            break
    assert best is not None
    return Mixture(best.weights_, best.means_, best.covariances_)


@dataclass(frozen=True, eq=False)
class JointMixture(PairModel):
    """A mixture of Gaussians for (x, y); its marginals are mixtures too, and exact.

    dx: columns of x, the first of the mixture's.
    log p(y|x) - log p(y) = log p(x, y) - log p(x) - log p(y).
    """

    mixture: Mixture
    dx: int

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log r of each pair."""
        alone_x, alone_y = self._alone(x.values, y.values)
        return self.mixture.log_density(np.hstack([x.values, y.values])) - alone_x - alone_y

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y: only the cross term joins the two sides."""
        one, other = slice(None, self.dx), slice(self.dx, None)
        precision = np.linalg.inv(self.mixture.covariances)
        centred_x = x.values - self.mixture.means[:, None, one]
        centred_y = y.values - self.mixture.means[:, None, other]
        own_x = (centred_x @ precision[:, one, one] * centred_x).sum(-1)
        own_y = (centred_y @ precision[:, other, other] * centred_y).sum(-1)
        cross = (centred_x @ precision[:, one, other]) @ centred_y.transpose(0, 2, 1)
        joint = -0.5 * (own_x[:, :, None] + own_y[:, None, :]) - cross
        joint += log_constant(self.mixture.covariances)[:, None, None]
        alone_x, alone_y = self._alone(x.values, y.values)
        return self.mixture.mix(joint) - alone_x[:, None] - alone_y[None, :]

    def _alone(self, x: Array, y: Array) -> tuple[Array, Array]:
        """(n,) log p(x) and (m,) log p(y)."""
        density = self.mixture.log_density
        return density(x, slice(None, self.dx)), density(y, slice(self.dx, None))


@dataclass(frozen=True, eq=False)
class LabelMixtures(PairModel):
    """A mixture of Gaussians per label: PMI = log p(v|label) - log sum_l p(l) p(v|l).

    densities: one per label; None for a label that did not come, about which nothing is known: its
        PMI is 0. shares: (labels,) p(label).
    """

    densities: tuple[Mixture | None, ...]
    shares: Array
    labels_first: bool

    def pairs(self, x: Side, y: Side) -> Array:
        """(n,) log r of each pair."""
        labels, values = self._sides(x, y)
        return self._table(values)[np.arange(len(values)), labels]

    def matrix(self, x: Side, y: Side) -> Array:
        """(n, m) log r of every x with every y."""
        labels, values = self._sides(x, y)
        table = self._table(values)[:, labels]
        return table.T if self.labels_first else table

    def _sides(self, x: Side, y: Side) -> tuple[Codes, Array]:
        labels, other = (x, y) if self.labels_first else (y, x)
        assert labels.codes is not None
        return labels.codes, other.values

    def _table(self, values: Array) -> Array:
        """(n, d) -> (n, labels) log r."""
        table = np.zeros((len(values), len(self.densities)))
        came = np.array([density is not None for density in self.densities])
        for label, density in enumerate(self.densities):
            if density is not None:
                table[:, label] = density.log_density(values)
        marginal = np.logaddexp.reduce(table[:, came] + np.log(self.shares[came]), axis=1)
        table[:, came] -= marginal[:, None]
        return table


def fit(x: Side, y: Side, *, seed: int, ridge: float, **options: Any) -> PairModel:
    """One mixture for (x, y), or where one side is labels a mixture of the other for each label.

    options: `components` and `max_components`, of `fit_mixture`.
    """
    mixture: Fit = partial(fit_mixture, seed=seed, ridge=ridge, **options)
    if x.codes is not None:
        return _fit_labels(x, y.values, mixture, ridge, labels_first=True)
    if y.codes is not None:
        return _fit_labels(y, x.values, mixture, ridge, labels_first=False)
    joint = np.hstack([x.values, y.values])
    _require_rows(*joint.shape)
    return JointMixture(mixture(joint), x.values.shape[1])


def _fit_labels(
    labels: Side, values: Array, mixture: Fit, ridge: float, *, labels_first: bool
) -> LabelMixtures:
    """A label with too few rows for a covariance of its own takes the one within all labels."""
    assert labels.codes is not None
    _require_rows(*values.shape)
    width = values.shape[1]
    rows_of = [np.flatnonzero(labels.codes == label) for label in range(labels.outcomes)]
    within = np.concatenate([values[rows] - values[rows].mean(0) for rows in rows_of if len(rows)])
    pooled = within.T @ within / len(within) + ridge * np.eye(width)
    densities: list[Mixture | None] = []
    for rows in rows_of:
        if len(rows) == 0:
            densities.append(None)
        elif len(rows) < 2 * (width + 1):
            densities.append(Mixture(np.ones(1), values[rows].mean(0)[None], pooled[None]))
        else:
            densities.append(mixture(values[rows]))
    shares = np.array([len(rows) for rows in rows_of]) / len(values)
    return LabelMixtures(tuple(densities), shares, labels_first)


def _require_rows(rows: int, width: int) -> None:
    if rows < width + 2:
        raise InputError(f"method 'likelihood' has {rows} rows for {width} columns: give more rows")
