"""The logistic recalibration of a log-ratio."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pointdep.inference.moment_tests import arrange, recalibrate

from .test_balances import exact_table


@pytest.mark.parametrize("center", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize(("shift", "slope"), [(0.0, 1.0), (-0.4, 1.0), (0.3, 0.7), (1.0, 1.5)])
def test_it_undoes_a_move_and_a_stretch(shift, slope, center):
    log_ratio, joint, product = exact_table(3, size=8)
    distorted = center + (log_ratio - center - shift) / slope
    found = recalibrate(arrange(distorted, joint, product), center)
    assert found.slope == pytest.approx(slope, abs=1e-6)
    assert found.shift == pytest.approx(shift, abs=1e-6)
    mended = found.intercept + found.slope * distorted
    torch.testing.assert_close(mended, log_ratio, atol=1e-5, rtol=0)


@pytest.mark.parametrize("offset", [-2.0, 0.0, 1.0])
def test_it_is_weighted_logistic_regression(offset):
    generator = torch.Generator().manual_seed(2)
    eye = torch.eye(50, dtype=torch.float64)[None]
    scores = torch.randn(1, 50, 50, generator=generator, dtype=torch.float64) + 1.5 * eye
    found = recalibrate(arrange(scores, eye, 1 - eye), 0.5, offset)
    values, label = scores.flatten().numpy() - 0.5, eye.flatten().numpy()
    weight = np.where(label > 0, 1 / 50, np.exp(0.5 - offset) / (50 * 49))
    wanted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    wanted.fit(values[:, None], label, sample_weight=1e4 * weight)
    assert found.slope == pytest.approx(wanted.coef_[0, 0], abs=1e-4)
    assert found.shift == pytest.approx(wanted.intercept_[0] - offset, abs=1e-4)


def test_the_errors_are_those_of_repeated_draws():
    found = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        x = random.normal(size=400)
        y = 0.8 * x + 0.6 * random.normal(size=400)
        square = 0.64 / 0.36 * (x[:, None] ** 2 + y**2) - 2 * 0.8 / 0.36 * x[:, None] * y
        log_ratio = torch.from_numpy(-0.5 * np.log(0.36) - 0.5 * square)[None]
        eye = torch.eye(400, dtype=torch.float64)[None]
        found.append(recalibrate(arrange(log_ratio, eye, 1 - eye), 0.5))
    for name, truth in (("shift", 0.0), ("slope", 1.0)):
        values = np.array([getattr(each, name) for each in found])
        errors = np.array([getattr(each, f"{name}_stderr") for each in found])
        assert values.std() == pytest.approx(errors.mean(), rel=0.35)
        assert abs(values.mean() - truth) < 4 * errors.mean() / np.sqrt(len(found))


def test_nothing_is_fitted_where_nothing_can_be():
    eye = torch.eye(60, dtype=torch.float64)[None]
    assert recalibrate(arrange(torch.zeros_like(eye), eye, 1 - eye), 0.0) is None
    assert recalibrate(arrange(40 * eye - 20, eye, 1 - eye), 0.0) is None
