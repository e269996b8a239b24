"""Canonical correlations and the closed form, against numpy, scipy and known populations."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg
from scipy.stats import multivariate_normal

from pointdep.core import linear
from pointdep.core.linear import CrossMoments, canonical_correlations, gaussian_log_ratio

RHO = np.array([0.9, 0.6, 0.3])


def population(rows, rho=RHO, *, dy=4, seed=0):
    """Gaussian pairs x: (rows, len(rho)) and y: (rows, dy) with these canonical correlations."""
    random = np.random.default_rng(seed)
    u, v = random.standard_normal((rows, len(rho))), random.standard_normal((rows, dy))
    v[:, : len(rho)] = rho * u + np.sqrt(1 - rho**2) * v[:, : len(rho)]
    return u @ random.standard_normal((len(rho), len(rho))), v @ random.standard_normal((dy, dy))


def by_numpy(x, y):
    """Singular values of the cross-covariance between sides whitened by Cholesky factors."""
    x, y = x - x.mean(0), y - y.mean(0)
    left, right = (np.linalg.cholesky(side.T @ side / len(side)) for side in (x, y))
    cross = np.linalg.inv(left) @ (x.T @ y / len(x)) @ np.linalg.inv(right).T
    return np.linalg.svd(cross, compute_uv=False)


def analyse(x, y):
    return canonical_correlations(torch.as_tensor(x), torch.as_tensor(y))


def coordinates(found, x, y):
    u = (torch.as_tensor(x) - found.x_mean) @ found.x_weight
    v = (torch.as_tensor(y) - found.y_mean) @ found.y_weight
    return u, v


def log_ratio(found, x, y):
    u, v = coordinates(found, x, y)
    k = len(found.correlations)
    return gaussian_log_ratio(u[:, :k], v[:, :k], found.correlations).numpy()


def test_a_large_sample_gives_the_population():
    found = analyse(*population(20_000, seed=1))
    np.testing.assert_allclose(found.correlations, RHO, atol=0.02)
    u, v = coordinates(found, *population(20_000, seed=1))
    np.testing.assert_allclose(u.T @ u / 20_000, np.eye(3), atol=0.02)
    np.testing.assert_allclose(v.T @ v / 20_000, np.eye(4), atol=0.02)
    np.testing.assert_allclose(u.T @ v / 20_000, np.eye(3, 4) * RHO[:, None], atol=0.02)


@pytest.mark.parametrize("rows", [40, 100, 400])
def test_correlations_never_exceed_those_of_the_rows_at_hand(rows):
    x, y = population(rows, seed=2)
    inside, outside = by_numpy(x, y), analyse(x, y).correlations.numpy()
    found = linear.sample_correlations(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    np.testing.assert_allclose(found, inside, rtol=1e-9)
    assert (outside <= inside + 1e-12).all()
    assert outside.sum() < inside.sum() - 0.001


def test_on_average_they_are_what_other_rows_show():
    """Fitted on 200 rows and measured on thousands: the correlations of the coordinates found."""
    told, shown, naive = [], [], []
    for seed in range(12):
        x, y = population(4000, np.r_[0.7, np.zeros(9)], dy=10, seed=seed)
        found = analyse(x[:200], y[:200])
        u, v = coordinates(found, x[200:], y[200:])
        told.append(float(found.correlations[0]))
        shown.append(np.corrcoef(u[:, 0], v[:, 0])[0, 1])
        naive.append(by_numpy(x[:200], y[:200])[0])
    assert np.mean(told) == pytest.approx(np.mean(shown), abs=0.03)
    assert np.mean(naive) > np.mean(shown) + 0.06
    # Independent sides have next to none: one passes two standard errors by chance now and then.
    kept, naive = [], []
    for seed in range(40):
        x, y = np.random.default_rng(seed).standard_normal((2, 500, 4))
        kept.append(analyse(x, y).correlations.numpy())
        naive.append(by_numpy(x, y))
    kept, naive = np.stack(kept), np.stack(naive)
    assert (kept == 0).mean() > 0.85
    assert kept.max() < 0.2
    assert np.square(kept).mean() < 0.2 * np.square(naive).mean()


@pytest.mark.parametrize(
    ("x_columns", "y_columns"), [([0, 1, 2, 0], [0, 1, 2, 3]), ([0, 1, 2], [3, 3, 3, 1])]
)
def test_repeated_columns_add_nothing(x_columns, y_columns):
    x, y = population(300)
    once, repeated = (x, y[:, sorted(set(y_columns))]), (x[:, x_columns], y[:, y_columns])
    whole, found = analyse(*once), analyse(*repeated)
    k = len(whole.correlations)
    np.testing.assert_allclose(found.correlations[:k], whole.correlations, atol=1e-6)
    wanted = log_ratio(whole, *once)
    np.testing.assert_allclose(log_ratio(found, *repeated), wanted, atol=1e-5)


@pytest.mark.parametrize(("rows", "dx", "dy"), [(20, 50, 30), (6, 3, 3), (4, 1, 1), (30, 250, 2)])
def test_more_columns_than_rows_stay_finite(rows, dx, dy):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((rows, dx)), random.standard_normal((rows, dy))
    found = analyse(x, y)
    for part in (found.x_weight, found.y_weight, found.correlations):
        assert torch.isfinite(part).all()
    assert found.x_weight.shape[1] <= max(1, 0.3 * rows)
    assert 0 <= found.correlations.min() <= found.correlations.max() < 1
    assert np.isfinite(log_ratio(found, x, y)).all()


def test_sides_that_are_constant_or_determine_each_other_stay_finite():
    x, y = population(50)
    x[:, 1], y[:] = 3.0, 5.0
    found = analyse(x, y)
    assert float(found.correlations.max()) == 0.0
    np.testing.assert_allclose(log_ratio(found, x, y), 0.0, atol=1e-12)
    x, _ = population(200)
    found = analyse(x, x @ np.diag([1.0, 2.0, 3.0]))
    assert 0.999 < float(found.correlations.min()) <= float(found.correlations.max()) < 1.0
    assert np.isfinite(log_ratio(found, x, x)).all()
    # Categories that one row of 50 has: where it is left out, their columns do not vary.
    x, y = population(50)
    x = np.column_stack([x, np.eye(50)[:, :3]])
    found = analyse(x, y)
    assert torch.isfinite(found.x_weight).all()
    assert np.abs(log_ratio(found, x, y)).max() < 50


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["x", "y", "both"]))
def test_invertible_linear_maps_leave_the_log_ratio(seed, side):
    random = np.random.default_rng(seed)
    x, y = population(120, seed=5)
    wanted = log_ratio(analyse(x, y), x, y)

    def turned(rows):
        dim = rows.shape[1]
        left, right = (np.linalg.qr(random.standard_normal((dim, dim)))[0] for _ in range(2))
        return rows @ (left * random.uniform(0.2, 5.0, dim)) @ right + random.uniform(-9, 9, dim)

    x = turned(x) if side in {"x", "both"} else x
    y = turned(y) if side in {"y", "both"} else y
    np.testing.assert_allclose(log_ratio(analyse(x, y), x, y), wanted, atol=1e-6)


def test_rows_of_one_group_are_left_out_together():
    """Five copies of each row, in another order, say what the rows say."""
    x, y = population(60, np.array([0.7, 0.0, 0.0]), seed=4)
    number, wanted = np.random.default_rng(0).permutation(np.arange(300) % 60), analyse(x, y)
    found = canonical_correlations(*map(torch.from_numpy, (x[number], y[number], number)))
    np.testing.assert_allclose(found.correlations, wanted.correlations, atol=1e-10)
    np.testing.assert_allclose(log_ratio(found, x, y), log_ratio(wanted, x, y), atol=1e-8)
    leaking = float(analyse(x[number], y[number]).correlations.sum())
    assert leaking > float(wanted.correlations.sum()) + 0.1
    assert leaking == pytest.approx(by_numpy(x, y).sum(), abs=0.2)


# Canonical analysis by sums, against that of the rows themselves.


def rows(count, dx, dy, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z, sides = torch.randn(count, 2, generator=generator, dtype=torch.float64), []
    for dim in (dx, dy):
        mixing = torch.randn(2, dim, generator=generator, dtype=torch.float64)
        sides.append(3.0 + z @ mixing + torch.randn(count, dim, generator=generator).double())
    return sides


@pytest.mark.parametrize(
    ("count", "dx", "dy"), [(500, 4, 3), (400, 2, 6), (1000, 210, 5), (60, 30, 8)]
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_the_same_as_of_the_rows(count, dx, dy, pieces):
    x, y = rows(count, dx, dy)
    wanted, parts = canonical_correlations(x, y), linear.part_count(dx, dy)
    number, draws = linear._parts(count, parts, None)
    sums = []
    for part in range(parts):
        one = CrossMoments.zero(dx + dy, torch.device("cpu"))
        for some in torch.cat([x, y], 1)[number == part].chunk(pieces):
            one = one.add_(some)
        sums.append(one)
    found = linear.canonical_from_moments(sums, dx, draws)
    torch.testing.assert_close(found.correlations, wanted.correlations, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.x_mean, wanted.x_mean)
    k = int((wanted.correlations > 0.05).sum())
    for got, want in ((found.x_weight, wanted.x_weight), (found.y_weight, wanted.y_weight)):
        sign = (got[:, :k] * want[:, :k]).sum(0).sign()
        torch.testing.assert_close(got[:, :k] * sign, want[:, :k], rtol=1e-5, atol=1e-7)


def test_one_part_alone_has_nothing_left_out():
    one = CrossMoments.zero(6, torch.device("cpu")).add_(torch.cat(rows(200, 3, 3), 1))
    assert not linear.canonical_from_moments([one], 3, 200).correlations.any()


# The closed form of Gaussian pairs against the densities of scipy.
CORRELATIONS = torch.tensor([0.9, -0.5, 0.1, 0.0], dtype=torch.float64)


def test_log_ratio_and_mutual_information_in_canonical_coordinates():
    u, v = 2 * np.random.default_rng(0).standard_normal((2, 50, 4))
    one, cross = np.eye(4), np.diag(CORRELATIONS.numpy())
    joint = multivariate_normal(cov=np.block([[one, cross], [cross, one]]))
    alone = multivariate_normal(cov=np.eye(4))
    expected = joint.logpdf(np.hstack([u, v])) - alone.logpdf(u) - alone.logpdf(v)
    got = gaussian_log_ratio(torch.from_numpy(u), torch.from_numpy(v), CORRELATIONS)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-10)
    expected = -0.5 * sum(math.log(1 - r * r) for r in CORRELATIONS.tolist())
    assert linear.gaussian_mutual_information(CORRELATIONS).item() == pytest.approx(expected)
    twenty = torch.full((20,), math.sqrt(1 - math.exp(-0.2)), dtype=torch.float64)
    assert linear.gaussian_mutual_information(twenty).item() == pytest.approx(2.0)
    small = torch.tensor([1e-4])
    assert linear.gaussian_mutual_information(small).item() == pytest.approx(5e-9, rel=1e-4)


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
    mi = linear.gaussian_mutual_information(torch.from_numpy(rho)).item()
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
    own_u, own_v, cross = linear.gaussian_terms(u, v, correlations)
    assert (own_u.shape, own_v.shape) == ((2, *lead, 3), (2, *lead, 5))
    assert cross.shape == (2, *lead, 3, 4)
    got = own_u.unsqueeze(-1) + own_v.unsqueeze(-2) + cross @ v.transpose(-1, -2)
    for r, i, j in itertools.product(range(2), range(3), range(5)):
        wanted = gaussian_log_ratio(u[r, ..., i, :], v[r, ..., j, :], correlations[r])
        torch.testing.assert_close(got[r, ..., i, j], wanted)


@pytest.mark.parametrize(("dx", "dy", "rows"), [(1, 1, 60), (3, 4, 40), (20, 10, 80)])
def test_excess_and_error_of_independent_samples(dx, dy, rows):
    """Against the Gaussian MI of 400 samples; sqrt(dx dy / 2) / rows to first order."""
    random = np.random.default_rng(0)
    draws = (random.standard_normal((2, rows, max(dx, dy))) for _ in range(400))
    found = [-0.5 * np.log1p(-(by_numpy(x[:, :dx], y[:, :dy]) ** 2)).sum() for x, y in draws]
    spread = linear.wishart_stderr(dx, dy, rows)
    assert np.mean(found) == pytest.approx(linear.wishart_excess(dx, dy, rows), abs=spread / 5)
    assert np.std(found) == pytest.approx(spread, rel=0.15)
    many = 10**6 * rows
    assert linear.wishart_stderr(dx, dy, many) == pytest.approx(
        (dx * dy / 2) ** 0.5 / many, rel=1e-3
    )


@pytest.mark.parametrize("copies", [1, 3])
def test_a_group_of_copies_is_one_draw_and_one_of_other_rows_is_several(copies):
    x, y = (torch.from_numpy(side) for side in population(300))
    rows, alone = torch.arange(300).repeat_interleave(copies), linear.gaussian_sample(x, y)
    found = linear.gaussian_sample(x[rows], y[rows], rows)
    assert (found.draws, found.excess) == (pytest.approx(300), pytest.approx(alone.excess))
    apart = linear.gaussian_sample(x, y, torch.arange(300) % 150)
    assert apart.draws == pytest.approx(300, rel=0.15)
    assert linear.gaussian_sample(x[:8], y[:8]) is None  # 7 columns take 9 rows


@pytest.mark.parametrize("grouped", [False, True])
def test_the_screen_passes_correlated_columns_alone(grouped):
    random = np.random.default_rng(0)
    x, y = (torch.from_numpy(side) for side in random.standard_normal((2, 400, 90)))
    y[:, :3] += x[:, 5:8]
    x[:, 20] = 1.0  # without variance
    rows = torch.arange(400).repeat_interleave(1 + grouped)
    groups = rows if grouped else None
    own_x, own_y = linear.screened_columns(x[rows], y[rows], groups)
    assert own_x.nonzero().flatten().tolist() == [5, 6, 7]
    assert own_y.nonzero().flatten().tolist() == [0, 1, 2]
    found = linear.screened_correlations(x[rows], y[rows], groups)
    wanted = canonical_correlations(x[rows][:, 5:8], y[rows][:, :3], groups)
    torch.testing.assert_close(found.correlations, wanted.correlations)
    torch.testing.assert_close(found.x_weight[5:8], wanted.x_weight)
    assert not found.x_weight[:5].any()
    assert not linear.screened_correlations(x[:, 50:], y[:, 50:]).correlations.any()


def labelled(rows=4000, categories=520, dim=3, seed=0):
    """Indicators of a label, and numbers around a mean for each category."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, categories, rows)
    means = random.standard_normal((categories, dim))
    x = np.eye(categories, dtype=np.float32)[codes]
    return torch.from_numpy(x), torch.from_numpy(means[codes] + random.standard_normal((rows, dim)))


