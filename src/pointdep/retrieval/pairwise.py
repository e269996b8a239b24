"""PMI of queries with candidates: by inner products of vectors, of all pairs, or of short lists."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError, ModelFileError, require_known
from pointdep.inference.scoring import spread

Found = tuple[Tensor, Tensor]
KINDS = ("flat", "hnsw", "ivf")
"""How an index searches: all vectors, a graph of neighbours, or the nearest of many cells."""

# Found in addition to the k best: rounding in float32 may put one of these just behind them.
MARGIN = 8
_NUMBERS = 1 << 20  # float64 numbers alive at a time
_QUERIES = 1 << 10  # by so many vectors at a time, where torch searches
_COLUMNS = 1 << 14
_LINKS, _BREADTH = 32, 128  # HNSW: neighbours of each vector, and vectors kept in view
_TRAINING = 64  # vectors per IVF cell that place the cells
_PROBED = 16  # IVF looks into one of this many cells
_SEED = 0


class FlatVectors:
    """All vectors in one tensor: on the model's GPU, otherwise in main memory."""

    kind = "flat"

    def __init__(self, rows: Tensor, count: int) -> None:
        self.rows, self.count = rows, count

    def add(self, rows: Tensor) -> None:
        """rows: (b, d) float32."""
        self.rows[self.count : self.count + len(rows)] = rows
        self.count += len(rows)

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self.rows.shape[1]

    def search(self, queries: Tensor, k: int) -> Tensor:
        """Numbers of the k largest inner products; queries: (n, d) -> (n, k)."""
        if self.rows.is_cuda or not has_faiss():
            return search_all(self, queries, k)
        import faiss

        asked, metric = queries.cpu().contiguous().numpy(), faiss.METRIC_INNER_PRODUCT
        return torch.from_numpy(faiss.knn(asked, self.rows.numpy(), k, metric=metric)[1])

    def block(self, first: int, last: int) -> Tensor:
        """The vectors with these numbers, (last - first, d)."""
        return self.rows[first:last]

    def take(self, numbers: Tensor) -> Tensor:
        """numbers: (p,) -> (p, d)."""
        return self.rows[numbers]


class FaissVectors:
    """A FAISS index in main memory, which holds the only copy of the vectors.

    HNSW and IVF search by distance. They hold each vector with one more number that makes all of
    them as long as the longest: the nearest to (query, 0) then has the largest inner product.
    """

    def __init__(self, kind: str, index: Any, longest: float = 0.0) -> None:
        self.kind, self.index, self.longest = kind, index, longest

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return int(self.index.ntotal)

    @property
    def dim(self) -> int:
        """Numbers in a vector, but for the one that FAISS needs."""
        return int(self.index.d) - 1

    def add(self, rows: Tensor) -> None:
        """rows: (b, d) float32."""
        self.index.add(self.lengthened(rows))

    def search(self, queries: Tensor, k: int) -> Tensor:
        """As `FlatVectors.search`; -1 where fewer than k were found."""
        if self.kind == "hnsw":
            self.index.hnsw.efSearch = max(_BREADTH, 2 * k)
        padded = torch.nn.functional.pad(queries.cpu(), (0, 1)).contiguous()
        return torch.from_numpy(self.index.search(padded.numpy(), k)[1])

    def block(self, first: int, last: int) -> Tensor:
        """The vectors with these numbers, (last - first, d)."""
        return torch.from_numpy(self.index.reconstruct_n(first, last - first))[:, :-1].contiguous()

    def take(self, numbers: Tensor) -> Tensor:
        """numbers: (p,) -> (p, d)."""
        return torch.from_numpy(self.index.reconstruct_batch(numbers.numpy()))[:, :-1].contiguous()

    def lengthened(self, rows: Tensor) -> Any:
        """rows: (b, d) -> (b, d + 1), as the index keeps them."""
        rows = rows.cpu()
        rest = (self.longest**2 - rows.square().sum(1, keepdim=True)).clamp(min=0).sqrt()
        return torch.cat([rows, rest], 1).contiguous().numpy()


