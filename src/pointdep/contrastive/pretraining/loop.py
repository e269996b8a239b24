"""The training loop: one device or many through Fabric, and the same run again after a kill."""

from __future__ import annotations

import csv
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import Recipe, mix
from pointdep.contrastive.pretraining.step import Step
from pointdep.core.precision import matmul_precision
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError, FitWarning, Flag, InputError
from pointdep.fitting.progress import Progress, Shown, Silent
from pointdep.fitting.state import read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_FORMAT = "pointdep-pretraining-1"
_STEPS_UNSEEN = 50  # on a GPU, between two looks at the loss, which wait for it
_PREPARING = 5  # steps on a GPU in which networks are compiled and a step is recorded
_SHARE_OF_WRITING = 0.05  # at most, of the training time
_VALUES = ("loss", "knn", "linear")

Entry = dict[str, Any]
"""epoch, step, seconds, rate, and loss, knn or linear with one value per replica."""

Evaluate = Callable[[bool], dict[str, list[float]]]
"""Accuracies by kind, one per replica, of the features as they are; told whether it is the end."""


@dataclass(frozen=True)
class Checkpoint:
    """Where the state is kept, whose it is, and how often it is written, in seconds."""

    path: Path
    fingerprint: str
    every: float


class Training:
    """One run: `run` trains until the epochs, the iterations or the minutes are over."""

    def __init__(
        self,
        recipe: Recipe,
        images: ImageSet,
        settings: Settings,
        fabric: Fabric,
        journal: Journal,
        *,
        checkpoint: Checkpoint | None = None,
        evaluate: Evaluate | None = None,
    ) -> None:
        """images: on the fabric's device, as the recipe prepared them."""
        told = settings.filled
        self.recipe, self.settings, self.images = recipe, settings, images
        self.fabric, self.journal, self.checkpoint = fabric, journal, checkpoint
        self.evaluate = evaluate
        self.do = Step(recipe, images, fabric, told.learning_rate)
        self.order = Order(len(images.train), told.batch_size, settings.seeds, fabric.device)
        # Steps in all, between two evaluations, and between two entries of the journal.
        epoch, every = self.order.steps, settings.evaluate_every
        if settings.iterations is None:
            self.steps, self.every, self.period = told.epochs * epoch, every * epoch, epoch
        else:
            self.steps, self.every, self.period = settings.iterations, every, every or epoch
        # Training time; `wall` includes compiling, evaluating and writing.
        self.step, self.seconds, self.wall = 0, 0.0, 0.0
        # Of the losses since the last entry of the journal.
        self.sums, self.summed = torch.zeros(recipe.replicas, device=fabric.device), 0
        self.flags: list[Flag] = []  # each once

    def run(self, shown: Shown | Silent) -> None:
        """Train on from where the run is."""
        there = self.checkpoint is not None and self.checkpoint.path.exists()
        if self.fabric.broadcast(there):  # as the process that writes sees it
            self._restore()
            shown.note(f"going on from step {self.step} of {self.steps}")
        self._written = now = time.monotonic()
        self._begun, self._started = now - self.wall, now - self.seconds
        self._write_seconds, prepared = 0.0, self.step + _PREPARING
        device = self.fabric.device
        on_gpu = device.type == "cuda"
        kept_generators = torch.random.fork_rng([device] if on_gpu else [])
        with Interrupts() as interrupts, _quick_products(), kept_generators:
            while not self._over():
                losses = self.train_step()
                self.sums += losses
                self.summed += 1
                self.step += 1
                if on_gpu and self.step <= prepared:
                    # What the first steps take is preparation, and not training time.
                    losses.tolist()
                    self._started = time.monotonic() - self.seconds
                ends = self.step % self.period == 0
                if ends or not on_gpu or self.step % _STEPS_UNSEEN == 0:
                    self._look(losses, shown)
                if ends or self._over():
                    self._end_epoch(shown)
                self._keep()
                if interrupts.asked is not None:
                    self._write()
                    interrupts.leave()

    def _over(self) -> bool:
        return self.step >= self.steps or self._done() >= 1.0

    def _done(self) -> float:
        """The share of the run that is behind it, by steps or by the clock."""
        minutes = self.settings.minutes
        by_clock = self.seconds / (60.0 * minutes) if minutes else 0.0
        return max(self.step / self.steps, by_clock)

    def train_step(self) -> Tensor:
        """The losses of the replicas, (R,), before the step."""
        rank, ranks = self.fabric.global_rank, self.fabric.world_size
        return self.do(
            self.order.batch(self.step, rank, ranks),
            mix("step", self.settings.seeds[0], self.step, rank),
            self.recipe.rate(self._done(), self.step),
            self.recipe.clips_gradient(self.step),
        )

    @property
    def _epoch(self) -> int:
        return math.ceil(self.step / self.order.steps)

    @property
    def _pace(self) -> float:
        """Images per second."""
        return self.step * self.order.batch_size / max(self.seconds, 1e-9)

    def _look(self, losses: Tensor, shown: Progress) -> None:
        """Wait for the device, read the clock, report progress."""
        finite = [value for value in losses.tolist() if math.isfinite(value)]
        self.seconds = time.monotonic() - self._started
        if self.settings.minutes:
            self.seconds = self.fabric.broadcast(self.seconds)
        if not finite:
            raise DivergedError(
                f"the loss is not finite at step {self.step} (epoch {self._epoch}): lower the "
                "learning rate, or change the scale of the score, in another output folder"
            )
        loss = f"loss {sum(finite) / len(finite):.3f}"
        total = self.steps
        if self.settings.minutes:
            # By the clock, in steps of the pace so far.
            total = min(total, round(self.step / max(self._done(), 1e-9)))
        detail = f"{loss}, {self._pace:.0f} images/s, epoch {self._epoch}"
        shown.update(self.step, max(total, self.step), detail)

    def _end_epoch(self, shown: Progress) -> None:
        entry: Entry = {
            "epoch": self.step / self.order.steps,
            "step": self.step,
            "seconds": self.seconds,
            "rate": self.do.rate,
            "images_per_second": self._pace,
            "loss": (self.sums / max(self.summed, 1)).tolist(),
        }
        self.sums.zero_()
        self.summed = 0
        # Each problem of each replica is said once, by one process.
        known = {(flag.name, flag.replicas) for flag in self.flags}
        new = [flag for flag in self.recipe.flags if (flag.name, flag.replicas) not in known]
        self.flags += new
        for flag in new if self.fabric.global_rank == 0 else ():
            warnings.warn(f"epoch {self._epoch}: {flag}", FitWarning, stacklevel=2)
        if self.evaluate and (self._over() or (self.every and self.step % self.every == 0)):
            before = time.monotonic()
            shown.update(self.step, max(self.steps, self.step), "evaluating")
            entry |= self.evaluate(self._over())
            self._started += time.monotonic() - before  # only training time is counted
        self.journal.add(entry)

    def _keep(self) -> None:
        """Write the state when it is time, and never for more than a small share of the time."""
        if self.checkpoint is None:
            return
        wait = max(self.checkpoint.every, self._write_seconds / _SHARE_OF_WRITING)
        if time.monotonic() - self._written >= wait or self._over():
            self._write()

    def _write(self) -> None:
        if self.checkpoint is None or self.fabric.global_rank != 0:
            return
        if not self.recipe.sound().any():
            return  # the next look ends the run, and the checkpoint before is still good
        now = time.monotonic()
        state = {
            **self.do.state_dict(),
            **{name: getattr(self, name) for name in ("step", "seconds", "sums", "summed")},
            "wall": self.wall_seconds,
            "history": self.journal.entries,
            "flags": [list(asdict(flag).values()) for flag in self.flags],
        }
        write_checkpoint(self.checkpoint.path, _FORMAT, self.checkpoint.fingerprint, state)
        self._written = time.monotonic()
        self._write_seconds = self._written - now
        self._started += self._write_seconds

    @property
    def wall_seconds(self) -> float:
        """Since the run began, without the time between a kill and going on."""
        return time.monotonic() - self._begun

    def _restore(self) -> None:
        assert self.checkpoint is not None
        other = (
            "belongs to a run with other data or other settings, or of another number of "
            "processes: delete it, or choose another output folder"
        )
        path, fingerprint = self.checkpoint.path, self.checkpoint.fingerprint
        state = read_checkpoint(path, _FORMAT, fingerprint, lambda _: other)
        self.do.load_state_dict(state)
        for name in ("step", "seconds", "wall", "summed"):
            setattr(self, name, state[name])
        self.sums.copy_(state["sums"])
        self.journal.entries[:] = state["history"]
        self.flags = [Flag(name, tuple(which), text) for name, which, text in state["flags"]]


