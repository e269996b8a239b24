"""Checkpoints: what the engine must remember between two epochs, and the one file format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pointdep.data.atomic import held, sweep, whole_file
from pointdep.errors import FitWarning, InputError, ModelFileError, warn_caller
from pointdep.fitting.processes import ALONE, Processes

Entries = Mapping[str, Any]
_FORMAT = "pointdep-checkpoint-3"
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
    with _of_this_kind(file.path):
        return _going_on(kept, like)


def _going_on(kept: dict[str, Any], like: TrainingState) -> TrainingState:
    """The state that was kept, which is of the same weights as `like`."""
    device, dtype = like.values.device, like.values.dtype
    for name, expected in vars(like).items():
        of_rows = isinstance(expected, list) and name in ("bad", "best_epoch", "buffers")
        if type(kept[name]) is not type(expected) or (of_rows and len(kept[name]) != len(expected)):
            raise TypeError(name)
        if isinstance(expected, Tensor) and kept[name].shape != expected.shape:
            raise ValueError(name)
    if not {*kept["active"], *kept["diverged"]} <= {*range(len(like.values))}:
        raise ValueError("active")
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


def sole_writer(path: Path) -> AbstractContextManager[None]:
    """Keep a checkpoint from being written by two fits at once."""
    said = f"checkpoint {path} is being written by another fit: wait until it ends, or give another"
    return held(path, f"{said} path")


def write_checkpoint(
    path: Path, kind: str, fingerprint: str, state: Entries, settings: Entries | None = None
) -> None:
    """Write a nest of dicts, lists, numbers, texts and tensors in one atomic move.

    A kill at any moment leaves the old checkpoint or the new one. kind: which program reads it;
    fingerprint: of all that decides how the run goes on. InputError where it cannot be written.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    metadata = {
        "format": kind,
        "fingerprint": fingerprint,
        "settings": json.dumps(dict(settings or {}), default=repr),
        "state": json.dumps(_pack(state, tensors)),
    }
    metadata["sha256"] = _digest(metadata, tensors)
    content = save(tensors, metadata)
    with whole_file(path) as file:
        file.write(content)


def try_to_keep(write: Callable[[], None], warned: bool) -> bool:
    """Write a checkpoint; if that fails, warn unless it was told, and return that it is.

    A disk that is full now may have room later, and a fit is worth more than its checkpoint.
    """
    try:
        write()
    except InputError as error:
        if not warned:
            warn_caller(f"{error}; training goes on, without a newer checkpoint", FitWarning)
        return True
    return False


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
    if metadata.pop("sha256", None) != _digest(metadata, tensors):
        raise ModelFileError(f"checkpoint {path} is damaged: delete it to start over")
    with _of_this_kind(path):
        if metadata["fingerprint"] != fingerprint:
            there = json.loads(metadata["settings"])
            raise InputError(f"checkpoint {path} {difference(there)}")
        return dict(_unpack(json.loads(metadata["state"]), tensors))


@contextmanager
def _of_this_kind(path: Path) -> Iterator[None]:
    """Say of a checkpoint with a part missing or wrong which one it is."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        said = f"checkpoint {path} holds something else than it should"
        raise ModelFileError(f"{said} ({type(error).__name__}): delete it to start over") from None


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of all that a checkpoint says."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


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


def remove_state(path: Path) -> None:
    """Remove a checkpoint that is no longer needed."""
    path.unlink(missing_ok=True)
    sweep(path)


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
