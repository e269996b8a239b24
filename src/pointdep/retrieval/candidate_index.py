"""Candidates prepared once for many searches, in memory and on disk."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.data import files, storage
from pointdep.data.atomic import replaced_folder, steady
from pointdep.errors import InputError, ModelFileError
from pointdep.fitting.progress import Progress
from pointdep.retrieval import pairwise
from pointdep.retrieval.pairwise import FaissVectors, FlatVectors, Vectors

FORMAT, FORMAT_VERSION = "pointdep-index", 2
_ABOUT, _TENSORS, _FAISS = "index.json", "candidates.safetensors", "vectors.faiss"


class _About:
    """The types of what is in index.json."""

    format: str
    format_version: int
    side: str
    kind: str
    count: int
    has_own: bool
    model: str
    sha256: dict[str, str]


@dataclass(frozen=True, eq=False)
class CandidateIndex:
    """Candidates of one side, for one model.

    Attributes
    ----------
    side : str
        "x" or "y".
    kind : str
        "flat", "hnsw" or "ivf".
    count : int
        Number of candidates.
    model_id : str
        The fingerprint of the model.
    vectors : FlatVectors, FaissVectors or None
        The candidates' vectors; None if the critic is not an inner product.
    has_own : bool
        Whether the vectors end in a column with the candidates' own term of PMI.
    rows : Tensor or None
        (count, d), kept if PMI is more than that inner product.
    offset : Tensor or None
        `offsets` of these rows, kept if they are x.
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
        """Write the index as a folder; `PointwiseDependency.load_index` reads it.

        Parameters
        ----------
        path : str or Path
            The folder. An index that is there is replaced; other files are not.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        check_index_target(Path(path))
        tensors = {"rows": self.rows, "offset": self.offset}
        if isinstance(self.vectors, FlatVectors):
            tensors["vectors"] = self.vectors.rows
        kept = {name: t.cpu().contiguous().clone() for name, t in tensors.items() if t is not None}
        with replaced_folder(Path(path)) as new:
            try:
                save_file(kept, new / _TENSORS)
                if isinstance(self.vectors, FaissVectors):
                    import faiss

                    faiss.write_index(self.vectors.index, str(new / _FAISS))
            except (SafetensorError, RuntimeError) as error:  # of a full disk, for one
                raise InputError(f"cannot write {path}: {str(error).splitlines()[0]}") from None
            about = {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "side": self.side,
                "kind": self.kind,
                "count": self.count,
                "has_own": self.has_own,
                "model": self.model_id,
                "sha256": {part.name: storage.file_digest(part) for part in sorted(new.iterdir())},
            }
            about["about_sha256"] = storage.digest_of(about)
            (new / _ABOUT).write_text(json.dumps(about, indent=1), "utf-8")


@torch.no_grad()
def build_index(
    model: RatioModel, rows: Tensor, side: str, kind: str, progress: Progress
) -> CandidateIndex:
    """Embed the candidates, rows: (m, d), prepared, block by block."""
    pairwise.require_inner(model, kind)
    vectors, has_own = None, False
    if model.has_inner:
        parts, longest = torch.split(rows, pairwise.ROWS), 0.0
        some = rows[pairwise.training_rows(kind, len(rows))]
        sample, has_own = pairwise.candidate_vectors(model, some, side)
        if kind != "flat":
            made = (pairwise.candidate_vectors(model, part, side)[0] for part in parts)
            longest = max(float(part.norm(dim=1).max()) for part in made)
        vectors = pairwise.empty_vectors(kind, len(rows), sample, model.constant.device, longest)
        for part in parts:
            vectors.add(pairwise.candidate_vectors(model, part, side)[0])
            progress.update(vectors.count, len(rows), "candidates embedded")
    kept = None if model.inner_is_exact else rows
    offset = None if kept is None or side == "y" else pairwise.offsets(model, kept)
    return CandidateIndex(side, kind, len(rows), fingerprint(model), vectors, has_own, kept, offset)


def fingerprint(model: RatioModel) -> str:
    """What identifies a fitted model: its methods, its link and its weights."""
    methods = [(method.key, sorted(method.options.items())) for method in model.methods]
    digest = hashlib.sha256(f"{model.link} {methods}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def check_index_target(path: Path) -> None:
    """Refuse a place where an index cannot be written; an index there is replaced."""
    storage.require_target(path, {_ABOUT, _TENSORS, _FAISS}, _read_about, "an index")


def read_index(path: Path, model: RatioModel) -> CandidateIndex:
    """Read the folder back, for the model that it was made with."""
    return steady(path, lambda: _read_index(path, model))


def _read_index(path: Path, model: RatioModel) -> CandidateIndex:
    about = _read_about(path)
    try:
        storage.require_kinds(about, _About)
        side, kind, count = about["side"], about["kind"], about["count"]
        has_own, identity, sums = about["has_own"], about["model"], about["sha256"]
        if side not in ("x", "y"):
            raise ValueError(f"side={side!r:.60}")
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path / _ABOUT} has a part missing or wrong: {error}") from None
    if identity != fingerprint(model):
        raise InputError(f"{path} was made with another model: load that one, or make it again")
    pairwise.check_kind(kind)
    for name in (_TENSORS,) if kind == "flat" else (_TENSORS, _FAISS):
        storage.checked_part(path, name, sums.get(name), "index")
    tensors, device = storage.read_tensors(path / _TENSORS), model.constant.device
    vectors: Vectors | None = None
    if kind != "flat":
        with files.reading(path / _FAISS, "of another index", ModelFileError):
            vectors = pairwise.read_faiss(path / _FAISS, kind, count)
    elif "vectors" in tensors:
        place = device if device.type == "cuda" else "cpu"
        vectors = FlatVectors(tensors["vectors"].to(place), count)
    offset = tensors["offset"].to(device) if "offset" in tensors else None
    held = [len(tensors[name]) for name in ("rows", "vectors") if name in tensors]
    if isinstance(vectors, FaissVectors):
        held.append(vectors.count)
    if any(one != count for one in held) or not held:
        raise ModelFileError(f"{path} holds {held} candidates where {count} are told: damaged")
    return CandidateIndex(
        side, kind, count, identity, vectors, has_own, tensors.get("rows"), offset
    )


def _read_about(path: Path) -> dict[str, Any]:
    about = storage.read_description(path, _ABOUT, FORMAT, "an index")
    version, digest = about.get("format_version"), about.pop("about_sha256", None)
    # Indices of 0.1.0 have no digest, and nothing else than these entries.
    if version not in (1, FORMAT_VERSION):
        raise ModelFileError(f"{path} has format {version}, not {FORMAT_VERSION}: make it again")
    if digest != (storage.digest_of(about) if version > 1 else None) or {*about} != {
        *get_type_hints(_About)
    }:
        raise ModelFileError(f"{path / _ABOUT} was edited or damaged after it was saved")
    return about
