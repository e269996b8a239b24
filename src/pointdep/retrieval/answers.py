"""The calls of a fitted estimator that search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.data.sides import RawSide, SideEncoder, as_side
from pointdep.errors import InputError
from pointdep.fitting.progress import show
from pointdep.retrieval.index import CandidateIndex, build_index, fingerprint, other
from pointdep.retrieval.metrics import Relevant, RetrievalMetrics, retrieval_metrics
from pointdep.retrieval.result import Retrieved
from pointdep.retrieval.saved import read_index
from pointdep.retrieval.scores import query_scores
from pointdep.retrieval.search import check_side, default_k, search, top_k


class Retrieval:
    """Search by PMI, for an estimator with a fitted model and its encoders."""

    model_: RatioModel
    encoder_x_: SideEncoder
    encoder_y_: SideEncoder
    progress: bool

    def retrieve(
        self,
        X: Any,
        candidates: Any,
        k: int | None = None,
        *,
        queries: str = "x",
        exact: bool = False,
        index: str = "flat",
        shortlist: int | None = None,
        measure_recall: bool = True,
    ) -> Retrieved:
        """The k candidates of highest PMI for each row of X, best first.

        queries: "x" where the rows of X are x, and the candidates y; "y" for the other direction.
        candidates: rows of the other side, or what `index` made of them.
        k: None for 10, or all candidates where there are fewer.
        exact: score every pair. Critics that are an inner product are searched exactly in any case
            (unless `index` says otherwise); of the default critic the closed form is searched, and
            PMI itself computed for the best of that search. Where pairs are
            few, some millions, all are scored.
        shortlist: how many those are; None for as many as some queries with a known answer need,
            5,000 at the most, or 1,000 without `measure_recall`.
        index: "flat" looks at all vectors, "hnsw" and "ivf" at some, which is faster and less sure.
        measure_recall: where the search is not exact, compare it with the true answer of some
            queries; the result says by how many and what share was found.
        """
        check_is_fitted(self, "model_")
        check_side("queries", queries)
        asked = self._encode_side(X, queries, f"did you mean queries={other(queries)!r}?")
        if not isinstance(candidates, CandidateIndex):
            given = self._encode_side(candidates, other(queries))
            sides = (asked, given)
            k = default_k(len(given), shortlist) if k is None else k
            with show("searching", enabled=self.progress, left="about") as progress:
                return top_k(
                    self.model_,
                    *(sides if queries == "x" else sides[::-1]),
                    k,
                    queries=queries,
                    exact=exact,
                    index=index,
                    shortlist=shortlist,
                    measure_recall=measure_recall,
                    progress=progress,
                )
        self._require_own(candidates, queries, index)
        k = default_k(len(candidates), shortlist) if k is None else k
        with show("searching", enabled=self.progress, left="about") as progress:
            return search(
                self.model_,
                asked,
                candidates,
                k,
                exact=exact,
                shortlist=shortlist,
                measure_recall=measure_recall,
                progress=progress,
            )

    def index(self, candidates: Any, *, side: str = "y", kind: str = "flat") -> CandidateIndex:
        """Candidates of one side made ready for `retrieve`: "flat", "hnsw" or "ivf"."""
        check_is_fitted(self, "model_")
        check_side("side", side)
        rows = self._encode_side(candidates, side, f"did you mean side={other(side)!r}?")
        with show("indexing", enabled=self.progress, left="about") as progress:
            return build_index(self.model_, rows, side, kind, progress)

    def load_index(self, path: str | Path) -> CandidateIndex:
        """Read an index that was saved; it must have been made with this model."""
        check_is_fitted(self, "model_")
        return read_index(Path(path), self.model_)

    def retrieval_metrics(
        self,
        X: Any,
        Y: Any,
        *,
        queries: str = "x",
        relevant: Relevant | None = None,
        ks: Sequence[int] = (1, 10, 100),
        matching: Sequence[int] | None = None,
        draws: int = 20,
        distractors: str = "random",
        random_state: int = 0,
    ) -> RetrievalMetrics:
        """How well the right candidates are found: recall at k, mean reciprocal rank, 1:m matching.

        Every pair of X and Y is scored. The options are those of `pointdep.retrieval_metrics`, but
        where the candidates are categories and `relevant` is None, all that have the value of
        candidate i are right for query i.
        """
        check_is_fitted(self, "model_")
        check_side("queries", queries)
        x, y = self._encode_side(X, "x"), self._encode_side(Y, "y")
        asked, given = (len(x), len(y)) if queries == "x" else (len(y), len(x))
        side = other(queries)
        if relevant is None and asked == given and self._encoder(side).discrete:
            ids = _ids_by_value(self._read_side(Y if side == "y" else X, side))
            relevant = (ids, ids)
        scores = query_scores(self.model_, x, y, queries)

        with show("ranking", enabled=self.progress, left="about") as progress:

            def watched(rows: slice) -> NDArray[np.float32]:
                found = scores(rows)
                progress.update(rows.stop, asked, "queries")
                return found

            return retrieval_metrics(
                watched,
                asked,
                given,
                relevant=relevant,
                ks=ks,
                matching=matching,
                draws=draws,
                distractors=distractors,
                random_state=random_state,
            )

    def _encode_side(self, rows: Any, side: str, hint: str = "") -> Tensor:
        """Rows of one side, as the model takes them, on the CPU.

        hint: ends the error about rows that are none of this side, but could be of the other.
        """
        if rows is None:
            raise InputError(f"{side.upper()} is missing: give rows of {side}")
        try:
            encoded = self._encoder(side).encode(self._read_side(rows, side))
        except InputError as error:
            if hint and self._can_be(rows, other(side)):
                raise InputError(f"{error}; {hint}") from None
            raise
        return self.model_.prepare_side(torch.from_numpy(encoded), side)

    def _can_be(self, rows: Any, side: str) -> bool:
        try:
            self._encoder(side).encode(self._read_side(rows, side))
        except InputError:
            return False
        return True

    def _read_side(self, rows: Any, side: str) -> RawSide:
        return as_side(rows, side.upper(), discrete=self._encoder(side).discrete)

    def _encoder(self, side: str) -> SideEncoder:
        return self.encoder_x_ if side == "x" else self.encoder_y_

    def _require_own(self, made: CandidateIndex, queries: str, kind: str) -> None:
        """Refuse an index of another model, or of the side that asks."""
        if made.model_id != fingerprint(self.model_):
            raise InputError("candidates: this index was made with another model: make it again")
        if made.side == queries:
            raise InputError(
                f"candidates: this index holds {made.side}, and the queries are {queries} too: set "
                f"queries={other(queries)!r}, or take an index of {other(queries)}"
            )
        if kind not in ("flat", made.kind):
            raise InputError(
                f"index={kind!r} but the candidates are a {made.kind} index already: leave it out"
            )


def _ids_by_value(raw: RawSide) -> NDArray[np.int64]:
    """One number for all rows of the same categories, (rows,)."""
    codes = [np.unique(values, return_inverse=True)[1] for _, values in raw.categorical]
    ids: NDArray[np.int64] = np.unique(np.column_stack(codes), axis=0, return_inverse=True)[1]
    return ids.reshape(-1)  # NumPy 2.0 gives (rows, 1)
