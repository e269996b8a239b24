"""What a user can get wrong: one line on standard error, exit code 2, and nothing written."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pointdep.cli.app import run
from pointdep.data import files


class MakesFile:
    """Its pickle, when loaded, makes a file."""

    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


@pytest.fixture
def mi(refused):
    """Check that `pointdep mi FILE y.npy` is refused."""
    return lambda message, file, *options: refused(message, "mi", file, "y.npy", *options)


@pytest.fixture
def shards_of_lists(folder):
    """A folder whose columns must be named."""
    (folder / "lists").mkdir()
    table = pa.table({"id": [1, 2], "e": [[1.0, 2.0], [3.0, 4.0]]})
    pq.write_table(table, folder / "lists" / "0.parquet")
    return "lists"


class TestFiles:
    def test_missing(self, mi):
        mi(r"missing\.npy does not exist", "missing.npy")
        mi(r"missing does not exist", "missing")

    def test_missing_is_told_before_what_is_wrong_with_the_other(self, refused, shards_of_lists):
        refused(r"nowhere does not exist", "mi", shards_of_lists, "nowhere")

    def test_folder(self, mi, folder):
        (folder / "plain").mkdir()
        (folder / "folder.npy").mkdir()
        mi(r"plain is a folder that holds no shards .*: give one that does, or a file", "plain")
        mi(r"folder\.npy is a folder that holds no shards", "folder.npy")

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".vec", ".safetensors"])
    def test_empty_and_damaged(self, mi, folder, suffix):
        path = folder / f"bad{suffix}"
        path.touch()
        mi(rf"bad\{suffix} is empty \(0 bytes\)", path.name)
        path.write_bytes(b"\x00\x01 nonsense\n" * 3)
        options = ("--x-columns", "x") if suffix in (".csv", ".parquet") else ()
        mi(rf"bad\{suffix}", path.name, *options)

    def test_unknown_suffix(self, mi, folder):
        (folder / "x.txt").write_text("1 2 3")
        mi(r"x\.txt has the unknown suffix '\.txt': the files known are \.csv, \.npy", "x.txt")

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".safetensors"])
    def test_a_pickle_is_never_loaded(self, mi, folder, suffix):
        path = folder / f"trap{suffix}"
        path.write_bytes(pickle.dumps(MakesFile()))
        mi(rf"trap\{suffix}", path.name)
        assert not (folder / "executed").exists()
        pickle.loads(path.read_bytes())
        assert (folder / "executed").exists()  # the trap would have worked

    @pytest.mark.parametrize("suffix", [".npy", ".npz"])
    def test_an_object_array_is_never_loaded(self, mi, folder, suffix):
        array = np.array([MakesFile()] * 200, dtype=object)
        path = folder / f"trap{suffix}"
        (np.save if suffix == ".npy" else np.savez)(path, array)
        mi(rf"trap\{suffix} holds Python objects \(a pickle\), which is not loaded", path.name)
        assert not (folder / "executed").exists()

    def test_too_many(self, refused):
        refused("one file with both sides or two files, not 3", "mi", "x.npy", "y.npy", "x.npy")

    def test_one_side_only(self, refused):
        refused(r"x\.npy holds one side only: give two files", "mi", "x.npy")

    def test_columns(self, refused, pairs):
        pd.DataFrame({"left": pairs[0][:, 0], "right": 1.0}).to_csv("t.csv", index=False)
        refused("give --x-columns and --y-columns, .*left, right", "mi", "t.csv")
        columns = ("--x-columns", "lefft", "--y-columns", "right")
        refused("unknown column 'lefft': did you mean 'left'", "mi", "t.csv", *columns)
        np.savez("t.npz", left=pairs[0], right=pairs[1])
        refused("holds no array 'x': it holds left, right", "mi", "t.npz")
        refused("x.npy has no named columns", "mi", "x.npy", "y.npy", "--x-columns", "a")


class TestValues:
    def test_not_finite(self, mi, pairs):
        x = pairs[0].copy()
        x[[7, 12], 1] = np.nan
        np.save("nan.npy", x)
        mi(r"X column 1 holds 2 NaN value\(s\), the first in row 7", "nan.npy")
        x[[2, 4, 5], 0] = -np.inf
        np.save("inf.npy", x)
        mi(r"X column 0 holds 3 infinity value\(s\), the first in row 2", "inf.npy")

    def test_missing_in_a_table(self, refused, pairs):
        table = pd.DataFrame({"a": pairs[0][:, 0], "b": pairs[1][:, 0]})
        table.loc[3, "a"] = None
        table.to_csv("t.csv", index=False)
        columns = ("--x-columns", "a", "--y-columns", "b")
        refused("X column 'a' holds 1 NaN value.*row 3", "mi", "t.csv", *columns)

    def test_lengths(self, mi, pairs):
        np.save("short.npy", pairs[0][:150])
        mi("X has 150 rows, Y has 200 rows", "short.npy")

    def test_too_few_rows(self, refused, pairs):
        for name, values in zip("xy", pairs, strict=True):
            np.save(f"{name}.npy", values[:5])
        refused("5 sample.*more are required.*fewer folds", "mi", "x.npy", "y.npy")

    def test_no_rows(self, mi, pairs):
        np.save("none.npy", pairs[0][:0])
        mi(r"none\.npy is empty: it holds an array without rows", "none.npy")

    def test_all_constant(self, mi):
        np.save("ones.npy", np.ones((200, 2)))
        mi("every column of X is constant", "ones.npy")

    def test_dimensions(self, mi):
        np.save("cube.npy", np.ones((200, 2, 2)))
        mi(r"X has 3 dimensions \(shape=\(200, 2, 2\)\) but needs 1 or 2", "cube.npy")


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("unknown method 'pcc': did you mean 'pc'", ["--method", "pcc"]),
        ("unknown critic 'conct': did you mean 'concat'", ["--critic", "conct"]),
        ("No such option.*--fold.*--folds.*see pointdep mi --help", ["--fold", "3"]),
        ("'--folds'.*valid integer", ["--folds", "two"]),
        ("folds=0 must be at least 1", ["--folds", "0"]),
        ("max_epochs=0 must be at least 1", ["--max-epochs", "0"]),
        ("--method-option 'eta' must be NAME=VALUE", ["--method-option", "eta"]),
        ("--method-option 'eta=' must be NAME=VALUE", ["--method-option", "eta="]),
        ("eta='two' must be a finite number", ["-m", "dm2", "--method-option", "eta=two"]),
        (
            "unknown option.* 'etta': did you mean 'eta'",
            ["--method", "dm2", "--method-option", "etta=2"],
        ),
        ("eta=-1.* must be", ["--method", "dm2", "--method-option", "eta=-1"]),
        ("eta=inf must be a finite number", ["--method", "dm2", "--method-option", "eta=1e999"]),
        ("--hidden 'wide' must be layer widths, as 256,64, or auto", ["--hidden", "wide"]),
        ("--hidden '16,' must be layer widths", ["--hidden", "16,"]),
        ("hidden=.* at least one unit", ["--hidden", "0"]),
        ("--discrete 'z': choose x, y, both or none", ["--discrete", "z"]),
        ("--confidence 2 must lie between 0 and 1", ["--confidence", "2"]),
        ("--confidence nan must lie between 0 and 1", ["--confidence", "nan"]),
        ("--seed -1 must lie between 0 and 4294967295", ["--seed", "-1"]),
        ("unknown device 'nonsense'", ["--device", "nonsense"]),
    ],
)
def test_options(refused, message, options):
    refused(message, "mi", "x.npy", "y.npy", *options)


def test_commands(refused):
    refused("No such command 'scor'.*score", "scor", "model")
    refused(r"Missing argument 'X Y'.*see pointdep mi --help", "mi")


@pytest.mark.parametrize("command", ["mi", "audit", "score", "retrieve"])
def test_torchrun_is_for_commands_that_share(refused, pointdep, monkeypatch, command):
    monkeypatch.setenv("WORLD_SIZE", "2")
    files = ("x.npy", "y.npy", "z.npy")
    refused("without torchrun .only fit and pretrain share", command, *files)
    monkeypatch.setenv("RANK", "1")
    other = pointdep(command, *files)
    assert (other.code, other.out, other.err) == (2, "", "")
    assert pointdep(command, "--help").code == 0


def test_an_unforeseen_failure_of_the_system_is_one_line(refused, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "state")

    monkeypatch.setitem(files.FORMATS, ".npy", files.ArrayFormat(full))
    refused("^pointdep: state: No space left on device$", "mi", "x.npy", "y.npy")


def test_our_own_mistakes_keep_their_traceback(folder, monkeypatch):
    def mistake(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setitem(files.FORMATS, ".npy", files.ArrayFormat(mistake))
    with pytest.raises(ZeroDivisionError):
        run(["mi", "x.npy", "y.npy"])


def test_warnings_are_left_as_they_were(quick):
    shown, filters = warnings.showwarning, list(warnings.filters)
    assert quick("mi", "x.npy", "y.npy").err.startswith("warning: ")
    assert warnings.showwarning is shown
    assert warnings.filters == filters


def test_warnings_name_options_as_they_are_written(quick):
    outcome = quick("mi", "x.npy", "y.npy", "--critic", "concat")
    assert "raise --max-epochs (now 3)" in outcome.err


def test_exit_code_of_the_process(folder):
    ended = subprocess.run(
        [sys.executable, "-m", "pointdep", "mi", "missing.npy", "y.npy"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "pointdep: missing.npy does not exist\n"
