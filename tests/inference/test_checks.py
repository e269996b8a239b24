"""The check of an estimated log-ratio on held-out pairs."""

import json
import math

import numpy as np
import pytest
import torch

from pointdep.data.tasks import correlated_gaussians
from pointdep.errors import Flag
from pointdep.inference.checks import check_log_ratio, combined_p_value, find_balances
from pointdep.inference.moment_tests import arrange
from refusals import refused

from .models import check_matrix

DIM, BLOCK = 20, 125
at_every_mi = pytest.mark.parametrize("mi", [2.0, 6.0, 10.0])


def gaussian_blocks(rows, mi, seed=0):
    """x: (G, b, 20) and the exact log r of every x with every y of its block, (G, b, b)."""
    task = correlated_gaussians(rows, DIM, mi, seed=seed)
    x, y = (torch.from_numpy(side).view(-1, BLOCK, DIM) for side in (task.x, task.y))
    square = -math.expm1(-2 * mi / DIM)
    own = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
    cross = math.sqrt(square) * (x @ y.transpose(1, 2))
    exact = mi + (cross - 0.5 * square * own) / (1 - square)
    torch.testing.assert_close(exact.diagonal(dim1=1, dim2=2).flatten().numpy(), task.pmi)
    return x, exact


def weights(log_ratio):
    joint = torch.eye(log_ratio.shape[1], dtype=torch.float64).expand(log_ratio.shape)
    return joint, 1 - joint


def check(log_ratio, **options):
    return check_log_ratio(log_ratio, *weights(log_ratio), **options)


def one_matrix(rows=300, seed=0):
    """Exact log r of one-dimensional Gaussians with correlation 0.8, every x with every y."""
    random = np.random.default_rng(seed)
    x = random.normal(size=rows)
    y = 0.8 * x + 0.6 * random.normal(size=rows)
    square = 0.64 * (x[:, None] ** 2 + y**2) - 1.6 * x[:, None] * y
    return -0.5 * np.log(0.36) - square / 0.72


@at_every_mi
def test_the_exact_pmi_passes(mi):
    passed = [check(gaussian_blocks(2000, mi, seed)[1]) for seed in range(5)]
    assert all(found.conclusive for found in passed)
    assert sum(found.passed for found in passed) >= 4
    for found in (one for one in passed if one.passed):
        assert found.fault == "none"
        assert found.verdict.startswith("Passes")


NOISE = torch.Generator().manual_seed(1)


@at_every_mi
@pytest.mark.parametrize(
    ("change", "fault", "said"),
    [
        (lambda r: 1.3 * r, "stretched", "times too large"),
        (lambda r: 0.7 * r, "compressed", "too small"),
        (lambda r: r + 0.5, "offset", "too high"),
        (lambda r: r - 0.5, "offset", "too low"),
        (lambda r: r + 1.5 * torch.randn(r.shape, generator=NOISE), "stretched", "over-fitted"),
    ],
)
def test_faults_are_found_and_named(mi, change, fault, said):
    found = check(change(gaussian_blocks(5000, mi)[1]))
    assert (found.passed, found.fault) == (False, fault)
    assert said in found.verdict
    if said == "times too large":
        assert found.recalibration.slope == pytest.approx(1 / 1.3, abs=0.05)
    if fault == "offset":
        shift = 0.5 if said == "too low" else -0.5
        assert found.recalibration.shift == pytest.approx(shift, abs=0.15)


@pytest.mark.parametrize("mi", [2.0, 6.0])
@pytest.mark.parametrize("side", ["x", "y"])
def test_a_missing_read_out_is_found_on_its_side(mi, side):
    x, exact = gaussian_blocks(2000, mi)
    unnormalised = exact + x[:, :, :1] - 0.5
    found = check(unnormalised if side == "x" else unnormalised.transpose(1, 2))
    assert (found.passed, found.fault) == (False, f"depends_on_{side}")
    assert "read-out" in found.verdict


def test_a_fault_that_steps_average_away_is_found_in_the_bins():
    """Too high here and too low there: soft steps over wide ranges of log r see next to nothing."""
    exact = gaussian_blocks(2000, 2.0)[1]
    wavy = exact + 0.4 * torch.sin(2 * exact)
    found = check(wavy)
    assert (found.passed, found.fault) == (False, "uneven")
    assert combined_p_value(find_balances(arrange(wavy, *weights(wavy))), 0.05) > 0.05
    assert max([abs(p.predicted - p.observed) / p.stderr for p in found.reliability]) > 5


