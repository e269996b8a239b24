"""The further tasks: their kinds against scipy and integration; test_tasks has what all promise."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, special, stats

from pointdep.data.tasks import TASKS
from refusals import refused

# The benchmarks are scripts, not a package: their folder holds the module.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import further_tasks as further
from further_tasks import FURTHER, make_task

# Kinds of both halves, with other parameters in each.
IN_BOTH = {"wave", "sign product", "spread", "edges", "high", "wide", "topics", "zipf"}


def test_registry_and_halves_that_share_no_settings():
    assert len(FURTHER) >= 32
    assert not set(FURTHER) & set(TASKS)
    texts = [task.description for task in FURTHER.values()]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 50
    assert all(name == task.name for name, task in FURTHER.items())
    nats = [task.joint().mutual_information for task in FURTHER.values() if task.kind != "high"]
    assert 0 <= min(nats) < max(nats) <= 4
    refused("unknown task 'wav-2': did you mean 'wave-2'", make_task, "wav-2", 5)
    tune, report = ({t.kind for t in FURTHER.values() if t.half == k} for k in ("tune", "report"))
    assert tune & report == IN_BOTH
    assert len(tune | report) >= 14
    made = [task.joint.__wrapped__ for task in FURTHER.values()]
    assert len({(one.func, one.args) for one in made}) == len(FURTHER)


def entropy(density, low, high, points=None):
    """Of one number, by scipy's adaptive quadrature."""
    how = {"points": points, "limit": 500, "epsabs": 1e-9}
    return integrate.quad(lambda y: special.entr(density(y)), low, high, **how)[0]


