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


def exchange(y, *pairs):
    y = y.copy()
    for a, b in pairs:
        y[[a, b]] = y[[b, a]]
    return y


def test_the_best_of_all_rows_by_a_loop():
    x = directions()
    y = exchange(directions(), (3, 17), (20, 41), (8, 9))
    result, matrix = found(x, y), matrix_of(x, y)
    for row in range(ROWS):
        best = max((other for other in range(ROWS) if other != row), key=lambda k: matrix[row, k])
        if matrix[row, best] > matrix[row, row] + 1e-4:
            assert result.row[row] == best
            assert result.pmi[row] == pytest.approx(matrix[row, best], abs=1e-4)
        else:
            assert result.row[row] == -1
            assert np.isnan(result.pmi[row])
    assert (result.row >= 0).sum() == 6


def test_only_the_doubtful_are_asked():
    x = directions()
    y = exchange(directions(), (3, 17), (20, 41))
    result = found(x, y, doubtful=np.array([17, 20]))
    assert set(np.flatnonzero(result.row >= 0)) == {17, 20}
    assert (result.swapped == -1).all()  # the rows they exchanged with are not looked at


def test_exchanged_rows_name_each_other():
    x = directions()
    pairs = {3: 17, 17: 3, 20: 41, 41: 20, 8: 9, 9: 8}
    y = exchange(directions(), (3, 17), (20, 41), (8, 9))
    result = found(x, y)
    named = np.flatnonzero(result.swapped >= 0)
    assert {int(row): int(result.swapped[row]) for row in named} == pairs
    assert {int(row): int(result.row[row]) for row in named} == pairs


def test_a_cycle_of_three_is_no_exchange():
    x = directions()
    x[5:8] = np.eye(DIM)[:3]
    y = x.copy()
    y[[5, 6, 7]] = y[[6, 7, 5]]
    result = found(x, y)
    assert (result.swapped == -1).all()
    assert [result.row[k] for k in (5, 6, 7)] == [7, 5, 6]


def test_rows_that_belong_to_their_own_y_exchanged_nothing():
    """Two neighbours, each a little nearer to the other's y, are both right."""
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
    x, y = directions(), exchange(directions(), (3, 17))
    assert found(x, y).swapped[3] == 17
    weak = 0.2 * y
    assert 2 * 0.2 * max(SCALES) < math.log(10 * ROWS)
    assert (found(x, weak).swapped == -1).all()


def test_equal_y_are_one_candidate():
    """Ten labels: named is the first row that has the best one."""
    labels = np.random.default_rng(1).integers(0, 10, ROWS)
    centres = directions(seed=5)[:10]
    x = centres[labels]
    flipped = labels.copy()
    flipped[[4, 50]] = (labels[[4, 50]] + 3) % 10
    y = centres[flipped]
    result, matrix = found(x, y), matrix_of(x, y)
    for row in (4, 50):
        best = matrix[row].argmax()
        assert np.array_equal(y[result.row[row]], y[best])
        assert result.row[row] == np.flatnonzero((y == y[best]).all(1))[0]
        assert flipped[result.row[row]] == labels[row]
    others = np.setdiff1d(np.arange(ROWS), [4, 50])
    assert (result.row[others] == -1).all()
    assert all(
        flipped[row] != flipped[other] for row, other in enumerate(result.swapped) if other >= 0
    )


class TestGroups:
    def test_never_of_the_own_group(self):
        x = directions()
        y = exchange(directions(), (3, 17), (20, 41))
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
        labels = np.arange(ROWS) % 3
        centres = np.eye(DIM)[:3]
        codes = np.arange(ROWS) // 6
        flipped = labels.copy()
        flipped[3] = 1  # of the first group, as are the first rows of all labels
        result = found(centres[labels], centres[flipped], codes)
        assert flipped[result.row[3]] == labels[3]
        assert codes[result.row[3]] != codes[3]
        assert result.row[3] == 6

    def test_a_label_that_no_other_group_has(self):
        labels = np.arange(ROWS) % 2
        centres = np.eye(DIM)
        codes = np.arange(ROWS) // 6
        labels[:2] = 2
        x, y = centres[labels], centres[labels].copy()
        y[1] = centres[0]
        assert found(x, y).row[1] == 0
        assert found(x, y, codes).row[1] == -1


def test_the_most_doubtful_alone_are_searched_for_exchanges(monkeypatch):
    monkeypatch.setattr(module, "_MOST_SWAPS", 2)
    x = directions()
    y = exchange(directions(), (3, 17), (20, 41))
    pmi = np.diag(matrix_of(x, y))
    first = np.argsort(pmi, kind="stable")
    rest = first[~np.isin(first, [3, 17])]
    result = found(x, y, doubtful=np.concatenate([[3, 17], rest]))
    assert {int(row) for row in np.flatnonzero(result.swapped >= 0)} == {3, 17}
    assert result.row[20] == 41