def test_what_the_model_missed_is_said_and_not_tested():
    """The exact log r of half the columns is right as far as it goes."""
    task = correlated_gaussians(2000, DIM, 2.0, seed=0)
    x, y = (torch.from_numpy(side[:, :10]).view(-1, BLOCK, 10) for side in (task.x, task.y))
    square = -math.expm1(-4 / DIM)
    own = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
    half = 1 + (math.sqrt(square) * (x @ y.transpose(1, 2)) - 0.5 * square * own) / (1 - square)
    found = check(half)
    assert found.passed
    assert "cannot see dependence that the model missed" in found.verdict
    assert found.to_dict()["missed"] == []
    flags = [Flag("rises_with_rows", (), "a"), Flag("alarm", (), "b")]
    for flag, reason in zip(flags, ("more rows would", "a nearest-neighbour"), strict=True):
        told = check(half, missed=[flag])
        assert told.passed
        assert told.p_value == found.p_value
        assert told.verdict.startswith(f"Passes as far as it can see, but {reason}")
        assert "lower limit" in told.verdict
    both = check(half + 0.5, missed=flags)
    assert both.verdict.startswith("Fails")
    assert "Also, more rows would find more and a nearest-neighbour" in both.verdict
    assert [flag["name"] for flag in both.to_dict()["missed"]] == ["rises_with_rows", "alarm"]
    json.dumps(both.to_dict(), allow_nan=False)


def test_a_larger_constant_is_less_likely_and_independent_pairs_pass():
    exact = gaussian_blocks(2000, 2.0)[1]
    level = check(exact).recalibration.shift
    chances = [check(exact + level + shift).p_value for shift in (0.0, 0.1, 0.2, 0.4, 0.8)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.5
    assert chances[-1] < 1e-20
    found = check(torch.zeros(4, 50, 50))
    assert (found.passed, found.conclusive) == (True, True)
    assert found.p_value == pytest.approx(1.0)
    assert not check(torch.full((4, 50, 50), 0.5)).passed


def same(found, wanted):
    assert found.p_value == pytest.approx(wanted.p_value, rel=1e-6)
    assert (found.verdict, found.rows) == (wanted.verdict, wanted.rows)
    one, other = (
        [(b.offset, b.stderr, b.rows) for b in check.balances] for check in (found, wanted)
    )
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-10)
    one, other = ([(p.joint, p.product) for p in c.reliability] for c in (found, wanted))
    assert one == other


def test_neither_order_nor_padding_matters():
    log_ratio = one_matrix() + 0.1
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(log_ratio))
        same(check_matrix(log_ratio[order][:, order]), check_matrix(log_ratio))
    log_ratio = torch.from_numpy(log_ratio).view(1, 300, 300)
    padded = torch.full((2, 310, 310), 99.0, dtype=torch.float64)
    padded[0, 5:305, 5:305] = log_ratio[0]
    padded[1] = math.nan
    around = torch.zeros(2, 2, 310, 310, dtype=torch.float64)
    around[:, 0, 5:305, 5:305] = torch.cat(weights(log_ratio))
    same(check_log_ratio(padded, *around), check(log_ratio))


def test_rows_of_a_group_count_once():
    log_ratio = one_matrix()
    twice = log_ratio.repeat(2, 0).repeat(2, 1)
    found, wanted = check_matrix(twice, torch.arange(600) // 2), check_matrix(log_ratio)
    assert found.rows == wanted.rows == 300
    for one, other in zip(found.balances, wanted.balances, strict=True):
        assert one.stderr == pytest.approx(other.stderr, rel=1e-2)
        assert one.offset == pytest.approx(other.offset, abs=1e-2)
    assert check_matrix(twice).balances[0].stderr < 0.8 * found.balances[0].stderr


@pytest.mark.parametrize(
    "log_ratio",
    [one_matrix(40), np.where(np.eye(200) > 0, 30.0, -30.0), [[0.0]]],
    ids=["few rows", "no overlap", "one row"],
)
def test_too_little_to_tell(log_ratio):
    found = check_matrix(log_ratio)
    assert (found.passed, found.conclusive) == (False, False)
    assert (found.p_value, found.fault, found.balances) == (1.0, "cannot_tell", ())
    assert found.verdict.startswith("Cannot tell")
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("options", [{"level": 1.0}, {"tolerance": 0}])
def test_mistakes_are_named(options):
    refused(next(iter(options)), check_matrix, np.zeros((3, 3)), **options)


def test_infinite_log_ratios_are_read_and_the_answer_is_plain():
    """A pair that cannot be, in a table of four outcomes."""
    table = np.array([[0.3, 0.0], [0.2, 0.5]])
    ratio = table / (table.sum(1, keepdims=True) * table.sum(0))
    cells = np.random.default_rng(0).choice(4, size=400, p=table.ravel())
    with np.errstate(divide="ignore"):
        log_ratio = np.log(ratio)[cells // 2][:, cells % 2]
    assert check_matrix(log_ratio).passed
    assert not check_matrix(log_ratio + 0.5).passed
    found = check_matrix(one_matrix() + 0.5, at_limit=0.12, outside=0.034)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["passed"] is False
    assert content["recalibration"]["intercept"] == pytest.approx(found.recalibration.intercept)
    assert len(content["balances"]) == len(found.balances)
    assert content["reliability"][0]["observed_frequency"] < 1
    assert str(found) == found.verdict == content["verdict"]
    assert "12% of pairs sit at a limit" in found.verdict
    assert "3% of pairs are unlike" in found.verdict
    pytest.importorskip("matplotlib").use("Agg")
    assert found.plot().get_title(loc="left").startswith("Fails")
