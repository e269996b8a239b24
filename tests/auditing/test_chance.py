"""From mismatched pairs and PMI to the probability of a chance pair: by loops and known truth."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep import PointwiseDependency
from pointdep.auditing.decision import (
    fit_ratio,
    mismatched_shares,
    observed_ratio,
    posteriors,
    q_values,
    unlike_others,
)
from pointdep.auditing.evidence import HeldRows, find_standings, mismatched_pairs
from pointdep.fitting.progress import Silent
from pointdep.inference.scoring import score_matrix

# Whole numbers, so that pairs tie with each other and with mismatched pairs.
whole = st.lists(st.integers(-6, 6), min_size=1, max_size=40).map(lambda v: np.array(v, float))
hundredths = st.lists(st.integers(1, 99), min_size=1, max_size=60)
shares_of_pairs = hundredths.map(lambda v: np.array(v) / 100)


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

    def test_chance_pairs_are_uniform(self):
        random = np.random.default_rng(0)
        shares = mismatched_shares(random.normal(size=4000), random.normal(size=50_000))
        counts = np.histogram(shares, bins=20, range=(0, 1))[0]
        assert np.square(counts - 200).sum() / 200 < 43.8  # chi-squared of 19, one in a thousand


def drawn_pmi(eps, shift, rows, random):
    """PMI of pairs of which a share eps is as mismatched ones are, and of mismatched pairs.

    Mismatched pairs are normal with spread 3, and the density of right pairs is `shift` exponential
    of PMI times theirs: a normal one further up.
    """
    wrong = np.arange(rows) < round(eps * rows)
    pmi = random.normal(np.where(wrong, 0.0, 9.0 * shift), 3.0)
    return pmi, random.normal(0.0, 3.0, 20_000), wrong


class TestFitRatio:
    @pytest.mark.parametrize("eps", [0.02, 0.1, 0.3])
    @pytest.mark.parametrize("shift", [1.0, 1.5])
    def test_the_share_of_chance_pairs(self, eps, shift):
        random = np.random.default_rng(3)
        drawn = [drawn_pmi(eps, shift, 3000, random)[:2] for _ in range(8)]
        found = [fit_ratio(pmi, mismatched) for pmi, mismatched in drawn]
        shares = np.array([one.share for one in found])
        assert 0.8 * eps < shares.mean() < 1.1 * eps
        stderr = np.median([one.stderr for one in found])
        assert 0.5 * shares.std() < stderr < 0.6 * eps

    def test_the_curve_of_normal_pairs(self):
        """eps + (1 - eps) exp(PMI - its mean over mismatched pairs), which is known."""
        pmi, mismatched, _ = drawn_pmi(0.05, 1.0, 50_000, np.random.default_rng(4))
        curve, at = fit_ratio(pmi, mismatched), np.array([-9.0, -3.0, 0.0, 3.0, 4.5])
        wanted = 0.05 + 0.95 * np.exp(at - 4.5)
        np.testing.assert_allclose(curve(at), wanted, rtol=0.15)
        assert curve.slopes[2] == 1.0  # PMI is right
        ratio = curve(np.linspace(-30, 30, 500))
        assert (np.diff(ratio) >= 0).all()
        assert np.isfinite(curve(np.array([-np.inf, np.inf]))).all()

    def test_pmi_that_ends_at_the_share(self):
        """As of a perfect fit: log(eps + (1 - eps) r) of Gaussian pairs, whose eps is its end."""
        random = np.random.default_rng(5)
        x, noise, other = random.normal(size=(3, 2000, 4))
        chance = np.arange(2000) < 200
        y = np.where(chance[:, None], other, 0.9 * x + math.sqrt(0.19) * noise)
        sides = y, np.concatenate([np.roll(y, k, 0) for k in (1, 2, 3)])
        exact = [log_ratio(np.resize(x, side.shape), side, 0.9) for side in sides]
        curve = fit_ratio(*(np.log(0.1 + 0.9 * np.exp(pmi)) for pmi in exact))
        assert curve.share == pytest.approx(0.1, rel=0.15)

    @pytest.mark.parametrize("stretch", [1, 2, 3])
    def test_right_pairs_alone(self, stretch):
        """Few are named, also if PMI is larger than it should be, as of an over-fitted critic."""
        named = []
        for seed in range(10):
            pairs = drawn_pmi(0.0, 1.2, 1000, np.random.default_rng(seed))[:2]
            pmi, mismatched = (stretch * values for values in pairs)
            curve = fit_ratio(pmi, mismatched)
            named.append((q_values(pmi, posteriors(curve(pmi), curve.share)) <= 0.1).sum())
        assert np.mean(named) <= 0.3

    @pytest.mark.parametrize("eps", [0.05, 0.2])
    def test_pairs_of_five_symbols(self, eps):
        """There are two values of PMI: pairs that tie are counted together."""
        random = np.random.default_rng(2)
        y = random.integers(0, 5, 4000)
        x = np.where(random.random(4000) < eps, random.integers(0, 5, 4000), y)
        low, high = math.log(eps), math.log(eps + (1 - eps) * 5)
        pmi = np.where(x == y, high, low)
        curve = fit_ratio(pmi, np.where(random.permutation(x) == y, high, low))
        assert curve.share == pytest.approx(eps, rel=0.15)
        posterior = posteriors(curve(pmi), eps)
        # Unequal symbols only meet by chance; of equal ones eps / 5 did, of all eps / 5 + 1 - eps.
        np.testing.assert_allclose(posterior[pmi == low], 1.0, atol=0.15)
        np.testing.assert_allclose(posterior[pmi == high], eps / (5 - 4 * eps), rtol=0.1)

    @pytest.mark.parametrize("wrong", [0, 2, 5, 29])
    def test_few_wrong_pairs_below_many_that_are_not(self, wrong):
        random = np.random.default_rng(wrong)
        pmi = np.append(random.normal(-6.0, 3.0, wrong), random.normal(6.0, 1.0, 400))
        curve = fit_ratio(pmi, random.normal(-6.0, 3.0, 20_000))
        assert curve.share == pytest.approx(wrong / (400 + wrong), rel=0.4, abs=1e-4)
        suspect = q_values(pmi, posteriors(curve(pmi), curve.share)) <= 0.1
        assert suspect[:wrong].sum() >= 0.7 * wrong
        assert not suspect[wrong:].any()


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
        curve = fit_ratio(pmi, mismatched)
        assert 0 <= curve.share <= 1
        found = posteriors(curve(pmi), eps)
        assert ((found >= 0) & (found <= 1)).all()
        assert (np.diff(found[np.argsort(pmi)]) <= 1e-12).all()

    def test_a_pair_unlike_all_others(self):
        """Its PMI is low with everything, but least low with its partner."""
        random = np.random.default_rng(0)
        mismatched, standings = random.normal(-8, 3, 20_000), random.random(20_000)
        pmi = np.concatenate([random.normal(3, 1, 970), random.normal(-8, 3, 30)])
        standing = np.concatenate([random.uniform(0.97, 1.0, 970), random.random(30)])
        pmi[0], standing[0] = -20.0, 1.0
        ratio = fit_ratio(pmi, mismatched)(pmi)
        assert posteriors(ratio, 0.03)[0] > 0.5
        shares, of_own = mismatched_shares(pmi, mismatched), mismatched_shares(standing, standings)
        unlike = unlike_others(shares, of_own)
        found = posteriors(np.maximum(ratio, unlike), 0.03)
        assert found[0] < 0.02
        assert found[970:].mean() > 0.6
        low = (shares < 0.6) & (of_own > 0.5)
        np.testing.assert_array_equal(unlike, np.where(low, observed_ratio(of_own) / 3, 0.0))


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
    """The PMI is exact, eps is not known: the realised share is the asked one, from both sides."""
    random, rates = np.random.default_rng(0), (0.05, 0.1, 0.2, 0.3)
    good, recall = [], []
    for _ in range(20):
        x, noise, other = random.normal(size=(3, 1000, columns))
        chance = random.random(1000) < eps
        y = np.where(chance[:, None], other, rho * x + math.sqrt(1 - rho**2) * noise)
        turned = np.stack([np.roll(y, k, 0) for k in range(1, 11)])
        # What a perfect fit to these data gives: chance pairs are among them.
        pmi, mismatched = (
            np.log(eps + (1 - eps) * np.exp(log_ratio(x, side, rho))) for side in (y, turned)
        )
        curve = fit_ratio(pmi, mismatched.ravel())
        found = q_values(pmi, posteriors(curve(pmi), curve.share))
        named = [found <= rate for rate in rates]
        good.append([np.mean(~chance[suspect]) if suspect.any() else 0.0 for suspect in named])
        recall.append(np.mean(named[1][chance]))
    errors = np.std(good, 0) / math.sqrt(len(good))
    assert (np.abs(np.mean(good, 0) - rates) < 0.3 * np.array(rates) + 2 * errors).all()
    assert np.mean(recall) > 0.6


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
