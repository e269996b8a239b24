"""Tables of r for categories: against finite tables, and what no relabelling may change."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pointdep.core.critics.table import Table, TableCritic
from pointdep.data.tasks.discrete import table_pmi
from pointdep.fitting import tables
from pointdep.fitting.batches import SplitRows
from pointdep.fitting.splits import make_splits


def _rank_two() -> NDArray[np.float64]:
    """p(x, y), (6, 5), of two topics that share no category."""
    random, joint = np.random.default_rng(0), np.zeros((6, 5))
    joint[:3, :2] = 0.4 * np.outer(random.dirichlet(np.ones(3)), random.dirichlet(np.ones(2)))
    joint[3:, 2:] = 0.6 * np.outer(random.dirichlet(np.ones(3)), random.dirichlet(np.ones(3)))
    return joint


def _rows(joint: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows whose counts are the expected ones, up to rounding."""
    cells = np.repeat(np.arange(joint.size), np.rint(count * joint).astype(int).ravel())
    x, y = np.unravel_index(np.random.default_rng(1).permutation(cells), joint.shape)
    return x, y


def _shares(**chosen: float) -> torch.Tensor:
    names = ["independent", "frequent", "excess", *(f"rank{rank}" for rank in tables.RANKS)]
    return torch.tensor([chosen.get(name, 0.0) for name in names])


def _all_pairs(table: Table, shape: tuple[int, int]) -> NDArray[np.float64]:
    """r of all cells."""
    critic = TableCritic(1, *shape)
    critic.set_tables([table])
    x, y = (torch.arange(size).float().view(1, -1, 1) for size in shape)
    return critic.matrix(x, y)[0].exp().double().numpy()


def _random_rows(count: int, shape: tuple[int, int]) -> tuple[NDArray[np.int64], ...]:
    random = np.random.default_rng(3)
    x = random.integers(0, shape[0], count)
    return x, np.where(
        random.random(count) < 0.5, x % shape[1], random.integers(0, shape[1], count)
    )


def test_low_rank_tables_and_frequencies_are_those_of_the_counts() -> None:
    joint = _rank_two()
    x, y = _rows(joint, 200_000)
    table = tables.fitted_table(x, y, np.arange(len(x)), _shares(rank4=1.0), joint.shape, 0)
    found = _all_pairs(table, joint.shape)
    possible = joint > 0
    assert np.allclose(np.log(found[possible]), table_pmi(joint)[possible], atol=0.01)
    assert found[~possible].max() < 0.01
    x, y = _random_rows(400, (7, 5))
    table = tables.fitted_table(x, y, np.arange(400), _shares(frequent=1.0), (7, 5), 0)
    counts = np.zeros((7, 5))
    np.add.at(counts, (x, y), 1)
    expected = 400 * counts / np.outer(counts.sum(1), counts.sum(0))
    assert np.allclose(_all_pairs(table, (7, 5)), expected, rtol=1e-5)


@pytest.mark.parametrize("part", ["independent", "frequent", "excess", "rank4", "rank16"])
def test_each_part_sums_to_one_under_the_product(part: str) -> None:
    shape = (30, 20)
    x, y = _random_rows(500, shape)
    table = tables.fitted_table(x, y, np.arange(500), _shares(**{part: 1.0}), shape, 0)
    product = np.outer(np.bincount(x, minlength=30), np.bincount(y, minlength=20)) / 500**2
    assert (product * _all_pairs(table, shape)).sum() == pytest.approx(1.0, abs=1e-4)


