"""How sure a calibration is: derivatives against weighted refits, errors against the spread."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pointdep import from_logits
from pointdep.adapters.calibrating import _fit_folds
from pointdep.adapters.cells import Cells, LogitMatrix
from pointdep.adapters.influence import influence
from pointdep.adapters.levels import SHARES
from pointdep.adapters.logistic import fit_log_ratio

from .helpers import draw, embeddings, gaussian_log_ratio

TEMPERATURE, FOLDS = 0.9, 3


def weighted_levels(matrix, kept, m, temperature):
    """Of each query over the kept candidates, each counted m times, by hand."""
    found = []
    for logits, used in zip(matrix.values, matrix.others & kept, strict=True):
        s, c = logits[used], m[used]
        means = [
            torch.log((c * torch.exp(t * temperature * s)).sum() / c.sum()) / (t * temperature)
            for t in SHARES
        ]
        found.append(torch.stack([*means, (c * s).sum() / c.sum()]))
    return torch.stack(found)


def refitted(matrix, fits, m):
    """Mean weights, and the mean log r reported, with each row counted m times, (n,)."""
    weights, reported = [], 0.0
    for fit in fits:
        level = fit.level
        if matrix.levelled:
            level = weighted_levels(matrix, fit.rows, m, TEMPERATURE)
        cells = Cells(
            fit.cells.row,
            fit.cells.column,
            fit.cells.joint * m[fit.cells.row],
            fit.cells.product * m[fit.cells.row] * m[fit.cells.column],
        )
        design = matrix.design(cells, level)
        weights.append(
            fit_log_ratio(design, cells.joint, cells.product, odds=fit.odds, start=fit.weights)
        )
        own = matrix.design(matrix.pairs(), level) @ weights[-1]
        reported += float(own[~fit.rows].sum()) / len(m)
    return torch.stack(weights).mean(0), reported


@pytest.mark.parametrize("levelled", [False, True])
def test_influence_is_the_derivative_of_a_weighted_refit(levelled):
    n = 66
    x, y = embeddings(n, dim=2, correlation=0.7)
    logits = torch.from_numpy(1.3 * gaussian_log_ratio(x, y, 0.7) + 0.4)
    names = torch.arange(n) // 2
    matrix = LogitMatrix(logits, names[:, None] != names, levelled)
    fits = _fit_folds(matrix, names % FOLDS, FOLDS, TEMPERATURE, seed=0)
    found = influence(matrix, fits, TEMPERATURE)
    assert found.reported.sum() == pytest.approx(0.0, abs=1e-9)
    for row in (0, 1, 17, 40):
        sides = []
        for step in (1e-3, -1e-3):
            m = torch.ones(n).double()
            m[row] += step
            sides.append(refitted(matrix, fits, m))
        weights = (sides[0][0] - sides[1][0]) / 2e-3
        reported = (sides[0][1] - sides[1][1]) / 2e-3
        assert found.weights[row].numpy() == pytest.approx(weights.numpy(), rel=2e-2, abs=1e-4)
        assert float(found.reported[row]) == pytest.approx(reported, rel=2e-2, abs=1e-5)
