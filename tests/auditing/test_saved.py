"""An audit decided again, from Python and from its page or table, and the rows that it keeps."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pointdep.auditing.saved import kept_table, read_audit
from refusals import refused

from .report.conftest import make_audit, some_pmi


@pytest.fixture
def audit():
    marks = {"better_partner": {3: 7}, "better_partner_pmi": {3: 1.5}, "swapped_with": {3: 7}}
    labels = ["<b>x</b>"] * 3 + [None] * 57
    found = make_audit(some_pmi(60), labels=labels, flags=("slow",), **marks).at(0.1)
    found.table["why"] = pd.Series([None, "a, \"b\" -1", *[None] * 58], dtype=object)  # fmt: skip
    return found


def test_another_rate_and_the_kept_rows(audit):
    q = audit.table["q_value"]
    for fdr in (0.01, 0.2, 0.5):
        again = audit.at(fdr)
        assert (again.table["suspect"] == (q <= fdr)).all()
        assert list(again.kept) == list(np.flatnonzero(q > fdr))
        assert again.fdr == fdr
        assert len(again.suspects) + len(again.kept) == 60
    refused("fdr=2 must lie between 0 and 1", audit.at, 2)


def test_rows_that_were_left_out_are_not_kept(audit, tmp_path):
    audit.table["reason"] = pd.Series([None, None, "empty text", *[None] * 57], dtype=object)
    kept = audit.at(0.001).kept
    assert set(range(60)) - set(kept) == {2, *np.flatnonzero(audit.table["q_value"] <= 0.001)}
    found = replace(audit, encoders=("pictures by filters", None))
    found.to_html(tmp_path / "page.html", progress=False)
    again = read_audit(tmp_path / "page.html")
    assert (again.left_out, again.encoders) == ({2: "empty text"}, found.encoders)
    assert list(again.at(0.001).kept) == list(kept)


@pytest.mark.parametrize("name", ["page.html", "table.parquet", "table.csv"])
def test_it_comes_back_from_its_page_and_tables(audit, tmp_path, name):
    path = tmp_path / name
    texts = [f"text {row} </script>" for row in range(60)]
    if path.suffix == ".html":
        audit.to_html(path, show_x=texts, title="A & B", progress=False)
    else:
        getattr(audit, f"to_{path.suffix[1:]}")(path)
    found = read_audit(path).at(0.2)
    expected = audit.at(0.2)
    for column in expected.table:
        values, given = found.table[column], expected.table[column]
        assert list(values.isna()) == list(given.isna()), column
        if given.dtype == object:
            assert list(values.dropna()) == list(given.dropna())
        else:
            assert list(values.dropna()) == pytest.approx(list(given.dropna()), rel=1e-6), column
    assert list(found.kept) == list(expected.kept)
    again = tmp_path / "again.html"
    if path.suffix == ".csv":
        refused(r"more than a \.csv table holds", found.to_html, again)
        return
    assert str(found) == str(expected)
    assert [str(flag) for flag in found.flags] == [str(flag) for flag in expected.flags]
    found.to_html(again, progress=False)
    text = again.read_text("utf-8")
    assert "not_converged: slow" in text
    if path.suffix == ".html":
        assert "<title>A &amp; B</title>" in text
        assert "text 59 \\u003c/script" in text
        third = tmp_path / "third.html"
        read_audit(again).to_html(third, progress=False)
        assert third.read_text("utf-8") == text


def test_kept_rows_of_a_file_that_is_not_utf_8(audit, tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("name\n" + "".join(f"café {row}\n" for row in range(60)), "cp1252")
    names = kept_table(audit, [path], as_text=True)["name"]
    assert list(names) == [f"café {row}" for row in audit.kept]


def test_other_files_are_no_audits(tmp_path):
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    page.write_text("<p>hello</p>")
    table.write_text("row,pmi\n0,1.5\n")
    for path, message in (
        (page, "holds no audit that can be decided again"),
        (table, "has no column 'q_value'"),
        (tmp_path / "x.txt", "is no audit: give the page"),
        (tmp_path / "none.html", "does not exist"),
    ):
        refused(message, read_audit, path)
