"""Search by inner product alone, where that is PMI."""

from __future__ import annotations

import torch
from torch import Tensor

from pointdep.retrieval.ranking import by_value_then_number
from pointdep.retrieval.vectors import Vectors

# Found beyond k: what rounding puts just outside the first k is looked at again.
MARGIN = 8
_NUMBERS = 1 << 20  # float64 numbers alive at a time
_CELLS = 1 << 24
_COLUMNS = 1 << 14
_ROUNDING = 1e-5  # of an inner product in float32, as a share of the lengths: far above what occurs


def nearest(
    vectors: Vectors, queries: Tensor, own: Tensor, k: int, wanted: int
) -> tuple[Tensor, Tensor]:
    """PMI and numbers of the k best candidates, (n, k).

    queries: (n, d); own: (n,), their own term; wanted: how many the index is asked for.
    """
    numbers = vectors.search(queries, wanted)
    queries, own = queries.to(numbers.device), own.to(numbers.device)
    pmi = _pmi(vectors, queries, own, numbers.clamp(min=0)).masked_fill(numbers < 0, -torch.inf)
    pmi, numbers = by_value_then_number(pmi, numbers, wanted)
    doubtful = (numbers[:, :k] < 0).any(1)
    if vectors.kind == "flat" and wanted < vectors.count:
        doubtful |= pmi[:, k - 1] <= pmi[:, -1]  # more of this value may lie beyond
    pmi, numbers = pmi[:, :k], numbers[:, :k]
    if bool(doubtful.any()):
        pmi[doubtful], numbers[doubtful] = scan(vectors, queries[doubtful], own[doubtful], k)
    return pmi, numbers


def scan(vectors: Vectors, queries: Tensor, own: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same, all vectors being looked at, and of equal ones the first taken."""
    parts = []
    kept = _first_of_equals(vectors, k)
    for rows in torch.split(torch.arange(len(queries)), max(1, _CELLS // len(kept))):
        products, longest = _all_products(vectors, kept, queries[rows])
        least = products.topk(k, dim=1).values[:, -1]
        slack = _ROUNDING * longest * queries[rows].norm(dim=1)
        near = products >= (least - slack).unsqueeze(1)
        for row, close in zip(rows.tolist(), near, strict=True):
            numbers = kept[close].view(1, -1)
            pmi = _pmi(vectors, queries[row : row + 1], own[row : row + 1], numbers)
            parts.append(by_value_then_number(pmi, numbers, k))
    pmi, numbers = (torch.cat(side) for side in zip(*parts, strict=True))
    return pmi, numbers


def _first_of_equals(vectors: Vectors, k: int) -> Tensor:
    """Numbers, in their order, of all vectors but those that k equal ones precede.

    The others are never among the k best. Equal ones are looked for in each block alone.
    """
    kept = []
    for first in range(0, vectors.count, _COLUMNS):
        block = vectors.block(first, min(first + _COLUMNS, vectors.count))
        # Equal rows have equal keys and so come together; the rows themselves are then compared.
        weights = torch.linspace(1, 2, block.shape[1], dtype=torch.float64, device=block.device)
        order = (block.double() * weights).sum(1).sort(stable=True).indices
        ordered, place = block[order], torch.arange(len(block), device=block.device)
        begins = torch.ones_like(place, dtype=torch.bool)
        begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
        place = place - torch.where(begins, place, 0).cummax(0).values
        kept.append(first + order[place < k].sort().values)
    return torch.cat(kept)


def _all_products(vectors: Vectors, numbers: Tensor, queries: Tensor) -> tuple[Tensor, float]:
    """Inner products with these vectors, (n, m), and the length of the longest of them."""
    products, longest = [], 0.0
    for part in torch.split(numbers, _COLUMNS):
        block = vectors.take(part.unsqueeze(0))[0]
        products.append(queries @ block.T)
        longest = max(longest, float(block.norm(dim=1).max()))
    return torch.cat(products, 1), longest


def _pmi(vectors: Vectors, queries: Tensor, own: Tensor, numbers: Tensor) -> Tensor:
    """queries: (n, d), own: (n,), numbers: (n, k) -> (n, k) float32.

    Summed in float64 and pair by pair, so that equal vectors give equal values wherever they stand.
    """
    width = max(1, _NUMBERS // queries.shape[1])
    rows = max(1, width // numbers.shape[1])
    found = []
    for part in torch.split(torch.arange(len(queries)), rows):
        columns = [
            (vectors.take(some).double() * queries[part].double().unsqueeze(1)).sum(-1)
            for some in torch.split(numbers[part], width, dim=1)
        ]
        found.append((torch.cat(columns, 1) + own[part].double().unsqueeze(1)).float())
    return torch.cat(found)
