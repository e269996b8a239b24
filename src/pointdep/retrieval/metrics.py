"""How well right answers are found, from the scores of queries with all candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.retrieval.matching import DEFAULT_SIZE, DISTRACTORS, Matching
from pointdep.retrieval.relevance import Relevance, Relevant, read_relevant

__all__ = ["Relevant", "RetrievalMetrics", "retrieval_metrics"]

_CELLS = 1 << 24  # scores alive at a time


@dataclass(frozen=True)
class RetrievalMetrics:
    """What `retrieval_metrics` found.

    recall: for each k, the share of queries with a right answer among their first k.
    mrr: the mean of 1 / rank. median_rank: the median rank. Both of the best right answer.
    matching: for each m, the share of queries whose right answer scores above m - 1 wrong ones.
    """

    queries: int
    candidates: int
    recall: Mapping[int, float]
    mrr: float
    median_rank: float
    matching: Mapping[int, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the keys of `recall` and `matching` are strings there."""
        return {
            "queries": self.queries,
            "candidates": self.candidates,
            "recall": {str(k): value for k, value in self.recall.items()},
            "mrr": self.mrr,
            "median_rank": self.median_rank,
            "matching": {str(m): value for m, value in self.matching.items()},
        }

    def __str__(self) -> str:
        recall = ", ".join(f"{value:.1%} at {k}" for k, value in self.recall.items())
        matching = "".join(f", 1:{m} matching {v:.1%}" for m, v in self.matching.items())
        return (
            f"{self.queries} queries, {self.candidates} candidates: recall {recall}, mean "
            f"reciprocal rank {self.mrr:.3f}, median rank {self.median_rank:g}{matching}"
        )


def retrieval_metrics(
    scores: Callable[[slice], ArrayLike],
    queries: int,
    candidates: int,
    *,
    relevant: Relevant | None = None,
    ks: Sequence[int] = (1, 10, 100),
    matching: Sequence[int] | None = None,
    draws: int = 20,
    distractors: str = "random",
    random_state: int = 0,
) -> RetrievalMetrics:
    """Recall at k, ranks and 1:m matching of any scores.

    scores: called with a slice of the queries, gives their scores with all candidates, (rows,
        candidates). No more than some 16 million scores are asked for at a time.
    relevant: None where candidate i is right for query i; or the ids of the queries and those of
        the candidates, two arrays: equal ids are right. A query may have several right answers, but
        needs one.
    matching: sizes m of the choice: one right answer and m - 1 wrong candidates, drawn `draws`
        times. None for 5, or for nothing where a query has fewer than 4 wrong candidates. With
        distractors="shifted" these are the candidates i + 5, i + 10, ... of query i, from the start
        again after the last, as in the paper's code.

    The rank of a right answer is 1 + the candidates that score higher + the wrong ones that score
    the same and have a lower number; in matching too, of equal scores the lower number wins.
    """
    _check(queries, candidates, ks, matching or (), draws, distractors)
    right = read_relevant(relevant, queries, candidates)
    if matching is None:
        matching = (DEFAULT_SIZE,) if right.fewest_wrong >= DEFAULT_SIZE - 1 else ()
    games = [Matching(m, right, distractors, draws, random_state) for m in matching]
    ranks = np.empty(queries)
    won = np.zeros(len(games))
    rows = max(1, _CELLS // candidates)
    for first in range(0, queries, rows):
        part = slice(first, min(first + rows, queries))
        block = np.asarray(scores(part))
        if block.shape != (part.stop - first, candidates):
            raise InputError(
                f"scores({part}) has shape {block.shape}, not {part.stop - first, candidates}"
            )
        if np.isnan(block).any():
            raise InputError(f"scores({part}) holds NaN, which has no rank")
        for query, line in enumerate(block, first):
            ranks[query] = _rank(line, right, query)
            won += [game.share_won(line, query) for game in games]
    return RetrievalMetrics(
        queries=queries,
        candidates=candidates,
        recall={k: float((ranks <= k).mean()) for k in ks},
        mrr=float((1.0 / ranks).mean()),
        median_rank=float(np.median(ranks)),
        matching=dict(zip(matching, (won / queries).tolist(), strict=True)),
    )


def _rank(scores: NDArray[Any], right: Relevance, query: int) -> int:
    """Of the best right answer; scores: (candidates,)."""
    answers = right.of(query)
    best = answers[np.argmax(scores[answers])]  # the lowest number of equal ones
    above = np.count_nonzero(scores > scores[best])
    level = np.count_nonzero(scores[:best] == scores[best])
    return 1 + int(above) + int(level)


def _check(
    queries: int,
    candidates: int,
    ks: Sequence[int],
    matching: Sequence[int],
    draws: int,
    distractors: str,
) -> None:
    require_whole("queries", queries)
    require_whole("candidates", candidates)
    for k in ks:
        require_whole("ks", k)
    for m in matching:
        require_whole("matching", m, least=2)
    require_whole("draws", draws)
    if distractors not in DISTRACTORS:
        raise unknown_name("distractors", distractors, DISTRACTORS)
