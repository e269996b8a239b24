"""What an `Audit` gives: tables, words, and what a notebook shows."""

import re

import pandas as pd
import pytest

from pointdep.errors import InputError

from .report.helpers import make_audit, some_pmi


@pytest.fixture(scope="module")
def audit():
    marks = {"better_partner": {3: 7}, "better_partner_pmi": {3: 1.5}, "swapped_with": {3: 7}}
    return make_audit(some_pmi(60), labels=["<b>x</b>"] * 3 + [None] * 57, **marks)


def test_suspects_are_the_worst_first(audit):
    assert list(audit.suspects["rank"]) == list(range(1, len(audit.suspects) + 1))
    assert audit.suspects["suspect"].all()
    assert len(audit.suspects) == audit.table["suspect"].sum() > 0


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
    with pytest.raises(InputError, match=r"unknown suffix '\.txt'.*\.csv"):
        audit.to_csv(tmp_path / "rows.txt")
    with pytest.raises(InputError, match=r"unknown suffix '\.csv'.*\.html"):
        audit.to_html(tmp_path / "rows.csv")
    with pytest.raises(InputError, match="media=-1 must be at least 0"):
        audit.to_html(tmp_path / "rows.html", media=-1)
    assert list(tmp_path.iterdir()) == []


def test_in_words(audit):
    first, second, third = str(audit).splitlines()
    assert first.startswith(f"{len(audit.suspects)} of 60 pairs are suspects")
    assert second == f"Mutual information: {audit.mutual_information}"
    assert third == audit.check.verdict


def test_pictures(audit):
    from matplotlib.figure import Figure

    ax = audit.plot_pmi(Figure().subplots())
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"{len(audit.suspects)} suspects" in words
    labels = [f"pair {number}" for number in range(60)]
    ax = audit.plot_pairs(k=2, labels=labels, ax=Figure().subplots())
    worst = audit.table.sort_values("rank")["row"].iloc[0]
    assert ax.get_yticklabels()[-1].get_text() == f"pair {worst}"


def test_in_a_notebook(audit):
    shown = audit._repr_html_()
    assert f"{len(audit.suspects)} of 60 pairs" in shown
    assert shown.count("<tr") == 3 + 11
    assert "<b>" not in shown
    assert not {"None", "NA", "nan"} & set(re.findall(r"\w+", shown))
