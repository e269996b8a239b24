"""Candidates made ready for search: once, for many queries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import InputError
from pointdep.fitting.progress import Progress
from pointdep.retrieval.pairs import offsets
from pointdep.retrieval.vectors import Vectors, check_kind, make_vectors, training_rows

_ROWS = 1 << 13  # embedded at a time
SIDES = ("x", "y")


@dataclass(frozen=True, eq=False)
class CandidateIndex:
    """Candidates of one side, for one model.

    side: "x" or "y". kind: "flat", "hnsw" or "ivf". count: candidates.
    model_id: the fingerprint of the model.
    vectors: for the search by inner product; None where the critic has none.
    has_own: whether the vectors end in a column with the candidates' own term.
    rows: (count, d), where PMI is more than that inner product; else None.
    offset: `offsets` of these rows, where they are x; else None.
    """

    side: str
    kind: str
    count: int
    model_id: str
    vectors: Vectors | None
    has_own: bool
    rows: Tensor | None
    offset: Tensor | None

    def __len__(self) -> int:
        return self.count

    def save(self, path: str | Path) -> None:
        """Write it as a folder; `PointwiseDependency.load_index` reads it back."""
        from pointdep.retrieval.saved import write_index

        write_index(self, Path(path))


@torch.no_grad()
def build_index(
    model: RatioModel, rows: Tensor, side: str, kind: str, progress: Progress
) -> CandidateIndex:
    """Embed the candidates, rows: (m, d), prepared, block by block."""
    require_inner(model, kind)
    vectors, has_own = None, False
    if model.has_inner:
        sample, has_own = candidate_vectors(model, rows[training_rows(kind, len(rows))], side)
        longest = 0.0 if kind == "flat" else _longest(model, rows, side)
        vectors = make_vectors(kind, len(rows), sample, model.constant.device, longest)
        del sample
        for part in torch.split(rows, _ROWS):
            vectors.add(candidate_vectors(model, part, side)[0])
            progress.update(vectors.count, len(rows), "candidates embedded")
    keep = not model.inner_is_exact
    offset = offsets(model, rows) if keep and side == "x" else None
    identity = fingerprint(model)
    return CandidateIndex(
        side, kind, len(rows), identity, vectors, has_own, rows if keep else None, offset
    )


def require_inner(model: RatioModel, kind: str) -> None:
    """Refuse a kind that is not known, or not for this model."""
    check_kind(kind)
    if kind != "flat" and not model.has_inner:
        raise InputError(
            f"index={kind!r} searches inner products, and this critic is none: use index='flat', "
            "or fit with critic='separable'"
        )


def candidate_vectors(model: RatioModel, rows: Tensor, side: str) -> tuple[Tensor, bool]:
    """rows: (m, d) -> (m, e), with a last column for their own term where they have one."""
    vectors, own = _inner(model, rows, side)
    if own is None:
        return vectors, False
    return torch.cat([vectors, own.unsqueeze(1)], 1), True


def _longest(model: RatioModel, rows: Tensor, side: str) -> float:
    """The length of the longest of their vectors."""
    parts = (candidate_vectors(model, part, side)[0] for part in torch.split(rows, _ROWS))
    return max(float(part.norm(dim=1).max()) for part in parts)


def query_vectors(
    model: RatioModel, rows: Tensor, side: str, has_own: bool
) -> tuple[Tensor, Tensor]:
    """rows: (n, d) -> (n, e), to meet `candidate_vectors`, and their own term, (n,)."""
    vectors, own = _inner(model, rows, side)
    if has_own:
        vectors = torch.cat([vectors, vectors.new_ones(len(vectors), 1)], 1)
    return vectors, vectors.new_zeros(len(vectors)) if own is None else own


def _inner(model: RatioModel, rows: Tensor, side: str) -> tuple[Tensor, Tensor | None]:
    rows = rows.to(model.constant.device)
    return model.inner_x(rows) if side == "x" else model.inner_y(rows)


def other(side: str) -> str:
    """The side that answers to this one."""
    return "y" if side == "x" else "x"


def fingerprint(model: RatioModel) -> str:
    """What identifies a fitted model: its methods, its link and its weights."""
    methods = [(method.key, sorted(method.options.items())) for method in model.methods]
    digest = hashlib.sha256(f"{model.link} {methods}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