def test_categories_that_did_not_come_and_names_that_do_not_matter() -> None:
    x, y = _random_rows(300, (6, 4))
    table = tables.fitted_table(x, y, np.arange(300), _shares(frequent=1.0), (8, 5), 0)
    found = _all_pairs(table, (8, 5))
    assert np.allclose(found[6:], 1.0)
    assert np.allclose(found[:, 4], 1.0)
    shape, random = (12, 9), np.random.default_rng(4)
    x, y = _random_rows(600, shape)
    to_x, to_y = random.permutation(12), random.permutation(9)
    shares = _shares(independent=0.2, excess=0.3, rank4=0.2, rank8=0.3)
    one = _all_pairs(tables.fitted_table(x, y, np.arange(600), shares, shape, 0), shape)
    other = _all_pairs(
        tables.fitted_table(to_x[x], to_y[y], np.arange(600), shares, shape, 0), shape
    )
    assert np.allclose(other[to_x][:, to_y], one, rtol=1e-3)


def test_stacking_maximises_the_likelihood_of_the_mixture() -> None:
    random = np.random.default_rng(5)
    ratios = torch.from_numpy(np.column_stack([np.ones(5_000), random.gamma(2.0, 0.5, (5_000, 3))]))
    weights = tables.stacked(ratios)
    assert float(weights.sum()) == pytest.approx(1.0)
    best = float((ratios @ weights).log().sum() + 3.0 * weights[0].log())
    for other in random.dirichlet(np.ones(4), 200):
        own = torch.from_numpy(other)
        assert float((ratios @ own).log().sum() + 3.0 * own[0].log()) <= best + 1e-3


def test_independent_categories_and_partners_of_each_are_found() -> None:
    def fitted(x: NDArray[np.int64], y: NDArray[np.int64], levels: int, folds: int) -> tuple:
        sides = (torch.from_numpy(side).float().unsqueeze(1) for side in (x, y))
        critic = TableCritic(folds, levels, levels)
        tables.fit_tables(critic, SplitRows(*sides, make_splits(len(x), folds=folds, seed=0)))
        return critic, torch.arange(levels).float().view(1, -1, 1).expand(folds, -1, -1)

    critic, codes = fitted(*np.random.default_rng(6).integers(0, 40, (2, 800)), 40, 3)
    assert torch.allclose(critic.matrix(codes, codes), torch.zeros(3, 40, 40), atol=1e-6)
    random = np.random.default_rng(7)
    x = random.integers(0, 60, 3_000)
    y = np.where(random.random(3_000) < 0.5, x, random.integers(0, 60, 3_000))
    critic, codes = fitted(x, y, 60, 2)
    assert np.abs(critic.pairs(codes, codes).numpy() - np.log(0.5 + 0.5 * 60)).mean() < 0.4


def _simulated(joint: NDArray[np.float64], count: int, names: NDArray[np.int64]) -> tuple[Any, ...]:
    """Rows drawn from the exact table of a joint distribution, whose x are called names[x]."""
    x, y = _rows(joint, count)
    ratio = joint / np.outer(joint.sum(1), joint.sum(0))
    critic = TableCritic(1, *joint.shape)
    factors = torch.empty(*joint.shape)
    factors[names] = torch.from_numpy(ratio).float()
    no_cells = torch.empty(0, dtype=torch.int64), torch.empty(0)
    critic.set_tables([Table(factors, torch.eye(joint.shape[1]), *no_cells)])
    return tables.simulated(critic, names[x], y, 3)


def test_simulated_rows_are_those_of_the_table_and_know_their_ratio() -> None:
    joint = _rank_two()
    x, y, log_ratio = _simulated(joint, 50_000, np.arange(6))
    shares = np.zeros_like(joint)
    np.add.at(shares, (x, y), 1 / len(x))
    assert np.abs(shares - joint).max() < 4 * np.sqrt(joint.max() / len(x))
    assert np.allclose(log_ratio, table_pmi(joint)[x, y], atol=1e-3)


def test_simulated_rows_do_not_depend_on_names() -> None:
    names = np.random.default_rng(2).permutation(6)
    x, y, _ = _simulated(_rank_two(), 500, np.arange(6))
    other_x, other_y, _ = _simulated(_rank_two(), 500, names)
    assert (names[x] == other_x).all()
    assert (y == other_y).all()
