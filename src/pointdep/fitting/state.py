"""Checkpoints: what the engine must remember between two epochs, and the one file format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pointdep.errors import InputError, ModelFileError
from pointdep.fitting.processes import ALONE, Processes

Entries = Mapping[str, Any]
_FORMAT = "pointdep-checkpoint-2"
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


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, and what identifies the fit; settings: what it was told."""

    path: Path
    fingerprint: str
    settings: Entries = field(default_factory=dict)


def save_state(file: Checkpoint, state: TrainingState) -> None:
    """Write a checkpoint of a fit, and the random generators it draws from."""
    kept = dict(vars(state), rng=torch.get_rng_state())
    if state.values.device.type == "cuda":
        kept["cuda_rng"] = torch.cuda.get_rng_state(state.values.device)
    write_checkpoint(file.path, _FORMAT, file.fingerprint, kept, file.settings)


def load_state(
    file: Checkpoint, like: TrainingState, processes: Processes = ALONE
) -> TrainingState:
    """The state that the checkpoint of the same fit holds; `like`, where there is none.

    The first process reads the file and tells the others, who may not see it. The random generators
    go on as they did; `like` gives dtype and device.
    """

    def read() -> dict[str, Any] | None:
        if not file.path.exists():
            return None
        return read_checkpoint(
            file.path, _FORMAT, file.fingerprint, lambda there: _difference(there, file.settings)
        )

    kept = processes.first(read)
    if kept is None:
        return like
    device, dtype = like.values.device, like.values.dtype
    torch.set_rng_state(kept.pop("rng"))
    generator = kept.pop("cuda_rng", None)
    if device.type == "cuda" and generator is not None:
        torch.cuda.set_rng_state(generator, device)
    for name, value in kept.items():
        if isinstance(value, Tensor):
            kept[name] = value.to(device, dtype)
        elif name.endswith("buffers"):
            kept[name] = [[tensor.to(device) for tensor in row] for row in value]
    return TrainingState(**kept)


def write_checkpoint(
    path: Path, kind: str, fingerprint: str, state: Entries, settings: Entries | None = None
) -> None:
    """Write a nest of dicts, lists, numbers, texts and tensors in one atomic move.

    A kill at any moment leaves the old checkpoint or the new one. kind: which program reads it;
    fingerprint: of all that decides how the run goes on.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    metadata = {
        "format": kind,
        "fingerprint": fingerprint,
        "settings": json.dumps(dict(settings or {}), default=repr),
        "state": json.dumps(_pack(state, tensors)),
    }
    # One fixed name, so that what a kill leaves behind is overwritten by the next attempt.
    temporary = unfinished(path)
    try:
        save_file(tensors, temporary, metadata=metadata)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_checkpoint(
    path: Path, kind: str, fingerprint: str, difference: Callable[[Entries], str]
) -> dict[str, Any]:
    """What `write_checkpoint` wrote, its tensors on the CPU; anything else is one clear error.

    difference: says of the settings in the file why it belongs to another run.
    """
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
    if metadata.get("fingerprint") != fingerprint:
        there = json.loads(metadata.get("settings", "{}"))
        raise InputError(f"checkpoint {path} {difference(there)}")
    return dict(_unpack(json.loads(metadata["state"]), tensors))


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The nest as JSON takes it; each tensor goes into `tensors` and leaves its name."""
    if isinstance(value, Tensor):
        name = f"t{len(tensors)}"
        # A copy: safetensors refuses tensors that share memory.
        tensors[name] = torch.empty(value.shape, dtype=value.dtype).copy_(value.detach())
        return {"tensor": name}
    if isinstance(value, dict):
        return {"items": [[key, _pack(part, tensors)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_pack(part, tensors) for part in value]
    return value


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _unpack(part, tensors) for key, part in value["items"]}
    if isinstance(value, list):
        return [_unpack(part, tensors) for part in value]
    return value


def unfinished(path: Path) -> Path:
    """Where a checkpoint is written before it takes its place."""
    return path.with_name(path.name + ".tmp")


def remove_state(path: Path) -> None:
    """Remove a checkpoint that is no longer needed."""
    for file in (path, unfinished(path)):
        file.unlink(missing_ok=True)


def _difference(there: Entries, here: Entries) -> str:
    """Why a checkpoint is of another fit, as far as the settings of both tell."""
    now = json.loads(json.dumps(dict(here), default=repr))
    other = [name for name in there if name not in _NO_OPTIONS and there[name] != now.get(name)]
    if there and now and other:
        listed = ", ".join(f"{name}={there[name]!r}, not {now.get(name)!r}" for name in other)
        return f"belongs to a fit with {listed}: give the same again, or delete it"
    streamed = "stored" in there and there["stored"] == now.get("stored")
    one, two = (int(settings.get("processes", 1)) for settings in (there, now))
    if streamed and one != two:
        said = f"was written by {one} process(es), and streamed rows need as many to go on"
        return f"{said}; here are {two}: start {one}, or delete it"
    return "belongs to a fit of other data or other settings: delete it, or give another path"
