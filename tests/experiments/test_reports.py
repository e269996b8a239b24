"""Tables as text, figures as files that are the same each time, claims in words, and Table 1."""

import re
from importlib import import_module

import pytest
import torch
from matplotlib.figure import Figure

from pointdep.core.methods import METHODS, PAPER_METHODS, get_method
from pointdep.experiments import claims as judging
from pointdep.experiments import reports
from pointdep.experiments.claims import Finding, Measured, count, every, finding, judge_all, most
from pointdep.experiments.reports import COLOURS, MARKERS, PAPER, aligned, interval, markdown, save
from pointdep.experiments.table1 import NOTES, markdown_table, table, text_table, write_markdown
from refusals import refused

ROWS = [["name", "|error|"], ["a", "0.5"], ["longer", ""]]


def test_tables_and_words():
    assert aligned(ROWS) == "name    |error|\na           0.5\nlonger"
    assert aligned(ROWS, left=(0, 1)) == "name    |error|\na       0.5\nlonger"
    assert markdown(ROWS) == "| name | \\|error\\| |\n| --- | --- |\n| a | 0.5 |\n| longer |  |"
    values = 3, -0.0512, 999.994, 2055.0, -1e300
    assert [*map(reports.number, values)] == ["3", "-0.05", "999.99", "2.1e+03", "-1.0e+300"]
    assert (interval(-0.061, 2e5), interval(None, 1.0)) == ("[-0.06, 2.0e+05]", "[-, 1.00]")
    assert interval(None, None) == ""
    words = reports.command_line("reproduce", "table2", "a b", hidden=(3, 4), words=None, rate=0.1)
    assert words == "pointdep reproduce table2 'a b' --hidden 3,4 --rate 0.1"


@reports.style()
def made():
    figure = Figure()
    axis = figure.subplots()
    axis.plot([1, 2], color=COLOURS[0], marker=MARKERS[0], label="a")
    axis.set_title("title")
    return figure


def test_same_figure_same_files(tmp_path):
    for name in ("one", "other"):
        save(made(), tmp_path, name)
    save(made(), tmp_path, "third", ("png",))
    found = sorted(path.name for path in tmp_path.iterdir())
    both = [f"{name}.{suffix}" for name in ("one", "other") for suffix in ("pdf", "png", "svg")]
    assert found == [*both, "third.png"]
    for suffix in ("pdf", "png", "svg"):
        one, other = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "other"))
        assert one == other
        assert b"CreationDate" not in one
        assert b"<dc:date>" not in one
    assert made().axes[0].yaxis.label.get_fontsize() == 9
    assert (len(set(COLOURS)), len(set(MARKERS))) == (len(COLOURS), len(MARKERS))


def test_three_values_and_intervals():
    for answers, all_true, mostly in (
        ([True, True], True, True),
        ([True, True, False], False, True),
        ([True, None, False], False, None),
        ([True, True, None], None, True),
        ([True, False], False, False),
        ([None, False, False], False, False),
        ([None, None], None, None),
        ([], None, None),
    ):
        assert every(answers) is all_true
        assert most(answers) is mostly
    clear = Measured(1.0, 0.8, 1.2)
    assert [clear.above(limit) for limit in (0.0, 2.0, 1.1)] == [True, False, None]
    assert [clear.within(0, high) for high in (2.0, 0.5, 1.0)] == [True, False, None]


SENTENCES = [
    {"key": "a", "source": "main text", "quote": "It is so.", "rule": "r > 0."},
    {"key": "b", "source": "main text", "quote": "Not run.", "rule": "r."},
    {"key": "c", "source": "main text", "quote": "Left out.", "rule": "r."},
    {"key": "d", "source": "pointdep", "quote": "Ours.", "rule": "r < 2.", "quantity": "nats"},
]
JUDGES = {
    "a": lambda x: ([finding("r", x)], x.above()),
    "b": lambda _: ([Finding("r", missing=("cpc",))], None),
    "c": lambda _: None,
    "d": lambda x: ([Finding("s|t", 1)], False),
}


