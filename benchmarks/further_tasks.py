"""Further tasks with exact PMI, in two halves: settings are tuned on one, results reported on both.

A kind of dependence belongs to one half, or to both with other parameters. MI is in closed form, a
finite sum, or by quadrature to 1e-6 or better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from pointdep.data.raw import Array
from pointdep.data.tasks.continuous import (
    ASINH,
    NORMAL_CDF,
    Joint,
    Map,
    Task,
    correlated,
    dense_covariance,
    mapped,
    student,
    uniform_noise,
)
from pointdep.data.tasks.discrete import blocks, labelled_gaussians, outcomes
from pointdep.errors import unknown_name


@dataclass(frozen=True, eq=False)
class FurtherTask:
    """A task: its kind of dependence, the half it belongs to, and its joint distribution."""

    name: str
    kind: str
    half: str
    description: str
    joint: Callable[[], Joint]


def beside(*joints: Joint) -> Joint:
    """Independent pairs in the columns of one: their PMI and MI add up."""
    first = [joint.sample(1, np.random.default_rng(0)) for joint in joints]
    cut_x, cut_y = (np.cumsum([one[side].shape[1] for one in first])[:-1] for side in (0, 1))

    def log_ratio(x: Array, y: Array) -> Array:
        parts = zip(joints, np.split(x, cut_x, 1), np.split(y, cut_y, 1), strict=True)
        return np.asarray(sum(joint.log_ratio(u, v) for joint, u, v in parts))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, y, pmi = zip(*(joint.sample(rows, random) for joint in joints), strict=True)
        return np.hstack(x), np.hstack(y), np.sum(pmi, axis=0)

    return Joint(sum(joint.mutual_information for joint in joints), sample, log_ratio)


def independent(dim_x: int, dim_y: int) -> Joint:
    """Gaussian columns that tell nothing of each other; either side may have none."""

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, y = (random.standard_normal((rows, dim)) for dim in (dim_x, dim_y))
        return x, y, np.zeros(rows)

    return Joint(0.0, sample, lambda x, _: np.zeros(len(x)))


# Channels: y depends on x through one number t, and p(y) is an integral over t.

Rule: TypeAlias = tuple[Array, Array]  # nodes and weights, (m,) each
Function: TypeAlias = Callable[[Array], Array]


def _trapezoid(log_density: Function, low: float, high: float, step: float = 0.05) -> Rule:
    """Exact to many digits for smooth densities that vanish at both ends."""
    nodes = np.arange(low, high, step)
    weights = np.exp(log_density(nodes))
    return nodes, weights / weights.sum()


def _log_normal(z: Array) -> Array:
    return np.asarray(-0.5 * z**2 - 0.5 * math.log(2 * math.pi))


_NORMAL = _trapezoid(_log_normal, -7.0, 7.0)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(160)
_UNIFORM = (_NODES + 1) / 2, _WEIGHTS / 2  # on (0, 1)


@dataclass(frozen=True, eq=False)
class Source:
    """x of normal or uniform columns, t of x: (n, d) -> (n,), and a quadrature rule for t."""

    signal: Function = lambda x: x[:, 0]
    columns: int = 1
    rule: Rule = _NORMAL
    uniform: bool = False


@dataclass(frozen=True, eq=False)
class Noise:
    """z by its log density, which is negligible below low and above high, and its draws."""

    log_density: Function
    low: float
    high: float
    draw: Callable[[int, np.random.Generator], Array]


_ADDED = Noise(_log_normal, -9.0, 9.0, lambda rows, random: random.normal(size=rows))
_SIZE = Noise(  # log |z| of a normal z
    lambda g: math.log(2) + g + _log_normal(np.exp(g)),
    *(-26.0, 2.3),
    lambda rows, random: np.log(np.abs(random.normal(size=rows))),
)
_WAIT = Noise(  # the logarithm of an exponential time
    *(lambda g: g - np.exp(g), -26.0, 4.0),
    lambda rows, random: np.log(random.exponential(size=rows)),
)


def _channel(source: Source, log_conditional: Any, draw: Any, values: Array, cell: float) -> Joint:
    """log_conditional: log p(y | t); draw: t, generator -> y, (n,) or (n, 1).

    values: (k,), all that y may be, or points at distances of cell.
    """
    nodes, weights = source.rule

    def log_ratio(x: Array, y: Array) -> Array:
        parts = np.array_split(y.reshape(len(y), 1), 1 + len(y) // 4096)
        marginal = [
            special.logsumexp(log_conditional(nodes, part), b=weights, axis=1) for part in parts
        ]
        given = log_conditional(source.signal(x), y.reshape(len(y)))
        return np.asarray(given - np.concatenate(marginal))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        shape = rows, source.columns
        x = random.random(shape) if source.uniform else random.normal(size=shape)
        y = draw(source.signal(x), random)
        return x, y, log_ratio(x, y)

    table = cell * np.exp(log_conditional(nodes[:, None], values))
    # Entropies: that of y less what is left of it given t.
    information = special.entr(weights @ table).sum() - weights @ special.entr(table).sum(axis=1)
    return Joint(float(information), sample, log_ratio)


def added(source: Source, shift: Function, scale: float = 1.0, noise: Noise = _ADDED) -> Joint:
    """y = shift(t) + scale z, (n, 1)."""

    def log_conditional(t: Array, y: Array) -> Array:
        return np.asarray(noise.log_density((y - shift(t)) / scale) - math.log(scale))

    def draw(t: Array, random: np.random.Generator) -> Array:
        return np.asarray(shift(t) + scale * noise.draw(len(t), random))[:, None]

    reached, cell = shift(source.rule[0]), scale / 10
    values = np.arange(reached.min() + scale * noise.low, reached.max() + scale * noise.high, cell)
    return _channel(source, log_conditional, draw, values, cell)


def _teeth(periods: float) -> Source:
    """t is the fraction of periods x, uniform itself for whole numbers."""
    return Source(lambda x: periods * x[:, 0] % 1.0, rule=_UNIFORM, uniform=True)


def wave(periods: float, noise: float) -> Joint:
    span = 1.0 if periods == int(periods) else periods
    return added(_teeth(periods / span), lambda t: np.sin(2 * np.pi * span * t), noise)


def normal_wave(pace: float, noise: float) -> Joint:
    return added(Source(), lambda t: np.sin(pace * t), noise)


def saw(periods: int, noise: float) -> Joint:
    return added(_teeth(periods), lambda t: t, noise)


def spread(columns: int, strength: float) -> Joint:
    """y = exp(strength x) z: log |y| is a channel, and the sign of y tells nothing."""
    size = added(Source(), lambda t: strength * t, noise=_SIZE)

    def log_ratio(x: Array, y: Array) -> Array:
        return size.log_ratio(x, np.log(np.abs(y)))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, log_y, pmi = size.sample(rows, random)
        return x, np.exp(log_y) * random.choice([-1.0, 1.0], (rows, 1)), pmi

    return beside(*[Joint(size.mutual_information, sample, log_ratio)] * columns)


def parabola(noise: float, others: int) -> Joint:
    one = added(Source(), lambda t: (t**2 - 1) / math.sqrt(2), noise)
    return beside(one, independent(others, others))


def greatest(of: int, noise: float) -> Joint:
    """y is the largest of the columns of x with noise."""
    rule = _trapezoid(lambda t: _log_normal(t) + (of - 1) * special.log_ndtr(t), -7.0, 7.0)
    return added(Source(lambda x: x.max(axis=1), of, rule), lambda t: t, noise)


def product(noise: float, others: int) -> Joint:
    """y = x1 x2 + noise; t has the density K0(|t|) / pi, singular at 0 alone.

    In g with |t| = log(1 + exp(g)) it is smooth.
    """

    def log_density(g: Array) -> Array:
        t = np.logaddexp(0, g)
        return np.asarray(np.log(special.k0e(t)) - t + special.log_expit(g))

    g, weights = _trapezoid(log_density, -26.0, 40.0, 0.2)
    t = np.logaddexp(0, g)
    source = Source(
        lambda x: x[:, 0] * x[:, 1], 2, (np.concatenate([-t, t]), np.tile(weights / 2, 2))
    )
    return beside(added(source, lambda t: t, noise), independent(others, 0))


def waiting_time(strength: float) -> Joint:
    return mapped(added(Source(), lambda t: -strength * t, noise=_WAIT), y=_EXP)


def multiplied(noise: float) -> Joint:
    """y = (0.1 + x) exp(noise z), x uniform."""
    return mapped(added(_teeth(1), lambda t: np.log(0.1 + t), noise), y=_EXP)


def poisson(level: float, strength: float) -> Joint:
    def log_chance(t: Array, y: Array) -> Array:
        rate = level + strength * t
        return np.asarray(y * rate - np.exp(rate) - special.gammaln(y + 1.0))

    def draw(t: Array, random: np.random.Generator) -> Array:
        return random.poisson(np.exp(level + strength * t)).astype(float)[:, None]

    most = math.exp(level + 7 * strength)
    return _channel(Source(), log_chance, draw, np.arange(most + 9 * math.sqrt(most) + 20), 1.0)


def logistic(dim: int, strength: float) -> Joint:
    """A label that is 1 with probability sigmoid(strength t), t the scaled sum of the columns."""

    def log_chance(t: Array, y: Array) -> Array:
        return np.asarray(special.log_expit((2 * y - 1) * strength * t))

    def draw(t: Array, random: np.random.Generator) -> Array:
        return (random.random(len(t)) < special.expit(strength * t)).astype(int)

    source = Source(lambda x: x.sum(axis=1) / math.sqrt(dim), dim)
    return _channel(source, log_chance, draw, np.arange(2), 1.0)


# Closed forms.

_EXP = Map(np.exp, np.log)


def parity(factors: int, flip: float, others: int) -> Joint:
    """The sign of y is that of the product of x's first columns, flipped with probability flip."""

    def log_ratio(x: Array, y: Array) -> Array:
        agree = np.sign(x[:, :factors].prod(axis=1)) == np.sign(y[:, 0])
        return np.asarray(np.log(2 * np.where(agree, 1 - flip, flip)))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x, size = random.normal(size=(rows, factors + others)), random.normal(size=rows)
        turned = np.where(random.random(rows) < flip, -1.0, 1.0)
        y = (np.sign(x[:, :factors].prod(axis=1)) * turned * np.abs(size))[:, None]
        return x, y, log_ratio(x, y)

    unknown = special.entr(flip) + special.entr(1 - flip)
    return Joint(float(math.log(2) - unknown), sample, log_ratio)


