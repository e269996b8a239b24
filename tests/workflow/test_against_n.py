"""Mutual information from parts of the rows."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator
from sklearn.model_selection import TimeSeriesSplit

from pointdep import ClassicalDependency, mi_against_n
from refusals import refused

KSG = ClassicalDependency("ksg", random_state=0, progress=False)
CCA = ClassicalDependency("cca", random_state=0, progress=False)
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((800, 1))
Y = 0.8 * X + 0.6 * RANDOM.standard_normal((800, 1))


def test_halves_of_the_rows_what_it_gives_and_refuses():
    found = mi_against_n(KSG, X, Y)
    assert found.rows == (50, 100, 200, 400, 800)
    low, high = found.estimates[-1].ci
    assert low < -np.log(0.6) < high
    assert found.estimates[0].stderr > 2 * found.estimates[-1].stderr
    whole = mi_against_n(CCA, X, Y, sizes=[800]).estimates[0]
    assert whole.nats == pytest.approx(CCA.fit(X, Y).mutual_information().nats)
    found = mi_against_n(CCA, X, Y, sizes=[200, 100, 100])
    assert found.rows == (100, 200)
    assert str(found).splitlines()[0] == f"100 rows: {found.estimates[0]}"
    assert found.to_dict()["estimates"][1]["nats"] == found.estimates[1].nats
    assert found.plot_mi(Figure().subplots()).get_ylabel() == "mutual information in nats"
    # From arrays, tables and lists.
    sides = [(X, Y), (pd.DataFrame(X), pd.DataFrame(Y)), (X.tolist(), Y.tolist())]
    values = [mi_against_n(CCA, *side, sizes=[100]).estimates[0].nats for side in sides]
    assert values[0] == values[1] == values[2]
    for message, options in (
        *(("sizes", {"sizes": sizes}) for sizes in ([], [1], [900], [50.5])),
        ("X has 800 rows but groups has 10", {"groups": np.arange(10)}),
        ("X has 800 rows but Y has 10", {"Y": Y[:10]}),
    ):
        refused(message, mi_against_n, CCA, X, **{"Y": Y, **options})


class Told(BaseEstimator):
    """Keeps what each copy of it was fitted on, and answers as `CCA`."""

    seen: ClassVar[list] = []  # by all copies

    def __init__(self, cv=None, progress=False):
        self.cv, self.progress = cv, progress

    def fit(self, X, Y, groups=None):
        self.seen.append((np.asarray(X), groups))
        self.fitted_ = CCA.fit(X, Y)
        return self

    def mutual_information(self, confidence):
        return self.fitted_.mutual_information(confidence=confidence)


def parts(**options):
    """The numbers of the rows that each copy was fitted on, and their groups."""
    Told.seen.clear()
    found = mi_against_n(Told(options.pop("cv", None)), X, Y, **options)
    place = {float(value): row for row, value in enumerate(X[:, 0])}
    rows = [np.array([place[float(value)] for value in x[:, 0]]) for x, _ in Told.seen]
    assert found.rows == tuple(len(part) for part in rows)
    return rows, [groups for _, groups in Told.seen]


class TestParts:
    GROUPS = np.random.default_rng(1).permutation(np.arange(800) // 8)

    def test_each_holds_the_one_before_and_groups_whole(self):
        rows, groups = parts(sizes=[60, 200, 500])
        assert groups == [None] * 3
        assert set(rows[0]) < set(rows[1]) < set(rows[2])
        assert len(rows[0]) == 60
        assert not np.array_equal(rows[0], np.arange(60))
        # What trains comes before what reports, as in the whole data.
        for cv in (None, TimeSeriesSplit(3)):
            for part in parts(cv=cv)[0]:
                assert (np.diff(part) > 0).all()
        # Fifty rows are seven groups of eight; one row each of fifty groups would be fifty.
        rows, groups = parts(groups=[f"g{code}" for code in self.GROUPS], sizes=[50, 200])
        for part, given, count in zip(rows, groups, (7, 25), strict=True):
            assert len(part) == 8 * count
            assert len(np.unique(self.GROUPS[part])) == len(np.unique(given)) == count
        assert set(rows[0]) < set(rows[1])
        # Halves are of the groups.
        rows, _ = parts(groups=self.GROUPS)
        assert [len(part) for part in rows] == [400, 800]
        codes = np.minimum(np.arange(800), 399)  # one of half the rows, others of one
        rows, _ = parts(groups=codes, sizes=[10, 600, 800])
        for part in rows:
            assert np.isin(codes, codes[part]).sum() == len(part)
        assert len(rows[-1]) == 800
