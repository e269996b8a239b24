"""Candidates as vectors, searched by inner product: with FAISS, or with torch alone."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pointdep.errors import InputError, unknown_name
from pointdep.retrieval.ranking import Best

KINDS = ("flat", "hnsw", "ivf")
"""How an index searches: all vectors, a graph of neighbours, or the nearest of many cells."""

_CELLS = 1 << 24  # inner products alive at a time
_COLUMNS = 1 << 14
_LINKS, _BREADTH = 32, 128  # of HNSW: neighbours of a vector, and vectors kept in view
_TRAINING = 64  # vectors per cell of IVF that place the cells
_PROBED = 16  # one of so many cells is looked into
_SEED = 0


class Vectors(Protocol):
    """Vectors of candidates, numbered from 0 in the order they are added."""

    kind: str

    @property
    def count(self) -> int:
        """How many there are."""

    def add(self, rows: Tensor) -> None:
        """rows: (b, d) float32."""

    def search(self, queries: Tensor, k: int) -> Tensor:
        """Numbers of the largest inner products, (n, d) -> (n, k); -1 where none was found."""

    def block(self, first: int, last: int) -> Tensor:
        """The vectors of these numbers, (last - first, d)."""

    def take(self, numbers: Tensor) -> Tensor:
        """numbers: (n, k) -> (n, k, d)."""


class TorchVectors:
    """One tensor, where the model is."""

    kind = "flat"

    def __init__(self, capacity: int, dim: int, device: torch.device) -> None:
        self.rows = torch.empty(capacity, dim, device=device)
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def add(self, rows: Tensor) -> None:
        self.rows[self._count : self._count + len(rows)] = rows
        self._count += len(rows)

    def search(self, queries: Tensor, k: int) -> Tensor:
        found = []
        for part in torch.split(queries.to(self.rows.device), max(1, _CELLS // _COLUMNS)):
            best = Best(k)
            for block in torch.split(self.rows, max(_COLUMNS, k)):
                best.add(part @ block.T)
            found.append(best.result()[1])
        return torch.cat(found)

    def block(self, first: int, last: int) -> Tensor:
        return self.rows[first:last]

    def take(self, numbers: Tensor) -> Tensor:
        return self.rows[numbers]


class FaissVectors:
    """A FAISS index in main memory, which holds the only copy of the vectors.

    HNSW and IVF are made for distances. They hold each vector with one more number, so that all are
    as long as the longest: the nearest to (query, 0) is then the one of largest inner product.
    """

    def __init__(self, kind: str, index: Any, longest: float = 0.0) -> None:
        self.kind, self.index, self.longest = kind, index, longest

    @property
    def count(self) -> int:
        return int(self.index.ntotal)

    def add(self, rows: Tensor) -> None:
        self.index.add(self.lengthened(rows.cpu()).contiguous().numpy())

    def search(self, queries: Tensor, k: int) -> Tensor:
        queries = queries.cpu()
        if self.kind == "hnsw":
            self.index.hnsw.efSearch = max(_BREADTH, 2 * k)
        if self.kind != "flat":
            queries = torch.cat([queries, queries.new_zeros(len(queries), 1)], 1)
        return torch.from_numpy(self.index.search(queries.contiguous().numpy(), k)[1])

    def block(self, first: int, last: int) -> Tensor:
        return self._own(self.index.reconstruct_n(first, last - first))

    def take(self, numbers: Tensor) -> Tensor:
        found = self._own(self.index.reconstruct_batch(numbers.flatten().numpy()))
        return found.view(*numbers.shape, found.shape[1])

    def lengthened(self, rows: Tensor) -> Tensor:
        """rows: (b, d) -> as they are kept, (b, d) or (b, d + 1)."""
        if self.kind == "flat":
            return rows
        rest = (self.longest**2 - rows.square().sum(1, keepdim=True)).clamp(min=0).sqrt()
        return torch.cat([rows, rest], 1)

    def _own(self, kept: Any) -> Tensor:
        rows = torch.from_numpy(kept)
        return rows if self.kind == "flat" else rows[:, :-1].contiguous()


def has_faiss() -> bool:
    return find_spec("faiss") is not None


def make_vectors(
    kind: str, capacity: int, sample: Tensor, device: torch.device, longest: float = 0.0
) -> Vectors:
    """Room for `capacity` vectors; sample: (s, d), some of them, by which IVF places its cells.

    longest: the length of the longest of all, for the kinds other than "flat".
    """
    check_kind(kind)
    dim = sample.shape[1]
    if kind == "flat" and (device.type == "cuda" or not has_faiss()):
        return TorchVectors(capacity, dim, device if device.type == "cuda" else torch.device("cpu"))
    import faiss

    index: Any
    if kind == "flat":
        index = faiss.IndexFlatIP(dim)
        index.codes.resize(4 * capacity * dim)  # one allocation, where adding would make several
        index.codes.clear()
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim + 1, _LINKS)
    else:
        cells = ivf_cells(capacity)
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim + 1), dim + 1, cells)
        index.cp.min_points_per_centroid = 1  # FAISS would print its doubts on small indexes
        index.cp.seed = _SEED
        index.nprobe = max(1, cells // _PROBED)
    made = FaissVectors(kind, index, longest)
    if kind == "ivf":
        index.train(made.lengthened(sample.cpu()).contiguous().numpy())
        index.make_direct_map()
    return made


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise unknown_name("index", kind, KINDS)
    if kind != "flat" and not has_faiss():
        raise InputError(f"index={kind!r} needs FAISS: pip install faiss-cpu, or use index='flat'")


def ivf_cells(count: int) -> int:
    """As many as FAISS recommends, about 4 sqrt(count), fewer where there are few vectors."""
    return max(1, min(int(4 * math.sqrt(count)), count // 32))


def training_rows(kind: str, count: int) -> Tensor:
    """Numbers of the candidates that an index of this kind is to see first."""
    if kind != "ivf":
        return torch.arange(min(1, count))
    draw = torch.Generator().manual_seed(_SEED)
    return torch.randperm(count, generator=draw)[: max(_TRAINING * ivf_cells(count), 1)]


def write_faiss(vectors: FaissVectors, path: Path) -> None:
    import faiss

    faiss.write_index(vectors.index, str(path))


def read_faiss(kind: str, path: Path) -> FaissVectors:
    import faiss

    return FaissVectors(kind, faiss.read_index(str(path)))
