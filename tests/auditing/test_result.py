"""What an `Audit` gives: tables, words, and what a notebook and a terminal show."""

import re

import pandas as pd
import pytest
from matplotlib.figure import Figure

from pointdep.cli.audit import print_worst
from refusals import refused

from .report.conftest import make_audit, some_pmi


@pytest.fixture(scope="module")
def audit():
    marks = {"better_partner": {3: 7}, "better_partner_pmi": {3: 1.5}, "swapped_with": {3: 7}}
    return make_audit(some_pmi(60), labels=["<b>x</b>"] * 3 + [None] * 57, **marks)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables(audit, tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    getattr(audit, f"to_{suffix}")(path)
    read = getattr(pd, f"read_{suffix}")(path)
    assert list(read) == list(audit.table)
    for name in read:
        assert list(read[name].isna()) == list(audit.table[name].isna()), name
        known = audit.table[name].dropna()
        if name == "better_label":
            assert list(read[name].dropna()) == list(known)
        else:
            assert list(read[name].dropna()) == pytest.approx(list(known), rel=1e-6), name


def test_files_of_another_kind(audit, tmp_path):
    for write, name, options, message in (
        (audit.to_csv, "rows.txt", {}, r"unknown suffix '\.txt'.*\.csv"),
        (audit.to_html, "rows.csv", {}, r"unknown suffix '\.csv'.*\.html"),
        (audit.to_html, "rows.html", {"media": -1}, "media=-1 must be at least 0"),
    ):
        refused(message, write, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_suspects_words_pictures_and_a_notebook(audit):
    assert list(audit.suspects["rank"]) == list(range(1, len(audit.suspects) + 1))
    assert audit.suspects["suspect"].all()
    assert len(audit.suspects) == audit.table["suspect"].sum() > 0
    first, second, third = str(audit).splitlines()
    assert first.startswith(f"{len(audit.suspects)} of 60 pairs are suspects")
    assert second == f"Mutual information: {audit.mutual_information}"
    assert third == audit.check.verdict
    ax = audit.plot_pmi(Figure().subplots())
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"{len(audit.suspects)} suspects" in words
    labels = [f"pair {number}" for number in range(60)]
    ax = audit.plot_pairs(k=2, labels=labels, ax=Figure().subplots())
    worst = audit.table.sort_values("rank")["row"].iloc[0]
    assert ax.get_yticklabels()[-1].get_text() == f"pair {worst}"
    shown = audit._repr_html_()
    assert f"{len(audit.suspects)} of 60 pairs" in shown
    assert shown.count("<tr") == 3 + 11
    assert "<b>" not in shown
    assert not {"None", "NA", "nan"} & set(re.findall(r"\w+", shown))


@pytest.mark.parametrize("swapped", [{}, {"swapped_with": {0: 1}}])
def test_on_the_terminal(capsys, swapped):
    """Swaps have a column where there is any."""
    found = make_audit([-3.0, -2.0, 1.0], better_partner={0: 1, 1: 2}, **swapped)
    print_worst(found, [None, None])
    head, *rows, legend = capsys.readouterr().out.strip().splitlines()
    assert (legend, ["*" in row for row in rows]) == ("* a suspect", list(found.table["suspect"]))
    more = ["swapped?"] if swapped else []
    assert head.split() == ["row", "PMI", "chance", "q", "better", *more, "x", "|", "y"]
    others = [["row", "1"], ["-"], ["-"]] if swapped else [[], [], []]
    for row, better, other in zip(rows, (["row", "1"], ["row", "2"], ["-"]), others, strict=True):
        assert row.split()[4:-1] == [*better, *other]
