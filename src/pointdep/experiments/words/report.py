"""The folders that Table 2 and Figure 3 leave: pages, tables, claims and how they were made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pointdep.data.writers import write_table
from pointdep.experiments.environment import environment
from pointdep.experiments.words.claims import Claim
from pointdep.experiments.words.claims_figure3 import judge_figure3
from pointdep.experiments.words.claims_table2 import accuracy, judge_table2
from pointdep.experiments.words.claims_text import markdown_claims
from pointdep.experiments.words.draw import write_figure
from pointdep.experiments.words.figure3 import WordPmi, endings
from pointdep.experiments.words.matching import Matching, fixed_candidates
from pointdep.experiments.words.numbers import Floats, mean, share
from pointdep.experiments.words.table2 import Matched, examples
from pointdep.experiments.words.tables import markdown_figure3, markdown_table2


def write_table2(matched: Matched, folder: Path) -> list[Claim]:
    """table2.md, trials.csv (every candidate), training.csv, claims.md, results.json."""
    claims = judge_table2(matched)
    (folder / "table2.md").write_text(markdown_table2(matched), "utf-8")
    _write_claims(claims, matched.settings, matched.words, folder)
    _write_trials(matched, folder / "trials.csv")
    _write_training(matched, folder / "training.csv")
    content = {
        "command": matched.settings.command,
        **environment(matched.device),
        "settings": asdict(matched.settings),
        **table2_as_dict(matched, claims),
    }
    _write_json(content, folder)
    return claims


def write_figure3(found: WordPmi, folder: Path) -> list[Claim]:
    """figure3.png, .svg, .pdf, table.md, pmi.csv (every word), claims.md, results.json."""
    claims = judge_figure3(found)
    (folder / "table.md").write_text(markdown_figure3(found), "utf-8")
    _write_claims(claims, found.settings, found.all_words, folder)
    order = np.argsort(found.in_sample, kind="stable")
    columns = {
        "word": found.words[order],
        "in_sample": found.in_sample[order],
        "out_of_sample": found.out_of_sample[order],
    }
    write_table(folder / "pmi.csv", columns)
    write_figure(found, folder)
    content = {
        "command": found.settings.command,
        **environment(found.device),
        "settings": asdict(found.settings),
        **figure3_as_dict(found, claims),
    }
    _write_json(content, folder)
    return claims


def table2_as_dict(matched: Matched, claims: Sequence[Claim]) -> dict[str, Any]:
    """The run for a program."""
    return {
        "words": matched.words,
        "test": len(matched.test),
        "seconds": matched.seconds,
        "matching": [_matching_as_dict(found) for found in matched.matchings],
        "examples": [
            {"method": found.method, "right": right, **asdict(example)}
            for found in matched.matchings
            for right in (True, False)
            for example in examples(matched, found, right=right)
        ],
        "claims": claims_as_dicts(claims),
    }


def _matching_as_dict(found: Matching) -> dict[str, Any]:
    own = accuracy(found)
    return {
        "method": found.method,
        "accuracy": own.value,
        "low": own.low,
        "high": own.high,
        "random_accuracy": float(found.drawn.mean()),
        "random_sd": float(found.drawn.std(ddof=1)),
        "places": [int((found.ranks == place).sum()) for place in range(1, found.pmi.shape[1] + 1)],
        "above": float(found.above.mean()),
        "median_place": float(np.median(found.ranks_of_all)),
        "positive": found.positive,
        "at_limit": found.at_floor,
        "tied": found.tied,
        "mean_pmi": float(found.pmi[:, 0].mean()),
    }


def figure3_as_dict(found: WordPmi, claims: Sequence[Claim]) -> dict[str, Any]:
    """The run for a program."""
    return {
        "words": found.all_words,
        "train": len(found.words),
        "same_sound": found.same_sound,
        "seconds": found.seconds,
        "pmi": [
            _pmi_as_dict(name, values)
            for name, values in (
                ("in_sample", found.in_sample),
                ("out_of_sample", found.out_of_sample),
                ("test", found.test),
            )
        ],
        "endings": [
            {
                "ending": line.ending,
                "words": line.words,
                "where": where,
                "negative": line.negative,
                "times": None if line.times is None else line.times.value,
                "low": None if line.times is None else line.times.low,
                "high": None if line.times is None else line.times.high,
            }
            for where, values in (
                ("in_sample", found.in_sample),
                ("out_of_sample", found.out_of_sample),
            )
            for line in endings(found.words, values)
        ],
        "claims": claims_as_dicts(claims),
    }


def _pmi_as_dict(name: str, values: Floats) -> dict[str, Any]:
    middle = mean(values)
    below = share(int((values < 0).sum()), len(values))
    assert below is not None
    return {
        "of": name,
        "mean": middle.value,
        "low": middle.low,
        "high": middle.high,
        "sd": float(values.std()),
        "negative": int((values < 0).sum()),
        "negative_share": below.value,
        "negative_low": below.low,
        "negative_high": below.high,
    }


def claims_as_dicts(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Each claim with its reason in one line and its findings."""
    return [{**asdict(one), "because": one.because} for one in claims]


def _write_claims(claims: Sequence[Claim], settings: Any, words: int, folder: Path) -> None:
    (folder / "claims.md").write_text(markdown_claims(claims, settings, words), "utf-8")


def _write_trials(matched: Matched, path: Path) -> None:
    """A line a candidate: method, the word that is heard, the word that is read, their PMI."""
    candidates = fixed_candidates(len(matched.test))
    n, five = candidates.shape
    methods = [found.method for found in matched.matchings]
    columns = {
        "method": np.repeat(methods, n * five),
        "heard": np.tile(np.repeat(matched.test, five), len(methods)),
        "read": np.tile(matched.test[candidates].ravel(), len(methods)),
        "pmi": np.concatenate([found.pmi.ravel() for found in matched.matchings]),
    }
    write_table(path, columns)


def _write_training(matched: Matched, path: Path) -> None:
    """A line an epoch, a column a method."""
    epochs = {"epoch": np.arange(1, len(matched.curve) + 1)}
    write_table(path, epochs | dict(zip(matched.settings.methods, matched.curve.T, strict=True)))


def _write_json(content: dict[str, Any], folder: Path) -> None:
    text = json.dumps(content, indent=1, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", "utf-8")
