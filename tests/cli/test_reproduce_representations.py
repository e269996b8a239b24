"""`pointdep reproduce figure2` and `simclr`: options, output, merging, and what is refused."""

import json
import re
from dataclasses import replace

import pytest

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, PRECISIONS
from pointdep.experiments import encoder_pd
from pointdep.experiments import pretraining_runs as representations
from pointdep.experiments.representations import PARTS, Experiment

COMMON = "--dataset digits --device cpu --quiet --limit 64"
SHALLOW = f"reproduce figure2 {COMMON} --seeds 2 --iterations 6 --evaluate-every 3 --width 8"
SHALLOW += " --depth 2 --batch-size 16"
SIMCLR = f"reproduce simclr {COMMON} --seeds 1 --epochs 1 --evaluate-every 1 --width 4"
SIMCLR += " --batch-size 32"
DEEP = f"reproduce figure2 --part deep {COMMON} --epochs 1 --width 4 --depth 1 --batch-size 32"
DEEP += " --objectives pcc,drfc"
KEPT = "finished runs are kept, and the same command goes on from where training was\n"


@pytest.fixture
def asked(monkeypatch):
    """The experiments that were to be run; Ctrl-C comes before that begins."""
    found = []

    def stop(settings, folder, load, **how):
        found.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(representations, "run_experiment", stop)
    return found


@pytest.fixture
def quick_audit(monkeypatch):
    answer = {"rows": 64, "flipped": 3, "precision": 0.5, "auroc": 0.7, "suspects": 2}
    answer["right_suspects"] = 1
    monkeypatch.setattr(encoder_pd, "ask_labels", lambda *arguments, **options: answer)


@pytest.mark.parametrize("command", ["figure2", "simclr"])
def test_names_and_numbers_in_help_are_those_there_are(pointdep, command):
    text = " ".join(pointdep("reproduce", command, "--help").out.split())
    assert all(name in text for name in (*OBJECTIVES, *PRECISIONS))
    shallow, deep, simclr = PARTS.values()
    if command == "figure2":
        numbers = (shallow.length, deep.length, shallow.every, deep.every, shallow.runs)
    else:
        numbers = (simclr.length, simclr.every, simclr.runs)
        small = Experiment("simclr").quick()
        assert f"{small.limit:,} images, {small.length} epochs, one seed" in text
        assert f"width {small.width}" in text
    assert all(re.search(rf"\b{number}\b", text) for number in numbers)


class TestOptions:
    def test_without_options_it_is_the_paper_s_and_options_win_over_quick(self, pointdep, asked):
        small, simclr = Experiment("shallow").quick(), Experiment("simclr").quick()
        for words, expected in (
            ("figure2", Experiment("shallow")),
            ("figure2 --dataset cifar10", Experiment("shallow", "cifar10")),
            ("figure2 --part deep", Experiment("deep")),
            ("simclr", Experiment("simclr")),
            ("figure2 --quick --iterations 9 --width 3", replace(small, length=9, width=3)),
            ("simclr --quick --seeds 2", replace(simclr, seeds=2)),
        ):
            outcome = pointdep("reproduce", words, "--device cpu")
            assert asked.pop() == expected
            assert (outcome.code, outcome.out) == (130, "")
            assert outcome.err == f"pointdep: interrupted; {KEPT}"

    @pytest.mark.parametrize(
        "experiment",
        [
            Experiment("shallow", "cifar10", ("dm1", "rpc"), 3, 5, 70, 7, 2.5, 16, 0.5, 9, 4,
                       "bf16", 6, {"dm1": {"lam": 2}}, 77),
            Experiment("deep", minutes=1.5, loss={"drfc": {"alpha": 0.1}}).quick(),
            Experiment("simclr", length=9, loss={"drfc": {"scale": 12}, "cpc": {"clip": 0.2}}),
        ],
        ids=PARTS,
    )  # fmt: skip
    def test_the_command_asks_for_the_same(self, pointdep, asked, experiment):
        assert experiment.command.startswith("pointdep ")
        pointdep(experiment.command.removeprefix("pointdep "), "--device cpu")
        assert asked == [experiment]