Vectors = FlatVectors | FaissVectors


# FAISS believes the sizes and numbers in its files: it would allocate any memory, and follow links
# to anywhere. They are checked here before it sees them.


class _Parts:
    """The parts of a file one after the other, none of which may reach beyond its end."""

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self.content, self.at = content, 0

    def take(self, dtype: str, count: int = 1) -> NDArray[Any]:
        end = self.at + count * np.dtype(dtype).itemsize
        if not 0 <= count <= end <= len(self.content):
            raise ValueError("a part reaches beyond the end of the file")
        self.at, start = end, self.at
        return self.content[start:end].view(dtype)

    def number(self, dtype: str) -> int:
        return int(self.take(dtype)[0])

    def vector(self, dtype: str) -> NDArray[Any]:
        return self.take(dtype, self.number("<u8"))

    def head(self, kind: bytes, count: int) -> int:
        """The dimension of an index of this kind, with so many vectors and L2 as its distance."""
        found, dim, held = self.take("u1", 4).tobytes(), self.number("<i4"), self.number("<i8")
        self.take("<i8", 2)
        trained, metric = self.number("u1"), self.number("<i4")
        _require(found == kind and held == count and dim > 0 and (trained, metric) == (1, 1))
        return dim

    def flat(self, count: int, dim: int) -> None:
        _require(self.head(b"IxF2", count) == dim and len(self.vector("<f4")) == count * dim)


def _require(right: bool | np.bool) -> None:
    if not right:
        raise ValueError("its parts do not fit together")


def _within(values: NDArray[Any], low: int, high: int) -> bool:
    return not values.size or bool(values.min() >= low and values.max() < high)


def read_faiss(path: Path, kind: str, count: int) -> FaissVectors:
    """The index in a file of FAISS; ValueError unless it is of this kind, and fits together."""
    parts = _Parts(np.fromfile(path, np.uint8))
    (_check_hnsw if kind == "hnsw" else _check_ivf)(parts, count)
    _require(parts.at == len(parts.content))
    import faiss

    return FaissVectors(kind, faiss.read_index(str(path)))


def _check_hnsw(parts: _Parts, count: int) -> None:
    dim = parts.head(b"IHNf", count)
    parts.vector("<f8")
    below, levels = parts.vector("<i4"), parts.vector("<i4")
    offsets, neighbours = parts.vector("<i8"), parts.vector("<i4")
    entry, top = parts.take("<i4", 2).tolist()
    parts.take("<i4", 3)
    _require(len(levels) == count and len(offsets) == count + 1 and 0 <= entry < count)
    _require(0 <= top < len(below) - 1 and _within(levels, 1, top + 2) and levels[entry] == top + 1)
    _require(_within(below, 0, 1 << 20) and below[0] == 0 and (np.diff(below) >= 0).all())
    _require(offsets[0] == 0 and (np.diff(offsets) == below[levels]).all())
    _require(offsets[-1] == len(neighbours) and _within(neighbours, -1, count))
    # A link on a level leads to a vector that is on this level too.
    place = np.arange(len(neighbours)) - np.repeat(offsets[:-1], below[levels])
    level, linked = np.searchsorted(below, place, "right"), neighbours >= 0
    _require((levels[neighbours[linked]] >= level[linked]).all())
    parts.flat(count, dim)