def test_claims():
    claims = judge_all(SENTENCES, JUDGES, Measured(0.5, 0.4, 0.6))
    verdicts = {"a": "holds", "b": "cannot tell", "d": "does not hold"}
    assert [(one.key, one.verdict) for one in claims] == [*verdicts.items()]
    assert claims[0].because == "r: 0.5 (0.4 to 0.6)"
    told = "Of the paper's 2 claims, 1 hold, 0 do not hold, and 1 cannot be judged."
    assert count(claims) == f"{told} Ours: d does not hold."
    text = judging.text_claims(claims, ["A note."])
    assert text.startswith('a   holds          "It is so." (main text)\n')
    assert "\nd   does not hold  Ours. (pointdep)\n" in text
    assert "Not run, and therefore open: b.\n" in text
    assert text.endswith("A note.\n")
    page = judging.markdown_claims(claims, measured="points", level="###")
    assert "### a: holds\n\n> It is so.\n>\n> (main text)\n\nRule: r > 0.\n\n" in page
    assert "|  | points (95 % interval) | paper | supports it |" in page
    assert "|  | nats | 95 % interval | supports it | note |" in page
    assert "| s\\|t | 1 |  | open |  |" in page
    first, _, ours = judging.claims_as_dicts(claims)
    assert first.keys() == {"key", "source", "quote", "rule", "verdict", "because", "findings"}
    only_in_one = {"paper", "percent", "note", "missing", "levels"}
    assert {*first["findings"][0]} ^ {*ours["findings"][0]} == only_in_one


@pytest.mark.parametrize(
    ("module", "key", "said"),
    [
        ("figure1_claims", "c1", "{REACHED:g} log(batch_size)"),
        ("figure1_claims", "g1", "the factor {MUCH:g} is ours"),
        ("figure1_claims", "l1", "over the {HIGHEST} highest levels"),
        ("figure1_claims", "p", "within {NEAR:g} of {SHIFT:g} nats"),
        ("figure2", "c", "less than {PAR:g} points below"),
        ("figure2", "e", "within {PAR:g} points of zero"),
        ("table2", "f", "at most {FEW:.0%} are something else"),
        ("figure3", "i", "within {MOST_SKEWNESS}, excess kurtosis within {MOST_KURTOSIS:g}"),
        ("figure3", "j", "agree within {NEAR:.0%}"),
        ("figure3", "m", "fewer than {FEWEST} negative"),
    ],
)
def test_rules_have_the_numbers_that_judge(module, key, said):
    judged = import_module(f"pointdep.experiments.{module}")
    sentences = PAPER["claims"][module.removesuffix("_claims")]
    (rule,) = [one["rule"] for one in sentences if one["key"] == key]
    assert said.format(**vars(judged)) in rule


# Table 1 as printed: the numbers of the equations of learning and of inference.
NUMBERS = {
    "cpc": ([], []),
    "nwj": ([], []),
    "js": ([1], []),
    "dv": ([], []),
    "smile": ([1], []),
    "variational": ([1], [7]),
    "pc": ([4], [7, 5]),
    "dm1": ([2], [7]),
    "dm2": ([3], [7]),
    "drf": ([6], [7]),
}


def numbers(text):
    return [int(found) for found in re.findall(r"Eq\. (\d+)", text)]


def test_the_equations_are_those_the_paper_names():
    assert {r["key"]: (numbers(r["learning"]), numbers(r["inference"])) for r in table()} == NUMBERS
    assert [row["group"] for row in table()] == ["baselines"] * 5 + ["the paper's own"] * 5
    assert [row["learning"] for row in table()] == [METHODS[key].learning for key in PAPER_METHODS]
    # What row and note say, measured: E_J[s], and 1/(2 eta) less for those who call it.
    (row,) = [row for row in table() if row["key"] == "dm2"]
    assert row["inference"] == "E_J[s] (Eq. 7)"
    scores = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    printed = get_method("dm2", {"corrected": False, "eta": 2.0}).inference(scores).item()
    called = get_method("dm2", {"eta": 2.0}).inference(scores).item()
    assert printed == pytest.approx(scores.diagonal().mean().item())
    assert printed - called == pytest.approx(1 / (2 * 2.0))
    (note,) = [note for note in NOTES if note.startswith("dm2")]
    assert note.endswith("the estimator that users call takes 1/(2 eta) off.")


def test_text_and_markdown(tmp_path):
    lines = text_table().splitlines()
    assert max(map(len, lines)) <= 100
    for row in table():
        at = next(k for k, line in enumerate(lines) if line.split()[:1] == [row["key"]])
        assert lines[at].endswith(row["name"])
        assert lines[at + 1].split(maxsplit=1) == ["learning", row["learning"]]
        assert lines[at + 2].split(maxsplit=1) == ["inference", row["inference"]]
    assert " ".join(NOTES[1].split()) in " ".join(text_table().split())
    path = tmp_path / "table1.md"
    write_markdown(path)
    assert path.read_text("utf-8") == markdown_table()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in markdown_table().splitlines()
        if line.startswith("| `")
    ]
    assert rows == [[f"`{r['key']}`", r["name"], r["learning"], r["inference"]] for r in table()]
    refused("is a folder", write_markdown, tmp_path)
    refused("does not exist", write_markdown, tmp_path / "no" / "table1.md")
    message = r"table1.json would hold Markdown: name it \.md"
    refused(message, write_markdown, tmp_path / "table1.json")
