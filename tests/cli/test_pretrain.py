"""`pointdep pretrain`: small runs of each model, what they print and write, what is refused."""

import csv
import json
import pickle
import re
import struct
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.contrastive import load_encoder
from pointdep.data.images import load_images

TINY = "--device cpu --quiet --width 8 --depth 2 --epochs 1 --limit 64 --batch-size 32"
WRITTEN = {"encoder", "history.csv", "run.json", "tensorboard"}
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """512 and 64 images of MNIST's shape, each class a pattern under noise."""
    folder, random = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0)
    patterns = random.integers(0, 256, (10, 28, 28))
    for part, rows in (("train", 512), ("t10k", 64)):
        labels = random.integers(0, 10, rows)
        pixels = np.clip(patterns[labels] + random.integers(-500, 500, (rows, 28, 28)), 0, 255)
        for name, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            content = header + values.astype(np.uint8).tobytes()
            (folder / f"{part}-{name}-ubyte").write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    """512 and 64 images of CIFAR-10's shape, each class a colour under noise."""
    folder, random = tmp_path_factory.mktemp("cifar10"), np.random.default_rng(0)
    (folder / "cifar-10-batches-py").mkdir()
    colours, sizes = random.integers(40, 215, (10, 3, 1, 1)), [103, 103, 102, 102, 102, 64]
    for name, rows in zip([*BATCHES, "test_batch"], sizes, strict=True):
        labels = random.integers(0, 10, rows)
        noise = random.integers(-40, 40, (rows, 3, 32, 32))
        pixels = np.clip(colours[labels] + noise, 0, 255).astype(np.uint8)
        batch = {b"data": pixels.reshape(rows, -1), b"labels": labels.tolist()}
        (folder / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def history(place):
    with (place / "history.csv").open() as file:
        return list(csv.DictReader(file))


def check_folder(place, images, scaler, C):
    """The files of one run agree with each other, and the encoder with the accuracies."""
    assert {path.name for path in place.iterdir()} == WRITTEN
    (outcome,) = json.loads((place / "run.json").read_text())["outcomes"]
    lines = history(place)
    assert {line["run"] for line in lines} == {f"{outcome['objective']}-{outcome['seed']}"}
    for key in ("loss", "knn", "linear"):
        assert float(lines[-1][key]) == outcome[key]
    assert [path.name.startswith("events") for path in (place / "tensorboard").iterdir()] == [True]
    encoder = load_encoder(place / "encoder", "cpu")
    train, test = (encoder.encode(part).numpy() for part in (images.train, images.test))
    if train.ndim == 3:
        train, test = train[0], test[0]
    labels = images.train_labels.numpy(), images.test_labels.numpy()
    scaler = scaler.fit(train.astype(np.float64))
    ours = LogisticRegression(C=C, max_iter=5000, tol=1e-6).fit(scaler.transform(train), labels[0])
    image, right = 1.0 / len(test), ours.score(scaler.transform(test), labels[1])
    assert right == pytest.approx(outcome["linear"], abs=image)
    weights = {"weights": lambda d: np.exp(-d / 0.1), "metric": "cosine", "n_neighbors": 20}
    near = KNeighborsClassifier(**weights).fit(train, labels[0])
    assert near.score(test, labels[1]) == pytest.approx(outcome["knn"], abs=image)
    return outcome


def check_table(out, outcome, source):
    lines = out.splitlines()
    assert lines[0] == f"{source}: 512 training and 64 test images"
    assert " ".join(lines[1].split()) == "objective seed epochs minutes loss neighbours linear"
    cells = lines[2].replace(" %", "").split()
    assert cells[:3] == [outcome["objective"], "0", f"{outcome['epochs']:.3g}"]
    assert float(cells[4]) == pytest.approx(outcome["loss"], abs=1e-4)
    assert float(cells[5]) == pytest.approx(100 * outcome["knn"], abs=0.05)
    assert float(cells[6]) == pytest.approx(100 * outcome["linear"], abs=0.05)
    assert len({len(line) for line in lines[1:3]}) == 1


class TestSmoke:
    @pytest.mark.slow
    def test_shallow_at_full_size(self, pointdep, folder, mnist):
        done = pointdep("pretrain mnist --epochs 1 -o run --device cpu --quiet --data", mnist)
        assert (done.code, done.err) == (0, "")
        outcome = check_folder(folder / "run", load_images("mnist", mnist), MinMaxScaler(), 10.0)
        check_table(done.out, outcome, "MNIST from idx files")
        assert outcome["linear"] > 0.5
        recipe = load_encoder(folder / "run" / "encoder", "cpu").recipe
        assert recipe.product.weight.shape == (1, 392, 392)
        assert len(recipe.encoders.shifts) == 30
        (folder / "run" / "encoder" / "weights.safetensors").unlink()  # a hundred MB

    @pytest.mark.parametrize("model", ["simclr --width 8", "amdim --width 8 --depth 1"])
    def test_deep(self, pointdep, folder, cifar10, model):
        options = "--epochs 1 --batch-size 64 -o run --device cpu --quiet"
        done = pointdep("pretrain cifar10 --data", cifar10, "--model", model, options)
        assert (done.code, done.err) == (0, "")
        images = load_images("cifar10", cifar10)
        outcome = check_folder(folder / "run", images, StandardScaler(), 0.1)
        check_table(done.out, outcome, "CIFAR-10 from python batches")
        assert outcome["linear"] > 0.5

    def test_simclr_on_grey_images(self, pointdep, mnist):
        options = "--width 4 --epochs 1 --limit 64 --batch-size 32 -o run --device cpu --quiet"
        done = pointdep("pretrain mnist --model simclr", options, "--data", mnist)
        assert (done.code, done.err) == (0, "")
        encoder = load_encoder("run/encoder", "cpu")
        assert encoder.shape == (1, 28, 28)
        features = encoder.encode(load_images("mnist", mnist).test)
        assert features.shape == (64, 32)
        assert features.isfinite().all()


class TestSeveral:
    def test_replicas_in_one_folder_that_is_read_again(self, pointdep, check_json, folder):
        options = "--objective cpc,drfc --seeds 2 --seed 5 -o run --json"
        found = pointdep("pretrain digits", TINY, options).json()
        check_json("pretrain", found)
        runs = [(run["objective"], run["seed"]) for run in found["runs"]]
        assert runs == [("cpc", 5), ("cpc", 6), ("drfc", 5), ("drfc", 6)]
        assert found["written"] == ["run"]
        assert load_encoder("run/encoder", "cpu").encode(load_images("digits").test).shape[0] == 4
        command = f"pretrain digits {TINY} --limit 400"
        found = pointdep(command, "--json").json()
        assert found == pointdep(command, "--json").json()
        assert found["written"] == ["pretrain-digits-shallow-cpc"]
        assert {path.name for path in (folder / found["written"][0]).iterdir()} == WRITTEN
        told = "8 x 8 digits of scikit-learn: 400 training and 360 test images\n"
        assert pointdep(command).out.startswith(told)

    def test_one_after_another_in_folders_of_their_own(self, pointdep, folder, check_json):
        options = "--model simclr --device cpu --quiet --width 4 --limit 64 --batch-size 32"
        more = "--epochs 1 --objective pcc,rpc --seeds 2 -o run --json"
        found = pointdep("pretrain digits", options, more).json()
        check_json("pretrain", found)
        names = ["pcc-0", "pcc-1", "rpc-0", "rpc-1"]
        assert found["written"] == [f"run/{name}" for name in names]
        settings = found["settings"]
        assert (settings["objectives"], settings["seeds"]) == (["pcc", "rpc"], [0, 1])
        for name, run in zip(names, found["runs"], strict=True):
            assert f"{run['objective']}-{run['seed']}" == name
            assert json.loads((folder / "run" / name / "run.json").read_text())["outcomes"] == [run]


class TestRefused:
    @pytest.fixture
    def digits(self, refused):
        return lambda message, *options: refused(message, "pretrain digits", TINY, *options)

    def test_options(self, digits):
        for options, message in (
            ("--objective cpx", "unknown objective 'cpx': did you mean 'cpc'"),
            ("--model shalow", "unknown model 'shalow': did you mean 'shallow'"),
            ("--precision 16", "precision='16' needs a GPU"),
            ("--objective cpc,cpc", "objectives=.* names one of them twice"),
            ("--objective cpc,", "comma separated"),
            ("--epochs 0", "epochs=0 must be at least 1"),
            ("--iterations 3", "a run has epochs or iterations: give one"),
            ("--monitor knnn", "unknown monitor 'knnn'"),
            ("--minutes nan", "minutes=nan must be a positive number"),
            ("--batch-size 65", "batch_size=65 is more than the 64 training images"),
            ("--seed -1", "--seed -1 must lie between"),
            ("--seeds 0", "'--seeds'"),
            ("--limit 1", "'--limit'"),
            ("--data there", "digits come with scikit-learn"),
            ("--device cpux", "unknown device 'cpux'"),
            ("--loss-option temperature=1", "has no 'temperature'"),
            ("--loss-option temperature", "must be NAME=VALUE"),
            ("--model simclr --depth 18 --loss-option temprature=1", "did you mean 'temperature'"),
            ("--model amdim --objective drfc --loss-option alpha=2", "alpha=2 is outside .0, 1"),
        ):
            digits(message, options)

    def test_data_and_places(self, digits, refused, folder, mnist):
        for message, words in (
            (
                "no MNIST in nowhere, which does not exist: expected train-im",
                "mnist --data nowhere",
            ),
            ("no CIFAR-10 in .*: expected cifar-10-python.tar.gz", f"cifar10 --data {mnist}"),
            ("unknown set of images 'digts': did you mean 'digits'", "digts"),
        ):
            refused(message, "pretrain", words)
        (folder / "file").write_text("mine")
        (folder / "own" / "encoder").mkdir(parents=True)
        (folder / "own" / "encoder" / "thesis.txt").write_text("mine")
        digits("file is a file, or in one", "-o file")
        digits("is a file, or in one", "-o file/run")
        digits("holds other files, such as thesis.txt", "-o own")

    def test_lightning_is_missing(self, digits, monkeypatch):
        for name in [name for name in sys.modules if name.split(".")[0] == "lightning"]:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, "lightning.fabric", None)
        digits(r'needs lightning: pip install "pointdep\[pretrain\]"')

    def test_another_run_in_the_folder_and_a_loss_that_is_not_finite(self, pointdep, digits):
        assert pointdep("pretrain digits", TINY, "-o run").code == 0
        digits(r"finished run with objectives \['cpc'\]", "-o run --objective pcc")
        digits("finished run with other data or another number", "-o run --limit 65")
        done = pointdep("pretrain digits", TINY, "--objective drfc --learning-rate 1e9")
        assert (done.code, done.out) == (2, "")
        told = ".*the loss is not finite at step.*lower the learning rate.*\n"
        assert re.fullmatch(told, done.err)


