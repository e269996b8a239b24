"""The look of rows: what people may give, what --show-x may name; pictures and sounds."""

import base64
import io
import math
import struct
import wave
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

from pointdep.auditing.report import content
from pointdep.auditing.report.content import Shown, as_shown, embed, read_shown
from pointdep.fitting.progress import Silent
from refusals import refused

from .conftest import make_audit


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, pd.Series, pl.Series, lambda v: pd.DataFrame({"a": v})]
)
def test_texts(make):
    texts = ["a dog", "", "ein Hund", "犬"]
    shown = as_shown(make(texts), 4, "show_x")
    assert (shown.texts, shown.pictures, shown.files) == (texts, None, None)

    # Missing texts are empty.
    shown = as_shown(pd.Series(["a", None, np.nan, pd.NA], dtype=object), 4, "show_x")
    assert shown.texts == ["a", "", "", ""]
    assert as_shown(None, 4, "show_x") is None
    assert as_shown(shown, 4, "show_x") is shown


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, torch.tensor, list])
def test_numbers(make):
    assert as_shown(make([[1.0, 2.5], [-3.0, 1e-9]]), 2, "x").texts == ["1, 2.5", "-3, 1e-09"]
    assert as_shown(make([[0.125] * 9] * 2), 2, "x").texts == ["0.125, 0.125, 0.125, 0.125, …"] * 2
    # Single numbers and what is no number.
    assert as_shown(np.array([1, 20]), 2, "x").texts == ["1", "20"]
    assert as_shown([np.nan, np.inf, 1.5], 3, "x").texts == ["nan", "inf", "1.5"]
    assert as_shown([True, False], 2, "x").texts == ["True", "False"]
    mixed = pd.DataFrame({"a": ["cat", None], "b": [1.5, 2.0]})
    assert as_shown(mixed, 2, "x").texts == ["cat, 1.5", ", 2.0"]


def test_files_pictures_and_what_cannot_be_shown():
    shown = as_shown(["a/1.PNG", Path("2.wav"), None, "not there"], 4, "x")
    assert shown.files == [Path("a/1.PNG"), Path("2.wav"), None, None]
    assert shown.texts == ["a/1.PNG", "2.wav", "", "not there"]
    assert as_shown(["see photo.png", "a dog", "a cat", "a bird"], 4, "x").files is None
    grey = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    np.testing.assert_array_equal(as_shown(grey.astype(np.uint8), 2, "x").pictures, grey)
    stretched = as_shown(grey, 2, "x").pictures
    np.testing.assert_array_equal(stretched, np.floor(grey * (255 / 23) + 1e-4))
    unit = as_shown(np.full((2, 3, 4, 3), 0.5), 2, "x").pictures
    assert unit.shape == (2, 3, 4, 3)
    assert (unit == 127).all()
    signed = as_shown(np.array([[[-1.0, 1.0]], [[0.0, np.nan]]]), 2, "x").pictures
    assert signed.tolist() == [[[0, 255]], [[127, 127]]]
    for values, message in (
        (["a"], "show_x has 1 rows where the audit has 2"),
        (7, "show_x has no rows"),
        (np.zeros((2, 3, 4, 5)), r"shape \(2, 3, 4, 5\): pictures are \(n, height, width\)"),
        (np.zeros((2, 0, 4)), "holds no pictures"),
        ([[1, 2], [3]], "show_x cannot be read as one value a row"),
    ):
        refused(message, as_shown, values, 2, "show_x")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    table = pd.DataFrame({"a": [1.5, 2.5], "caption": ["a dog", "a cat"], "image": ["1.png", None]})
    table.to_csv("data/pairs.csv", index=False)
    np.savez("data/both.npz", x=np.zeros((2, 3)), names=np.array(["one", "two"]))
    Path("data/lines.txt").write_text("first\n\nthird\n", "utf-8")
    Path("data/sounds.txt").write_text("a.wav\n/b.mp3\n", "utf-8")
    Path("data/words.vec").write_text("2 1\nhund 1.0\nkatze 2.0\n", "utf-8")
    np.save("data/pictures.npy", np.zeros((2, 4, 8), np.uint8))


def read(given, file="data/pairs.csv", values=None):
    return list(read_shown("--show-x", given, 0, [Path(file)], values))


