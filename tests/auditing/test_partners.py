"""Partners and exchanged pairs against loops over a known log r; rows that are nearly copies."""

import math
import sys

import numpy as np
import pytest
import torch

from pointdep.auditing import partners as module
from pointdep.auditing.partners import Searched, duplicates, find_partners
from pointdep.core.critics import InnerProductCritic
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.fitting.progress import Silent

ROWS, DIM = 60, 4
SCALES = (6.0, 8.0, 10.0)  # one a replica


def known_model():
    critic = InnerProductCritic(len(SCALES), DIM)
    critic.scale.data[:] = torch.tensor(SCALES).view(-1, 1)
    maps = Standardizer(len(SCALES), DIM), Standardizer(len(SCALES), DIM)
    return RatioModel(critic, *maps, [METHODS["pc"]] * len(SCALES)).requires_grad_(False)


def directions(seed=0):
    """(ROWS, DIM) of length one."""
    drawn = np.random.default_rng(seed).normal(size=(ROWS, DIM))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def matrix_of(x, y):
    """log r of all pairs, row i of x asked of replica i mod 3, which did not see it."""
    return np.array([[SCALES[i % 3] * float(a @ b) for b in y] for i, a in enumerate(x)])


def found(x, y, codes=None, doubtful=None):
    pmi = np.diag(matrix_of(x, y)).astype(np.float32)
    order = np.argsort(pmi, kind="stable") if doubtful is None else doubtful
    sides = (torch.from_numpy(side).float() for side in (x, y))
    among = Searched(*sides, np.arange(ROWS) % 3, pmi, order, codes, np.arange(ROWS), ROWS)
    return find_partners(known_model(), among, Silent())


def exchange(*pairs):
    """Directions as x, and as y the same with these rows exchanged."""
    x, y = directions(), directions()
    for a, b in pairs:
        y[[a, b]] = y[[b, a]]
    return x, y


def test_the_best_of_all_rows_by_a_loop():
    x, y = exchange((3, 17), (20, 41), (8, 9))
    result, matrix = found(x, y), matrix_of(x, y)
    for row in range(ROWS):
        best = max((other for other in range(ROWS) if other != row), key=lambda k: matrix[row, k])
        if matrix[row, best] > matrix[row, row] + 1e-4:
            assert result.row[row] == best
            assert result.pmi[row] == pytest.approx(matrix[row, best], abs=1e-4)
        else:
            assert result.row[row] == -1
            assert np.isnan(result.pmi[row])
    # Exchanged rows name each other, and no others are named.
    pairs = {3: 17, 17: 3, 20: 41, 41: 20, 8: 9, 9: 8}
    for named in (result.row, result.swapped):
        assert {row: int(named[row]) for row in range(ROWS) if named[row] >= 0} == pairs


def test_only_the_doubtful_are_asked(monkeypatch):
    x, y = exchange((3, 17), (20, 41))
    result = found(x, y, doubtful=np.array([17, 20]))
    assert set(np.flatnonzero(result.row >= 0)) == {17, 20}
    assert (result.swapped == -1).all()  # the rows they exchanged with are not looked at
    # The most doubtful alone are searched for exchanges.
    monkeypatch.setattr(module, "_MOST_SWAPS", 2)
    first = np.argsort(np.diag(matrix_of(x, y)), kind="stable")
    result = found(x, y, doubtful=np.concatenate([[3, 17], first[~np.isin(first, [3, 17])]]))
    assert (set(np.flatnonzero(result.swapped >= 0)), result.row[20]) == ({3, 17}, 41)


def test_a_cycle_of_three_neighbours_and_weak_evidence():
    x = directions()
    x[5:8] = np.eye(DIM)[:3]
    y = x.copy()
    y[[5, 6, 7]] = y[[6, 7, 5]]
    result = found(x, y)
    assert (result.swapped == -1).all()
    assert result.row[5:8].tolist() == [7, 5, 6]
    # Two neighbours, each a little nearer to the other's y, are both right.
    x, y = directions(), directions()
    x[1] = x[0] + 0.05 * x[2]
    x[:2] /= np.linalg.norm(x[:2], axis=1, keepdims=True)
    y[0], y[1] = x[1], x[0]
    result, matrix = found(x, y), matrix_of(x, y)
    # More than ten to one against the sixty others, and yet no reason to doubt.
    assert matrix[0, 1] + matrix[1, 0] > math.log(10 * ROWS)
    assert result.row[0] == 1
    assert (result.swapped == -1).all()
    # As many candidates as there are, a good match is found by chance.
    x, y = exchange((3, 17))
    assert found(x, y).swapped[3] == 17
    assert 2 * 0.2 * max(SCALES) < math.log(10 * ROWS)
    assert (found(x, 0.2 * y).swapped == -1).all()


