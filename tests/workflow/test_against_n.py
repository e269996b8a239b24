"""Mutual information from parts of the rows."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator
from sklearn.model_selection import TimeSeriesSplit

from pointdep import ClassicalDependency, PointwiseDependency, mi_against_n
from pointdep.estimators.pointwise import fit_parts
from pointdep.workflow import comparison
from refusals import quietly, refused

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


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.filterwarnings("ignore::pointdep.FitWarning")
def test_networks_of_all_parts_train_in_one_run(grouped, monkeypatch):
    """As in fits of each part alone: to the network the rows of the others are not there."""
    x, noise = np.random.default_rng(2).standard_normal((2, 640, 2))
    y, groups = np.abs(x) + 0.3 * noise, np.arange(640) // 2 if grouped else None
    how = {"critic": "concat", "hidden": (16,), "folds": 2, "max_epochs": 15, "random_state": 0}
    model = PointwiseDependency(**how, learning_rate=0.01, progress=False)
    fits, fit = [], PointwiseDependency.fit

    def counted(self, *data, **groups):
        fits.append(len(data[0]))
        assert self.curve is False
        return fit(self, *data, **groups)

    monkeypatch.setattr(PointwiseDependency, "fit", counted)
    options = {"groups": groups, "sizes": [60, 320, 640], "confidence": 0.9}
    found = mi_against_n(model, x, y, **options, progress=False)
    assert fits == [640, 60]  # of 60 rows too few would train with the others
    whole = PointwiseDependency(**model.get_params()).set_params(curve=False)
    whole.fit(x, y, groups=groups)
    last = whole.mutual_information(confidence=0.9)
    assert found.estimates[-1].nats == pytest.approx(last.nats, abs=1e-4)
    assert found.estimates[-1].ci == pytest.approx(last.ci, abs=1e-4)
    assert [one.rows for one in found.estimates] == [60, 320, 640]
    monkeypatch.setattr(comparison, "_rides", lambda *_: False)
    apart = mi_against_n(model, x, y, **options, progress=False)
    for one, other in zip(found.estimates[1:], apart.estimates[1:], strict=True):
        assert one.nats == pytest.approx(other.nats, abs=one.stderr + other.stderr)
        assert one.stderr == pytest.approx(other.stderr, rel=0.5)


@pytest.mark.parametrize("method", ["pc", "cpc", "dv"])
def test_a_part_has_the_flags_and_the_state_of_its_own_fit(method):
    """The first half has copies, and x gives y; read-outs are finished with its own rows."""
    x = np.random.default_rng(0).standard_normal((600, 1))
    x[100:140] = x[60:100]
    y = x**3 if method == "pc" else np.concatenate([x[:300] ** 3, X[:300]])
    how = {"critic": "auto" if method == "pc" else "concat", "hidden": (16,), "batch_size": 64}
    how |= {"folds": 2, "max_epochs": 2, "learning_rate": 0.01, "reference_size": 12}
    how |= {"random_state": 0, "curve": False, "progress": False, "method": method}
    whole, alone = PointwiseDependency(**how), PointwiseDependency(**how)
    with quietly():
        halves = fit_parts(whole, x, y, None, [np.arange(300), np.arange(300, 600)])
        alone.fit(x[:300], y[:300])
    first = halves[0]
    trains = {"still_improving", "not_converged"}  # which of them, the other rows may decide
    names, wanted, others = ({f.name for f in m.flags_} for m in (first, alone, halves[1]))
    assert (names - trains, bool(names & trains)) == (wanted - trains, True)
    assert wanted > {"duplicated_rows", *(["determined"] if method == "pc" else [])}
    assert "duplicated_rows" not in others
    assert {r for f in first.flags_ for r in f.replicas} <= {0, 1}
    stored = first.model_.reference.any() or first.model_.constant.any()
    assert bool(stored) == (method != "pc")
    assert len({tuple(one.model_.seen.tolist()) for one in (whole, *halves)}) == 3
    assert first.history_ != whole.history_
    assert (len(first.history_), first.digests_, first._parts) == (2, None, ())


def test_parts_whose_rows_cannot_be_set_against_each_other_are_refused():
    model = PointwiseDependency(method="js", folds=6, batch_size=8, random_state=0, progress=False)
    how = {"groups": np.arange(120) // 10, "sizes": [60, 120], "progress": False}
    refused("split 0 reports only one", mi_against_n, model, X[:120], Y[:120], **how)
