"""From mismatched pairs and PMI to the probability of a chance pair: by loops and known truth."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pointdep import PointwiseDependency
from pointdep.auditing.decision import (
    estimate_contamination,
    mismatched_shares,
    most_by_chance,
    observed_ratio,
    posteriors,
    q_values,
)
from pointdep.auditing.evidence import HeldRows, find_standings, mismatched_pairs
from pointdep.fitting.progress import Silent
from pointdep.inference.scoring import score_matrix

# Whole numbers, so that pairs tie with each other and with mismatched pairs.
whole = st.lists(st.integers(-6, 6), min_size=1, max_size=40).map(lambda v: np.array(v, float))
hundredths = st.lists(st.integers(1, 99), min_size=1, max_size=60)
shares_of_pairs = hundredths.map(lambda v: np.array(v) / 100)
CURVES = [np.sinh, lambda v: v**3, lambda v: 7.0 * v, lambda v: np.where(v > 0, 0.1, 3.0) * v]


def drawn_shares(eps, genuine, rows, random):
    """(rows,): a share eps uniform, the others as `genuine` draws them."""
    chance = random.random(rows) < eps
    return np.where(chance, random.random(rows), genuine(rows))


class TestMismatchedShares:
    @settings(deadline=None)
    @given(whole, whole)
    def test_by_a_loop(self, pmi, mismatched):
        pmi, count = np.concatenate([pmi, [-1e9, 1e9]]), len(mismatched)
        wanted = [(sum(other <= own for other in mismatched) + 0.5) / (count + 1) for own in pmi]
        found = mismatched_shares(pmi, mismatched)
        np.testing.assert_allclose(found, wanted)
        assert 0.0 < found.min() < found.max() < 1.0

    @settings(deadline=None)
    @given(whole, whole, st.sampled_from(CURVES))
    @example(np.array([0.0] * 10 + [-1.0]), np.array([0.0]), np.sinh)
    def test_a_rising_curve_of_pmi_changes_no_share(self, pmi, mismatched, bend):
        """Shares are of the order alone. PMI itself may only acquit, and less the lower it is."""
        shares = mismatched_shares(pmi, mismatched)
        np.testing.assert_array_equal(mismatched_shares(bend(pmi), bend(mismatched)), shares)
        counted = np.minimum(0.1 / observed_ratio(shares), 1.0)
        straight, bent = (posteriors(values, shares, 0.1) for values in (pmi, bend(pmi)))
        assert (np.maximum(straight, bent) <= counted * (1 + 1e-9)).all()
        lower = bend(pmi) < pmi
        assert (bent >= straight * (1 - 1e-9))[lower].all()
        assert (bent <= straight * (1 + 1e-9))[~lower].all()

    def test_chance_pairs_are_uniform(self):
        random = np.random.default_rng(0)
        shares = mismatched_shares(random.normal(size=4000), random.normal(size=50_000))
        counts = np.histogram(shares, bins=20, range=(0, 1))[0]
        assert np.square(counts - 200).sum() / 200 < 43.8  # chi-squared of 19, one in a thousand


class TestContamination:
    @pytest.mark.parametrize("eps", [0.03, 0.1, 0.3])
    @pytest.mark.parametrize("rows", [1500, 5000])
    def test_where_good_pairs_are_never_low(self, eps, rows):
        random = np.random.default_rng(rows)
        high = partial(random.uniform, 0.99, 1.0)
        drawn = [drawn_shares(eps, high, rows, random) for _ in range(100)]
        found = [estimate_contamination(shares) for shares in drawn]
        shares = np.array([one.share for one in found])
        # The least of many noisy densities lies somewhat below their common expectation.
        assert 0.8 * eps < shares.mean() < 1.2 * eps
        assert np.mean([one.share + 2 * one.stderr > eps for one in found]) > 0.8
        assert np.median([one.stderr for one in found]) < 0.3 * eps + 0.01
        assert not any(one.given for one in found)

    @pytest.mark.parametrize("eps", [0.03, 0.1, 0.3])
    def test_an_upper_bound_where_good_pairs_are_sometimes_low(self, eps):
        """The density of good pairs is 1.3 t^0.3, above zero all over."""
        random = np.random.default_rng(1)
        risen = partial(random.beta, 1.3, 1.0)
        drawn = [drawn_shares(eps, risen, 2000, random) for _ in range(50)]
        found = [estimate_contamination(shares).share for shares in drawn]
        assert np.mean(found) > eps
        assert min(found) > 0.8 * eps
        assert max(found) <= 1.0

    @pytest.mark.parametrize("eps", [0.05, 0.2])
    def test_pairs_of_five_symbols(self, eps):
        """There are two values of PMI: pairs that tie are counted together."""
        random = np.random.default_rng(2)
        y = random.integers(0, 5, 4000)
        x = np.where(random.random(4000) < eps, random.integers(0, 5, 4000), y)
        low, high = math.log(eps), math.log(eps + (1 - eps) * 5)
        pmi = np.where(x == y, high, low)
        mismatched = np.where(random.permutation(x) == y, high, low)
        shares = mismatched_shares(pmi, mismatched)
        below = mismatched_shares(pmi, mismatched, below=True)
        assert estimate_contamination(shares, below).share == pytest.approx(eps, rel=0.15)
        assert most_by_chance(shares).share == pytest.approx(eps, rel=0.15)
        posterior = posteriors(pmi, shares, eps)
        # Unequal symbols only meet by chance; of equal ones eps / 5 did, of all eps / 5 + 1 - eps.
        np.testing.assert_allclose(posterior[pmi == low], 1.0, atol=0.15)
        np.testing.assert_allclose(posterior[pmi == high], eps / (5 - 4 * eps), rtol=0.05)

    def test_by_hand(self):
        """Forty pairs, of which the first thirty lie closest together at 0.5."""
        shares = np.concatenate([np.linspace(0.1, 0.5, 30), np.full(10, 0.9)])
        # 30 of 40 up to 0.5, and all 40 up to 0.9: 1.5 and 1.11, and never above one.
        assert most_by_chance(shares).share == 1.0
        found = most_by_chance(np.concatenate([np.linspace(0.9, 0.95, 30), np.full(10, 0.99)]))
        assert found.share == pytest.approx(30 / (40 * 0.95))
        assert found.stderr == pytest.approx(30 / (40 * 0.95) / math.sqrt(30))
        found = most_by_chance(np.array([0.9, 0.99]))
        assert (found.share, found.stderr) == (1.0, pytest.approx(1 / math.sqrt(2)))
        found = estimate_contamination(np.array([0.9, 0.99]))
        assert found.share == pytest.approx(1 / (2 * 0.9))

    @pytest.mark.parametrize("eps", [0.05, 0.1])
    def test_a_density_that_falls_to_zero_is_followed_there(self, eps):
        """Of shares at the quantiles of eps t + (1 - eps) t^2 the density up to t is a line."""
        levels, slope = np.arange(1, 20_001) / 20_000, 1 - eps
        shares = (np.sqrt(eps**2 + 4 * slope * levels) - eps) / (2 * slope)
        assert eps + slope * shares[29] > 1.05 * eps
        assert estimate_contamination(shares).share == pytest.approx(eps, rel=1e-6)
        # Up to t the density of the quantiles of t^3 is t^2: a line through it goes below 0, and
        # is not followed below a quarter.
        shares = (np.arange(1, 100_001) / 100_000) ** (1 / 3)
        assert estimate_contamination(shares).share == pytest.approx(0.25 * shares[29] ** 2)

    @pytest.mark.parametrize("wrong", [0, 2, 5, 29])
    def test_pairs_above_all_mismatched_ones(self, wrong):
        """They tie, and the others alone say how many there are by chance."""
        levels = (np.arange(wrong) + 0.5) / max(wrong, 1)
        shares = mismatched_shares(np.append(levels, np.full(400, 2.0)), np.linspace(0, 1, 5000))
        assert most_by_chance(shares).share == pytest.approx(1.0, abs=0.001)
        found, rows = estimate_contamination(shares), 400 + wrong
        densities = {end: (sum(shares < end) + 1) / (rows * end) for end in shares if end >= 0.5}
        assert found.share == pytest.approx(min(densities.values()))
        assert found.share == pytest.approx((wrong + 1) / rows, rel=0.5)
        counted = sum(shares < min(densities, key=densities.get)) + 1
        assert found.stderr == pytest.approx(found.share / math.sqrt(counted))


def hull_slopes(shares):
    """Slopes of the greatest convex function below the points of the distribution, by hand.

    The lower convex hull of (0, 0), (t, share of pairs up to t) and (1, 1), corner after corner:
    the next one is where the line from this one rises least.
    """
    steps = [(t, float((shares <= t).mean())) for t in sorted(set(shares.tolist()))]
    points, corners, at = [(0.0, 0.0), *steps, (1.0, 1.0)], [], 0
    while at < len(points) - 1:
        slopes = [(b - points[at][1]) / (a - points[at][0]) for a, b in points[at + 1 :]]
        least = min(slopes)
        following = max(k for k, s in enumerate(slopes) if s <= least + 1e-12) + at + 1
        corners.append((points[at][0], points[following][0], least))
        at = following
    return corners


class TestObservedRatio:
    @settings(deadline=None)
    @given(shares_of_pairs)
    def test_the_hull_by_hand(self, shares):
        assert 0 < estimate_contamination(shares).share <= most_by_chance(shares).share <= 1
        corners = hull_slopes(shares)
        assert sum((b - a) * slope for a, b, slope in corners) == pytest.approx(1.0)
        wanted = [next(s for a, b, s in corners if a < share <= b) for share in shares]
        found = observed_ratio(shares)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
        order = np.argsort(shares)
        ratio = found[order]
        assert (np.diff(ratio) >= -1e-12).all()
        assert (ratio >= 0).all()
        assert (np.diff(np.concatenate([[0.0], shares[order]])) * ratio).sum() <= 1.0 + 1e-9

    def test_a_density_that_is_known(self):
        """0.1 + 0.9 * 5 t^4."""
        random = np.random.default_rng(0)
        shares = drawn_shares(0.1, lambda n: random.beta(5.0, 1.0, n), 20_000, random)
        wanted, middle = 0.1 + 4.5 * shares**4, (shares > 0.2) & (shares < 0.95)
        error = np.abs(observed_ratio(shares) / wanted - 1)[middle]
        assert error.mean() < 0.05
        assert error.max() < 0.5


class TestPosteriors:
    @settings(deadline=None)
    @given(whole, whole, st.floats(0.001, 0.999))
    def test_a_probability_that_falls_with_pmi(self, pmi, mismatched, eps):
        pmi, mismatched = 0.5 * pmi, 0.5 * mismatched
        found = posteriors(pmi, mismatched_shares(pmi, mismatched), eps)
        assert ((found >= 0) & (found <= 1)).all()
        assert (np.diff(found[np.argsort(pmi)]) <= 1e-12).all()
        above = pmi > 0
        assert (found[above] <= np.minimum(1.0, eps / np.exp(pmi[above])) + 1e-12).all()

    def test_more_contamination_more_doubt_and_a_pair_unlike_all_others(self):
        random = np.random.default_rng(0)
        pmi, mismatched = random.normal(1, 1, 300), random.normal(-2, 2, 3000)
        shares = mismatched_shares(pmi, mismatched)
        low, high = (posteriors(pmi, shares, eps) for eps in (0.01, 0.1))
        assert (low <= high).all()
        doubtful = high < 1
        np.testing.assert_allclose(low[doubtful], 0.1 * high[doubtful])
        # Its PMI is low with everything, but least low with its partner.
        random = np.random.default_rng(0)
        mismatched, standings = random.normal(-8, 3, 20_000), random.random(20_000)
        pmi = np.concatenate([random.normal(3, 1, 970), random.normal(-8, 3, 30)])
        standing = np.concatenate([random.uniform(0.97, 1.0, 970), random.random(30)])
        pmi[0], standing[0] = -20.0, 1.0
        shares, beside = mismatched_shares(pmi, mismatched), mismatched_shares(standing, standings)
        assert posteriors(pmi, shares, 0.03)[0] > 0.5
        found = posteriors(pmi, shares, 0.03, beside)
        assert found[0] < 0.01
        assert found[970:].mean() > 0.6


class TestQValues:
    @settings(deadline=None)
    @given(whole, st.integers(0, 2**32 - 1))
    def test_the_running_mean_by_hand(self, pmi, seed):
        """Of all pairs with a higher posterior, or as high a one and at most this PMI."""
        random = np.random.default_rng(seed)
        for posterior in (random.integers(0, 5, len(pmi)) / 4, random.random(len(pmi))):
            found, rows = q_values(pmi, posterior), list(zip(posterior, pmi, strict=True))
            wanted = [
                np.mean([1 - p for p, m in rows if p > own or (p == own and m <= value)])
                for own, value in rows
            ]
            np.testing.assert_allclose(found, wanted, atol=1e-12)
        assert (np.diff(found[np.argsort(-posterior)]) >= -1e-12).all()
        assert ((found >= 0) & (found <= 1)).all()


def log_ratio(x, y, rho):
    """Of Gaussian pairs, summed over the columns."""
    rest = 1 - rho**2
    exponent = (rho**2 * (x**2 + y**2) - 2 * rho * x * y) / (2 * rest)
    return (-0.5 * math.log(rest) - exponent).sum(-1)


@pytest.mark.parametrize(("eps", "rho", "columns"), [(0.05, 0.95, 3), (0.1, 0.8, 5), (0.3, 0.9, 3)])
def test_the_share_of_good_pairs_among_suspects(eps, rho, columns):
    """The PMI is exact, eps is known: at fdr 0.1 no more than a tenth of the suspects are good."""
    random = np.random.default_rng(0)
    good, recall = [], []
    for _ in range(40):
        x, noise, other = random.normal(size=(3, 1000, columns))
        chance = random.random(1000) < eps
        y = np.where(chance[:, None], other, rho * x + math.sqrt(1 - rho**2) * noise)
        turned = np.stack([np.roll(y, k, 0) for k in range(1, 11)])
        # What a perfect fit to these data gives: chance pairs are among them.
        pmi, mismatched = (
            np.log(eps + (1 - eps) * np.exp(log_ratio(x, side, rho))) for side in (y, turned)
        )
        shares = mismatched_shares(pmi, mismatched.ravel())
        suspect = q_values(pmi, posteriors(pmi, shares, eps)) <= 0.1
        good.append(np.mean(~chance[suspect]) if suspect.any() else 0.0)
        recall.append(np.mean(suspect[chance]))
    assert np.mean(good) < 0.1 + 2 * np.std(good) / math.sqrt(40)
    assert np.mean(recall) > 0.4


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(1, 6))
def test_standings_by_hand(seed, blocks, rows):
    random = np.random.default_rng(seed)
    pmi = random.integers(0, 4, (blocks, rows, rows)).astype(np.float32)
    others = random.random((blocks, rows, rows)) < 0.7
    found = find_standings(torch.from_numpy(pmi), torch.from_numpy(others)).numpy()
    for g, i, j in np.ndindex(pmi.shape):
        sides = [(pmi[g, i], others[g, i]), (pmi[g, :, j], others[g, :, j])]
        shares = [np.mean(v[there] <= pmi[g, i, j]) if there.any() else 0.0 for v, there in sides]
        assert found[g, i, j] == pytest.approx(max(shares))


@pytest.mark.filterwarnings("ignore:wide_interval")  # of so few rows
def test_every_row_by_the_model_that_did_not_see_it():
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 2))
    y = x + 0.3 * random.normal(size=(150, 2))
    options = {"hidden": (16,), "max_epochs": 40, "folds": 3, "device": "cpu", "progress": False}
    fitted = PointwiseDependency(**options, random_state=0).fit(x, y)
    rows = fitted.training_rows_.paired
    held, total = HeldRows(fitted.model_, rows), 0
    found = held.mismatched(Silent())
    for replica, split in enumerate(rows.splits):
        part, one = torch.from_numpy(split.report), fitted.model_.select([replica])
        matrix = score_matrix(one, rows.x[part], rows.y[part])  # one block holds them all
        off = ~np.eye(len(part), dtype=bool)
        for k, row in enumerate(split.report):
            of_x = np.mean(matrix[k][off[k]] <= matrix[k, k])
            of_y = np.mean(matrix[:, k][off[k]] <= matrix[k, k])
            assert found.standing[row] == pytest.approx(max(of_x, of_y), abs=1e-6)
        total += off.sum()
    assert len(found.pmi) == len(found.standings) == total
    groups = torch.arange(150) // 2  # rows of one group are not mismatched
    found = mismatched_pairs(fitted.model_, rows.x, rows.y, held.fold, rows.seed, groups)
    pairs = sum(int((groups[s.report][:, None] != groups[s.report]).sum()) for s in rows.splits)
    assert len(found.pmi) == pairs
