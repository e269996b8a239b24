"""Downloads from a server on this machine: checked, whole or not kept, and clear when refused."""

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
from refusals import refused

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


def test_no_such_file_and_no_network(served, tmp_path, monkeypatch):
    folder, _, _ = served
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    options = {"folder": tmp_path / "here", "download": True}
    refused(r"t10k-images\S* .* fetched \(status 404\)", load_images, "mnist", **options)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        remote(monkeypatch, folder, unused.getsockname()[1])
        options["folder"] = tmp_path / "there"
        refused(r"fetched \(no connection\): check", load_images, "mnist", **options)


def test_a_folder_that_cannot_be_made_and_no_pooch(served, tmp_path, monkeypatch):
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
        assert all(url.startswith("https://") and len(md5) == 32 for url, md5 in files.items())