@contextmanager
def _quick_products() -> Iterator[None]:
    """TF32 for what is left in float32, and the fastest convolutions; put back afterwards."""
    search, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        with matmul_precision("high"):
            yield
    finally:
        torch.backends.cudnn.benchmark = search


class Order:
    """Which rows a step sees: every epoch one permutation per seed, cut into batches.

    The order depends on the seed and the step alone, so that a run that goes on from a checkpoint
    sees what it would have seen. An incomplete last batch is left out.
    """

    def __init__(
        self, rows: int, batch_size: int, seeds: Sequence[int], device: torch.device
    ) -> None:
        if batch_size > rows:
            raise InputError(f"batch_size={batch_size} is more than the {rows} training images")
        self.rows, self.batch_size, self.seeds, self.device = rows, batch_size, seeds, device
        self.steps = rows // batch_size
        self._epoch, self._permutation = -1, torch.empty(0)

    def batch(self, step: int, rank: int = 0, ranks: int = 1) -> Tensor:
        """(seeds, batch_size / ranks): the part of this rank."""
        epoch, place = divmod(step, self.steps)
        if epoch != self._epoch:
            starts = [mix("order", seed, epoch) for seed in self.seeds]
            generators = [torch.Generator().manual_seed(start) for start in starts]
            drawn = [torch.randperm(self.rows, generator=one) for one in generators]
            self._epoch, self._permutation = epoch, torch.stack(drawn).to(self.device)
        share = self.batch_size // ranks
        start = place * self.batch_size + rank * share
        return self._permutation[:, start : start + share]


