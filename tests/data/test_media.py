"""Texts, pictures and sounds: reading them, the built-in encoders, and encoders by name."""

import io
import re
import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pointdep import PointwiseDependency, as_images, as_sounds, as_text, embed, from_embeddings
from pointdep.auditing.audit import _with_left_out
from pointdep.cli.calibrate import Meaning
from pointdep.data import encoders, features, media
from pointdep.data.media import RawRows, kind_of, read_picture, read_sound, read_text
from pointdep.data.raw_files import guess_columns
from pointdep.errors import DataWarning, InputError
from raw_samples import COLOURS, pairs, png, wav

pytestmark = pytest.mark.filterwarnings("ignore:wide_interval:pointdep.errors.FitWarning")

# One row.


def test_pictures_of_all_modes_become_rgb_of_one_size():
    for mode in ("L", "P", "RGBA", "CMYK"):
        kind = "TIFF" if mode == "CMYK" else "PNG"
        found = read_picture(png((200, 100, 50), (20, 10), kind, mode), 32)
        assert found.shape == (32, 32, 3)
        assert found.dtype == np.uint8
    assert read_picture(np.full((5, 4, 1), 7, np.uint8)).tolist() == [[[7] * 3] * 4] * 5
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    file = io.BytesIO()
    clear.save(file, "PNG")
    assert (read_picture(file.getvalue()) == 255).all()  # as on a white page


def test_rows_that_cannot_be_read_have_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(media, "MOST_PIXELS", 1000)
    monkeypatch.setattr(media, "MOST_BYTES", 5000)
    (tmp_path / "empty.png").touch()
    (tmp_path / "large.png").write_bytes(bytes(6000))
    given = [png("red"), png("red")[:40], png("red", (40, 40)), "no.png", "empty.png", "large.png"]
    contents, reasons = as_images([*given, None], folder=tmp_path).contents(8)
    assert contents[0].shape == (8, 8, 3)
    wanted = ["no picture", "40 x 40 pixels", "not found", "is empty", "MB: the limit", "no file"]
    assert list(reasons) == [1, 2, 3, 4, 5, 6]
    assert all(words in reasons[row + 1] for row, words in enumerate(wanted))

    contents, reasons = as_text(["a", " ", None, float("nan"), "b" * 200_000]).contents()
    assert reasons == dict.fromkeys((1, 2, 3), "empty text")
    assert len(contents[4]) == media.MOST_CHARACTERS

    monkeypatch.setitem(sys.modules, "soundfile", None)
    contents, reasons = as_sounds([wav(440), b"OggS", wav(440)[:30], b""]).contents()
    assert "soundfile" in reasons[1]
    assert "no sound" in reasons[2]
    assert "empty" in reasons[3]


def test_a_sound_keeps_its_frequency_when_its_rate_changes():
    samples = read_sound(wav(500, seconds=0.5, rate=8000))
    assert len(samples) == pytest.approx(features.RATE / 2, abs=2)
    peak = np.abs(np.fft.rfft(samples)).argmax() / len(samples) * features.RATE
    assert peak == pytest.approx(500, abs=3)
    for rate in (0, 2**31 - 1):  # as in damaged files
        content = bytearray(wav(500))
        content[24:28] = rate.to_bytes(4, "little")
        with pytest.raises(media.UnreadableError):
            read_sound(bytes(content))


# What columns hold.


def test_kinds_of_columns():
    sentences = [f"a photo of number {n} on paper" for n in range(30)]
    assert kind_of([f"img/{n}.JPG" for n in range(5)]) == "picture"
    assert kind_of(["a.wav", "b.flac", None]) == "sound"
    assert kind_of([*sentences, None]) == "text"
    assert kind_of(["left turn", "right turn"] * 50) is None  # labels
    assert kind_of([1.5, 2.0]) is None
    assert kind_of([png("red"), png("blue")]) == "picture"
    assert kind_of([{"bytes": wav(440), "path": None}]) == "sound"


def test_columns_are_guessed_where_they_are_clear(tmp_path):
    sentences = [f"this is sentence number {n} of them" for n in range(30)]
    names = [f"{n}.png" for n in range(30)]
    label = ["cat", "dog"] * 15
    path = tmp_path / "t.csv"
    assert guess_columns(pd.DataFrame({"t": sentences, "f": names}), path) == ("f", "t")
    assert guess_columns(pd.DataFrame({"f": names, "label": label}), path) == ("f", "label")
    assert guess_columns(pd.DataFrame({"en": sentences, "de": sentences}), path) == ("en", "de")
    for unclear in ({"a": label, "b": label}, {"f": names, "g": names, "t": sentences}):
        with pytest.raises(InputError, match="--x-columns"):
            guess_columns(pd.DataFrame(unclear), path)


# Built-in encoders.


