"""The reference tasks: what all promise, and each against scipy and numerical integration."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate, special, stats
from scipy.linalg import expm

from pointdep.data import tasks
from pointdep.data.tasks import TASKS, continuous, correlated_gaussians, discrete, make_task
from refusals import refused

# The benchmarks are scripts, not a package: their folder holds the further tasks.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import further_tasks as further

# Kinds with E[r] under the joint, and so the variance of r under the product, small enough to
# average r itself over a few thousand pairs.
BOUNDED = {"wave", "sign product", "edges", "ring", "logistic", "clusters", "checkerboard", "torus"}


def drawn(name, rows, seed=0):
    make = make_task if name in TASKS else further.make_task
    return make(name, rows, seed=seed)


@pytest.fixture(scope="module", params=[*sorted(TASKS), *further.FURTHER])
def draws(request):
    """Two independent draws of a task; fewer rows of the wide ones among the further tasks."""
    wide = request.param in further.FURTHER and drawn(request.param, 1).x.size >= 50
    return tuple(drawn(request.param, 4000 if wide else 20_000, seed) for seed in (1, 2))


def standard_error(values):
    return max(values.std() / np.sqrt(len(values)), 1e-12)


def test_log_ratio_is_the_pmi_of_any_pair_and_balances(draws):
    for task in draws:
        assert np.isfinite(task.pmi).all()
        error = task.pmi.mean() - task.mutual_information
        assert abs(error) <= (4 if task.name in TASKS else 5) * standard_error(task.pmi)
    task, rows = draws[0], len(draws[0].pmi) if draws[0].name in TASKS else 500
    for order in (np.arange(rows), np.random.default_rng(0).permutation(len(task.pmi))[:rows]):
        found = task.log_ratio(task.x[order], task.y[order])
        np.testing.assert_allclose(found, task.pmi[order], rtol=1e-8, atol=1e-8)
    # E_J[1 / (1 + r)] = E_M[r / (1 + r)]: both are the integral of p q / (p + q). E_M[r] = 1.
    one, other = draws
    # x of one draw with y of another are pairs of the product, independent from row to row.
    log_ratio = one.log_ratio(one.x, other.y)
    assert np.array_equal(other.log_ratio(one.x, other.y), log_ratio)
    joint, product = special.expit(-one.pmi), special.expit(log_ratio)
    error = np.hypot(standard_error(joint), standard_error(product))
    assert abs(joint.mean() - product.mean()) <= (4 if one.name in TASKS else 5) * error
    if one.name in further.FURTHER and further.FURTHER[one.name].kind in BOUNDED:
        ratio = np.exp(log_ratio)
        assert abs(ratio.mean() - 1) <= 5 * standard_error(ratio)


def test_shapes_and_seeds(draws):
    one, other = draws
    assert one.pmi.shape == (len(one.x),) == (len(one.y),)
    assert one.mutual_information == other.mutual_information
    assert not np.array_equal(one.x, other.x)
    again = drawn(one.name, 50, 3), drawn(one.name, 50, 3)
    for field in ("x", "y", "pmi"):
        np.testing.assert_array_equal(getattr(again[0], field), getattr(again[1], field))
    # Labels are integers, and all else columns of numbers: what estimators tell apart.
    for side in (one.x, one.y):
        assert (side.ndim, side.dtype.kind) in {(1, "i"), (2, "f")}


def test_descriptions_and_arguments():
    texts = [kind.description for kind in TASKS.values()]
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 50
    assert set(tasks.QUICK) < set(TASKS)
    refused("unknown task 'spiral-4': did you mean 'spiral-", make_task, "spiral-4", 5)
    refused("rows must be 1 or more, not 0", make_task, "table", 0)
    for seed in (-1, 0.5):
        refused("seed", make_task, "table", 5, seed=seed)


def joint_normal(covariance, dim_x):
    """log r and MI of N(0, covariance) by scipy's densities and entropies."""
    parts = covariance, covariance[:dim_x, :dim_x], covariance[dim_x:, dim_x:]
    both, x, y = (stats.multivariate_normal(cov=part) for part in parts)

    def log_ratio(u, v):
        return both.logpdf(np.hstack([u, v])) - x.logpdf(u) - y.logpdf(v)

    return log_ratio, x.entropy() + y.entropy() - both.entropy()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_gaussians_agree_with_scipy(dim_x, dim_y, seed):
    random = np.random.default_rng(seed)
    root = random.normal(size=(dim_x + dim_y, dim_x + dim_y + 2))
    joint = continuous.gaussian(root @ root.T, dim_x)
    log_ratio, information = joint_normal(root @ root.T, dim_x)
    assert joint.mutual_information == pytest.approx(information, rel=1e-7, abs=1e-9)
    x, y, pmi = joint.sample(50, random)
    assert (x.shape, y.shape) == ((50, dim_x), (50, dim_y))
    np.testing.assert_allclose(pmi, log_ratio(x, y), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(joint.log_ratio(x, y[::-1]), log_ratio(x, y[::-1]), rtol=1e-6)


@pytest.mark.parametrize("dim", [1, 5, 25, 50])
def test_dense_and_sparse_gaussians(dim):
    covariance = np.array([[2.0, 0.5, 0.3], [0.5, 1.0, -0.4], [0.3, -0.4, 0.5]])
    x, y, _ = continuous.gaussian(covariance, 2).sample(50_000, np.random.default_rng(dim))
    np.testing.assert_allclose(np.cov(np.hstack([x, y]).T), covariance, atol=0.04)
    # All the coordinates of a side share one factor: the sums correlate, and nothing else does.
    canonical = 0.5 * dim / (1 + 0.5 * (dim - 1))
    dense = continuous.gaussian(continuous.dense_covariance(dim, 0.5), dim)
    assert dense.mutual_information == pytest.approx(-0.5 * np.log(1 - canonical**2))
    if dim > 1:
        sparse = continuous.gaussian(continuous.sparse_covariance(dim, 2, 2.0), dim)
        assert sparse.mutual_information == pytest.approx(-np.log(1 - 0.8**2))
    refused("pairs=.* is more than dim", continuous.sparse_covariance, dim, dim + 1, 2.0)


@pytest.mark.parametrize(
    ("name", "plain", "dim"),
    [
        *(("cubic-5", "gaussian-5", 5), ("cubic-20", "gaussian-20", 20)),
        *(("half-cube-1", "gaussian-1", 1), ("half-cube-25", "sparse-25", 25)),
        *(("asinh-1", "gaussian-1", 1), ("normal-cdf-5", "sparse-5", 5)),
        *(("wiggly-1", "gaussian-1", 1), ("spiral-5", "sparse-5", 5)),
        ("asinh-student-5", "student-5", 5),
    ],
)
def test_maps_leave_every_pmi(name, plain, dim):
    made, before = make_task(name, 200, seed=4), make_task(plain, 200, seed=4)
    np.testing.assert_array_equal(made.pmi, before.pmi)
    assert made.mutual_information == before.mutual_information
    assert made.x.shape == before.x.shape == (200, dim)
    assert not np.allclose(made.y, before.y)


@pytest.mark.parametrize("name", ["CUBE", "HALF_CUBE", "ASINH", "NORMAL_CDF", "WIGGLY"])
def test_monotone_maps_and_their_inverses(name):
    one, line = getattr(continuous, name), np.linspace(-4, 4, 2001)[:, None]
    image = one.forward(line)
    assert (np.diff(image[:, 0]) > 0).all()
    np.testing.assert_allclose(one.inverse(image), line, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.floats(-2, 2), st.integers(0, 1000))
def test_spirals(dim, speed, seed):
    random = np.random.default_rng(seed)
    generator = random.normal(size=(dim, dim))
    generator -= generator.T
    x, wound = random.normal(size=(20, dim)), continuous.spiral(generator, speed)
    image = wound.forward(x)
    np.testing.assert_allclose((image**2).sum(1), (x**2).sum(1))
    np.testing.assert_allclose(wound.inverse(image), x, atol=1e-8)
    np.testing.assert_allclose(image[0], expm(speed * (x[0] ** 2).sum() * generator) @ x[0])


def test_swiss_roll():
    line = np.linspace(0, 1, 101)[:, None]
    rolled = continuous.SWISS_ROLL.forward(line)
    assert rolled.shape == (101, 2)
    np.testing.assert_allclose(continuous.SWISS_ROLL.inverse(rolled), line, atol=1e-12)
    task = make_task("swiss-roll", 5000)
    assert task.mutual_information == pytest.approx(-0.5 * np.log(1 - 0.75**2))
    assert stats.kstest(continuous.SWISS_ROLL.inverse(task.x)[:, 0], "uniform").pvalue > 0.01


class TestStudent:
    @pytest.mark.parametrize(("freedom", "correlation"), [(1.0, 0.0), (1.0, 0.6), (4.0, -0.5)])
    def test_mutual_information_by_integration(self, freedom, correlation):
        shape = np.array([[1.0, correlation], [correlation, 1.0]])
        both, alone = stats.multivariate_t(shape=shape, df=freedom), stats.t(freedom)
        # In x = sinh(s) the heavy tails end, and the trapezoidal rule converges quickly.
        axis = np.arange(-25, 25, 0.1)
        s, t = np.meshgrid(axis, axis)
        x, y = np.sinh(s), np.sinh(t)
        log_joint = both.logpdf(np.stack([x, y], axis=-1))
        pmi = log_joint - alone.logpdf(x) - alone.logpdf(y)
        expected = (np.cosh(s) * np.cosh(t) * np.exp(log_joint) * pmi).sum() * 0.1**2
        found = continuous.student(shape, 1, freedom).mutual_information
        assert found == pytest.approx(expected, abs=1e-7)

    def test_pmi_agrees_with_scipy_and_many_degrees_are_a_gaussian(self):
        dispersion, random = continuous.dense_covariance(3, 0.4), np.random.default_rng(0)
        x, y, pmi = continuous.student(dispersion, 3, 2.5).sample(100, random)
        shapes = dispersion, dispersion[:3, :3]
        both, alone = (stats.multivariate_t(shape=shape, df=2.5) for shape in shapes)
        expected = both.logpdf(np.hstack([x, y])) - alone.logpdf(x) - alone.logpdf(y)
        np.testing.assert_allclose(pmi, expected, rtol=1e-8, atol=1e-8)
        assert stats.kstest(x[:, 0], stats.t(2.5).cdf).pvalue > 0.01
        covariance = continuous.dense_covariance(2, 0.5)
        many, plain = continuous.student(covariance, 2, 1e6), continuous.gaussian(covariance, 2)
        assert many.mutual_information == pytest.approx(plain.mutual_information, abs=1e-5)
        apart = continuous.student(np.eye(10), 5, 1e6).mutual_information
        assert apart == pytest.approx(0, abs=1e-5)
        x, y, _ = plain.sample(50, np.random.default_rng(0))
        np.testing.assert_allclose(many.log_ratio(x, y), plain.log_ratio(x, y), atol=1e-3)
        refused("freedom must be above 0", continuous.student, np.eye(2), 1, 0)


@pytest.mark.parametrize("width", [0.05, 0.5, 0.75, 3.0])
def test_uniform_noise(width):
    joint = continuous.uniform_noise(width)

    def marginal(y):
        return (min(1.0, y + width) - max(0.0, y - width)) / (2 * width)

    knots = sorted({-width, width, 1 - width, 1 + width})
    entropy = sum(
        integrate.quad(lambda y: -marginal(y) * np.log(marginal(y)), a, b)[0]
        for a, b in itertools.pairwise(knots)
    )
    assert joint.mutual_information == pytest.approx(entropy - np.log(2 * width), abs=1e-6)
    found = joint.log_ratio(np.array([[0.5], [0.5]]), np.array([[0.5], [0.5 + 1.01 * width]]))
    assert (found[0], found[1]) == (pytest.approx(-np.log(min(1.0, 2 * width))), -np.inf)
    refused("width must be above 0", continuous.uniform_noise, 0)


class TestMixtures:
    def test_pmi_agrees_with_scipy_and_clusters_with_closed_forms(self):
        weights, means = [0.3, 0.7], np.array([[0.0, 1.0], [-1.0, 2.0]])
        covs = np.array([[[1.0, 0.5], [0.5, 2.0]], [[0.5, 0.0], [0.0, 1.0]]])
        joint = discrete.gaussian_mixture(weights, means, covs)
        x, y, pmi = joint.sample(200, np.random.default_rng(0))

        def density(values, columns):
            return sum(
                w * stats.multivariate_normal(m[columns], c[np.ix_(columns, columns)]).pdf(values)
                for w, m, c in zip(weights, means, covs, strict=True)
            )

        expected = np.log(density(np.hstack([x, y]), [0, 1]) / density(x, [0]) / density(y, [1]))
        np.testing.assert_allclose(pmi, expected, atol=1e-9)
        covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
        joint = discrete.gaussian_mixture([1.0], [[3.0, -2.0]], [covariance])
        assert joint.mutual_information == pytest.approx(-0.5 * np.log(1 - 0.64), abs=1e-9)
        weights, means = np.array([0.2, 0.3, 0.5]), [[-5, 0], [0, 5], [5, -5]]
        joint = discrete.gaussian_mixture(weights, means, [0.16 * np.eye(2)] * 3)
        assert joint.mutual_information == pytest.approx(stats.entropy(weights), abs=1e-8)
        far = discrete.labelled_gaussians(weights, [[-7.0, 0.0], [7.0, 0.0], [0.0, 14.0]])
        assert far.mutual_information == pytest.approx(stats.entropy(weights), abs=1e-8)

    @pytest.mark.parametrize("name", ["mixture-cross", "mixture-outliers", "label"])
    def test_a_finer_grid_changes_nothing(self, name, monkeypatch):
        coarse = make_task(name, 5).mutual_information
        monkeypatch.setattr(discrete, "_STEP", 0.031)
        assert make_task(name, 5).mutual_information == pytest.approx(coarse, abs=1e-9)

    def test_outliers_and_blocks(self):
        none, all_of_them = discrete.outliers(2, 0.8, 0.0), discrete.outliers(2, 0.8, 1.0)
        assert none.mutual_information == pytest.approx(-0.5 * np.log(1 - 0.64), abs=1e-9)
        assert all_of_them.mutual_information == pytest.approx(0, abs=1e-12)
        x, y, pmi = discrete.outliers(3, 0.8, 0.25).sample(40_000, np.random.default_rng(0))
        assert np.corrcoef(x[:, 0], y[:, 0])[0, 1] == pytest.approx(0.75 * 0.8, abs=0.02)
        assert pmi.min() >= np.log(0.25)
        refused("share must be a fraction", discrete.outliers, 2, 0.8, 1.5)
        joint = discrete.blocks([[0.5, 0.0], [0.0, 0.5]])
        assert joint.mutual_information == pytest.approx(np.log(2))
        inside, outside = joint.log_ratio(np.array([[0.2], [1.0]]), np.array([[0.4], [0.2]]))
        assert (inside, outside) == (pytest.approx(np.log(2)), -np.inf)


def test_labels_by_integration_on_the_line():
    """Labels along one axis: the other axis tells nothing, so one integral is enough."""
    weights, means = np.array([0.4, 0.6]), np.array([-1.0, 0.5])
    found = discrete.labelled_gaussians(weights, np.column_stack([means, [0.0, 0.0]]))

    def integrand(x):
        each = stats.norm(means).pdf(x)
        return (weights * each * np.log(each / (weights @ each))).sum()

    assert found.mutual_information == pytest.approx(integrate.quad(integrand, -9, 9)[0], abs=1e-8)


def test_zero_inflated():
    table = np.array([[0.3, 0.1], [0.2, 0.4]])
    x, y, pmi = discrete.zero_inflated(table, 0.6).sample(20_000, np.random.default_rng(0))
    zero_x, zero_y = x[:, 0] == 0, y[:, 0] == 0
    drawn = np.array([[zero_x & zero_y, zero_x & ~zero_y], [~zero_x & zero_y, ~zero_x & ~zero_y]])
    np.testing.assert_allclose(drawn.mean(axis=2), table, atol=0.02)
    np.testing.assert_allclose(pmi[zero_x & zero_y], np.log(0.3 / (0.4 * 0.5)))
    both = ~zero_x & ~zero_y
    gaussian_pmi = continuous.correlated(1, -0.5 * np.log(1 - 0.36)).log_ratio(x[both], y[both])
    np.testing.assert_allclose(pmi[both], gaussian_pmi + np.log(0.4 / (0.6 * 0.5)))
    # Both at zero or not at all: H(0.3) + 0.7 MI of the Gaussians.
    together = discrete.zero_inflated([[0.3, 0.0], [0.0, 0.7]], 0.6).mutual_information
    assert together == pytest.approx(stats.entropy([0.3, 0.7]) - 0.35 * np.log(1 - 0.36))
    refused(r"shape \(2, 2\)", discrete.zero_inflated, [[0.5, 0.25, 0.25]], 0.6)


@pytest.mark.parametrize(("dim", "known"), [(20, 0.0), (20, 2.0), (20, 10.0), (1, 13.0)])
def test_gaussian_mean_pmi_is_the_mutual_information(dim, known):
    task = correlated_gaussians(20_000, dim, known)
    assert abs(task.pmi.mean() - known) <= 4 * task.pmi.std() / np.sqrt(20_000)
    assert task.mutual_information == known
    assert task.x.shape == task.y.shape == (20_000, dim)


def test_cubic_changes_only_y_and_arguments():
    plain, cubic = correlated_gaussians(50, seed=3), correlated_gaussians(50, cubic=True, seed=3)
    for found, wanted in ((cubic.y, plain.y**3), (cubic.x, plain.x), (cubic.pmi, plain.pmi)):
        np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(plain.x, correlated_gaussians(50, seed=4).x)
    refused("rows must be", correlated_gaussians, 0)
    refused("dim must be", correlated_gaussians, 5, dim=0)
    for wrong in (-1.0, float("nan")):
        refused("mutual_information must be", correlated_gaussians, 5, mutual_information=wrong)
    # With so much information rho rounds to one.
    refused("more than 1 dimension.*raise dim", correlated_gaussians, 5, 1, 18.0)
    refused("more than 20 dimension.*raise dim", correlated_gaussians, 5, 20, 1e9)


SIZES = st.tuples(st.integers(1, 5), st.integers(1, 5))
TABLES = arrays(np.int64, SIZES, elements=st.integers(0, 9))


@settings(max_examples=50, deadline=None)
@given(TABLES.filter(lambda table: table.sum() > 0))
def test_ratio_has_mean_one_under_the_product(counts):
    joint = counts / counts.sum()
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    assert (product * np.exp(tasks.table_pmi(joint))).sum() == pytest.approx(1, abs=1e-12)
    task = tasks.discrete_table(30, joint)
    assert task.mutual_information >= -1e-12
    assert (joint[task.x, task.y] > 0).all()
    assert np.isfinite(task.pmi).all()


def test_table_draws_and_mutual_information():
    joint = np.array([[0.4, 0.1, 0.0], [0.0, 0.2, 0.3]])
    task, drawn = tasks.discrete_table(20_000, joint, seed=1), np.zeros_like(joint)
    np.add.at(drawn, (task.x, task.y), 1 / 20_000)
    np.testing.assert_allclose(drawn, joint, atol=0.02)
    expected = -sum(stats.entropy(p.ravel()) * sign for p, sign in (
        (joint, 1), (joint.sum(0), -1), (joint.sum(1), -1)))  # fmt: skip
    assert task.mutual_information == pytest.approx(expected)
    assert task.pmi[0] == pytest.approx(tasks.table_pmi(joint)[task.x[0], task.y[0]])
    assert abs(task.pmi.mean() - expected) < 4 * task.pmi.std() / np.sqrt(20_000)
    assert task.x.dtype.kind == "i"
    refused("two-dimensional", tasks.discrete_table, 5, [0.5, 0.5])
    refused("none below 0", tasks.discrete_table, 5, [[0.5, -0.5], [0.5, 0.5]])
    refused("finite", tasks.discrete_table, 5, [[0.5, np.nan]])
    refused("sum to 1, not 4", tasks.discrete_table, 5, [[1.0, 3.0]])
    refused("rows must be", tasks.discrete_table, 0, [[1.0]])
