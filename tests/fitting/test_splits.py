"""Which rows train, stop and report."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import model_selection
from sklearn.model_selection import KFold

from pointdep.errors import InputError
from pointdep.fitting.splits import (
    CURVE_SHARES,
    MIN_STOP,
    MIN_TRAIN,
    curve_splits,
    make_splits,
    require_product_rows,
)
from refusals import refused


def assert_disjoint(split):
    parts = [*split.train, *split.stop, *split.report]
    assert len(set(parts)) == len(parts)
    assert len(split.train) >= MIN_TRAIN
    assert len(split.stop) >= MIN_STOP
    assert len(split.report) >= 1


def reports(splits, rows):
    """How often each row is reported, (rows,)."""
    return np.bincount(np.concatenate([s.report for s in splits]), minlength=rows)


@given(st.integers(12, 300), st.integers(2, 6), st.floats(0.05, 0.4), st.integers(0, 2**31 - 2))
def test_folds(rows, folds, fraction, seed):
    splits = make_splits(rows, folds=folds, stop_fraction=fraction, seed=seed)
    assert len(splits) == folds
    assert (reports(splits, rows) == 1).all()
    for split in splits:
        assert_disjoint(split)
        fit = len(split.train) + len(split.stop)
        assert fit + len(split.report) == rows
        assert len(split.stop) == max(MIN_STOP, round(fit * fraction))


def test_one_fold_reports_a_fifth_and_the_smallest_that_fits():
    (split,) = make_splits(200, folds=1)
    assert_disjoint(split)
    assert (len(split.report), len(split.stop), len(split.train)) == (40, 24, 136)
    make_splits(10, folds=5)
    refused("each of 2 fold", make_splits, 10, folds=2)


@pytest.mark.parametrize("folds", [1, 2, 5])
@pytest.mark.parametrize("groups", [30, 12])
def test_groups_stay_together(folds, groups):
    codes = np.random.default_rng(0).permutation(np.arange(240) % groups)
    splits = make_splits(240, folds=folds, groups=codes, seed=5)
    if folds > 1:
        assert (reports(splits, 240) == 1).all()
    for split in splits:
        assert_disjoint(split)
        sides = [set(codes[part]) for part in (split.train, split.stop, split.report)]
        assert sum(map(len, sides)) == len(set.union(*sides))
        assert min(len(sides[0]), len(sides[1])) >= 2
    # Of the fewest groups two train, two stop and at least one reports.
    splits = make_splits(50, folds=5, groups=np.arange(50) % 5)
    assert all(len(set(s.stop % 5)) == len(set(s.train % 5)) == 2 for s in splits)


@pytest.mark.parametrize(
    ("cv", "times"),
    [
        (KFold(4), {1}),
        (model_selection.TimeSeriesSplit(3), {0, 1}),
        (model_selection.ShuffleSplit(6, test_size=0.3, random_state=0), {0, 1, 2, 3, 4}),
        (model_selection.PredefinedSplit(np.repeat([-1, 0, 1, 2], 15)), {0, 1}),
    ],
)
def test_splitters_decide_the_report_rows(cv, times):
    splits, given_by_cv = make_splits(60, cv=cv), list(cv.split(np.zeros((60, 1))))
    assert len(splits) == len(given_by_cv)
    for split, (fit, report) in zip(splits, given_by_cv, strict=True):
        assert_disjoint(split)
        assert split.report.tolist() == sorted(report)
        assert sorted([*split.train, *split.stop]) == sorted(fit)
    assert set(reports(splits, 60)) <= times


def test_splitters_of_groups():
    codes = np.arange(60) % 6
    for cv in (model_selection.GroupKFold(3), model_selection.LeaveOneGroupOut()):
        for split in make_splits(60, cv=cv, groups=codes):
            sides = [set(codes[part]) for part in (split.train, split.stop, split.report)]
            assert sum(map(len, sides)) == 6


class Fixed:
    """A splitter that gives these pairs."""

    def __init__(self, *pairs):
        self.pairs = pairs

    def split(self, X, y=None, groups=None):
        return iter(self.pairs)

    def __repr__(self):
        return "Fixed()"


MASK = np.arange(60) < 40


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")
def test_refusals():
    for options, message in (
        ({"stop_fraction": 0.0}, r"stop_fraction=0\.0 must lie between"),
        ({"stop_fraction": 0.9}, r"stop_fraction=0\.9"),
        ({"stop_fraction": "a lot"}, "stop_fraction='a lot'"),
        ({"folds": 0}, "folds=0 must be at least 1"),
        ({"folds": 2.0}, r"folds=2\.0 must be a whole number"),
        ({"folds": True}, "folds=True must be a whole number"),
        ({"folds": 31}, r"60 sample\(s\).*31 fold\(s\).*fewer folds"),
        ({"folds": 1, "rows": 6}, r"6 sample\(s\)"),
        ({"cv": 5}, "cv=5 is not a splitter"),
        ({"cv": Fixed()}, r"Fixed\(\) gave no split"),
        ({"cv": Fixed((np.arange(40), np.arange(30, 60)))}, "row 30 on both sides"),
        ({"cv": Fixed((np.arange(40), np.arange(50, 70)))}, "row numbers, from 0 to 59"),
        ({"cv": Fixed((MASK, ~MASK))}, "row numbers, from 0 to 59"),
        ({"cv": Fixed((np.arange(5), np.arange(5, 60)))}, "split 0 has 5 rows to fit and 55 to"),
        ({"cv": Fixed((np.arange(60), np.arange(0)))}, "60 rows to fit and 0 to report"),
        ({"cv": Fixed((np.arange(7), np.arange(7, 60))), "stop_fraction": 0.8}, "6 would decide"),
        ({"groups": np.arange(60) % 2}, r"groups has 2 distinct value\(s\) but at least 5"),
        ({"groups": np.arange(60) % 2, "cv": KFold(2)}, "at least 3"),
        ({"groups": np.arange(60) % 4, "folds": 2}, r"split 0 has 2 group\(s\) to fit"),
        ({"groups": np.arange(60) % 9, "cv": KFold(3)}, "rows 27 and 0, of one group, .* split 0"),
    ):
        refused(message, make_splits, **{"rows": 60, **options})


def test_report_rows_that_cannot_be_set_against_each_other():
    leave_one_out = make_splits(12, cv=KFold(12))
    with pytest.raises(InputError, match=r"'dv'.*split 0 reports only one.*method='pc'"):
        require_product_rows(leave_one_out, None, "dv")
    require_product_rows(make_splits(12, cv=KFold(3)), None, "dv")
    codes = np.arange(60) % 6
    refused("split 0", require_product_rows, make_splits(60, folds=6, groups=codes), codes, "js")
    require_product_rows(make_splits(60, folds=3, groups=codes), codes, "js")


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("folds", [1, 3, 5])
def test_parts_of_a_learning_curve(grouped, folds):
    """Each sees its share of the rows of a split, reports all others, and keeps groups together."""
    codes = np.random.default_rng(0).permutation(np.arange(1000) // 5) if grouped else None
    own = np.arange(1000) if codes is None else codes
    splits = make_splits(1000, folds=folds, groups=codes, seed=3)
    found = curve_splits(splits, groups=codes, seed=3, least=32)
    assert len(found) == len(CURVE_SHARES)
    for share, parts in zip(CURVE_SHARES, found, strict=True):
        assert len(parts) == (2 if folds == 5 else 1)  # of three, two would cost half as much again
        for part, split in zip(parts, splits, strict=False):
            assert_disjoint(part)
            assert len(part.train) + len(part.stop) + len(part.report) == 1000
            for name in ("train", "stop"):
                ours, all_of_them = getattr(part, name), getattr(split, name)
                assert set(ours) < set(all_of_them)
                assert len(ours) == pytest.approx(share * len(all_of_them), rel=0.02, abs=3)
            assert set(split.report) < set(part.report)
            sides = [set(own[rows]) for rows in (part.train, part.stop, part.report)]
            assert sum(map(len, sides)) == len(set.union(*sides))
    again = curve_splits(splits, groups=codes, seed=3, least=32)
    other = curve_splits(splits, groups=codes, seed=4, least=32)
    for name in ("train", "stop", "report"):
        ours, same, others = (getattr(each[0][0], name) for each in (found, again, other))
        assert np.array_equal(ours, same)
        assert not np.array_equal(ours, others)


def test_parts_that_would_train_on_too_few_rows_are_left_out():
    splits = make_splits(200, seed=0)  # of which each trains 136: 34 and 68 of them
    assert [len(parts) for parts in curve_splits(splits, groups=None, seed=0, least=8)] == [0, 2]
    assert [len(parts) for parts in curve_splits(splits, groups=None, seed=0, least=69)] == [0, 0]
    splits = make_splits(1000, folds=1, groups=np.arange(1000) // 100, seed=0)
    whole = curve_splits(splits, groups=np.arange(1000) // 100, seed=0, least=8)
    assert [len(np.unique(parts[0].stop // 100)) for parts in whole] == [2, 2]  # groups at least
