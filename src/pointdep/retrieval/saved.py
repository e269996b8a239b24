"""Indexes on disk: a folder of JSON, safetensors and, for HNSW and IVF, FAISS's own file."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.data.storage import put_in_place, require_replaceable
from pointdep.errors import InputError, ModelFileError
from pointdep.retrieval.index import CandidateIndex, fingerprint
from pointdep.retrieval.vectors import (
    FaissVectors,
    Vectors,
    check_kind,
    make_vectors,
    read_faiss,
    write_faiss,
)

FORMAT, FORMAT_VERSION = "pointdep-index", 1
_ABOUT, _TENSORS, _FAISS = "index.json", "candidates.safetensors", "vectors.faiss"
_ROWS = 1 << 14


def write_index(index: CandidateIndex, path: Path) -> None:
    """Write the folder beside its place and move it there: a half-written one never shows."""
    from safetensors.torch import save_file

    check_index_target(path)
    path = path.resolve()
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
            new = Path(scratch, "new")
            new.mkdir()
            save_file(_tensors(index), new / _TENSORS)
            if index.kind != "flat":
                assert isinstance(index.vectors, FaissVectors)
                write_faiss(index.vectors, new / _FAISS)
            about = {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "side": index.side,
                "kind": index.kind,
                "count": index.count,
                "has_own": index.has_own,
                "model": index.model_id,
                "sha256": {part.name: _sha256(part) for part in sorted(new.iterdir())},
            }
            (new / _ABOUT).write_text(json.dumps(about, indent=1), "utf-8")
            put_in_place(new, path, aside=Path(scratch, "old"))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def check_index_target(path: Path) -> None:
    """Refuse a place where an index cannot be written; an index there is replaced."""
    if path.is_file():
        raise InputError(f"{path} is a file; an index is saved as a folder: choose another name")
    if not path.resolve().parent.is_dir():
        raise InputError(f"cannot write {path}: {path.resolve().parent} is no folder")
    if path.is_dir():
        require_replaceable(path, {_ABOUT, _TENSORS, _FAISS}, _read_about, "an index")


def read_index(path: Path, model: RatioModel) -> CandidateIndex:
    """Read the folder back, for the model that it was made with."""
    about = _read_about(path)
    try:
        side, kind, count = str(about["side"]), str(about["kind"]), int(about["count"])
        has_own, identity, sums = bool(about["has_own"]), str(about["model"]), dict(about["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{path / _ABOUT} lacks a part or holds a wrong one: {error}"
        ) from None
    if identity != fingerprint(model):
        raise InputError(
            f"{path} was made with another model: load that one, or make the index again"
        )
    check_kind(kind)
    for name in (_TENSORS, _FAISS) if kind != "flat" else (_TENSORS,):
        try:
            found = _sha256(path / name)
        except OSError:
            raise ModelFileError(f"{path} has no readable {name}: copy the whole folder") from None
        if found != sums.get(name):
            raise ModelFileError(f"{path / name} is truncated, edited or of another index")
    rows, offset, vectors = _read_tensors(path / _TENSORS, count, model)
    if kind != "flat":
        vectors = read_faiss(kind, path / _FAISS)
    return CandidateIndex(side, kind, count, identity, vectors, has_own, rows, offset)


def _tensors(index: CandidateIndex) -> dict[str, Tensor]:
    parts = {"rows": index.rows, "offset": index.offset}
    if index.kind == "flat" and index.vectors is not None:
        parts["vectors"] = index.vectors.block(0, index.count)
    return {name: t.cpu().contiguous().clone() for name, t in parts.items() if t is not None}


def _read_tensors(
    path: Path, count: int, model: RatioModel
) -> tuple[Tensor | None, Tensor | None, Vectors | None]:
    """rows, offset and the vectors of a flat index, which go into their place block by block."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            rows = file.get_tensor("rows") if "rows" in names else None
            offset = file.get_tensor("offset") if "offset" in names else None
            vectors: Vectors | None = None
            if "vectors" in names:
                stored = file.get_slice("vectors")
                device = model.constant.device
                vectors = make_vectors("flat", count, stored[:1], device)
                for first in range(0, count, _ROWS):
                    vectors.add(stored[first : first + _ROWS])
    except SafetensorError as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from None
    return rows, None if offset is None else offset.to(model.constant.device), vectors


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ModelFileError(f"no index at {path}: there is no such folder")
    try:
        about = json.loads((path / _ABOUT).read_text("utf-8"))
    except OSError:
        raise ModelFileError(f"{path} is not an index: it has no readable {_ABOUT}") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path / _ABOUT} is truncated or not JSON") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ModelFileError(f"{path / _ABOUT} is not a pointdep index")
    if about.get("format_version") != FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {about.get('format_version')}, this version of pointdep reads "
            f"{FORMAT_VERSION}: make the index again"
        )
    return about


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
