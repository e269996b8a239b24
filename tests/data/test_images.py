"""Sets of images: checks, the small digits, MNIST's idx files, their places and the download."""

import functools
import gzip
import hashlib
import os
import socket
import struct
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from pointdep.data.images import DATASETS, ImageSet, default_folder, digit_halves, load_images
from pointdep.data.images.datasets import read_idx
from pointdep.data.images.image_files import REMOTE
from pointdep.errors import InputError
from refusals import refused

RNG = np.random.default_rng(0)
PARTS = {"train": 7, "t10k": 4}


def image_set(**changes):
    fields = {
        "name": "toy",
        "train": torch.arange(5 * 12, dtype=torch.uint8).reshape(5, 3, 2, 2),
        "train_labels": torch.tensor([0, 1, 1, 0, 1]),
        "test": torch.zeros(3, 3, 2, 2, dtype=torch.uint8),
        "test_labels": torch.tensor([1, 0, 1]),
        "classes": ("cat", "dog"),
        "source": "nowhere",
    }
    return ImageSet(**{**fields, **changes})


def idx(values):
    """The idx format by its definition: two zeros, 8 for bytes, dimensions, sizes, values."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write_mnist(folder, compress=False):
    """Fake idx files, and what is in them: images (n, 28, 28) and labels (n,) of each part."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for part, rows in PARTS.items():
        content[part] = RNG.integers(0, 256, (rows, 28, 28)), RNG.integers(0, 10, rows)
        for name, values in zip(("images-idx3", "labels-idx1"), content[part], strict=True):
            path = folder / f"{part}-{name}-ubyte{'.gz' if compress else ''}"
            path.write_bytes(gzip.compress(idx(values), mtime=0) if compress else idx(values))
    return content


def in_order(rows):
    return rows[np.lexsort(rows.T)]


def test_head_to_and_arrays():
    images = image_set()
    few = images.head(2, 1).to("cpu")
    assert torch.equal(few.train, images.train[:2])
    assert torch.equal(few.train_labels, images.train_labels[:2])
    assert torch.equal(few.test_labels, images.test_labels[:1])
    assert len(images.head(4).test) == 3
    assert images.shape == (3, 2, 2)
    refused("n_train=6 is more than the 5 images of toy", images.head, 6)
    refused("n_test=0 must be at least 1", images.head, 1, 0)
    parts = ("train", "train_labels", "test", "test_labels")
    arrays = {part: getattr(images, part).numpy() for part in parts}
    again = image_set(**{**arrays, "train_labels": arrays["train_labels"].astype(np.int16)})
    for part in parts:
        assert torch.equal(getattr(again, part), getattr(images, part))


def test_an_image_set_checks_itself():
    empty, high = torch.zeros(0, 3, 2, 2), torch.zeros(3, 3, 4, 2)
    refused("train: images must be .* uint8", image_set, train=torch.zeros(5, 3, 2, 2))
    refused("test: images must be", image_set, test=torch.zeros(3, 2, 2).byte())
    refused("train: images must be", image_set, train=empty.byte())
    refused("must be of one size", image_set, test=high.byte())
    refused(r"test: labels must be \(n,\) int64", image_set, test_labels=torch.zeros(3))
    refused("2 labels for 3 images", image_set, test_labels=torch.zeros(2).long())
    for label, message in ((2, "label 2: labels are 0 to 1"), (-1, "label -1")):
        refused(message, image_set, train_labels=torch.tensor([0, 1, label, 0, 1]))
    refused("train_labels must be a tensor or an array, not None", image_set, train_labels=None)
    refused("labels must be numbers, not <U1", image_set, test_labels=np.array(list("abc")))


def test_digits_are_those_of_scikit_learn():
    images, digits = load_images("digits"), load_digits()
    assert images.shape == (1, 8, 8)
    assert (len(images.train), len(images.test)) == (1437, 360)
    assert (images.train.min(), images.train.max()) == (0, 255)
    pixels = torch.cat([images.train, images.test]).numpy().reshape(1797, 64)
    labels = torch.cat([images.train_labels, images.test_labels]).numpy()
    # 16 steps of 255/16 are far enough apart to be undone.
    back = np.column_stack([np.round(pixels * (16 / 255)), labels])
    there = np.column_stack([digits.data, digits.target])
    np.testing.assert_array_equal(in_order(back), in_order(there))
    assert torch.equal(load_images("digits").train, images.train)
    refused("digits come with scikit-learn", load_images, "digits", "somewhere")
    assert set(DATASETS) == {"mnist", "cifar10", "digits"}
    refused("did you mean 'cifar10'", load_images, "cifar-10")


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("place", ["", "MNIST/raw", "raw"])
def test_mnist(tmp_path, place, compress):
    content, seen = write_mnist(tmp_path / place, compress), []
    images = load_images("mnist", tmp_path, progress=lambda *step: seen.append(step))
    for part, name in (("train", "train"), ("test", "t10k")):
        np.testing.assert_array_equal(getattr(images, part).numpy()[:, 0], content[name][0])
        np.testing.assert_array_equal(getattr(images, f"{part}_labels").numpy(), content[name][1])
    assert images.classes == tuple("0123456789")
    assert not images.lossy
    assert seen == [(1, 2), (2, 2)]