def test_a_label_is_analysed_by_means_as_its_indicators_would_be():
    x, y = labelled()
    full = linear._analyse(x.double(), y, 1.0)  # with all directions of the indicators
    by_means = linear._analyse_label(x.argmax(1), x.shape[1], y)
    np.testing.assert_allclose(by_means.correlations, full.correlations, rtol=1e-9)
    for one, other in zip(
        coordinates(full, x.double(), y), coordinates(by_means, x, y), strict=True
    ):
        signs = (one[:, :3] * other[:, :3]).mean(0).sign()
        np.testing.assert_allclose(one[:, :3] * signs, other[:, :3], atol=1e-6)
    found = linear.economical([canonical_correlations], x, y, None)[0]
    expected = canonical_correlations(x, y)  # rows are enough for all directions here
    np.testing.assert_allclose(found.correlations, expected.correlations, rtol=1e-3)
    turned = linear.economical([canonical_correlations], y, x, None)[0]
    np.testing.assert_allclose(turned.y_weight, found.x_weight)
    np.testing.assert_allclose(turned.correlations, found.correlations)


def test_of_numbers_and_very_many_categories_the_rarest_are_left_out():
    x, y = labelled()
    numbers = y[:, :1] + 0.1 * torch.randn(len(y), 1, generator=torch.Generator().manual_seed(0))
    both = torch.cat([x.double(), numbers], 1)
    found = linear.economical([canonical_correlations], both, y, None)[0]
    used = found.x_weight.abs().sum(1) > 0
    assert int(used.sum()) == 257
    assert bool(used[-1])
    counts = x.sum(0)
    assert counts[used[:-1]].min() >= counts[~used[:-1]].max()
    assert found.correlations[0] > 0.95
    few = both[:, -300:]
    (one,), other = linear.economical([canonical_correlations], few, y, None), analyse(few, y)
    np.testing.assert_array_equal(one.x_weight, other.x_weight)
