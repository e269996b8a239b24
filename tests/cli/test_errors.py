"""What a user can get wrong: one line on standard error, exit code 2, and nothing written."""

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

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


class TestFiles:
    """What the readers refuse (tests/data), in one line and before anything is loaded."""

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".vec", ".safetensors"])
    def test_empty_and_damaged(self, refused, folder, suffix):
        path = folder / f"bad{suffix}"
        path.touch()
        refused(rf"bad\{suffix} is empty \(0 bytes\)", "mi", path.name, "y.npy")
        path.write_bytes(b"\x00\x01 nonsense\n" * 3)
        options = "--x-columns x" if suffix in (".csv", ".parquet") else ""
        refused(rf"bad\{suffix}", "mi", path.name, "y.npy", options)

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".safetensors"])
    def test_a_pickle_is_never_loaded(self, refused, folder, suffix):
        path = folder / f"trap{suffix}"
        if suffix in (".npy", ".npz"):
            save = np.save if suffix == ".npy" else np.savez
            save(path, np.array([MakesFile()] * 200, dtype=object))
            refused(rf"trap\{suffix} holds Python objects \(a pickle\)", "mi", path.name, "y.npy")
        path.write_bytes(pickle.dumps(MakesFile()))
        refused(rf"trap\{suffix}", "mi", path.name, "y.npy")
        assert not (folder / "executed").exists()
        pickle.loads(path.read_bytes())
        assert (folder / "executed").exists()  # the trap would have worked

    def test_folders_and_columns(self, refused, folder, pairs):
        for name in ("lists", "folder.npy"):
            (folder / name).mkdir()
        table = pa.table({"id": [1, 2], "e": [[1.0, 2.0], [3.0, 4.0]]})  # columns must be named
        pq.write_table(table, folder / "lists" / "0.parquet")
        pd.DataFrame({"left": pairs[0][:, 0], "right": 1.0}).to_csv("t.csv", index=False)
        np.savez("t.npz", left=pairs[0], right=pairs[1])
        for message, arguments in (
            ("give --x-columns and --y-columns, .*left, right", "t.csv"),
            ("unknown column 'lefft'", "t.csv --x-columns lefft --y-columns right"),
            ("holds no array 'x': it holds left, right", "t.npz"),
            ("x.npy has no named columns", "x.npy y.npy --x-columns a"),
            ("one file with both sides or two files, not 3", "x.npy y.npy x.npy"),
            (r"x\.npy holds one side only", "x.npy"),
            (r"x\.txt", "x.txt y.npy"),
            ("nowhere does not exist", "lists nowhere"),
            (r"folder\.npy is a folder that holds no shards", "folder.npy y.npy"),
        ):
            refused(message, "mi", arguments)


def test_values(refused, pairs):
    """What is wrong with numbers is told by column and row."""
    x = pairs[0].copy()
    x[[7, 12], 1] = np.nan
    for name, values, message in (
        ("nan", x, r"X column 1 holds 2 NaN value\(s\), the first in row 7"),
        ("short", pairs[0][:150], "X has 150 rows, Y has 200 rows"),
        ("none", pairs[0][:0], "none.npy is empty: it holds an array without rows"),
        ("ones", np.ones((200, 2)), "every column of X is constant"),
        ("cube", np.ones((200, 2, 2)), r"X has 3 dimensions \(shape=\(200, 2, 2\)\)"),
    ):
        np.save(f"{name}.npy", values)
        refused(message, "mi", f"{name}.npy", "y.npy --missing error")
    table = pd.DataFrame({"a": pairs[0][:, 0], "b": pairs[1][:, 0]})
    table.loc[3, "a"] = None
    table.to_csv("t.csv", index=False)
    refused(
        "X column 'a' holds 1 NaN value.*row 3",
        "mi t.csv --missing error --x-columns a --y-columns b",
    )
    for name, values in zip("xy", pairs, strict=True):
        np.save(f"{name}.npy", values[:5])
    refused("5 sample.*more are required.*fewer folds", "mi", "x.npy", "y.npy")


def test_options_and_commands(refused):
    for message, options in (
        ("unknown method 'pcc': did you mean 'pc'", "--method pcc"),
        ("unknown critic 'conct': did you mean 'concat'", "--critic conct"),
        ("No such option.*--fold.*--folds.*see pointdep mi --help", "--fold 3"),
        ("'--folds'.*valid integer", "--folds two"),
        ("folds=0 must be at least 1", "--folds 0"),
        ("--max-epochs=0 must be at least 1", "--max-epochs 0"),
        ("--method-option 'eta' must be NAME=VALUE", "--method-option eta"),
        ("--method-option 'eta=' must be NAME=VALUE", "--method-option eta="),
        ("eta='two' must be a finite number", "-m dm2 --method-option eta=two"),
        ("option.* 'etta': did you mean 'eta'", "-m dm2 --method-option etta=2"),
        ("eta=inf must be a finite number", "-m dm2 --method-option eta=1e999"),
        ("--hidden 'wide' must be layer widths, as 256,64, or auto", "--hidden wide"),
        ("hidden=.* at least one unit", "--hidden 0"),
        ("--discrete 'z': choose x, y, both or none", "--discrete z"),
        ("--confidence 2 must lie between 0 and 1", "--confidence 2"),
        ("--seed -1 must lie between 0 and 4294967295", "--seed -1"),
        ("unknown device 'nonsense'", "--device nonsense"),
    ):
        refused(message, "mi", "x.npy", "y.npy", options)
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