class TestFigure2:
    def test_printed_and_written(self, pointdep, folder):
        outcome = pointdep(SHALLOW)
        assert (outcome.code, outcome.err) == (0, "")
        lines = outcome.out.splitlines()
        assert max(map(len, lines)) <= 100
        heads = ["objective", "CPC", "PCC", "D-RFC", "pixels"]
        assert [line.split()[0] for line in lines[:5]] == heads
        assert "Not as in the paper: 8 x 8 digits of scikit-learn" in " ".join(lines)
        assert lines[-1] == "written: figure2-shallow-digits"
        written = {"curves.csv", "figure.png", "figure.svg", "pixels.json", "report.md", "runs"}
        written |= {"results.json", "summary.csv"}
        assert {path.name for path in (folder / "figure2-shallow-digits").iterdir()} == written

    def test_json_of_merged_and_deep(self, pointdep, refused, folder, check_json):
        one = pointdep(SHALLOW, "-o out --json").json()
        check_json("reproduce figure2", one)
        assert [line["runs"] for line in one["summary"]] == [2, 2, 2]
        two = pointdep(SHALLOW, "--objectives dm1,cpc -o out --json").json()
        check_json("reproduce figure2", two)
        assert [run["name"] for run in two["runs"]] == ["cpc+pcc+drfc-0-1", "dm1-0-1"]
        assert [line["objective"] for line in two["summary"]] == ["cpc", "pcc", "drfc", "dm1"]
        assert two["summary"][:3] == one["summary"]
        assert (folder / "out" / "curves.csv").read_text().count("\n") == 1 + 8 * 2
        merged = pointdep(SHALLOW, "--data nowhere --merge -o out --json").json()
        assert merged["summary"] == two["summary"]
        (folder / "out" / "pixels.json").unlink()
        refused("out/pixels.json is not there", SHALLOW, "--merge -o out")
        refused("was run with other iterations", SHALLOW, "--iterations 7 -o out")
        refused("holds the results of shallow digits", DEEP, "-o out")
        found = pointdep(DEEP, "-o deep --json").json()
        check_json("reproduce figure2", found)
        assert [line["objective"] for line in found["summary"]] == ["pcc", "drfc"]
        assert found["pixels"]["of"] == "whole image"
        assert {claim["key"]: claim["verdict"] for claim in found["claims"]}["a"] == "cannot tell"


class TestSimclr:
    def test_json_and_printed_without_the_pd_model(self, pointdep, folder, check_json, quick_audit):
        found = pointdep(SIMCLR, "--objectives cpc,drfc -o out --json").json()
        check_json("reproduce simclr", found)
        assert [run["name"] for run in found["runs"]] == ["cpc-0", "drfc-0"]
        assert [answers["of"] for answers in found["pd_model"]] == ["drfc-0", "cpc-0", "pixels"]
        assert found["pd_model"][0]["views"]["retrieval"]["candidates"] == 64
        page = (folder / "out" / "report.md").read_text()
        assert "## The encoder as a PD model" in page
        assert "\n| drfc-0 |" in page
        words = "--objectives drfc --loss-option drfc.scale=3 --pd-rows 0 -o plain"
        outcome = pointdep(SIMCLR, words)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("objective")
        assert "PMI of two views" not in outcome.out
        about = json.loads((folder / "plain" / "runs" / "drfc-0" / "run.json").read_text())
        assert about["settings"]["loss"] == {"scale": 3}


def test_refused(refused):
    for message, arguments in (
        ("unknown part 'simclr'", "--part simclr"),
        ("deep experiment is counted in epochs", "--part deep --iterations 5"),
        ("shallow experiment is counted in iterations: give --iterations", "--epochs 5"),
        ("unknown set of images 'mnst': did you mean 'mnist'", "--dataset mnst"),
        ("must say whose it is, as drfc.scale=10", "--loss-option alpha=1"),
        ("unknown device 'gpu'", "--device gpu"),
        ("found no MNIST in nowhere", "--data nowhere"),
        ("x.npy is a file", "--dataset digits -o x.npy"),
        ("the folder above it does not exist", "--dataset digits -o a/b"),
    ):
        refused(message, "reproduce figure2 --quiet", arguments)
    for message, option in (  # of a loss, before anything is read
        ("cpc has no options with shallow, got 'alpha'", "cpc.alpha=0.5"),
        ("dm1 has options but is not run: name it in --objectives", "dm1.lam=2"),
        ("'clip': choose from alpha", "drfc.clip=0.5 --part deep"),
    ):
        refused(message, "reproduce figure2 --quiet --data nowhere --loss-option", option)
    refused("unknown option|No such option", "reproduce simclr --iterations 5")
    refused("of the loss drfc 'temperature'", SIMCLR, "--loss-option drfc.temperature=1")
    refused("out/runs has no finished run to merge", SHALLOW, "--merge -o out")
