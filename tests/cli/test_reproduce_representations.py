"""`pointdep reproduce figure2` and `simclr`: options, output, merging, and what is refused."""

import json
import re

import pytest

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, PRECISIONS
from pointdep.experiments import encoder_pd
from pointdep.experiments import pretraining_runs as representations
from pointdep.experiments.representations import PARTS, Experiment

COMMON = ("--device", "cpu", "--quiet", "--limit", 64)
SHALLOW = ("reproduce", "figure2", "--dataset", "digits", *COMMON, "--seeds", 2, "--iterations", 6,
           "--evaluate-every", 3, "--width", 8, "--depth", 2, "--batch-size", 16)  # fmt: skip
SIMCLR = ("reproduce", "simclr", "--dataset", "digits", *COMMON, "--seeds", 1, "--epochs", 1,
          "--evaluate-every", 1, "--width", 4, "--batch-size", 32)  # fmt: skip
DEEP = ("reproduce", "figure2", "--part", "deep", "--dataset", "digits", *COMMON, "--epochs", 1,
        "--width", 4, "--depth", 1, "--batch-size", 32, "--objectives", "pcc,drfc")  # fmt: skip
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
    def answer(features, images, device, progress):
        return {"rows": len(features), "flipped": 3, "precision": 0.5, "auroc": 0.7, "suspects": 2,
                "right_suspects": 1}  # fmt: skip

    monkeypatch.setattr(encoder_pd, "ask_labels", answer)


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
    def test_without_options_it_is_the_paper_s(self, pointdep, asked):
        for words, expected in (
            ((), Experiment("shallow")),
            (("--dataset", "cifar10"), Experiment("shallow", "cifar10")),
            (("--part", "deep"), Experiment("deep")),
        ):
            outcome = pointdep("reproduce", "figure2", *words, "--device", "cpu")
            assert asked.pop() == expected
            assert (outcome.code, outcome.out) == (130, "")
            assert outcome.err == f"pointdep: interrupted; {KEPT}"
        pointdep("reproduce", "simclr", "--device", "cpu")
        assert asked == [Experiment("simclr")]

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
        words = experiment.command.split()
        assert words[0] == "pointdep"
        pointdep(*words[1:], "--device", "cpu")
        assert asked == [experiment]

    def test_what_is_given_wins_over_quick(self, pointdep, asked):
        quick = ("--quick", "--device", "cpu")
        pointdep("reproduce", "figure2", *quick, "--iterations", 9, "--width", 3)
        pointdep("reproduce", "simclr", *quick, "--seeds", 2)
        small = Experiment("shallow").quick()
        assert asked[0] == Experiment(**{**vars(small), "length": 9, "width": 3})
        assert asked[1] == Experiment(**{**vars(Experiment("simclr").quick()), "seeds": 2})


class TestFigure2:
    def test_printed_and_written(self, pointdep, folder):
        outcome = pointdep(*SHALLOW)
        assert (outcome.code, outcome.err) == (0, "")
        lines = outcome.out.splitlines()
        assert max(map(len, lines)) <= 100
        assert [line.split()[0] for line in lines[:5]] == [
            "objective", "CPC", "PCC", "D-RFC", "pixels",
        ]  # fmt: skip
        assert "Not as in the paper: 8 x 8 digits of scikit-learn" in " ".join(lines)
        assert lines[-1] == "written: figure2-shallow-digits"
        place = folder / "figure2-shallow-digits"
        assert {path.name for path in place.iterdir()} == {
            "curves.csv", "figure.png", "figure.svg", "pixels.json", "report.md", "results.json",
            "runs", "summary.csv",
        }  # fmt: skip

    def test_json_of_commands_that_are_merged(self, pointdep, refused, folder, check_json):
        one = pointdep(*SHALLOW, "-o", "out", "--json").json()
        check_json("reproduce figure2", one)
        assert [line["runs"] for line in one["summary"]] == [2, 2, 2]
        two = pointdep(*SHALLOW, "--objectives", "dm1,cpc", "-o", "out", "--json").json()
        check_json("reproduce figure2", two)
        assert [run["name"] for run in two["runs"]] == ["cpc+pcc+drfc-0-1", "dm1-0-1"]
        assert [line["objective"] for line in two["summary"]] == ["cpc", "pcc", "drfc", "dm1"]
        assert two["summary"][:3] == one["summary"]
        assert (folder / "out" / "curves.csv").read_text().count("\n") == 1 + 8 * 2
        merged = pointdep(*SHALLOW, "--data", "nowhere", "--merge", "-o", "out", "--json").json()
        assert merged["summary"] == two["summary"]
        (folder / "out" / "pixels.json").unlink()
        refused("out/pixels.json is not there", *SHALLOW, "--merge", "-o", "out")
        refused("was run with other iterations", *SHALLOW, "--iterations", 7, "-o", "out")
        refused("holds the results of shallow digits", *DEEP, "-o", "out")

    def test_deep(self, pointdep, check_json):
        found = pointdep(*DEEP, "-o", "deep", "--json").json()
        check_json("reproduce figure2", found)
        assert [line["objective"] for line in found["summary"]] == ["pcc", "drfc"]
        assert found["pixels"]["of"] == "whole image"
        assert {claim["key"]: claim["verdict"] for claim in found["claims"]}["a"] == "cannot tell"