def test_damaged_idx_files_are_named(tmp_path):
    images, labels = idx(np.zeros((7, 28, 28))), gzip.compress(idx(np.zeros(4)), mtime=0)
    for name, content, message in (
        ("train-images-idx3", idx(np.zeros(7)), "0x00000801, not 0x00000803"),
        ("train-images-idx3", b"", "begins with 0x,"),
        ("train-images-idx3", images[:14], "within its header"),
        ("train-images-idx3", images[:-1], "truncated: 5487 values"),
        ("train-images-idx3", images + b"0", "too long: 5489 values"),
        ("train-images-idx3", idx(np.zeros((0, 28, 28))), "empty"),
        ("train-images-idx3", idx(np.zeros((7, 28, 27))), "28 x 27 pixels"),
        ("train-labels-idx1", idx(np.zeros(6)), "6 labels .* 7 images"),
        ("t10k-labels-idx1", idx(np.full(4, 10)), "label 10"),
        ("t10k-labels-idx1", labels[:-9], "cannot be read"),
    ):
        write_mnist(tmp_path)
        path = tmp_path / f"{name}-ubyte"
        path.write_bytes(content)
        assert str(path) in refused(message, load_images, "mnist", tmp_path)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.booleans(), st.floats(0, 0.999))
def test_idx_round_trip_and_no_part_is_the_whole(tmp_path, shape, compress, share):
    values = RNG.integers(0, 256, shape)
    content = gzip.compress(idx(values), mtime=0) if compress else idx(values)
    path = tmp_path / "file"
    path.write_bytes(content)
    np.testing.assert_array_equal(read_idx(path, len(shape)), values)
    path.write_bytes(content[: int(share * len(content))])
    refused(None, read_idx, path, len(shape))


def test_nothing_found_and_the_default_folder(tmp_path, monkeypatch):
    message = r"idx1-ubyte, each plain or \.gz.*download=True"
    assert str(tmp_path) in refused(message, load_images, "mnist", tmp_path)
    write_mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    refused("of which t10k-images-idx3-ubyte is not there", load_images, "mnist", tmp_path)
    refused("does not exist: expected cifar-10", load_images, "cifar10", tmp_path / "nowhere")
    refused("is a file", load_images, "mnist", tmp_path / "train-images-idx3-ubyte")
    monkeypatch.setenv("POINTDEP_DATA", str(tmp_path))
    assert default_folder("mnist") == tmp_path
    write_mnist(tmp_path / "mnist")
    assert default_folder("mnist") == tmp_path / "mnist"
    assert len(load_images("mnist").train) == PARTS["train"]
    monkeypatch.delenv("POINTDEP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_folder("mnist") == tmp_path / "cache" / "pointdep" / "mnist"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder("cifar10") == tmp_path / ".cache" / "pointdep" / "cifar10"


@pytest.mark.parametrize("fraction", [0.0, 0.0012, 0.05, 1.0])
def test_swapped_rows_are_permuted_and_none_stays(fraction):
    halves, digits = digit_halves(swapped=fraction, seed=5), load_digits()
    lower, mask = digits.data[:, 32:], halves.swapped
    assert mask.sum() == round(fraction * len(lower))
    np.testing.assert_array_equal(halves.y[~mask], lower[~mask])
    np.testing.assert_array_equal(halves.x, digits.data[:, :32])
    np.testing.assert_array_equal(in_order(halves.y[mask]), in_order(lower[mask]))
    np.testing.assert_array_equal(halves.labels, digits.target)
    # Two digits may have the same lower half, so a few rows can look unmoved.
    assert fraction == 0 or (halves.y[mask] == lower[mask]).all(axis=1).mean() < 0.01


def test_seed_and_arguments_of_halves():
    assert np.array_equal(digit_halves(seed=1).swapped, digit_halves(seed=1).swapped)
    assert not np.array_equal(digit_halves(seed=1).swapped, digit_halves(seed=2).swapped)
    for fraction in (-0.1, 1.1, float("nan")):
        refused("swapped must be a fraction", digit_halves, swapped=fraction)
    refused("single row", digit_halves, swapped=0.0005)


real = pytest.mark.skipif("POINTDEP_DATA" not in os.environ, reason="POINTDEP_DATA is not set")


@real
def test_real_ones():
    if not list(Path(default_folder("mnist")).glob("t10k-images*")):
        pytest.skip("no MNIST in POINTDEP_DATA")
    images = load_images("mnist")
    assert (len(images.train), len(images.test)) == (60_000, 10_000)
    assert images.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert images.train.double().mean().item() / 255 == pytest.approx(0.1306605, abs=1e-6)
    try:
        images = load_images("cifar10")
    except InputError as error:
        pytest.skip(str(error))
    assert images.train.shape == (50_000, 3, 32, 32)
    assert torch.bincount(images.train_labels).tolist() == [5000] * 10
    assert torch.bincount(images.test_labels).tolist() == [1000] * 10
    means = images.train.double().mean((0, 2, 3)) / 255  # the published ones
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=3e-4)