class TestChannels:
    @pytest.mark.parametrize(("periods", "noise"), [(2, 0.3), (1.5, 0.4), (5, 0.15)])
    def test_wave(self, periods, noise):
        """Over the angles in [0, 2 pi periods), by an average of many."""
        angles = 2 * np.pi * periods * (np.arange(20_000) + 0.5) / 20_000
        normal = stats.norm(0, noise)

        def density(y):
            return normal.pdf(y - np.sin(angles)).mean()

        joint = further.wave(periods, noise)
        y = np.linspace(-1 - 9 * noise, 1 + 9 * noise, 2001)
        expected = np.trapezoid(special.entr([density(at) for at in y]), y) - normal.entropy()
        assert joint.mutual_information == pytest.approx(expected, abs=1e-6)
        x, y, pmi = joint.sample(100, np.random.default_rng(0))
        given = normal.logpdf(y - np.sin(2 * np.pi * periods * x))[:, 0]
        np.testing.assert_allclose(pmi, given - np.log([density(at) for at in y]), atol=1e-6)

    def test_wave_of_a_normal(self):
        """p(y) = E N(y; sin 6x, 0.3) on a grid of x fine enough for any rule."""
        x = np.linspace(-9, 9, 100_001)
        weights, task = stats.norm.pdf(x) * (x[1] - x[0]), make_task("wave-normal", 30)
        marginal = [weights @ stats.norm.pdf(y, np.sin(6 * x), 0.3) for y in task.y[:, 0]]
        given = stats.norm.logpdf(task.y, np.sin(6 * task.x), 0.3)[:, 0]
        np.testing.assert_allclose(task.pmi, given - np.log(marginal), atol=1e-7)

    @pytest.mark.parametrize("noise", [0.1, 0.05])
    def test_saw(self, noise):
        """A uniform and a normal number: a difference of two distribution functions."""

        def density(y):
            return special.ndtr(y / noise) - special.ndtr((y - 1) / noise)

        left = stats.norm(0, noise).entropy()
        expected = entropy(density, -9 * noise, 1 + 9 * noise, [0, 0.5, 1]) - left
        assert further.saw(3, noise).mutual_information == pytest.approx(expected, abs=1e-7)

    @pytest.mark.parametrize("strength", [0.5, 1.5])
    def test_spread(self, strength):
        """MI = h(y) - E h(y | x), with y on a grid of log |y|."""
        scales = np.exp(strength * np.linspace(-9, 9, 2001))
        weights = stats.norm.pdf(np.linspace(-9, 9, 2001)) * 0.009

        def density(y):
            return weights @ stats.norm.pdf(y, scale=scales)

        g = np.linspace(-30, 5 + 7 * strength, 4001)
        marginal = np.trapezoid([2 * np.exp(at) * special.entr(density(np.exp(at))) for at in g], g)
        joint = further.spread(2, strength)
        expected = 2 * (marginal - stats.norm.entropy())  # E log scale = 0
        assert joint.mutual_information == pytest.approx(expected, abs=1e-6)
        x, y, pmi = joint.sample(50, np.random.default_rng(0))
        own = stats.norm.logpdf(y, scale=np.exp(strength * x)) - np.log(np.vectorize(density)(y))
        np.testing.assert_allclose(pmi, own.sum(axis=1), atol=1e-6)

    def test_product(self):
        """Given x1, y is normal with variance x1^2 + noise^2."""
        x1 = np.linspace(-9, 9, 4001)
        weights = stats.norm.pdf(x1) * (x1[1] - x1[0])

        def density(y):
            return weights @ stats.norm.pdf(y, scale=np.hypot(x1, 0.3))

        expected = 2 * entropy(density, 0, 50, [1, 5, 20]) - stats.norm(0, 0.3).entropy()
        joint = further.product(0.3, 1)
        assert joint.mutual_information == pytest.approx(expected, abs=1e-6)
        x, y, pmi = joint.sample(50, np.random.default_rng(0))
        given = stats.norm.logpdf(y[:, 0], x[:, 0] * x[:, 1], 0.3)
        np.testing.assert_allclose(pmi, given - np.log([density(at) for at in y[:, 0]]), atol=1e-6)

    def test_parabola_and_greatest(self):
        """(x^2 - 1) / sqrt 2 is a chi-square number; here by a fine grid of x."""
        x = np.linspace(0, 9, 20_001)
        weights = 2 * stats.norm.pdf(x) * (x[1] - x[0])
        weights[0] /= 2
        squares, at = (x**2 - 1) / np.sqrt(2), np.linspace(-4, 40, 3001)
        p = np.array([weights @ stats.norm.pdf(y, squares, 0.3) for y in at])
        expected = np.trapezoid(special.entr(p), at) - stats.norm(0, 0.3).entropy()
        assert further.parabola(0.3, 3).mutual_information == pytest.approx(expected, abs=1e-6)
        # The greatest of one is a Gaussian.
        found = further.greatest(1, 0.5).mutual_information
        assert found == pytest.approx(0.5 * np.log(1 + 1 / 0.25), abs=1e-9)
        # E[max of 3] = 1.5 / sqrt(pi)
        x, y, _ = further.greatest(3, 0.2).sample(40_000, np.random.default_rng(0))
        assert (y[:, 0] - x.max(axis=1)).std() == pytest.approx(0.2, rel=0.02)
        assert y.mean() == pytest.approx(1.5 / np.sqrt(np.pi), abs=0.02)

    @pytest.mark.parametrize("strength", [1.0, 2.5])
    def test_waiting_time(self, strength):
        z = np.linspace(-9, 9, 2001)
        weights, rates = stats.norm.pdf(z) * 0.009, np.exp(strength * z)

        def density(g):  # of the logarithm of the time
            return weights @ (rates * np.exp(g - rates * np.exp(g)))

        joint = further.waiting_time(strength)
        expected = entropy(density, -40 - 8 * strength, 8 * strength + 6, [-10, 0, 10])
        expected -= 1 + np.euler_gamma  # the entropy of the logarithm of an exponential time
        assert joint.mutual_information == pytest.approx(expected, abs=1e-6)
        x, y, pmi = joint.sample(50, np.random.default_rng(0))
        given = stats.expon.logpdf(y, scale=np.exp(-strength * x))[:, 0] + np.log(y[:, 0])
        marginal = np.log([density(at) for at in np.log(y[:, 0])])
        np.testing.assert_allclose(pmi, given - marginal, atol=1e-6)

    def test_multiplied(self):
        """log y is a shifted logarithm of a uniform number with normal noise."""
        at, g = np.log(0.1 + (np.arange(20_000) + 0.5) / 20_000), np.linspace(-5, 3, 4001)
        p = np.array([stats.norm.pdf(one, at, 0.1).mean() for one in g])
        expected = np.trapezoid(special.entr(p), g) - stats.norm(0, 0.1).entropy()
        assert further.multiplied(0.1).mutual_information == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize(("level", "strength"), [(1.0, 0.8), (-1.0, 1.0)])
    def test_poisson(self, level, strength):
        t, weights = special.roots_hermitenorm(150)
        weights /= weights.sum()
        kept = weights > 1e-16
        rates, counts = np.exp(level + strength * t[kept]), np.arange(20_000)
        table = weights[kept, None] * stats.poisson.pmf(counts, rates[:, None])
        apart = special.entr(table.sum(axis=1)).sum() + special.entr(table.sum(axis=0)).sum()
        joint, expected = further.poisson(level, strength), apart - special.entr(table).sum()
        assert joint.mutual_information == pytest.approx(expected, abs=1e-6)
        x, y, pmi = joint.sample(50, np.random.default_rng(0))
        given = stats.poisson.logpmf(y, np.exp(level + strength * x))[:, 0]
        chance = np.log(table.sum(axis=0)[y[:, 0].astype(int)])
        np.testing.assert_allclose(pmi, given - chance, atol=1e-6)

    def test_logistic(self):
        def doubt(t):
            return stats.norm.pdf(t) * stats.entropy([special.expit(3 * t), special.expit(-3 * t)])

        expected = np.log(2) - integrate.quad(doubt, -9, 9)[0]
        assert further.logistic(7, 3.0).mutual_information == pytest.approx(expected, abs=1e-8)
        x, y, pmi = further.logistic(7, 3.0).sample(20, np.random.default_rng(0))
        chance = special.expit(3 * x.sum(axis=1) / np.sqrt(7))
        np.testing.assert_allclose(pmi, np.log(2 * np.where(y == 1, chance, 1 - chance)))


