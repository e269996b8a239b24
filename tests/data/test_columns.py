"""Tables as they are: missing values, placeholders, dates, ids and texts."""

import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.refusals import refused

from pointdep import ClassicalDependency, PointwiseDependency
from pointdep.data.encoder import SideEncoder
from pointdep.data.sides import as_side
from pointdep.errors import DataWarning

N = 400


def read(frame, **how):
    return as_side(frame, "X", missing="indicator", **how)


@pytest.fixture
def days():
    times = pd.date_range("2020-02-28 23:00", periods=N, freq="31h17min")
    return pd.Series(times)


def test_placeholders_are_missing_among_numbers():
    cells = ["1", "2.5", "?", "NA", "-", "", None, " 4 "] * 10
    values = read(pd.DataFrame({"a": cells})).numeric[:8, 0]
    np.testing.assert_array_equal(values, [1, 2.5, np.nan, np.nan, np.nan, np.nan, np.nan, 4])
    mixed = np.array([[1, "?"], [2, 3.5], [None, 4]], dtype=object)
    np.testing.assert_array_equal(read(mixed).numeric, [[1, np.nan], [2, 3.5], [np.nan, 4]])
    side = read(pd.DataFrame({"a": ["u", "?", None, "v"] * 5}))  # among words it is a word
    assert side.categorical[0][1][:4].tolist() == ["u", "?", "(missing)", "v"]
    assert read(pd.Series([True, None], dtype="boolean")).categorical[0][1].tolist() == [
        "True",
        "(missing)",
    ]
    labels = read(pd.Series([1.0, 2, None, 2] * 20))  # whole numbers with gaps are labels too
    assert labels.categorical[0][1][:4].tolist() == ["1", "2", "(missing)", "2"]


@pytest.mark.parametrize(
    "given",
    [
        lambda days: days,
        lambda days: days.dt.tz_localize("UTC"),
        lambda days: days.dt.strftime("%Y-%m-%d %H:%M"),
        lambda days: days.dt.strftime("%d/%m/%Y %H:%M"),
        lambda days: pl.Series(days),
        lambda days: days.astype("timestamp[ns][pyarrow]"),
        lambda days: days.dt.to_pydatetime(),
    ],
)
def test_dates_are_numbers(days, given):
    raw = read(given(days))
    hours = days.dt.hour + days.dt.minute / 60
    expected = {"day": days.astype("M8[us]").astype("int64") / 86_400e6, "time": hours}
    expected |= {
        "weekday": days.dt.day_of_week,
        "year": (days.dt.day_of_year - 1 + hours / 24) / 365.25,
    }
    np.testing.assert_allclose(raw.numeric, pd.DataFrame(expected), rtol=1e-12)


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y"])
def test_new_dates_are_read_as_those_of_the_fit(form):
    """A few new dates do not show by themselves whether the day or the month comes first."""
    days = pd.Series(pd.date_range("2020", periods=60))
    table = pd.DataFrame({"day": days.dt.strftime(form), "n": range(60)})
    raw = as_side(table, "X")
    encoder = SideEncoder.from_dict(json.loads(json.dumps(SideEncoder.fit(raw, "X").to_dict())))
    assert as_side(table[33:35], "X", known=encoder).column(0).tolist() == [18295, 18296]
    assert raw.column(0)[33:35].tolist() == [18295, 18296]


def test_parts_of_dates_that_vary(days):
    for dates, parts in (
        (days.dt.normalize(), ["weekday", "year fraction"]),
        (days[:100], ["time of day", "weekday"]),
        (days.dt.normalize()[:4], []),
        (pd.Series(pd.date_range("2020", periods=60, freq="7D")), ["year fraction"]),
    ):
        expected = ("when", *(f"when ({part})" for part in parts))
        assert (
            read(pd.DataFrame({"when": dates, "a": np.arange(len(dates))})).names[:-1] == expected
        )
    spans = read(pd.DataFrame({"t": pd.to_timedelta(["1s", "90s", None])}))
    np.testing.assert_array_equal(spans.numeric, [[1], [90], [np.nan]])


def test_ids_are_left_out_and_texts_refused():
    frame = pd.DataFrame({"key": [f"k{i}" for i in range(N)], "a": np.arange(N) % 7.0})
    frame["user_id"] = np.arange(N) * 3
    frame["n"] = np.arange(N) * 3
    with pytest.warns(DataWarning, match="left out 'key', 'user_id', which looks like an id"):
        raw = read(frame)
    assert (raw.names, raw.left_out) == (("a", "n"), ("key", "user_id"))
    assert read(frame[["user_id"]]).names == ("user_id",)  # alone it is what was asked for
    text = frame.assign(note=[f"number {i} is not like the others" for i in range(N)])
    text["other"] = text["note"]
    message = "2 problems: .1. X column 'note' holds texts, 400 different .*; .2. .*'other'"
    with pytest.warns(DataWarning, match="id"):
        refused(message, read, text)
    broken = pd.DataFrame({"a": [1, {}], "b": [1j, 2j], "c": [np.inf, 1]})
    refused("2 problems: .*'a' holds Python objects.*Complex data", read, broken)


