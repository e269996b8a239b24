"""Word vectors of sound and text: both layouts, and one line for each thing that can be wrong."""

import numpy as np
import pytest

from pointdep.data.word_pairs import read_word_pairs
from refusals import refused

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


def vec(folder, audio=AUDIO, text=TEXT, audio_words=WORDS, text_words=WORDS):
    return {
        "audio": write_vec(folder / "a.vec", audio_words, audio),
        "text": write_vec(folder / "t.vec", text_words, text),
    }


def test_two_vec_files(tmp_path):
    pairs = read_word_pairs(**vec(tmp_path))
    assert pairs.words.tolist() == WORDS
    assert len(pairs) == 4
    assert np.array_equal(pairs.audio, AUDIO)
    assert np.array_equal(pairs.text, TEXT)
    assert pairs.audio.dtype == pairs.text.dtype == np.float32


@pytest.mark.parametrize("row", range(4))
def test_the_first_row_that_differs_is_named(tmp_path, row):
    other = [*WORDS[:row], *("changed" + word for word in WORDS[row:])]
    message = f"line {row + 2} is {WORDS[row]!r} in .*a.vec and {other[row]!r} in .*t"
    refused(message, read_word_pairs, **vec(tmp_path, text_words=other))
    assert (tmp_path / "t.vec").read_text("utf-8").splitlines()[row + 1].startswith(other[row])


def test_vec_files_that_are_refused(tmp_path):
    broken, twice = TEXT.copy(), ["a", "b", "a", "c"]
    broken[2, 1] = np.nan
    for message, changes in (
        ("line 5 is 'a' in .*a.vec and None in", {"text_words": WORDS[:3], "text": TEXT[:3]}),
        ("'a' stands in row 0 and in row 2", {"audio_words": twice, "text_words": twice}),
        (r"t.vec: the vector of .alma's. \(row 2\)", {"text": broken}),
    ):
        refused(message, read_word_pairs, **vec(tmp_path, **changes))


@pytest.mark.parametrize("encoded", [True, False])
def test_one_archive(tmp_path, encoded):
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
        ({"text": TEXT[:3]}, "text must be numbers, a row for each word"),
        ({"words": np.array(["a", "b", "b", "c"])}, "'b' stands in row 1 and in row 2"),
        ({"words": np.arange(4)}, "words must be one column of strings"),
        ({"words": np.array([b"a", b"b", b"\xff", b"c"])}, "not UTF-8 text"),
        ({"audio": AUDIO[:, 0]}, "audio must be numbers, a row for each word"),
        ({"text": TEXT.astype(str)}, "text must be numbers"),
        ({"text": np.full((4, 2), np.inf)}, "text: the vector of 'the'"),
    ],
)
def test_archives_that_are_refused(tmp_path, arrays, message):
    refused(message, read_word_pairs, data=write_npz(tmp_path / "w.npz", **arrays))


def test_which_files(tmp_path):
    data = write_npz(tmp_path / "w.npz")
    for files in ({"audio": tmp_path / "a.vec"}, {}):
        refused("--audio FILE.vec and --text FILE.vec, or --data", read_word_pairs, **files)
    refused("--data stands alone", read_word_pairs, data=data, text=tmp_path / "t.vec")
    refused("no.npz does not exist", read_word_pairs, data=tmp_path / "no.npz")