class TestClosedForms:
    def test_parity_and_beside(self):
        joint, table = further.parity(3, 0.1, 2), np.array([[0.45, 0.05], [0.05, 0.45]])
        expected = 2 * np.log(2) - stats.entropy(table.ravel())
        assert joint.mutual_information == pytest.approx(expected)
        x, y, pmi = joint.sample(2000, np.random.default_rng(0))
        assert x.shape == (2000, 5)
        same = np.sign(x[:, 0] * x[:, 1] * x[:, 2]) == np.sign(y[:, 0])
        assert same.mean() == pytest.approx(0.9, abs=0.03)
        np.testing.assert_allclose(pmi, np.log(np.where(same, 1.8, 0.2)))
        joint = further.beside(further.wave(2, 0.3), further.independent(3, 0))
        x, y, pmi = joint.sample(20, np.random.default_rng(0))
        assert (x.shape, y.shape) == ((20, 4), (20, 1))
        np.testing.assert_allclose(further.wave(2, 0.3).log_ratio(x[:, :1], y), pmi)

    @pytest.mark.parametrize("concentration", [0.5, 3.0, 20.0])
    def test_angles(self, concentration):
        noise, joint = stats.vonmises(concentration), further.angles(concentration, 2, 0.1)
        expected = np.log(2 * np.pi) - noise.entropy()
        assert joint.mutual_information == pytest.approx(expected, abs=1e-9)
        x, y, pmi = joint.sample(50, np.random.default_rng(0))
        away = np.arctan2(y[:, 1], y[:, 0]) - 2 * np.arctan2(x[:, 1], x[:, 0])
        np.testing.assert_allclose(pmi, np.log(2 * np.pi) + noise.logpdf(away), atol=1e-9)

    @pytest.mark.parametrize(
        ("make", "theta", "tau"),
        [("clayton", 2.0, 0.5), ("clayton", 6.0, 0.75), ("frank", 8.0, 0.6026)],
    )
    def test_copulas(self, make, theta, tau):
        """Margins are uniform, and the MI by integration over u = logistic(s), v = logistic(t)."""
        joint, s = getattr(further, make)(theta), np.linspace(-45, 45, 1801)
        u, step = special.expit(s), special.expit(s) * special.expit(-s) * (s[1] - s[0])
        margin = stats.norm.ppf if make == "clayton" else further._student_2
        inside = (u > 1e-9) & (u < 1 - 1e-9)
        at, weights = margin(u[inside]), step[inside]
        pairs = (a.reshape(-1, 1) for a in np.meshgrid(at, at, indexing="ij"))
        pmi = joint.log_ratio(*pairs).reshape(len(at), len(at))
        density = np.exp(pmi)
        np.testing.assert_allclose((density @ weights)[200:-200:50], 1, atol=1e-5)
        found = weights @ (density * pmi) @ weights
        assert found == pytest.approx(joint.mutual_information, abs=1e-5)
        x, y, _ = joint.sample(5000, np.random.default_rng(0))
        assert stats.kendalltau(x, y).statistic == pytest.approx(tau, abs=0.03)
        expected = stats.norm if make == "clayton" else stats.t(2)
        assert stats.kstest(y[:, 0], expected.cdf).pvalue > 0.001

    @pytest.mark.parametrize(("classes", "width"), [(4, 0.8), (8, 1.7), (3, 0.4)])
    def test_edges(self, classes, width):
        """On a fine grid of y, of which every cell has a posterior of the labels."""
        y = np.arange(-width, classes - 1 + width, 1e-5) + 5e-6
        each = np.abs(y[:, None] - np.arange(classes)) < width
        p = each.sum(axis=1) / (2 * width * classes)
        expected = special.entr(p).sum() * 1e-5 - np.log(2 * width)
        joint = further.edges(classes, width)
        assert joint.mutual_information == pytest.approx(expected, abs=1e-4)
        possible = joint.log_ratio(np.array([0, 2]), np.array([[0.0], [0.0]]))
        assert np.isfinite(possible[0])
        assert np.isfinite(possible[1]) == (width >= 2)

    @pytest.mark.parametrize("shift", [0.5, 2.5])
    def test_two_classes_by_integration(self, shift):
        """Only x1 - x2 tells: labels at +-shift / sqrt 2 on a line."""

        def density(x):
            return stats.norm.pdf(x, [[shift], [-shift]] / np.sqrt(2)).mean()

        expected = entropy(density, -12, 12, [0]) - stats.norm.entropy()
        found = further.class_columns(2, shift).mutual_information
        assert found == pytest.approx(expected, abs=1e-7)
        assert further.class_columns(10, 12.0).mutual_information == pytest.approx(np.log(10))
        assert further.class_columns(10, 0.0).mutual_information == pytest.approx(0, abs=1e-9)


def test_words():
    words, chance = np.arange(200), 1 / np.arange(1, 201) / (1 / np.arange(1, 201)).sum()
    x, y = (side.ravel() for side in np.meshgrid(words, words, indexing="ij"))
    for groups in (8, 200):
        ratio = np.exp(further.zipf(200, 0.4, groups).log_ratio(x, y)).reshape(200, 200)
        np.testing.assert_allclose(ratio @ chance, 1)
        same = (words[:, None] - words) % groups == 0
        np.testing.assert_allclose(ratio[~same], 0.6)
        assert (ratio[same] > 1).all()
    joint = further.topics(40, 3, 0.3)
    x, y = (side.ravel() for side in np.meshgrid(words[:40], words[:40], indexing="ij"))
    assert np.linalg.matrix_rank(np.exp(joint.log_ratio(x, y)).reshape(40, 40)) == 3
    assert further.checkerboard(8).mutual_information == pytest.approx(np.log(2))
