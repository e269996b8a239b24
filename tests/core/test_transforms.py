"""Maps of one side: the standardiser, the rank map and canonical coordinates."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pointdep.core.transforms import CanonicalMap, RankMap, Standardizer

from .critics.kinds import draw

NUMERIC = torch.ones(3, dtype=torch.bool)


def scaled(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scale, shift = torch.tensor([0.01, 1.0, 300.0]), torch.tensor([5.0, 0.0, -1000.0])
    return torch.randn(rows, 3, generator=generator) * scale + shift


class TestStandardizer:
    """Mean and spread of each column."""

    def test_columns_come_out_standard_and_replicas_are_fitted_apart(self):
        rows, standardizer = scaled(500), Standardizer(1, 3)
        standardizer.fit_replica(0, rows, NUMERIC)
        out = standardizer(rows[None])[0].double().numpy()
        np.testing.assert_allclose(out.mean(0), 0.0, atol=1e-4)
        np.testing.assert_allclose(out.std(0), 1.0, atol=1e-4)
        by_hand = (rows.numpy() - rows.numpy().mean(0)) / rows.numpy().std(0)
        np.testing.assert_allclose(out, by_hand, atol=1e-3)
        standardizer, alone, x = Standardizer(2, 3), Standardizer(1, 3), scaled(8, seed=3)
        standardizer.fit_replica(0, scaled(50, seed=1), NUMERIC)
        assert torch.equal(standardizer.mean[1], torch.zeros(3))
        standardizer.fit_replica(1, scaled(50, seed=2) + 7, NUMERIC)
        alone.fit_replica(0, scaled(50, seed=1), NUMERIC)
        both = standardizer(torch.stack([x, x]))
        torch.testing.assert_close(both[0], alone(x[None])[0])
        assert not torch.allclose(both[0], both[1])
        torch.testing.assert_close(standardizer.select([1])(x[None])[0], both[1])
        torch.testing.assert_close(standardizer.select([1, 0])(torch.stack([x, x])), both.flip(0))

    def test_other_columns_stay_and_far_values_are_drawn_in(self):
        rows, standardizer = scaled(50), Standardizer(1, 3)
        rows[:, 1] = 4.0
        standardizer.fit_replica(0, rows, torch.tensor([True, True, False]))
        out = standardizer(rows[None])[0]
        torch.testing.assert_close(out[:, 1:], rows[:, 1:])
        assert out[:, 0].mean().abs() < 1e-3
        # Statistics are in float64: at 1e6 a spread of 1 is lost in float32.
        rows = (1e6 + torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))).float()
        standardizer = Standardizer(1, 1)
        standardizer.fit_replica(0, rows, torch.ones(1, dtype=torch.bool))
        assert standardizer.scale.item() == pytest.approx(rows.double().std(0).item(), rel=2e-3)
        standardizer = Standardizer(1, 3)
        standardizer.fit_replica(0, torch.randn(200, 3), NUMERIC)
        line = torch.linspace(-1e6, 1e6, 20001, dtype=torch.float64)[:, None].expand(-1, 3)
        out = standardizer.double()(line[None])[0]
        assert (out.diff(dim=0) > 0).all()
        assert out.abs().max() < 30
        near = line.abs().amax(1) < 5
        plain = (line - standardizer.mean) / standardizer.scale
        torch.testing.assert_close(out[near], plain[near])


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


class TestRankMap:
    """Against scipy's ranks and normal quantiles."""

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
    def test_own_rows_get_the_normal_scores_of_their_ranks(self, draw):
        rows = draw(np.random.default_rng(0))
        found = scored(fitted(rows), rows)
        for column in range(2):
            np.testing.assert_allclose(found[:, column], normal_scores(rows[:, column]), atol=2e-6)

    def test_plain_values_are_standardised_and_drawn_in_like_ranks(self):
        rows = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(500, 3))).float()
        rows[0, 1] = 1e5  # more than 10 standard deviations from all others
        rank_map = RankMap(3).fit_plain(rows, torch.tensor([True, True, False]))
        found, (mean, spread) = rank_map(rows).numpy(), (rows.mean(0), rows.std(0, correction=0))
        np.testing.assert_allclose(found[:, 0], (rows[:, 0] - mean[0]) / spread[0], atol=2e-5)
        np.testing.assert_array_equal(found[:, 2], rows[:, 2])
        z = float((rows[0, 1] - mean[1]) / spread[1])
        assert found[0, 1] == pytest.approx(10 + np.log1p(z - 10), rel=1e-4)
        line = torch.linspace(-1e6, 1e6, 2001)[:, None].expand(-1, 3)
        assert (rank_map(line).diff(dim=0) > 0).all()
        assert rank_map(line)[:, :2].abs().max() < 30
        assert not rank_map.beyond(rank_map(rows[1:]), 0.75).any()
        assert rank_map.beyond(rank_map(rows[:1] + spread * 20), 0.75).all()

    def test_linear_between_kept_values_and_like_a_logarithm_past_the_ends(self):
        values, scores = np.array([0.0, 1.0, 3.0]), stats.norm.ppf([1 / 6, 3 / 6, 5 / 6])
        rank_map = fitted(values[:, None])
        for value in (0.25, 0.5, 1.0, 1.5, 2.9):
            wanted = np.interp(value, values, scores)
            assert scored(rank_map, [[value]]).item() == pytest.approx(wanted, abs=1e-6)
        for past in (0.1, 1.0, 50.0, 1e8):
            wanted = scores[-1] + np.log1p(past / values.std())
            assert scored(rank_map, [[3.0 + past]]).item() == pytest.approx(wanted, rel=1e-5)
            assert scored(rank_map, [[-past]]).item() == pytest.approx(-wanted, rel=1e-5)

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.integers(-40, 40), min_size=2, max_size=30), st.sampled_from([1.0, 0.01, 1e5])
    )
    def test_it_is_one_to_one(self, seen, unit):
        """On a grid that goes well past both ends, in any unit."""
        if len(set(seen)) < 2:
            seen = [*seen, seen[0] + 1]
        grid = unit * np.arange(-100, 101, dtype=np.float32)[:, None]
        assert (np.diff(scored(fitted(unit * np.float32(seen)[:, None]), grid)[:, 0]) > 0).all()

    def test_constants_and_indicators_stay_as_they_are(self):
        random = np.random.default_rng(0)
        columns = np.full(50, 4.0), random.integers(0, 2, 50), random.standard_normal(50)
        rows = np.column_stack(columns).astype(np.float32)
        rank_map = fitted(rows, torch.tensor([True, False, True]))
        found = scored(rank_map, rows)
        np.testing.assert_array_equal(found[:, :2], rows[:, :2])
        assert np.abs(found[:, 2] - rows[:, 2]).max() > 0.01
        other = np.float32([[1e9, 17.0, 0.0]])
        np.testing.assert_array_equal(scored(rank_map, other)[:, :2], other[:, :2])

    @pytest.mark.parametrize("power", [1, 3])
    def test_few_knots_stand_for_many_values(self, power):
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

    def test_beyond(self):
        rows = np.random.default_rng(0).standard_normal((200, 2))
        rank_map = fitted(rows, torch.tensor([True, False]))
        assert not rank_map.beyond(torch.from_numpy(scored(rank_map, rows)), 0.5).any()
        # log1p of the distance in standard deviations reaches 1/2 there.
        limit = rows[:, 0].max() + rows[:, 0].std() * np.expm1(0.5)
        far = [[limit - 0.01, 0.0], [limit + 0.01, 0.0], [0.0, 1e9], [-30.0, 0.0]]
        asked = scored(rank_map, far)
        assert rank_map.beyond(torch.from_numpy(asked), 0.5).tolist() == [False, True, False, True]


