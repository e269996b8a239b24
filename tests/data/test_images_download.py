"""Downloads from a server on this machine: checked, whole or not kept, and clear when refused."""

from __future__ import annotations

import functools
import hashlib
import socket
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pytest
from test_images import write_mnist

from pointdep.data.images import load_images
from pointdep.data.images.image_files import REMOTE
from pointdep.errors import InputError

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
    handler = functools.partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    remote(monkeypatch, folder, server.server_port)
    yield folder, content, _Quiet.asked
    server.shutdown()
    server.server_close()
    thread.join()


def remote(monkeypatch, folder, port):
    files = {
        f"http://127.0.0.1:{port}/{path.name}": hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }
    monkeypatch.setitem(REMOTE, "mnist", files)


def test_download(served, tmp_path, capfd):
    _, content, asked = served
    seen = []
    options = {"download": True, "progress": lambda *step: seen.append(step)}
    images = load_images("mnist", tmp_path / "new" / "folder", **options)
    np.testing.assert_array_equal(images.train.numpy()[:, 0], content["train"][0])
    assert len(asked) == 4
    sizes = {path.stat().st_size for path in (tmp_path / "new" / "folder").iterdir()}
    assert {total for _, total in seen} == sizes | {2}
    assert all(0 < done <= total for done, total in seen)
    load_images("mnist", tmp_path / "new" / "folder", **options)
    assert len(asked) == 4, "what is there is not fetched again"
    assert capfd.readouterr() == ("", "")


def test_only_what_is_missing_is_fetched(served, tmp_path):
    _, _, asked = served
    theirs = write_mnist(tmp_path / "mine", compress=True)
    lacking = "t10k-labels-idx1-ubyte.gz"
    (tmp_path / "mine" / lacking).unlink()
    images = load_images("mnist", tmp_path / "mine", download=True)
    np.testing.assert_array_equal(images.train.numpy()[:, 0], theirs["train"][0])
    assert asked == [f"/{lacking}"]


def test_a_corrupted_file_is_not_kept(served, tmp_path):
    folder, _, _ = served
    broken = folder / "train-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=r"its checksum is not .* has been removed") as caught:
        load_images("mnist", tmp_path / "here", download=True)
    assert broken.name in str(caught.value)
    assert "\n" not in str(caught.value)
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert broken.name not in names
    assert all(name.endswith(".gz") for name in names), "no temporary file is left"


def test_no_such_file_and_no_network(served, tmp_path, monkeypatch):
    folder, _, _ = served
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"t10k-images\S* could not be fetched \(status 404\)"):
        load_images("mnist", tmp_path / "here", download=True)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        remote(monkeypatch, folder, unused.getsockname()[1])
        with pytest.raises(InputError, match=r"fetched \(no connection\): check the net") as caught:
            load_images("mnist", tmp_path / "there", download=True)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_and_no_pooch(served, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written to"):
        load_images("mnist", tmp_path / "file" / "below", download=True)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r'pip install "pointdep\[pretrain\]"'):
        load_images("cifar10", tmp_path, download=True)


def test_the_addresses():
    names = {key: [url.rpartition("/")[2] for url in files] for key, files in REMOTE.items()}
    assert names["cifar10"] == ["cifar-10-python.tar.gz"]
    parts = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k")
             for kind in ("images-idx3", "labels-idx1")]  # fmt: skip
    assert names["mnist"] == parts
    for files in REMOTE.values():
        assert all(url.startswith("https://") and len(md5) == 32 for url, md5 in files.items())