def angles(concentration: float, turns: int = 1, thickness: float = 0.0) -> Joint:
    """Points near the unit circle: y's angle is turns times that of x plus von Mises noise.

    The radii, exp(thickness z), are independent of all else.
    """
    bessel = special.i0e(concentration)

    def log_ratio(x: Array, y: Array) -> Array:
        away = np.arctan2(y[:, 1], y[:, 0]) - turns * np.arctan2(x[:, 1], x[:, 0])
        return np.asarray(concentration * (np.cos(away) - 1) - np.log(bessel))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        angle = random.uniform(-np.pi, np.pi, rows)
        other = turns * angle + random.vonmises(0.0, concentration, rows)
        x, y = (
            np.exp(thickness * random.normal(size=(rows, 1)))
            * np.column_stack([np.cos(one), np.sin(one)])
            for one in (angle, other)
        )
        return x, y, log_ratio(x, y)

    mean = special.i1e(concentration) / bessel
    return Joint(float(concentration * (mean - 1) - np.log(bessel)), sample, log_ratio)


def _copula(information: float, log_density: Any, conditional: Any) -> Joint:
    """conditional: u and a uniform number -> v, its quantile given u."""

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        u, w = random.random((2, rows, 1))
        v = conditional(u, w)
        return u, v, log_density(u, v)[:, 0]

    return Joint(information, sample, lambda u, v: np.asarray(log_density(u, v)[:, 0]))


