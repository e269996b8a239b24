"""Files of pairs and of words, read and written: every format, and what is wrong with a file."""

import json
import os
import pickle
import zipfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.lib import format as numpy_format
from pyarrow import feather
from safetensors.torch import save_file

from pointdep.data.readers import read_column, read_pairs
from pointdep.data.shards import open_rows
from pointdep.data.sides import as_side
from pointdep.data.word_pairs import read_word_pairs
from pointdep.data.writers import check_writable, write_table
from pointdep.errors import DataWarning, InputError
from refusals import refused

X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
WORDS = ["the", "New York", "é", "a", "b", "c"]
SUFFIXES = [".npy", ".npz", ".csv", ".parquet", ".vec", ".safetensors"]


def pairs(*files, x_columns=None, y_columns=None):
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    return as_side(x, "X").numeric, as_side(y, "Y").numeric


def bad(message, *files, **kwargs):
    assert str(files[0].parent) in refused(message, pairs, *files, **kwargs)


def write_vec(path, words, vectors, header=None):
    lines = [header or f"{len(words)} {vectors.shape[1]}"]
    lines += [f"{w} {' '.join(map(str, row))}" for w, row in zip(words, vectors, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write(path, values, key):
    table = pd.DataFrame({f"{key}{j}": values[:, j] for j in range(values.shape[1])})
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, **{key: values, "other": values[:1]})
    elif path.suffix == ".safetensors":
        save_file({key: torch.from_numpy(values), "other": torch.ones(1)}, path)
    elif path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        write_vec(path, WORDS, values)
    return path


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "good.npy", X, "x")


@pytest.mark.parametrize("x_suffix", SUFFIXES)
@pytest.mark.parametrize("y_suffix", [".npy", ".vec"])
def test_two_files(tmp_path, x_suffix, y_suffix):
    x, y = pairs(write(tmp_path / f"a{x_suffix}", X, "x"), write(tmp_path / f"b{y_suffix}", Y, "y"))
    np.testing.assert_allclose(x, X, rtol=1e-6)
    np.testing.assert_allclose(y, Y, rtol=1e-6)


