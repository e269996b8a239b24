"""1:m matching: does the right answer score above m - 1 wrong ones?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.errors import InputError
from pointdep.retrieval.relevance import Relevance

DISTRACTORS = ("random", "shifted")
DEFAULT_SIZE = 5  # the paper's
_SHIFT = 5  # the paper's code takes every fifth row after the right one
_SPARSE = 50  # times as many wrong candidates as are drawn, or more: equal ones are then rare


class Matching:
    """The game of one size m, for any query."""

    def __init__(
        self, size: int, right: Relevance, distractors: str, draws: int, seed: int
    ) -> None:
        self.wrong, self.right, self.seed = size - 1, right, seed
        self.shifted = distractors == "shifted"
        self.draws = 1 if self.shifted else draws
        if self.shifted and not (right.paired and _SHIFT * self.wrong < right.candidates):
            raise InputError(
                f"distractors='shifted' with matching={size} needs one right candidate for "
                f"each query, and more than {_SHIFT * self.wrong} of them: use distractors='random'"
            )
        if right.fewest_wrong < self.wrong:
            raise InputError(
                f"matching={size} needs {self.wrong} wrong candidates for each query, and one has "
                f"only {right.fewest_wrong}: choose a smaller one, or matching=()"
            )

    def share_won(self, scores: NDArray[Any], query: int) -> float:
        """The share of draws in which the right answer comes first; scores: (candidates,)."""
        answers = self.right.of(query)
        if self.shifted:
            steps = _SHIFT * np.arange(1, self.wrong + 1)
            chosen, wrong = answers, (query + steps)[None] % self.right.candidates
        else:
            # A generator of its own, so that a query's draws do not depend on the others.
            random = np.random.default_rng([self.seed, self.wrong, query])
            chosen = answers[random.integers(len(answers), size=self.draws)]
            among = self._draw(random, self.right.candidates - len(answers))
            # The j-th wrong candidate has j + (right ones before it) as its number.
            before = np.searchsorted(answers - np.arange(len(answers)), among, side="right")
            wrong = among + before
        mine, theirs = scores[chosen][:, None], scores[wrong]
        lost = (theirs > mine) | ((theirs == mine) & (wrong < chosen[:, None]))
        return float(1.0 - lost.any(1).mean())

    def _draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """(draws, wrong) different numbers below `count` in each row."""
        if count <= max(_SPARSE, self.wrong) * self.wrong:
            keys = random.random((self.draws, count))
            return np.argsort(keys, axis=1)[:, : self.wrong]
        found = random.integers(count, size=(self.draws, self.wrong))
        while True:
            ordered = np.sort(found, axis=1)
            again = (ordered[:, 1:] == ordered[:, :-1]).any(1)
            if not again.any():
                return found
            found[again] = random.integers(count, size=(int(again.sum()), self.wrong))