def test_equal_y_are_one_candidate():
    """Ten labels: named is the first row that has the best one."""
    labels = np.random.default_rng(1).integers(0, 10, ROWS)
    centres, flipped = directions(seed=5)[:10], labels.copy()
    flipped[[4, 50]] = (labels[[4, 50]] + 3) % 10
    x, y = centres[labels], centres[flipped]
    result, matrix = found(x, y), matrix_of(x, y)
    for row in (4, 50):
        best = matrix[row].argmax()
        assert np.array_equal(y[result.row[row]], y[best])
        assert result.row[row] == np.flatnonzero((y == y[best]).all(1))[0]
        assert flipped[result.row[row]] == labels[row]
    assert (np.delete(result.row, [4, 50]) == -1).all()
    swapped = np.flatnonzero(result.swapped >= 0)
    assert (flipped[swapped] != flipped[result.swapped[swapped]]).all()


class TestGroups:
    def test_never_of_the_own_group(self):
        x, y = exchange((3, 17), (20, 41))
        codes = np.arange(ROWS)
        codes[17], codes[30] = codes[3], codes[20]
        result, matrix = found(x, y, codes), matrix_of(x, y)
        named = np.flatnonzero(result.row >= 0)
        assert (codes[result.row[named]] != codes[named]).all()
        assert result.row[20] == 41
        assert result.swapped[[3, 17, 20, 41]].tolist() == [-1, -1, 41, 20]
        allowed = [other for other in range(ROWS) if codes[other] != codes[3]]
        assert result.row[3] == max(allowed, key=lambda k: matrix[3, k])

    def test_labels_that_another_group_has_too_and_has_not(self):
        """The first row with the right label is of the row's own group: the next is named."""
        labels, codes = np.arange(ROWS) % 3, np.arange(ROWS) // 6
        flipped = labels.copy()
        flipped[3] = 1  # of the first group, as are the first rows of all labels
        result = found(np.eye(DIM)[labels], np.eye(DIM)[flipped], codes)
        assert flipped[result.row[3]] == labels[3]
        assert codes[result.row[3]] != codes[3]
        assert result.row[3] == 6
        # A label that no other group has.
        labels, codes = np.arange(ROWS) % 2, np.arange(ROWS) // 6
        labels[:2] = 2
        x, y = np.eye(DIM)[labels], np.eye(DIM)[labels]
        y[1] = np.eye(DIM)[0]
        assert (found(x, y).row[1], found(x, y, codes).row[1]) == (0, -1)


MANY = 2000


def gaussians(rows, x_dim, y_dim, seed=0):
    random = np.random.default_rng(seed)
    x, y = (random.normal(size=(rows, dim)) for dim in (x_dim, y_dim))
    y[:, 0] += x[:, 0]
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()


def plant(x, y, copies, *, noise=0.0, sides="xy", seed=1):
    """Write row i, with noise, over row j for each j: i of `copies`."""
    generator = torch.Generator().manual_seed(seed)
    for late, early in copies.items():
        for name, side in zip("xy", (x, y), strict=True):
            if name in sides:
                side[late] = side[early] + noise * torch.randn(side.shape[1], generator=generator)


def found_in(x, y):
    found = duplicates(x, y)
    return {int(row): int(found[row]) for row in np.flatnonzero(found >= 0)}


@pytest.fixture(params=["faiss", "without", "cells"])
def way(request, monkeypatch):
    """Each way of looking for neighbours; the last is that of many rows."""
    if request.param == "without":
        monkeypatch.setitem(sys.modules, "faiss", None)
    elif request.param == "cells":
        monkeypatch.setattr(module, "_FLAT_ROWS", 500)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("noise", [0.0, 1e-3])
