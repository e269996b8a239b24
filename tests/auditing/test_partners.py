"""Better partners and exchanged pairs, against loops over a log r that is known: scale x . y."""

import math

import numpy as np
import pytest
import torch

from pointdep.auditing import partners as module
from pointdep.auditing.partners import Searched, find_partners
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
    rest = first[~np.isin(first, [3, 17])]
    result = found(x, y, doubtful=np.concatenate([[3, 17], rest]))
    assert set(np.flatnonzero(result.swapped >= 0)) == {3, 17}
    assert result.row[20] == 41


def test_a_cycle_of_three_and_neighbours_are_no_exchange():
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


def test_weak_evidence_is_not_named():
    """As many candidates as there are, a good match is found by chance."""
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

    def test_a_label_that_another_group_has_too(self):
        """The first row with the right label is of the row's own group: the next is named."""
        labels, codes = np.arange(ROWS) % 3, np.arange(ROWS) // 6
        flipped = labels.copy()
        flipped[3] = 1  # of the first group, as are the first rows of all labels
        result = found(np.eye(DIM)[labels], np.eye(DIM)[flipped], codes)
        assert flipped[result.row[3]] == labels[3]
        assert codes[result.row[3]] != codes[3]
        assert result.row[3] == 6

    def test_a_label_that_no_other_group_has(self):
        labels, codes = np.arange(ROWS) % 2, np.arange(ROWS) // 6
        labels[:2] = 2
        x, y = np.eye(DIM)[labels], np.eye(DIM)[labels]
        y[1] = np.eye(DIM)[0]
        assert found(x, y).row[1] == 0
        assert found(x, y, codes).row[1] == -1