class TestCanonicalMap:
    def test_by_hand(self):
        """Unfitted it keeps the columns."""
        x = draw(2, 5, 3)
        out = CanonicalMap(2, 3).double()(x)
        assert out.shape == (2, 5, CanonicalMap.out_dim(3))
        torch.testing.assert_close(out[..., :3], x)
        assert out[..., 3:5].all()
        assert not out[..., 5:].any()
        x, weight, mean = 2 * draw(1, 6, 3), draw(3, 2, seed=3), draw(3, seed=4)
        x[0, 5, 1] = 60.0  # far out: the measures of size stop growing
        made = CanonicalMap(1, 3).double()
        made.set_linear(0, mean, weight)
        features_mean, modulated = draw(8, seed=5), draw(8, 6, seed=6)
        made.set_modulated(0, features_mean, modulated)
        out = made(x)[0]
        for row in range(6):
            u = torch.cat([(x[0, row] - mean) @ weight, torch.zeros(1, dtype=torch.float64)])
            size = (u @ u / 3 - 1) * (3 / 2) ** 0.5
            q = 3 * math.tanh(size / 3)
            t = math.log(np.mean([math.exp(min(float(value) ** 2, 20) / 2) for value in x[0, row]]))
            features = torch.cat([u, torch.tensor([q, t - 1]), q * u])
            wanted = torch.cat([features[:5], (features - features_mean) @ modulated[:, :4]])
            torch.testing.assert_close(out[row], wanted)

    def test_replicas_and_extra_dimensions(self):
        made = CanonicalMap(2, 3).double()
        for replica in range(2):
            made.set_linear(replica, draw(3, seed=replica), draw(3, 3, seed=8 + replica))
            made.set_modulated(replica, draw(8, seed=replica), draw(8, 2, seed=replica))
        x = draw(2, 12, 3)
        whole = made(x)
        torch.testing.assert_close(made(x.view(2, 4, 3, 3)).view(2, 12, -1), whole)
        torch.testing.assert_close(made.select([1])(x[1:])[0], whole[1])
        torch.testing.assert_close(made.select([1, 0])(x.flip(0)), whole.flip(0))
        assert not torch.allclose(*made(x[:1].expand(2, 12, 3)))


def test_all_of_it_is_saved():
    rows = draw(80, 3).float()
    standardizer, canonical = Standardizer(1, 3), CanonicalMap(1, 3)
    standardizer.fit_replica(0, rows, NUMERIC)
    canonical.set_linear(0, draw(3), draw(3, 3))
    canonical.set_modulated(0, draw(8), draw(8, 2))
    ranks, other = fitted(rows, torch.tensor([True, False, True])), fitted(rows + 1, NUMERIC)
    for saved, again, given_rows in (
        (standardizer, Standardizer(1, 3), rows[None]),
        (canonical, CanonicalMap(1, 3), rows[None]),
        (ranks, other, rows),
    ):
        again.load_state_dict(saved.state_dict())
        assert torch.equal(again(given_rows), saved(given_rows))