def test_columns_and_files_by_name(folder):
    assert (read("caption"), read("a")) == (["a dog", "a cat"], [1.5, 2.5])
    assert read("names", "data/both.npz") == ["one", "two"]
    files = [Path("data/both.npz"), Path("data/pairs.csv")]
    assert list(read_shown("--show-x", "caption", 0, files, None)) == ["a dog", "a cat"]
    assert list(read_shown("--show-y", "names", 1, files, None)) == ["one", "two"]
    first, second = read("image")  # names of files count from the folder
    assert first == str(Path("data/1.png"))
    assert pd.isna(second)
    assert read("data/sounds.txt") == [str(Path("data/a.wav")), "/b.mp3"]
    assert read("data/lines.txt") == ["first", "", "third"]
    assert read("data/words.vec") == ["hund", "katze"]
    assert read("data/pairs.csv:caption", "data/both.npz") == ["a dog", "a cat"]
    assert read("data/both.npz:names") == ["one", "two"]
    assert np.shape(read("data/pictures.npy")) == (2, 4, 8)
    assert read(None, values=np.arange(2)) == [0, 1]
    assert read(None, "data/words.vec", values=np.zeros((2, 1))) == ["hund", "katze"]
    for given, message in (
        ("captoin", "--show-x 'captoin' is neither a column of data/pairs.csv nor a file"),
        ("missing.txt", "missing.txt does not exist"),
        ("data/both.npz", "data/both.npz holds x, names: name one, as data/both.npz:x"),
        ("data/both.npz:nothing", "holds no array 'nothing'"),
        ("data/pairs.csv", "has 3 columns: name one of"),
    ):
        refused(message, read, given)


def embedded(side, rows=(0,)):
    """row -> kind and content, of the x side."""
    found = embed(side, None, [(row, None) for row in rows], 96, Silent())
    contents = list(found.contents)
    return {row: (kind, contents[number]) for row, (kind, number) in found.x.items()}


def files(folder, *names):
    return as_shown([str(folder / name) for name in names], len(names), "x")


def decoded(entry):
    kind, address = entry
    assert kind == "image"
    head, content = address.split(",")
    assert head in ("data:image/png;base64", "data:image/jpeg;base64")
    return Image.open(io.BytesIO(base64.b64decode(content)))


def write_sound(path, seconds=0.1):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        tone = [int(8000 * math.sin(i / 3)) for i in range(int(8000 * seconds))]
        file.writeframes(struct.pack(f"<{len(tone)}h", *tone))


def test_arrays_are_exact_files_made_small_and_sounds_kept(tmp_path):
    random = np.random.default_rng(0)
    for shape in ((3, 4, 8), (3, 4, 8, 1), (3, 4, 8, 3)):
        pictures = random.integers(0, 256, shape).astype(np.uint8)
        found = embedded(as_shown(pictures, 3, "x"), rows=(0, 2))
        assert list(found) == [0, 2]
        np.testing.assert_array_equal(np.asarray(decoded(found[2])), pictures[2].squeeze())
    for suffix in (".png", ".jpg", ".gif", ".webp", ".bmp"):
        Image.new("RGB", (600, 300), (200, 30, 30)).save(tmp_path / f"a{suffix}")
        image = decoded(embedded(files(tmp_path, f"a{suffix}"))[0])
        assert image.size == (96, 48)
        assert np.abs(np.asarray(image.convert("RGB")).mean((0, 1)) - [200, 30, 30]).max() < 6
    # Transparent and deep pictures.
    Image.new("RGBA", (20, 20), (0, 0, 0, 0)).save(tmp_path / "a.png")
    Image.new("I;16", (20, 20)).save(tmp_path / "b.png")
    Image.new("CMYK", (200, 20)).save(tmp_path / "c.jpg")
    found = embedded(files(tmp_path, "a.png", "b.png", "c.jpg"), rows=range(3))
    assert [decoded(entry).mode for entry in found.values()] == ["RGBA", "RGB", "RGB"]
    write_sound(tmp_path / "a.wav")
    kind, address = embedded(files(tmp_path, "a.wav"))[0]
    assert kind == "audio"
    content = base64.b64decode(address.removeprefix("data:audio/wav;base64,"))
    assert content == (tmp_path / "a.wav").read_bytes()


def test_what_cannot_be_shown_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "SOUND_BYTES", 1000)
    write_sound(tmp_path / "long.wav", 1)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n then nothing")
    (tmp_path / "folder.png").mkdir()
    Image.new("L", (200, 200)).save(tmp_path / "huge.png")  # is not unpacked
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30_000)
    unreadable = "file is no picture that can be read"
    for name, said in {
        "missing.png": "file not found",
        "missing.mp3": "file not found",
        "folder.png": "file not found",
        "broken.png": unreadable,
        "huge.png": unreadable,
        "long.wav": "sound of 0.0 MB, too long for this page",
    }.items():
        assert embedded(files(tmp_path, name))[0] == ("said", said)


