"""Log r that is known exactly, out of logits that hold it but for what a loss leaves open."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tables import random_table
from pointdep import from_embeddings, from_logits
from pointdep.estimators import calibration
from pointdep.estimators.calibrated_model import CalibratedCritic
from pointdep.estimators.calibration import SHARES, Cells, combine, fit_log_ratio, parts_of
from pointdep.estimators.embeddings import Embeddings
from pointdep.inference.mutual_information import standard_error

from .helpers import TABLE, draw, embeddings, gaussian_log_ratio, levels_by_hand, towers


def levels(logits, used, temperature):
    return combine([parts_of(logits, used, temperature)], temperature)


NEAR = 0.15  # nats: what 800 draws leave


def rmse(found, truth):
    return float(np.sqrt(np.mean(np.square(found - truth))))


def test_exact_probabilities_give_back_slope_and_shift():
    logits = 3.0 * TABLE.log_ratio.flatten() - 4.0
    design = torch.stack([logits, torch.ones_like(logits)], 1)
    cells, start = (TABLE.joint.flatten(), TABLE.product.flatten()), torch.zeros(2).double()
    for odds in (0.0, 1.5, -1.0):
        found = fit_log_ratio(design, *cells, odds=odds, start=start)
        assert found.numpy() == pytest.approx([1 / 3, 4 / 3], abs=1e-5)
    joint = (logits > logits.median()).double()  # told apart by the logits
    assert fit_log_ratio(design, joint, 1 - joint, odds=0.0, start=start) is None


LOGITS = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 9)))
USED = torch.from_numpy(np.random.default_rng(1).random((4, 9)) < 0.7)


def test_levels_by_hand_and_of_the_true_ratio():
    found = levels(LOGITS, USED, 2.0)
    for row, used, level in zip(LOGITS, USED, found, strict=True):
        assert level.numpy() == pytest.approx(levels_by_hand(row[used].numpy(), 2.0))
    parts = [parts_of(LOGITS[:, p], USED[:, p], 2.0) for p in (slice(4), slice(4, 9))]
    assert torch.allclose(combine(parts, 2.0), found)
    counts = (TABLE.p_y / TABLE.p_y.min() * 500).round().long()
    logits = TABLE.log_ratio.repeat_interleave(counts, 1)
    assert levels(logits, torch.ones_like(logits, dtype=torch.bool), 1.0)[:, 0].abs().max() < 1e-3
    moved = LOGITS + torch.arange(4.0).double()[:, None]
    before, after = (calibration.columns(s[:, 0], levels(s, USED, 0.7)) for s in (LOGITS, moved))
    assert torch.allclose(after, before)


@pytest.mark.parametrize(
    ("loss", "scale", "shift"), [("sigmoid", 1.0, -math.log(255)), ("softmax", 20.0, 7.0)]
)
def test_a_table_up_to_a_constant(loss, scale, shift):
    drawn = draw(800)
    model = from_logits(scale * drawn.log_ratio + shift, loss=loss, progress=False)
    assert rmse(model.oof_pmi_, drawn.log_ratio.diagonal()) < NEAR
    assert rmse(model.read_out(scale * drawn.exact + shift), drawn.exact) < NEAR
    assert model.slope_ == pytest.approx(1 / scale, rel=0.1)
    found = model.mutual_information()
    assert abs(found.nats - TABLE.mi) < 3 * found.stderr
    assert model.check().passed


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
@pytest.mark.parametrize("queries", ["x", "y"])
def test_a_table_up_to_a_function_of_the_query(queries):
    drawn = draw(800)
    outcome = drawn.x[:, None] if queries == "x" else drawn.y[None, :]
    logits = drawn.log_ratio + 3.0 * np.cos(outcome)
    model = from_logits(logits, loss="softmax_one_sided", queries=queries, progress=False)
    assert rmse(model.oof_pmi_, drawn.log_ratio.diagonal()) < NEAR
    rows = np.arange(40)
    assert rmse(model.pmi_matrix(rows, rows), drawn.log_ratio[:40, :40]) < 2 * NEAR
    assert model.check().passed
    with pytest.warns(match="check_fails: .* Fails: "):  # by a loss that does not know of it
        model = from_logits(logits, progress=False)
    assert rmse(model.oof_pmi_, drawn.log_ratio.diagonal()) > 3 * NEAR


def test_many_nats_and_thinned_cells():
    """4.0 nats by 639,200 mismatched pairs, of which 262,144 are kept."""
    x, y = embeddings(800, dim=4, correlation=0.93)
    truth, function = gaussian_log_ratio(x, y, 0.93), 2 * np.square(x).sum(1)
    model = from_logits((truth + function[:, None]) / 2, loss="softmax_one_sided", progress=False)
    assert rmse(model.oof_pmi_, truth.diagonal()) < 0.8 < 0.3 * function.std()
    assert model.slope_ == pytest.approx(2.0, rel=0.1)
    # More nats than candidates are flagged.
    x, y = embeddings(300, dim=5, correlation=0.93)
    with pytest.warns(match="reference_too_small: .* Give more pairs"):
        from_logits(gaussian_log_ratio(x, y, 0.93), loss="softmax_one_sided", progress=False)


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 1000),
    size=st.floats(0.0, 30.0),
    scale=st.floats(0.1, 10.0),
    queries=st.sampled_from(["x", "y"]),
)
def test_a_function_of_the_query_changes_nothing(seed, size, scale, queries):
    drawn, function = draw(220, seed=6), size * np.random.default_rng(seed).normal(size=220)
    function = function[:, None] if queries == "x" else function[None, :]
    options = {"loss": "softmax_one_sided", "queries": queries, "progress": False}
    plain = from_logits(drawn.log_ratio, **options)
    moved = from_logits(scale * (drawn.log_ratio + function), **options)
    assert moved.oof_pmi_ == pytest.approx(plain.oof_pmi_, abs=2e-2)


@pytest.mark.parametrize("queries", ["x", "y"])
def test_rows_of_a_matrix_are_levelled_without_their_group(queries):
    """Each pair four times: a group's candidates suit its queries far too well."""
    drawn = draw(120, seed=10, table=random_table(40, 40, seed=11, spread=1.5))
    logits = np.repeat(np.repeat(drawn.log_ratio, 4, 0), 4, 1)
    groups = np.repeat(np.arange(120), 4)
    options = {"loss": "softmax_one_sided", "queries": queries, "progress": False}
    with pytest.warns(match="few_pairs: .* by 120 groups"):
        model = from_logits(logits, groups=groups, **options)
    rows = np.arange(480)
    # Of replicas that trained on a row, but with its group left out of its level.
    found = model.pmi(rows, rows) - model.oof_pmi_
    assert abs(found.mean()) < 0.02
    assert model.bias_.closed_form > 0
    critic = model.model_.critic
    reference = critic.reference[:, 0].long().numpy()
    of_row = logits[:, 7] if queries == "y" else logits[7]
    heat, expected = float(critic.temperature), []
    for number, (slope, shift, *mix) in enumerate(critic.weights.double().numpy()):
        used = (critic.part.numpy() != number) & (groups[reference] != groups[7])
        first, *others = levels_by_hand(of_row[reference[used]], heat)
        rest = sum(w * (first - level) for w, level in zip(mix, others, strict=True))
        expected.append(slope * (logits[7, 7] - first) + shift + rest)
    assert model.pmi([7], [7])[0] == pytest.approx(np.mean(expected), abs=1e-3)


