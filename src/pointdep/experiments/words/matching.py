"""1:5 matching: the text of a word among those of four others, asked for by its sound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pointdep.core.ratio import RatioModel
from pointdep.experiments.words.numbers import Floats
from pointdep.experiments.words.settings import CANDIDATES, SHIFT
from pointdep.experiments.words.training import Sides
from pointdep.fitting.splits import Rows

Scores = NDArray[np.float32]
Candidates = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matching:
    """What one method makes of the test words.

    Attributes
    ----------
    scores, pmi: (n, 5), of the sound of each test word with its candidates, its own text first.
        Of scores beyond a limit of the read-out, PMI is the same: it is the score that ranks.
    ranks: (n,), the place of its own text among the five, 1 the highest score.
    drawn: (draws,), share of rank 1 when the four others are drawn at random.
    ranks_of_all: (n,), its place among the texts of all test words.
    positive: share of the mismatched pairs of all test words whose PMI is positive.
    at_floor: share of the candidates at a limit of the method's read-out.
    """

    method: str
    scores: Scores
    pmi: Scores
    ranks: Rows
    drawn: Floats
    ranks_of_all: Rows
    positive: float
    at_floor: float

    @property
    def right(self) -> NDArray[np.bool_]:
        """(n,): whose own text has the highest score."""
        first: NDArray[np.bool_] = self.ranks == 1
        return first

    @property
    def tied(self) -> float:
        """Share of the other candidates whose score is that of the word's own text."""
        return float((self.scores[:, 1:] == self.scores[:, :1]).mean())

    @property
    def above(self) -> Floats:
        """(n,): share of the other test words' texts that its own is above."""
        n = len(self.ranks_of_all)
        shares: Floats = (n - self.ranks_of_all) / (n - 1)
        return shares


def fixed_candidates(n: int) -> Candidates:
    """(n, 5): the row itself, and those 5, 10, 15 and 20 after it, as the released notebook has."""
    return (np.arange(n)[:, None] + SHIFT * np.arange(CANDIDATES)) % n


def random_candidates(n: int, random: np.random.Generator) -> Candidates:
    """(n, 5): the row itself, and four different others."""
    steps = random.integers(1, n, size=(n, CANDIDATES - 1))
    while True:
        ordered = np.sort(steps, 1)
        again = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not again.any():
            return (np.arange(n)[:, None] + np.pad(steps, ((0, 0), (1, 0)))) % n
        steps[again] = random.integers(1, n, size=(int(again.sum()), CANDIDATES - 1))


def ranks_of_first(scores: Scores) -> Rows:
    """(n, m) -> (n,): the place of column 0, 1 the highest; what it ties with is before it.

    A network whose scores are all the same has then found nothing, where the first of the highest
    would find everything. A score that is not a number is last.
    """
    beaten = scores[:, 1:] < scores[:, :1]
    ranks: Rows = 1 + (~beaten).sum(1)
    return ranks


def match(
    model: RatioModel, replica: int, sides: Sides, test: Rows, draws: int, seed: int
) -> Matching:
    """Match the test rows, in their order, by one replica."""
    one = model.select([replica])
    scores = all_scores(one, sides, test)
    n = len(test)
    rows, fixed = np.arange(n)[:, None], fixed_candidates(n)
    random = np.random.default_rng([seed, 6])
    drawn = [
        float((ranks_of_first(scores[rows, random_candidates(n, random)]) == 1).mean())
        for _ in range(draws)
    ]
    among = scores[rows, fixed]
    pmi = read_out(one, among)
    limited = one.at_limit(torch.from_numpy(pmi)[None])
    own = scores.diagonal()[:, None]
    below = (scores < own).sum(1)  # its own is not below itself
    positive = int((read_out(one, scores) > 0).sum()) - int((pmi[:, 0] > 0).sum())
    return Matching(
        method=one.methods[0].key,
        scores=among,
        pmi=pmi,
        ranks=ranks_of_first(among),
        drawn=np.array(drawn),
        ranks_of_all=n - below,
        positive=positive / (n * (n - 1)),
        at_floor=float(limited.float().mean()),
    )


@torch.no_grad()
def all_scores(model: RatioModel, sides: Sides, rows: Rows) -> Scores:
    """The scores of one replica, sound by text, (n, n)."""
    index = torch.from_numpy(rows).to(sides.x.device)
    x, y = sides.x[index][None], sides.y[index][None]
    scores: Scores = model.critic.matrix_in_blocks(x, y)[0].cpu().numpy()
    return scores


def read_out(model: RatioModel, scores: Scores) -> Scores:
    """PMI of scores of any shape; a function of the pair, whoever sits beside it."""
    pmi: Scores = model.methods[0].read_out(torch.from_numpy(scores)).numpy()
    return pmi
