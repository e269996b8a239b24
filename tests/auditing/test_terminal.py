"""The table of the worst rows on the terminal."""

from pointdep.cli.audit import print_worst

from .report.helpers import make_audit


def lines(capsys, **marks):
    print_worst(make_audit([-3.0, -2.0, 1.0], **marks), [None, None])
    return capsys.readouterr().out.strip().splitlines()


def test_swaps_have_a_column_where_there_is_any(capsys):
    marks = {"better_partner": {0: 1, 1: 2}, "swapped_with": {0: 1}}
    head, *rows, legend = lines(capsys, **marks)
    assert legend == "* a suspect"
    assert ["*" in row for row in rows] == list(make_audit([-3.0, -2.0, 1.0]).table["suspect"])
    assert head.split() == ["row", "PMI", "chance", "q", "better", "swapped?", "x", "|", "y"]
    assert [row.split()[4:-1] for row in rows] == [
        ["row", "1", "row", "1"],
        ["row", "2", "-"],
        ["-", "-"],
    ]


def test_without_any_there_is_none(capsys):
    head, *_ = lines(capsys, better_partner={0: 1})
    assert "swapped" not in head
