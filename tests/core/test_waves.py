"""Waves of the ranks: values by hand, and data whose waves are known."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from pointdep.core.transforms import CanonicalMap, PickedMap, WaveMap
from pointdep.core.waves import column_pairs, find_waves, wave_values

MOST = WaveMap.waves


def scores(*columns):
    """(n,) columns as normal scores of their ranks, (n, d), in float32."""
    ranks = [(stats.rankdata(column) - 0.5) / len(column) for column in columns]
    return torch.from_numpy(stats.norm.ppf(np.column_stack(ranks)).astype(np.float32))


def waves_of(found):
    """The waves as a set of (frequencies, phase)."""
    frequencies, phases = found
    return {(*f, p) for f, p in zip(frequencies.T.tolist(), phases.tolist(), strict=True)}


@pytest.mark.parametrize("k", range(1, 9))
def test_the_frequency_of_a_sine(k):
    """sin(2 pi k p) = cos(pi (2 k p - 1/2)) of the ranks p; noise drowns its overtones."""
    random = np.random.default_rng(k)
    p = (random.permutation(1000) + 0.5) / 1000
    y = np.sin(2 * math.pi * k * p) + 0.5 * random.standard_normal(1000)
    (frequencies, phases), _ = find_waves(scores(p), scores(y), MOST)
    assert (frequencies[:, 0].tolist(), phases[0].item()) == ([2 * k], -0.5)


def test_a_product_of_signs_and_the_order_of_rows():
    """No column of x alone says anything about y; cos a cos b is a sum of two waves of both."""
    random = np.random.default_rng(0)
    a, b, noise = random.standard_normal((3, 1000))
    found, of_y = find_waves(scores(a, b), scores(np.sign(a * b) + 0.3 * noise), MOST)
    assert waves_of((found[0][:, :2], found[1][:2])) == {(1, 1, 0), (1, -1, 0)}
    assert of_y[0].shape[0] == 1
    # The order of the rows does not matter.
    random = np.random.default_rng(1)
    x = random.random((600, 2))
    y = np.cos(2 * math.pi * x[:, 0]) + x[:, 1] ** 2 + 0.2 * random.standard_normal(600)
    sides = scores(*x.T), scores(y)
    order = torch.from_numpy(random.permutation(600))
    found, shuffled = find_waves(*sides, MOST), find_waves(*(s[order] for s in sides), MOST)
    assert [waves_of(side) for side in found] == [waves_of(side) for side in shuffled]
    assert len(found[0][1]) > 2
    assert torch.equal(find_waves(*sides, 2)[0][0], found[0][0][:, :2])  # the best come first


def test_independent_sides_two_values_and_constants_have_none():
    random = np.random.default_rng(0)
    draws = [[scores(*random.standard_normal((2, 400))) for _ in "xy"] for _ in range(100)]
    none = [sum(len(phases) for _, phases in find_waves(x, y, MOST)) == 0 for x, y in draws]
    assert sum(none) >= 95
    # A column of two values is one step, whatever its wave.
    random = np.random.default_rng(0)
    x = random.integers(0, 2, 500)
    (_, of_x), _ = find_waves(scores(x), scores(x + 0.1 * random.standard_normal(500)), MOST)
    assert len(of_x) == 0
    found = find_waves(torch.zeros(50, 1), torch.zeros(50, 2), MOST)
    assert [len(phases) for _, phases in found] == [0, 0]


def test_the_features_of_a_map_by_hand():
    random = np.random.default_rng(2)
    x = random.standard_normal((2, 5, 3)).astype(np.float32)
    made, plain = WaveMap(2, 3), CanonicalMap(2, 3)
    own = [
        (random.integers(-2, 9, (3, 4)).astype(np.float32), -np.arange(4, dtype=np.float32) / 2)
        for _ in range(2)
    ]
    for replica, (frequencies, phases) in enumerate(own):
        made.set_waves(replica, torch.from_numpy(frequencies), torch.from_numpy(phases))
    found = made.features(torch.from_numpy(x)).numpy()
    assert found.shape == (2, 5, 2 * 3 + 2 + MOST)
    np.testing.assert_array_equal(found[..., :8], plain.features(torch.from_numpy(x)).numpy())
    for replica, (frequencies, phases) in enumerate(own):
        for row in range(5):
            p = stats.norm.cdf(x[replica, row].astype(float))
            for wave in range(4):
                angle = sum(p[c] * frequencies[c, wave] for c in range(3)) + phases[wave]
                wanted = math.cos(math.pi * angle)
                assert found[replica, row, 8 + wave] == pytest.approx(wanted, abs=1e-4)
        values = wave_values(torch.from_numpy(x[replica]), *map(torch.from_numpy, own[replica]))
        np.testing.assert_allclose(values, found[replica, :, 8:12], atol=1e-4)
    one = made.select([1])(torch.from_numpy(x[1:]))
    torch.testing.assert_close(one, made(torch.from_numpy(x))[1:])
    assert one.shape == (1, 5, WaveMap.out_dim(3))
    # A map keeps the first waves and forgets the last ones.
    made = WaveMap(1, 2)
    made.set_waves(0, torch.ones(2, MOST + 9), torch.full((MOST + 9,), -0.5))
    assert made.frequencies.shape == (1, 2, MOST)
    made.set_waves(0, torch.full((2, 1), 3.0), torch.zeros(1))
    assert (made.frequencies[0, :, 0].tolist(), made.frequencies[0, :, 1:].sum()) == ([3, 3], 0)


def test_a_map_of_picked_columns_is_that_of_these_columns():
    x = torch.randn(2, 7, 40, generator=torch.Generator().manual_seed(0))
    made, alone = PickedMap(2, 40), WaveMap(2, 24)
    state = {name: torch.randn(part.shape) for name, part in alone.state_dict().items()}
    alone.load_state_dict(state)
    made.load_state_dict({**made.state_dict(), **state})
    few = torch.zeros(2, 7, 24)
    for replica, columns in enumerate(([31, 2, 17], [5])):
        made.set_picked(replica, torch.tensor([8, 9, 10, 11]))
        made.set_picked(replica, torch.tensor(columns))
        few[replica, :, : len(columns)] = x[replica][:, columns]
    assert torch.equal(made(x), alone(few))
    assert made(x).shape[2] == PickedMap.out_dim(40) == WaveMap.out_dim(24)


# Pairs of columns in wide data.


def wide(seed, rows, columns, *shared):
    """x, y: columns of which the first pairs are given as functions of two normal draws."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((2, rows, columns))
    for column, function in enumerate(shared):
        y[:, column] = function(x[:, column], y[:, column])
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()


