"""Mutual information from parts of the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from pointdep import ClassicalDependency, InputError, mi_against_n

KSG = ClassicalDependency("ksg", random_state=0, progress=False)
CCA = ClassicalDependency("cca", random_state=0, progress=False)
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((800, 1))
Y = 0.8 * X + 0.6 * RANDOM.standard_normal((800, 1))


def test_halves_of_the_rows_near_the_truth():
    found = mi_against_n(KSG, X, Y)
    assert found.rows == (50, 100, 200, 400, 800)
    low, high = found.estimates[-1].ci
    assert low < -np.log(0.6) < high
    assert found.estimates[0].stderr > 2 * found.estimates[-1].stderr


def test_all_rows_are_the_fit_itself():
    found = mi_against_n(CCA, X, Y, sizes=[800])
    expected = CCA.fit(X, Y).mutual_information()
    assert found.estimates[0].nats == pytest.approx(expected.nats)


def test_tables_lists_and_groups():
    sides = [(X, Y), (pd.DataFrame(X), pd.DataFrame(Y)), (X.tolist(), Y.tolist())]
    values = [mi_against_n(CCA, *side, sizes=[100]).estimates[0].nats for side in sides]
    assert values[0] == values[1] == values[2]
    groups = np.arange(800) // 2
    grouped = mi_against_n(CCA, X, Y, groups=groups, sizes=[300])
    assert grouped.estimates[0].rows == 300


def test_what_it_gives():
    found = mi_against_n(CCA, X, Y, sizes=[200, 100, 100])
    assert found.rows == (100, 200)
    assert str(found).splitlines()[0] == f"100 rows: {found.estimates[0]}"
    assert found.to_dict()["estimates"][1]["nats"] == found.estimates[1].nats
    assert found.plot_mi(Figure().subplots()).get_ylabel() == "mutual information in nats"


@pytest.mark.parametrize("sizes", [[], [1], [900], [50.5]])
def test_wrong_sizes(sizes):
    with pytest.raises(InputError, match="sizes"):
        mi_against_n(CCA, X, Y, sizes=sizes)


def test_sides_of_other_lengths():
    with pytest.raises(InputError, match="X has 800 rows but Y has 10"):
        mi_against_n(CCA, X, Y[:10])
