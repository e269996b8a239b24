"""The training loop: R replicas at once, each with its own rows, objective and early stop."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.errors import MEANINGS, DivergedError, Flag, InputError
from pointdep.fitting.active_replicas import Crew, FlatParameters
from pointdep.fitting.batches import (
    Batches,
    Cells,
    LeanCells,
    RowBatches,
    TrainingOptions,
    held_out_cells,
    lean_held_out_cells,
)
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress, note
from pointdep.fitting.sharing import SharedBatches, Sharing
from pointdep.fitting.splits import Rows, Split
from pointdep.fitting.state import TrainingState, load_state, save_state

# Going on from a checkpoint, in one process or in several.


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


_SMALLEST_GAIN = 1e-4  # relative rise of the held-out objective that counts as an improvement
_STOP_BLOCK = 16
_LARGEST_STOP_BLOCK = 256  # of the large batches that streamed rows have
_CHECKPOINT_EVERY_S = 5.0

MOST_CELLS = 1 << 22
"""Scores of one replica's batch beyond which those of a separable critic are not laid out."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, and what identifies the fit; settings: what it was told."""

    path: Path
    fingerprint: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """What training found, beside the weights: flags, and per epoch the objectives per replica."""

    flags: tuple[Flag, ...]
    history: list[dict[str, list[float | None]]]
    best_epochs: list[int]


