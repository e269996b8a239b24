"""`pointdep bench`, with estimators whose answers are known."""

import pytest

from experiments import fakes
from pointdep.data.tasks import QUICK, TASKS
from pointdep.experiments import bench as bench_module

ARGUMENTS = ("--tasks", "gaussian-1,table", "--estimators", "pc,dv,ksg,cca", "--rows", "30,20")


@pytest.fixture
def bench(pointdep, monkeypatch):
    """The command, with `pc` right, `dv` off by 0.5, `ksg` without PMI and `cca` broken."""
    fakes.install(monkeypatch)
    return lambda *arguments: pointdep("bench", "--device", "cpu", "--quiet", *arguments)


def test_table(bench):
    outcome = bench(*ARGUMENTS, "--seeds", 2, "--confidence", 0.8)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].split()[:5] == ["task", "rows", "estimator", "runs", "error"]
    body = [line.split() for line in lines[1:17]]
    # Task by task, and within one from few rows to many.
    few = [["gaussian-1", "20", name] for name in ("pc", "dv", "ksg", "cca")]
    assert [line[:3] for line in body[:5]] == [*few, ["gaussian-1", "30", "pc"]]
    assert body[1][3:10] == ["2", "+0.500", "0.500", "0.500", "1.000", "1.000", "0.00"]
    assert (body[2][6:9], body[3][3:]) == (["-", "-", "-"], ["0/2"] + ["-"] * 7)
    assert lines[17].startswith("all tasks")
    assert "80% intervals" in outcome.out
    assert lines[-2:] == [
        "ksg on gaussian-1, table: ksg gives no PMI of new pairs",
        "cca on gaussian-1, table: ZeroDivisionError: division by zero",
    ]
    assert lines[-3].endswith("runs: that no error ended.")
    assert max(map(len, lines)) <= 100


def test_folder_resuming_and_ctrl_c(bench, folder, monkeypatch):
    assert bench(*ARGUMENTS, "--seeds", 1, "-o", "results").out.endswith("written: results\n")
    written = {"results.csv", "summary.csv", "results.json", "figure.png", "figure.svg"}
    assert {path.name for path in (folder / "results").iterdir()} == written
    again = bench(*ARGUMENTS, "--seeds", 2, "-o", "results")
    assert "12 of 32 runs were there already." in again.out
    measure, done = bench_module.measure, []

    def interrupted(run):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(run)
        return measure(run)

    monkeypatch.setattr(bench_module, "measure", interrupted)
    few = ("--tasks", "table", "--estimators", "pc,dv", "--rows", "20,30", "-o", "kept")
    ended = bench(*few, "--seeds", 1)
    assert (ended.code, ended.out) == (130, "")
    assert "-o FOLDER finished runs are kept, and the same command goes on from them" in ended.err
    monkeypatch.setattr(bench_module, "measure", measure)
    content = bench(*few, "--seeds", 1, "--json").json()
    assert (content["resumed"], content["runs"]) == (3, 4)


def test_json_and_sets_of_tasks(bench, check_json):
    content = bench(*ARGUMENTS, "--seeds", 1, "--json").json()
    check_json("bench", content)
    assert (content["runs"], content["failed"], content["rows"]) == (16, 4, [30, 20])
    assert content["output"] is None
    assert {note["estimator"] for note in content["notes"]} == {"ksg", "cca"}
    right = bench("--tasks", "table", "--seeds", 1, "-o", "out", "--json").json()
    check_json("bench", right)
    assert (right["notes"], right["output"], right["summary"][0]["error"]) == ([], "out", 0)
    for words, tasks in (
        ((), [*QUICK]),
        (("--tasks", "all"), [*TASKS]),
        (("--tasks", "quick,table,label"), [*QUICK, "table"]),
    ):
        assert bench(*words, "--seeds", 1, "--rows", 10, "--json").json()["tasks"] == tasks
    outcome = bench("--list")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(TASKS)
    assert next(line for line in lines if line.startswith("gaussian-20")).split()[1] == "2.000"
    assert sum("  yes  " in line for line in lines) == len(QUICK)
    assert max(map(len, lines)) <= 100


def test_refused(refused):
    for arguments, message in (
        ("--tasks gausian-1", "unknown task 'gausian-1': did you mean 'gaussian-1'"),
        ("--tasks table,,label", "--tasks 'table,,label' must be names"),
        ("--estimators ksq", "unknown estimator 'ksq': did you mean 'ksg'"),
        ("--rows 1e3", "--rows '1e3' must be whole numbers"),
        ("--confidence 1.5", "--confidence 1.5 must lie between 0 and 1"),
        ("-o a/b", "the folder above it does not exist"),
        ("-o x.npy", "x.npy is a file"),
        ("--device gpu -o results", "gpu"),
        ("--list --json", "--list is for people"),
    ):
        refused(message, "bench", arguments)
