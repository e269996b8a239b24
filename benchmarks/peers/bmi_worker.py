"""Estimators of bmi, with the defaults of their classes.

- `bmi-cca` and `bmi-ksg` (ten neighbours) have no networks and are computed on all rows.
- `bmi-infonce` and `bmi-mine` split the rows in half themselves, train on one half and return the
  best value seen on the other half, the half that also decides when to stop.
"""

from __future__ import annotations

from bmi import estimators as bmi  # type: ignore[import-not-found]

from peers.worker import Array, serve


def cca(x: Array, y: Array, seed: int) -> float:  # noqa: ARG001
    """Mutual information of a normal distribution with the data's canonical correlations."""
    return float(bmi.CCAMutualInformationEstimator().estimate(x, y))


def ksg(x: Array, y: Array, seed: int) -> float:  # noqa: ARG001
    """Nearest neighbours, k = 10."""
    return float(bmi.KSGEnsembleFirstEstimator(neighborhoods=(10,)).estimate(x, y))


def infonce(x: Array, y: Array, seed: int) -> float:  # noqa: ARG001
    """InfoNCE; the random state stays at the class's default."""
    return float(bmi.InfoNCEEstimator(verbose=False).estimate(x, y))


def mine(x: Array, y: Array, seed: int) -> float:  # noqa: ARG001
    """MINE; the random state stays at the class's default."""
    return float(bmi.MINEEstimator(verbose=False).estimate(x, y))


if __name__ == "__main__":
    serve(
        {"bmi-cca": cca, "bmi-ksg": ksg, "bmi-infonce": infonce, "bmi-mine": mine},
        ["benchmark-mi", "jax", "numpy"],
    )
