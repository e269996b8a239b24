"""Files and folders are whole or not there, whoever else writes or reads them."""

import os
import threading
from pathlib import Path

import pytest
import torch

from pointdep.data import atomic, storage
from pointdep.data.atomic import held, replaced_folder, whole_file
from pointdep.errors import InputError, ModelFileError
from pointdep.fitting.state import sole_writer


def write(path, number):
    storage.write_model(path, {"number": number}, {"weights": torch.full((1000,), float(number))})


def number(path):
    about, tensors = storage.read_model(path)
    assert bool((tensors["weights"] == about["number"]).all())  # of one model
    return about["number"]


def left(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("exchange", [True, False])
def test_whoever_reads_while_it_is_saved_finds_a_model(exchange, tmp_path, monkeypatch):
    if not exchange:  # as on file systems that cannot exchange two folders
        monkeypatch.setattr(atomic, "_exchanged", lambda one, other: False)
    path, done, errors = tmp_path / "model", threading.Event(), []
    write(path, 0)

    def read():
        while not done.is_set():
            try:
                number(path)
            except (ModelFileError, AssertionError) as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for count in range(1, 40):
        write(path, count)
    done.set()
    reader.join()
    assert errors == []
    assert (number(path), left(tmp_path)) == (39, ["model"])


def test_what_killed_writers_left_is_swept_and_the_old_folder_comes_back(tmp_path):
    path, name = tmp_path / "model", ".model." + 32 * "0" + ".saving"
    write(path, 1)
    (tmp_path / name).mkdir()
    path.replace(tmp_path / name / "old")  # killed between two moves
    assert number(path) == 1
    assert left(tmp_path) == ["model"]
    (tmp_path / name).mkdir()
    (tmp_path / name.replace(".model.", ".other.")).mkdir()  # of another place
    (tmp_path / name.replace("000", "111")).mkdir()
    descriptor = os.open(tmp_path / name.replace("000", "111"), os.O_RDONLY)
    assert atomic._lock(descriptor)  # of a writer that lives
    write(path, 2)
    os.close(descriptor)
    assert left(tmp_path) == sorted(
        ["model", name.replace("000", "111"), name.replace(".model.", ".other.")]
    )
    (tmp_path / ".a.csv.0123456789abcdef0123456789abcdef.saving").write_text("half")
    with whole_file(tmp_path / "a.csv") as file:
        file.write(b"whole")
    write(path, 3)
    assert [name for name in left(tmp_path) if "other" not in name] == ["a.csv", "model"]


def test_two_writers_of_one_process_number(tmp_path):
    """As in two containers that share a folder, each with a process 1."""
    path = tmp_path / "a.csv"
    with whole_file(path) as one, whole_file(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert (path.read_bytes(), left(tmp_path)) == (b"one", ["a.csv"])
    with replaced_folder(tmp_path / "b") as one, replaced_folder(tmp_path / "b") as other:
        (one / "file").write_text("one")
        (other / "file").write_text("other")
    assert (tmp_path / "b" / "file").read_text() == "one"
    assert left(tmp_path) == ["a.csv", "b"]


def test_everything_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    calls, fsync, replace, swap = [], os.fsync, Path.replace, atomic._exchanged

    def synced(descriptor):
        calls.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", lambda *a: calls.append("moved") or replace(*a))
    monkeypatch.setattr(atomic, "_exchanged", lambda *a: calls.append("moved") or swap(*a))
    for _ in range(2):
        write(tmp_path / "model", 0)
        moved = calls.index("moved")
        assert set(calls[:moved]) == {"model.json", "weights.safetensors", "new"}
        assert calls[-1] == tmp_path.name
        calls.clear()


def test_a_file_has_one_writer_at_a_time(tmp_path):
    path = tmp_path / "fit.checkpoint"
    with sole_writer(path):
        with pytest.raises(InputError, match=r"is being written by another fit: wait"):
            sole_writer(path).__enter__()
        assert left(tmp_path) == [".fit.checkpoint.lock"]
    assert left(tmp_path) == []
    with held(tmp_path / "no" / "folder", "no lock can be made"):
        pass
    (tmp_path / ".fit.checkpoint.lock").touch()  # as a kill leaves it
    with held(path, ""):
        pass
    assert left(tmp_path) == []
