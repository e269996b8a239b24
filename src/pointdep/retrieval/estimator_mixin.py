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
from pointdep.retrieval.candidate_index import CandidateIndex, read_index
from pointdep.retrieval.metrics import Relevant, RetrievalMetrics
from pointdep.retrieval.search import Retrieved, index_candidates, model_metrics, retrieve


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

        Critics that are an inner product are searched exactly, unless `index` says otherwise. With
        the default critic the closed form is searched, and PMI itself is computed for the best of
        that search. Up to some millions of pairs, all are scored.

        Parameters
        ----------
        X : array-like, (n, d)
            The queries.
        candidates : array-like, (m, e), or CandidateIndex
            Rows of the other side, or what `index` made of them.
        k : int, optional
            How many to find. By default 10, or all candidates if there are fewer.
        queries : {"x", "y"}
            The side of the queries. The candidates are the other side.
        exact : bool
            Score every pair.
        index : {"flat", "hnsw", "ivf"}
            "flat" looks at all vectors, "hnsw" and "ivf" at some: faster and less certain.
        shortlist : int, optional
            How many candidates per query are scored by PMI itself. By default as many as a sample
            of the queries needs, 5,000 at most; 1,000 without `measure_recall`.
        measure_recall : bool
            If the search is not exact, compare it with the true answer of a sample of the queries.
            The result has the share found, and the number of these queries.

        Returns
        -------
        Retrieved
            `indices` and `pmi`, (n, k) each, and how good the search was.

        Examples
        --------
        >>> import numpy as np
        >>> from pointdep import PointwiseDependency
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> model = PointwiseDependency(random_state=0, progress=False).fit(x, 3 * x + 1)
        >>> model.retrieve(x[:5], 3 * x + 1, k=2).indices.shape
        (5, 2)
        """
        check_is_fitted(self, "model_")
        return retrieve(
            self.model_,
            self._encode_side,
            X,
            candidates,
            k,
            queries=queries,
            exact=exact,
            index=index,
            shortlist=shortlist,
            measure_recall=measure_recall,
            progress=self.progress,
        )

    def index(self, candidates: Any, *, side: str = "y", kind: str = "flat") -> CandidateIndex:
        """Prepare candidates of one side for `retrieve`.

        Parameters
        ----------
        candidates : array-like, (m, d)
            Their rows.
        side : {"y", "x"}
            The side that they are of.
        kind : {"flat", "hnsw", "ivf"}
            How the index searches; see `retrieve`.

        Returns
        -------
        CandidateIndex
            To be given to `retrieve`, or saved with `save(path)`.
        """
        check_is_fitted(self, "model_")
        return index_candidates(
            self.model_,
            self._encode_side,
            candidates,
            side=side,
            kind=kind,
            progress=self.progress,
        )

    def load_index(self, path: str | Path) -> CandidateIndex:
        """Read a saved index, which must have been made with this model.

        Parameters
        ----------
        path : str or Path
            The folder that `CandidateIndex.save` wrote.

        Returns
        -------
        CandidateIndex
            As `index` made it.
        """
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

        Every pair of X and Y is scored.

        Parameters
        ----------
        X, Y : array-like, (n, d) and (m, e)
            Rows of both sides.
        queries : {"x", "y"}
            The side of the queries. The candidates are the other side.
        relevant : tuple of two arrays, optional
            As in `pointdep.retrieval_metrics`. By default candidate i is right for query i, and if
            the candidates are categories, all that have the value of candidate i.
        ks, matching, draws, distractors, random_state
            As in `pointdep.retrieval_metrics`.

        Returns
        -------
        RetrievalMetrics
            The metrics, with `to_dict()` for JSON.
        """
        check_is_fitted(self, "model_")
        return model_metrics(
            self.model_,
            self._encode_side,
            X,
            Y,
            queries=queries,
            relevant=relevant,
            category_ids=self._category_ids,
            ks=ks,
            matching=matching,
            draws=draws,
            distractors=distractors,
            random_state=random_state,
            progress=self.progress,
        )

    def _encode_side(self, rows: Any, side: str) -> Tensor:
        """Rows of one side, as the model takes them, on the CPU."""
        if rows is None:
            raise InputError(f"{side.upper()} is missing: give rows of {side}")
        encoded = self._encoder(side).encode(self._read_side(rows, side))
        return self.model_.prepare_side(torch.from_numpy(encoded), side)

    def _read_side(self, rows: Any, side: str) -> RawSide:
        return as_side(rows, side.upper(), discrete=self._encoder(side).discrete)

    def _encoder(self, side: str) -> SideEncoder:
        return self.encoder_x_ if side == "x" else self.encoder_y_

    def _category_ids(self, rows: Any, side: str) -> NDArray[np.int64] | None:
        """One number for all rows of the same categories, (n,); None for a side of numbers."""
        if not self._encoder(side).discrete:
            return None
        columns = self._read_side(rows, side).categorical
        codes = [np.unique(values, return_inverse=True)[1] for _, values in columns]
        ids: NDArray[np.int64] = np.unique(np.column_stack(codes), axis=0, return_inverse=True)[1]
        return ids.reshape(-1)  # NumPy 2.0 gives (rows, 1)
