"""What is learned, against exact conditional PMI and I(X; Y | Z)."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from pointdep import PointwiseDependency
from pointdep.inference.bias import FittingBias

from .helpers import CHAIN, accurate, conditional, fit, learned, small


@pytest.mark.parametrize("name", ["chain", "cause", "partial", "wide"])
def test_information_and_an_error_that_is_of_the_differences(name):
    """Adding up the variances of two estimates from the same rows would be far too careful."""
    task, _, model = learned(name)
    found = model.mutual_information()
    assert abs(found.nats - task.information) < 3.5 * found.stderr
    assert found.ci[0] <= task.information + found.stderr
    assert found.stderr < 0.03
    assert found.rows == model.n_rows_ == 2000
    values = model.joint_.oof_values_ - model.marginal_.oof_values_
    spread = values.std(ddof=1) / math.sqrt(len(values))
    joint, marginal = (part.mutual_information() for part in (model.joint_, model.marginal_))
    assert spread <= found.stderr < 1.2 * spread + 1e-3
    assert found.stderr < 0.9 * math.hypot(joint.stderr, marginal.stderr)
    assert found.nats == pytest.approx(joint.nats - marginal.nats)
    assert found.correction == pytest.approx(joint.correction - marginal.correction)
    assert values.mean() == pytest.approx(model.oof_pmi_.mean(), abs=1e-4)


@pytest.mark.parametrize("name", ["chain", "cause"])
def test_dependent_sides_without_a_link_of_their_own(name):
    """x and y share 0.2 nats and more, which z explains."""
    _, (x, y, _), model = learned(name)
    found = model.mutual_information()
    assert found.ci[0] <= 0.0
    assert found.ci[1] < 0.02
    whole = PointwiseDependency(hidden=(16,), folds=2, patience=2, random_state=0, progress=False)
    assert whole.fit(x, y).mutual_information().ci[0] > 0.15
    assert np.sqrt(np.square(model.oof_pmi_).mean()) < 0.15


@pytest.mark.parametrize("name", ["partial", "wide"])
def test_pmi_of_rows(name):
    task, rows, model = learned(name)
    others = task.rows(500, seed=77)
    found = model.pmi(*others)
    assert (found.shape, found.dtype) == ((500,), np.float32)
    for pmi, exact in ((model.oof_pmi_, task.pmi(*rows)), (found, task.pmi(*others))):
        assert np.corrcoef(pmi, exact)[0, 1] > 0.95
        assert np.sqrt(np.square(pmi - exact).mean()) < 0.25
    alone = np.concatenate([model.pmi(*(side[i : i + 1] for side in others)) for i in range(20)])
    np.testing.assert_allclose(alone, found[:20], atol=1e-4)


@pytest.mark.parametrize(("mean", "proven"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_the_doubts_of_two_fits(mean, proven):
    """Of nested closed forms the excess is in doubt, of two networks each."""
    model = fit(*CHAIN.rows(60))
    model.joint_.oof_values_ = model.marginal_.oof_values_ + mean  # rows without spread
    model.joint_.bias_ = FittingBias(0.5, 0.3, 0.05)
    model.marginal_.bias_ = FittingBias(0.3, 0.4, 0.03)
    closed, first, second = (
        FittingBias(closed_form=0.5 - 0.3, resolution=0.04),  # 0.05^2 = 0.04^2 + 0.03^2
        FittingBias(network=0.3, proven=proven),
        FittingBias(network=0.4, proven=proven),
    )
    correction = closed.correction + first.correction - second.correction
    doubt = math.hypot(*(one.stderr for one in (closed, first, second)))
    found = model.mutual_information()
    assert (found.nats, found.stderr) == (pytest.approx(mean + correction), pytest.approx(doubt))
    given = CHAIN.rows(60, seed=5)
    pmi, found = model.pmi(*given), model.mutual_information(*given)
    assert (found.nats, found.correction) == (pytest.approx(pmi.mean(), rel=1e-5), 0.0)
    rows = pmi.std(ddof=1) / math.sqrt(60)
    assert found.stderr == pytest.approx(math.hypot(correction, doubt, rows), rel=1e-5)


def test_the_sign_of_z_turns_the_correlation():
    """y = xz + e/2: without z uncorrelated, given z a Gaussian pair; the network must learn it."""
    x, z, noise = np.random.default_rng(8).standard_normal((3, 1200, 1))
    y = x * z + 0.5 * noise
    model = conditional(accurate(folds=3, patience="auto")).fit(x, y, z)
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    exact = (weights * 0.5 * np.log1p(4 * points**2)).sum() / weights.sum()
    found = model.mutual_information()
    assert abs(found.nats - exact) < 3.5 * found.stderr
    pmi = norm.logpdf(y, x * z, 0.5) - norm.logpdf(y, 0, np.hypot(z, 0.5))
    assert np.corrcoef(model.oof_pmi_, pmi[:, 0])[0, 1] > 0.8


# Shares of (x, y, z) in a small table: in two colours y goes against x, in one with it.
TABLE = np.array(
    [[[0.16, 0.02, 0.04], [0.02, 0.14, 0.04]], [[0.02, 0.12, 0.04], [0.16, 0.04, 0.2]]]
)
ANSWERS, COLOURS = np.array(["no", "yes"]), np.array(["red", "green", "blue"])


def test_categories_on_all_sides():
    p = TABLE / TABLE.sum()
    exact = np.log(p * p.sum((0, 1)) / (p.sum(1, keepdims=True) * p.sum(0, keepdims=True)))
    x, y, z = np.unravel_index(np.random.default_rng(2).choice(12, size=2000, p=p.ravel()), p.shape)
    model = fit(x, ANSWERS[y], COLOURS[z], estimator=small(hidden=(16,), max_epochs=30, patience=3))
    found = model.mutual_information()
    assert (p * exact).sum() > 0.2
    assert abs(found.nats - (p * exact).sum()) < 3.5 * found.stderr
    assert found.nats == pytest.approx(exact[x, y, z].mean(), abs=0.03)
    x, y, z = (side.ravel() for side in np.indices(p.shape))
    pmi = model.pmi(x, ANSWERS[y], COLOURS[z]).reshape(p.shape)
    assert np.abs(pmi - exact).max() < 0.4
    assert (np.sign(pmi) == np.sign(exact))[np.abs(exact) > 0.2].all()
