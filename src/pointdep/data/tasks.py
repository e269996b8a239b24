"""Reference tasks whose mutual information and pointwise mutual information are known exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pointdep.data.raw import Array
from pointdep.errors import InputError


@dataclass(frozen=True, eq=False)
class Task:
    """Draws of a known joint distribution.

    x, y: (rows, dim), or (rows,) outcomes; pmi: (rows,) nats; mutual_information: nats.
    """

    name: str
    x: Array
    y: Array
    pmi: Array
    mutual_information: float


def correlated_gaussians(
    rows: int,
    dim: int = 20,
    mutual_information: float = 2.0,
    *,
    cubic: bool = False,
    seed: int = 0,
) -> Task:
    """x, e ~ N(0, I) and y = rho x + sqrt(1 - rho^2) e, with MI = -dim/2 log(1 - rho^2).

    cubic gives y^3 for y: a map one to one, which leaves every PMI as it was.
    """
    _require_rows(rows)
    if dim < 1:
        raise InputError(f"dim must be 1 or more, not {dim}")
    if not 0 <= mutual_information < math.inf:
        raise InputError(f"mutual_information must be 0 or more nats, not {mutual_information}")
    import torch

    from pointdep.core.gaussian import gaussian_log_ratio

    rho = math.sqrt(-math.expm1(-2 * mutual_information / dim))
    random = np.random.default_rng(seed)
    x, noise = random.standard_normal((2, rows, dim))
    y = rho * x + math.exp(-mutual_information / dim) * noise
    pmi = gaussian_log_ratio(
        torch.from_numpy(x), torch.from_numpy(y), torch.full((dim,), rho, dtype=torch.float64)
    ).numpy()
    name = f"{'cubic ' if cubic else ''}gaussians, {dim} dimensions, {mutual_information:g} nats"
    return Task(name, x, y**3 if cubic else y, pmi, float(mutual_information))


def table_pmi(table: npt.ArrayLike) -> Array:
    """log p(x, y) / (p(x) p(y)) of each cell of a joint table: (k, l); -inf where p(x, y) = 0."""
    joint = _joint_table(table)
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    # A row or column without mass is never drawn: its cells count as impossible too.
    ratio = np.divide(joint, product, out=np.zeros_like(joint), where=product > 0)
    with np.errstate(divide="ignore"):
        pmi: Array = np.log(ratio)
    return pmi


def discrete_table(rows: int, table: npt.ArrayLike, seed: int = 0) -> Task:
    """Integer x, y: (rows,) drawn from a joint probability table: (k, l); cells may be zero."""
    _require_rows(rows)
    joint, cell_pmi = _joint_table(table), table_pmi(table)
    cells = np.random.default_rng(seed).choice(joint.size, size=rows, p=joint.ravel())
    x, y = np.unravel_index(cells, joint.shape)
    possible = joint > 0
    mutual_information = float((joint[possible] * cell_pmi[possible]).sum())
    name = f"table, {joint.shape[0]} by {joint.shape[1]}"
    return Task(name, x, y, cell_pmi[x, y], mutual_information)


def _joint_table(table: npt.ArrayLike) -> Array:
    joint = np.asarray(table, dtype=np.float64)
    if joint.ndim != 2 or joint.size == 0:
        raise InputError(f"table must be two-dimensional, p(x, y), not of shape {joint.shape}")
    if not np.isfinite(joint).all() or (joint < 0).any():
        raise InputError("table must hold probabilities: finite numbers, none below 0")
    if abs(joint.sum() - 1) > 1e-6:
        raise InputError(f"table must sum to 1, not {joint.sum():.6g}: divide it by its sum")
    normalised: Array = joint / joint.sum()
    return normalised


def _require_rows(rows: int) -> None:
    if rows < 1:
        raise InputError(f"rows must be 1 or more, not {rows}")
