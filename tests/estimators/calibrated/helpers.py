"""Pairs of which log r is known, and logits that lack something of it."""

from typing import NamedTuple

import numpy as np

from core.tables import Table, random_table

TABLE = random_table(6, 8, seed=3, spread=1.2)


class Drawn(NamedTuple):
    """Outcomes x and y of n pairs, log r of every x with every y, (n, n), and of the table."""

    x: np.ndarray
    y: np.ndarray
    log_ratio: np.ndarray
    exact: np.ndarray


def draw(rows: int, seed: int = 0, table: Table = TABLE) -> Drawn:
    """Pairs drawn from a finite table."""
    p = table.joint.numpy()
    x, y = np.divmod(np.random.default_rng(seed).choice(p.size, size=rows, p=p.ravel()), p.shape[1])
    exact = table.log_ratio.numpy()
    return Drawn(x, y, exact[x[:, None], y[None, :]], exact)


def levels_by_hand(logits, heat: float):
    """The levels of queries over their candidates, the last axis, at each share of the heat."""
    shares = (1, 0.5, 0.25)
    found = [np.log(np.mean(np.exp(t * heat * logits), -1)) / (t * heat) for t in shares]
    return [*found, logits.mean(-1)]


def embeddings(rows: int, dim: int = 3, correlation: float = 0.8, seed: int = 0):
    """Gaussian pairs, (rows, dim) each."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, dim))
    return x, correlation * x + np.sqrt(1 - correlation**2) * random.normal(size=(rows, dim))


def gaussian_log_ratio(x, y, correlation: float = 0.8):
    """log r of every x with every y of `embeddings`, (n, m), by the densities."""
    c = correlation**2
    own = [-c * np.square(side).sum(1) / (2 * (1 - c)) for side in (x, y)]
    cross = correlation / (1 - c) * x @ y.T
    return own[0][:, None] + own[1] + cross - x.shape[1] / 2 * np.log(1 - c)


def towers(rows=600, seed=0, dim=3, correlation=0.8):
    """Vectors of Gaussian pairs whose inner product is log r up to a constant, and log r."""
    x, y = embeddings(rows, dim, correlation, seed)
    c = correlation**2
    square = [-c * np.square(side).sum(1, keepdims=True) / (2 * (1 - c)) for side in (x, y)]
    one = np.ones((rows, 1))
    return (
        np.hstack([correlation / (1 - c) * x, square[0], one]),
        np.hstack([y, one, square[1]]),
        gaussian_log_ratio(x, y, correlation).diagonal(),
    )