def test_a_diverged_replica_is_said(pointdep, check_json):
    command = f"pretrain digits {TINY} --epochs 4 --objective dm1,cpc --learning-rate 1 -o"
    done = pointdep(command, "table")
    assert done.code == 0
    told = r"warning: epoch .* diverged: the codes are not finite \(dm1-0\)\n"
    assert re.fullmatch(told, done.err)
    lines = {line.split()[0]: line.split() for line in done.out.splitlines()[2:4]}
    assert lines["dm1"][-1] == "diverged"
    assert "diverged" not in lines["cpc"]
    found = pointdep(command, "object --json").json()
    check_json("pretrain", found)
    assert [found["runs"][0][key] for key in ("loss", "knn", "linear")] == [None] * 3
    assert all(found["runs"][1][key] is not None for key in ("loss", "knn", "linear"))


def test_counted_in_iterations_and_watched_by_the_classifier(pointdep, folder, check_json):
    options = "--iterations 5 --evaluate-every 2 --monitor linear -o run --json"
    found = pointdep("pretrain digits", TINY.replace("--epochs 1", ""), options).json()
    check_json("pretrain", found)
    assert (found["settings"]["epochs"], found["settings"]["iterations"]) == (None, 5)
    assert found["runs"][0]["epochs"] == 2.5
    lines = history(folder / "run")
    assert [line["step"] for line in lines] == ["2", "4", "5"]
    assert [bool(line["linear"]) for line in lines] == [True] * 3
    assert [bool(line["knn"]) for line in lines] == [False, False, True]
