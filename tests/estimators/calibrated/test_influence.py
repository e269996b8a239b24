"""How sure a calibration is: derivatives against weighted refits, errors against the spread."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pointdep import from_embeddings, from_logits
from pointdep.estimators.calibrated_model import CalibratedCritic
from pointdep.estimators.calibration import (
    SHARES,
    Cells,
    LogitMatrix,
    _fit_folds,
    fit_log_ratio,
    influence,
)
from pointdep.estimators.embeddings import Embeddings
from pointdep.inference.mutual_information import standard_error

from .helpers import embeddings, gaussian_log_ratio, towers

TEMPERATURE, FOLDS, ROWS = 0.9, 3, 66


def weighted_levels(logits, used, m):
    """Of each query over the candidates it uses, each counted m times, by hand."""
    found = []
    for row, own in zip(logits, used, strict=True):
        s, c = row[own], m[own]
        means = [
            torch.log((c * torch.exp(t * TEMPERATURE * s)).sum() / c.sum()) / (t * TEMPERATURE)
            for t in SHARES
        ]
        found.append(torch.stack([*means, (c * s).sum() / c.sum()]))
    return torch.stack(found)


def refitted(matrix, fits, m, fresh):
    """Mean weights and mean log r, reported and of fresh pairs, with row i counted m[i] times.

    fresh: logits of their pairs, (f,), and of their queries with the candidates, (f, n).
    """
    weights, reported, of_fresh = [], 0.0, []
    for fit in fits:
        level, fresh_level = fit.level, fit.level.new_zeros(len(fresh[0]), len(SHARES) + 1)
        if matrix.levelled:
            level = weighted_levels(matrix.values, matrix.others & fit.rows, m)
            fresh_level = weighted_levels(fresh[1], fit.rows.expand(fresh[1].shape), m)
        row, column = fit.cells.row, fit.cells.column
        cells = Cells(row, column, fit.cells.joint * m[row], fit.cells.product * m[row] * m[column])
        design = matrix.design(cells, level)
        weights.append(
            fit_log_ratio(design, cells.joint, cells.product, odds=fit.odds, start=fit.weights)
        )
        own = matrix.design(matrix.pairs(), level) @ weights[-1]
        reported += float(own[~fit.rows].sum()) / len(m)
        slope, shift, *mix = weights[-1]
        first = fresh_level[:, 0]
        of_fresh.append(
            slope * (fresh[0] - first)
            + shift
            + sum(w * (first - fresh_level[:, k]) for k, w in enumerate(mix, 1))
        )
    return torch.stack(weights).mean(0), reported, float(torch.stack(of_fresh).mean())


def as_critic(fits, on_weights, candidates, names, levelled):
    kept = slice(None if levelled else 0)
    return CalibratedCritic(
        Embeddings(1.0, normalize=False),
        torch.stack([fit.weights for fit in fits]),
        candidates[kept],
        (names % FOLDS)[kept],
        on_weights,
        names,
        queries="x" if levelled else None,
        temperature=TEMPERATURE,
    ).double()


@pytest.mark.parametrize("levelled", [False, True])
def test_influence_is_the_derivative_of_a_weighted_refit(levelled):
    x, y, fresh_x, fresh_y = (
        torch.from_numpy(side)
        for seed in (0, 1)
        for side in towers(ROWS, seed=seed, dim=2, correlation=0.7)[:2]
    )
    names = torch.arange(ROWS) // 2
    matrix = LogitMatrix(x @ y.T, names[:, None] != names, levelled)
    fits = _fit_folds(matrix, names % FOLDS, FOLDS, TEMPERATURE, seed=0)
    on_weights, on_reported = influence(matrix, fits, TEMPERATURE)
    assert on_reported.sum() == pytest.approx(0.0, abs=1e-9)
    of_fresh = as_critic(fits, on_weights, y, names, levelled).influence_on_mean(fresh_x, fresh_y)
    fresh = (fresh_x * fresh_y).sum(1), fresh_x @ y.T
    for row in (0, 17, 40):
        step = torch.zeros(ROWS).double()
        step[row] = 1e-3
        up, down = (refitted(matrix, fits, 1 + sign * step, fresh) for sign in (1, -1))
        weights, reported, other = ((a - b) / 2e-3 for a, b in zip(up, down, strict=True))
        assert on_weights[:, row].mean(0).numpy() == pytest.approx(
            weights.numpy(), rel=2e-2, abs=1e-4
        )
        assert float(on_reported[row]) == pytest.approx(reported, rel=2e-2, abs=1e-5)
        assert float(of_fresh[row]) == pytest.approx(other, rel=2e-2, abs=1e-5)


def test_error_of_a_calibration_is_its_spread():
    """Over repetitions, what calibrations get wrong of the same fresh pairs is what is told."""
    x, y, truth = towers(500, seed=99, dim=2, correlation=0.9)
    scores = []
    for seed in range(40):
        own = towers(200, seed=seed, dim=2, correlation=0.9)[:2]
        model = from_embeddings(*own, normalize=False, progress=False)
        scores.append((float(model.pmi(x, y).mean()) - truth.mean()) / model._doubt(x, y))
    assert 0.7 < float(np.sqrt(np.mean(np.square(scores)))) < 1.35
    others = model.mutual_information(x, y)
    rows = standard_error(model.pmi(x, y).astype(float), None)
    assert others.stderr == pytest.approx(math.hypot(rows, model._doubt(x, y)), rel=1e-4)


def test_the_interval_of_the_calibration_rows_holds_that_error():
    x, y = embeddings(400, dim=5, correlation=0.9)
    model = from_logits(3 * gaussian_log_ratio(x, y, 0.9) - 4, progress=False)
    assert model.oof_values_.mean() == pytest.approx(model.oof_pmi_.mean(), abs=1e-6)
    rows = standard_error(model.oof_pmi_.astype(float), None)
    found = model.mutual_information().stderr
    assert 1.1 < found / math.hypot(rows, model.bias_.stderr) < 1.5
