"""Retrieval metrics, from the scores of queries with all candidates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pointdep.errors import InputError, require_known, require_whole

Relevant = tuple[ArrayLike, ArrayLike]
"""Ids of the queries, (n,), and of the candidates, (m,): equal ids are right."""

DISTRACTORS = ("random", "shifted")
_PAPER_SIZE = 5  # 1:5 matching
_SHIFT = 5  # the paper's code takes every fifth row after the right one
_SPARSE = 50  # this many times more wrong candidates than draws, and repeated ones are rare
_CELLS = 1 << 24  # scores alive at a time


@dataclass(frozen=True)
class RetrievalMetrics:
    """What `retrieval_metrics` found.

    Attributes
    ----------
    queries, candidates : int
        How many there are.
    recall : dict of int to float
        For each k, the share of queries with a right answer among their first k.
    mrr : float
        The mean of 1 / rank, for the best right answer of each query.
    median_rank : float
        The median of these ranks.
    matching : dict of int to float
        For each m, the share of queries whose right answer scores above m - 1 wrong ones.
    """

    queries: int
    candidates: int
    recall: Mapping[int, float]
    mrr: float
    median_rank: float
    matching: Mapping[int, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the keys of `recall` and `matching` are strings.

        Returns
        -------
        dict
            One entry per attribute.
        """
        return asdict(self) | {
            "recall": {str(k): share for k, share in self.recall.items()},
            "matching": {str(m): share for m, share in self.matching.items()},
        }

    def __str__(self) -> str:
        recall = ", ".join(f"{value:.1%} at {k}" for k, value in self.recall.items())
        matching = "".join(f", 1:{m} matching {v:.1%}" for m, v in self.matching.items())
        counts = f"{self.queries} queries, {self.candidates} candidates"
        ranks = f"mean reciprocal rank {self.mrr:.3f}, median rank {self.median_rank:g}"
        return f"{counts}: recall {recall}, {ranks}{matching}"


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

    The rank of a right answer is 1 + the candidates that score higher + the wrong ones that score
    the same and have a lower number. In matching too, the lower number wins among equal scores.

    Parameters
    ----------
    scores : callable
        Called with a slice of the queries, returns their scores with all candidates, (rows,
        candidates). At most about 16 million scores are requested at a time.
    queries, candidates : int
        How many there are.
    relevant : tuple of two arrays, optional
        Ids of the queries and of the candidates: equal ids are right. A query may have several
        right answers and must have one. By default candidate i is right for query i.
    ks : sequence of int
        The k of recall at k.
    matching : sequence of int, optional
        Sizes m of the choice between one right answer and m - 1 wrong candidates. By default 5,
        or none if a query has fewer than 4 wrong candidates.
    draws : int
        How often the wrong candidates of each query are drawn.
    distractors : {"random", "shifted"}
        "shifted" takes the candidates i + 5, i + 10, ... of query i, wrapping around at the end, as
        the paper's code does.
    random_state : int
        Seed of the draws.

    Returns
    -------
    RetrievalMetrics
        The metrics, with `to_dict()` for JSON.

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep import retrieval_metrics
    >>> similarity = np.eye(10)
    >>> found = retrieval_metrics(lambda rows: similarity[rows], 10, 10, ks=(1,))
    >>> found.recall[1], found.matching[5]
    (1.0, 1.0)
    """
    counts = {"queries": [queries], "candidates": [candidates], "draws": [draws], "ks": ks}
    for name, values in (counts | {"matching": matching or ()}).items():
        for value in values:
            require_whole(name, value, least=2 if name == "matching" else 1)
    require_known("distractors", distractors, DISTRACTORS)
    right = _read_relevant(relevant, queries, candidates)
    if matching is None:
        matching = (_PAPER_SIZE,) if right.fewest_wrong >= _PAPER_SIZE - 1 else ()
    games = [_Matching(m, right, distractors, draws, random_state) for m in matching]
    ranks, won = np.empty(queries), np.zeros(len(games))
    rows = max(1, _CELLS // candidates)
    for first in range(0, queries, rows):
        part = slice(first, min(first + rows, queries))
        block, wanted = np.asarray(scores(part)), (part.stop - first, candidates)
        if block.shape != wanted:
            raise InputError(f"scores({part}) has shape {block.shape}, not {wanted}")
        if np.isnan(block).any():
            raise InputError(f"scores({part}) holds NaN, which has no rank")
        for query, line in enumerate(block, first):
            answers = right.of(query)
            best = answers[np.argmax(line[answers])]  # the lowest number of equal ones
            above = np.count_nonzero(line > line[best])
            ranks[query] = 1 + above + np.count_nonzero(line[:best] == line[best])
            won += [game.share_won(line, query) for game in games]
    return RetrievalMetrics(
        queries=queries,
        candidates=candidates,
        recall={k: float((ranks <= k).mean()) for k in ks},
        mrr=float((1.0 / ranks).mean()),
        median_rank=float(np.median(ranks)),
        matching=dict(zip(matching, (won / queries).tolist(), strict=True)),
    )


@dataclass(frozen=True, eq=False)
class _Relevance:
    """Right answers: candidates sorted by id, and where those of each query begin and end.

    order: (m,). begin, end: (queries,). paired: whether candidate i is right for query i alone.
    """

    candidates: int
    order: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    paired: bool

    def of(self, query: int) -> NDArray[np.int64]:
        """The right candidates of a query, in the order of their numbers."""
        return np.asarray(self.order[self.begin[query] : self.end[query]])

    @property
    def fewest_wrong(self) -> int:
        """Wrong candidates of the query that has fewest."""
        return self.candidates - int((self.end - self.begin).max())


def _read_relevant(relevant: Any, queries: int, candidates: int) -> _Relevance:
    if relevant is None:
        if queries != candidates:
            counts = f"{queries} queries and {candidates} candidates"
            raise InputError(f"{counts} are not pairs: give relevant=(their ids, their ids)")
        numbers = np.arange(queries)
        return _Relevance(candidates, numbers, numbers, numbers + 1, True)
    if not isinstance(relevant, tuple | list) or len(relevant) != 2:
        raise InputError("relevant must be two arrays: ids of the queries and of the candidates")
    arrays = [np.asarray(values) for values in relevant]
    asked, given = (ids.astype(str) if ids.dtype == object else ids for ids in arrays)
    for name, ids, count in (("queries", asked, queries), ("candidates", given, candidates)):
        if ids.shape != (count,):
            raise InputError(f"relevant: the ids of the {name} have shape {ids.shape}, not {count}")
    _, codes = np.unique(np.concatenate([asked, given]), return_inverse=True)
    order = np.argsort(codes[queries:], kind="stable")
    sorted_codes = codes[queries:][order]
    begin = np.searchsorted(sorted_codes, codes[:queries], "left")
    end = np.searchsorted(sorted_codes, codes[:queries], "right")
    if (begin == end).any():
        query = int(np.argmax(begin == end))
        what = f"no candidate has the id of query {query}, {asked[query].item()!r}"
        raise InputError(f"relevant: {what}: leave out queries without a right answer")
    return _Relevance(candidates, order, begin, end, False)


class _Matching:
    """1:m matching of one size m: does the right answer score above m - 1 wrong ones?"""

    def __init__(self, size: int, right: _Relevance, kind: str, draws: int, seed: int) -> None:
        self.wrong, self.right, self.seed = size - 1, right, seed
        self.shifted = kind == "shifted"
        self.draws = 1 if self.shifted else draws
        what = f"matching={size} needs {self.wrong} wrong candidates for each query"
        if right.fewest_wrong < self.wrong:
            raise InputError(f"{what}, and one has only {right.fewest_wrong}: choose a smaller one")
        far = _SHIFT * self.wrong
        if self.shifted and not (right.paired and far < right.candidates):
            raise InputError(f"{what}, up to {far} rows after the only right one: use 'random'")

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
            wrong = among + np.searchsorted(answers - np.arange(len(answers)), among, side="right")
        mine, theirs = scores[chosen][:, None], scores[wrong]
        lost = (theirs > mine) | ((theirs == mine) & (wrong < chosen[:, None]))
        return float(1.0 - lost.any(1).mean())

    def _draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """(draws, wrong): different numbers below `count` in each row."""
        if count <= max(_SPARSE, self.wrong) * self.wrong:
            return np.argsort(random.random((self.draws, count)), axis=1)[:, : self.wrong]
        found = random.integers(count, size=(self.draws, self.wrong))
        while True:
            ordered = np.sort(found, axis=1)
            again = (ordered[:, 1:] == ordered[:, :-1]).any(1)
            if not again.any():
                return found
            found[again] = random.integers(count, size=(int(again.sum()), self.wrong))
