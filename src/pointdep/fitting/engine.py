"""The training loop: R replicas at once, each with its own rows, objective and early stop."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch

from pointdep.core.ratio import RatioModel
from pointdep.errors import MEANINGS, DivergedError, Flag, InputError
from pointdep.fitting.active_replicas import Crew, FlatParameters
from pointdep.fitting.batches import Batches, RowBatches, SplitRows, TrainingOptions
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress, Shown
from pointdep.fitting.sharing import Sharing
from pointdep.fitting.state import (
    Checkpoint,
    TrainingState,
    load_state,
    save_state,
    sole_writer,
    try_to_keep,
)

_SMALLEST_GAIN = 1e-4  # relative rise of the held-out objective that counts as an improvement
_STOP_BLOCK = 8
_PATIENCE_AT_START = 4
_LARGEST_STOP_BLOCK = 256  # of the large batches that streamed rows have
_CHECKPOINT_EVERY_S = 5.0

MOST_MAPPED = 1 << 26
"""Numbers that the rows of all replicas may have together to be mapped before training."""

MOST_CELLS = 1 << 22
"""Scores of one replica's batch beyond which those of a separable critic are not laid out."""


@dataclass(frozen=True)
class Trained:
    """What training found, beside the weights: flags, and per epoch the objectives per replica."""

    flags: tuple[Flag, ...]
    history: list[dict[str, list[float | None]]]
    best_epochs: list[int]