def _check_ivf(parts: _Parts, count: int) -> None:
    dim = parts.head(b"IwFl", count)
    cells, probed = parts.number("<i8"), parts.number("<i8")
    _require(0 < cells <= max(count, 1) and 0 < probed <= cells)
    parts.flat(cells, dim)
    _require(parts.number("u1") == 1)
    places = parts.vector("<i8")
    _require(parts.take("u1", 4).tobytes() == b"ilar")
    _require((parts.number("<i8"), parts.number("<i8")) == (cells, 4 * dim))
    sparse = parts.take("u1", 4).tobytes() == b"sprs"
    told = parts.vector("<i8")
    sizes = np.zeros(cells, np.int64)
    if sparse:
        _require(len(told) % 2 == 0 and _within(told[::2], 0, cells))
        sizes[told[::2]] = told[1::2]
    else:
        _require(len(told) == cells)
        sizes = told
    _require(_within(sizes, 0, count + 1) and sizes.sum() == count == len(places))
    _require(_within(places >> 32, 0, cells))
    _require(((places & 0xFFFFFFFF) < sizes[places >> 32]).all())
    for size in sizes.tolist():
        parts.take("<f4", size * dim)
        _require(_within(parts.take("<i8", size), 0, count))


def empty_vectors(
    kind: str, capacity: int, sample: Tensor, device: torch.device, longest: float = 0.0
) -> Vectors:
    """Space for `capacity` vectors; sample: (s, d), some of them, by which IVF places its cells.

    longest: the length of the longest of all, for the kinds other than "flat".
    """
    dim = sample.shape[1]
    if kind == "flat":
        place = device if device.type == "cuda" else torch.device("cpu")
        return FlatVectors(torch.empty(capacity, dim, device=place), 0)
    import faiss

    if kind == "hnsw":
        return FaissVectors(kind, faiss.IndexHNSWFlat(dim + 1, _LINKS), longest)
    cells = _ivf_cells(capacity)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim + 1), dim + 1, cells)
    index.cp.min_points_per_centroid = 1  # otherwise FAISS prints warnings about small indexes
    index.cp.seed = _SEED
    index.nprobe = max(1, cells // _PROBED)
    made = FaissVectors(kind, index, longest)
    index.train(made.lengthened(sample))
    index.make_direct_map()
    return made


def training_rows(kind: str, count: int) -> Tensor:
    """Numbers of the candidates that `empty_vectors` needs as its sample."""
    if kind != "ivf":
        return torch.arange(min(1, count))
    draw = torch.Generator().manual_seed(_SEED)
    return torch.randperm(count, generator=draw)[: max(_TRAINING * _ivf_cells(count), 1)]


def _ivf_cells(count: int) -> int:
    """As many as FAISS recommends, about 4 sqrt(count), and fewer for a small index."""
    return max(1, min(int(4 * math.sqrt(count)), count // 32))


def has_faiss() -> bool:
    """Whether FAISS is installed."""
    return find_spec("faiss") is not None


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of index, and one that needs FAISS if FAISS is missing."""
    require_known("index", kind, KINDS)
    if kind != "flat" and not has_faiss():
        raise InputError(f"index={kind!r} needs FAISS: pip install faiss-cpu, or use index='flat'")


def require_inner(model: RatioModel, kind: str) -> None:
    """Refuse an unknown kind of index, and one that this model cannot use."""
    check_kind(kind)
    if kind != "flat" and not model.has_inner:
        remedy = "use index='flat', or fit with critic='separable'"
        raise InputError(f"index={kind!r} searches inner products, this critic is none: {remedy}")


def nearest(
    vectors: Vectors, queries: Tensor, own: Tensor, k: int, wanted: int, exhaustive: bool = False
) -> Found:
    """PMI and numbers of the k best candidates, (n, k), best first.

    queries: (n, d); own: (n,), the queries' own term of PMI; wanted: how many to search for;
    exhaustive: look at all vectors, whatever the kind of index.
    """
    if vectors.dim != queries.shape[1]:
        held = f"vectors of {vectors.dim} numbers where the model has {queries.shape[1]}"
        raise ModelFileError(f"the index holds {held}: make it again")
    search = partial(search_all, vectors) if exhaustive else vectors.search
    numbers = search(queries, wanted)
    queries, own = queries.to(numbers.device), own.to(numbers.device)
    pmi = _pmi(vectors, queries, own, numbers.clamp(min=0)).masked_fill(numbers < 0, -torch.inf)
    pmi, numbers = best_first(pmi, numbers, k)
    short = (numbers < 0).any(1)  # IVF may look into cells that hold fewer than k
    if bool(short.any()):
        found = nearest(vectors, queries[short], own[short], k, wanted, exhaustive=True)
        pmi[short], numbers[short] = found
    return pmi, numbers


def _pmi(vectors: Vectors, queries: Tensor, own: Tensor, numbers: Tensor) -> Tensor:
    """queries: (n, d), own: (n,), numbers: (n, k) -> (n, k) float32, summed in float64.

    The inner products that FAISS returns have the rounding of float32, which large terms that
    cancel make visible in PMI.
    """
    listed = numbers.flatten()
    asked = torch.arange(len(queries), device=numbers.device).repeat_interleave(numbers.shape[1])
    size = max(1, _NUMBERS // queries.shape[1])
    found = []
    for query, number in zip(torch.split(asked, size), torch.split(listed, size), strict=True):
        products = vectors.take(number).double() * queries[query].double()
        found.append((products.sum(-1) + own[query].double()).float())
    return torch.cat(found).view(numbers.shape)


def search_all(vectors: Vectors, queries: Tensor, k: int) -> Tensor:
    """`FlatVectors.search` by torch, of vectors of any kind."""
    found = []
    for part in torch.split(queries.to(vectors.block(0, 1).device), _QUERIES):
        products = (part @ block.T for block in _blocks(vectors, part.device))
        found.append(topk_of_blocks(products, k)[1])
    return torch.cat(found)


def ranks_of(vectors: Vectors, queries: Tensor, numbers: Tensor) -> Tensor:
    """How many vectors have a larger inner product with the query; numbers: (n, k) -> (n, k)."""
    queries = queries.to(vectors.block(0, 1).device)
    numbers = numbers.to(queries.device)
    listed = vectors.take(numbers.flatten()).view(*numbers.shape, -1)
    products = (listed * queries.unsqueeze(1)).sum(-1).contiguous()
    above = torch.zeros_like(numbers)
    for block in _blocks(vectors, queries.device):
        ordered = (queries @ block.T).sort(dim=1).values
        above += ordered.shape[1] - torch.searchsorted(ordered, products, right=True)
    return above


def _blocks(vectors: Vectors, device: torch.device) -> Iterator[Tensor]:
    for first in range(0, vectors.count, _COLUMNS):
        yield vectors.block(first, min(first + _COLUMNS, vectors.count)).to(device)


def topk_of_blocks(blocks: Iterable[Tensor], k: int) -> Found:
    """Values and numbers of the k largest in each row, (n, k) each.

    blocks: (n, b) each, the values of the next b candidates.
    """
    best: list[tuple[Tensor, Tensor]] = []
    seen = 0
    for block in blocks:
        values, numbers = block.topk(min(k, block.shape[1]), dim=1)
        best.append((values, numbers + seen))
        seen += block.shape[1]
        if len(best) == 2:
            values, numbers = (torch.cat(parts, 1) for parts in zip(*best, strict=True))
            values, order = values.topk(min(k, values.shape[1]), dim=1)
            best = [(values, numbers.gather(1, order))]
    return best[0]


def best_first(values: Tensor, numbers: Tensor, k: int) -> Found:
    """The k largest of each row in descending order, equal ones by their numbers.

    values, numbers: (n, m) -> (n, k) each.
    """
    numbers, at = numbers.sort(dim=1)
    values, order = values.gather(1, at).sort(dim=1, descending=True, stable=True)
    return values[:, :k], numbers.gather(1, order)[:, :k]


# PMI of pairs by the model itself.

_METRIC_CELLS = 1 << 24  # log r of all replicas for scores with all candidates, alive at a time
ROWS = 1 << 13  # embedded at a time

QueryScores = Callable[[slice], NDArray[np.float32]]
"""Scores of a slice of the queries with all candidates, (rows, candidates)."""


def other(side: str) -> str:
    """The opposite side: "y" for "x", and "x" for "y"."""
    return "y" if side == "x" else "x"


@torch.no_grad()
def offsets(model: RatioModel, x: Tensor) -> Tensor:
    """`RatioModel.offset` of many rows, x: (n, dx) -> (R, n) or (R, 1)."""
    rows = torch.split(x.to(model.constant.device), _QUERIES)
    parts = [model.offset(spread(part, model.replicas)) for part in rows]
    return torch.cat(parts, 1) if model.reference.shape[1] else parts[0]


def candidate_vectors(model: RatioModel, rows: Tensor, side: str) -> tuple[Tensor, bool]:
    """rows: (m, d) -> (m, e), with a last column for their own term of PMI if they have one."""
    vectors, own = _embedded(model, rows, side)
    joined = vectors if own is None else torch.cat([vectors, own.unsqueeze(1)], 1)
    return joined, own is not None


def query_vectors(model: RatioModel, rows: Tensor, side: str, has_own: bool) -> Found:
    """rows: (n, d) -> (n, e), to multiply `candidate_vectors` with, and their own term, (n,)."""
    vectors, own = _embedded(model, rows, side)
    if has_own:
        vectors = torch.nn.functional.pad(vectors, (0, 1), value=1.0)
    return vectors, vectors.new_zeros(len(vectors)) if own is None else own


def _embedded(model: RatioModel, rows: Tensor, side: str) -> tuple[Tensor, Tensor | None]:
    rows = rows.to(model.constant.device)
    return model.inner_x(rows) if side == "x" else model.inner_y(rows)


def query_scores(model: RatioModel, x: Tensor, y: Tensor, queries: str) -> QueryScores:
    """PMI as a function of the queries; x: (n, dx), y: (m, dy), prepared."""
    asked, given = (x, y) if queries == "x" else (y, x)
    given = given.to(model.constant.device)
    if model.inner_is_exact:
        with torch.no_grad():
            parts = [candidate_vectors(model, p, other(queries)) for p in torch.split(given, ROWS)]
        vectors, has_own = torch.cat([part for part, _ in parts]), parts[0][1]
    else:
        offset = offsets(model, x)
    step = max(1, _METRIC_CELLS // (model.replicas * len(given)))

    @torch.no_grad()
    def scores(rows: slice) -> NDArray[np.float32]:
        if model.inner_is_exact:
            found, own = query_vectors(model, asked[rows], queries, has_own)
            return np.asarray((found @ vectors.T + own.unsqueeze(1)).cpu().numpy())
        blocks = []
        for first in range(rows.start, rows.stop, step):
            part = slice(first, min(first + step, rows.stop))
            own = part_of(offset, queries, part, slice(None))
            blocks.append(block_pmi(model, asked[part], given, queries, own).cpu())
        return np.asarray(torch.cat(blocks).numpy())

    return scores


def block_pmi(model: RatioModel, asked: Tensor, given: Tensor, queries: str, own: Tensor) -> Tensor:
    """PMI of each of these queries with each of these candidates, (n, m)."""
    sides = (asked, given) if queries == "x" else (given, asked)
    x, y = (spread(rows.to(model.constant.device), model.replicas) for rows in sides)
    pmi = model.log_ratio_matrix(x, y, own).mean(0)
    return pmi if queries == "x" else pmi.T


def part_of(offset: Tensor, queries: str, asked: slice, given: slice | Tensor) -> Tensor:
    """The offsets of some queries or some candidates, whichever are x; (R, 1) is of all of them."""
    if offset.shape[1] == 1:
        return offset
    return offset[:, asked if queries == "x" else given]
