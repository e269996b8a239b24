"""The closed form of Gaussian pairs against the densities of scipy."""

import math

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.stats import multivariate_normal

from pointdep.core.linear import gaussian_log_ratio, gaussian_mutual_information, gaussian_terms

CORRELATIONS = torch.tensor([0.9, -0.5, 0.1, 0.0], dtype=torch.float64)


def joint_covariance(correlations):
    k = len(correlations)
    cross = np.diag(correlations)
    return np.block([[np.eye(k), cross], [cross, np.eye(k)]])


def test_log_ratio_in_canonical_coordinates():
    rng = np.random.default_rng(0)
    u, v = 2 * rng.standard_normal((2, 50, 4))
    joint = multivariate_normal(cov=joint_covariance(CORRELATIONS.numpy()))
    alone = multivariate_normal(cov=np.eye(4))
    expected = joint.logpdf(np.hstack([u, v])) - alone.logpdf(u) - alone.logpdf(v)
    got = gaussian_log_ratio(torch.from_numpy(u), torch.from_numpy(v), CORRELATIONS)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-10)


def test_log_ratio_of_correlated_blocks_by_whitening():
    """x and y of other dimensions and covariances: the canonical coordinates by hand."""
    rng = np.random.default_rng(1)
    mixing = rng.standard_normal((5, 5))
    covariance = mixing @ mixing.T + 0.5 * np.eye(5)
    xx, yy, xy = covariance[:2, :2], covariance[2:, 2:], covariance[:2, 2:]
    x_root, y_root = linalg.inv(linalg.sqrtm(xx)), linalg.inv(linalg.sqrtm(yy))
    left, rho, right = linalg.svd(x_root @ xy @ y_root, full_matrices=False)
    rows = rng.standard_normal((40, 5))
    u, v = rows[:, :2] @ x_root @ left, rows[:, 2:] @ y_root @ right.T
    expected = (
        multivariate_normal(cov=covariance).logpdf(rows)
        - multivariate_normal(cov=xx).logpdf(rows[:, :2])
        - multivariate_normal(cov=yy).logpdf(rows[:, 2:])
    )
    got = gaussian_log_ratio(torch.from_numpy(u), torch.from_numpy(v), torch.from_numpy(rho))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-8, atol=1e-8)
    entropies = [multivariate_normal(cov=c).entropy() for c in (xx, yy, covariance)]
    mi = gaussian_mutual_information(torch.from_numpy(rho)).item()
    assert mi == pytest.approx(entropies[0] + entropies[1] - entropies[2], rel=1e-9)


@pytest.mark.parametrize("lead", [(), (4,)])
def test_terms_make_the_log_ratio_of_all_pairs(lead):
    """By a loop over pairs; u and v of different numbers, other correlations for each replica."""
    generator = torch.Generator().manual_seed(3)
    u, v = (
        2 * torch.randn(2, *lead, rows, 4, generator=generator, dtype=torch.float64)
        for rows in (3, 5)
    )
    correlations = torch.stack([CORRELATIONS, CORRELATIONS.flip(0)])
    own_u, own_v, cross = gaussian_terms(u, v, correlations)
    assert own_u.shape == (2, *lead, 3)
    assert own_v.shape == (2, *lead, 5)
    assert cross.shape == (2, *lead, 3, 4)
    got = own_u.unsqueeze(-1) + own_v.unsqueeze(-2) + cross @ v.transpose(-1, -2)
    for replica in range(2):
        for i in range(3):
            for j in range(5):
                wanted = gaussian_log_ratio(
                    u[replica, ..., i, :], v[replica, ..., j, :], correlations[replica]
                )
                torch.testing.assert_close(got[replica, ..., i, j], wanted)


def test_mutual_information():
    expected = -0.5 * sum(math.log(1 - r * r) for r in CORRELATIONS.tolist())
    assert gaussian_mutual_information(CORRELATIONS).item() == pytest.approx(expected)
    twenty = torch.full((20,), math.sqrt(1 - math.exp(-0.2)), dtype=torch.float64)
    assert gaussian_mutual_information(twenty).item() == pytest.approx(2.0)
    small = torch.tensor([1e-4])
    assert gaussian_mutual_information(small).item() == pytest.approx(5e-9, rel=1e-4)
