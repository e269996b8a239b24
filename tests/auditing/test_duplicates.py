"""Rows that are nearly the same pair: planted ones are found, and no others."""

import sys

import numpy as np
import pytest
import torch

from pointdep.auditing import partners as module
from pointdep.auditing.partners import duplicates

ROWS = 2000


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
    x, y = gaussians(ROWS, *dims)
    copies = {700: 3, 1999: 3, 1200: 1100, 5: 0}
    plant(x, y, copies, noise=noise)
    assert found_in(x, y) == copies


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dims", [(4, 4), (10, 10), (50, 50), (99, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_gaussian_rows_have_none(dims, seed):
    assert found_in(*gaussians(ROWS, *dims, seed=seed)) == {}


@pytest.mark.parametrize(("dims", "near"), [((1, 1), {}), ((2, 3), {50: 40}), ((6, 1), {50: 40})])
def test_few_columns(dims, near):
    """In a plane rows lie as close by chance: what is nearly the same is not named."""
    x, y = gaussians(ROWS, *dims)
    equal = {900: 3, 1400: 3}
    plant(x, y, equal)
    plant(x, y, {50: 40}, noise=1e-3)
    assert found_in(x, y) == equal | near


@pytest.mark.parametrize("columns", [4, 6, 20])
def test_rows_on_a_curve_lie_close_by_chance(columns):
    """Many columns of one latent number are as crowded as one column."""
    random = np.random.default_rng(columns)
    angle = random.uniform(0, 3, (ROWS, 1))
    x, y = (np.sin(angle * random.uniform(0.5, 2, (1, columns))) for _ in range(2))
    assert found_in(torch.from_numpy(x).float(), torch.from_numpy(y).float()) == {}


@pytest.mark.usefixtures("way")
def test_the_same_on_one_side_is_another_pair():
    """As one picture with two captions, or one caption of two pictures."""
    x, y = gaussians(ROWS, 20, 20)
    plant(x, y, {100: 7}, sides="x")
    plant(x, y, {200: 8}, sides="y")
    plant(x, y, {300: 9})
    assert found_in(x, y) == {300: 9}
    x, y = gaussians(ROWS, 99, 1)  # one column of y among a hundred: it must be the same too
    plant(x, y, {100: 7, 200: 8})
    y[100] = y[7] + 0.5
    assert found_in(x, y) == {200: 8}


def test_an_equal_row_of_a_row_that_is_near(monkeypatch):
    x, y = gaussians(ROWS, 10, 10)
    plant(x, y, {50: 10}, noise=1e-3)
    plant(x, y, {60: 50})
    assert found_in(x, y) == {50: 10, 60: 10}
    thrice = [side[100:400].repeat(3, 1) for side in (x, y)]
    assert found_in(*thrice) == {row: row % 300 for row in range(300, 900)}
    monkeypatch.setattr(module, "_MOST_ROWS", 1000)  # of more rows only equal ones are looked for
    assert found_in(x, y) == {60: 50}


def test_values_that_repeat_by_nature():
    """A label ties by nature, the numbers beside it do not."""
    random = np.random.default_rng(0)
    few, y, other = (torch.eye(k)[torch.from_numpy(random.integers(0, k, ROWS))] for k in (5, 3, 4))
    assert found_in(few, other) == {}
    x, _ = gaussians(ROWS, 12, 1)
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


@pytest.mark.usefixtures("way")
def test_neighbours_leave_the_row_itself_out():
    rows = np.random.default_rng(0).normal(size=(300, 9)).astype(np.float32)
    rows[7] = rows[250]  # where the row itself need not come first
    numbers, distances = module._neighbours(rows)
    exact = np.linalg.norm(rows[:, None].astype(float) - rows, axis=2)
    np.fill_diagonal(exact, np.inf)
    np.testing.assert_allclose(distances, np.sort(exact, 1)[:, :10], atol=2e-3)
    assert (numbers == np.argsort(exact, 1)[:, :10]).mean() > 0.999
