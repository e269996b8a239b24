"""Texts, pictures and sounds on the command line, from all files that hold them."""

import io
import json
import tarfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from pointdep.cli.app import run
from pointdep.data import media, raw_files
from pointdep.data.readers import read_pairs
from raw_samples import pairs, png, wav

QUICK = ["--critic", "concat", "--hidden", "16", "--folds", "2", "--max-epochs", "25", "-q"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """img/ and captions.csv, 160 rows, of which 4 cannot be read."""
    place = tmp_path_factory.mktemp("pictures")
    images, texts, names = pairs(160)
    (place / "img").mkdir()
    for n, image in enumerate(images):
        Image.fromarray(image).save(place / "img" / f"{n}.png")
    (place / "img" / "3.png").write_bytes(b"no picture")
    (place / "img" / "5.png").unlink()
    texts[8], texts[9] = "", "long " * 200_000
    Image.new("1", (12_000, 12_000)).save(place / "img" / "11.png")  # small until it is decoded
    table = pd.DataFrame({"file": [f"img/{n}.png" for n in range(160)], "caption": texts})
    table.to_csv(place / "captions.csv", index=False)
    np.save(place / "names.npy", names)
    return place


@pytest.fixture(scope="module")
def model(folder):
    """Fitted on the table without an option that names columns."""
    assert (
        run(["fit", f"{folder}/captions.csv", "-o", f"{folder}/model", *QUICK, "--no-curve"]) == 0
    )
    return folder / "model"


def test_audit_of_a_table_that_names_pictures(folder, capsys):
    page, rows = folder / "page.html", folder / "rows.csv"
    command = ["audit", str(folder / "captions.csv"), "-o", str(page), "--table", str(rows)]
    assert run([*command, *QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "pictures by filters" in found["encoders"]["x"]
    assert "texts by word" in found["encoders"]["y"]
    reasons = {one["row"]: one["reason"] for one in found["left_out"]}
    assert list(reasons) == [3, 5, 8, 11]
    for row, words in (
        (3, "no picture"),
        (5, "not found"),
        (8, "empty text"),
        (11, "12000 x 12000"),
    ):
        assert words in reasons[row]
    table = pd.read_csv(rows)
    assert table["row"].tolist() == list(range(160))
    assert np.flatnonzero(table["pmi"].isna()).tolist() == [3, 5, 8, 11]
    assert table["reason"].dropna().tolist() == list(reasons.values())
    shown = page.read_text()
    assert shown.count("data:image/png;base64,") > 100
    assert "we see the" in shown
    assert "4 left out" in shown
    assert found["kept"] <= 156


def test_score_knows_the_columns_and_says_what_cannot_be_read(folder, model, capsys):
    table = pd.read_csv(folder / "captions.csv")[["caption", "file"]].head(10).assign(more=1)
    table.to_csv(folder / "new.csv", index=False)
    assert run(["score", str(model), str(folder / "new.csv"), "-q"]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert np.flatnonzero(found["pmi"].isna()).tolist() == [3, 5, 8]
    assert "file not found" in found["reason"][5]
    parquet = folder / "shards"
    parquet.mkdir()
    table.to_parquet(parquet / "0.parquet")
    columns = ["--x-columns", "file", "--y-columns", "caption"]
    assert run(["score", str(model), str(parquet), "-o", f"{folder}/out/", *columns]) == 2
    assert "fitted on texts, pictures or sounds" in capsys.readouterr().err


def test_retrieve_takes_a_typed_caption(folder, model, capsys):
    names, table = np.load(folder / "names.npy"), str(folder / "captions.csv")
    assert run(["retrieve", str(model), table, "--query", "this is a red thing", "-k", "5"]) == 0
    printed = capsys.readouterr()
    found = pd.read_csv(io.StringIO(printed.out))
    assert (names[found["candidate"]] == "red").all()
    assert found["found"].tolist() == [f"{folder}/img/{row}.png" for row in found["candidate"]]
    assert "row 3" in printed.err
    picture = str(folder / "img" / "0.png")
    assert run(["retrieve", str(model), table, "--query", picture, "-k", "1", "-q", "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)["found"]
    assert names[0] in best["texts"][0]
    assert run(["retrieve", str(model), table, table, "--query", "a"]) == 2
    assert "give one file" in capsys.readouterr().err


def test_a_named_pair_of_columns_may_be_swapped(folder, capsys):
    how = ["--x-columns", "caption", "--y-columns", "file", *QUICK, "--no-curve", "--json"]
    assert run(["mi", str(folder / "captions.csv"), *how]) == 0
    assert "texts" in json.loads(capsys.readouterr().out)["encoders"]["x"]


def test_nearest_neighbours_of_texts(folder, capsys):
    assert run(["mi", str(folder / "captions.csv"), "-m", "ksg", "-q"]) == 0
    assert "more than two columns" in " ".join(capsys.readouterr().out.split())
    assert list(raw_files._cells("json", b"[1, 2]")) == []  # no columns in it


def test_embed_writes_numbers(folder, capsys):
    out = folder / "x.npy"
    command = ["embed", str(folder / "captions.csv"), "-o", str(out), "-q"]
    assert run([*command, "--column", "file", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    values = np.load(out)
    assert values.shape == (160, told["width"])
    assert np.flatnonzero(np.isnan(values).any(1)).tolist() == [3, 5, 11]
    assert run(command) == 2
    assert "--column" in capsys.readouterr().err


# The kinds of files.


def both(*paths, **how):
    """The kinds of the sides, and the first and the last value of each."""
    how = {"x_columns": None, "y_columns": None, **how}
    sides = read_pairs([*paths], **how)
    return [(side.kind, side.values[0], side.values[-1], len(side)) for side in sides]


def test_folders_lines_and_tables(folder, tmp_path):
    table = pd.read_csv(folder / "captions.csv").fillna("-")
    first, last = table["caption"].iloc[0], table["caption"].iloc[-1]
    x = ("picture", folder / "img" / "0.png", folder / "img" / "159.png", 160)
    y = ("text", first, last, 160)
    assert both(folder / "img", folder / "captions.csv") == [x, y]
    assert both(folder / "captions.csv", folder / "img") == [y, x]
    bare = table.assign(file=[f"{n}.png" for n in range(160)])
    for suffix, write in ((".tsv", lambda t, p: t.to_csv(p, sep="\t", index=False)),
                          (".jsonl", lambda t, p: t.to_json(p, orient="records", lines=True)),
                          (".parquet", lambda t, p: t.to_parquet(p))):  # fmt: skip
        write(bare, tmp_path / f"t{suffix}")
        assert both(folder / "img", tmp_path / f"t{suffix}") == [x, y]
    for name in ("en", "de"):
        (tmp_path / f"{name}.txt").write_text("\n".join(table["caption"]) + "\n")
    assert both(tmp_path / "en.txt", tmp_path / "de.txt") == [y, y]


def test_saved_sets_and_archives(tmp_path):
    images, texts, _ = pairs(30)
    contents = [png(tuple(int(v) for v in image[0, 0])) for image in images]
    cells = [{"bytes": content, "path": None} for content in contents]
    saved = tmp_path / "saved"
    saved.mkdir()
    table = pa.table({"image": cells, "caption": texts})
    for part in range(2):
        file = pa.OSFile(str(saved / f"data-{part}.arrow"), "wb")
        with file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table.slice(15 * part, 15))
    files = [{"filename": f"data-{part}.arrow"} for part in range(2)]
    (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    wanted = [("picture", contents[0], contents[-1], 30), ("text", texts[0], texts[-1], 30)]
    assert both(saved) == wanted

    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for n, (content, text) in enumerate(zip(contents, texts, strict=True)):
            told = json.dumps({"caption": text}).encode()
            for name, one in ((f"{n:04d}.png", content), (f"{n:04d}.json", told)):
                member = tarfile.TarInfo(name)
                member.size = len(one)
                archive.addfile(member, io.BytesIO(one))
    assert both(tmp_path / "set.tar") == wanted


def test_sounds_and_other_encodings(tmp_path, recwarn):
    (tmp_path / "s").mkdir()
    lines = ["file,text"]
    for n in range(30):
        (tmp_path / "s" / f"{n}.wav").write_bytes(wav(300 + n))
        lines.append(f"s/{n}.wav,ein schöner Ton der Höhe {n}")
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("latin-1"))
    x, y = both(tmp_path / "t.csv")
    assert x[:2] == ("sound", tmp_path / "s" / "0.wav")
    assert y[1] == "ein schöner Ton der Höhe 0"
    assert "not UTF-8" in str(recwarn[0].message)
    assert media.read_sound(x[1]).dtype == np.float32


def test_rows_of_one_picture_are_one_group(folder, capsys):
    from pointdep.cli.options import groups_of_files
    from pointdep.data.media import as_images, as_text

    rows = as_images(["a.png", "b.png", "a.png"])
    assert groups_of_files(as_text(["1", "2", "3"]), rows).tolist() == ["a.png", "b.png", "a.png"]
    assert "2 in 3 rows" in capsys.readouterr().err
    assert groups_of_files(rows[:2], as_text(["1", "1"])) is None
