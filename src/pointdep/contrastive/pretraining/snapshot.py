"""The state of a run on disk: any nest of dicts, lists, numbers and tensors, nothing executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pointdep.errors import InputError
from pointdep.fitting.state import read_checkpoint, unfinished

_FORMAT = "pointdep-pretraining-1"


def write_snapshot(path: Path, state: dict[str, Any], fingerprint: str) -> None:
    """In one atomic move: a kill at any moment leaves the old snapshot or the new one."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    about = json.dumps(_pack(state, tensors))
    temporary = unfinished(path)
    try:
        metadata = {"format": _FORMAT, "fingerprint": fingerprint, "state": about}
        save_file(tensors, temporary, metadata=metadata)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_snapshot(path: Path, fingerprint: str) -> dict[str, Any]:
    """What `write_snapshot` wrote, its tensors on the CPU."""
    metadata, tensors = read_checkpoint(path, _FORMAT)
    if metadata.get("fingerprint") != fingerprint:
        raise InputError(
            f"checkpoint {path} belongs to a run with other data or other settings, or of another "
            "number of processes: delete it, or choose another output folder"
        )
    state: dict[str, Any] = _unpack(json.loads(metadata["state"]), tensors)
    return state


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON of the nest; each tensor goes into `tensors` and leaves its name."""
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