@pytest.mark.parametrize("dims", [(5, 3), (10, 10), (60, 40), (96, 4)])
def test_planted_copies_point_to_the_first_row(noise, dims):
    x, y = gaussians(MANY, *dims)
    copies = {700: 3, 1999: 3, 1200: 1100, 5: 0}
    plant(x, y, copies, noise=noise)
    assert found_in(x, y) == copies


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dims", [(4, 4), (10, 10), (50, 50), (99, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_gaussian_rows_have_none(dims, seed):
    assert found_in(*gaussians(MANY, *dims, seed=seed)) == {}


@pytest.mark.parametrize(("dims", "near"), [((1, 1), {}), ((2, 3), {50: 40}), ((6, 1), {50: 40})])
def test_few_columns(dims, near):
    """In a plane rows lie as close by chance: what is nearly the same is not named."""
    x, y = gaussians(MANY, *dims)
    equal = {900: 3, 1400: 3}
    plant(x, y, equal)
    plant(x, y, {50: 40}, noise=1e-3)
    assert found_in(x, y) == equal | near


@pytest.mark.parametrize("columns", [4, 6, 20])
def test_rows_on_a_curve_lie_close_by_chance(columns):
    """Many columns of one latent number are as crowded as one column."""
    random = np.random.default_rng(columns)
    angle = random.uniform(0, 3, (MANY, 1))
    x, y = (np.sin(angle * random.uniform(0.5, 2, (1, columns))) for _ in range(2))
    assert found_in(torch.from_numpy(x).float(), torch.from_numpy(y).float()) == {}


@pytest.mark.usefixtures("way")
def test_the_same_on_one_side_is_another_pair_and_no_row_its_own_neighbour():
    """As one picture with two captions, or one caption of two pictures."""
    x, y = gaussians(MANY, 20, 20)
    plant(x, y, {100: 7}, sides="x")
    plant(x, y, {200: 8}, sides="y")
    plant(x, y, {300: 9})
    assert found_in(x, y) == {300: 9}
    x, y = gaussians(MANY, 99, 1)  # one column of y among a hundred: it must be the same too
    plant(x, y, {100: 7, 200: 8})
    y[100] = y[7] + 0.5
    assert found_in(x, y) == {200: 8}
    rows = np.random.default_rng(0).normal(size=(300, 9)).astype(np.float32)
    rows[7] = rows[250]  # where the row itself need not come first
    numbers, distances = module._neighbours(rows)
    exact = np.linalg.norm(rows[:, None].astype(float) - rows, axis=2)
    np.fill_diagonal(exact, np.inf)
    np.testing.assert_allclose(distances, np.sort(exact, 1)[:, :10], atol=2e-3)
    assert (numbers == np.argsort(exact, 1)[:, :10]).mean() > 0.999


def test_equal_rows_of_near_ones_and_values_that_repeat_by_nature(monkeypatch):
    x, y = gaussians(MANY, 10, 10)
    plant(x, y, {50: 10}, noise=1e-3)
    plant(x, y, {60: 50})
    assert found_in(x, y) == {50: 10, 60: 10}
    thrice = [side[100:400].repeat(3, 1) for side in (x, y)]
    assert found_in(*thrice) == {row: row % 300 for row in range(300, 900)}
    monkeypatch.setattr(module, "_MOST_ROWS", 1000)  # of more rows only equal ones are looked for
    assert found_in(x, y) == {60: 50}
    # A label ties by nature, the numbers beside it do not.
    random = np.random.default_rng(0)
    few, y, other = (torch.eye(k)[torch.from_numpy(random.integers(0, k, MANY))] for k in (5, 3, 4))
    assert found_in(few, other) == {}
    x, _ = gaussians(MANY, 12, 1)
    assert found_in(x, y) == {}
    x[500], y[500] = x[2], y[2]
    x[600], y[600] = x[4], 1 - y[4]  # the same numbers with another label
    assert found_in(x, y) == {500: 2}


@pytest.mark.parametrize("rows", [2, 3, 10, 11, 12])
def test_few_rows(rows):
    x, y = gaussians(rows, 6, 6)
    assert found_in(x, y) == {}
    plant(x, y, {rows - 1: 0})
    assert found_in(x, y) == {rows - 1: 0}