def test_what_is_missing_is_told_by_indicators():
    values = np.array([[1.0, np.nan, np.nan, 5], [3, 4, 2, 5], [np.nan, 6, 8, 5], [5, 8, 2, 5]])
    frame = pd.DataFrame(values, columns=list("abcd")).assign(e=["u", None, "v", "u"])
    told = r"X: 4 value\(s\) are missing, in 'a' \(1\), 'b' \(1\), 'c' \(1\), 'e' \(1\)"
    with pytest.warns(DataWarning) as caught:
        encoder = SideEncoder.fit(read(frame), "X", "indicator")
    assert any(re.match(told, str(one.message)) for one in caught)
    encoded = encoder.encode(read(frame, known=encoder))
    numbers = (values - np.nanmean(values, 0))[:, :3] / np.nanstd(values, 0)[:3]
    labels = frame["e"].fillna("(missing)").to_numpy()[:, None] == ["(missing)", "u", "v"]
    gaps = np.isnan(values)[:, :2]  # b and c are missing in the same rows
    np.testing.assert_allclose(
        encoded, np.hstack([np.nan_to_num(numbers), labels, gaps]), atol=1e-6
    )
    assert encoder.numeric_mask.tolist() == [True] * 3 + [False] * 5
    again = SideEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    np.testing.assert_array_equal(again.encode(read(frame[:1], known=again)), encoded[:1])
    assert dict(again.described()) == {
        "a": "number, 1 missing",
        "b": "number, 1 missing",
        "c": "number, 1 missing",
        "d": "constant, left out",
        "e": "3 categories, 1 missing",
    }


def test_new_rows_are_read_as_in_the_fit(days):
    frame = pd.DataFrame(
        {"zip": ["0123", "4567"] * (N // 2), "n": np.arange(N) * 0.5, "when": days}
    )
    encoder = SideEncoder.fit(read(frame), "X", "indicator")
    new = pd.DataFrame(
        {
            "zip": [4567, 4567, 9],
            "n": ["1.5", "oops", "2"],
            "when": ["2020-03-01", "2020-03-02", "x"],
        }
    )
    encoded, faults = encoder.encode_some(read(new, known=encoder))
    assert {fault.reason: fault.rows.tolist() for fault in faults} == {
        "X column 'n': no number": [False, True, False],
        "X column 'when': no date": [False, False, True],
        "X column 'zip': a category unseen in training": [False, False, True],
    }
    plain = frame[:1].assign(zip="4567", n=1.5, when=pd.Timestamp("2020-03-01"))
    np.testing.assert_array_equal(encoded[:1], encoder.encode(read(plain, known=encoder)))
    message = "3 problems: .*'oops' in row 1, which is no number .1 such.*'x' in row 2, .* no date"
    refused(message, encoder.encode, read(new, known=encoder))
    gap = plain.assign(n=np.nan)  # nothing was missing in training
    refused("'n' holds 1 NaN value", encoder.encode, read(gap, known=encoder))


def quick(**how):
    return PointwiseDependency(max_epochs=3, folds=2, random_state=0, progress=False, **how)


@pytest.mark.filterwarnings("ignore::pointdep.PointdepWarning")
def test_rows_with_gaps_are_dropped_or_told_by_their_gaps():
    x, noise = np.random.default_rng(0).normal(size=(2, 300))
    y, gone = x + noise, np.arange(300) % 5 == 0
    gaps = np.where(gone, np.nan, x)
    dropped = quick(missing="drop").fit(gaps, y)
    plain = quick().fit(x[~gone], y[~gone])
    np.testing.assert_array_equal(dropped.oof_pmi_[~gone], plain.oof_pmi_)
    assert np.isnan(dropped.oof_pmi_[gone]).all()
    assert dropped.mutual_information().nats == plain.mutual_information().nats
    assert dropped.check().to_dict() == plain.check().to_dict()
    refused("X column 0 holds 60 NaN", dropped.pmi, gaps, y)
    refused(r"X column 0 holds 60 NaN", quick(missing="error").fit, gaps, y)
    refused("unknown missing 'dorp': did you mean 'drop'", quick(missing="dorp").fit, gaps, y)
    # Whether x is missing is all that y says.
    told = quick(discrete_y=True).fit(gaps, gone)
    assert told.mutual_information().nats == pytest.approx(np.log(5) - 0.8 * np.log(4), abs=0.03)
    streamed = quick(stream=True).fit(pd.DataFrame({"a": gaps, "b": gone}), y)
    assert np.isfinite(streamed.oof_pmi_).all()
    refused("X column 0 holds NaN in row", quick(stream=True).fit, gaps, y)
    refused(
        "X has missing values, and rows that are streamed",
        quick(stream=True, missing="drop").fit,
        pd.DataFrame({"a": gaps, "b": gone}),
        y,
    )


@pytest.mark.filterwarnings("ignore::pointdep.DataWarning")
def test_neighbours_find_nothing_in_independent_columns():
    """Gaps and lattices of values, as weekdays, once read 0.1 to 0.2 nats."""
    rng = np.random.default_rng(1)
    rows = 1500
    x, y = rng.normal(size=(2, rows))
    gaps = np.where(rng.random(rows) < 0.1, np.nan, x)
    dates = pd.Timestamp("2015") + pd.to_timedelta(rng.integers(0, 2000, rows), unit="D")
    for frame in (pd.DataFrame({"a": gaps}), pd.DataFrame({"d": dates}), np.round(x, 1)):
        for other in (y, np.round(y), y > 0):
            found = ClassicalDependency("ksg").fit(frame, other).mutual_information()
            assert abs(found.nats) < 3.5 * found.stderr < 0.08
    # Whole numbers hide part of a dependence, exactly so much.
    steps, noise = rng.integers(0, 4, rows), rng.random(rows)
    found = ClassicalDependency("ksg", discrete_x=False).fit(steps, steps + 2 * noise)
    assert found.mutual_information().nats == pytest.approx(1.25 * np.log(2), abs=0.06)