class Engine:
    """Trains a `RatioModel` on pairs of rows; one per fit."""

    def __init__(
        self,
        model: RatioModel,
        rows: SplitRows,
        options: TrainingOptions,
        *,
        progress: Progress,
        checkpoint: Checkpoint | None = None,
        batches: Batches | None = None,
        processes: Processes = ALONE,
        reported: int | None = None,
        patience: Sequence[int] = (),
    ) -> None:
        """batches: where training rows come from, if not from the training parts of the splits.

        processes: that train together, each with the same arguments; given batches are its share.
        patience: of each replica, if not that of the options.
        reported: how many replicas, the first ones, what `run` gives is about; `told` is of others.
        """
        self.reported = model.replicas if reported is None else reported
        self.full, self.options, self.progress = model, options, progress
        self.checkpoint, self.processes = checkpoint, processes
        train = [split.train for split in rows.splits]
        lean = is_lean(model, options.batch_size, options.block)
        self.mapped = batches is None and not processes.several and _maps_first(model, rows)
        x, y = rows.x, rows.y
        if self.mapped:
            with torch.no_grad():
                maps = zip((model.x_map, model.y_map), (x, y), strict=True)
                x, y = (one(side.expand(model.replicas, -1, -1)) for one, side in maps)
        self.batches = batches or RowBatches(x, y, train, options, groups=rows.groups, lean=lean)
        self.sharing = Sharing(processes, model.critic) if processes.several else None
        if self.sharing is not None:
            self.sharing.require(options.batch_size, options.block)
        stop = [split.stop for split in rows.splits]
        longest = max(len(part) for part in stop)
        largest = _LARGEST_STOP_BLOCK if batches else options.block
        block = max(_STOP_BLOCK, min(options.block, largest))
        lean = is_lean(model, longest, min(block, longest))
        self.held_out = rows.held_out(stop, block, lean=lean)[0]
        if not bool(self.held_out.has_product().all()):
            raise InputError(
                "the rows that decide when to stop hold no pair of different groups in some split: "
                "give more groups, or a larger stop_fraction"
            )
        self.patience = patience or [options.patience] * model.replicas
        self._saved, self._unwritten = -math.inf, False  # the first epoch is kept at once

    def run(self) -> Trained:
        """Train to the end, leave the best weights in the model, and say what went wrong."""
        with ExitStack() as stack:
            if self.checkpoint is not None:
                writer = sole_writer(self.checkpoint.path)
                self.processes.first(lambda: stack.enter_context(writer))
            return self._run()

    def _run(self) -> Trained:
        everything = FlatParameters(self.full.critic)
        buffers = [everything.buffers(r) for r in range(self.full.replicas)]
        state = TrainingState.start(everything.values.detach(), buffers)
        if self.checkpoint is not None:
            state = load_state(self.checkpoint, state, self.processes)
            if state.epoch and isinstance(self.progress, Shown):
                told = f"going on from {self.checkpoint.path}, after epoch {state.epoch}"
                self.progress.note(told)
        while state.active and state.epoch < self.options.max_epochs:
            crew = Crew(self.full, self.batches, self.held_out, self.options, state, self.sharing)
            if self.mapped:
                crew.map_first()
            if state.epoch == 0 and self.full.critic.informed:
                state.best_value.copy_(torch.tensor(self._agreed(crew.evaluate())))
            while crew.replicas == state.active and state.epoch < self.options.max_epochs:
                state.epoch += 1
                trained = crew.train_epoch()
                self._judge(state, crew, self._agreed(trained), self._agreed(crew.evaluate()))
                self._report(state)
            crew.recorded = None  # a recording holds memory of the device
        self._require_finite(state)
        self._ended = state
        everything.load(state.best)
        for row, kept in zip(buffers, state.best_buffers, strict=True):
            for tensor, value in zip(row, kept, strict=True):
                tensor.copy_(value)
        return self.told(0, self.reported)

    def told(self, first: int, end: int) -> Trained:
        """What the run has found of these replicas, as of a run that trained no others."""
        own, state = slice(first, end), self._ended
        history = [{k: values[own] for k, values in entry.items()} for entry in state.history]
        # Other replicas may have trained on after these.
        while history and all(value is None for value in history[-1]["stop"]):
            history.pop()
        return Trained(tuple(self._flags(state, own)), history, state.best_epoch[own])

    def _agreed(self, values: list[float]) -> list[float]:
        """Those of the first process: what is decided by them is decided alike in all."""
        return self.processes.first(lambda: values)

    def _judge(
        self, state: TrainingState, crew: Crew, trained: list[float], held: list[float]
    ) -> None:
        """Keep what is better, count what is not, and drop the replicas that are done."""
        entry: dict[str, list[float | None]] = {
            name: [None] * len(state.values) for name in ("train", "stop")
        }
        still = []
        for position, replica in enumerate(crew.replicas):
            value, best = held[position], state.best_value[replica].item()
            if not (math.isfinite(value) and bool(crew.average[position].isfinite().all())):
                state.diverged.append(replica)
                continue
            entry["train"][replica], entry["stop"][replica] = trained[position], value
            if best == -math.inf or value > best + _SMALLEST_GAIN * abs(best):
                state.best_value[replica] = value
                state.best_epoch[replica], state.bad[replica] = state.epoch, 0
                crew.keep_best(position)
            else:
                state.bad[replica] += 1
            if state.bad[replica] < self._patience_of(state, replica):
                still.append(replica)
        state.history.append(entry)
        crew.write_back()
        state.active = still

    def _patience_of(self, state: TrainingState, replica: int) -> int:
        """How many epochs without a gain this replica waits.

        A network that adds to a closed form shows within a few epochs whether there is anything to
        add. Where it never did better than the start, it stops sooner.
        """
        at_start = self.full.critic.informed and state.best_epoch[replica] == 0
        most = self.patience[replica]
        return min(most, max(_PATIENCE_AT_START, most // 2)) if at_start else most

    def _report(self, state: TrainingState) -> None:
        """Say how far the training is, and write a checkpoint now and then."""
        values = [v for v in state.best_value.tolist() if math.isfinite(v)]
        best = f"held-out {sum(values) / len(values):.4f}" if values else "no finite value yet"
        detail = f"epochs, {best}, {len(state.active)} of {len(state.values)} training"
        self.progress.update(state.epoch, self.options.max_epochs, detail)
        due = time.monotonic() - self._saved >= _CHECKPOINT_EVERY_S
        if self.checkpoint is not None and self.processes.is_first and due:
            self._unwritten = try_to_keep(
                partial(save_state, self.checkpoint, state), self._unwritten
            )
            self._saved = time.monotonic()

    def _require_finite(self, state: TrainingState) -> None:
        finite = state.best_value[: self.reported].isfinite().tolist()
        if not all(finite):
            key = self.full.methods[finite.index(False)].key
            raise DivergedError(
                f"training with method {key!r} gave a non-finite objective before there was "
                "anything to keep. Methods without exponentials of the score are stable: try "
                "method='pc', or a smaller learning_rate"
            )

    def _flags(self, state: TrainingState, own: slice) -> list[Flag]:
        diverged = sorted(r - own.start for r in state.diverged if own.start <= r < own.stop)
        ended = [
            r
            for r, bad in enumerate(state.bad[own])
            if bad < self._patience_of(state, own.start + r) and r not in diverged
        ]
        improving = [r for r in ended if state.best_epoch[own][r] == state.epoch]
        limit = f"raise max_epochs (now {self.options.max_epochs})"
        found = {
            "diverged": (diverged, "try method='pc' or a smaller learning_rate"),
            "not_converged": ([r for r in ended if r not in improving], limit),
            "still_improving": (improving, limit),
        }
        return [
            Flag(name, tuple(rows), f"{MEANINGS[name]} (models {rows}); {advice}")
            for name, (rows, advice) in found.items()
            if rows
        ]


def _maps_first(model: RatioModel, rows: SplitRows) -> bool:
    """Whether all rows go through each replica's maps once, and not a batch in every step."""
    if not model.critic.informed:
        return False
    sides = (model.x_map, rows.x), (model.y_map, rows.y)
    widths = [int(one(side[:1].expand(model.replicas, 1, -1)).shape[-1]) for one, side in sides]
    return model.replicas * len(rows.x) * sum(widths) <= MOST_MAPPED


def is_lean(model: RatioModel, rows: int, block: int) -> bool:
    """Whether the cells of so many rows in blocks are not to be laid out."""
    return model.critic.separable and rows * block > MOST_CELLS
