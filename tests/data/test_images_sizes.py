"""Small files that unpack to much are refused before they fill the memory."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from contextlib import contextmanager

import pytest

from pointdep.data.images import load_images
from pointdep.data.images.datasets import read_idx
from pointdep.errors import InputError

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
    with memory_below(16 << 20), pytest.raises(InputError, match=message):
        load_images("cifar10", archive)


def test_many_members_are_bounded_together(tmp_path, monkeypatch):
    monkeypatch.setattr(LARGEST, 1 << 18)
    archive = tmp_path / "cifar.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for number in range(5):
            member = tarfile.TarInfo(f"folder{number}/test_batch")
            member.size = 1 << 18
            file.addfile(member, _Zeros(member.size))
    with pytest.raises(InputError, match=r"cifar\.tar\.gz holds more than 1 MiB"):
        load_images("cifar10", archive)


def test_a_loose_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "data_batch_1").open("wb") as file:
        file.truncate(1 << 40)  # a hole: nothing is written
    with pytest.raises(InputError, match="data_batch_1 holds more than 256 MiB"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_idx_file(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(LARGEST, 1 << 20)
    path = tmp_path / "file"
    header = bytes([0, 0, 8, 1])
    most = (1 << 20) - 8
    path.write_bytes(pack(header + most.to_bytes(4, "big") + bytes(most)))
    assert len(read_idx(path, 1)) == most
    path.write_bytes(pack(header + (64 << 20).to_bytes(4, "big") + bytes(64 << 20)))
    with memory_below(8 << 20), pytest.raises(InputError, match="file holds more than 1 MiB"):
        read_idx(path, 1)
