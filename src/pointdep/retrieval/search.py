"""The best candidates of each query, by the shortest way that the critic allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.cards import card, columns
from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.fitting.progress import Progress, Silent, show
from pointdep.retrieval.candidate_index import (
    CandidateIndex,
    build_index,
    fingerprint,
    require_inner,
)
from pointdep.retrieval.inner_product import MARGIN, best_first, nearest, ranks_of
from pointdep.retrieval.metrics import Relevant, RetrievalMetrics, retrieval_metrics
from pointdep.retrieval.pairwise import (
    best_of_all,
    offsets,
    other,
    query_scores,
    query_vectors,
    score_lists,
)

Encode = Callable[[Any, str], Tensor]
"""Rows as a user gives them and their side, "x" or "y" -> (n, d) as the model takes them."""

SIDES = ("x", "y")
_SILENT = Silent()
_QUERIES = 1 << 12  # searched at a time
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
        """Number of queries whose best candidate has PMI <= 0: no more often than by chance."""
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
        return (
            f"The best {k} of {self.candidates} candidates for each of {n} queries, by "
            f"{self.searched} ({self.quality}); {self.without_partner} queries have none of PMI "
            "above 0"
        )


def retrieve(
    model: RatioModel,
    encode: Encode,
    X: Any,
    candidates: Any,
    k: int | None = None,
    *,
    queries: str = "x",
    index: str = "flat",
    shortlist: int | None = None,
    progress: bool = False,
    **options: bool,
) -> Retrieved:
    """`PointwiseDependency.retrieve`, with what reads rows of either side as `encode`.

    options: exact and measure_recall.
    """
    check_side("queries", queries)
    asked = _encode_as(encode, X, queries, "queries")
    given = candidates
    if not isinstance(candidates, CandidateIndex):
        given = encode(candidates, other(queries))
    elif candidates.model_id != fingerprint(model):
        raise InputError("candidates: this index was made with another model: make it again")
    elif candidates.side == queries:
        raise InputError(
            f"candidates: this index holds {queries}, and the queries are {queries} too: set "
            f"queries={other(queries)!r}, or take an index of {other(queries)}"
        )
    elif index not in ("flat", candidates.kind):
        raise InputError(
            f"index={index!r} but the candidates are a {candidates.kind} index already: leave it "
            "out"
        )
    if k is None:
        if shortlist is not None:
            require_whole("shortlist", shortlist)
        k = min(_DEFAULT_K, len(given), shortlist or _DEFAULT_K)
    with show("searching", enabled=progress, left="about") as shown:
        if isinstance(given, CandidateIndex):
            return search(model, asked, given, k, shortlist=shortlist, progress=shown, **options)
        x, y = (asked, given) if queries == "x" else (given, asked)
        return top_k(
            model,
            x,
            y,
            k,
            queries=queries,
            index=index,
            shortlist=shortlist,
            progress=shown,
            **options,
        )


def index_candidates(
    model: RatioModel, encode: Encode, candidates: Any, *, side: str, kind: str, progress: bool
) -> CandidateIndex:
    """`PointwiseDependency.index`, with what reads rows of either side as `encode`."""
    check_side("side", side)
    rows = _encode_as(encode, candidates, side, "side")
    with show("indexing", enabled=progress, left="about") as shown:
        return build_index(model, rows, side, kind, shown)


def model_metrics(
    model: RatioModel,
    encode: Encode,
    X: Any,
    Y: Any,
    *,
    queries: str = "x",
    relevant: Relevant | None = None,
    category_ids: Callable[[Any, str], NDArray[np.int64] | None],
    progress: bool = False,
    **options: Any,
) -> RetrievalMetrics:
    """`PointwiseDependency.retrieval_metrics`, with what reads rows of either side as `encode`.

    category_ids: rows as given and their side -> (n,), equal for rows of the same categories, or
    None if that side is not discrete. options: those of `retrieval_metrics`.
    """
    check_side("queries", queries)
    x, y = encode(X, "x"), encode(Y, "y")
    asked, given = (len(x), len(y)) if queries == "x" else (len(y), len(x))
    if relevant is None and asked == given:
        ids = category_ids(Y if queries == "x" else X, other(queries))
        relevant = None if ids is None else (ids, ids)
    scores = query_scores(model, x, y, queries)
    with show("ranking", enabled=progress, left="about") as shown:

        def watched(rows: slice) -> NDArray[np.float32]:
            found = scores(rows)
            shown.update(rows.stop, asked, "queries")
            return found

        return retrieval_metrics(watched, asked, given, relevant=relevant, **options)


def check_side(name: str, side: str) -> None:
    """Refuse anything but "x" and "y"; name: the option."""
    if side not in SIDES:
        raise unknown_name(name, side, SIDES)


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
    x: Tensor,
    y: Tensor,
    k: int,
    *,
    queries: str = "x",
    exact: bool = False,
    index: str = "flat",
    shortlist: int | None = None,
    measure_recall: bool = True,
    progress: Progress = _SILENT,
) -> Retrieved:
    """The k candidates of highest PMI for each query; x: (n, dx), y: (m, dy), prepared.

    queries: the side of the queries; the candidates are the other side. For the other options see
    `PointwiseDependency.retrieve`.
    """
    check_side("queries", queries)
    require_inner(model, index)
    asked, given = (x, y) if queries == "x" else (y, x)
    way = _choose_way(model, len(asked), len(given), k, exact, index, shortlist)
    if way == "all":
        offset = offsets(model, given) if queries == "y" else None
        made = CandidateIndex(other(queries), "flat", len(given), "", None, False, given, offset)
        return _retrieved(_all_pairs(model, asked, made, k, progress), "all pairs", made)
    made = build_index(model, given, other(queries), index, progress)
    return search(
        model, asked, made, k, shortlist=shortlist, measure_recall=measure_recall, progress=progress
    )


def search(
    model: RatioModel,
    asked: Tensor,
    index: CandidateIndex,
    k: int,
    *,
    exact: bool = False,
    shortlist: int | None = None,
    measure_recall: bool = True,
    progress: Progress = _SILENT,
) -> Retrieved:
    """The same in an index; asked: (n, d), rows of the side that the index does not hold."""
    way = _choose_way(model, len(asked), index.count, k, exact, index.kind, shortlist)
    sample = _sample_queries(model, len(asked) if measure_recall else 0, index)
    if way == "lists":
        # Half of the sample chooses the length, so that the recall of the others is unbiased.
        chosen_by = len(sample) // 2 if shortlist is None else 0
        length = shortlist or _length(model, asked[sample[:chosen_by]], index, k, progress)
        sample = sample[chosen_by:]
        way = "all" if 2 * length > index.count and shortlist is None else "lists"
    if way == "all":
        return _retrieved(_all_pairs(model, asked, index, k, progress), "all pairs", index)
    if way == "inner":
        wanted = min(max(k + MARGIN, shortlist or 0), index.count)
        found = _by_inner_product(model, asked, index, k, wanted, progress)
        words = f"{index.kind} search of inner products"
        if index.kind == "flat":
            return _retrieved(found, words, index)
    else:
        found = _by_shortlist(model, asked, index, k, length, progress)
        words = f"PMI of {length} each from a {index.kind} search of inner products"
    recall = None
    if len(sample):
        true = _true_best(model, asked[sample], index, k, progress)
        recall = _found_share((found[0][sample], found[1][sample]), true)
    return _retrieved(found, words, index, exact=False, recall=recall, sample=len(sample))


def _choose_way(
    model: RatioModel,
    asked: int,
    candidates: int,
    k: int,
    exact: bool,
    kind: str,
    shortlist: int | None,
) -> str:
    """ "inner" if inner products are PMI, "lists" if they choose what is scored, or "all"."""
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


def _length(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, progress: Progress
) -> int:
    """How long the lists must be to hold the true best of some queries."""
    if not len(asked):
        return min(max(_USUAL, _PER_K * k), index.count)
    assert index.vectors is not None
    _, best = _true_best(model, asked, index, k, progress)
    vectors, _ = query_vectors(model, asked, other(index.side), index.has_own)
    ranks = ranks_of(index.vectors, vectors, best).flatten().sort().values
    needed = math.ceil(_SLACK * (1 + int(ranks[math.ceil(_COVERED * len(ranks)) - 1])))
    return min(max(needed, _SHORTEST, _PER_K * k), max(_LONGEST, _PER_K * k), index.count)


@torch.no_grad()
def _by_inner_product(
    model: RatioModel,
    asked: Tensor,
    index: CandidateIndex,
    k: int,
    wanted: int,
    progress: Progress,
    *,
    exhaustive: bool = False,
) -> tuple[Tensor, Tensor]:
    assert index.vectors is not None
    found = []
    for rows in torch.split(asked, _QUERIES):
        vectors, own = query_vectors(model, rows, other(index.side), index.has_own)
        pmi, numbers = nearest(index.vectors, vectors, own, k, wanted, exhaustive=exhaustive)
        found.append((pmi.cpu(), numbers.cpu()))
        progress.update(min(len(found) * _QUERIES, len(asked)), len(asked), "queries")
    pmi, numbers = (torch.cat(side) for side in zip(*found, strict=True))
    return pmi, numbers


@torch.no_grad()
def _by_shortlist(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, length: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    assert index.vectors is not None
    assert index.rows is not None
    queries = other(index.side)
    found = []
    for rows in torch.split(asked, min(max(1, _LISTED // length), _QUERIES)):
        vectors, _ = query_vectors(model, rows, queries, index.has_own)
        numbers = index.vectors.search(vectors, length).cpu()
        offset = offsets(model, rows) if index.offset is None else index.offset
        known = numbers.clamp(min=0)
        pmi = score_lists(model, rows, index.rows, known, queries=queries, offset=offset)
        pmi, numbers = best_first(pmi.masked_fill(numbers < 0, -torch.inf), numbers, k)
        short = (numbers < 0).any(1)  # IVF may look into cells that hold fewer than k
        if bool(short.any()):
            pmi[short], numbers[short] = _all_pairs(model, rows[short], index, k, _SILENT)
        found.append((pmi, numbers))
        progress.update(sum(len(part[0]) for part in found), len(asked), "queries")
    pmi, numbers = (torch.cat(side) for side in zip(*found, strict=True))
    return pmi, numbers


def _all_pairs(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """PMI and numbers of the k best, (n, k); every pair is scored."""
    assert index.rows is not None
    offset = offsets(model, asked) if index.offset is None else index.offset
    return best_of_all(
        model, asked, index.rows, k, queries=other(index.side), offset=offset, progress=progress
    )


def _true_best(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """PMI and numbers of the k best, (n, k), from all candidates."""
    if index.rows is not None:
        return _all_pairs(model, asked, index, k, progress)
    wanted = min(k + MARGIN, index.count)
    return _by_inner_product(model, asked, index, k, wanted, _SILENT, exhaustive=True)


def _sample_queries(model: RatioModel, asked: int, index: CandidateIndex) -> Tensor:
    """Numbers of the queries whose true answer is computed."""
    budget = _SAMPLE_PRODUCTS if index.rows is None else _SAMPLE_PAIRS // model.replicas
    size = min(asked, _SAMPLE, max(budget // index.count, _SMALLEST_SAMPLE))
    return torch.randperm(asked, generator=torch.Generator().manual_seed(_SEED))[:size]


def _found_share(found: tuple[Tensor, Tensor], true: tuple[Tensor, Tensor]) -> float:
    """The share of the true best that was found; each: PMI and numbers, (n, k)."""
    shares = [
        # Any of several equal candidates will do, so the value counts as well as the number.
        float((torch.isin(numbers, best) | (pmi >= least)).double().mean())
        for pmi, numbers, least, best in zip(*found, true[0][:, -1], true[1], strict=True)
    ]
    return sum(shares) / len(shares)


def _retrieved(
    found: tuple[Tensor, Tensor],
    searched: str,
    index: CandidateIndex,
    *,
    exact: bool = True,
    recall: float | None = None,
    sample: int = 0,
) -> Retrieved:
    pmi, numbers = (part.numpy() for part in found)
    return Retrieved(numbers, pmi, exact, recall, sample, searched, index.count)
