"""What --show-x and --show-y may name."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pointdep.auditing.report.content import read_shown
from pointdep.errors import InputError


@pytest.fixture(autouse=True)
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


def test_columns_of_the_data():
    assert read("caption") == ["a dog", "a cat"]
    assert read("a") == [1.5, 2.5]
    assert read("names", "data/both.npz") == ["one", "two"]
    files = [Path("data/both.npz"), Path("data/pairs.csv")]
    assert list(read_shown("--show-x", "caption", 0, files, None)) == ["a dog", "a cat"]
    assert list(read_shown("--show-y", "names", 1, files, None)) == ["one", "two"]


def test_names_of_files_count_from_the_folder():
    first, second = read("image")
    assert first == str(Path("data/1.png"))
    assert pd.isna(second)
    assert read("data/sounds.txt") == [str(Path("data/a.wav")), "/b.mp3"]


def test_files():
    assert read("data/lines.txt") == ["first", "", "third"]
    assert read("data/words.vec") == ["hund", "katze"]
    assert read("data/pairs.csv:caption", "data/both.npz") == ["a dog", "a cat"]
    assert read("data/both.npz:names") == ["one", "two"]
    assert np.shape(read("data/pictures.npy")) == (2, 4, 8)


def test_without_a_name():
    assert read(None, values=np.arange(2)) == [0, 1]
    assert read(None, "data/words.vec", values=np.zeros((2, 1))) == ["hund", "katze"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("captoin", r"--show-x 'captoin' is neither a column of data/pairs.csv nor a file"),
        ("missing.txt", "missing.txt does not exist"),
        ("data/both.npz", "data/both.npz holds x, names: name one, as data/both.npz:x"),
        ("data/both.npz:nothing", "holds no array 'nothing'"),
        ("data/pairs.csv", "has 3 columns: name one of"),
    ],
)
def test_what_is_not_there(given, message):
    with pytest.raises(InputError, match=message):
        read(given)
