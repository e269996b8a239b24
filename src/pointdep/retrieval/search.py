"""The best candidates of each query, by the shortest way that the critic allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.display.html_repr import card, columns
from pointdep.errors import InputError, require_known, require_whole
from pointdep.fitting.progress import Progress, Silent, show
from pointdep.inference.scoring import spread
from pointdep.retrieval import pairwise
from pointdep.retrieval.candidate_index import CandidateIndex, build_index, fingerprint
from pointdep.retrieval.metrics import Relevant, RetrievalMetrics, retrieval_metrics
from pointdep.retrieval.pairwise import MARGIN, Found, Vectors, other, require_inner

Encode = Callable[[Any, str], Tensor]
"""Rows as a user gives them and their side, "x" or "y" -> (n, d) as the model takes them."""

"""PMI and numbers of candidates, (n, k) each."""

SIDES = ("x", "y")
_SILENT = Silent()
_QUERIES = 1 << 12  # searched at a time
_BLOCK = 1 << 10  # of these, whose pairs are scored at a time
_CELLS = 1 << 23  # log r of all replicas, alive at a time
_LISTED_NUMBERS = 1 << 22  # that the critic keeps alive for listed pairs
_FEW_PAIRS = 1 << 24  # log r of all replicas: this many are scored sooner than searched
_LISTED = 1 << 20  # numbers of candidates alive at a time
_SHORTEST, _USUAL, _LONGEST = 200, 1000, 5000  # lists of candidates to be scored
_PER_K = 10
_DEFAULT_K = 10
_SAMPLE, _SMALLEST_SAMPLE = 200, 10  # queries whose true answer is computed
_SAMPLE_PRODUCTS, _SAMPLE_PAIRS = 1 << 27, 1 << 24  # what that may cost
_SEED = 0
_COVERED, _SLACK = 0.99, 1.25  # lists hold this share of the true best, and are this much longer
_SHOWN = 5  # queries, and candidates of each, in a notebook


@dataclass(frozen=True, eq=False)
class Retrieved:
    """The k candidates of highest PMI for each query, best first.

    Candidates of equal PMI are in the order of their numbers. If more candidates than k share the
    k-th PMI, any of them may be among the k.

    Attributes
    ----------
    indices : ndarray of int64, (n, k)
        Numbers of the candidates.
    pmi : ndarray of float32, (n, k)
        Their PMI, in nats.
    exact : bool
        Whether all candidates were searched by PMI itself.
    recall : float or None
        If not `exact`, the share of the true k best that was found; None if not measured.
    recall_queries : int
        The number of queries that `recall` was measured on.
    searched : str
        How the search was done, in words.
    candidates : int
        The number of candidates.
    min_pmi : float or None
        PMI that a candidate needs to be listed. Places without one have the number -1 and a PMI of
        NaN.
    false_matches : float or None
        With `min_pmi`, the share of queries that would get a candidate although what belongs to
        them is not among as many: measured on held-out rows, None if there are none.
    false_match_stderr : float
        Its standard error.
    held_out : int
        The rows that it was measured on. If they are fewer than the candidates, it may be more.
    """

    indices: NDArray[np.int64]
    pmi: NDArray[np.float32]
    exact: bool
    recall: float | None
    recall_queries: int
    searched: str
    candidates: int
    min_pmi: float | None = None
    false_matches: float | None = None
    false_match_stderr: float = 0.0
    held_out: int = 0

    @property
    def without_partner(self) -> int:
        """Number of queries whose best candidate has PMI <= 0: no more often than by chance.

        With `min_pmi` of those that got none.
        """
        if self.min_pmi is not None:
            return int((self.indices[:, 0] < 0).sum())
        return int((self.pmi[:, 0] <= 0).sum())

    @property
    def false_match_rate(self) -> str:
        """How often a query to which nothing belongs gets a candidate, in words."""
        if self.false_matches is None:
            return "not measured: give held-out pairs"
        least = "at least " if self.held_out < self.candidates else ""
        rate = f"{least}{self.false_matches:.2%} +- {self.false_match_stderr:.2%}"
        return (
            f"{rate} of queries to which nothing belongs get one, by {self.held_out} held-out rows"
        )

    def at_least(self, min_pmi: float, held_out: tuple[Any, Any] | None = None) -> Retrieved:
        """Without the candidates whose PMI is not above `min_pmi`.

        held_out: PMI of held-out rows, (n, m), and which of them are mismatched pairs, (n, m).
        """
        out = ~(self.pmi > min_pmi)
        found = replace(
            self,
            indices=np.where(out, -1, self.indices),
            pmi=np.where(out, np.float32(np.nan), self.pmi),
            min_pmi=min_pmi,
        )
        if held_out is None:
            return found
        pmi, mismatched = held_out
        shares = ((pmi > min_pmi) & mismatched).sum(1) / np.maximum(mismatched.sum(1), 1)
        matched = 1.0 - (1.0 - shares) ** self.candidates
        rows, error = len(pmi), float(matched.std()) / math.sqrt(len(pmi))
        told: dict[str, Any] = {"false_match_stderr": error, "held_out": rows}
        return replace(found, false_matches=float(matched.mean()), **told)

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
        first = zip(self.indices[:_SHOWN, :_SHOWN], self.pmi[:_SHOWN, :_SHOWN], strict=True)
        best = [
            (query, ", ".join(f"{i} ({v:.2f})" for i, v in zip(*pair, strict=True)))
            for query, pair in enumerate(first)
        ]
        shown = f"{len(best)} of {n:,}, the best {min(k, _SHOWN)} with their PMI"
        table = columns(("query", "candidates"), best)
        return card(str(self), [("first queries", shown)], table=table)

    def __str__(self) -> str:
        n, k = self.indices.shape
        best = f"The best {k} of {self.candidates} candidates for each of {n} queries"
        least = 0.0 if self.min_pmi is None else self.min_pmi
        none = f"{self.without_partner} queries have none of PMI above {least:g}"
        rate = "" if self.min_pmi is None else f"; false matches: {self.false_match_rate}"
        return f"{best}, by {self.searched} ({self.quality}); {none}{rate}"


def retrieve(
    model: RatioModel,
    encode: Encode,
    X: Any,
    candidates: Any,
    k: int | None,
    *,
    queries: str,
    progress: bool,
    **options: Any,
) -> Retrieved:
    """`PointwiseDependency.retrieve`, with what reads rows of either side as `encode`.

    options: those of `top_k`.
    """
    require_known("queries", queries, SIDES)
    asked = _encode_as(encode, X, queries, "queries")
    given = candidates
    if not isinstance(candidates, CandidateIndex):
        given = encode(candidates, other(queries))
    elif candidates.model_id != fingerprint(model):
        raise InputError("candidates: this index was made with another model: make it again")
    elif candidates.side == queries:
        needed = f"set queries={other(queries)!r}, or take an index of {other(queries)}"
        raise InputError(f"candidates: this index holds {queries}, like the queries: {needed}")
    with show("searching", enabled=progress, left="about") as shown:
        return top_k(model, asked, given, k, queries=queries, progress=shown, **options)


def index_candidates(
    model: RatioModel, encode: Encode, candidates: Any, *, side: str, kind: str, progress: bool
) -> CandidateIndex:
    """`PointwiseDependency.index`, with what reads rows of either side as `encode`."""
    require_known("side", side, SIDES)
    with show("indexing", enabled=progress, left="about") as shown:
        return build_index(model, _encode_as(encode, candidates, side, "side"), side, kind, shown)


def model_metrics(
    model: RatioModel,
    encode: Encode,
    X: Any,
    Y: Any,
    *,
    queries: str,
    relevant: Relevant | None,
    category_ids: Callable[[Any, str], NDArray[np.int64] | None],
    progress: bool,
    **options: Any,
) -> RetrievalMetrics:
    """`PointwiseDependency.retrieval_metrics`, with what reads rows of either side as `encode`.

    category_ids: rows as given and their side -> (n,), equal for rows of the same categories, or
    None if that side is not discrete. options: those of `retrieval_metrics`.
    """
    require_known("queries", queries, SIDES)
    x, y = encode(X, "x"), encode(Y, "y")
    asked, given = (len(x), len(y)) if queries == "x" else (len(y), len(x))
    if relevant is None and asked == given:
        ids = category_ids(Y if queries == "x" else X, other(queries))
        relevant = None if ids is None else (ids, ids)
    scores = pairwise.query_scores(model, x, y, queries)
    with show("ranking", enabled=progress, left="about") as shown:

        def watched(rows: slice) -> NDArray[np.float32]:
            found = scores(rows)
            shown.update(rows.stop, asked, "queries")
            return found

        return retrieval_metrics(watched, asked, given, relevant=relevant, **options)


def _encode_as(encode: Encode, rows: Any, side: str, option: str) -> Tensor:
    """The rows of one side; the error names the option if they could be rows of the other side."""
    try:
        return encode(rows, side)
    except InputError as error:
        try:
            encode(rows, other(side))
        except InputError:
            raise error from None
        raise InputError(f"{error}; did you mean {option}={other(side)!r}?") from None


def top_k(
    model: RatioModel,
    asked: Tensor,
    candidates: Tensor | CandidateIndex,
    k: int | None,
    *,
    queries: str = "x",
    exact: bool = False,
    index: str = "flat",
    shortlist: int | None = None,
    measure_recall: bool = True,
    progress: Progress = _SILENT,
) -> Retrieved:
    """The k candidates of highest PMI for each query.

    asked: (n, d), prepared, the queries; queries: their side; candidates: (m, e), prepared, rows of
    the other side, or an index of them. For the other options see `PointwiseDependency.retrieve`.
    """
    require_inner(model, index)
    kind = candidates.kind if isinstance(candidates, CandidateIndex) else index
    if index not in ("flat", kind):
        raise InputError(f"index={index!r} but the candidates are a {kind} index: leave it out")
    if k is None:
        if shortlist is not None:
            require_whole("shortlist", shortlist)
        k = min(_DEFAULT_K, len(candidates), shortlist or _DEFAULT_K)
    way = _choose_way(model, (len(asked), len(candidates)), k, exact, kind, shortlist)
    if isinstance(candidates, CandidateIndex):
        made = candidates
    elif way == "all":  # needs no vectors, and no fingerprint as it is not kept
        offset = pairwise.offsets(model, candidates) if queries == "y" else None
        count = len(candidates)
        made = CandidateIndex(other(queries), kind, count, "", None, False, candidates, offset)
    else:
        made = build_index(model, candidates, other(queries), kind, progress)
    run = _Search(model, made, k, progress)
    if way == "all":
        return run.result(run.all_pairs(asked), "all pairs")
    sample = run.sample_queries(len(asked) if measure_recall else 0)
    if way == "inner":
        found = run.by_inner_product(asked, min(max(k + MARGIN, shortlist or 0), made.count))
        words = f"{kind} search of inner products"
        if kind == "flat":
            return run.result(found, words)
    else:
        # Half of the sample chooses the length, so that the recall of the others is unbiased.
        chosen_by = len(sample) // 2 if shortlist is None else 0
        length = shortlist or run.needed_length(asked[sample[:chosen_by]])
        sample = sample[chosen_by:]
        if 2 * length > made.count and shortlist is None:
            return run.result(run.all_pairs(asked), "all pairs")
        found = run.by_shortlist(asked, length)
        words = f"PMI of {length} each from a {kind} search of inner products"
    here = found[0][sample], found[1][sample]
    recall = _found_share(here, run.true_best(asked[sample])) if len(sample) else None
    return run.result(found, words, (recall, len(sample)))


def _choose_way(
    model: RatioModel, sizes: tuple[int, int], k: int, exact: bool, kind: str, shortlist: int | None
) -> str:
    """ "inner" if inner products are PMI, "lists" if they choose what is scored, or "all".

    sizes: numbers of queries and of candidates.
    """
    asked, candidates = sizes
    require_whole("k", k)
    if k > candidates:
        raise InputError(f"k={k} but there are only {candidates} candidates: choose a smaller k")
    if not asked:
        raise InputError("there are no queries: give at least one row")
    if shortlist is not None:
        require_whole("shortlist", shortlist, least=k)
    if exact and kind != "flat":
        raise InputError(f"exact=True looks at all candidates, index={kind!r} does not: choose one")
    if model.inner_is_exact:
        return "inner"
    pairs = model.replicas * asked * candidates
    few = shortlist is None and kind == "flat" and pairs <= _FEW_PAIRS
    length = shortlist or max(_SHORTEST, _PER_K * k)
    return "all" if exact or few or not model.has_inner or length >= candidates else "lists"


@dataclass(frozen=True)
class _Search:
    """The ways to search for the k best. Each returns PMI and numbers, (n, k), on the CPU.

    asked: (n, d), queries of the side that the index does not hold.
    """

    model: RatioModel
    index: CandidateIndex
    k: int
    progress: Progress

    @property
    def queries(self) -> str:
        return other(self.index.side)

    @property
    def vectors(self) -> Vectors:
        assert self.index.vectors is not None
        return self.index.vectors

    @property
    def rows(self) -> Tensor:
        assert self.index.rows is not None
        return self.index.rows

    def embed(self, asked: Tensor) -> Found:
        """The queries as vectors, and their own term of PMI."""
        return pairwise.query_vectors(self.model, asked, self.queries, self.index.has_own)

    def _in_parts(self, asked: Tensor, size: int, find: Callable[[Tensor], Found]) -> Found:
        """What is found for at most `size` queries at a time."""
        found: list[Found] = []
        for rows in torch.split(asked, size):
            found.append(find(rows))
            self.progress.update(min(len(found) * size, len(asked)), len(asked), "queries")
        return _joined(found)

    @torch.no_grad()
    def by_inner_product(self, asked: Tensor, wanted: int, exhaustive: bool = False) -> Found:
        """wanted: how many to search for; exhaustive: whatever the kind of index."""

        def find(rows: Tensor) -> Found:
            return pairwise.nearest(self.vectors, *self.embed(rows), self.k, wanted, exhaustive)

        return self._in_parts(asked, _QUERIES, find)

    @torch.no_grad()
    def by_shortlist(self, asked: Tensor, length: int) -> Found:
        """By PMI itself of the `length` best by inner product."""

        def find(rows: Tensor) -> Found:
            numbers = self.vectors.search(self.embed(rows)[0], length).cpu()
            pmi = self.score_lists(rows, numbers.clamp(min=0))
            pmi = pmi.masked_fill(numbers < 0, -torch.inf)
            pmi, numbers = pairwise.best_first(pmi, numbers, self.k)
            short = (numbers < 0).any(1)  # IVF may look into cells that hold fewer than k
            if bool(short.any()):
                pmi[short], numbers[short] = replace(self, progress=_SILENT).all_pairs(rows[short])
            return pmi, numbers

        return self._in_parts(asked, min(max(1, _LISTED // length), _QUERIES), find)

    @torch.no_grad()
    def score_lists(self, asked: Tensor, numbers: Tensor) -> Tensor:
        """PMI of each query with the candidates on its list. numbers: (n, s) -> (n, s)."""
        model, given, offset = self.model, self.rows, self.offset(asked)
        width = max(model.critic.cell_width(), asked.shape[1] + given.shape[1])
        count = max(1, _LISTED_NUMBERS // (model.replicas * numbers.shape[1] * width))
        found = []
        for first in range(0, len(asked), count):
            rows = slice(first, first + count)
            alone = asked[rows].unsqueeze(1)  # (G, 1, d)
            listed = given[numbers[rows].to(given.device)]  # (G, s, e)
            sides = (alone, listed) if self.queries == "x" else (listed, alone)
            x, y = (spread(side.to(model.constant.device), model.replicas) for side in sides)
            at = numbers[rows].flatten().to(offset.device)
            own = pairwise.part_of(offset, self.queries, rows, at)
            found.append(model.log_ratio_blocks(x, y, own).mean(0).flatten(1).cpu())
        return torch.cat(found)

    @torch.no_grad()
    def all_pairs(self, asked: Tensor) -> Found:
        """By PMI of every pair, scored in blocks."""
        given, offset = self.rows, self.offset(asked)
        columns = max(1, _CELLS // (self.model.replicas * min(_BLOCK, len(asked))))
        done, total = 0, len(asked) * len(given)

        def blocks(rows: slice) -> Iterator[Tensor]:
            nonlocal done
            for first in range(0, len(given), columns):
                part = slice(first, first + columns)
                own = pairwise.part_of(offset, self.queries, rows, part)
                yield pairwise.block_pmi(self.model, asked[rows], given[part], self.queries, own)
                done += len(asked[rows]) * len(given[part])
                self.progress.update(done, total, "pairs")

        found = []
        for start in range(0, len(asked), _BLOCK):
            values, numbers = pairwise.topk_of_blocks(blocks(slice(start, start + _BLOCK)), self.k)
            found.append(pairwise.best_first(values.cpu(), numbers.cpu(), self.k))
        return _joined(found)

    def true_best(self, asked: Tensor) -> Found:
        """From all candidates, whatever the kind of index."""
        if self.index.rows is not None:
            return self.all_pairs(asked)
        wanted = min(self.k + MARGIN, self.index.count)
        return replace(self, progress=_SILENT).by_inner_product(asked, wanted, exhaustive=True)

    def offset(self, asked: Tensor) -> Tensor:
        """`offsets` of whichever side is x."""
        known = self.index.offset
        return pairwise.offsets(self.model, asked) if known is None else known

    def sample_queries(self, asked: int) -> Tensor:
        """Numbers of the queries whose true answer is computed."""
        pairs = _SAMPLE_PAIRS // self.model.replicas
        budget = _SAMPLE_PRODUCTS if self.index.rows is None else pairs
        size = min(asked, _SAMPLE, max(budget // self.index.count, _SMALLEST_SAMPLE))
        return torch.randperm(asked, generator=torch.Generator().manual_seed(_SEED))[:size]

    @torch.no_grad()
    def needed_length(self, asked: Tensor) -> int:
        """How long lists by inner product must be to hold the true best of these queries."""
        shortest = _PER_K * self.k
        if not len(asked):
            return min(max(_USUAL, shortest), self.index.count)
        best = self.true_best(asked)[1]
        ranks = pairwise.ranks_of(self.vectors, self.embed(asked)[0], best).flatten().sort().values
        needed = math.ceil(_SLACK * (1 + int(ranks[math.ceil(_COVERED * len(ranks)) - 1])))
        longest = min(max(_LONGEST, shortest), self.index.count)
        return min(max(needed, _SHORTEST, shortest), longest)

    def result(
        self, found: Found, how: str, measured: tuple[float | None, int] | None = None
    ) -> Retrieved:
        """measured: the recall and the number of queries it is from; None if nothing was missed."""
        pmi, numbers = (part.numpy() for part in found)
        recall = measured or (None, 0)
        return Retrieved(numbers, pmi, measured is None, *recall, how, self.index.count)


def _joined(parts: list[Found]) -> Found:
    pmi, numbers = (torch.cat(side).cpu() for side in zip(*parts, strict=True))
    return pmi, numbers


def _found_share(found: Found, true: Found) -> float:
    """The share of the true best that was found."""
    shares = [
        # Any of several equal candidates will do, so the value counts as well as the number.
        float((torch.isin(numbers, best) | (pmi >= least)).double().mean())
        for pmi, numbers, least, best in zip(*found, true[0][:, -1], true[1], strict=True)
    ]
    return sum(shares) / len(shares)