pytest.importorskip("pooch")


class _Quiet(SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def log_message(self, *_):
        self.asked.append(self.path)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder that is served at the addresses of MNIST, and the requests that were made."""
    folder = tmp_path / "served"
    content = write_mnist(folder, compress=True)
    monkeypatch.setattr(_Quiet, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    remote(monkeypatch, folder, server.server_port)
    yield folder, content, _Quiet.asked
    server.shutdown()
    server.server_close()
    thread.join()


def remote(monkeypatch, folder, port):
    files = {
        f"http://127.0.0.1:{port}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }
    monkeypatch.setitem(REMOTE, "mnist", files)


def test_download(served, tmp_path, capfd):
    (_, content, asked), seen = served, []
    options = {"download": True, "progress": lambda *step: seen.append(step)}
    images = load_images("mnist", tmp_path / "new" / "folder", **options)
    np.testing.assert_array_equal(images.train.numpy()[:, 0], content["train"][0])
    assert len(asked) == 4
    sizes = {path.stat().st_size for path in (tmp_path / "new" / "folder").iterdir()}
    assert {total for _, total in seen} == sizes | {2}
    assert all(0 < done <= total for done, total in seen)
    load_images("mnist", tmp_path / "new" / "folder", **options)
    assert len(asked) == 4, "what is there is not fetched again"
    mine, lacking = write_mnist(tmp_path / "mine", compress=True), "t10k-labels-idx1-ubyte.gz"
    (tmp_path / "mine" / lacking).unlink()
    images = load_images("mnist", tmp_path / "mine", **options)
    np.testing.assert_array_equal(images.train.numpy()[:, 0], mine["train"][0])
    assert asked[4:] == [f"/{lacking}"], "only what is missing is fetched"
    assert capfd.readouterr() == ("", "")


def test_a_corrupted_file_is_not_kept(served, tmp_path):
    folder, _, _ = served
    broken = folder / "train-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-1] + b"?")
    options = {"folder": tmp_path / "here", "download": True}
    assert broken.name in refused("another checksum .* removed", load_images, "mnist", **options)
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert broken.name not in names
    assert all(name.endswith(".gz") for name in names), "no temporary file is left"


def test_downloads_that_fail(served, tmp_path, monkeypatch):
    folder, _, _ = served
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    options = {"folder": tmp_path / "here", "download": True}
    refused(r"t10k-images\S* .* fetched \(status 404\)", load_images, "mnist", **options)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        remote(monkeypatch, folder, unused.getsockname()[1])
        options["folder"] = tmp_path / "there"
        refused(r"fetched \(no connection\): check", load_images, "mnist", **options)
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "below"
    refused("cannot be written to", load_images, "mnist", below, download=True)
    monkeypatch.setitem(sys.modules, "pooch", None)
    refused(r'pip install "pointdep\[pretrain\]"', load_images, "cifar10", tmp_path, download=True)


def test_the_addresses():
    names = {key: [url.rpartition("/")[2] for url in files] for key, files in REMOTE.items()}
    assert names["cifar10"] == ["cifar-10-python.tar.gz"]
    kinds = ("images-idx3", "labels-idx1")
    assert names["mnist"] == [f"{part}-{k}-ubyte.gz" for part in ("train", "t10k") for k in kinds]
    for files in REMOTE.values():
        assert all(
            url.startswith("https://") and len(digest) == 64 for url, digest in files.items()
        )
