"""The training loop: R replicas at once, each with its own rows, objective and early stop."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.errors import DivergedError, InputError
from pointdep.fitting.batches import Cells, RowBatches, held_out_cells
from pointdep.fitting.flags import MEANINGS, Flag
from pointdep.fitting.flat import FlatParameters
from pointdep.fitting.options import TrainingOptions
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Split
from pointdep.fitting.state import TrainingState, load_state, save_state

_SMALLEST_GAIN = 1e-4  # relative rise of the held-out objective that counts as an improvement
_STOP_BLOCK = 16
_CHECKPOINT_EVERY_S = 5.0


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, and what identifies the fit."""

    path: Path
    fingerprint: str


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
    ) -> None:
        self.full, self.options, self.progress = model, options, progress
        self.checkpoint = checkpoint
        smallest = min(len(s.train) for s in splits)
        if smallest < options.batch_size:
            raise InputError(
                f"batch_size={options.batch_size} but a split has only {smallest} training rows: "
                f"choose at most {smallest}, or leave it at 'auto'"
            )
        self.batches = RowBatches(
            x,
            y,
            [s.train for s in splits],
            batch_size=options.batch_size,
            block=options.block,
            seed=options.seed,
            groups=groups,
        )
        self.steps = self.batches.steps(options.min_steps)
        self.held_out, _ = held_out_cells(
            x,
            y,
            [s.stop for s in splits],
            block=max(_STOP_BLOCK, options.block),
            seed=options.seed,
            groups=groups,
        )
        self._saved = time.monotonic()

    def run(self) -> Trained:
        """Train to the end, leave the best weights in the model, and say what went wrong."""
        everything = FlatParameters(self.full.critic)
        buffers = [everything.buffers(r) for r in range(self.full.replicas)]
        state = TrainingState.start(everything.values.detach(), buffers)
        if self.checkpoint is not None and self.checkpoint.path.exists():
            state = load_state(self.checkpoint.path, self.checkpoint.fingerprint, state)
        while state.active and state.epoch < self.options.max_epochs:
            crew = _Crew(self, state)
            while crew.replicas == state.active and state.epoch < self.options.max_epochs:
                state.epoch += 1
                trained = crew.train_epoch()
                self._judge(state, crew, trained, crew.evaluate())
                self._report(state)
                self._save(state)
        self._require_something(state)
        everything.load(state.best)
        for row, kept in zip(buffers, state.best_buffers, strict=True):
            for tensor, value in zip(row, kept, strict=True):
                tensor.copy_(value)
        if self.checkpoint is not None:
            self.checkpoint.path.unlink(missing_ok=True)
        return Trained(tuple(self._flags(state)), state.history, state.best_epoch)

    def _judge(
        self, state: TrainingState, crew: _Crew, trained: list[float], held: list[float]
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
        if self.checkpoint is None or time.monotonic() - self._saved < _CHECKPOINT_EVERY_S:
            return
        save_state(self.checkpoint.path, state, self.checkpoint.fingerprint)
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
            Flag(name, tuple(rows), f"{MEANINGS[name]} (replicas {rows}); {advice}")
            for name, (rows, advice) in found.items()
            if rows
        ]


