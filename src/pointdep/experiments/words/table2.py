"""Table 2: train on some words, match the sounds and texts of the others."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.data.word_pairs import WordPairs
from pointdep.experiments.words.matching import Matching, fixed_candidates, match
from pointdep.experiments.words.numbers import Floats
from pointdep.experiments.words.settings import CANDIDATES, Table2, words_method
from pointdep.experiments.words.training import Job, Sides, expected_seconds, split_words, train
from pointdep.fitting.progress import Progress

EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """One trial: the word that is heard, and its five candidates with their PMI, highest first."""

    heard: str
    candidates: tuple[str, ...]
    pmi: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Matched:
    """words: how many in all; test: (n,) the test words, in the order of the trials.

    curve: (epochs, methods), what each infers from the batches of an epoch while it learns.
    """

    settings: Table2
    words: int
    test: NDArray[np.str_]
    matchings: tuple[Matching, ...]
    curve: Floats
    seconds: float
    device: str

    def of(self, method: str) -> Matching | None:
        return next((found for found in self.matchings if found.method == method), None)


def run_table2(settings: Table2, pairs: WordPairs, progress: Progress | None = None) -> Matched:
    """Every method as a network of its own, all in one run."""
    start = time.perf_counter()
    sides = Sides.of(pairs, settings)
    train_rows, test = split_words(settings, len(pairs))
    trained = train(settings, sides, _jobs(settings, len(pairs)), progress)
    matchings = [
        match(trained.model, replica, sides, test, settings.draws, settings.seed)
        for replica in range(len(settings.methods))
    ]
    return Matched(
        settings,
        len(train_rows) + len(test),
        pairs.words[test],
        tuple(matchings),
        trained.curve,
        time.perf_counter() - start,
        str(sides.x.device),
    )


def expected_seconds_table2(settings: Table2, pairs: WordPairs) -> float:
    """How long `run_table2` will train here."""
    return expected_seconds(settings, Sides.of(pairs, settings), [_jobs(settings, len(pairs))])


def _jobs(settings: Table2, words: int) -> list[Job]:
    train_rows, _ = split_words(settings, words)
    return [Job(words_method(name), train_rows) for name in settings.methods]


def examples(matched: Matched, found: Matching, *, right: bool) -> list[Example]:
    """The first trials, in the random order of the test words, that went right, or wrong."""
    chosen = np.flatnonzero(found.right == right)[:EXAMPLES]
    candidates = fixed_candidates(len(matched.test))
    told = []
    for trial in chosen:
        # From the last column on, as what ties with the word's own text is before it.
        order = CANDIDATES - 1 - np.argsort(-found.scores[trial][::-1], kind="stable")
        told.append(
            Example(
                str(matched.test[trial]),
                tuple(str(matched.test[row]) for row in candidates[trial][order]),
                tuple(float(value) for value in found.pmi[trial][order]),
            )
        )
    return told