def test_arrays_by_name_and_in_place(tmp_path, good):
    x, _ = read_pairs([good, good], x_columns=None, y_columns=None)
    assert isinstance(x, np.memmap)
    np.savez(tmp_path / "one.npz", anything=X)
    save_file({"e": torch.from_numpy(Y).bfloat16()}, tmp_path / "b.safetensors")
    x, y = pairs(tmp_path / "one.npz", tmp_path / "b.safetensors")
    np.testing.assert_array_equal(x, X)
    np.testing.assert_allclose(y, Y, rtol=1e-2)
    np.savez(tmp_path / "a.npz", x=X, y=Y, z=X[:, :1])
    save_file({"x": torch.from_numpy(X), "y": torch.from_numpy(Y)}, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        x, y = pairs(tmp_path / name)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(y, Y)
        bad("holds no array 'w': it holds x, y", tmp_path / name, x_columns="w")
    np.testing.assert_array_equal(pairs(tmp_path / "a.npz", y_columns="z")[1], X[:, :1])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_one_table(tmp_path, suffix):
    path = write(tmp_path / f"t{suffix}", np.hstack([X, Y]), "c")
    x, y = pairs(path, x_columns="c1, c0", y_columns="c2,c3,c4")
    np.testing.assert_allclose(x, X[:, ::-1], rtol=1e-6)
    np.testing.assert_allclose(y, Y, rtol=1e-6)
    bad("--x-columns and --y-columns.*c0, c1, c2, c3, c4", path, x_columns="c0")
    bad("unknown column 'c9': .*choose from c0", path, x_columns="c0", y_columns="c9")
    refused("--x-columns 'c0,' .* empty", pairs, path, x_columns="c0,", y_columns="c1")
    refused("--y-columns 'c1,c1' .* twice", pairs, path, x_columns="c0", y_columns="c1,c1")
    refused("'c0' is on both sides", pairs, path, x_columns="c0", y_columns="c1,c0")


def test_columns_of_two_files(tmp_path, good):
    table, array = write(tmp_path / "t.csv", Y, "c"), write(tmp_path / "a.npz", X, "k")
    x, y = pairs(table, array, x_columns="c2", y_columns="other")
    np.testing.assert_allclose(x, Y[:, 2:], rtol=1e-6)
    assert y.shape == (1, 2)
    bad("good.npy has no named columns", good, table, x_columns="c0")
    bad("a.npz holds .* none called 'y': name one of k, other", good, array)
    bad("holds one side only: give two files", good)
    bad(r"unknown suffix '.mat'.*\.csv, \.jsonl, \.npy, \.npz, \.parquet", tmp_path / "a.mat")
    for files in ([], [good] * 3):
        refused(f"not {len(files)} files", pairs, *files)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_folder_empty_and_damaged(tmp_path, good, suffix):
    path = tmp_path / f"a{suffix}"
    bad(f"a{suffix} does not exist", path, good)
    (tmp_path / f"folder{suffix}").mkdir()
    bad("is a folder", tmp_path / f"folder{suffix}", good)
    path.write_bytes(b"")
    bad("is empty", path, good)
    content = write(path, np.tile(X, (50, 1))[: 6 if suffix == ".vec" else 300], "x").read_bytes()
    if suffix != ".csv":  # half a CSV file is a CSV file
        path.write_bytes(content[: len(content) // 2])
        bad("line" if suffix == ".vec" else "truncated", path, good)
        path.write_bytes(b"something else entirely\n" * 20)
        bad("line 1" if suffix == ".vec" else "damaged", path, good)


def test_files_without_rows_pickles_wrong_names_and_no_permission(tmp_path, good, monkeypatch):
    np.save(tmp_path / "a.npy", X[:0])
    np.savez(tmp_path / "a.npz", x=X[:0])
    np.savez(tmp_path / "none.npz")
    save_file({"x": torch.zeros(0, 2)}, tmp_path / "a.safetensors")
    (tmp_path / "a.csv").write_text("u,v\n")
    pd.DataFrame({"u": X[:0, 0]}).to_parquet(tmp_path / "a.parquet")
    for name in ("a.npy", "a.npz", "a.csv", "a.parquet", "a.safetensors", "none.npz"):
        bad("is empty", tmp_path / name, good)
    (tmp_path / "blank.csv").write_text("\n\n")
    bad("blank.csv cannot be read", tmp_path / "blank.csv", good)
    # Nor are pickles loaded, nor files under a wrong name.
    objects = np.array([{}, []], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects)
    for name in ("b.npy", "b.npz"):
        (tmp_path / name).write_bytes(pickle.dumps([1, 2]))
    for name in ("a.npy", "a.npz", "b.npy", "b.npz"):
        bad("Python objects .* not loaded for safety", tmp_path / name, good)
    write(tmp_path / "c.npz", X, "x").rename(tmp_path / "c.npy")
    bad("rename it to end in .npz", tmp_path / "c.npy", good)
    good.rename(tmp_path / "d.npz")
    bad("rename it to end in .npy", tmp_path / "d.npz", tmp_path / "c.npy")
    monkeypatch.setattr(np, "load", Mock(side_effect=PermissionError(13, "Permission denied")))
    closed = write(tmp_path / "e.npy", X, "x")
    bad("permission denied", closed, closed)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied_by_the_system(tmp_path):
    path = write(tmp_path / "a.csv", X, "x")
    path.chmod(0)
    bad("permission denied", path, path)


def test_vec_headers_rows_and_words(tmp_path):
    messages = {
        "5 2": "line 7: more rows than the 5",
        "7 2": "ends after 6 rows where line 1 promises 7",
        "6 9": "line 2: 2 numbers where line 1 promises 9",
    }
    for header in (*messages, "6", "six 2", "6 -2", "0 2"):
        path = write_vec(tmp_path / "a.vec", WORDS, X, header)
        bad(messages.get(header, "line 1: a .vec file starts with"), path, path)
    # Words may hold spaces, so a dimension too small only makes longer words.
    path = write_vec(tmp_path / "a.vec", WORDS, X, "6 1")
    assert pairs(path, path)[0].shape == (6, 1)
    lines = write_vec(path, WORDS, X).read_text(encoding="utf-8").splitlines()
    other = write_vec(tmp_path / "b.vec", ["the", "New York", "other", "a", "b", "c"], Y)
    bad("line 4 is 'é' .* 'other'", path, other)
    bad("no named columns", path, path, x_columns="c")
    for line, message in (("é 1.5", "1 numbers where"), ("é 0.5 abc", "not a word and then 2")):
        lines[3] = line
        path.write_text("\n".join(lines), encoding="utf-8")
        bad(f"line 4: {message}", path, path)


def test_read_column(tmp_path):
    groups = np.array([1, 1, 2, 2, 3, 3])
    np.save(tmp_path / "g.npy", groups[:, None])
    np.savez(tmp_path / "g.npz", group=groups, other=X)
    save_file({"group": torch.from_numpy(groups)}, tmp_path / "g.safetensors")
    table = pd.DataFrame({"group": groups, "name": list("uuvvww")})
    table.to_csv(tmp_path / "g.csv", index=False)
    table.to_parquet(tmp_path / "g.parquet")
    for name in ("g.npz", "g.safetensors", "g.csv", "g.parquet"):
        np.testing.assert_array_equal(read_column(tmp_path / name, "group"), groups)
    for name in ("g.npy", "g.safetensors"):
        np.testing.assert_array_equal(read_column(tmp_path / name, None), groups)
    assert read_column(tmp_path / "g.csv", "name").tolist() == list("uuvvww")
    refused("has 2 columns: name one of group, name", read_column, tmp_path / "g.csv", None)
    refused("arrays: name one of group, other", read_column, tmp_path / "g.npz", None)
    refused(r"shape \(6, 2\): one column", read_column, tmp_path / "g.npz", "other")
    refused("did you mean 'group'", read_column, tmp_path / "g.csv", "groop")
    refused(r"cannot come from a \.vec", read_column, tmp_path / "g.vec", None)


def test_tables_that_mislead(tmp_path):
    """What a person saves without thinking, and what would go wrong without a word."""
    path = tmp_path / "x.csv"
    np.savetxt(path, X, delimiter=",")
    bad("numbers in its first line", path, path)
    path.write_text("a;b\n1;2\n3;4\n")
    bad("separate columns by commas", path, path)
    pd.DataFrame({"a": [0.5, 1.5, 2.5], "b": [3, 1, 2]}).to_csv(path)
    with pytest.warns(DataWarning, match="without a name"):
        x, _ = read_pairs([path, path], x_columns=None, y_columns=None)
    assert list(x.columns) == ["a", "b"]


PMI = np.array([0.5, -1.25, np.inf, 1e-17])
COLUMNS = {"row": np.arange(4), "pmi": PMI, "w": np.array(list("abcd"))}


def names_in(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_round_trip(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    for _ in range(2):  # the second time over the first
        check_writable(path)
        write_table(path, COLUMNS)
    table = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert list(table.columns) == list(COLUMNS)
    for name, values in COLUMNS.items():
        np.testing.assert_array_equal(table[name], values)
    assert names_in(tmp_path) == [path.name]


def test_npy_takes_the_pmi_and_a_link_is_followed(tmp_path):
    write_table(tmp_path / "out.npy", COLUMNS)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), COLUMNS["pmi"])
    refused("no column 'pmi'", write_table, tmp_path / "out.npy", {"row": COLUMNS["row"]})
    (tmp_path / "real").mkdir()
    (tmp_path / "out.csv").symlink_to(tmp_path / "real" / "file.csv")
    write_table(tmp_path / "out.csv", COLUMNS)
    assert (tmp_path / "out.csv").is_symlink()
    assert (tmp_path / "real" / "file.csv").is_file()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left"), RuntimeError])
@pytest.mark.parametrize("step", ["write", "replace"])
def test_nothing_is_left_after_an_error(tmp_path, monkeypatch, error, step):
    path = tmp_path / "out.npy"
    path.write_bytes(b"older")
    at = (np, "save") if step == "write" else (Path, "replace")
    monkeypatch.setattr(*at, Mock(side_effect=error))
    raised = InputError if isinstance(error, OSError) else error
    with pytest.raises(raised) as caught:
        write_table(path, COLUMNS)
    if raised is InputError:
        assert str(caught.value) == f"{path} cannot be written: No space left"
    assert (path.read_bytes(), names_in(tmp_path)) == (b"older", ["out.npy"])


def test_places_and_columns_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for path, message in [
        (tmp_path / "out.txt", r"unknown suffix '\.txt'.*\.csv, \.npy, \.parquet"),
        (tmp_path / "folder.csv", "is a folder"),
        (tmp_path / "none" / "out.csv", "the folder .*none does not exist"),
    ]:
        refused(message, check_writable, path)
        refused(message, write_table, path, COLUMNS)
    for columns in ({}, {"a": np.zeros((2, 2))}, {"a": np.zeros(2), "b": np.zeros(3)}):
        refused(r"columns \(rows,\) of one length", write_table, tmp_path / "out.csv", columns)
    assert names_in(tmp_path) == ["folder.csv"]


@pytest.mark.parametrize("what", ["folder", "file"])
def test_read_only(tmp_path, monkeypatch, what):
    path = tmp_path / "out.csv"
    path.write_text("older")
    closed = tmp_path if what == "folder" else path
    # The answer of the system is replaced because root may write everywhere.
    monkeypatch.setattr(os, "access", lambda place, mode: place != closed)
    refused(f"the {what}.* is read-only", write_table, path, COLUMNS)
    assert path.read_text() == "older"


SPOKEN = ["the", "l'été", "alma's", "a"]
AUDIO = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
TEXT = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)


def write_published(path, words, vectors):
    """As the published files are: a header, and a space after the last number of a line."""
    lines = [f"{len(words)} {vectors.shape[1]}"]
    rows = zip(words, vectors.tolist(), strict=True)
    lines += [f"{word} {' '.join(map(repr, vector))} " for word, vector in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_npz(path, **arrays):
    given_arrays = {"words": np.array(SPOKEN), "audio": AUDIO, "text": TEXT} | arrays
    np.savez(path, **{key: value for key, value in given_arrays.items() if value is not None})
    return path


def vec(folder, audio=AUDIO, text=TEXT, audio_words=SPOKEN, text_words=SPOKEN):
    return {
        "audio": write_published(folder / "a.vec", audio_words, audio),
        "text": write_published(folder / "t.vec", text_words, text),
    }


def test_two_vec_files(tmp_path):
    pairs = read_word_pairs(**vec(tmp_path))
    assert (pairs.words.tolist(), len(pairs)) == (SPOKEN, 4)
    assert np.array_equal(pairs.audio, AUDIO)
    assert np.array_equal(pairs.text, TEXT)
    assert pairs.audio.dtype == pairs.text.dtype == np.float32
    for row in range(4):  # the first that differs is named
        other = [*SPOKEN[:row], *("changed" + word for word in SPOKEN[row:])]
        message = f"line {row + 2} is {SPOKEN[row]!r} in .*a.vec and {other[row]!r} in .*t"
        refused(message, read_word_pairs, **vec(tmp_path, text_words=other))
    broken, twice = TEXT.copy(), ["a", "b", "a", "c"]
    broken[2, 1] = np.nan
    for message, changes in (
        ("line 5 is 'a' in .*a.vec and None in", {"text_words": SPOKEN[:3], "text": TEXT[:3]}),
        ("'a' stands in row 0 and in row 2", {"audio_words": twice, "text_words": twice}),
        (r"t.vec: the vector of .alma's. \(row 2\)", {"text": broken}),
    ):
        refused(message, read_word_pairs, **vec(tmp_path, **changes))


@pytest.mark.parametrize("encoded", [True, False])
def test_one_archive(tmp_path, encoded):
    words = np.array([word.encode() for word in SPOKEN]) if encoded else np.array(SPOKEN)
    half = AUDIO.astype(np.float16)
    pairs = read_word_pairs(data=write_npz(tmp_path / "w.npz", words=words, audio=half))
    assert pairs.words.tolist() == SPOKEN
    assert np.array_equal(pairs.audio, half.astype(np.float32))
    assert np.array_equal(pairs.text, TEXT)


def test_archives_and_files_that_are_refused(tmp_path):
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
    data = write_npz(tmp_path / "w.npz")
    for files in ({"audio": tmp_path / "a.vec"}, {}):
        refused("--audio FILE.vec and --text FILE.vec, or --data", read_word_pairs, **files)
    refused("--data stands alone", read_word_pairs, data=data, text=tmp_path / "t.vec")
    refused("no.npz does not exist", read_word_pairs, data=tmp_path / "no.npz")


# Files that promise more than they hold, or other things than they seem to.


def test_longer_rows_are_refused_by_their_line(tmp_path, good):
    """However they are read: pandas cuts such rows, or moves every column by one."""
    path = tmp_path / "t.csv"
    for text, line in (
        ("a,b\n1,2,3\n4,5,6\n", 2),
        ('a,b\n1,2\n"3\n,,,",4\n\n5,6\n7,8,9\n', 7),
        ("a,b\n1,2,\n", 2),
    ):
        path.write_text(text)
        for columns in ({}, {"x_columns": "a"}, {"x_columns": "b,a"}):
            bad(rf"t\.csv line {line}: 3 fields where the header has 2", path, good, **columns)
    path.write_text('\n"a,1",b,b,\n1,"2",3,4\n')
    assert read_column(path, "b.1") == [3]
    x, _ = read_pairs([path], x_columns="b", y_columns="Unnamed: 3")
    assert x.to_numpy().tolist() == [[2]]


def test_a_carriage_return_in_a_text_is_no_new_row(tmp_path):
    texts = np.array(["one\rtwo", 'a "b", c', "three\r\nfour", "five\nsix"])
    write_table(tmp_path / "t.csv", {"row": np.arange(4), "text": texts, "ok": texts == "a"})
    table = pd.read_csv(tmp_path / "t.csv")
    assert table["text"].tolist() == texts.tolist()
    assert table["row"].tolist() == [0, 1, 2, 3]
    assert table["ok"].dtype == bool
    write_table(tmp_path / "t.csv", {"na\rme": np.arange(4)})
    assert len(pd.read_csv(tmp_path / "t.csv")) == 4


def npy_bytes(header, body=b""):
    packed = repr(header).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(packed).to_bytes(2, "little") + packed + body


def test_declared_sizes_come_first(tmp_path, good, monkeypatch):
    path = tmp_path / "a.npy"
    for header, message in (
        ({"descr": "<U0", "fortran_order": False, "shape": (10**9,)}, "values of no size"),
        ({"descr": "<f8", "fortran_order": False, "shape": (10**9, 0)}, "is empty"),
        ({"descr": "<f8", "fortran_order": False, "shape": (10**9,)}, "promises 8000000128 bytes"),
        ({"descr": "<f8", "fortran_order": False, "shape": (-1,)}, "truncated or damaged"),
    ):
        path.write_bytes(npy_bytes(header))
        bad(message, path, good)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        head = {"descr": "|u1", "fortran_order": False, "shape": (3 << 27,)}
        with archive.open("x.npy", "w") as member:
            member.write(npy_bytes(head))
            for _ in range(3 << 7):
                member.write(bytes(1 << 20))
        archive.writestr("y.npy", npy_bytes({**head, "shape": (5,)}, bytes(5)))
    monkeypatch.setattr(numpy_format, "read_array", Mock(side_effect=AssertionError))
    bomb = tmp_path / "bomb.npz"
    refused("X has 402653184 rows, Y has 5", pairs, bomb)
    refused("X has 402653184 rows, Y has 6", pairs, bomb, good)
    bad(r"promises 0.8 GB from \d{3},\d{3} bytes: it is damaged", bomb, y_columns="x")


def test_very_wide_tables(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{k}" for k in range(200_000)) + "\n" + "1," * 199_999 + "1\n")
    refused("has 200,000 columns: a table may have 100,000", pairs, path, path)
    x, y = read_pairs([path], x_columns="c3", y_columns="c199999,c7")
    assert (x.shape, y.shape) == ((1, 1), (1, 2))
    message = refused("unknown column 'none'", pairs, path, x_columns="none", y_columns="c1")
    assert len(message) < 1000


def test_what_pandas_says_of_its_index_is_not_needed(tmp_path):
    """Columns that pandas would make the index are columns, but not unless they are named."""
    path, table = tmp_path / "t.parquet", pd.DataFrame({"id": [3, 1, 2], "a": X[:3, 0]})
    table.set_index("id").to_parquet(path)
    assert read_column(path, "id").tolist() == [3, 1, 2]
    assert read_column(path, None).tolist() == X[:3, 0].tolist()
    x, y = read_pairs([path], x_columns="id", y_columns="a")
    assert (x["id"].tolist(), y["a"].tolist()) == ([3, 1, 2], X[:3, 0].tolist())
    (tmp_path / "shards").mkdir()
    table.set_index("id").to_parquet(tmp_path / "shards" / "0.parquet")
    assert open_rows(tmp_path / "shards").names == ("a",)
    damaged = pa.table({"a": X[:3, 0]}).replace_schema_metadata({"pandas": "{damaged"})
    pq.write_table(damaged, path)
    assert read_column(path, "a").tolist() == X[:3, 0].tolist()
    pq.write_table(pa.Table.from_arrays([damaged["a"], damaged["a"]], ["a", "a"]), path)
    refused("more than one column 'a'", read_column, path, "a")


def test_other_members_types_and_characters(tmp_path, good):
    np.savez(tmp_path / "a.npz", x=X)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("README.txt", "about these data")
    np.testing.assert_array_equal(pairs(tmp_path / "a.npz", good)[0], X)
    bad("holds no array 'README.txt': it holds x", tmp_path / "a.npz", good, x_columns="README.txt")
    text = np.array(["one", "two", "six"] * 2)
    text.view("u4")[4] ^= 1 << 24
    np.save(tmp_path / "t.npy", text)
    np.savez(tmp_path / "t.npz", text)
    for path in (tmp_path / "t.npy", tmp_path / "t.npz"):
        refused(r"t\.np. holds characters that do not exist", read_column, path, None)
    for kind in ("F4", "F8_E8M0"):
        head = json.dumps({"x": {"dtype": kind, "shape": [6, 2], "data_offsets": [0, 12]}})
        size = 6 if kind == "F4" else 12
        head = head.replace("12]}", f"{size}]}}").encode()
        path = tmp_path / "a.safetensors"
        path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(size))
        bad("'x' is of type F|cannot be read", path, good)


def test_damaged_arrow_files(tmp_path, good):
    """Offsets and texts that Arrow believes until it is asked."""
    path = tmp_path / "t.arrow"
    texts = pa.array(["one", "two", "three"] * 2)
    for buffer, at in ((1, 9), (2, 3)):
        content = [texts.buffers()[0], *map(bytearray, texts.buffers()[1:])]
        content[buffer][at] = 0xFF
        broken = pa.Array.from_buffers(pa.string(), 6, [None, *map(pa.py_buffer, content[1:])])
        with pa.ipc.new_file(path, pa.schema({"t": pa.string()})) as file:
            file.write(pa.record_batch([broken], ["t"]))
        refused(r"t\.arrow cannot be read", read_column, path, "t")
    days = pa.array([2**31 - 1] * 6, pa.int32()).cast(pa.date32())
    feather.write_feather(pa.table({"t": days}), path)
    refused(r"cannot be read|dates", pairs, path, good)


def test_memory_that_is_not_there_is_told(tmp_path, good, monkeypatch):
    monkeypatch.setattr(np, "load", Mock(side_effect=MemoryError))
    bad("it takes more memory than there is", good, good)