TEMPERATURE, FOLDS, ROWS = 0.9, 3, 66


def weighted_levels(logits, used, m):
    """Of each query over the candidates it uses, each counted m times, by hand."""
    found = []
    for row, own in zip(logits, used, strict=True):
        s, c = row[own], m[own]
        heats = (t * TEMPERATURE for t in SHARES)
        means = [torch.log((c * torch.exp(h * s)).sum() / c.sum()) / h for h in heats]
        found.append(torch.stack([*means, (c * s).sum() / c.sum()]))
    return torch.stack(found)


def refitted(matrix, fits, m, fresh):
    """Mean weights and mean log r, reported and of fresh pairs, with row i counted m[i] times.

    fresh: logits of their pairs, (f,), and of their queries with the candidates, (f, n).
    """
    weights, reported, of_fresh = [], 0.0, []
    for fit in fits:
        level, fresh_level = fit.level, fit.level.new_zeros(len(fresh[0]), len(SHARES) + 1)
        if matrix.levelled:
            level = weighted_levels(matrix.values, matrix.others & fit.rows, m)
            fresh_level = weighted_levels(fresh[1], fit.rows.expand(fresh[1].shape), m)
        row, column = fit.cells.row, fit.cells.column
        cells = Cells(row, column, fit.cells.joint * m[row], fit.cells.product * m[row] * m[column])
        design = matrix.design(cells, level)
        weights.append(
            fit_log_ratio(design, cells.joint, cells.product, odds=fit.odds, start=fit.weights)
        )
        own = matrix.design(matrix.pairs(), level) @ weights[-1]
        reported += float(own[~fit.rows].sum()) / len(m)
        slope, shift, *mix = weights[-1]
        first = fresh_level[:, 0]
        rest = sum(w * (first - fresh_level[:, k]) for k, w in enumerate(mix, 1))
        of_fresh.append(slope * (fresh[0] - first) + shift + rest)
    return torch.stack(weights).mean(0), reported, float(torch.stack(of_fresh).mean())


