"""Users' files: each format both ways, and one line for each thing that can be wrong."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from pointdep.data.readers import read_column, read_pairs
from pointdep.data.sides import as_side
from pointdep.errors import DataWarning, InputError

X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
WORDS = ["the", "New York", "é", "a", "b", "c"]


def pairs(*files, x_columns=None, y_columns=None, **kwargs):
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns, **kwargs)
    return as_side(x, "X").numeric, as_side(y, "Y").numeric


def refused(message, *files, **kwargs):
    with pytest.raises(InputError, match=message) as caught:
        pairs(*files, **kwargs)
    assert "\n" not in str(caught.value)
    assert str(files[0].parent) in str(caught.value)


def write_vec(path, words, vectors, header=None):
    lines = [header or f"{len(words)} {vectors.shape[1]}"]
    lines += [f"{w} {' '.join(map(str, row))}" for w, row in zip(words, vectors, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write(path, values, key):
    columns = {f"{key}{j}": values[:, j] for j in range(values.shape[1])}
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, **{key: values, "other": values[:1]})
    elif path.suffix == ".safetensors":
        save_file({key: torch.from_numpy(values), "other": torch.ones(1)}, path)
    elif path.suffix == ".csv":
        pd.DataFrame(columns).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pd.DataFrame(columns).to_parquet(path)
    else:
        write_vec(path, WORDS, values)
    return path


SUFFIXES = [".npy", ".npz", ".csv", ".parquet", ".vec", ".safetensors"]


@pytest.mark.parametrize("x_suffix", SUFFIXES)
@pytest.mark.parametrize("y_suffix", [".npy", ".vec"])
def test_two_files(tmp_path, x_suffix, y_suffix):
    x, y = pairs(write(tmp_path / f"a{x_suffix}", X, "x"), write(tmp_path / f"b{y_suffix}", Y, "y"))
    np.testing.assert_allclose(x, X, rtol=1e-6)
    np.testing.assert_allclose(y, Y, rtol=1e-6)


def test_npy_is_memory_mapped(tmp_path):
    path = write(tmp_path / "a.npy", X, "x")
    x, _ = read_pairs([path, path], x_columns=None, y_columns=None)
    assert isinstance(x, np.memmap)


def test_single_arrays_need_no_key(tmp_path):
    np.savez(tmp_path / "a.npz", anything=X)
    save_file({"e": torch.from_numpy(Y).bfloat16()}, tmp_path / "b.safetensors")
    x, y = pairs(tmp_path / "a.npz", tmp_path / "b.safetensors")
    np.testing.assert_array_equal(x, X)
    np.testing.assert_allclose(y, Y, rtol=1e-2)


def test_one_file_with_two_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y, z=X[:, :1])
    save_file({"x": torch.from_numpy(X), "y": torch.from_numpy(Y)}, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        x, y = pairs(tmp_path / name)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(pairs(tmp_path / "a.npz", y_columns="z")[1], X[:, :1])
    np.testing.assert_array_equal(pairs(tmp_path / "a.npz", y_key="z")[1], X[:, :1])
    refused("holds no array 'w': it holds x, y, z", tmp_path / "a.npz", x_columns="w")
    refused("holds no array 'w': it holds x, y", tmp_path / "a.safetensors", x_key="w")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_one_table(tmp_path, suffix):
    path = write(tmp_path / f"t{suffix}", np.hstack([X, Y]), "c")
    x, y = pairs(path, x_columns="c1, c0", y_columns="c2,c3,c4")
    np.testing.assert_allclose(x, X[:, ::-1], rtol=1e-6)
    np.testing.assert_allclose(y, Y, rtol=1e-6)
    refused("give --x-columns and --y-columns.*c0, c1, c2, c3, c4", path, x_columns="c0")
    refused("unknown column 'c9': .*choose from c0", path, x_columns="c0", y_columns="c9")
    with pytest.raises(InputError, match=r"--x-columns 'c0,' has an empty name"):
        pairs(path, x_columns="c0,", y_columns="c1")
    with pytest.raises(InputError, match=r"--y-columns 'c1,c1' names a column twice"):
        pairs(path, x_columns="c0", y_columns="c1,c1")


def test_columns_of_two_files(tmp_path):
    table, array = write(tmp_path / "t.csv", Y, "c"), write(tmp_path / "a.npz", X, "k")
    x, y = pairs(table, array, x_columns="c2", y_columns="other")
    np.testing.assert_allclose(x, Y[:, 2:], rtol=1e-6)
    assert y.shape == (1, 2)
    npy = write(tmp_path / "a.npy", X, "x")
    refused("a.npy has no named columns", npy, table, x_columns="c0")
    refused("a.npz holds 2 arrays and none called 'y': name one of k, other", npy, array)


def test_number_of_files(tmp_path):
    npy = write(tmp_path / "a.npy", X, "x")
    refused("holds one side only: give two files", npy)
    for files in ([], [npy] * 3):
        with pytest.raises(InputError, match=f"not {len(files)} files"):
            read_pairs(files, x_columns=None, y_columns=None)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_folder_empty_and_damaged(tmp_path, suffix):
    good = write(tmp_path / "good.npy", X, "x")
    path = tmp_path / f"a{suffix}"
    refused(f"a{suffix} does not exist", path, good)
    (tmp_path / f"folder{suffix}").mkdir()
    refused("is a folder", tmp_path / f"folder{suffix}", good)
    path.write_bytes(b"")
    refused("is empty", path, good)
    content = write(path, np.tile(X, (50, 1))[: 6 if suffix == ".vec" else 300], "x").read_bytes()
    if suffix != ".csv":  # half a CSV file is a CSV file
        path.write_bytes(content[: len(content) // 2])
        refused("line" if suffix == ".vec" else "truncated", path, good)
        path.write_bytes(b"something else entirely\n" * 20)
        refused("line 1" if suffix == ".vec" else "truncated|does not begin as numpy", path, good)


def test_files_without_rows(tmp_path):
    good = write(tmp_path / "good.npy", X, "x")
    np.save(tmp_path / "a.npy", X[:0])
    np.savez(tmp_path / "a.npz", x=X[:0])
    np.savez(tmp_path / "none.npz")
    save_file({"x": torch.zeros(0, 2)}, tmp_path / "a.safetensors")
    (tmp_path / "a.csv").write_text("u,v\n")
    pd.DataFrame({"u": X[:0, 0]}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.vec").write_text("0 3\n")
    (tmp_path / "blank.csv").write_text("\n\n")
    for suffix in SUFFIXES:
        refused("is empty", tmp_path / f"a{suffix}", good)
    refused("is empty", tmp_path / "none.npz", good)
    refused("blank.csv cannot be read", tmp_path / "blank.csv", good)


def test_unknown_suffix(tmp_path):
    refused(r"unknown suffix '.mat'.*\.csv, \.npy, \.npz, \.parquet", tmp_path / "a.mat")


def test_pickles_are_not_loaded(tmp_path):
    good = write(tmp_path / "good.npy", X, "x")
    objects = np.array([{}, []], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects)
    (tmp_path / "b.npy").write_bytes(pickle.dumps([1, 2]))
    (tmp_path / "b.npz").write_bytes(pickle.dumps([1, 2]))
    for name in ("a.npy", "a.npz", "b.npy", "b.npz"):
        refused("Python objects .* not loaded for safety", tmp_path / name, good)


def test_arrays_under_the_wrong_name(tmp_path):
    good = write(tmp_path / "good.npy", X, "x")
    write(tmp_path / "a.npz", X, "x").rename(tmp_path / "a.npy")
    refused("rename it to end in .npz", tmp_path / "a.npy", good)
    good.rename(tmp_path / "b.npz")
    refused("rename it to end in .npy", tmp_path / "b.npz", tmp_path / "a.npy")


def test_permission_denied(tmp_path, monkeypatch):
    path = write(tmp_path / "a.npy", X, "x")

    def deny(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(np, "load", deny)
    refused("permission denied", path, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied_by_the_system(tmp_path):
    path = write(tmp_path / "a.csv", X, "x")
    path.chmod(0)
    refused("permission denied", path, path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("5 2", "line 7: more rows than the 5"),
        ("7 2", "ends after line 7: 6 rows where line 1 promises 7"),
        ("6 9", "line 2: 2 numbers where line 1 promises 9"),
        ("6 1", "is fine"),
        ("6", "line 1: a .vec file starts with"),
        ("six 2", "line 1: a .vec file starts with"),
        ("6 -2", "line 1: a .vec file starts with"),
    ],
)
def test_vec_header_must_agree(tmp_path, header, message):
    path = write_vec(tmp_path / "a.vec", WORDS, X, header)
    if message == "is fine":
        # Words may hold spaces, so a dimension too small only makes longer words.
        assert pairs(path, path)[0].shape == (6, 1)
    else:
        refused(message, path, path)


def test_vec_rows(tmp_path):
    path = write_vec(tmp_path / "a.vec", WORDS, X)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[3] = lines[3].rsplit(" ", 1)[0]
    path.write_text("\n".join(lines), encoding="utf-8")
    refused("line 4: 1 numbers where line 1 promises 2", path, path)
    lines[3] = "é 0.5 abc"
    path.write_text("\n".join(lines), encoding="utf-8")
    refused("line 4: not a word and then 2 numbers", path, path)


def test_vec_words_must_agree(tmp_path):
    one = write_vec(tmp_path / "a.vec", WORDS, X)
    two = write_vec(tmp_path / "b.vec", ["the", "New York", "other", "a", "b", "c"], Y)
    refused("differ in row 2: 'é' and 'other'", one, two)
    refused("no named columns", one, one, x_columns="c")


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
    np.testing.assert_array_equal(read_column(tmp_path / "g.npy", None), groups)
    np.testing.assert_array_equal(read_column(tmp_path / "g.safetensors", None), groups)
    assert read_column(tmp_path / "g.csv", "name").tolist() == list("uuvvww")
    with pytest.raises(InputError, match="has 2 columns: name one of group, name"):
        read_column(tmp_path / "g.csv", None)
    with pytest.raises(InputError, match="holds 2 arrays: name one of group, other"):
        read_column(tmp_path / "g.npz", None)
    with pytest.raises(InputError, match=r"shape \(6, 2\): one column"):
        read_column(tmp_path / "g.npz", "other")
    with pytest.raises(InputError, match="did you mean 'group'"):
        read_column(tmp_path / "g.csv", "groop")
    with pytest.raises(InputError, match=r"cannot come from a \.vec"):
        read_column(tmp_path / "g.vec", None)


class TestTablesThatMislead:
    """What a person saves without thinking, and what would go wrong without a word."""

    def test_no_header_line(self, tmp_path):
        np.savetxt(tmp_path / "x.csv", np.random.default_rng(0).normal(size=(9, 2)), delimiter=",")
        with pytest.raises(InputError, match="numbers in its first line"):
            read_pairs([tmp_path / "x.csv"] * 2, x_columns=None, y_columns=None)

    def test_the_row_numbers_of_pandas(self, tmp_path):
        frame = pd.DataFrame({"a": [0.5, 1.5, 2.5], "b": [3, 1, 2]})
        frame.to_csv(tmp_path / "x.csv")
        with pytest.warns(DataWarning, match="has no name and counts the rows"):
            x, _ = read_pairs([tmp_path / "x.csv"] * 2, x_columns=None, y_columns=None)
        assert list(x.columns) == ["a", "b"]

    def test_another_separator(self, tmp_path):
        (tmp_path / "x.csv").write_text("a;b\n1;2\n3;4\n")
        with pytest.raises(InputError, match="separate columns by commas"):
            read_pairs([tmp_path / "x.csv"] * 2, x_columns=None, y_columns=None)

    def test_a_column_on_both_sides(self, tmp_path):
        (tmp_path / "d.csv").write_text("a,b\n1,2\n3,4\n")
        with pytest.raises(InputError, match="'a' is on both sides"):
            read_pairs([tmp_path / "d.csv"], x_columns="a", y_columns="b,a")