def test_the_better_partner_is_there_and_the_page_stays_small(monkeypatch):
    pictures = Shown([""] * 6, pictures=np.zeros((6, 2, 2), np.uint8))
    found = embed(pictures, pictures, [(3, 5), (1, None)], 96, Silent())
    assert (sorted(found.x), sorted(found.y)) == ([1, 3], [1, 3, 5])
    noise = np.random.default_rng(0).integers(0, 256, (20, 32, 32)).astype(np.uint8)
    side = Shown([""] * 20, pictures=noise)
    one = embed(side, None, [(0, None)], 96, Silent())
    monkeypatch.setattr(content, "TOTAL_BYTES", 5 * one.size + 100)
    found = embed(side, None, [(row, None) for row in range(20)], 96, Silent())
    assert (list(found.x), found.left_out) == ([0, 1, 2, 3, 4], 15)
    assert found.size <= content.TOTAL_BYTES


def test_each_distinct_picture_is_there_once(tmp_path, monkeypatch):
    Image.new("RGB", (90, 90), (200, 30, 30)).save(tmp_path / "a.png")
    (tmp_path / "copy.png").write_bytes((tmp_path / "a.png").read_bytes())
    Image.new("RGB", (90, 90), (30, 30, 200)).save(tmp_path / "b.png")
    opened, really = [], Image.open
    monkeypatch.setattr(Image, "open", lambda path, **_: opened.append(path) or really(path))
    side = files(tmp_path, "a.png", "b.png", "a.png", "copy.png", "a.png")
    found = embed(side, side, [(row, None) for row in range(5)], 96, Silent())
    assert (len(opened), len(found.contents)) == (3, 2)
    assert found.size == sum(map(len, found.contents))
    assert found.x == found.y == {row: ("image", int(row == 1)) for row in range(5)}
    arrays = as_shown(np.stack([np.full((4, 8), one, np.uint8) for one in (1, 2, 1)]), 3, "x")
    found = embed(arrays, None, [(row, None) for row in range(3)], 96, Silent())
    assert found.x == {0: ("image", 0), 1: ("image", 1), 2: ("image", 0)}


def test_in_the_browser(open_page, tmp_path):
    write_sound(tmp_path / "a.wav")
    pictures = np.random.default_rng(0).integers(0, 256, (4, 4, 8)).astype(np.uint8)
    sounds = [str(tmp_path / name) for name in ("a.wav", "gone.wav", "a.wav", "a.wav")]
    audit = make_audit([-5.0, -4.0, -3.0, 1.0], better_partner={0: 3}, swapped_with={1: 2})
    page = open_page(audit, show_x=pictures, show_y=sounds, media=2)
    page.wait("[...document.images].every(one => one.complete)")
    sizes = page.js("return [...document.images].map(i => [i.naturalWidth, i.naturalHeight])")
    assert (sizes, page.js("return document.images[0].alt")) == ([[8, 4], [8, 4]], "x of row 0")
    page.js("const s = document.querySelector('audio'); s.preload = 'auto'; s.load()")
    page.wait("document.querySelector('audio').duration > 0")
    assert page.js("return document.querySelector('audio').duration") == pytest.approx(0.1)
    assert "file not found" in page.column("y")[1]
    assert page.column("x")[2] == "not in this page"
    notes = page.column("Note")
    assert notes[0].startswith("better partner: y of row 3")
    assert notes[1] == "may be swapped with row 2"
    assert page.js("return document.querySelectorAll('.notes audio').length") == 1
    assert "for the 2 worst rows" in page.at("main").text


def test_only_pictures_and_sounds_of_the_folder_are_embedded(tmp_path):
    """Not what a name that ends in .wav, a link or a path with .. leads to."""
    inside, secret = tmp_path / "in", tmp_path / "secret.wav"
    inside.mkdir()
    for path in (secret, inside / "right.wav"):
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 1, 8000, 0, "NONE", ""))
            file.writeframes(bytes(100))
    (inside / "passwords.wav").write_text("root:x:0:0")
    (inside / "link.wav").symlink_to(secret)
    (inside / "within.wav").symlink_to("right.wav")
    Image.new("RGB", (2, 2)).save(tmp_path / "page.eps")
    (tmp_path / "page.eps").rename(inside / "page.png")
    names = ["right.wav", "within.wav", "passwords.wav", "link.wav", "../secret.wav", str(secret)]
    (inside / "names.txt").write_text("\n".join([*names, "page.png"]))
    given = read_shown("--show-x", str(inside / "names.txt"), 0, [inside / "x.npy"], None)
    media = embed(as_shown(given, 7, "x"), None, [(k, None) for k in range(7)], 8, Silent())
    contents = list(media.contents)
    said = [contents[number] for kind, number in media.x.values() if kind == "said"]
    kinds = [kind for kind, _ in media.x.values()]
    assert kinds == ["audio", "audio", *["said"] * 5]
    assert said[0] == "file is no .wav sound"
    assert said[1:4] == ["file is outside the folder of the names"] * 3
    assert said[4] == "file is no picture that can be read"
