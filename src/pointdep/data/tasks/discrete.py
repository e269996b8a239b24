"""Tasks with outcomes: a joint table, a label with a Gaussian, and pairs with many zeros."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from pointdep.data.raw import Array
from pointdep.data.tasks.continuous import Joint, Task, canonical_log_ratio
from pointdep.errors import InputError

# Mutual information in the plane, by the trapezoidal rule.

_STEP = 0.05


OfPairs = Callable[[Array, Array], Array]


def plane_expectation(log_density: OfPairs, values: OfPairs, reach: float) -> float:
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


def discrete_table(rows: int, table: npt.ArrayLike, seed: int = 0) -> Task:
    """Integer x, y: (rows,) drawn from a joint probability table: (k, l); cells may be zero."""
    joint = outcomes(table)
    shape = np.shape(table)
    return joint.draw(f"table, {shape[0]} by {shape[1]}", rows, seed)


def outcomes(table: npt.ArrayLike) -> Joint:
    """Integer outcomes of a joint probability table: (k, l)."""
    joint, cell_pmi, nats = _exact(table)

    def log_ratio(x: Array, y: Array) -> Array:
        return np.asarray(cell_pmi[x, y])

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        cells = random.choice(joint.size, size=rows, p=joint.ravel())
        x, y = np.unravel_index(cells, joint.shape)
        return x, y, cell_pmi[x, y]

    return Joint(nats, sample, log_ratio)


def labelled_gaussians(weights: npt.ArrayLike, means: npt.ArrayLike) -> Joint:
    """x ~ N(mean of its label, I) in the plane and y the label; weights: (k,), means: (k, 2).

    The MI is computed by quadrature, to 1e-9.
    """
    share, mean = np.asarray(weights, np.float64), np.asarray(means, np.float64)

    def log_each(x: Array) -> Array:
        """(n, k): log density of x under each label, less that of the plane's constant."""
        return np.asarray(-0.5 * np.square(x[:, None, :] - mean).sum(axis=2))

    def log_marginal(x: Array) -> Array:
        return np.asarray(logsumexp(log_each(x) + np.log(share), axis=1))

    def log_ratio(x: Array, y: Array) -> Array:
        return np.asarray(log_each(x)[np.arange(len(x)), y] - log_marginal(x))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        y = random.choice(len(share), size=rows, p=share)
        x = mean[y] + random.standard_normal((rows, 2))
        return x, y, log_ratio(x, y)

    def per_point(first: Array, second: Array) -> Array:
        """Mean PMI over the labels that a point may have."""
        x = np.hstack([first, second])
        pmi = log_each(x) - log_marginal(x)[:, None]
        posterior = share * np.exp(pmi)
        return np.asarray((posterior * pmi).sum(axis=1))

    def log_density(first: Array, second: Array) -> Array:
        return log_marginal(np.hstack([first, second])) - math.log(2 * math.pi)

    reach = float(np.abs(mean).max()) + 9.0
    return Joint(plane_expectation(log_density, per_point, reach), sample, log_ratio)


def zero_inflated(table: npt.ArrayLike, correlation: float) -> Joint:
    """Gaussian pairs with a point mass at zero on each side, (n, 1) each.

    table: (2, 2), the probability that x is zero or not, by whether y is. Where neither is, they
    correlate; so log r is that of the table, plus that of the Gaussians where both are there.
    """
    joint, cell_pmi, nats = _exact(table)
    if joint.shape != (2, 2):
        raise InputError(f"table must be of shape (2, 2), not {joint.shape}")
    rho = np.array([correlation])

    def log_ratio(x: Array, y: Array) -> Array:
        there_x, there_y = (x != 0)[:, 0], (y != 0)[:, 0]
        both = there_x & there_y
        gaussian = canonical_log_ratio(x, y, rho)
        cells: Array = cell_pmi[there_x.astype(int), there_y.astype(int)]
        return cells + np.where(both, gaussian, 0.0)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        there_x, there_y = np.divmod(random.choice(4, size=rows, p=joint.ravel()), 2)
        x, noise = random.standard_normal((2, rows, 1))
        y = correlation * x + math.sqrt(1 - correlation**2) * noise
        x, y = x * there_x[:, None], y * there_y[:, None]
        return x, y, log_ratio(x, y)

    both = float(joint[1, 1]) * -0.5 * math.log1p(-(correlation**2))
    return Joint(nats + both, sample, log_ratio)


def table_pmi(table: npt.ArrayLike) -> Array:
    """log p(x, y) / (p(x) p(y)) of each cell of a joint table: (k, l); -inf where p(x, y) = 0."""
    return _exact(table)[1]