def test_the_numbers_of_a_row_do_not_depend_on_the_others():
    images, texts, _ = pairs(60)
    sounds = [read_sound(wav(200 + 40 * n)) for n in range(30)]
    pixels = [read_picture(one, features.SIDE) for one in images]
    kinds = zip(features.BUILT_IN.items(), (texts, pixels, sounds), strict=True)
    for (kind, encoder), values in kinds:
        learned = encoder()
        fitted = learned.fit(values)
        again = encoder(learned.arrays)
        assert fitted.shape == (len(values), again.width)
        alone = np.concatenate([again.transform([value]) for value in values[:9]])
        np.testing.assert_allclose(alone, fitted[:9], atol=1e-4, err_msg=kind)


def test_the_text_encoder_is_the_principal_part_of_tf_idf():
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = pairs(60)[1] + ["a line that\nhas two", "Über Äpfel"]
    encoder = features.TextEncoder()
    found = encoder.fit(texts)
    how = {"sublinear_tf": True, "max_features": 20_000}
    words = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", **how).fit_transform(texts)
    parts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), **how).fit_transform(texts)
    whole = sparse.hstack([words, parts]).toarray()
    left, size, _ = np.linalg.svd(whole, full_matrices=False)
    by_hand = left[:, : found.shape[1]] * size[: found.shape[1]]
    by_hand /= np.linalg.norm(by_hand, axis=1, keepdims=True)
    np.testing.assert_allclose(found @ found.T, by_hand @ by_hand.T, atol=0.02)


def test_pictures_and_sounds_are_told_apart():
    from sklearn.linear_model import LogisticRegression

    images, _, names = pairs(120)
    found = embed(as_images(list(images)))
    assert (
        LogisticRegression(max_iter=500).fit(found[:60], names[:60]).score(found[60:], names[60:])
        == 1
    )
    tones = [300, 900, 2500] * 20
    found = embed(as_sounds([wav(tone + n) for n, tone in enumerate(tones)]))
    assert (
        LogisticRegression(max_iter=500).fit(found[:30], tones[:30]).score(found[30:], tones[30:])
        == 1
    )


# Fits.


@pytest.fixture(scope="module")
def fitted():
    images, texts, _ = pairs(150)
    given = list(images)
    given[7], texts[11] = b"broken", " "
    model = PointwiseDependency(critic="concat", hidden=(16,), folds=2, max_epochs=30,
                                random_state=0, progress=False)  # fmt: skip
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(as_images(given), as_text(texts))
    said = [str(one.message) for one in told if one.category is DataWarning]
    assert re.search(r"left out 2 row.*row 7 .*no picture.*row 11 .*empty", " ".join(said))
    return model


def test_rows_left_out_keep_their_numbers(fitted):
    assert fitted.n_rows_ == 148
    assert list(fitted.left_out_) == [7, 11]
    assert np.flatnonzero(np.isnan(fitted.oof_pmi_)).tolist() == [7, 11]
    assert fitted.mutual_information().rows == 148


def test_a_saved_model_encodes_as_it_did(fitted, tmp_path):
    images, texts, _ = pairs(30, seed=1)
    sides = as_images(list(images)), as_text(texts)
    before = fitted.pmi(*sides)
    fitted.save(tmp_path / "m")
    again = PointwiseDependency.load(tmp_path / "m")
    again.progress = False
    np.testing.assert_array_equal(again.pmi(*sides), before)
    assert again.left_out_ == fitted.left_out_
    # Plain strings are taken for what the side was, and numbers for what embed gives.
    np.testing.assert_array_equal(again.pmi(sides[0], texts), before)
    with pytest.raises(InputError, match="fitted on pictures, not on texts"):
        again.pmi(sides[1], texts)
    with pytest.raises(InputError, match="no picture"):
        again.pmi(as_images([b"broken"]), texts[:1])
    right = ["this is a red thing", "this is a blue thing"]
    red = np.full((1, 8, 8, 3), COLOURS["red"], np.uint8)
    assert again.retrieve(as_images(list(red)), right, k=1).indices.item() == 0


