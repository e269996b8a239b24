"""The bias of fitting: its parts, and what it mends."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.critics.table import TableCritic
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.fitting.batches import SplitRows
from pointdep.fitting.closed_form import fit_closed_form
from pointdep.fitting.splits import make_splits
from pointdep.fitting.tables import fit_tables
from pointdep.inference import bias
from pointdep.inference.bias import FittingBias, fitting_bias

from .models import model_of, rows

DIM, RHO = 3, 0.6
TRUTH = -0.5 * DIM * math.log(1 - RHO**2)


def gaussians(n, seed, rho=RHO, dim=DIM):
    x, noise = np.random.default_rng(seed).standard_normal((2, n, dim))
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def maximum_likelihood(x, y):
    """log r of Gaussians with the covariance of these rows, as a function of pairs."""
    both = np.hstack([x, y])
    mean, joint = both.mean(0), np.cov(both.T, ddof=0)
    product = joint.copy()
    product[:DIM, DIM:] = product[DIM:, :DIM] = 0.0
    inverse = np.linalg.inv(joint) - np.linalg.inv(product)
    constant = -0.5 * (np.linalg.slogdet(joint)[1] - np.linalg.slogdet(product)[1])

    def log_ratio(x, y):
        z = np.hstack([x, y]) - mean
        return constant - 0.5 * np.einsum("ni,ij,nj->n", z, inverse, z)

    return log_ratio


def test_half_of_the_gap_is_the_bias_of_a_closed_form():
    """Maximum likelihood with k parameters: k/2n too high on its own rows, too low on others."""
    n, runs, own, other = 150, 400, [], []
    for seed in range(runs):
        x, y = gaussians(n, seed)
        fitted = maximum_likelihood(x, y)
        own.append(fitted(x, y).mean())
        other.append(fitted(*gaussians(3000, runs + seed)).mean())  # of many rows: less noise
    own, other = np.array(own), np.array(other)
    wanted = DIM**2 / (2 * n)
    assert own.mean() - TRUTH == pytest.approx(wanted, abs=3 * own.std() / math.sqrt(runs))
    assert TRUTH - other.mean() == pytest.approx(wanted, rel=0.3)
    mended = other + np.array([FittingBias(gap).correction for gap in own - other])
    assert abs(mended.mean() - TRUTH) < 0.5 * wanted


def test_the_correction_and_its_error():
    """Of the sum of the parts; the errors of the parts are independent."""
    whole = FittingBias(0.2, 0.4, 0.03)
    parts = FittingBias(0.2), FittingBias(0.0, 0.4), FittingBias(0.0, 0.0, 0.03)
    assert whole.correction == pytest.approx(sum(part.correction for part in parts))
    assert whole.stderr == pytest.approx(math.hypot(*(part.stderr for part in parts)))
    # A network stopped early also misses something: more than half of its gap is to be added.
    assert 0.2 < parts[1].correction < 2 * 0.4
    assert (parts[2].correction, parts[2].stderr) == (0.0, 0.03)
    assert FittingBias().correction == FittingBias().stderr == 0.0
    # Of one that proved nothing, its own rows and others are both one standard error away.
    doubtful = FittingBias(0.0, 0.4, 0.0, proven=False)
    assert (doubtful.correction, doubtful.stderr) == pytest.approx((0.2, 0.2))


def default_model(x, y, splits, loud=0.0):
    replicas = len(splits)
    critic = build_critic("auto", replicas, x.shape[1], y.shape[1], hidden=(8, 4))
    critic.reset(replica_generators(0, replicas))
    maps = (critic.side_map(replicas, side.shape[1]) for side in (x, y))
    model = RatioModel(critic, *maps, [METHODS["pc"]] * replicas, "log_ratio")
    fit_closed_form(model, SplitRows(x, y, splits))
    with torch.no_grad():
        last = critic.net.rest.layers[-1].weight
        last += loud * torch.randn(last.shape, generator=torch.Generator().manual_seed(0))
    return model.requires_grad_(False)


def gap_by_hand(model, x, y, splits):
    def mean(r, part):
        one = model.select([r])
        return np.mean([one.log_ratio_pairs(x[None, [i]], y[None, [i]]).item() for i in part])

    return np.mean([mean(r, one.train) - mean(r, one.report) for r, one in enumerate(splits)])


@pytest.mark.parametrize("loud", [0.0, 1.0, -1.0])
def test_the_parts_by_hand(loud):
    x, y = (torch.from_numpy(side).float() for side in gaussians(60, 1))
    splits = make_splits(60, folds=3, seed=0)
    model, quiet = (default_model(x, y, splits, size) for size in (loud, 0.0))
    found = fitting_bias(model, x, y, splits, proven=False)
    closed = gap_by_hand(quiet, x, y, splits)
    network = gap_by_hand(model, x, y, splits) - closed
    assert closed > 0.01
    assert found.closed_form == pytest.approx(closed, abs=1e-5)
    assert found.network == pytest.approx(max(network, 0.0), abs=1e-5)
    unproven = 0.0 if loud else 30 / 60  # without a network there may be what it did not prove
    assert found.resolution == pytest.approx(math.hypot(math.sqrt(DIM * DIM / 2) / 60, unproven))
    assert found.proven  # the default critic's network was judged before, on rows of its own


def test_a_plain_critic_is_all_network():
    (x, y), splits, model = rows(60), make_splits(60, folds=3, seed=0), model_of("pc", 3)
    gap = max(gap_by_hand(model, x, y, splits), 0.0)
    for proven in (True, False):
        found = fitting_bias(model, x, y, splits, proven=proven)
        assert (found.closed_form, found.proven) == (0.0, proven)
        assert found.network == pytest.approx(gap, abs=1e-5)


@pytest.mark.parametrize(("gain", "wanted"), [(1.0, 0.3), (0.1, 0.2), (-0.1, 0.0), (None, 0.3)])
def test_towers_are_corrected_by_a_share_of_their_gap(gain, wanted):
    """And by no more than twice what they show on unseen rows; the doubt is that of the share."""
    found = FittingBias(0.0, 0.0, 0.01, gain=gain, mixed=0.5, rise=0.2, rise_stderr=0.1)
    assert found.correction == pytest.approx(wanted)
    assert found.stderr == pytest.approx(math.hypot(0.3 * 0.3, 0.01))
    assert found.judged().stderr_above == pytest.approx(math.hypot(0.8 * 0.2, 0.01))


@pytest.mark.parametrize(("rise", "share"), [(None, 0.75), (-0.1, 0.6), (0.05, 0.75), (0.3, 0.9)])
def test_towers_on_features_are_corrected_by_more_where_the_curve_rises(rise, share):
    found = FittingBias(mixed=0.5, reduced=True, rise=rise, rise_stderr=0.01)
    assert found.correction == pytest.approx(share * 0.5)
    assert found.stderr == pytest.approx(0.35 * share * 0.5)
    assert found.judged().missed == pytest.approx(math.hypot(0.4 * 0.5, 0.8 * max(rise or 0, 0)))


@pytest.mark.parametrize(
    ("whole", "wanted", "missed"),
    [(0.2, 1.0, 0.0), (1.1, 1.0, 0.0), (1.25, 1.0, 0.25), (1.4, 1.4, 0.0)],
)
def test_all_columns_overrule_screened_ones_where_they_surely_tell_more(
    monkeypatch, whole, wanted, missed
):
    """Estimates of 1 nat by the screened columns, and of `whole`, with an error of 0.1, by all."""

    def estimate(x, y, groups):
        values = np.zeros(len(x))
        return (values, 1.0, 0.001, 500.0) if x.shape[1] == 1 else (values, whole, 0.1, 500.0)

    monkeypatch.setattr(bias, "_gaussian_estimate", estimate)
    x, y = np.random.default_rng(0).standard_normal((2, 500, 4))
    y[:, 0] = x[:, 0]
    kind = SimpleNamespace(has_closed_form=True, silent=True, shrunk=False, label="", screened=True)
    sides = torch.from_numpy(x), torch.from_numpy(y)
    _, found = bias.closed_form_estimate(SimpleNamespace(critic=kind), *sides, None, 0.9)
    assert found.correction == pytest.approx(wanted - 0.9)
    assert found.missed == pytest.approx(missed)


def test_a_curve_that_rises_adds_to_the_correction_of_a_network():
    """0.85 of the gap, and a fifth of what the last two doublings have added on average."""

    def found(gain=0.5, **curve):
        return FittingBias(network=0.1, gain=gain, rise_stderr=0.01, **curve)

    flat, risen = found(rise=0.0, earlier=0.0), found(rise=0.0, earlier=0.2)
    assert flat.correction == pytest.approx(0.085)
    assert risen.correction == pytest.approx(0.105)
    assert found(rise=0.1).correction == pytest.approx(0.105)  # there is no earlier doubling
    assert found(rise=-0.3, earlier=0.1).correction == flat.correction
    assert flat.stderr == pytest.approx(0.4 * 0.085)
    assert risen.judged().stderr_above == pytest.approx(math.hypot(0.08, 0.08))
    noise = found(gain=0.0, rise=0.1, earlier=0.1)
    assert (noise.correction, noise.stderr) == pytest.approx((0.05, 0.05))


def test_a_table_is_corrected_by_fits_of_rows_drawn_from_it():
    """Two blocks of 15 by 15 categories, 1,500 rows: the correction is what they miss."""
    joint = np.kron(np.array([[0.45, 0.05], [0.05, 0.45]]), np.full((15, 15), 1 / 225))
    splits, errors, by_gap = make_splits(1500, folds=3, seed=0), [], []
    for seed in range(4):
        cells = np.random.default_rng(seed).choice(900, 1500, p=joint.ravel())
        codes = np.stack([cells // 30, cells % 30])
        pmi = np.where((codes[0] < 15) == (codes[1] < 15), math.log(1.8), math.log(0.2))
        x, y = torch.from_numpy(codes).float().unsqueeze(2)
        maps = Standardizer(3, 1), Standardizer(3, 1)
        model = RatioModel(TableCritic(3, 30, 30), *maps, [METHODS["pc"]] * 3, "log_ratio")
        fit_tables(model.critic, SplitRows(x, y, splits))
        found = fitting_bias(model, x, y, splits, proven=True)
        missed = 0.0
        for replica, split in enumerate(splits):
            pairs = (side[None, split.report] for side in (x, y))
            told = model.select([replica]).log_ratio_pairs(*pairs)
            missed += (pmi[split.report].mean() - float(told.mean())) / 3
        errors.append(found.correction - missed)
        grouped = fitting_bias(model, x, y, splits, proven=True, groups=torch.arange(1500))
        by_gap.append(grouped.correction)
        assert grouped.simulated is None  # rows of one group are not drawn one by one
        assert found.stderr >= abs(found.correction - grouped.correction)
    assert abs(np.mean(errors)) < 0.015 < np.mean(by_gap)