def test_failures_of_the_system_are_one_line_and_our_own_mistakes_a_traceback(refused, monkeypatch):
    def failing(error):
        monkeypatch.setitem(files.FORMATS, ".npy", files.ArrayFormat(Mock(side_effect=error)))

    failing(OSError(28, "No space left on device", "state"))
    refused("^pointdep: state: No space left on device$", "mi", "x.npy", "y.npy")
    failing(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run(["mi", "x.npy", "y.npy"])


def test_warnings_name_options_and_the_process_has_an_exit_code(quick, folder):
    shown, filters = warnings.showwarning, list(warnings.filters)
    outcome = quick("mi", "x.npy", "y.npy", "--critic", "concat")
    assert outcome.err.startswith("warning: ")
    assert "raise --max-epochs (now 3)" in outcome.err
    assert warnings.showwarning is shown
    assert warnings.filters == filters
    command = [sys.executable, "-m", "pointdep", "mi", "missing.npy", "y.npy"]
    strict = {**os.environ, "PYTHONWARNINGS": "error"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=strict)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "pointdep: missing.npy does not exist\n"


class TestOutputsApart:
    """What is read is never written over, whatever name it has there."""

    def test_the_same_file(self, refused, folder, pairs):
        Path("link.npy").symlink_to("x.npy")
        Path("hard.npy").hardlink_to("x.npy")
        Path("part").mkdir()
        np.savetxt("g.csv", np.arange(200), header="g", comments="")
        for message, line in (
            ("-o x.npy would overwrite x.npy", "score model x.npy y.npy -o x.npy"),
            ("-o link.npy would overwrite x.npy", "score model x.npy y.npy -o link.npy"),
            ("-o hard.npy would overwrite x.npy", "score model x.npy y.npy -o hard.npy"),
            ("-o part/../y.npy would", "score model x.npy y.npy -o part/../y.npy"),
            ("-o part would overwrite part", "score model part y.npy -o part"),
            ("--oof y.npy would overwrite", "fit x.npy y.npy -o m --oof y.npy"),
            ("--checkpoint hard.npy would", "fit x.npy y.npy -o m --checkpoint hard.npy"),
            ("--oof g.csv would overwrite", "fit x.npy y.npy -o m --groups g.csv --oof g.csv"),
            ("--table g.csv would overwrite", "audit x.npy y.npy --show-x g.csv:g --table g.csv"),
            ("-o and --table are one file", "audit x.npy y.npy -o t.csv --table part/../t.csv"),
            ("-o g.csv would overwrite", "retrieve model g.csv y.npy -o g.csv"),
            ("--save-index part would", "retrieve model part y.npy --save-index part"),
        ):
            refused(message, line)
        Path("pc").mkdir()
        refused("folds=0 must", "fit x.npy y.npy -o pc --method pc --folds 0")  # no file, a name
        Path("x.npy").rename("part/0.npy")
        refused("-o part/0.npy would overwrite part", "score model part y.npy -o part/0.npy")
        assert np.array_equal(np.load("part/0.npy"), pairs[0])
        refused("no model at model", "score model part y.npy -o new.npy")  # as it goes on otherwise


def test_memory_and_control_characters(refused, folder, monkeypatch):
    for error in (MemoryError("Unable to allocate 8 GiB"), RuntimeError("can't allocate memory")):
        monkeypatch.setitem(files.FORMATS, ".npy", files.ArrayFormat(Mock(side_effect=error)))
        refused("not enough memory: .*allocate.*large.md", "mi", "x.npy", "y.npy")
    name = "a\x1b]0;owned\x07\u202e"
    pd.DataFrame({name: [1.0, 2.0], "b": 1.0}).to_csv("t.csv", index=False)
    refused(r"\\x1b\]0;owned\\x07\\u202e", "mi t.csv --x-columns c --y-columns b")
    outcome = run(["mi", "\x1b[31m.npy", "t.csv"])
    assert outcome == 2


def test_control_characters_of_warnings_and_answers(quick, folder, pairs):
    table = pd.DataFrame({"a\x1b[2J": 1.0, "b": pairs[0][:, 0], "c": pairs[1][:, 0]})
    table.to_csv("t\x07.csv", index=False)
    table[["c"]].to_csv("y.csv", index=False)
    outcome = quick("audit", "t\x07.csv", "y.csv", "--table", "o\x07.csv")
    assert outcome.code == 0
    assert "\\x1b[2J" in outcome.err
    assert "o\\x07.csv" in outcome.out
    assert not {"\x1b", "\x07"} & set(outcome.out + outcome.err)
