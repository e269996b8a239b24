"""Which candidates are right for which query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pointdep.errors import InputError

Relevant = tuple[ArrayLike, ArrayLike]
"""Ids of the queries, (n,), and of the candidates, (m,): equal ids are right."""


@dataclass(frozen=True, eq=False)
class Relevance:
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
        found: NDArray[np.int64] = self.order[self.begin[query] : self.end[query]]
        return found

    @property
    def fewest_wrong(self) -> int:
        """Wrong candidates of the query that has fewest."""
        return self.candidates - int((self.end - self.begin).max())


def read_relevant(relevant: Relevant | None, queries: int, candidates: int) -> Relevance:
    """From what the user gave; every query must have a right answer."""
    if relevant is None:
        if queries != candidates:
            raise InputError(
                f"{queries} queries and {candidates} candidates are not pairs: give relevant=(ids "
                "of the queries, ids of the candidates)"
            )
        numbers = np.arange(queries)
        return Relevance(candidates, numbers, numbers, numbers + 1, True)
    asked, given = (_ids(values) for values in _both(relevant))
    for name, ids, count in (("queries", asked, queries), ("candidates", given, candidates)):
        if ids.shape != (count,):
            raise InputError(f"relevant: the ids of the {name} have shape {ids.shape}, not {count}")
    _, codes = np.unique(np.concatenate([asked, given]), return_inverse=True)
    order = np.argsort(codes[queries:], kind="stable")
    sorted_codes = codes[queries:][order]
    begin, end = (np.searchsorted(sorted_codes, codes[:queries], side) for side in _SIDES)
    if (begin == end).any():
        query = int(np.argmax(begin == end))
        raise InputError(
            f"relevant: no candidate has the id of query {query}, {asked[query].item()!r}: leave "
            "out queries without a right answer"
        )
    return Relevance(candidates, order, begin, end, False)


_SIDES: Any = ("left", "right")


def _both(relevant: Any) -> tuple[Any, Any]:
    if not isinstance(relevant, tuple | list) or len(relevant) != 2:
        raise InputError("relevant must be two arrays: ids of the queries and of the candidates")
    return relevant[0], relevant[1]


def _ids(values: Any) -> NDArray[Any]:
    found = np.asarray(values)
    return found.astype(str) if found.dtype == object else found
