"""`pointdep fit`: the model it saves, where it saves it, and what an interruption leaves."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from pointdep import PointwiseDependency

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")

# The command with a SIGINT to itself at the end of epoch 2, after a checkpoint.
INTERRUPTED = """
import os, signal, sys
from pointdep.cli.app import run
from pointdep.fitting import engine

def save_and_interrupt(path, state, *rest):
    save(path, state, *rest)
    if state.epoch == 2:
        os.kill(os.getpid(), signal.SIGINT)

engine._CHECKPOINT_EVERY_S = 0
save, engine.save_state = engine.save_state, save_and_interrupt
sys.exit(run(sys.argv[1:]))
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_saved_model_is_the_one_reported(quick, like_quick, folder, pairs, check_json):
    content = quick("fit", "x.npy", "y.npy", "-o", "model/", "--json").json()
    check_json("fit", content)
    assert content["output"] == "model"
    assert names(folder / "model") == ["model.json", "weights.safetensors"]
    assert names(folder) == ["model", "x.npy", "y.npy"]
    expected = like_quick().fit(*pairs)
    model = PointwiseDependency.load("model")
    np.testing.assert_array_equal(model.oof_pmi_, expected.oof_pmi_)
    np.testing.assert_array_equal(model.pmi(*pairs), expected.pmi(*pairs))
    assert content["estimate"]["nats"] == expected.mutual_information().nats


def test_what_a_person_reads_and_an_older_model_is_replaced(quick):
    assert quick("fit", "x.npy", "y.npy", "-o", "model", "--method", "js").code == 0
    outcome = quick("fit", "x.npy", "y.npy", "-o", "model", "--method", "nwj")
    assert outcome.code == 0
    assert PointwiseDependency.load("model").method == "nwj"
    assert outcome.out.startswith("mutual information  ")
    assert outcome.out.endswith(
        "model saved in model; score other pairs with: pointdep score model ...\n"
    )


def test_places_where_no_model_goes(refused, folder):
    command = ("fit", "x.npy", "y.npy", "-o")
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("mine")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "model.json").write_text("{}")
    refused(r"Missing option '--output'", *command[:-1])
    refused(r"x\.npy is a file; a model is saved as a folder", *command, "x.npy")
    refused(r"full holds other files, such as notes\.txt", *command, "full")
    refused(r"foreign holds other files, such as model\.json", *command, "foreign")
    refused(r"nowhere does not exist: make it first", *command, "nowhere/model")
    refused(r"x\.npy is a file, not a folder", *command, "x.npy/model")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc here")  # noqa: PTH112
def test_a_place_that_cannot_be_written_is_found_before_the_fit(refused):
    # Permission bits would not stop root, but nobody can make a folder in /proc.
    refused("nothing can be written in /proc", "fit", "x.npy", "y.npy", "-o", "/proc/model")


def test_checkpoints_that_are_none(refused, folder):
    (folder / "state").write_bytes(b"something else")
    command = ("fit", "x.npy", "y.npy", "-o", "model", "--quiet", "--checkpoint")
    refused("'nowhere/state'.* folder does not exist", *command, "nowhere/state")
    refused(r"is a folder", *command, ".")
    refused("checkpoint state cannot be read", *command, "state")


def test_interrupted_and_resumed(quick, pointdep, folder):
    options = ["--hidden", "16", "--folds", "2", "--max-epochs", "3", "--quiet", "--json"]
    command = ["fit", "x.npy", "y.npy", "-o", "model", *options]
    resumable = [*command, "--checkpoint", "state"]
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *resumable], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 130
    assert ended.stdout == ""
    assert ended.stderr.startswith("pointdep: interrupted; training is kept in state: run the same")
    assert ended.stderr.count("\n") == 1
    assert names(folder) == ["state", "x.npy", "y.npy"]

    # What was saved is used: with other settings it is refused, and with the same it goes on.
    other = quick(*[*command, "--seed", "1"], "--checkpoint", "state")
    assert other.code == 2
    assert "belongs to a fit with random_state=0, not 1" in other.err
    loud = pointdep(*(option for option in resumable if option != "--quiet"))
    assert "going on from state, after epoch 2" in loud.err
    resumed = loud.json()
    assert names(folder) == ["model", "x.npy", "y.npy"]
    assert resumed == quick(*command).json()


def test_ctrl_c_while_fitting(folder):
    random = np.random.default_rng(0)
    np.save("x.npy", random.normal(size=(4_000, 10)))
    np.save("y.npy", np.load("x.npy") + random.normal(size=(4_000, 10)))
    command = [sys.executable, "-m", "pointdep", "fit", "x.npy", "y.npy", "-o", "model", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # The first line of progress says that it is at work.
        assert process.stderr.readline().startswith("fitting 5 model(s) of pc: ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("pointdep: interrupted; no model was written")
    assert "Traceback" not in err
    assert names(folder) == ["x.npy", "y.npy"]


def test_out_of_fold_pmi_of_the_training_rows(quick, refused):
    assert quick("fit", "x.npy", "y.npy", "-o", "model", "--oof", "pmi.csv").code == 0
    table = np.genfromtxt("pmi.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(table["row"], np.arange(len(table)))
    np.testing.assert_allclose(
        table["pmi"], PointwiseDependency.load("model").oof_pmi_, rtol=1e-5, atol=1e-7
    )
    refused("the suffix|suffix", "fit", "x.npy", "y.npy", "-o", "other", "--oof", "pmi.xyz")


def test_a_method_that_makes_no_model(refused):
    command = ("fit", "x.npy", "y.npy", "-o", "model", "-m", "ksg")
    refused("--method ksg makes no model to save: use pointdep mi -m ksg", *command)


def test_the_critic(quick):
    command = ("fit", "x.npy", "y.npy", "-o", "model")
    assert quick(*command).code == 0
    assert PointwiseDependency.load("model").critic == "auto"
    outcome = quick(*command, "--critic", "bilinear")
    assert "method              pc, critic bilinear\n" in outcome.out
    assert PointwiseDependency.load("model").critic == "bilinear"


def test_negatives_reference_size_and_weight_decay(quick, refused):
    command = ("fit", "x.npy", "y.npy", "-o", "model", "-m", "cpc")
    more = ("--negatives", "3", "--reference-size", "50", "--weight-decay", "0.1")
    assert quick(*command, *more).code == 0
    model = PointwiseDependency.load("model")
    assert model.model_.reference.shape[1] == 50
    assert model.weight_decay == 0.1
    refused("--negatives 'few' must be a whole number or auto", *command, "--negatives", "few")
