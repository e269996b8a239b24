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
    rows = zip(words, vectors.tolist(), strict=True)
    lines += [f"{word} {' '.join(map(repr, vector))} " for word, vector in rows]
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
    assert (pairs.words.tolist(), len(pairs)) == (WORDS, 4)
    assert np.array_equal(pairs.audio, AUDIO)
    assert np.array_equal(pairs.text, TEXT)
    assert pairs.audio.dtype == pairs.text.dtype == np.float32


def test_vec_files_that_are_refused(tmp_path):
    for row in range(4):  # the first that differs is named
        other = [*WORDS[:row], *("changed" + word for word in WORDS[row:])]
        message = f"line {row + 2} is {WORDS[row]!r} in .*a.vec and {other[row]!r} in .*t"
        refused(message, read_word_pairs, **vec(tmp_path, text_words=other))
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


def test_archives_that_are_refused(tmp_path):
    def bad(message, **arrays):
        refused(message, read_word_pairs, data=write_npz(tmp_path / "w.npz", **arrays))

    bad("holds no array 'audio': it holds text, words", audio=None)
    bad("text must be numbers, a row for each word", text=TEXT[:3])
    bad("'b' stands in row 1 and in row 2", words=np.array(["a", "b", "b", "c"]))
    bad("words must be one column of strings", words=np.arange(4))
    bad("not UTF-8 text", words=np.array([b"a", b"b", b"\xff", b"c"]))
    bad("audio must be numbers, a row for each word", audio=AUDIO[:, 0])
    bad("text must be numbers", text=TEXT.astype(str))
    bad("text: the vector of 'the'", text=np.full((4, 2), np.inf))


def test_which_files(tmp_path):
    data = write_npz(tmp_path / "w.npz")
    for files in ({"audio": tmp_path / "a.vec"}, {}):
        refused("--audio FILE.vec and --text FILE.vec, or --data", read_word_pairs, **files)
    refused("--data stands alone", read_word_pairs, data=data, text=tmp_path / "t.vec")
    refused("no.npz does not exist", read_word_pairs, data=tmp_path / "no.npz")
