"""`audit` as a whole, on small data whose wrong pairs are known."""

import warnings
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import RepeatedKFold

from pointdep import PointwiseDependency
from pointdep.auditing import audit as audit_module
from pointdep.auditing.audit import audit
from pointdep.auditing.decision import decide
from pointdep.auditing.evidence import Mismatched
from pointdep.auditing.report.wording import more_by_chance
from pointdep.auditing.result import Contamination
from pointdep.errors import DataWarning
from refusals import quietly, refused

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")  # so short a fit
FEW = pytest.mark.filterwarnings("ignore:the share of chance pairs")  # of so few rows
COLUMNS = {"row": "int64", "pmi": "float32", "stderr": "float32", "posterior": "float64"}
COLUMNS |= {"q_value": "float64", "suspect": "bool", "below_zero": "bool", "rank": "int64"}
COLUMNS |= {"better_partner": "Int64", "better_partner_pmi": "float32"}
COLUMNS |= {"swapped_with": "Int64", "duplicate_of": "Int64", "why": "object"}
ROWS = 400
EXCHANGED = {10: 20, 20: 10, 150: 399, 399: 150}
COPIED = 30  # has the y of row 40
TWICE = {200: 5}  # row 200 is row 5 again


def quick(**options):
    settings = {"hidden": (16,), "max_epochs": 5, "folds": 3, "random_state": 0}
    settings |= {"device": "cpu", "progress": False}
    return PointwiseDependency(**{**settings, **options})


def audited(*data, **options):
    return audit(*data, **{"model": quick(), **options})


