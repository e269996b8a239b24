"""Everything the engine must remember between two epochs, and how it is written to disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pointdep.errors import InputError, ModelFileError

_FORMAT = "pointdep-checkpoint-1"
_NO_OPTIONS = ("options", "stored", "groups", "processes")  # of a fit's settings


@dataclass
class TrainingState:
    """Per-replica tensors, (R, P) or (R,), and the running lists.

    values, average: the weights and their running average. first, second: Adam's moments.
    best: the best averaged weights so far, with `best_value` and `best_epoch`. bad: epochs since
    then. moving: the running state of a method's gradient, NaN before the first step. history: per
    epoch and replica, the objective on training batches and on held-out rows.
    """

    values: Tensor
    average: Tensor
    first: Tensor
    second: Tensor
    best: Tensor
    best_value: Tensor
    moving: Tensor
    epoch: int = 0
    step: int = 0
    active: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    diverged: list[int] = field(default_factory=list)
    history: list[dict[str, list[float | None]]] = field(default_factory=list)
    best_buffers: list[list[Tensor]] = field(default_factory=list)
    buffers: list[list[Tensor]] = field(default_factory=list)

    @classmethod
    def start(cls, values: Tensor, buffers: list[list[Tensor]]) -> TrainingState:
        """Before the first step; values: (R, P)."""
        replicas = len(values)
        return cls(
            values=values.clone(),
            average=values.clone(),
            first=torch.zeros_like(values),
            second=torch.zeros_like(values),
            best=values.clone(),
            best_value=values.new_full((replicas,), -torch.inf),
            moving=values.new_full((replicas,), torch.nan),
            active=list(range(replicas)),
            bad=[0] * replicas,
            best_epoch=[0] * replicas,
            best_buffers=[[t.clone() for t in row] for row in buffers],
            buffers=[[t.clone() for t in row] for row in buffers],
        )


_TENSORS = ("values", "average", "first", "second", "best", "best_value", "moving")
_LISTS = ("epoch", "step", "active", "bad", "best_epoch", "diverged", "history")


def save_state(
    path: Path,
    state: TrainingState,
    fingerprint: str,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a checkpoint in one atomic move: a kill at any moment leaves the old one or the new.

    settings: of the fit, to say what another one has otherwise.
    """
    from safetensors.torch import save_file

    tensors = {name: getattr(state, name).detach().cpu().contiguous() for name in _TENSORS}
    tensors["rng"] = torch.get_rng_state()
    if state.values.device.type == "cuda":
        tensors["cuda_rng"] = torch.cuda.get_rng_state(state.values.device)
    for kind in ("buffers", "best_buffers"):
        for replica, row in enumerate(getattr(state, kind)):
            for number, tensor in enumerate(row):
                tensors[f"{kind}.{replica}.{number}"] = tensor.detach().cpu().contiguous()
    about = {name: getattr(state, name) for name in _LISTS}
    metadata = {
        "format": _FORMAT,
        "fingerprint": fingerprint,
        "settings": json.dumps(dict(settings), default=repr),
        "state": json.dumps(about),
    }
    # One fixed name, so that what a kill leaves behind is overwritten by the next attempt.
    temporary = unfinished(path)
    try:
        save_file(tensors, temporary, metadata=metadata)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_checkpoint(path: Path, kind: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a checkpoint of this kind; anything else is one clear error."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"checkpoint {path} cannot be read ({error}): delete it to start over"
        ) from None
    if metadata.get("format") != kind:
        raise ModelFileError(f"{path} is not a checkpoint of this version: delete it to start over")
    return metadata, tensors


def unfinished(path: Path) -> Path:
    """Where a checkpoint is written before it takes its place."""
    return path.with_name(path.name + ".tmp")


def remove_state(path: Path) -> None:
    """Remove a checkpoint that is no longer needed."""
    for file in (path, unfinished(path)):
        file.unlink(missing_ok=True)


def load_state(
    path: Path,
    fingerprint: str,
    like: TrainingState,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> TrainingState:
    """Read a checkpoint of the same fit back; `like` gives shapes, dtype and device."""
    metadata, tensors = read_checkpoint(path, _FORMAT)
    if metadata.get("fingerprint") != fingerprint:
        there = json.loads(metadata.get("settings", "{}"))
        raise InputError(f"checkpoint {path} {_difference(there, settings)}")
    about: dict[str, Any] = json.loads(metadata["state"])
    device, dtype = like.values.device, like.values.dtype
    torch.set_rng_state(tensors["rng"])
    if device.type == "cuda" and "cuda_rng" in tensors:
        torch.cuda.set_rng_state(tensors["cuda_rng"], device)
    loaded: dict[str, Any] = {
        name: tensors[name].to(device=device, dtype=dtype) for name in _TENSORS
    }
    kept: dict[str, Any] = {
        kind: [
            [tensors[f"{kind}.{r}.{k}"].to(t.device) for k, t in enumerate(row)]
            for r, row in enumerate(getattr(like, kind))
        ]
        for kind in ("buffers", "best_buffers")
    }
    return TrainingState(**loaded, **kept, **about)


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Why a checkpoint is of another fit, as far as the settings of both tell."""
    now = json.loads(json.dumps(dict(here), default=repr))
    other = [name for name in there if name not in _NO_OPTIONS and there[name] != now.get(name)]
    if there and now and other:
        listed = ", ".join(f"{name}={there[name]!r}, not {now.get(name)!r}" for name in other)
        return f"belongs to a fit with {listed}: give the same again, or delete it"
    streamed = "stored" in there and there["stored"] == now.get("stored")
    one, two = (int(settings.get("processes", 1)) for settings in (there, now))
    if streamed and one != two:
        return (
            f"was written by {one} process(es), and streamed rows need as many to go on; here are "
            f"{two}: start {one}, or delete it"
        )
    return "belongs to a fit of other data or other settings: delete it, or give another path"
