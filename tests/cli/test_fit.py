"""`pointdep fit`: the model it saves, where it saves it, and what an interruption leaves."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from pointdep import PointwiseDependency

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
FIT = "fit x.npy y.npy -o model"

# The command with a signal to itself at the end of epoch 2, after a checkpoint.
INTERRUPTED = """
import os, signal, sys
from pointdep.cli.app import run
from pointdep.fitting import engine

def save_and_interrupt(path, state, *rest):
    save(path, state, *rest)
    if state.epoch == 2:
        os.kill(os.getpid(), getattr(signal, sys.argv.pop()))

engine._CHECKPOINT_EVERY_S = 0
save, engine.save_state = engine.save_state, save_and_interrupt
sys.exit(run(sys.argv[1:-1]))
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_saved_model_and_one_that_is_replaced(quick, like_quick, folder, pairs, check_json):
    content = quick("fit x.npy y.npy -o model/ --json").json()
    check_json("fit", content)
    assert content["output"] == "model"
    assert names(folder / "model") == ["model.json", "weights.safetensors"]
    assert names(folder) == ["model", "x.npy", "y.npy"]
    expected, model = like_quick().fit(*pairs), PointwiseDependency.load("model")
    np.testing.assert_array_equal(model.oof_pmi_, expected.oof_pmi_)
    np.testing.assert_array_equal(model.pmi(*pairs), expected.pmi(*pairs))
    assert content["estimate"]["nats"] == expected.mutual_information().nats
    assert quick(FIT, "--method js").code == 0
    outcome = quick(FIT, "--method nwj")
    assert (outcome.code, PointwiseDependency.load("model").method) == (0, "nwj")
    assert outcome.out.startswith("mutual information  ")
    assert outcome.out.endswith("; score other pairs with: pointdep score model ...\n")


def test_a_model_of_other_data_is_not_replaced(quick, refused, folder, pairs):
    assert quick(FIT).code == 0
    np.save("other.npy", pairs[0][:, ::-1])
    before = PointwiseDependency.load("model").pmi(*pairs)
    message = "model holds a model of other data .200 rows.: .* or replace it by --overwrite"
    refused(message, "fit other.npy y.npy -o model")
    np.testing.assert_array_equal(PointwiseDependency.load("model").pmi(*pairs), before)
    assert quick("fit other.npy y.npy -o model --overwrite").code == 0
    model = PointwiseDependency.load("model")
    model.save("model")
    assert not np.array_equal(model.pmi(*pairs), before)


def test_what_is_refused(refused, folder):
    for path, text in (("full/notes.txt", "mine"), ("foreign/model.json", "{}")):
        (folder / path).parent.mkdir()
        (folder / path).write_text(text)
    (folder / "state").write_bytes(b"something else")
    for message, place in (
        (r"-o x\.npy would overwrite x\.npy, which the command reads", "x.npy"),
        (r"full holds other files, such as notes\.txt", "full"),
        (r"foreign holds other files, such as model\.json", "foreign"),
        ("nowhere does not exist: make it first", "nowhere/model"),
        (r"x\.npy is a file, not a folder", "x.npy/model"),
    ):
        refused(message, "fit x.npy y.npy -o", place)
    refused(r"Missing option '--output'", "fit x.npy y.npy")
    for message, options in (
        ("'nowhere/state'.* folder does not exist", "--checkpoint nowhere/state"),
        ("is a folder", "--checkpoint ."),
        ("checkpoint state cannot be read", "--checkpoint state"),
        ("suffix", "--oof pmi.xyz"),
        ("--method ksg makes no model to save: use pointdep mi -m ksg", "-m ksg"),
        ("--negatives 'few' must be a whole number or auto", "-m cpc --negatives few"),
    ):
        refused(message, FIT, "--quiet", options)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc here")  # noqa: PTH112
def test_a_place_that_cannot_be_written_is_found_before_the_fit(refused):
    # Permission bits would not stop root, but nobody can make a folder in /proc.
    refused("nothing can be written in /proc", "fit x.npy y.npy -o /proc/model")


@pytest.mark.parametrize(
    ("kind", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
)
def test_interrupted_and_resumed(quick, pointdep, folder, kind, code, word):
    command = f"{FIT} --hidden 16 --folds 2 --max-epochs 3 --json"
    resumable = f"{command} --checkpoint state"
    words = [sys.executable, "-c", INTERRUPTED, *resumable.split(), "--quiet", kind]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith(f"pointdep: {word}; training is kept in state: run the same")
    assert (ended.stderr.count("\n"), names(folder)) == (1, ["state", "x.npy", "y.npy"])

    # What was saved is used: with other settings it is refused, and with the same it goes on.
    other = quick(resumable, "--seed 1")
    assert other.code == 2
    assert "belongs to a fit with random_state=0, not 1" in other.err
    loud = pointdep(resumable)
    assert "going on from state, after epoch 2" in loud.err
    assert (names(folder), loud.json()) == (["model", "x.npy", "y.npy"], quick(command).json())


def test_ctrl_c_while_fitting(folder):
    random = np.random.default_rng(0)
    np.save("x.npy", random.normal(size=(4_000, 10)))
    np.save("y.npy", np.load("x.npy") + random.normal(size=(4_000, 10)))
    command, pipe = [sys.executable, "-m", "pointdep", *FIT.split(), "--json"], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        # The first line of progress says that it is at work.
        told = "fitting 5 model(s) and 4 on parts of the rows of pc: "
        assert process.stderr.readline().startswith(told)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("pointdep: interrupted; no model was written")
    assert "Traceback" not in err
    assert names(folder) == ["x.npy", "y.npy"]


def test_out_of_fold_pmi_and_options_of_the_model(quick):
    assert quick(FIT, "--oof pmi.csv").code == 0
    table = np.genfromtxt("pmi.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(table["row"], np.arange(len(table)))
    model = PointwiseDependency.load("model")
    np.testing.assert_allclose(table["pmi"], model.oof_pmi_, rtol=1e-5, atol=1e-7)
    assert model.critic == "auto"
    assert "method              pc, critic bilinear\n" in quick(FIT, "--critic bilinear").out
    assert PointwiseDependency.load("model").critic == "bilinear"
    assert quick(FIT, "-m cpc", "--negatives 3 --reference-size 50 --weight-decay 0.1").code == 0
    model = PointwiseDependency.load("model")
    assert (model.model_.reference.shape[1], model.weight_decay) == (50, 0.1)
