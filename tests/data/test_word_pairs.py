"""Word vectors of sound and text: both layouts, and one line for each thing that can be wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.data.word_pairs import read_word_pairs
from pointdep.errors import InputError

WORDS = ["the", "l'été", "alma's", "a"]
AUDIO = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
TEXT = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)


def write_vec(path, words, vectors):
    """As the published files are: a header, and a space after the last number of a line."""
    lines = [f"{len(words)} {vectors.shape[1]}"]
    for word, vector in zip(words, vectors, strict=True):
        lines.append(f"{word} {' '.join(repr(float(value)) for value in vector)} ")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_npz(path, **arrays):
    given_arrays = {"words": np.array(WORDS), "audio": AUDIO, "text": TEXT} | arrays
    np.savez(path, **{key: value for key, value in given_arrays.items() if value is not None})
    return path


def refused(message, **files):
    with pytest.raises(InputError, match=message) as caught:
        read_word_pairs(**files)
    assert "\n" not in str(caught.value)


class TestVec:
    def test_both_sides(self, tmp_path):
        files = {
            "audio": write_vec(tmp_path / "a.vec", WORDS, AUDIO),
            "text": write_vec(tmp_path / "t.vec", WORDS, TEXT),
        }
        pairs = read_word_pairs(**files)
        assert pairs.words.tolist() == WORDS
        assert len(pairs) == 4
        assert np.array_equal(pairs.audio, AUDIO)
        assert np.array_equal(pairs.text, TEXT)
        assert pairs.audio.dtype == pairs.text.dtype == np.float32

    @settings(deadline=None, max_examples=20)
    @given(row=st.integers(0, 3))
    def test_the_first_row_that_differs_is_named(self, tmp_path_factory, row):
        folder = tmp_path_factory.mktemp("vec")
        other = [*WORDS[:row], *("changed" + word for word in WORDS[row:])]
        files = {
            "audio": write_vec(folder / "a.vec", WORDS, AUDIO),
            "text": write_vec(folder / "t.vec", other, TEXT),
        }
        refused(f"line {row + 2} is {WORDS[row]!r} in .*a.vec and {other[row]!r} in .*t", **files)
        line = files["text"].read_text("utf-8").splitlines()[row + 1]
        assert line.startswith(other[row])

    def test_one_file_is_longer(self, tmp_path):
        files = {
            "audio": write_vec(tmp_path / "a.vec", WORDS, AUDIO),
            "text": write_vec(tmp_path / "t.vec", WORDS[:3], TEXT[:3]),
        }
        refused(r"a.vec has 4 words and .*t.vec has 3", **files)

    def test_a_word_twice(self, tmp_path):
        twice = ["a", "b", "a", "c"]
        files = {
            "audio": write_vec(tmp_path / "a.vec", twice, AUDIO),
            "text": write_vec(tmp_path / "t.vec", twice, TEXT),
        }
        refused("'a' stands in row 0 and in row 2", **files)

    def test_not_finite(self, tmp_path):
        broken = TEXT.copy()
        broken[2, 1] = np.nan
        files = {
            "audio": write_vec(tmp_path / "a.vec", WORDS, AUDIO),
            "text": write_vec(tmp_path / "t.vec", WORDS, broken),
        }
        refused(r"t.vec: the vector of .alma's. \(row 2, from 0\)", **files)


class TestNpz:
    @pytest.mark.parametrize("encoded", [True, False])
    def test_both_sides(self, tmp_path, encoded):
        words = np.array([word.encode() for word in WORDS]) if encoded else np.array(WORDS)
        half = AUDIO.astype(np.float16)
        pairs = read_word_pairs(data=write_npz(tmp_path / "w.npz", words=words, audio=half))
        assert pairs.words.tolist() == WORDS
        assert np.array_equal(pairs.audio, half.astype(np.float32))
        assert np.array_equal(pairs.text, TEXT)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"audio": None}, "holds no array 'audio': it holds text, words"),
            ({"text": TEXT[:3]}, "has 4 words and 3 rows of text"),
            ({"words": np.array(["a", "b", "b", "c"])}, "'b' stands in row 1 and in row 2"),
            ({"words": np.arange(4)}, "words must be one column of strings"),
            ({"words": np.array([b"a", b"b", b"\xff", b"c"])}, "is not UTF-8 text"),
            ({"audio": AUDIO[:, 0]}, "audio must be numbers, a row of them for each word"),
            ({"text": TEXT.astype(str)}, "text must be numbers"),
            ({"text": np.full((4, 2), np.inf)}, "text: the vector of 'the'"),
        ],
    )
    def test_refused(self, tmp_path, arrays, message):
        refused(message, data=write_npz(tmp_path / "w.npz", **arrays))


def test_which_files(tmp_path):
    data = write_npz(tmp_path / "w.npz")
    refused("--audio FILE.vec and --text FILE.vec, or --data", audio=tmp_path / "a.vec")
    refused("no word vectors were named")
    refused("--data stands alone", data=data, text=tmp_path / "t.vec")
    refused("no.npz does not exist", data=tmp_path / "no.npz")