def clayton(theta: float) -> Joint:
    """Normal margins; MI by the Kendall distribution: E log u = -1, E log C = -1 - 1/(1+theta)."""

    def log_density(u: Array, v: Array) -> Array:
        inner = np.log(u**-theta + v**-theta - 1)
        outer = math.log1p(theta) - (1 + theta) * np.log(u * v)
        return np.asarray(outer - (2 + 1 / theta) * inner)

    def conditional(u: Array, w: Array) -> Array:
        return np.asarray((u**-theta * (w ** (-theta / (1 + theta)) - 1) + 1) ** (-1 / theta))

    nats = math.log1p(theta) + 2 * (1 + theta) - (2 * theta + 1) * (2 + theta) / (1 + theta)
    quantile = Map(NORMAL_CDF.inverse, NORMAL_CDF.forward)
    return mapped(_copula(nats, log_density, conditional), x=quantile, y=quantile)


def frank(theta: float) -> Joint:
    """Student margins with two degrees of freedom: infinite variance."""
    most = -math.expm1(-theta)

    def log_density(u: Array, v: Array) -> Array:
        inner = most - special.expm1(-theta * u) * special.expm1(-theta * v)
        return np.asarray(math.log(theta * most) - theta * (u + v) - 2 * np.log(inner))

    def conditional(u: Array, w: Array) -> Array:
        left = np.exp(-theta * u)
        return np.asarray(-np.log1p(-w * most / (w + (1 - w) * left)) / theta)

    (nodes, weights), tails = _UNIFORM, Map(_student_2, _student_2_cdf)
    pmi = log_density(nodes[:, None], nodes)
    nats = float(weights @ (np.exp(pmi) * pmi) @ weights)
    return mapped(_copula(nats, log_density, conditional), x=tails, y=tails)


