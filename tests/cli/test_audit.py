"""`pointdep audit`: what it prints and writes, and what it refuses before the work."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pointdep import audit
from pointdep.cli.audit import safe_text

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.PointdepWarning")


def data_of(path):
    """The data inside a page."""
    return json.loads(Path(path).read_text("utf-8").split('id="data">')[1].split("</script>")[0])


def numbers(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), "<" + packed["type"])


def test_page_table_and_json_agree(quick, pairs, check_json, folder):
    content = quick("audit x.npy y.npy -o r.html --table r.csv --json").json()
    check_json("audit", content)
    assert content["written"] == ["r.html", "r.csv"]
    assert sorted(p.name for p in folder.iterdir()) == ["r.csv", "r.html", "x.npy", "y.npy"]
    table, page = pd.read_csv("r.csv"), data_of("r.html")
    assert len(table) == page["rows"] == content["estimate"]["rows"] == 200
    np.testing.assert_allclose(numbers(page["columns"]["pmi"]), table["pmi"], rtol=1e-6)
    assert content["suspects"] == table["suspect"].sum() == len(numbers(page["suspects"]))
    assert content["below_zero"] == (table["pmi"] < 0).sum()
    worst = table.sort_values("rank").head(10)
    assert [line["row"] for line in content["worst"]] == list(worst["row"])
    assert [line["pmi"] for line in content["worst"]] == pytest.approx(list(worst["pmi"]))
    assert "Audit of x.npy and y.npy" in Path("r.html").read_text("utf-8")
    shown = [f"{value:.4g}" if value % 1 else f"{value:.0f}" for value in pairs[0][3]]
    assert page["x"][3] == ", ".join(shown)


def test_what_a_person_reads(quick, folder):
    names = [f"name {row}\x1b[31m" for row in range(200)]
    Path("names.txt").write_text("\n".join(names), "utf-8")
    outcome = quick("audit x.npy y.npy -o t.parquet --show-x names.txt")
    assert outcome.code == 0, outcome.err
    assert "\x1b" not in outcome.out
    table = pd.read_parquet("t.parquet").sort_values("rank")
    lines = re.findall(r"^ +(\d+) +(-?\d+\.\d\d) .*  name (\d+)\\x1b\[31m \| ", outcome.out, re.M)
    assert [int(row) for row, _, _ in lines] == list(table["row"].head(10))
    assert all(row == name for row, _, name in lines)
    assert re.search(r"^mutual information +-?\d\.\d+ nats", outcome.out, re.M)
    assert outcome.out.rstrip().endswith("written: t.parquet")
    assert list(table.sort_index()["shown_x"]) == names
    better = re.findall(r"[ *] (row \d+|-) +name \d+", outcome.out)
    starred = re.findall(r"^ +(\d+) .*\* (?:row \d+|-) +name", outcome.out, re.M)
    worst = table.head(10)
    assert [int(row) for row in starred] == list(worst["row"][worst["suspect"]])
    assert better == ["-" if pd.isna(one) else f"row {int(one)}" for one in worst["better_partner"]]
    assert re.search(r"^method +pc: closed form (alone|and network)$", outcome.out, re.M)


@pytest.mark.parametrize("passed", [True, False])
def test_the_check_is_not_the_judge_of_suspects(quick, folder, pairs, monkeypatch, passed):
    def checked(*arguments, **options):
        found = audit(*arguments, **options)
        return replace(found, check=replace(found.check, passed=passed))

    monkeypatch.setattr("pointdep.auditing.audit.audit", checked)
    y = pairs[0] + pairs[1][:, :2] / 20
    y[[7, 70, 150]] = y[[70, 150, 7]]  # wrong pairs: without suspects nothing is said
    np.save("y.npy", y)
    np.save("pictures.npy", np.zeros((200, 4, 4)))
    names = [f"=name {row}" for row in range(200)]
    Path("names.txt").write_text("\n".join(names), "utf-8")
    shown = "--show-x pictures.npy --show-y names.txt --table t.csv"
    outcome = quick("audit x.npy y.npy", shown, "--contamination 0.2 --fdr 0.9")
    said = "Suspects are judged against mismatched pairs, so an error in the size of PMI"
    assert (said in " ".join(outcome.out.split())) is not passed
    table = pd.read_csv("t.csv")
    assert table["suspect"].any()
    assert list(table["shown_y"]) == names
    assert "shown_x" not in table  # pictures have no texts


def test_a_table_of_pictures_and_labels(quick, folder, pairs):
    Path("data").mkdir()
    for row in range(3):
        Image.new("L", (8, 8), 40 * row).save(f"data/{row}.png")
    x = pairs[0]
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "label": np.where(x[:, 0] > 0, "up", "down")})
    table["image"] = [f"{row % 4}.png" for row in range(200)]
    table.to_csv("data/pairs.csv", index=False)
    columns = "--x-columns a,b --y-columns label --show-x image --media 200"
    outputs = "-o r.html --table rows.parquet --title Up&down"
    outcome = quick("audit data/pairs.csv", columns, outputs)
    assert outcome.code == 0, outcome.err
    rows = pd.read_parquet("rows.parquet")
    assert list(rows["shown_x"]) == [str(Path("data") / name) for name in table["image"]]
    assert "shown_y" not in rows
    lines = re.findall(r"^ +(\d+) .*  (\w+|-) +\S+ \| (\w+)$", outcome.out, re.M)
    assert [int(row) for row, _, _ in lines] == list(rows.sort_values("rank")["row"].head(10))
    for row, better, given in lines:
        label = rows["better_label"][int(row)]
        assert (better, given) == ("-" if pd.isna(label) else label, table["label"][int(row)])
    assert any(better != "-" for _, better, _ in lines)
    page = data_of("r.html")
    assert (page["y"], page["x"][5]) == (list(table["label"]), str(Path("data/1.png")))
    (kind, number), contents = page["media"]["x"]["5"], page["media"]["contents"]
    assert kind == "image"
    assert contents[number].startswith("data:image/png;base64,")
    assert len(contents) == 4  # three pictures, and that one is not found
    assert page["media"]["x"]["7"] == ["said", contents.index("file not found")]
    assert "<title>Up&amp;down</title>" in Path("r.html").read_text("utf-8")


def test_refused_before_the_fit_and_texts(refused, folder):
    Path("one.txt").write_text("one line\n")
    for message, options in (
        (r"r\.pdf has the unknown suffix '\.pdf'.*\.html", "-o r.pdf"),
        (r"r\.html has the unknown suffix.*\.csv, \.parquet", "--table r.html"),
        ("the folder none does not exist", "-o none/r.html"),
        ("--show-x 'caption' is neither a column", "--show-x caption"),
        ("missing.txt does not exist", "--show-y missing.txt"),
        ("--show-x has 1 rows where the audit has 200", "--show-x one.txt"),
        ("fdr", "--fdr 2"),
        ("contamination", "--contamination -0.1"),
        ("folds", "--folds 1"),
    ):
        refused(message, "audit", "x.npy", "y.npy", options)
    assert safe_text("a\nb\x1b]0;title\x07") == r"a\nb\x1b]0;title\x07"
    assert safe_text("word " * 20) == "word word word word word word…"
    assert (safe_text("\u202egnp.exe"), safe_text("é犬")) == (r"\u202egnp.exe", "é犬")


def test_another_rate_without_a_fit_and_the_kept_rows(quick, pointdep, refused, folder, pairs):
    table = pd.DataFrame(
        {"a": pairs[0][:, 0], "b": pairs[1][:, 0], "n": [f"0{i}" for i in range(200)]}
    )
    table.to_csv("pairs.csv", index=False)
    table.to_parquet("pairs.parquet")
    columns = "--x-columns a --y-columns b --show-x n"
    assert quick("audit pairs.csv", columns, "-o r.html --table r.csv --kept kept.csv").code == 0
    lines = Path("pairs.csv").read_text().splitlines()
    suspect = pd.read_csv("r.csv")["suspect"]
    kept = [line for line, out in zip(lines[1:], suspect, strict=True) if not out]
    assert Path("kept.csv").read_text().splitlines() == [lines[0], *kept]
    again = pointdep("audit --from r.html pairs.parquet --fdr 0.9 --kept k.parquet --json").json()
    q = pd.read_csv("r.csv")["q_value"]
    assert again["suspects"] == (q <= np.float32(0.9)).sum()
    expected = table[(q > np.float32(0.9)).to_numpy()].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_parquet("k.parquet"), expected)
    outcome = pointdep("audit --from r.csv --fdr 0.9 -o other.csv --kept rows.csv")
    assert outcome.code == 0, outcome.err
    assert again["kept"] == len(pd.read_csv("rows.csv")["row"]) == len(expected)
    assert list(pd.read_csv("other.csv")["shown_x"]) == list(range(200))
    Path("one.csv").write_text("a\n1\n")
    for message, arguments in (
        ("fits nothing: leave out --folds, --contamination", "--folds 3 --contamination 0.1"),
        ("one.csv has 1 rows where the audit has 200", "one.csv --kept k.csv"),
        ("none.csv does not exist", "none.csv --kept k.csv"),
        ("give the files that were audited", "--show-x n"),
    ):
        refused(message, "audit --from r.html", arguments)
    refused("give the files to audit, or --from", "audit")