@pytest.mark.parametrize("rows", [400, 3000])
@pytest.mark.parametrize(
    "shared",
    [
        lambda x, z: x**2 + 0.5 * z,
        lambda x, z: np.abs(x) + 0.3 * z,
        lambda x, z: np.exp(x) * z,
        lambda x, z: x * z,
        lambda x, z: np.cos(6 * np.pi * stats.norm.cdf(x)) + 0.5 * z,
    ],
)
def test_a_pair_of_columns_that_correlation_does_not_show(shared, rows):
    found = column_pairs(*wide(1, rows, 40, lambda x, z: x + z, shared), 24)
    assert [side.tolist() for side in np.nonzero(found.other > 1)] == [[1], [1]]
    assert [side.tolist() for side in np.nonzero(found.linear > 1)] == [[0], [0]]
    assert found.few(24)
    assert [sorted(side) for side in found.columns(24)] == [[0, 1], [0, 1]]


def test_gaussian_pairs_have_no_waves_beyond_their_correlation():
    """However strong; each wave has large correlations of its own with those of the other side."""
    for seed in range(10):
        pairs = [lambda x, z, r=r: r * x + (1 - r**2) ** 0.5 * z for r in (0.5, -0.8, 0.95, 0.99)]
        found = column_pairs(*wide(seed, 4000, 30, *pairs), 24)
        assert found.other.max() < 1
        assert np.argsort(-found.linear.max(1))[:2].tolist() == [3, 2]


def test_independent_wide_sides_have_no_pairs():
    found = [column_pairs(*wide(seed, 500, 40), 24) for seed in range(60)]
    assert sum(one.few(24) for one in found) <= 3


def test_tied_values_share_a_rank():
    """In whatever order the rows come, columns that are mostly zeros have nothing in common."""
    random = np.random.default_rng(0)
    x, y = torch.from_numpy((random.random((2, 2000, 30)) < 0.1).astype(np.float32))
    found = column_pairs(x, y, 24)
    assert max(found.linear.max(), found.other.max()) < 1


def test_too_many_columns_are_left_to_other_critics():
    parabolas = [lambda x, z: x**2 + 0.5 * z] * 5
    found = column_pairs(*wide(0, 2000, 30, *parabolas), 4)
    assert [found.few(most) for most in (4, 5)] == [False, True]
    assert [len(side) for side in found.columns(4)] == [4, 4]
    x, y = wide(0, 2000, 30, *parabolas)
    one = column_pairs(x, y[:, :1], 4)  # the other side has few: all of it is kept
    assert one.few(4)
    assert [side.tolist() for side in one.columns(4)] == [[0], [0]]