class _Crew:
    """The replicas that still train, packed together so that the finished ones cost nothing."""

    def __init__(self, engine: Engine, state: TrainingState) -> None:
        self.engine, self.state, self.replicas = engine, state, list(state.active)
        rows = self.replicas
        self.model = engine.full.select(rows)
        self.flat = FlatParameters(self.model.critic)
        self.flat.load(state.values[rows])
        for position, replica in enumerate(rows):
            for tensor, value in zip(
                self.flat.buffers(position), state.buffers[replica], strict=True
            ):
                tensor.copy_(value)
        self.average = state.average[rows].clone()
        self.moving = state.moving[rows].clone()
        self.optimizer = torch.optim.AdamW(
            [self.flat.values],
            lr=engine.options.learning_rate,
            weight_decay=engine.options.weight_decay,
            fused=self.average.device.type in {"cpu", "cuda"} or None,
        )
        if state.step:
            self.optimizer.state[self.flat.values] = {
                "step": torch.tensor(float(state.step), device=self._step_device()),
                "exp_avg": state.first[rows].clone(),
                "exp_avg_sq": state.second[rows].clone(),
            }
        held = engine.held_out
        self.held_out = Cells(held.x[rows], held.y[rows], held.joint[rows], held.product[rows])

    def _step_device(self) -> torch.device:
        device = self.average.device
        return device if device.type == "cuda" else torch.device("cpu")

    def train_epoch(self) -> list[float]:
        """One epoch of steps; the mean objective of each replica's training batches."""
        engine, state = self.engine, self.state
        self.model.train()
        total = torch.zeros(len(self.replicas), device=self.average.device)
        for index in engine.batches.indices(state.step, engine.steps, self.replicas):
            value = self._objective(engine.batches.cells(index), training=True)
            self.flat.backward(-value.sum())
            self.flat.clip_(engine.options.clip)
            self.optimizer.step()
            state.step += 1
            decay = min(engine.options.average, (1 + state.step) / (10 + state.step))
            if engine.options.average:
                self.average.lerp_(self.flat.values.detach(), 1.0 - decay)
            total += value.detach()
        if not engine.options.average:
            self.average.copy_(self.flat.values.detach())
        return [float(v) for v in total / engine.steps]

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """The held-out objective of the averaged weights, per replica."""
        self.model.eval()
        current = self.flat.values.detach().clone()
        self.flat.load(self.average)
        value = self._objective(self.held_out, training=False)
        self.flat.load(current)
        return [float(v) for v in value]

    def _objective(self, cells: Cells, *, training: bool) -> Tensor:
        """The objective of each replica, (A,)."""
        scores = self.model.scores(self._raw(cells, training)).flatten(1, 2)

        def of_method(method: Method, rows: Tensor) -> Tensor:
            joint, product, part = cells.joint, cells.product, scores[rows]
            if joint.ndim == 3:
                joint = joint[rows]
            if product.ndim == 3:
                product = product[rows]
            if training and method.gradient is not None:
                return self._running(method, rows, part, joint, product)
            return method.objective(part, joint=joint, product=product)

        rows = torch.arange(len(self.replicas), device=scores.device)
        return self.model.per_method(of_method, rows)

    def _running(
        self, method: Method, rows: Tensor, scores: Tensor, joint: Tensor, product: Tensor
    ) -> Tensor:
        assert method.gradient is not None
        # Not "is any of it NaN": a replica that diverges must not restart its neighbours.
        known = self.moving[rows] if self.state.step else None
        value, new = method.gradient(scores, known, joint=joint, product=product)
        self.moving[rows] = new
        return value

    def _raw(self, cells: Cells, training: bool) -> Tensor:
        """The critic's output (A, G, b, b); without gradients in chunks that bound the memory."""
        if training:
            return self.model.raw_matrix(cells.x, cells.y)
        width = self.model.critic.cell_width() * len(self.replicas) * cells.x.shape[2] ** 2
        blocks = max(1, (1 << 22) // width)
        return torch.cat(
            [
                self.model.raw_matrix(a, b)
                for a, b in zip(
                    torch.split(cells.x, blocks, 1), torch.split(cells.y, blocks, 1), strict=True
                )
            ],
            1,
        )

    def is_finite(self, position: int) -> bool:
        return bool(torch.isfinite(self.average[position]).all())

    def keep_best(self, position: int) -> None:
        """Copy the averaged weights (and a module's buffers) as the best of their replica."""
        replica = self.replicas[position]
        self.state.best[replica] = self.average[position]
        self.state.best_buffers[replica] = [t.clone() for t in self.flat.buffers(position)]

    def write_back(self) -> None:
        """Bring the state of these replicas up to date."""
        state, rows = self.state, self.replicas
        moments = self.optimizer.state[self.flat.values]
        state.values[rows] = self.flat.values.detach()
        state.average[rows], state.moving[rows] = self.average, self.moving
        state.first[rows], state.second[rows] = moments["exp_avg"], moments["exp_avg_sq"]
        for position, replica in enumerate(rows):
            state.buffers[replica] = [t.clone() for t in self.flat.buffers(position)]