def _student_2(u: Array) -> Array:
    return np.asarray((2 * u - 1) / np.sqrt(2 * u * (1 - u)))


def _student_2_cdf(x: Array) -> Array:
    return np.asarray(0.5 + x / (2 * np.sqrt(2 + x**2)))


def edges(classes: int, width: float) -> Joint:
    """x is a label, y = x + uniform noise to width; r is over the number of labels y allows."""
    centres = np.arange(classes)

    def allowed(y: Array) -> Array:
        return np.asarray((np.abs(y - centres) <= width * (1 + 1e-12)).sum(axis=1))

    def log_ratio(x: Array, y: Array) -> Array:
        possible = np.abs(y[:, 0] - x) <= width * (1 + 1e-12)
        return np.where(possible, math.log(classes) - np.log(np.maximum(allowed(y), 1)), -np.inf)

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        x = random.integers(classes, size=rows)
        y = x[:, None] + random.uniform(-width, width, (rows, 1))
        return x, y, log_ratio(x, y)

    ends = np.sort(np.concatenate([centres - width, centres + width]))
    counts = allowed((ends[1:] + ends[:-1])[:, None] / 2)
    doubt = np.diff(ends) @ special.xlogy(counts, counts) / (2 * width * classes)
    return Joint(float(math.log(classes) - doubt), sample, log_ratio)


def class_columns(classes: int, shift: float) -> Joint:
    """x ~ N(shift e_y, I) with one column per class, y a uniform label.

    MI = log k + shift^2 - E log A with A = sum_j exp(shift x_j), and E log A is the integral of
    (exp(-u) - E exp(-u A)) / u, whose expectation is a product over the columns.
    """

    def log_ratio(x: Array, y: Array) -> Array:
        own = shift * x[np.arange(len(x)), y]
        return np.asarray(math.log(classes) + own - special.logsumexp(shift * x, axis=1))

    def sample(rows: int, random: np.random.Generator) -> tuple[Array, Array, Array]:
        y = random.integers(classes, size=rows)
        x = random.normal(size=(rows, classes)) + shift * np.eye(classes)[y]
        return x, y, log_ratio(x, y)

    # From where exp(-u A) is one to where it is zero: log A is within seven deviations of x.
    (z, weights), reach = _NORMAL, shift * (shift + 7)
    g = np.arange(-40.0 - reach, 20.0 + reach, 0.05)
    own, other = (
        np.exp(-np.exp(g[:, None] + shift * z + added)) @ weights for added in (shift**2, 0.0)
    )
    mean = float((np.exp(-np.exp(g)) - own * other ** (classes - 1)).sum() * 0.05)
    return Joint(math.log(classes) + shift**2 - mean, sample, log_ratio)


# Tables of categories; what is random in them is drawn once, from a fixed seed.


def topics(words: int, themes: int, concentration: float) -> Joint:
    """Both words come from one topic; a low concentration makes topics of few words."""
    random = np.random.default_rng(words)
    left, right = random.dirichlet(np.full(words, concentration), (2, themes))
    return outcomes((left.T * random.dirichlet(np.full(themes, 5.0))) @ right)


def zipf(words: int, share: float, groups: int) -> Joint:
    """Frequencies 1 / rank; with probability share the other word is drawn from one's own group.

    Groups hold every so many-th word: with as many groups as words the word comes again.
    """
    chance = 1 / np.arange(1, words + 1)
    chance /= chance.sum()
    group = np.arange(words) % groups
    ratio = (1 - share) + share * (group[:, None] == group) / np.bincount(group, chance)[group]
    return outcomes(chance[:, None] * ratio * chance)


def checkerboard(cells: int) -> Joint:
    return blocks(np.add.outer(np.arange(cells), np.arange(cells)) % 2 * 2 / cells**2)