@pytest.mark.parametrize("levelled", [False, True])
def test_influence_is_the_derivative_of_a_weighted_refit(levelled):
    x, y, fresh_x, fresh_y = (
        torch.from_numpy(side)
        for seed in (0, 1)
        for side in towers(ROWS, seed=seed, dim=2, correlation=0.7)[:2]
    )
    names = torch.arange(ROWS) // 2
    matrix = calibration.LogitMatrix(x @ y.T, names[:, None] != names, levelled)
    fits = calibration._fit_folds(matrix, names % FOLDS, FOLDS, TEMPERATURE, seed=0)
    on_weights, on_reported = calibration.influence(matrix, fits, TEMPERATURE)
    assert on_reported.sum() == pytest.approx(0.0, abs=1e-9)
    kept = slice(None if levelled else 0)
    critic = CalibratedCritic(
        Embeddings(1.0, normalize=False),
        torch.stack([fit.weights for fit in fits]),
        y[kept],
        (names % FOLDS)[kept],
        on_weights,
        names,
        queries="x" if levelled else None,
        temperature=TEMPERATURE,
    )
    of_fresh = critic.double().influence_on_mean(fresh_x, fresh_y)
    fresh = (fresh_x * fresh_y).sum(1), fresh_x @ y.T
    for row in (0, 17, 40):
        step = torch.zeros(ROWS).double()
        step[row] = 1e-3
        up, down = (refitted(matrix, fits, 1 + sign * step, fresh) for sign in (1, -1))
        weights, reported, other = ((a - b) / 2e-3 for a, b in zip(up, down, strict=True))
        ours = on_weights[:, row].mean(0).numpy()
        assert ours == pytest.approx(weights.numpy(), rel=2e-2, abs=1e-4)
        assert float(on_reported[row]) == pytest.approx(reported, rel=2e-2, abs=1e-5)
        assert float(of_fresh[row]) == pytest.approx(other, rel=2e-2, abs=1e-5)


def test_error_of_a_calibration_is_its_spread_and_in_the_interval():
    """Over repetitions, what calibrations get wrong of the same fresh pairs is what is told."""
    x, y, truth = towers(500, seed=99, dim=2, correlation=0.9)
    scores = []
    for seed in range(40):
        own = towers(200, seed=seed, dim=2, correlation=0.9)[:2]
        model = from_embeddings(*own, normalize=False, progress=False)
        scores.append((float(model.pmi(x, y).mean()) - truth.mean()) / model._doubt(x, y))
    assert 0.7 < float(np.sqrt(np.mean(np.square(scores)))) < 1.35
    others = model.mutual_information(x, y)
    rows = standard_error(model.pmi(x, y).astype(float), None)
    assert others.stderr == pytest.approx(math.hypot(rows, model._doubt(x, y)), rel=1e-4)
    x, y = embeddings(400, dim=5, correlation=0.9)
    model = from_logits(3 * gaussian_log_ratio(x, y, 0.9) - 4, progress=False)
    assert model.oof_values_.mean() == pytest.approx(model.oof_pmi_.mean(), abs=1e-6)
    rows = standard_error(model.oof_pmi_.astype(float), None)
    assert 1.1 < model.mutual_information().stderr / math.hypot(rows, model.bias_.stderr) < 1.5


def test_logits_that_say_nothing_or_tie():
    model = from_logits(np.random.default_rng(9).normal(size=(400, 400)), progress=False)
    low, high = model.mutual_information().ci
    assert low == pytest.approx(0.0, abs=0.01)
    assert high < 0.05
    # Logits 3 or 0, of 800 rows: at most one in twenty of 639,200 mismatched pairs has 3.
    random = np.random.default_rng(12)
    x = random.integers(20, size=800)
    y = np.where(random.random(800) < 0.5, x, random.integers(20, size=800))
    model = from_logits(3.0 * (x[:, None] == y), progress=False)
    truth = np.log([20 * (0.5 + 0.5 / 20), 0.5])
    assert model.read_out([3.0, 0.0]) == pytest.approx(truth, abs=0.15)
