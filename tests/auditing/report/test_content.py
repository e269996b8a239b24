"""What people may give as the look of their rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pointdep.auditing.report.content import as_shown
from pointdep.errors import InputError


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, pd.Series, pl.Series, lambda v: pd.DataFrame({"a": v})]
)
def test_texts(make):
    texts = ["a dog", "", "ein Hund", "犬"]
    shown = as_shown(make(texts), 4, "show_x")
    assert shown.texts == texts
    assert shown.pictures is None
    assert shown.files is None


def test_missing_texts_are_empty():
    shown = as_shown(pd.Series(["a", None, np.nan, pd.NA], dtype=object), 4, "show_x")
    assert shown.texts == ["a", "", "", ""]
    assert as_shown(None, 4, "show_x") is None
    assert as_shown(shown, 4, "show_x") is shown


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, torch.tensor, list])
def test_numbers(make):
    assert as_shown(make([[1.0, 2.5], [-3.0, 1e-9]]), 2, "x").texts == ["1, 2.5", "-3, 1e-09"]
    wide = as_shown(make([[0.125] * 9] * 2), 2, "x")
    assert wide.texts == ["0.125, 0.125, 0.125, 0.125, …"] * 2


def test_single_numbers_and_what_is_no_number():
    assert as_shown(np.array([1, 20]), 2, "x").texts == ["1", "20"]
    assert as_shown([np.nan, np.inf, 1.5], 3, "x").texts == ["nan", "inf", "1.5"]
    assert as_shown([True, False], 2, "x").texts == ["True", "False"]
    mixed = pd.DataFrame({"a": ["cat", None], "b": [1.5, 2.0]})
    assert as_shown(mixed, 2, "x").texts == ["cat, 1.5", ", 2.0"]


def test_files():
    shown = as_shown(["a/1.PNG", Path("2.wav"), None, "not there"], 4, "x")
    assert shown.files == [Path("a/1.PNG"), Path("2.wav"), None, None]
    assert shown.texts == ["a/1.PNG", "2.wav", "", "not there"]
    captions = ["see photo.png", "a dog", "a cat", "a bird"]
    assert as_shown(captions, 4, "x").files is None


def test_pictures_become_bytes():
    grey = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    np.testing.assert_array_equal(as_shown(grey.astype(np.uint8), 2, "x").pictures, grey)
    stretched = as_shown(grey, 2, "x").pictures
    np.testing.assert_array_equal(stretched, np.floor(grey * (255 / 23) + 1e-4))
    unit = as_shown(np.full((2, 3, 4, 3), 0.5), 2, "x").pictures
    assert unit.shape == (2, 3, 4, 3)
    assert (unit == 127).all()
    signed = as_shown(np.array([[[-1.0, 1.0]], [[0.0, np.nan]]]), 2, "x").pictures
    assert signed.tolist() == [[[0, 255]], [[127, 127]]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a"], "show_x has 1 rows where the audit has 2"),
        (7, "show_x has no rows"),
        (np.zeros((2, 3, 4, 5)), r"shape \(2, 3, 4, 5\): pictures are \(n, height, width\)"),
        (np.zeros((2, 0, 4)), "holds no pictures"),
        ([[1, 2], [3]], "show_x cannot be read as one value a row"),
    ],
)
def test_what_cannot_be_shown(values, message):
    with pytest.raises(InputError, match=message):
        as_shown(values, 2, "show_x")
