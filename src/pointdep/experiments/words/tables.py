"""Matching, examples, PMI and endings as text: for a terminal and for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pointdep.experiments.text import aligned, markdown
from pointdep.experiments.words.claims_table2 import PAPER_ACCURACY, accuracy
from pointdep.experiments.words.claims_text import departures
from pointdep.experiments.words.figure3 import WordPmi, endings
from pointdep.experiments.words.matching import Matching
from pointdep.experiments.words.numbers import Measured, mean, share
from pointdep.experiments.words.table2 import Example, Matched, examples

WIDTH = 100
_COUNTED = (
    "Share of trials in which a word's own text is above that of four other test words, asked for "
    "by its sound. Fixed: the released notebook's candidates, 5, 10, 15 and 20 rows further; "
    "random: mean and standard deviation over {draws} draws; chance is 20 %. Median place: of its "
    "own text among all {n:,} test words. At limit: candidates whose PMI stops at a limit of "
    "the read-out (matching is by the score, which has none). Tied: others with the very score of "
    "the own text, which count as above it."
)
_CHOSEN = "The first {count} trials of each kind, in the random order of the test words."


def matching_rows(matched: Matched) -> list[list[str]]:
    """A header and a line a method."""
    names = (
        "method",
        "fixed",
        "95 % interval",
        "random",
        "paper",
        "median place",
        "at limit",
        "tied",
    )
    rows = [list(names)]
    return rows + [_matching_row(found) for found in matched.matchings]


def _matching_row(found: Matching) -> list[str]:
    own, paper = accuracy(found), PAPER_ACCURACY.get(found.method)
    return [
        found.method,
        f"{own.value:.2%}",
        f"{own.low:.2%} to {own.high:.2%}",
        f"{found.drawn.mean():.2%} ({found.drawn.std(ddof=1):.2%})",
        "" if paper is None else f"{paper:.2%}",
        f"{sorted(found.ranks_of_all)[len(found.ranks_of_all) // 2]:,}",
        f"{found.at_floor:.1%}",
        f"{found.tied:.1%}",
    ]


def example_rows(told: Sequence[Example], bold: str = "") -> list[list[str]]:
    """A header and a line a trial; its own text between `bold`."""
    rows = [["heard", *(f"{place}." for place in range(1, 6))]]
    for example in told:
        cells = [
            f"{word} ({value:.2f})"
            for word, value in zip(example.candidates, example.pmi, strict=True)
        ]
        mark = [bold if word == example.heard else "" for word in example.candidates]
        rows.append([example.heard, *(f"{m}{c}{m}" for m, c in zip(mark, cells, strict=True))])
    return rows


def counted(matched: Matched) -> str:
    """What the columns of the matching are."""
    return _COUNTED.format(draws=matched.settings.draws, n=len(matched.test))


def text_table2(matched: Matched) -> str:
    """The matching, and examples of its first method."""
    parts = [aligned(matching_rows(matched)), textwrap.fill(counted(matched), WIDTH)]
    found = matched.matchings[0]
    for right, name in ((True, "right"), (False, "wrong")):
        told = examples(matched, found, right=right)
        if told:
            parts.append(f"{found.method}, {name}: text ranked by PMI, its own between *")
            parts.append("\n".join(_text_example(example) for example in told))
    return "\n\n".join(parts) + "\n"


def _text_example(example: Example) -> str:
    cells = example_rows([example], bold="*")[1]
    return textwrap.fill(
        f"{cells[0]}: {', '.join(cells[1:])}", WIDTH, initial_indent="  ", subsequent_indent="    "
    )


def markdown_table2(matched: Matched) -> str:
    """The page of Table 2."""
    parts = [
        "# Table 2: whose text is it, by the sound?",
        *departures(matched.settings, matched.words),
        markdown(matching_rows(matched)),
        counted(matched),
    ]
    for found in matched.matchings:
        for right, name in ((True, "right"), (False, "wrong")):
            told = examples(matched, found, right=right)
            if not told:
                continue
            own = accuracy(found)
            part = own.value if right else 1 - own.value
            parts.append(f"## {found.method}, matched {name} ({part:.2%} of the trials)")
            parts += [
                "Texts ranked by PMI, in nats; the word's own in bold. "
                + _CHOSEN.format(count=len(told)),
                markdown(example_rows(told, bold="**")),
            ]
    return "\n\n".join(parts) + "\n"


def pmi_rows(found: WordPmi) -> list[list[str]]:
    """A header and a line for PMI in sample, out of sample and of the test words."""
    rows = [["PMI, nats", "words", "mean", "sd", "lowest", "median", "highest", "below zero"]]
    for name, values in (
        ("in sample", found.in_sample),
        ("out of sample", found.out_of_sample),
        ("test words", found.test),
    ):
        below = share(int((values < 0).sum()), len(values))
        assert below is not None
        cells = [mean(values).value, values.std(), values.min(), sorted(values)[len(values) // 2]]
        rows.append(
            [name, f"{len(values):,}", *(f"{cell:.2f}" for cell in (*cells, values.max())),
             f"{round(below.value * below.n):,} ({below.value:.2%})"]
        )  # fmt: skip
    return rows


def ending_rows(found: WordPmi) -> list[list[str]]:
    """A header and a line an ending: among the words below zero, and among all."""
    rows = [["ending", "all words", "in sample", "times", "out of sample", "times"]]
    seen = endings(found.words, found.in_sample)
    unseen = endings(found.words, found.out_of_sample)
    for one, other in zip(seen, unseen, strict=True):
        cells = [f'"{one.ending}"', f"{one.words:,} ({one.words / one.all_words:.1%})"]
        for line in (one, other):
            part = line.negative / line.all_negative if line.all_negative else 0.0
            cells += [f"{line.negative:,} ({part:.1%})", _times(line.times)]
        rows.append(cells)
    return rows


def _times(measured: Measured | None) -> str:
    if measured is None:
        return "-"
    return f"{measured.value:.2f} ({measured.low:.2f} to {measured.high:.2f})"


_ABOUT_PMI = (
    "In sample, as in the paper: by the network that learned from these words. Out of sample: the "
    "same words, each by one of {folds} networks that did not see it. Test words: by the network "
    "of the first line."
)
_ABOUT_ENDINGS = (
    "Words with each ending: of all training words, and of those below zero, in sample and out of "
    "sample; times: how much more often those end so than the others, with a 95 % interval."
)


def text_figure3(found: WordPmi) -> str:
    """PMI and endings."""
    parts = [
        aligned(pmi_rows(found)),
        textwrap.fill(_ABOUT_PMI.format(folds=found.settings.folds), WIDTH),
        aligned(ending_rows(found)),
        textwrap.fill(_ABOUT_ENDINGS, WIDTH),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_figure3(found: WordPmi) -> str:
    """The page of Figure 3's numbers."""
    parts = [
        "# Figure 3 in numbers",
        *departures(found.settings, found.all_words),
        markdown(pmi_rows(found)),
        _ABOUT_PMI.format(folds=found.settings.folds),
        markdown(ending_rows(found)),
        _ABOUT_ENDINGS,
    ]
    return "\n\n".join(parts) + "\n"
