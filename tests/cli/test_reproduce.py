"""`pointdep reproduce`: what the options do, what is printed, and what is refused."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pointdep.cli import reproduce
from pointdep.core.critics import ACTIVATIONS
from pointdep.core.methods import PAPER_METHODS
from pointdep.experiments import figure1, figure3, table2, theorem1, words
from pointdep.experiments.figure1 import CRITICS, PRECISIONS, TASKS, Figure1
from pointdep.experiments.figure3 import Figure3
from pointdep.experiments.table2 import Table2
from pointdep.experiments.theorem1 import CRITICS as THEOREM_CRITICS
from pointdep.experiments.theorem1 import Theorem1
from pointdep.fitting.batches import TrainingOptions

TINY_FIGURE = "--methods cpc,pc --dim 2 --batch-size 4 --iterations 20 --hidden 4 --device cpu"
TINY_WORDS = "--batch-size 16 --epochs 2 --hidden 8 --embedding-dim 4 --device cpu"
TINY_THEOREM = "--rows 60,90 --dim 2 --hidden 4 --seeds 2 --device cpu --quiet"
VECTORS = ("--audio", "audio.vec", "--text", "text.vec")
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

    monkeypatch.setattr(figure1, "run_figure1", stop)
    monkeypatch.setattr(theorem1, "run_theorem1", stop)
    monkeypatch.setattr(table2, "run_table2", stop_words)
    monkeypatch.setattr(figure3, "run_figure3", stop_words)
    seconds = {Table2: 337.2, Figure3: 33.0}
    monkeypatch.setattr(words, "expected_seconds", lambda asked, _: seconds[type(asked)])
    monkeypatch.setattr(figure1, "expected_seconds", lambda asked: 1.68 * asked.iterations)
    return found


def as_words(options):
    """Options as words of a command line."""
    words = []
    for name, value in options.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else value
        words.append(f"--{name.replace('_', '-')} {text}")
    return " ".join(words)


class TestHelp:
    def test_is_quick(self):
        heavy = "torch", "numpy", "scipy", "pandas", "matplotlib"
        commands = [["bench"], ["reproduce"]]
        commands += [["reproduce", one.__name__] for one in reproduce.COMMANDS]
        code = "import sys\nfrom pointdep.cli.app import run\n"
        code += f"for words in {commands!r}:\n    assert run([*words, '--help']) == 0, words\n"
        code += f"    assert not set({heavy!r}) & set(sys.modules), words"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    @pytest.mark.parametrize("settings", [Figure1(), Theorem1(), Table2(), Figure3()])
    def test_the_defaults_in_it_are_the_settings(self, pointdep, settings):
        command = type(settings).__name__.lower()
        text = " ".join(pointdep("reproduce", command, "--help").out.split())
        shown = dict(re.findall(r"--([a-z-]+) <?\w+>? (?:(?! --).)*?\[default: \(?([^)\]]+)", text))
        assert len(shown) >= 10
        assert shown.pop("output") == command
        if command == "figure1":
            assert shown.pop("methods") == "the ten of the paper"
            assert settings.methods == PAPER_METHODS
        if "test-words" in shown:
            assert shown.pop("test-words") == "5000, at most a fifth"
            assert [settings.split_sizes(n)[1] for n in (37_622, 20_000)] == [5000, 4000]
        for option, default in shown.items():
            value = getattr(settings, option.replace("-", "_"))
            said = ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
            assert default.replace(" ", "") == said.removesuffix(".0"), option

    def test_the_names_and_numbers_in_it_are_those_there_are(self, pointdep):
        text = {
            name: " ".join(pointdep("reproduce", name, "--help").out.split())
            for name in ("figure1", "theorem1", "table2", "figure3")
        }
        assert all(name in text["figure1"] for name in (*TASKS, *CRITICS, *PRECISIONS))
        assert all(name in text["theorem1"] for name in (*THEOREM_CRITICS, *ACTIVATIONS))
        quick, fewer, small = Figure1().quick(), Table2().quick(), Theorem1().quick()
        said = f"{quick.iterations:,} iterations on batches of {quick.batch_size}, layers 64,64"
        assert said in text["figure1"]
        assert f"{small.rows[-1]:,} rows, {small.seeds} seeds, layers 32,32" in text["theorem1"]
        said = f"{fewer.epochs} epochs on batches of {fewer.batch_size}, layers 128,128"
        assert said in text["table2"]
        assert said in text["figure3"]
        assert (quick.hidden, small.hidden, fewer.hidden) == ((64, 64), (32, 32), (128, 128))


def test_table1(pointdep, refused, folder, check_json):
    outcome = pointdep("reproduce table1 -o table1.md")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count("  learning  ") == outcome.out.count("  inference  ") == 10
    assert outcome.out.endswith("\n\nwritten: table1.md\n")
    assert (folder / "table1.md").read_text("utf-8").count("\n| `") == 10
    for place, output in (("", None), ("-o table1.md", "table1.md")):
        content = pointdep("reproduce table1 --json", place).json()
        check_json("reproduce table1", content)
        assert [row["key"] for row in content["rows"]] == list(PAPER_METHODS)
        assert content["output"] == output
    (folder / "place").mkdir()
    refused("place is a folder", "reproduce table1 -o place")
    refused("the folder no does not exist", "reproduce table1 -o no/table1.md")


class TestSettings:
    """What Figure 1 and Theorem 1 would run."""

    @pytest.mark.parametrize(
        "settings",
        [
            Figure1(),
            Figure1(("cpc", "pc"), ("cubic",), iterations=50, dim=3, batch_size=8, hidden=(16, 8),
                    critic="separable", learning_rate=0.1 + 0.2, seeds=2, seed=7,
                    precision="float64"),
            Theorem1(),
            Theorem1(("dm1",), (70, 90), 4, 1 / 3, "separable", (9, 7), "silu", 3, 6, 5),
        ],
    )  # fmt: skip
    def test_options_and_the_command_that_is_kept(self, pointdep, asked, settings):
        settings, name = replace(settings, device="cpu"), type(settings).__name__.lower()
        given = {k: v for k, v in vars(settings).items() if k not in ("levels", "embedding_dim")}
        pointdep("reproduce", name, "--quiet", as_words(given))
        pointdep(settings.command.removeprefix("pointdep "), "--quiet")
        assert asked == [settings, settings]

    def test_without_options_it_is_the_papers_and_how_long_it_takes(self, pointdep, asked):
        outcome = pointdep("reproduce figure1 --quiet --device cpu")
        assert (outcome.code, outcome.out, outcome.err) == (130, "", STOPPED)
        pointdep("reproduce theorem1 --device cpu")
        assert asked == [Figure1(device="cpu"), Theorem1(device="cpu")]
        # What is given wins over --quick.
        for settings, given in (
            (Figure1, {}),
            (Figure1, {"iterations": 100, "tasks": ("gaussian",)}),
            (Theorem1, {"seeds": 3, "dim": 4}),
        ):
            name = settings.__name__.lower()
            pointdep("reproduce", name, "--quick --quiet --device cpu", as_words(given))
            assert asked.pop() == replace(settings(device="cpu").quick(), **given)
        for more, said in (
            ("", "9 h 20 min for 20,000 iterations of 20 networks; with --quick about 2 h 20 min"),
            ("--quick", "2 h 20 min for 5,000 iterations of 20 networks"),
            ("--iterations 30 --tasks cubic", "50 s for 30 iterations of 10 networks"),
        ):
            told = f"{MEASURING}on this CPU about {said}\n{STOPPED}"
            assert pointdep("reproduce figure1 --device cpu", more).err == told

    def test_results_of_another_run_are_not_overwritten(self, pointdep, asked, tmp_path):
        common = ("reproduce figure1 --quick --quiet --device cpu -o", tmp_path)
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

    def test_refused(self, refused):
        for arguments, message in (
            ("figure1 --methods pcc", "unknown method 'pcc': did you mean 'pc'"),
            ("figure1 --hidden wide", "--hidden 'wide' must be whole numbers"),
            ("figure1 --hidden 16,0", "--hidden=0 must be at least 1"),
            ("figure1 --iterations 3", "iterations=3 must be at least 20"),
            ("figure1 --seed -1", "--seed -1 must lie between"),
            ("figure1 --device gpu", "unknown device 'gpu'"),
            ("figure1 --method pc", r"--methods.*see pointdep reproduce figure1 --help"),
            ("figure1 -o x.npy", "x.npy is a file"),
            ("figure1 -o a/b", "the folder above it does not exist"),
            ("theorem1 --methods cpc", "'cpc' infers something else"),
            ("theorem1 --rows 1e3", "--rows '1e3' must be whole numbers"),
            ("figur1", "No such command 'figur1'.*figure1.*see pointdep reproduce"),
        ):
            refused(message, "reproduce", arguments)


def test_figure1(pointdep, folder, check_json):
    outcome = pointdep("reproduce figure1 -o out", TINY_FIGURE)
    assert outcome.code == 0, outcome.err
    assert "iterations of 4 networks" in outcome.err
    assert outcome.out.startswith("gaussian, bias / sd")
    assert outcome.out.endswith("written: out\n")
    content = json.loads((folder / "out" / "figure1.json").read_text())
    again = content["command"].removeprefix("pointdep ")
    repeated = pointdep(again, "--quiet --json -o again").json()
    check_json("reproduce figure1", repeated)
    assert (repeated["summary"], repeated["output"]) == (content["summary"], "again")


def test_theorem1(pointdep, folder, check_json, monkeypatch):
    """Networks train for three epochs."""
    monkeypatch.setattr(theorem1, "TrainingOptions", partial(TrainingOptions, max_epochs=3))
    outcome = pointdep("reproduce theorem1", TINY_THEOREM)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 100
    first = [["pc", "60"], ["pc", "90"], ["drf", "60"], ["drf", "90"]]
    assert [line.split()[:2] for line in lines[1:5]] == first
    assert "pc: the held-out RMSE falls like n^" in outcome.out
    assert lines[-1] == "written: theorem1"
    assert (folder / "theorem1" / "figure.png").exists()
    options = f"--methods pc --critic separable --mi {1 / 3} --json -o out"
    content = pointdep("reproduce theorem1", TINY_THEOREM, options).json()
    check_json("reproduce theorem1", content)
    assert (content["methods"], content["rows"], content["mi"]) == (["pc"], [60, 90], 1 / 3)
    kept = json.loads((folder / "out" / "results.json").read_text())
    again = pointdep(kept["command"].removeprefix("pointdep "), "--json --quiet -o again").json()
    assert again["summary"] == content["summary"] == kept["summary"]


@pytest.fixture
def vectors(folder):
    """words.npz, and the same as audio.vec and text.vec: 130 words, sixty-fourths as numbers."""
    random = np.random.default_rng(0)
    audio = np.round(64 * random.normal(size=(130, 3))) / 64
    text = np.round(64 * (audio[:, :2] + 0.3 * random.normal(size=(130, 2)))) / 64
    names = [f"w{row}{'ly' if row % 3 else 's'}" for row in range(130)]
    np.savez("words.npz", words=np.array(names), audio=audio, text=text)
    for file, side in (("audio.vec", audio), ("text.vec", text)):
        rows = zip(names, side, strict=True)
        lines = [f"{name} {' '.join(map(str, row))}\n" for name, row in rows]
        (folder / file).write_text(f"130 {side.shape[1]}\n" + "".join(lines))


@pytest.mark.usefixtures("vectors")
class TestWords:
    """`table2` and `figure3`, which share their options."""

    @pytest.mark.parametrize(
        ("settings", "said"), [(Table2, "337 s for 3"), (Figure3, "33 s for 6")]
    )
    def test_without_options_it_is_the_papers(self, pointdep, asked, settings, said):
        """But for the batches: of 130 words none has 512."""
        name, files = settings.__name__.lower(), ("--data", "words.npz")
        command = ("reproduce", name, *files, "--device cpu --batch-size 32")
        outcome = pointdep(*command)
        assert asked == [settings(files=files, batch_size=32, device="cpu")]
        assert (outcome.code, outcome.out) == (130, "")
        assert outcome.err == f"on this CPU about {said} networks\n{STOPPED}"
        assert pointdep(*command, "--quiet").err == STOPPED

    @pytest.mark.parametrize(
        ("settings", "own"),
        [(Table2, {"methods": ("drf", "js"), "draws": 4}), (Figure3, {"folds": 3})],
    )
    def test_options(self, pointdep, asked, settings, own):
        given = {"test_words": 30, "batch_size": 8, "epochs": 7, "hidden": (9, 8), **own}
        given |= {"embedding_dim": 5, "learning_rate": 0.25, "seed": 3, "device": "cpu"}
        command = ("reproduce", settings.__name__.lower(), *VECTORS, "--quiet")
        pointdep(*command, as_words(given))
        assert asked == [settings(files=VECTORS, **given)]
        pointdep(asked[0].command.removeprefix("pointdep "), "--quiet")
        assert asked[1] == asked[0]
        pointdep(*command, "--quick --batch-size 20")
        assert asked[2] == settings(**{**vars(settings(files=VECTORS).quick()), "batch_size": 20})

    @pytest.mark.parametrize(
        ("command", "own", "head", "numbers"),
        [
            ("table2", "--draws 2", "method ", "matching"),
            ("figure3", "--folds 2", "PMI, nats ", "pmi"),
        ],
    )
    def test_whole(self, pointdep, folder, check_json, command, own, head, numbers):
        outcome = pointdep("reproduce", command, *VECTORS, TINY_WORDS, own)
        assert outcome.code == 0, outcome.err
        assert "s for 3 networks" in outcome.err
        assert outcome.out.startswith("This is not the paper's experiment")
        assert f"\n\n{head}" in outcome.out
        assert "the verdicts are about this run alone" in outcome.out
        assert outcome.out.endswith(f"written: {command}\n")
        kept = json.loads((folder / command / "results.json").read_text())
        again = kept["command"].removeprefix("pointdep ")
        data = f"reproduce {command} --data words.npz {TINY_WORDS} {own} -o again"
        for line, place in ((again, command), (data, "again")):
            repeated = pointdep(line, "--quiet --json").json()
            check_json(f"reproduce {command}", repeated)
            assert (repeated[numbers], repeated["output"]) == (kept[numbers], place)

    @pytest.mark.parametrize("command", ["table2", "figure3"])
    def test_refused(self, refused, command):
        for arguments, message in (
            ("", "--audio FILE.vec and --text FILE.vec, or --data"),
            ("--audio audio.vec", "--audio FILE.vec and --text FILE.vec, or --data"),
            ("--data words.npz --text text.vec", "--data stands alone"),
            ("--data words.npz", "104 of 130 words would train, where batches of 512 need"),
            ("--data words.npz --test-words 7", "test_words=7 must be at least 21"),
            ("--data words.npz --batch-size 8 -o x.npy", "x.npy is a file"),
            ("--date words.npz", r"--data.*see pointdep reproduce"),
        ):
            refused(message, "reproduce", command, arguments)

    def test_options_of_one_of_them_and_large_files(self, refused, pointdep, asked, monkeypatch):
        for message, arguments in (
            ("unknown method 'pcc'", "table2 --methods pcc"),
            ("'cpc' needs more than the pair", "table2 --methods cpc"),
            ("draws=1 must be at least 2", "table2 --draws 1"),
            ("folds=1 must be at least 2", "figure3 --folds 1"),
        ):
            refused(message, "reproduce", arguments, "--data words.npz")
        monkeypatch.setattr(reproduce, "_LARGE", 100)
        command = ("reproduce figure3 --batch-size 16 --device cpu", *VECTORS)
        assert pointdep(*command).err.startswith("reading audio.vec and text.vec ...\n")
        assert pointdep(*command, "--quiet").err == STOPPED
