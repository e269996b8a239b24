"""Tables are written whole or not at all."""

import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from pointdep.data.writers import check_writable, write_table
from pointdep.errors import InputError
from refusals import refused

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
    assert path.read_bytes() == b"older"
    assert names_in(tmp_path) == ["out.npy"]


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