def test_the_table_of_an_audit_has_the_rows_left_out():
    """Rows 1 and 3 of five were left out; of the others 0 and 4 belong together."""
    whole = pd.array([2, None, 0], dtype="Int64")
    table = pd.DataFrame(
        {"row": [0, 1, 2], "pmi": np.float32([0.5, 1, -2]), "rank": [2, 3, 1],
         "suspect": [False, False, True], "below_zero": [False, False, True],
         "better_partner": whole, "swapped_with": whole, "duplicate_of": whole}
    )  # fmt: skip
    found = _with_left_out(table, np.array([0, 2, 4]), 5, {1: "file not found"})
    assert found["row"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(found["pmi"], [0.5, np.nan, 1, np.nan, -2])
    assert found["rank"].tolist() == [2, 4, 3, 5, 1]
    assert found["suspect"].tolist() == [False, False, False, False, True]
    assert found["better_partner"].fillna(-1).tolist() == [4, -1, -1, -1, 0]
    assert found["reason"].tolist()[:4] == [None, "file not found", None, "missing value"]
    assert found["rank"].dtype == np.int64
    assert found["suspect"].dtype == bool


# Encoders by name.


def fake_sentences(calls):
    class SentenceTransformer:
        def __init__(self, name, device):
            self.name = name

        def encode(self, values, **_):
            calls.append(len(values))
            return np.array([[len(value), value.count("e"), 1.0] for value in values], np.float32)

    return types.SimpleNamespace(SentenceTransformer=SentenceTransformer)


def test_named_encoders_are_cached_by_content(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setenv("POINTDEP_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake_sentences(calls))
    encoders.load_tower.cache_clear()
    rows = as_text(["one text", "a text", "one text", ""], encoder="some-model")
    found = embed(rows)
    np.testing.assert_array_equal(found[:3], [[8, 2, 1], [6, 1, 1], [8, 2, 1]])
    assert np.isnan(found[3]).all()
    assert calls == [2]
    np.testing.assert_array_equal(embed(rows), found)
    assert embed(as_text(["new", "a text"], encoder="some-model"))[0].tolist() == [3, 1, 1]
    assert calls == [2, 1]
    (path,) = (tmp_path / "embeddings").iterdir()
    for part in path.iterdir():
        part.write_bytes(b"damaged")
    embed(rows)
    assert calls == [2, 1, 2]


def test_the_scores_of_two_towers_are_calibrated(monkeypatch, tmp_path):
    """PMI of texts is that of their embeddings."""
    monkeypatch.setenv("POINTDEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake_sentences([]))
    encoders.load_tower.cache_clear()
    random = np.random.default_rng(0)
    first = ["xe"[n] * int(random.integers(1, 9)) + "e" for n in random.integers(0, 2, 300)]
    second = [one if random.random() < 0.6 else first[n // 2] for n, one in enumerate(first)]
    texts = first, second
    sides = [as_text(side, encoder="towers") for side in texts]
    how = {"loss": "sigmoid", "random_state": 0, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = from_embeddings(*sides, **how)
        plain = from_embeddings(*map(embed, sides), **how)
    np.testing.assert_array_equal(model.oof_pmi_, plain.oof_pmi_)
    model.save(tmp_path / "m")
    again = PointwiseDependency.load(tmp_path / "m")
    expected = plain.pmi(*(embed(side[:5]) for side in sides))
    np.testing.assert_array_equal(again.pmi(texts[0][:5], texts[1][:5]), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = Meaning.of(model, *sides, 0.1)
        assert told.scores == Meaning.of(plain, *map(embed, sides), 0.1).scores
    front = model.encoder_x_.front
    assert front.wrap([None, *first[:2]]).texts == ["", *first[:2]]
    assert front.wrap(np.zeros((3, 2))) is None
    table = pd.DataFrame({"said": first[:2], "likes": [1, 2]})
    assert front.wrap(table) is None
    known = encoders.Front("text", "said", None, None)
    assert known.wrap(table).texts == first[:2]


def test_encoders_are_found_by_their_names_and_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("POINTDEP_CACHE", str(tmp_path / "cache"))
    assert encoders.split_name("all-MiniLM-L6-v2")[0] == "sentence-transformers"
    assert encoders.split_name("google/siglip-base-patch16-224")[0] == "transformers"
    assert encoders.split_name("ViT-B-32/laion2b_s34b_b79k")[0] == "open_clip"
    assert encoders.split_name("transformers:a/b") == ("transformers", "a/b")
    (tmp_path / "config.json").write_text("{}")
    assert encoders.split_name(str(tmp_path)) == ("transformers", str(tmp_path))
    (tmp_path / "modules.json").write_text("[]")
    assert encoders.split_name(str(tmp_path))[0] == "sentence-transformers"
    monkeypatch.setitem(sys.modules, "open_clip", None)
    encoders.load_tower.cache_clear()
    with pytest.raises(InputError, match=r"needs open_clip: pip install .*images"):
        embed(as_images([np.zeros((4, 4, 3), np.uint8)], encoder="open_clip:ViT-B-32"))


def test_an_encoder_of_pretrain_takes_pictures(tmp_path, monkeypatch):
    from pointdep.contrastive import Settings, pretrain
    from pointdep.data.images import load_images

    monkeypatch.setenv("POINTDEP_CACHE", str(tmp_path / "cache"))
    images = load_images("digits").head(130)
    done = pretrain(images, Settings("shallow", objectives=("pcc",), epochs=1, depth=2, width=8),
                    device="cpu")  # fmt: skip
    done.encoder.save(tmp_path / "encoder")
    pixels = images.test[:5].numpy()[:, 0]
    found = embed(as_images(list(pixels), encoder=str(tmp_path / "encoder")))
    np.testing.assert_allclose(found, done.encoder.encode(images.test[:5]).numpy(), rtol=1e-4)
    with pytest.raises(InputError, match="takes no texts"):
        embed(as_text(["a"], encoder=str(tmp_path / "encoder")))


def test_rows_are_taken_as_arrays_are():
    rows = as_text(["a", "b", "c"])
    assert rows[1] == "b"
    assert isinstance(rows[[0, 2]], RawRows)
    assert rows[np.array([True, False, True])].texts == ["a", "c"]
    assert read_text(b"caf\xc3\xa9") == "café"
    for wrong in ("text", 3):
        with pytest.raises(InputError, match="list, a Series or an array"):
            as_text(wrong)