def label_circle(clusters: int, radius: float) -> Joint:
    """Gaussian clusters around a circle and their labels."""
    at = 2 * np.pi * np.arange(clusters) / clusters
    means = radius * np.column_stack([np.cos(at), np.sin(at)])
    return labelled_gaussians(np.full(clusters, 1 / clusters), means)


def wide(dim: int, pairs: int, nats: float) -> Joint:
    return beside(correlated(pairs, nats), independent(dim - pairs, dim - pairs))


def uniform_columns(columns: int, width: float) -> Joint:
    return beside(*[uniform_noise(width)] * columns)


def torus(*concentrations: float) -> Joint:
    return beside(*map(angles, concentrations))


def asinh_student(dim: int, freedom: float, correlation: float) -> Joint:
    return mapped(student(dense_covariance(dim, correlation), dim, freedom), x=ASINH, y=ASINH)


# name, kind, description, and the function that makes the joint with its arguments

_TUNE: list[tuple[Any, ...]] = [
    ("wave-2", "wave", "2 periods of a sine, noise 0.3", wave, 2, 0.3),
    ("wave-3", "wave", "3 periods of a sine, noise 0.2", wave, 3, 0.2),
    ("sign-product-3", "sign product", "sign of x1 x2 in 3 columns", parity, 2, 0.1, 1),
    ("sign-product-5", "sign product", "sign of x1 x2 in 5 columns", parity, 2, 0.02, 3),
    ("spread-1", "spread", "x is the log scale of y, 1 column", spread, 1, 1.0),
    ("spread-3", "spread", "x is 0.7 the log scale of y, 3 columns", spread, 3, 0.7),
    ("edges-4", "edges", "4 labels, uniform noise to 0.8", edges, 4, 0.8),
    ("edges-2-columns", "edges", "uniform noise to 0.3, 2 columns", uniform_columns, 2, 0.3),
    ("gaussian-3-nats", "high", "1 + 1 Gaussians with 3 nats", correlated, 1, 3.0),
    ("gaussian-2-columns-4-nats", "high", "2 + 2 Gaussians with 4 nats", correlated, 2, 4.0),
    ("wide-64", "wide", "64 + 64 Gaussians, 3 pairs correlated", wide, 64, 3, 1.5),
    ("wide-256", "wide", "256 + 256 Gaussians, 2 pairs correlated", wide, 256, 2, 1.2),
    ("topics-100", "topics", "100 words of 5 topics", topics, 100, 5, 0.2),
    ("topics-300", "topics", "300 words of 12 topics", topics, 300, 12, 0.1),
    ("zipf-300", "zipf", "300 words, half of them come again", zipf, 300, 0.5, 300),
    ("zipf-1000", "zipf", "1,000 words in 20 groups", zipf, 1000, 0.6, 20),
    ("ring", "ring", "noisy circles with a common angle", angles, 8.0, 1, 0.1),
    ("ring-twice", "ring", "y goes round twice as x does once", angles, 5.0, 2, 0.2),
    ("saw-3", "saw", "3 teeth of a saw, noise 0.1", saw, 3, 0.1),
    ("saw-5", "saw", "5 teeth of a saw, noise 0.05", saw, 5, 0.05),
    ("clayton-2", "Clayton", "Clayton copula of 2, normal margins", clayton, 2.0),
    ("clayton-6", "Clayton", "Clayton copula of 6, normal margins", clayton, 6.0),
    ("logistic-5", "logistic", "two labels by 5 columns", logistic, 5, 3.0),
    ("logistic-20", "logistic", "two labels by 20 columns", logistic, 20, 6.0),
    ("clusters-8", "clusters", "8 clusters on a circle, a label each", label_circle, 8, 3.0),
    ("multiplied-1", "multiplied", "uniform x times log-normal noise 0.5", multiplied, 0.5),
    ("multiplied-2", "multiplied", "uniform x times log-normal noise 0.1", multiplied, 0.1),
]

