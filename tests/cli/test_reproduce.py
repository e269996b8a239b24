"""`pointdep reproduce`: what the options do, what is printed, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from pointdep.cli import reproduce
from pointdep.core.critics import ACTIVATIONS
from pointdep.core.methods import PAPER_METHODS
from pointdep.experiments import figure1 as figure1_run
from pointdep.experiments import figure3 as figure3_run
from pointdep.experiments import table2 as table2_run
from pointdep.experiments import theorem1 as theorem1_run
from pointdep.experiments import words as words_run
from pointdep.experiments.figure1 import CRITICS, PRECISIONS, TASKS, Figure1
from pointdep.experiments.figure3 import Figure3
from pointdep.experiments.table2 import Table2
from pointdep.experiments.theorem1 import CRITICS as THEOREM_CRITICS
from pointdep.experiments.theorem1 import Theorem1
from pointdep.fitting.batches import TrainingOptions

TINY_FIGURE = (
    *("--methods", "cpc,pc", "--dim", 2, "--batch-size", 4, "--iterations", 20, "--hidden", 4),
    *("--device", "cpu"),
)
TINY_WORDS = (
    *("--batch-size", 16, "--epochs", 2, "--hidden", 8, "--embedding-dim", 4, "--device", "cpu"),
)
TINY_THEOREM = (
    *("--rows", "60,90", "--dim", 2, "--hidden", 4, "--seeds", 2, "--device", "cpu", "--quiet"),
)


MEASURING = "measuring how fast this CPU is ...\n"
STOPPED = "pointdep: interrupted; no result was written\n"


@pytest.fixture
def asked(monkeypatch):
    """The settings that were to be run; Ctrl-C comes before that begins."""
    found = []

    def stop(settings, progress=None):
        found.append(settings)
        raise KeyboardInterrupt

    def stop_words(settings, pairs, progress=None):
        stop(settings)

    monkeypatch.setattr(figure1_run, "run_figure1", stop)
    monkeypatch.setattr(theorem1_run, "run_theorem1", stop)
    monkeypatch.setattr(table2_run, "run_table2", stop_words)
    monkeypatch.setattr(figure3_run, "run_figure3", stop_words)
    seconds = {Table2: 337.2, Figure3: 33.0}
    monkeypatch.setattr(words_run, "expected_seconds", lambda asked, _: seconds[type(asked)])
    monkeypatch.setattr(
        figure1_run, "expected_seconds", lambda settings: 1.68 * settings.iterations
    )
    return found


@pytest.fixture
def short(monkeypatch):
    """Networks of `theorem1` train for three epochs."""
    monkeypatch.setattr(theorem1_run, "TrainingOptions", partial(TrainingOptions, max_epochs=3))


class TestHelp:
    @pytest.mark.parametrize(
        "command", [(), ("figure1",), ("table1",), ("theorem1",), ("table2",), ("figure3",)]
    )
    def test_is_quick(self, command):
        heavy = "torch", "numpy", "scipy", "pandas", "matplotlib"
        arguments = ["reproduce", *command, "--help"]
        code = (
            f"import sys; from pointdep.cli.app import run; assert run({arguments!r}) == 0; "
            f"assert not set({heavy!r}) & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    @pytest.mark.parametrize(
        ("command", "settings"),
        [
            *(("figure1", Figure1()), ("theorem1", Theorem1())),
            *(("table2", Table2()), ("figure3", Figure3())),
        ],
    )
    def test_the_defaults_in_it_are_the_settings(self, pointdep, command, settings):
        text = " ".join(pointdep("reproduce", command, "--help").out.split())
        shown = dict(re.findall(r"--([a-z-]+) <?\w+>? (?:(?! --).)*?\[default: \(?([^)\]]+)", text))
        assert len(shown) >= 10
        for option, default in shown.items():
            if (command, option) == ("figure1", "methods"):
                assert default == "the ten of the paper"
                assert settings.methods == PAPER_METHODS
                continue
            if option == "output":
                assert default == command
                continue
            if option == "test-words":
                assert default == "5000, at most a fifth"
                assert settings.split_sizes(37_622)[1] == 5000
                assert settings.split_sizes(20_000)[1] == 4000
                continue
            value = getattr(settings, option.replace("-", "_"))
            said = ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
            assert default.replace(" ", "") == said.removesuffix(".0"), option

    def test_the_names_in_it_are_those_there_are(self, pointdep):
        figure = " ".join(pointdep("reproduce", "figure1", "--help").out.split())
        theorem = " ".join(pointdep("reproduce", "theorem1", "--help").out.split())
        assert all(f"{name}" in figure for name in (*TASKS, *CRITICS, *PRECISIONS))
        assert all(f"{name}" in theorem for name in (*THEOREM_CRITICS, *ACTIVATIONS))
        quick = Figure1().quick()
        assert f"{quick.iterations:,} iterations on batches of {quick.batch_size}" in figure
        assert f"layers {','.join(map(str, quick.hidden))}" in figure
        fewer = Table2().quick()
        for command in ("table2", "figure3"):
            text = " ".join(pointdep("reproduce", command, "--help").out.split())
            assert f"{fewer.epochs} epochs on batches of {fewer.batch_size}, layers" in text
            assert f"layers {','.join(map(str, fewer.hidden))}" in text
        small = Theorem1().quick()
        assert f"up to {small.rows[-1]:,} rows, {small.seeds} seeds" in theorem
        assert f"layers {','.join(map(str, small.hidden))}" in theorem


class TestTable1:
    def test_printed_and_written(self, pointdep, folder):
        outcome = pointdep("reproduce", "table1", "-o", "table1.md")
        assert outcome.code == 0
        assert outcome.err == ""
        assert outcome.out.count("  learning  ") == outcome.out.count("  inference  ") == 10
        assert outcome.out.endswith("written: table1.md\n")
        assert (folder / "table1.md").read_text("utf-8").count("\n| `") == 10

    def test_json(self, pointdep, check_json):
        content = pointdep("reproduce", "table1", "--json").json()
        check_json("reproduce table1", content)
        assert [row["key"] for row in content["rows"]] == list(PAPER_METHODS)
        assert content["output"] is None
        content = pointdep("reproduce", "table1", "--json", "-o", "table1.md").json()
        check_json("reproduce table1", content)
        assert content["output"] == "table1.md"

    def test_refused(self, refused, folder):
        (folder / "place").mkdir()
        refused("place is a folder: give a file", "reproduce", "table1", "-o", "place")
        refused("the folder no does not exist", "reproduce", "table1", "-o", "no/table1.md")


class TestFigure1:
    def test_without_options_it_is_the_papers(self, pointdep, asked):
        outcome = pointdep("reproduce", "figure1", "--quiet", "--device", "cpu")
        assert asked == [Figure1(device="cpu")]
        assert (outcome.code, outcome.out, outcome.err) == (130, "", STOPPED)

    def test_options(self, pointdep, asked):
        given = {
            "methods": ("cpc", "pc"),
            "tasks": ("cubic",),
            "critic": "separable",
            "dim": 3,
            "batch_size": 8,
            "iterations": 50,
            "hidden": (16, 8),
            "learning_rate": 0.5,
            "seeds": 2,
            "seed": 7,
            "precision": "float64",
            "device": "cpu",
        }
        words = []
        for name, value in given.items():
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{name.replace('_', '-')}", text]
        pointdep("reproduce", "figure1", "--quiet", *words)
        assert asked == [Figure1(**given)]

    def test_what_is_given_wins_over_quick(self, pointdep, asked):
        common = ("reproduce", "figure1", "--quick", "--quiet", "--device", "cpu")
        pointdep(*common)
        pointdep(*common, "--iterations", 100, "--tasks", "gaussian")
        quick = Figure1(device="cpu").quick()
        assert asked[0] == quick
        changed = {"iterations": 100, "tasks": ("gaussian",)}
        assert asked[1] == Figure1(**{**vars(quick), **changed})

    def test_the_command_asks_for_the_same(self, pointdep, asked):
        settings = Figure1(
            methods=("dm2",), iterations=30, hidden=(9, 7), learning_rate=0.1 + 0.2, device="cpu"
        )
        words = settings.command.split()
        assert words[0] == "pointdep"
        pointdep(*words[1:], "--quiet")
        assert asked == [settings]

    def test_results_of_another_run_are_not_overwritten(self, pointdep, asked, tmp_path):
        common = ("reproduce", "figure1", "--quick", "--quiet", "--device", "cpu", "-o", tmp_path)
        kept = tmp_path / "figure1.json"
        kept.write_text(json.dumps({"command": Figure1(device="cpu").quick().command}))
        assert pointdep(*common).code == 130  # the same run: it went on
        for other in (json.dumps({"command": "pointdep reproduce figure1"}), "{}", "no JSON"):
            kept.write_text(other)
            outcome = pointdep(*common)
            assert outcome.code == 2
            assert "holds the results of another run" in outcome.err
        kept.rename(tmp_path / "results.json")  # as another command calls its own
        assert "holds the results of another run" in pointdep(*common).err
        assert len(asked) == 1

    def test_how_long_it_takes_on_a_cpu(self, pointdep, asked):
        common = ("reproduce", "figure1", "--device", "cpu")
        assert pointdep(*common).err == MEASURING + (
            "on this CPU about 9 h 20 min for 20,000 iterations of 20 networks; with --quick about "
            "2 h 20 min\n" + STOPPED
        )
        assert pointdep(*common, "--quick").err == MEASURING + (
            "on this CPU about 2 h 20 min for 5,000 iterations of 20 networks\n" + STOPPED
        )
        assert pointdep(*common, "--iterations", 30, "--tasks", "cubic").err == MEASURING + (
            "on this CPU about 50 s for 30 iterations of 10 networks\n" + STOPPED
        )
        assert pointdep(*common, "--quiet").err == STOPPED

    def test_a_real_one(self, pointdep, folder, check_json):
        outcome = pointdep("reproduce", "figure1", *TINY_FIGURE, "-o", "out")
        assert outcome.code == 0, outcome.err
        assert "iterations of 4 networks" in outcome.err
        assert outcome.out.startswith("gaussian, bias / sd")
        assert outcome.out.endswith("written: out\n")
        content = json.loads((folder / "out" / "figure1.json").read_text())
        again = content["command"].split()[1:]
        repeated = pointdep(*again, "--quiet", "--json", "-o", "again").json()
        check_json("reproduce figure1", repeated)
        assert repeated["summary"] == content["summary"]
        assert repeated["output"] == "again"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--methods", "pcc"), "unknown method 'pcc': did you mean 'pc'"),
            (("--tasks", "cubical"), "unknown task 'cubical': did you mean 'cubic'"),
            (("--critic", "conct"), "unknown critic 'conct': did you mean 'concat'"),
            (("--precision", "float23"), "unknown precision 'float23': did you mean 'float32'"),
            (("--hidden", "wide"), "--hidden 'wide' must be whole numbers, as 64,64"),
            (("--hidden", "16,0"), "--hidden=0 must be at least 1"),
            (("--iterations", "3"), "iterations=3 must be at least 20"),
            (("--batch-size", "1"), "batch_size=1 must be at least 2"),
            (("--seeds", "0"), "seeds=0 must be at least 1"),
            (("--seed", "-1"), "--seed -1 must lie between"),
            (("--device", "gpu"), "unknown device 'gpu'"),
            (("--method", "pc"), r"--methods.*see pointdep reproduce figure1 --help"),
            (("-o", "x.npy"), "x.npy is a file"),
            (("-o", "a/b"), "the folder above it does not exist"),
        ],
    )
    def test_refused(self, refused, arguments, message):
        refused(message, "reproduce", "figure1", *arguments)


class TestTheorem1:
    def test_printed_and_written(self, pointdep, folder, short):
        outcome = pointdep("reproduce", "theorem1", *TINY_THEOREM)
        assert outcome.code == 0, outcome.err
        assert outcome.err == ""
        lines = outcome.out.splitlines()
        assert max(map(len, lines)) <= 100
        assert [line.split()[:2] for line in lines[1:5]] == [
            *(["pc", "60"], ["pc", "90"], ["drf", "60"], ["drf", "90"])
        ]
        assert "pc: the held-out RMSE falls like n^" in outcome.out
        assert lines[-1] == "written: theorem1"
        assert (folder / "theorem1" / "figure.png").exists()

    def test_json_and_the_command_that_is_kept(self, pointdep, folder, short, check_json):
        words = ("--methods", "pc", "--critic", "separable", "--mi", 1 / 3, "--json", "-o", "out")
        content = pointdep("reproduce", "theorem1", *TINY_THEOREM, *words).json()
        check_json("reproduce theorem1", content)
        assert (content["methods"], content["rows"], content["mi"]) == (["pc"], [60, 90], 1 / 3)
        kept = json.loads((folder / "out" / "results.json").read_text())
        again = pointdep(*kept["command"].split()[1:], "--json", "--quiet").json()
        assert again["summary"] == content["summary"] == kept["summary"]

    def test_options_and_quick(self, pointdep, asked):
        pointdep("reproduce", "theorem1", "--device", "cpu")
        pointdep("reproduce", "theorem1", "--device", "cpu", "--quick", "--seeds", 3, "--dim", 4)
        words = ("--methods", "dm1", "--rows", "90,70", "--folds", 3, "--activation", "relu")
        pointdep("reproduce", "theorem1", "--device", "cpu", *words, "--seed", 5)
        quick = Theorem1(device="cpu").quick()
        assert asked == [
            Theorem1(device="cpu"),
            Theorem1(**{**vars(quick), "seeds": 3, "dim": 4}),
            Theorem1(
                methods=("dm1",), rows=(70, 90), folds=3, activation="relu", seed=5, device="cpu"
            ),
        ]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--methods", "drff"), "unknown method 'drff': did you mean 'drf'"),
            (("--methods", "cpc"), "'cpc' infers something else than the mean of PMI"),
            (("--rows", "1e3"), "--rows '1e3' must be whole numbers"),
            (("--rows", "100"), "at least two"),
            (("--critic", "auto"), "unknown critic 'auto'"),
            (("--activation", "silly"), "unknown activation 'silly': did you mean 'silu'"),
            (("--mi", "-1"), "mi=-1.0 must be a positive number"),
            (("--hidden", "0"), "--hidden=0 must be at least 1"),
            (("--folds", "1"), "folds=1 must be at least 2"),
            (("--device", "gpu"), "unknown device 'gpu'"),
            (("--fold", "3"), r"--folds.*see pointdep reproduce theorem1 --help"),
            (("-o", "x.npy"), "x.npy is a file"),
        ],
    )
    def test_refused(self, refused, arguments, message):
        refused(message, "reproduce", "theorem1", *arguments)


@pytest.fixture
def words(folder):
    """words.npz, and the same as audio.vec and text.vec: 130 words, sixty-fourths as numbers."""
    random = np.random.default_rng(0)
    audio = np.round(64 * random.normal(size=(130, 3))) / 64
    text = np.round(64 * (audio[:, :2] + 0.3 * random.normal(size=(130, 2)))) / 64
    names = [f"w{row}{'ly' if row % 3 else 's'}" for row in range(130)]
    np.savez("words.npz", words=np.array(names), audio=audio, text=text)
    for file, side in (("audio.vec", audio), ("text.vec", text)):
        lines = [f"130 {side.shape[1]}"]
        for name, row in zip(names, side, strict=True):
            lines.append(f"{name} {' '.join(map(str, row))}")
        (folder / file).write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("words")
class TestWords:
    """`table2` and `figure3`, which share their options."""

    @pytest.mark.parametrize(
        ("command", "settings", "said"),
        [("table2", Table2, "337 s for 3"), ("figure3", Figure3, "33 s for 6")],
    )
    def test_without_options_it_is_the_papers(self, pointdep, asked, command, settings, said):
        """But for the batches: of 130 words none has 512."""
        common = ("reproduce", command, "--data", "words.npz", "--device", "cpu")
        outcome = pointdep(*common, "--batch-size", 32)
        files = ("--data", "words.npz")
        assert asked == [settings(files=files, batch_size=32, device="cpu")]
        assert (outcome.code, outcome.out) == (130, "")
        assert outcome.err == f"on this CPU about {said} networks\n{STOPPED}"
        assert pointdep(*common, "--batch-size", 32, "--quiet").err == STOPPED

    @pytest.mark.parametrize(
        ("command", "settings", "own"),
        [
            ("table2", Table2, {"methods": ("drf", "js"), "draws": 4}),
            ("figure3", Figure3, {"folds": 3}),
        ],
    )
    def test_options(self, pointdep, asked, command, settings, own):
        given = {
            "test_words": 30,
            "batch_size": 8,
            "epochs": 7,
            "hidden": (9, 8),
            "embedding_dim": 5,
            "learning_rate": 0.25,
            "seed": 3,
            "device": "cpu",
            **own,
        }
        options = []
        for name, value in given.items():
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            options += [f"--{name.replace('_', '-')}", text]
        files = ("--audio", "audio.vec", "--text", "text.vec")
        pointdep("reproduce", command, *files, *options, "--quiet")
        assert asked == [settings(files=files, **given)]
        pointdep(*shlex.split(asked[0].command)[1:], "--quiet")
        assert asked[1] == asked[0]
        pointdep("reproduce", command, *files, "--quick", "--batch-size", 20, "--quiet")
        assert asked[2] == settings(**{**vars(settings(files=files).quick()), "batch_size": 20})

    def test_table2(self, pointdep, folder, check_json):
        vectors = ("--audio", "audio.vec", "--text", "text.vec")
        outcome = pointdep("reproduce", "table2", *vectors, *TINY_WORDS, "--draws", 2)
        assert outcome.code == 0, outcome.err
        assert "s for 3 networks" in outcome.err
        assert outcome.out.startswith("This is not the paper's experiment")
        assert "\n\nmethod " in outcome.out
        assert "the verdicts are about this run alone" in outcome.out
        assert outcome.out.endswith("written: table2\n")
        kept = json.loads((folder / "table2" / "results.json").read_text())
        data = ("--data", "words.npz", "--quiet", "--json", "-o", "again")
        repeated = pointdep("reproduce", "table2", *data, *TINY_WORDS, "--draws", 2).json()
        check_json("reproduce table2", repeated)
        assert repeated["matching"] == kept["matching"]
        assert repeated["output"] == "again"

    def test_figure3(self, pointdep, folder, check_json):
        data = ("--data", "words.npz", "--folds", 2)
        outcome = pointdep("reproduce", "figure3", *data, *TINY_WORDS)
        assert outcome.code == 0, outcome.err
        assert "s for 3 networks" in outcome.err
        assert outcome.out.startswith("This is not the paper's experiment")
        assert "\n\nPMI, nats " in outcome.out
        assert outcome.out.endswith("written: figure3\n")
        kept = json.loads((folder / "figure3" / "results.json").read_text())
        again = shlex.split(kept["command"])[1:]
        repeated = pointdep(*again, "--quiet", "--json").json()  # into the same folder
        check_json("reproduce figure3", repeated)
        assert repeated["pmi"] == kept["pmi"]

    @pytest.mark.parametrize("command", ["table2", "figure3"])
    def test_results_of_another_run_are_not_overwritten(self, refused, folder, command):
        (folder / "kept").mkdir()
        (folder / "kept" / "results.json").write_text('{"command": "pointdep reproduce other"}')
        options = ("--data", "words.npz", *TINY_WORDS, "-o", "kept")
        refused("kept holds the results of another run", "reproduce", command, *options)

    @pytest.mark.parametrize("command", ["table2", "figure3"])
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "give --audio FILE.vec and --text FILE.vec, or --data"),
            (("--audio", "audio.vec"), "give --audio FILE.vec and --text FILE.vec, or --data"),
            (("--data", "words.npz", "--text", "text.vec"), "--data stands alone"),
            (("--data", "x.npz"), "x.npz does not exist"),
            (("--data", "words.npz"), "104 of 130 words would train, where batches of 512 need"),
            (("--data", "words.npz", "--test-words", 7), "test_words=7 must be at least 21"),
            (("--data", "words.npz", "--epochs", 0), "epochs=0 must be at least 1"),
            (("--data", "words.npz", "--hidden", "wide"), "--hidden 'wide' must be whole numbers"),
            (("--data", "words.npz", "--device", "gpu"), "unknown device 'gpu'"),
            (("--data", "words.npz", "--batch-size", 8, "-o", "x.npy"), "x.npy is a file"),
            (("--date", "words.npz"), r"--data.*see pointdep reproduce"),
        ],
    )
    def test_refused(self, refused, command, arguments, message):
        refused(message, "reproduce", command, *arguments)

    def test_words_that_do_not_agree(self, refused, folder):
        lines = (folder / "text.vec").read_text().splitlines()
        lines[5], lines[6] = lines[6], lines[5]
        (folder / "text.vec").write_text("\n".join(lines) + "\n")
        files = ("--audio", "audio.vec", "--text", "text.vec")
        refused(
            "line 6 is 'w4ly' in audio.vec and 'w5ly' in text.vec", "reproduce", "table2", *files
        )

    def test_large_files_are_announced(self, pointdep, asked, monkeypatch):
        monkeypatch.setattr(reproduce, "_LARGE", 100)
        files = ("--audio", "audio.vec", "--text", "text.vec", "--batch-size", 16)
        common = ("reproduce", "figure3", *files, "--device", "cpu")
        assert pointdep(*common).err.startswith("reading audio.vec and text.vec ...\n")
        assert pointdep(*common, "--quiet").err == STOPPED

    def test_only_for_one_of_them(self, refused):
        data = ("--data", "words.npz")
        refused("unknown method 'pcc'", "reproduce", "table2", *data, "--methods", "pcc")
        refused("'cpc' needs more than the pair", "reproduce", "table2", *data, "--methods", "cpc")
        refused("draws=1 must be at least 2", "reproduce", "table2", *data, "--draws", 1)
        refused("folds=1 must be at least 2", "reproduce", "figure3", *data, "--folds", 1)


def test_what_cannot_be_reproduced(refused):
    refused("No such command 'figur1'.*figure1.*see pointdep reproduce", "reproduce", "figur1")