def _exact(table: npt.ArrayLike) -> tuple[Array, Array, float]:
    """The table as p(x, y): (k, l), checked, and summing to 1 to the last bit; its PMI and MI."""
    joint = np.asarray(table, dtype=np.float64)
    if joint.ndim != 2 or joint.size == 0:
        raise InputError(f"table must be two-dimensional, p(x, y), not of shape {joint.shape}")
    if not np.isfinite(joint).all() or (joint < 0).any():
        raise InputError("table must hold probabilities: finite numbers, none below 0")
    if abs(joint.sum() - 1) > 1e-6:
        raise InputError(f"table must sum to 1, not {joint.sum():.6g}: divide it by its sum")
    joint = joint / joint.sum()
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    # A row or column without mass is never drawn: its cells count as impossible too.
    with np.errstate(divide="ignore"):
        pmi = np.log(np.divide(joint, product, out=np.zeros_like(joint), where=product > 0))
    possible = joint > 0
    # Rounding must not leave independence a little below zero.
    return joint, pmi, max(float((joint[possible] * pmi[possible]).sum()), 0.0)


# Mixtures: the PMI is exact, and the MI by quadrature to 1e-9 or in closed form.

_REACH = 9.0  # standard deviations, beyond which a Gaussian weighs under 1e-18


def gaussian_mixture(weights: npt.ArrayLike, means: npt.ArrayLike, covs: npt.ArrayLike) -> Joint:
    """Components of weights (k,), means (k, 2) and covariances (k, 2, 2); one column a side."""
    share, mean, cov = (np.asarray(a, np.float64) for a in (weights, means, covs))
    deviations = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    reach = float((np.abs(mean) + _REACH * deviations).max())

    def log_joint(x: Array, y: Array) -> Array:
        return _log_mixture(np.hstack([x, y]), share, mean, cov)

    def log_ratio(x: Array, y: Array) -> Array:
        only_x = _log_mixture(x, share, mean[:, :1], cov[:, :1, :1])
        only_y = _log_mixture(y, share, mean[:, 1:], cov[:, 1:, 1:])
        return np.asarray(log_joint(x, y) - only_x - only_y)

    factors = np.linalg.cholesky(cov)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        component = random.choice(len(share), size=rows, p=share)
        normal = random.standard_normal((rows, 2, 1))
        pairs = mean[component] + (factors[component] @ normal)[:, :, 0]
        x, y = pairs[:, :1], pairs[:, 1:]
        return x, y, log_ratio(x, y)

    return Joint(plane_expectation(log_joint, log_ratio, reach), sample, log_ratio)


def outliers(dim: int, correlation: float, share: float) -> Joint:
    """Gaussian pairs, of which a share is mismatched: the y of a random other row.

    Only the first of the dim columns of a side correlates. Mismatching leaves both marginals, so
    r = (1 - share) r_Gaussian + share.
    """
    if not 0 <= share <= 1:
        raise InputError(f"share must be a fraction between 0 and 1, not {share}")
    rho = np.array([correlation])

    def log_ratio(x: Array, y: Array) -> Array:
        matched = canonical_log_ratio(x[:, :1], y[:, :1], rho)
        with np.errstate(divide="ignore"):  # a share of 0 or 1 leaves one of the two terms
            ratio: Array = np.logaddexp(np.log(1 - share) + matched, np.log(share))
        return ratio

    def log_joint(x: Array, y: Array) -> Array:
        apart = -0.5 * (x**2 + y**2)[:, 0] - math.log(2 * math.pi)
        return np.asarray(apart + log_ratio(x, y))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, y = random.standard_normal((2, rows, dim))
        matched = random.random(rows) >= share
        y[matched, 0] *= math.sqrt(1 - correlation**2)
        y[matched, 0] += correlation * x[matched, 0]
        return x, y, log_ratio(x, y)

    return Joint(plane_expectation(log_joint, log_ratio, _REACH), sample, log_ratio)


def blocks(table: npt.ArrayLike) -> Joint:
    """x and y uniform in cells of the unit interval, of which a table (k, l) draws the pair.

    Inside a block x and y are independent, so PMI and MI are those of the table.
    """
    joint, cell_pmi, nats = _exact(table)
    bins = np.array(joint.shape)

    def log_ratio(x: Array, y: Array) -> Array:
        row, column = np.minimum(np.floor(np.hstack([x, y]) * bins), bins - 1).astype(int).T
        return np.asarray(cell_pmi[row, column])

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        cells = random.choice(joint.size, size=rows, p=joint.ravel())
        corner = np.column_stack(np.unravel_index(cells, joint.shape))
        pairs = (corner + random.random((rows, 2))) / bins
        return pairs[:, :1], pairs[:, 1:], cell_pmi[corner[:, 0], corner[:, 1]]

    return Joint(nats, sample, log_ratio)


def _log_mixture(values: Array, weights: Array, means: Array, covs: Array) -> Array:
    """Log density of values (n, d) under weights (k,), means (k, d), covariances (k, d, d)."""
    away = values[:, None, :] - means
    distance = np.einsum("nki,kij,nkj->nk", away, np.linalg.inv(covs), away, optimize=True)
    volume = np.linalg.slogdet(2 * np.pi * covs)[1]
    return np.asarray(logsumexp(np.log(weights) - 0.5 * (distance + volume), axis=1))