_REPORT: list[tuple[Any, ...]] = [
    ("wave-1.5", "wave", "1.5 periods of a sine, noise 0.4", wave, 1.5, 0.4),
    ("wave-4", "wave", "4 periods of a sine, noise 0.25", wave, 4, 0.25),
    ("wave-5", "wave", "5 periods of a sine, noise 0.15", wave, 5, 0.15),
    ("wave-normal", "wave", "y = sin(6 x) with noise 0.3, x normal", normal_wave, 6.0, 0.3),
    ("sign-product-4", "sign product", "sign of x1 x2 in 4 columns", parity, 2, 0.05, 2),
    ("sign-product-6", "sign product", "sign of x1 x2 in 6 columns", parity, 2, 0.15, 4),
    ("spread-2", "spread", "x is 1.5 the log scale of y, 2 columns", spread, 2, 1.5),
    ("spread-5", "spread", "x is half the log scale of y, 5 columns", spread, 5, 0.5),
    ("edges-8", "edges", "8 labels, uniform noise to 1.7", edges, 8, 1.7),
    ("edges-4-columns", "edges", "uniform noise to 0.6, 4 columns", uniform_columns, 4, 0.6),
    ("gaussian-4.5-nats", "high", "1 + 1 Gaussians with 4.5 nats", correlated, 1, 4.5),
    ("gaussian-2-columns-2.5-nats", "high", "2 + 2 Gaussians, 2.5 nats", correlated, 2, 2.5),
    ("wide-128", "wide", "128 + 128 Gaussians, 4 pairs correlated", wide, 128, 4, 2.0),
    ("wide-512", "wide", "512 + 512 Gaussians, 5 pairs correlated", wide, 512, 5, 3.0),
    ("wide-parabola-64", "wide", "y1 a parabola of x1, of 64 + 64 columns", parabola, 0.3, 63),
    ("topics-50", "topics", "50 words of 3 topics", topics, 50, 3, 0.3),
    ("topics-500", "topics", "500 words of 20 topics", topics, 500, 20, 0.05),
    ("zipf-200", "zipf", "200 words in 8 groups", zipf, 200, 0.8, 8),
    ("zipf-2000", "zipf", "2,000 words, a third come again", zipf, 2000, 0.33, 2000),
    ("frank-8", "Frank", "Frank copula of 8, heavy tails", frank, 8.0),
    ("frank-25", "Frank", "Frank copula of 25, heavy tails", frank, 25.0),
    ("poisson", "Poisson", "counts with log rate 1 + 0.8 x", poisson, 1.0, 0.8),
    ("poisson-rare", "Poisson", "counts with log rate x - 1", poisson, -1.0, 1.0),
    ("waiting-1", "waiting", "waiting times, log rate 1 x", waiting_time, 1.0),
    ("waiting-2", "waiting", "waiting times, log rate 2.5 x", waiting_time, 2.5),
    ("checkerboard-4", "checkerboard", "the black cells of a 4 by 4 board", checkerboard, 4),
    ("checkerboard-8", "checkerboard", "the black cells of an 8 by 8 board", checkerboard, 8),
    ("torus", "torus", "two pairs of angles by cosine and sine", torus, 3.0, 6.0),
    ("angles-20", "torus", "a pair of angles, concentration 20", angles, 20.0),
    ("student-2-asinh", "Student", "2 + 2 Student, 2 degrees, by asinh", asinh_student, 2, 2, 0.6),
    ("student-4-asinh", "Student", "4 + 4 Student, 3 degrees, by asinh", asinh_student, 4, 3, 0.3),
    ("max-4", "interaction", "y the largest of 4 columns, noise 0.2", greatest, 4, 0.2),
    ("times-3", "interaction", "y = x1 x2 + noise 0.3, in 3 columns", product, 0.3, 1),
    ("xor-3", "interaction", "sign of x1 x2 x3", parity, 3, 0.03, 0),
    ("classes-10", "classes", "10 labels, each moves its column by 2.5", class_columns, 10, 2.5),
    ("independent-1", "independent", "1 + 1 independent Gaussians", independent, 1, 1),
    ("independent-20", "independent", "20 + 20 independent Gaussians", independent, 20, 20),
    ("independent-200", "independent", "200 + 100 independent Gaussians", independent, 200, 100),
    ("independent-words", "independent", "200 independent words", zipf, 200, 0.0, 1),
]

FURTHER: Mapping[str, FurtherTask] = MappingProxyType(
    {
        name: FurtherTask(name, kind, half, description, cache(partial(make, *arguments)))
        for half, rows in (("tune", _TUNE), ("report", _REPORT))
        for name, kind, description, make, *arguments in rows
    }
)


def make_task(name: str, rows: int, seed: int = 0) -> Task:
    """Independent rows of the further task of this name; the same seed gives the same rows."""
    if name not in FURTHER:
        raise unknown_name("task", name, FURTHER)
    return FURTHER[name].joint().draw(name, rows, seed)
