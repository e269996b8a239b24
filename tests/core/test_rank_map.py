"""The rank map, against scipy's ranks and normal quantiles."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pointdep.core.rank_map import RankMap

REAL = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


def fitted(rows, numeric=None, **options):
    rows = torch.as_tensor(np.asarray(rows, np.float32))
    numeric = torch.ones(rows.shape[1], dtype=torch.bool) if numeric is None else numeric
    return RankMap(rows.shape[1], **options).fit(rows, numeric)


def normal_scores(column):
    """Of the middle ranks: the r-th of n values has the share (r - 1/2)/n below it."""
    column = np.asarray(column, np.float32)
    return stats.norm.ppf((stats.rankdata(column) - 0.5) / len(column))


def scored(rank_map, rows):
    return rank_map(torch.as_tensor(np.asarray(rows, np.float32))).numpy()


@pytest.mark.parametrize(
    "draw",
    [
        lambda random: random.standard_normal((300, 2)),
        lambda random: random.standard_cauchy((300, 2)),
        lambda random: np.exp(5 * random.standard_normal((300, 2))),
        lambda random: random.integers(0, 7, (300, 2)),
        lambda random: random.poisson(0.3, (300, 2)),
        lambda random: 1e6 + random.standard_normal((300, 2)),
    ],
    ids=["normal", "cauchy", "log-normal", "whole numbers", "counts", "far from zero"],
)
def test_own_rows_get_the_normal_scores_of_their_ranks(draw):
    rows = draw(np.random.default_rng(0))
    found = scored(fitted(rows), rows)
    for column in range(2):
        np.testing.assert_allclose(found[:, column], normal_scores(rows[:, column]), atol=2e-6)


def test_a_point_mass_at_zero():
    random = np.random.default_rng(1)
    column = np.where(random.random(400) < 0.6, 0.0, random.standard_normal(400))[:, None]
    found = scored(fitted(column), column)
    zeros = column[:, 0] == 0
    assert len(np.unique(found[zeros])) == 1
    below = (column < 0).mean()
    middle = stats.norm.ppf(below + zeros.mean() / 2)
    assert found[zeros][0] == pytest.approx(middle, abs=1e-5)
    np.testing.assert_allclose(found[:, 0], normal_scores(column[:, 0]), atol=2e-6)


def test_between_kept_values_it_is_linear():
    rank_map = fitted([[0.0], [1.0], [3.0]])
    scores = stats.norm.ppf([1 / 6, 3 / 6, 5 / 6])
    for value in (0.25, 0.5, 1.0, 1.5, 2.9):
        wanted = np.interp(value, [0.0, 1.0, 3.0], scores)
        assert scored(rank_map, [[value]]).item() == pytest.approx(wanted, abs=1e-6)


def test_past_the_ends_it_grows_like_a_logarithm():
    values = np.array([0.0, 1.0, 3.0])
    rank_map, top = fitted(values[:, None]), stats.norm.ppf(5 / 6)
    for past in (0.1, 1.0, 50.0, 1e8):
        wanted = top + np.log1p(past / values.std())
        assert scored(rank_map, [[3.0 + past]]).item() == pytest.approx(wanted, rel=1e-5)
        assert scored(rank_map, [[-past]]).item() == pytest.approx(-wanted, rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(REAL, min_size=2, max_size=40, unique=True),
    st.lists(REAL, min_size=2, max_size=40),
)
def test_it_keeps_the_order_of_any_values(seen, asked):
    """Also of values between and beyond those it was fitted on."""
    line = np.unique(np.float32(asked))
    found = scored(fitted(np.float32(seen)[:, None]), line[:, None])[:, 0]
    assert (np.diff(found) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-40, 40), min_size=2, max_size=30), st.sampled_from([1.0, 0.01, 1e5]))
def test_it_is_one_to_one(seen, unit):
    """On a grid that goes well past both ends, in any unit."""
    if len(set(seen)) < 2:
        seen = [*seen, seen[0] + 1]
    grid = unit * np.arange(-100, 101, dtype=np.float32)[:, None]
    found = scored(fitted(unit * np.float32(seen)[:, None]), grid)[:, 0]
    assert (np.diff(found) > 0).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_monotone_maps_of_a_column_leave_its_scores(seed):
    rows = np.random.default_rng(seed).standard_normal((50, 1)).astype(np.float32)
    wanted = scored(fitted(rows), rows)
    for change in (np.exp, lambda a: a**3, lambda a: 7 * a - 1000):
        changed = change(rows.astype(np.float64)).astype(np.float32)
        if len(np.unique(changed)) == 50:  # unless float32 made two of them one
            np.testing.assert_allclose(scored(fitted(changed), changed), wanted, atol=1e-6)


def test_constants_and_indicators_stay_as_they_are():
    random = np.random.default_rng(0)
    rows = np.column_stack(
        [np.full(50, 4.0), random.integers(0, 2, 50), random.standard_normal(50)]
    ).astype(np.float32)
    rank_map = fitted(rows, torch.tensor([True, False, True]))
    found = scored(rank_map, rows)
    np.testing.assert_array_equal(found[:, :2], rows[:, :2])
    assert np.abs(found[:, 2] - rows[:, 2]).max() > 0.01
    other = np.float32([[1e9, 17.0, 0.0]])
    np.testing.assert_array_equal(scored(rank_map, other)[:, :2], other[:, :2])


def test_unfitted_is_the_identity():
    rows = torch.randn(6, 2)
    assert torch.equal(RankMap(2)(rows), rows)


@pytest.mark.parametrize("power", [1, 3])
def test_few_knots_stand_for_many_values(power):
    random = np.random.default_rng(2)
    column = (random.standard_normal(5000) ** power)[:, None].astype(np.float32)
    assert len(np.unique(column)) > 4900
    rank_map = fitted(column)
    assert rank_map.values.shape == (1, 1024)
    assert 500 < int(rank_map.count) <= 1024
    found, wanted = scored(rank_map, column)[:, 0], normal_scores(column[:, 0])
    assert np.abs(found - wanted).max() < 0.02
    ends = [column.argmin(), column.argmax()]
    np.testing.assert_allclose(found[ends], wanted[ends], atol=1e-5)


def test_few_knots_beside_a_point_mass():
    """Between the mass and the next kept value the map is steep: a few values land in the gap."""
    random = np.random.default_rng(3)
    column = np.where(random.random(6000) < 0.5, 0.0, random.standard_normal(6000))[:, None]
    found, wanted = scored(fitted(column), column)[:, 0], normal_scores(column[:, 0])
    assert (np.abs(found - wanted) < 0.03).mean() > 0.998
    assert (np.diff(found[np.unique(column[:, 0], return_index=True)[1]]) > 0).all()


def test_saved_and_loaded():
    rows = np.random.default_rng(0).standard_normal((80, 3)).astype(np.float32)
    rank_map = fitted(rows, torch.tensor([True, False, True]))
    again = RankMap(3)
    again.load_state_dict(rank_map.state_dict())
    new = torch.linspace(-9, 9, 200)[:, None].expand(-1, 3)
    assert torch.equal(again(new), rank_map(new))


def test_fitting_again_forgets():
    many, few = np.random.default_rng(0).standard_normal((90, 1)), [[5.0], [6.0], [7.0]]
    rank_map = fitted(many)
    rank_map.fit(torch.tensor(few), torch.tensor([True]))
    np.testing.assert_array_equal(scored(rank_map, few), scored(fitted(few), few))
    line = np.linspace(-3, 9, 50)[:, None]
    np.testing.assert_array_equal(scored(rank_map, line), scored(fitted(few), line))


def test_beyond():
    rows = np.random.default_rng(0).standard_normal((200, 2))
    rank_map = fitted(rows, torch.tensor([True, False]))
    assert not rank_map.beyond(torch.from_numpy(scored(rank_map, rows)), 0.5).any()
    spread, top = rows[:, 0].std(), rows[:, 0].max()
    # log1p of the distance in standard deviations reaches 1/2 there.
    limit = top + spread * np.expm1(0.5)
    asked = scored(rank_map, [[limit - 0.01, 0.0], [limit + 0.01, 0.0], [0.0, 1e9], [-30.0, 0.0]])
    assert rank_map.beyond(torch.from_numpy(asked), 0.5).tolist() == [False, True, False, True]