def pairs(rows=ROWS, dim=6, seed=0):
    """y is a turned x and a tenth of noise."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, dim))
    turned = np.linalg.qr(random.normal(size=(dim, dim)))[0]
    return x, x @ turned + 0.1 * random.normal(size=(rows, dim))


@pytest.fixture(scope="module")
def data():
    x, y = pairs()
    for row, other in TWICE.items():
        x[row], y[row] = x[other], y[other]
    for row, other in EXCHANGED.items():
        if row < other:
            y[[row, other]] = y[[other, row]]
    y[COPIED] = y[40]
    return x, y


@pytest.fixture(scope="module")
def found(data):
    return audited(*data)


class TestTable:
    def test_columns_and_marks(self, found):
        assert {name: str(kind) for name, kind in found.table.dtypes.items()} == COLUMNS
        assert (list(found.table), list(found.table["row"])) == (list(COLUMNS), list(range(ROWS)))
        kept = found.mismatched
        assert 0 < len(kept) <= 10_000
        assert (np.diff(kept) >= 0).all()
        assert np.median(kept) < 0 < found.table["pmi"].median()

        table = found.table
        assert (table["suspect"] == (table["q_value"] <= found.fdr)).all()
        assert (table["below_zero"] == (table["pmi"] < 0)).all()
        assert table["posterior"].between(0, 1).all()
        assert table["q_value"].between(0, 1).all()
        assert sorted(table["rank"]) == list(range(1, ROWS + 1))
        worst_first = table.sort_values("rank")
        assert worst_first["pmi"].is_monotonic_increasing
        assert worst_first["posterior"].is_monotonic_decreasing
        assert worst_first["q_value"].is_monotonic_increasing
        errors = found.table["stderr"]
        assert np.isfinite(errors).all()
        assert (errors > 0).all()
        # What differs between the models is more for pairs that are far from any of the fit.
        assert errors[[*EXCHANGED, COPIED]].median() > 5 * errors.median()

    def test_pmi_is_that_of_the_estimator_and_the_seed_decides(self, found, data):
        fitted = quick(curve=False).fit(*data)
        np.testing.assert_array_equal(found.table["pmi"], fitted.oof_pmi_)
        assert found.mutual_information == fitted.mutual_information()
        assert found.check.passed == fitted.check().passed
        assert (found.flags, found.folds, found.method) == (fitted.flags_, 3, "pc")
        pd.testing.assert_frame_equal(audited(*data).table, found.table)
        other = audited(*data, model=quick(random_state=1)).table
        assert not np.array_equal(other["pmi"], found.table["pmi"])

    @FEW
    def test_options_without_a_model(self):
        settings = {"folds": 2, "random_state": 3, "device": "cpu", "progress": False}
        found = audited(*pairs(60), model=None, **settings)
        fitted = PointwiseDependency(**settings).fit(*pairs(60))
        assert found.folds == 2
        np.testing.assert_array_equal(found.table["pmi"], fitted.oof_pmi_)


class TestWhatIsWrong:
    def test_suspects_partners_and_duplicates(self, found):
        suspects = set(found.suspects["row"])
        assert suspects >= {*EXCHANGED, COPIED}
        assert len(suspects) <= len(EXCHANGED) + 3
        assert 0 < found.contamination.share < 0.1
        assert not found.contamination.given
        table = found.table
        assert table["swapped_with"].dropna().to_dict() == EXCHANGED
        assert table["duplicate_of"].dropna().to_dict() == TWICE
        for row, other in EXCHANGED.items():
            assert table.loc[row, "better_partner"] == other
            assert table.loc[row, "better_partner_pmi"] > 0
        given = table["better_partner"].notna()
        assert (given == table["better_partner_pmi"].notna()).all()
        assert (table["better_partner_pmi"] > table["pmi"])[given].all()
        assert (table["better_partner"] != table["row"])[given].all()

    @FEW
    def test_near_duplicates_of_wider_data(self):
        x, y = pairs(300)
        x[100], y[100] = x[4] + 1e-3, y[4] - 1e-3
        found = audited(x, y, model=quick(folds=2, max_epochs=2))
        assert found.table["duplicate_of"].dropna().to_dict() == {100: 4}

    def test_contamination_and_fdr_that_are_given(self, data, found):
        model = quick()
        given = audited(*data, contamination=0.01, model=model)
        assert not hasattr(model, "model_")  # it is left as it was
        assert given.contamination == Contamination(0.01, given=True, stderr=None)
        np.testing.assert_array_equal(given.table["pmi"], found.table["pmi"])
        one, other = found.table["posterior"], given.table["posterior"]
        between = (one < 1) & (other < 1)
        assert between.any()
        ratio = other[between] / one[between]
        np.testing.assert_allclose(ratio, ratio.iloc[0])
        assert ratio.iloc[0] < 1  # what is counted is no less than 0.01
        generous = audited(*data, fdr=0.6)
        assert generous.fdr == 0.6
        suspect = generous.table["suspect"]
        assert (suspect == (found.table["q_value"] <= 0.6)).all()
        assert suspect.sum() > found.table["suspect"].sum()


def test_groups():
    """Two x that are almost the same, as two pictures of one thing, each with its y."""
    x, y = (np.repeat(side, 2, 0) for side in pairs(200))
    random, codes = np.random.default_rng(1), np.arange(400) // 2
    x, y = x + 0.02 * random.normal(size=x.shape), y + 0.02 * random.normal(size=y.shape)
    y[[10, 11, 100, 101]] = y[[100, 101, 10, 11]]
    table = audited(x, y, codes).table
    named = table["better_partner"].dropna().astype(int)
    assert len(named) >= 4
    assert (codes[named] != codes[named.index]).all()
    for row, group in ((10, 50), (11, 50), (100, 5), (101, 5)):
        assert codes[table.loc[row, "better_partner"]] == group
    # A wrong y may by chance be the best of its own block.
    assert table.loc[[10, 11, 100, 101], "suspect"].sum() >= 3
    assert table["suspect"].sum() <= 5
    with quietly(DataWarning):  # without groups it is the neighbour
        named = audited(x, y).table["better_partner"].dropna().astype(int)
    assert (codes[named] == codes[named.index]).any()


def test_labels():
    """Four clouds with names; six rows have the name of another."""
    random, names = np.random.default_rng(0), np.array(["ash", "elm", "fir", "oak"])
    kind = random.integers(0, 4, ROWS)
    x = 6 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])[kind] + random.normal(size=(ROWS, 2))
    wrong, numbers = np.array([7, 70, 150, 222, 300, 391]), kind.copy()
    numbers[wrong] = (kind[wrong] + random.integers(1, 4, 6)) % 4
    told = names[numbers]
    found = audited(x, told, model=quick(max_epochs=20))
    table = found.table
    assert list(table) == [*list(COLUMNS)[:10], "better_label", *list(COLUMNS)[10:]]
    assert list(table.loc[wrong, "better_label"]) == list(names[kind][wrong])
    assert (table["better_label"].notna() == table["better_partner"].notna()).all()
    named = table["better_partner"].dropna().astype(int)
    assert list(told[named]) == list(table.loc[named.index, "better_label"])
    assert (told[named] != told[named.index]).all()
    assert set(table.nsmallest(6, "rank")["row"]) == set(wrong)
    assert len(set(wrong) & set(found.suspects["row"])) >= 4
    assert len(found.suspects) <= 8
    swapped = table["swapped_with"].dropna().astype(int)  # rows of one label exchanged nothing
    assert (told[swapped] != told[swapped.index]).all()
    other = audited(x, numbers, model=quick(max_epochs=20)).table["better_label"].dropna()
    assert [names[int(k)] for k in other] == list(table["better_label"].dropna())


def test_a_table_with_strings():
    random = np.random.default_rng(0)
    kind = np.array(["left", "right"])[random.integers(0, 2, 300)]
    number = random.normal(size=300)
    number[17] = 0.0
    y = np.where(kind == "left", 1.0, -1.0) + number + 0.1 * random.normal(size=300)
    y[17] = -y[17]
    found = audited(pd.DataFrame({"kind": kind, "number": number}), y, model=quick(max_epochs=20))
    assert found.table["rank"].idxmin() == 17
    assert found.table.loc[17, "suspect"]
    assert "better_label" not in found.table


def test_independent_sides_are_warned_of():
    x, y = np.random.default_rng(0).normal(size=(2, 200, 2))
    with pytest.warns(DataWarning, match="no suspects are named"):
        found = audited(x, y, model=quick(max_epochs=2))
    assert (len(found.table), found.table["suspect"].sum(), found.named) == (200, 0, False)
    assert "cannot be told from chance pairs" in str(found)
    # Who says how many are wrong is not told that the estimate means nothing.
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        audited(x, y, model=quick(max_epochs=2), contamination=0.05)


@pytest.mark.parametrize("told", [False, True])
def test_pairs_that_may_all_be_chance_pairs(told):
    """Their PMI is that of mismatched ones, whatever the interval says."""
    random = np.random.default_rng(0)
    pmi = random.normal(size=24).astype(np.float32)
    standing = random.random(24).astype(np.float32)
    beside = Mismatched(random.normal(size=5000), standing, random.random(5000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = decide(pmi, beside, 0.1 if told else None, least=0.2)
    assert found.named == told
    assert (found.q_value == 1).all() != told
    said = " ".join(str(warning.message) for warning in caught)
    assert ("all pairs may have come together by chance" in said) != told


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_of_a_group_are_one_draw_of_the_mean(grouped):
    """Ten groups of forty equal rows tell too little; four hundred draws tell enough."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(10), 40)
    pmi = np.where(np.arange(400) < 260, 2.0, -2.5).astype(np.float32)
    beside = Mismatched(random.normal(-2.5, 0.1, 5000), np.ones(400, np.float32), np.ones(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = decide(pmi, beside, None, 0.0, groups if grouped else None)
    assert found.named != grouped


def test_more_pairs_by_chance_than_suspects(found):
    suspects = int(found.table["suspect"].sum())
    many = replace(found, contamination=Contamination(0.2, given=False, stderr=0.01))
    assert f"about {0.2 * ROWS - suspects:.0f} more pairs" in more_by_chance(many)
    assert more_by_chance(replace(many, named=False)) == ""
    unsure = replace(found, contamination=Contamination(0.2, given=False, stderr=0.2))
    assert more_by_chance(unsure) == ""


@pytest.mark.parametrize("wrong", [0, 2, 5])
def test_a_few_wrong_pairs_among_very_dependent_ones(wrong):
    """Right pairs lie above all mismatched ones; the share of chance pairs is small, not 1."""
    random = np.random.default_rng(1)
    shared = random.normal(size=(500, 30))
    x, y = (shared + 0.1 * random.normal(size=shared.shape) for _ in range(2))
    rows = 10 * np.arange(wrong)
    y[rows] = y[np.roll(rows, 1)]
    found = audited(x, y)
    assert np.flatnonzero(found.table["suspect"]).tolist() == rows.tolist()
    assert found.contamination.share < 0.05
    assert found.named


def test_models_that_do_not_score_all_rows_once_and_mistakes(monkeypatch):
    alone = quick(folds=1, max_epochs=1)
    refused("is scored by 0 models .* folds of at least 2", audited, *pairs(60), model=alone)
    twice = RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)
    refused("scored by 2 models", audited, *pairs(100), model=quick(cv=twice))
    monkeypatch.setattr(PointwiseDependency, "fit", None)
    for message, options in (
        ("fdr=0 must lie between 0 and 1", {"fdr": 0}),
        ("contamination=2 must lie between 0 and 1", {"contamination": 2}),
        ("contamination=nan must lie", {"contamination": float("nan")}),
        ("model must be a PointwiseDependency", {"model": "pc"}),
        ("folds=1 must be at least 2", {"model": None, "folds": 1}),
        ("are those of model", {"folds": 3}),
        ("are those of model", {"random_state": 1}),
        ("are those of model", {"device": "cpu"}),
    ):
        refused(message, audited, *pairs(60), **options)


def test_every_suspect_is_looked_at_for_a_partner(monkeypatch):
    """Suspects go first, whatever their PMI; the others by PMI."""
    asked = Mock(wraps=audit_module.find_partners)
    monkeypatch.setattr(audit_module, "find_partners", asked)
    high = "pointdep.auditing.decision.q_values"
    monkeypatch.setattr(high, lambda pmi, _: np.where(pmi > np.median(pmi), 0.0, 1.0))
    table = audited(*pairs(300), contamination=0.1).table
    looked_at, suspects = asked.call_args.args[1].doubtful, table.index[table["suspect"]]
    assert set(looked_at[: len(suspects)]) == set(suspects)
    lowest = table[~table["suspect"]].nsmallest(100, "pmi").index
    assert set(looked_at[len(suspects) :]) == set(lowest)
