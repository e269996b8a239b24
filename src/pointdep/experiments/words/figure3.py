"""Figure 3: PMI of the training words, by a network that saw them and by one that did not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.core.methods import get_method
from pointdep.data.word_pairs import WordPairs
from pointdep.experiments.words.numbers import Floats, Measured, ratio_of_shares
from pointdep.experiments.words.settings import Figure3
from pointdep.experiments.words.training import (
    Job,
    Sides,
    expected_seconds,
    split_words,
    steps_of,
    train,
)
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.splits import Rows
from pointdep.inference.scoring import score_replicas

PAPER_ENDINGS = ("ly", "s")
ENDINGS = (*PAPER_ENDINGS, "ing", "ed", "er", "tion")


@dataclass(frozen=True, eq=False)
class WordPmi:
    """PMI of the training words.

    Attributes
    ----------
    all_words: how many there were, with the test words.
    words: (n,), the training words.
    in_sample: (n,), by the network trained on all of them, as in the paper.
    out_of_sample: (n,), each by a network trained on the other folds.
    test: (m,), of the test words by the network of `in_sample`.
    same_sound: how many training words have the audio vector of another one.
    """

    settings: Figure3
    all_words: int
    words: NDArray[np.str_]
    in_sample: Floats
    out_of_sample: Floats
    test: Floats
    same_sound: int
    seconds: float
    device: str


@dataclass(frozen=True)
class Ending:
    """How many words with this ending there are among those with negative PMI, and among all."""

    ending: str
    negative: int
    all_negative: int
    words: int
    all_words: int
    times: Measured | None
    """How many times more often it is negative words than others that end so."""


def run_figure3(settings: Figure3, pairs: WordPairs, progress: Progress | None = None) -> WordPmi:
    """One network on all training words, then one for each fold."""
    start = time.perf_counter()
    sides = Sides.of(pairs, settings)
    rows, test = split_words(settings, len(pairs))
    whole, folds = _jobs(settings, rows)
    shown = _InTurn(progress or Silent(), settings, (whole, folds))
    seen = train(settings, sides, whole, shown.part(0)).model
    unseen = train(settings, sides, folds, shown.part(1)).model
    x, y = sides.x[rows], sides.y[rows]
    by_fold = score_replicas(unseen, x, y).double().numpy()
    held = _folds(settings, len(rows))
    return WordPmi(
        settings,
        len(pairs),
        pairs.words[rows],
        score_replicas(seen, x, y)[0].double().numpy(),
        by_fold[held, np.arange(len(rows))],
        score_replicas(seen, sides.x[test], sides.y[test])[0].double().numpy(),
        count_shared(pairs.audio[rows]),
        time.perf_counter() - start,
        str(sides.x.device),
    )


def expected_seconds_figure3(settings: Figure3, pairs: WordPairs) -> float:
    """How long `run_figure3` will train here."""
    rows, _ = split_words(settings, len(pairs))
    return expected_seconds(settings, Sides.of(pairs, settings), _jobs(settings, rows))


def _folds(settings: Figure3, rows: int) -> Rows:
    """(rows,): by which fold's network a training word is scored; rows are in random order."""
    return np.arange(rows) % settings.folds


def _jobs(settings: Figure3, rows: Rows) -> tuple[list[Job], list[Job]]:
    """The one network of all training words, and one that leaves out each fold."""
    method, held = get_method("pc"), _folds(settings, len(rows))
    shortest = min(int((held != fold).sum()) for fold in range(settings.folds))
    folds = [rows[held != fold][:shortest] for fold in range(settings.folds)]
    return [Job(method, rows)], [Job(method, own) for own in folds]


def count_shared(vectors: NDArray[np.float32]) -> int:
    """How many rows have another that is equal."""
    _, counts = np.unique(vectors, axis=0, return_counts=True)
    return int(counts[counts > 1].sum())


def endings(words: Sequence[str] | NDArray[np.str_], pmi: Floats) -> list[Ending]:
    """The endings among the words whose PMI is below zero, beside how common they are."""
    negative = pmi < 0
    found = []
    for ending in ENDINGS:
        has = np.array([str(word).endswith(ending) for word in words])
        counts = int((has & negative).sum()), int(negative.sum()), int(has.sum()), len(words)
        found.append(Ending(ending, *counts, ratio_of_shares(*counts)))
    return found


def lowest_words(found: WordPmi, ending: str, count: int) -> list[str]:
    """The words of this ending with the lowest PMI in sample, if that is negative."""
    order = np.argsort(found.in_sample, kind="stable")
    named = [
        str(found.words[row])
        for row in order[: int((found.in_sample < 0).sum())]
        if str(found.words[row]).endswith(ending)
    ]
    return named[:count]


class _InTurn:
    """Shows trainings one after the other as one piece of work, counted in steps of a network."""

    def __init__(
        self, progress: Progress, settings: Figure3, turns: Sequence[Sequence[Job]]
    ) -> None:
        self.progress = progress
        self.work = [len(jobs) * steps_of(settings, len(jobs[0].rows)) for jobs in turns]

    def part(self, turn: int) -> Progress:
        return _Part(self.progress, sum(self.work[:turn]), self.work[turn], sum(self.work))


@dataclass(frozen=True)
class _Part:
    progress: Progress
    before: int
    work: int
    all_work: int

    def update(self, done: int, total: int, detail: str = "") -> None:
        share = self.work * done // total
        self.progress.update(self.before + share, self.all_work, f"{detail} of a network")