class Engine:
    """Trains a `RatioModel` on rows of x and y; one per fit."""

    def __init__(
        self,
        model: RatioModel,
        x: Tensor,
        y: Tensor,
        splits: Sequence[Split],
        options: TrainingOptions,
        *,
        groups: Tensor | None = None,
        progress: Progress,
        checkpoint: Checkpoint | None = None,
        batches: Batches | None = None,
        processes: Processes = ALONE,
    ) -> None:
        """batches: where training rows come from, if not from the training parts of the splits.

        processes: that train together, each with the same arguments; given batches are its share.
        """
        self.full, self.options, self.progress = model, options, progress
        self.checkpoint, self.processes = checkpoint, processes
        self.sharing = Sharing(processes, model.critic) if processes.several else None
        lean = is_lean(model, options.batch_size, options.block)
        self.batches = batches or _row_batches(x, y, splits, options, groups, lean)
        if self.sharing is not None:
            self.sharing.require(options.batch_size, options.block)
            if batches is None:
                self.batches = SharedBatches(self.batches, self.sharing)
        largest = _LARGEST_STOP_BLOCK if batches else options.block
        block = max(_STOP_BLOCK, min(options.block, largest))
        self.held_out = self._held_out(x, y, [s.stop for s in splits], groups, block)
        if not bool(self.held_out.has_product().all()):
            raise InputError(
                "the rows that decide when to stop hold no pair of different groups in some split: "
                "give more groups, or a larger stop_fraction"
            )
        self._saved = time.monotonic()

    def _held_out(
        self, x: Tensor, y: Tensor, rows: Sequence[Rows], groups: Tensor | None, block: int
    ) -> Cells | LeanCells:
        longest = max(len(part) for part in rows)
        how: dict[str, Any] = {"block": block, "seed": self.options.seed, "groups": groups}
        if is_lean(self.full, longest, min(block, longest)):
            return lean_held_out_cells(x, y, rows, **how)
        return held_out_cells(x, y, rows, **how)[0]

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return self.batches.steps(self.options.min_steps)

    def run(self) -> Trained:
        """Train to the end, leave the best weights in the model, and say what went wrong."""
        everything = FlatParameters(self.full.critic)
        buffers = [everything.buffers(r) for r in range(self.full.replicas)]
        state = TrainingState.start(everything.values.detach(), buffers)
        if self.checkpoint is not None:
            file = self.checkpoint
            state = resume(file.path, file.fingerprint, file.settings, state, self.processes)
            if state.epoch:
                note(self.progress, f"going on from {file.path}, after epoch {state.epoch}")
        while state.active and state.epoch < self.options.max_epochs:
            crew = Crew(self.full, self.batches, self.held_out, self.options, state, self.sharing)
            if state.epoch == 0 and self.full.critic.informed:
                state.best_value.copy_(torch.tensor(self._agreed(crew.evaluate())))
            while crew.replicas == state.active and state.epoch < self.options.max_epochs:
                state.epoch += 1
                trained = crew.train_epoch()
                self._judge(state, crew, self._agreed(trained), self._agreed(crew.evaluate()))
                self._report(state)
                self._save(state)
            crew.recorded = None  # a recording holds memory of the device
        self._require_something(state)
        everything.load(state.best)
        for row, kept in zip(buffers, state.best_buffers, strict=True):
            for tensor, value in zip(row, kept, strict=True):
                tensor.copy_(value)
        return Trained(tuple(self._flags(state)), state.history, state.best_epoch)

    def _agreed(self, values: list[float]) -> list[float]:
        """Those of the first process: what is decided by them is decided alike in all."""
        return self.processes.first(lambda: values)

    def _judge(
        self, state: TrainingState, crew: Crew, trained: list[float], held: list[float]
    ) -> None:
        """Keep what is better, count what is not, and drop the replicas that are done."""
        replicas = len(state.values)
        entry: dict[str, list[float | None]] = {
            "train": [None] * replicas,
            "stop": [None] * replicas,
        }
        still = []
        for position, replica in enumerate(crew.replicas):
            value, best = held[position], state.best_value[replica].item()
            if not (math.isfinite(value) and crew.is_finite(position)):
                state.diverged.append(replica)
                continue
            entry["train"][replica], entry["stop"][replica] = trained[position], value
            if best == -math.inf or value > best + _SMALLEST_GAIN * abs(best):
                state.best_value[replica] = value
                state.best_epoch[replica], state.bad[replica] = state.epoch, 0
                crew.keep_best(position)
            else:
                state.bad[replica] += 1
            if state.bad[replica] < self.options.patience:
                still.append(replica)
        state.history.append(entry)
        crew.write_back()
        state.active = still

    def _report(self, state: TrainingState) -> None:
        values = [v for v in state.best_value.tolist() if math.isfinite(v)]
        best = f"held-out {sum(values) / len(values):.4f}" if values else "no finite value yet"
        detail = f"epochs, {best}, {len(state.active)} of {len(state.values)} training"
        self.progress.update(state.epoch, self.options.max_epochs, detail)

    def _save(self, state: TrainingState) -> None:
        if self.checkpoint is None or not self.processes.is_first:
            return
        if time.monotonic() - self._saved < _CHECKPOINT_EVERY_S:
            return
        file = self.checkpoint
        save_state(file.path, state, file.fingerprint, file.settings)
        self._saved = time.monotonic()

    def _require_something(self, state: TrainingState) -> None:
        lost = [r for r, value in enumerate(state.best_value.tolist()) if not math.isfinite(value)]
        if lost:
            key = self.full.methods[lost[0]].key
            raise DivergedError(
                f"training with method {key!r} gave a non-finite objective before there was "
                "anything to keep. Methods without exponentials of the score are stable: try "
                "method='pc', or a smaller learning_rate"
            )

    def _flags(self, state: TrainingState) -> list[Flag]:
        last = state.epoch
        ended = [
            r
            for r, bad in enumerate(state.bad)
            if bad < self.options.patience and r not in state.diverged
        ]
        improving = [r for r in ended if state.best_epoch[r] == last]
        limit = f"raise max_epochs (now {self.options.max_epochs})"
        found = {
            "diverged": (sorted(state.diverged), "try method='pc' or a smaller learning_rate"),
            "not_converged": (
                [r for r in ended if r not in improving],
                f"raise max_epochs (now {self.options.max_epochs})",
            ),
            "still_improving": (improving, limit),
        }
        return [
            Flag(name, tuple(rows), f"{MEANINGS[name]} (models {rows}); {advice}")
            for name, (rows, advice) in found.items()
            if rows
        ]


def is_lean(model: RatioModel, rows: int, block: int) -> bool:
    """Whether the cells of so many rows in blocks are not to be laid out."""
    return model.critic.separable and rows * block > MOST_CELLS


def _row_batches(
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    options: TrainingOptions,
    groups: Tensor | None,
    lean: bool,
) -> RowBatches:
    smallest = min(len(s.train) for s in splits)
    if smallest < options.batch_size:
        raise InputError(
            f"batch_size={options.batch_size} but a split has only {smallest} training rows: "
            f"choose at most {smallest}, or leave it at 'auto'"
        )
    return RowBatches(
        x,
        y,
        [s.train for s in splits],
        batch_size=options.batch_size,
        block=options.block,
        seed=options.seed,
        groups=groups,
        lean=lean,
    )
