"""Going on from a checkpoint, in one process or in several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pointdep.fitting.processes import Processes
from pointdep.fitting.state import TrainingState, load_state


def resume(
    path: Path,
    fingerprint: str,
    settings: Mapping[str, Any],
    state: TrainingState,
    processes: Processes,
) -> TrainingState:
    """The state that the checkpoint holds, or the given one where there is none.

    The first process reads it and tells the others, who may not see the file: state, and the state
    of the random generators.
    """
    device = state.values.device

    def read() -> tuple[TrainingState, list[Tensor]] | None:
        if not path.exists():
            return None
        found = load_state(path, fingerprint, state, settings)
        return _moved(found, torch.device("cpu")), _generators(device)

    if not processes.several:
        return load_state(path, fingerprint, state, settings) if path.exists() else state
    told = processes.first(read)
    if told is None:
        return state
    torch.set_rng_state(told[1][0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(told[1][1], device)
    return _moved(told[0], device)


def _generators(device: torch.device) -> list[Tensor]:
    found = [torch.get_rng_state()]
    return [*found, torch.cuda.get_rng_state(device)] if device.type == "cuda" else found


def _moved(state: TrainingState, device: torch.device) -> TrainingState:
    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device)
        if isinstance(value, list) and value and isinstance(value[0], list):
            return [[tensor.to(device) for tensor in row] for row in value]
        return value

    return replace(state, **{f.name: moved(getattr(state, f.name)) for f in fields(state)})