class Interrupts:
    """Hold back Ctrl-C and SIGTERM until a step is over and its state can be kept.

    While it is entered, the first signal is only noted; a second one takes effect at once.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # others cannot
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def leave(self) -> None:
        """Do now what was asked for."""
        self.__exit__()
        if self.asked is not None:
            signal.raise_signal(self.asked)

    def _note(self, number: int, _: FrameType | None) -> None:
        again, self.asked = self.asked is not None, number
        if again:
            self.leave()


class Journal:
    """The history so far; with a folder, also as ``history.csv`` and for TensorBoard."""

    def __init__(self, names: Sequence[str], folder: Path | None = None) -> None:
        """names: of the replicas."""
        self.names, self.folder = tuple(names), folder
        self.entries: list[Entry] = []
        self._writer: Any = None

    def add(self, entry: Entry) -> None:
        """Keep one entry."""
        if self._writer is None and self.folder is not None:
            # Steps that a killed run wrote after its last checkpoint are written again.
            step = self.entries[-1]["step"] + 1 if self.entries else 0
            self._writer = _summary_writer(self.folder / "tensorboard", step)
        self.entries.append({key: _finite(value) for key, value in entry.items()})
        if self.folder is not None:
            self.write_csv(self.folder / "history.csv")
        if self._writer is None:
            return
        kinds = ("rate", "images_per_second")
        scalars: Entry = {kind: entry[kind] for kind in kinds if kind in entry}
        for kind in _VALUES:
            names = (f"{kind}/{name}" for name in self.names)
            scalars |= dict(zip(names, entry.get(kind, ()), strict=False))
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, entry["step"])
        self._writer.flush()

    def last(self, kind: str) -> list[float | None]:
        """The newest values of a kind, one per replica; None if there are none."""
        found = (entry[kind] for entry in reversed(self.entries) if kind in entry)
        return list(next(found, [None] * len(self.names)))

    def write_csv(self, path: Path) -> None:
        """One line per entry and replica."""
        common = ("epoch", "step", "seconds", "rate")
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["run", *common, *_VALUES])
            for entry in self.entries:
                for replica, name in enumerate(self.names):
                    values = [entry[kind][replica] if kind in entry else "" for kind in _VALUES]
                    writer.writerow([name, *(entry.get(key, "") for key in common), *values])

    def close(self) -> None:
        """Finish the event files."""
        if self._writer is not None:
            self._writer.close()


def _summary_writer(folder: Path, step: int) -> Any:
    """TensorBoard's writer, or None if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)


def _finite(value: Any) -> Any:
    """As JSON takes it: what is not finite becomes None."""
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
