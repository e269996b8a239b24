"""The best candidates of each query, by the shortest way that the critic allows."""

from __future__ import annotations

from collections.abc import Sized

import torch
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError, require_whole, unknown_name
from pointdep.fitting.progress import Progress, Silent
from pointdep.retrieval.index import (
    SIDES,
    CandidateIndex,
    build_index,
    other,
    query_vectors,
    require_inner,
)
from pointdep.retrieval.inner import MARGIN, nearest
from pointdep.retrieval.pairs import best_of_all, offsets, score_lists
from pointdep.retrieval.ranking import by_value_then_number
from pointdep.retrieval.recall import (
    all_pairs,
    found_share,
    needed_length,
    sample_queries,
    truth,
)
from pointdep.retrieval.result import Retrieved

_SILENT = Silent()
_QUERIES = 1 << 12  # searched at a time; FAISS takes as many
_FEW_PAIRS = 1 << 24  # by all replicas: so few are all scored, sooner than searched
_LISTED = 1 << 20  # numbers of candidates alive at a time
_SHORTEST, _USUAL, _LONGEST = 200, 1000, 5000  # lists of candidates to be scored
_PER_K = 10
_DEFAULT_K = 10


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

    queries: the side that asks; the other side holds the candidates. For the other options see
    `PointwiseDependency.retrieve`.
    """
    check_side("queries", queries)
    require_inner(model, index)
    asked, given = (x, y) if queries == "x" else (y, x)
    way = choose_way(model, len(asked), len(given), k, exact, index, shortlist)
    if way == "all":
        offset = offsets(model, x)
        found = best_of_all(
            model, asked, given, k, queries=queries, offset=offset, progress=progress
        )
        return _retrieved(found, "all pairs", given)
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
    """The same with candidates made ready; asked: (n, d), of the other side than they."""
    way = choose_way(model, len(asked), index.count, k, exact, index.kind, shortlist)
    sample = sample_queries(model, len(asked) if measure_recall else 0, index)
    if way == "lists":
        chosen_by = len(sample) // 2 if shortlist is None else 0
        length = shortlist or _length(model, asked[sample[:chosen_by]], index, k, progress)
        sample = sample[chosen_by:]  # not by those that the length was chosen by
        way = "all" if 2 * length > index.count and shortlist is None else "lists"
    if way == "all":
        return _retrieved(all_pairs(model, asked, index, k, progress), "all pairs", index)
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
        true = truth(model, asked[sample], index, k, progress)
        recall = found_share((found[0][sample], found[1][sample]), true)
    return _retrieved(found, words, index, exact=False, recall=recall, sample=len(sample))


def _length(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, progress: Progress
) -> int:
    """How long the lists shall be, by some queries whose true answer is computed."""
    if not len(asked):
        return min(max(_USUAL, _PER_K * k), index.count)
    _, best = truth(model, asked, index, k, progress)
    needed = needed_length(model, asked, index, best)
    return min(max(needed, _SHORTEST, _PER_K * k), max(_LONGEST, _PER_K * k), index.count)


def choose_way(
    model: RatioModel,
    asked: int,
    candidates: int,
    k: int,
    exact: bool,
    kind: str,
    shortlist: int | None,
) -> str:
    """ "inner" where inner products are PMI, "lists" where they choose what is scored, or "all"."""
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
    if exact or few or not model.has_inner or length >= candidates:
        return "all"
    return "lists"


def default_k(candidates: int, shortlist: int | None) -> int:
    """How many are found for each query where nobody says: what can be had, 10 at most."""
    if shortlist is not None:
        require_whole("shortlist", shortlist)
        candidates = min(candidates, shortlist)
    return min(_DEFAULT_K, candidates)


def check_side(name: str, side: str) -> None:
    if side not in SIDES:
        raise unknown_name(name, side, SIDES)


@torch.no_grad()
def _by_inner_product(
    model: RatioModel, asked: Tensor, index: CandidateIndex, k: int, wanted: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    assert index.vectors is not None
    found = []
    for rows in torch.split(asked, _QUERIES):
        vectors, own = query_vectors(model, rows, other(index.side), index.has_own)
        pmi, numbers = nearest(index.vectors, vectors, own, k, wanted)
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
    block = max(1, _LISTED // length)
    found = []
    for rows in torch.split(asked, min(block, _QUERIES)):
        vectors, _ = query_vectors(model, rows, queries, index.has_own)
        numbers = index.vectors.search(vectors, length).cpu()
        offset = offsets(model, rows) if index.offset is None else index.offset
        known = numbers.clamp(min=0)
        pmi = score_lists(model, rows, index.rows, known, queries=queries, offset=offset)
        pmi = pmi.masked_fill(numbers < 0, -torch.inf)
        pmi, numbers = by_value_then_number(pmi, numbers, k)
        short = (numbers < 0).any(1)  # IVF may look into cells that hold fewer than k
        if bool(short.any()):
            pmi[short], numbers[short] = all_pairs(model, rows[short], index, k, _SILENT)
        found.append((pmi, numbers))
        progress.update(sum(len(part[0]) for part in found), len(asked), "queries")
    pmi, numbers = (torch.cat(side) for side in zip(*found, strict=True))
    return pmi, numbers


def _retrieved(
    found: tuple[Tensor, Tensor],
    searched: str,
    candidates: Sized,
    *,
    exact: bool = True,
    recall: float | None = None,
    sample: int = 0,
) -> Retrieved:
    pmi, numbers = (part.numpy() for part in found)
    return Retrieved(numbers, pmi, exact, recall, sample, searched, len(candidates))
