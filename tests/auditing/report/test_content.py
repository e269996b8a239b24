"""The look of rows: what people may give, and what --show-x and --show-y may name."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from pointdep.auditing.report.content import as_shown, read_shown
from pointdep.errors import InputError


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, pd.Series, pl.Series, lambda v: pd.DataFrame({"a": v})]
)
def test_texts(make):
    texts = ["a dog", "", "ein Hund", "犬"]
    shown = as_shown(make(texts), 4, "show_x")
    assert (shown.texts, shown.pictures, shown.files) == (texts, None, None)

    # Missing texts are empty.
    shown = as_shown(pd.Series(["a", None, np.nan, pd.NA], dtype=object), 4, "show_x")
    assert shown.texts == ["a", "", "", ""]
    assert as_shown(None, 4, "show_x") is None
    assert as_shown(shown, 4, "show_x") is shown


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, torch.tensor, list])
def test_numbers(make):
    assert as_shown(make([[1.0, 2.5], [-3.0, 1e-9]]), 2, "x").texts == ["1, 2.5", "-3, 1e-09"]
    wide = as_shown(make([[0.125] * 9] * 2), 2, "x")
    assert wide.texts == ["0.125, 0.125, 0.125, 0.125, …"] * 2
    # Single numbers and what is no number.
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


def test_what_cannot_be_shown():
    for values, message in (
        (["a"], "show_x has 1 rows where the audit has 2"),
        (7, "show_x has no rows"),
        (np.zeros((2, 3, 4, 5)), r"shape \(2, 3, 4, 5\): pictures are \(n, height, width\)"),
        (np.zeros((2, 0, 4)), "holds no pictures"),
        ([[1, 2], [3]], "show_x cannot be read as one value a row"),
    ):
        with pytest.raises(InputError, match=message):
            as_shown(values, 2, "show_x")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    table = pd.DataFrame({"a": [1.5, 2.5], "caption": ["a dog", "a cat"], "image": ["1.png", None]})
    table.to_csv("data/pairs.csv", index=False)
    np.savez("data/both.npz", x=np.zeros((2, 3)), names=np.array(["one", "two"]))
    Path("data/lines.txt").write_text("first\n\nthird\n", "utf-8")
    Path("data/sounds.txt").write_text("a.wav\n/b.mp3\n", "utf-8")
    Path("data/words.vec").write_text("2 1\nhund 1.0\nkatze 2.0\n", "utf-8")
    np.save("data/pictures.npy", np.zeros((2, 4, 8), np.uint8))


def read(given, file="data/pairs.csv", values=None):
    return list(read_shown("--show-x", given, 0, [Path(file)], values))


def test_columns_and_files_by_name(folder):
    assert read("caption") == ["a dog", "a cat"]
    assert read("a") == [1.5, 2.5]
    assert read("names", "data/both.npz") == ["one", "two"]
    files = [Path("data/both.npz"), Path("data/pairs.csv")]
    assert list(read_shown("--show-x", "caption", 0, files, None)) == ["a dog", "a cat"]
    assert list(read_shown("--show-y", "names", 1, files, None)) == ["one", "two"]
    first, second = read("image")  # names of files count from the folder
    assert first == str(Path("data/1.png"))
    assert pd.isna(second)
    assert read("data/sounds.txt") == [str(Path("data/a.wav")), "/b.mp3"]
    assert read("data/lines.txt") == ["first", "", "third"]
    assert read("data/words.vec") == ["hund", "katze"]
    assert read("data/pairs.csv:caption", "data/both.npz") == ["a dog", "a cat"]
    assert read("data/both.npz:names") == ["one", "two"]
    assert np.shape(read("data/pictures.npy")) == (2, 4, 8)
    assert read(None, values=np.arange(2)) == [0, 1]
    assert read(None, "data/words.vec", values=np.zeros((2, 1))) == ["hund", "katze"]
    for given, message in (
        ("captoin", "--show-x 'captoin' is neither a column of data/pairs.csv nor a file"),
        ("missing.txt", "missing.txt does not exist"),
        ("data/both.npz", "data/both.npz holds x, names: name one, as data/both.npz:x"),
        ("data/both.npz:nothing", "holds no array 'nothing'"),
        ("data/pairs.csv", "has 3 columns: name one of"),
    ):
        with pytest.raises(InputError, match=message):
            read(given)