class TestSimclr:
    def test_json(self, pointdep, folder, check_json, quick_audit):
        found = pointdep(*SIMCLR, "--objectives", "cpc,drfc", "-o", "out", "--json").json()
        check_json("reproduce simclr", found)
        assert [run["name"] for run in found["runs"]] == ["cpc-0", "drfc-0"]
        assert [answers["of"] for answers in found["pd_model"]] == ["drfc-0", "cpc-0", "pixels"]
        assert found["pd_model"][0]["views"]["retrieval"]["candidates"] == 64
        page = (folder / "out" / "report.md").read_text()
        assert "## The encoder as a PD model" in page
        assert "\n| drfc-0 |" in page

    def test_printed_without_the_pd_model_and_the_options_of_a_loss(self, pointdep, folder):
        words = ("--objectives", "drfc", "--loss-option", "drfc.scale=3", "--pd-rows", 0)
        outcome = pointdep(*SIMCLR, *words, "-o", "out")
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("objective")
        assert "PMI of two views" not in outcome.out
        about = json.loads((folder / "out" / "runs" / "drfc-0" / "run.json").read_text())
        assert about["settings"]["loss"] == {"scale": 3}


class TestRefused:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--part", "simclr"), "unknown part 'simclr'"),
            (("--part", "deep", "--iterations", 5), "deep experiment is counted in epochs"),
            (("--epochs", 5), "shallow experiment is counted in iterations: give --iterations"),
            (("--dataset", "mnst"), "unknown set of images 'mnst': did you mean 'mnist'"),
            (("--loss-option", "alpha=1"), "must say whose it is, as drfc.scale=10"),
            (("--device", "gpu"), "unknown device 'gpu'"),
            (("--data", "nowhere"), "found no MNIST in nowhere"),
            (("--dataset", "digits", "-o", "x.npy"), "x.npy is a file"),
            (("--dataset", "digits", "-o", "a/b"), "the folder above it does not exist"),
        ],
    )
    def test_figure2(self, refused, arguments, message):
        refused(message, "reproduce", "figure2", *arguments, "--quiet")

    def test_simclr(self, refused):
        refused("unknown option|No such option", "reproduce", "simclr", "--iterations", 5)
        refused("of the loss drfc 'temperature'", *SIMCLR, "--loss-option", "drfc.temperature=1")

    def test_options_of_a_loss_before_anything_is_read(self, refused):
        """Of its own objective, and of one that is run."""
        absent = ("--data", "nowhere")
        figure2 = ("reproduce", "figure2", *absent, "--quiet", "--loss-option")
        refused("cpc has no options with shallow, got 'alpha'", *figure2, "cpc.alpha=0.5")
        refused("dm1 has options but is not run: name it in --objectives", *figure2, "dm1.lam=2")
        refused("'clip': choose from alpha", *figure2, "drfc.clip=0.5", "--part", "deep")

    def test_nothing_to_merge(self, refused):
        refused("out/runs has no finished run to merge", *SHALLOW, "--merge", "-o", "out")
