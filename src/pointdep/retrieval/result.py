"""What a search found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointdep.display.html_repr import card, columns

_SHOWN = 5  # queries, and candidates of each, in a notebook


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The k candidates of highest PMI for each query, best first.

    indices: (n, k) int64, numbers of candidates. pmi: (n, k) float32, in nats. Candidates of equal
    PMI stand in the order of their numbers.
    exact: whether all candidates were searched by PMI itself.
    recall: where they were not, the share of the true k best that was found, measured on
        `recall_queries` of the queries; None where it was not measured.
    searched: how, in words. candidates: out of how many.
    """

    indices: NDArray[np.int64]
    pmi: NDArray[np.float32]
    exact: bool
    recall: float | None
    recall_queries: int
    searched: str
    candidates: int

    @property
    def without_partner(self) -> int:
        """Queries whose best candidate comes with them no more often than chance: PMI <= 0."""
        return int((self.pmi[:, 0] <= 0).sum())

    @property
    def quality(self) -> str:
        """How much of the true answer this is, in words."""
        if self.exact:
            return "exact"
        if self.recall is None:
            return "recall not measured"
        return f"recall {self.recall:.1%} of the true best, by {self.recall_queries} queries"

    def _repr_html_(self) -> str:
        n, k = self.indices.shape
        best = [
            (query, ", ".join(f"{i} ({v:.2f})" for i, v in zip(*pair, strict=True)))
            for query, pair in enumerate(
                zip(self.indices[:_SHOWN, :_SHOWN], self.pmi[:_SHOWN, :_SHOWN], strict=True)
            )
        ]
        rows = [
            ("first queries", f"{len(best)} of {n:,}, the best {min(k, _SHOWN)} with their PMI")
        ]
        return card(str(self), rows, table=columns(("query", "candidates"), best))

    def __str__(self) -> str:
        n, k = self.indices.shape
        return (
            f"The best {k} of {self.candidates} candidates for each of {n} queries, by "
            f"{self.searched} ({self.quality}); {self.without_partner} queries have none of PMI "
            "above 0"
        )
