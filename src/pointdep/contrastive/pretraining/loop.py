"""The training loop: one device or many through Fabric, and the same run again after a kill."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pointdep.contrastive.pretraining.interrupts import Interrupts
from pointdep.contrastive.pretraining.journal import Entry, Journal
from pointdep.contrastive.pretraining.order import Order, mix
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.contrastive.pretraining.snapshot import read_snapshot, write_snapshot
from pointdep.contrastive.pretraining.step import make_step
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError, FitWarning, Flag
from pointdep.fitting.progress import Progress, Shown, Silent

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_STEPS_UNSEEN = 50  # on a GPU, between two looks at the loss, which wait for it
_PREPARING = 5  # steps on a GPU in which networks are compiled and a step is recorded
_SHARE_OF_WRITING = 0.05  # at most, of the training time

Evaluate = Callable[[bool], dict[str, list[float]]]
"""Accuracies of a kind, one a replica, of the features as they are; told whether it is the end."""


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
        assert settings.batch_size is not None
        assert settings.learning_rate is not None
        self.recipe, self.images, self.settings = recipe, images, settings
        self.fabric, self.journal, self.checkpoint = fabric, journal, checkpoint
        self.evaluate = evaluate
        self.do = make_step(recipe, images, fabric, settings.learning_rate)
        self.order = Order(len(images.train), settings.batch_size, settings.seeds, fabric.device)
        self._count_steps()
        self.step, self.seconds = 0, 0.0
        self.wall = 0.0  # with compiling, evaluating and writing
        # Of the losses since the last entry of the journal.
        self.sums = torch.zeros(recipe.replicas, device=fabric.device)
        self.summed = 0
        self.flags: list[Flag] = []  # each once

    def _count_steps(self) -> None:
        """Steps in all, between two looks at the features, and between two entries."""
        settings, epoch = self.settings, self.order.steps
        if settings.iterations is None:
            assert settings.epochs is not None
            self.steps, self.every = settings.epochs * epoch, settings.evaluate_every * epoch
            self.period = epoch
        else:
            self.steps, self.every = settings.iterations, settings.evaluate_every
            self.period = self.every or epoch

    def run(self, shown: Shown | Silent) -> None:
        """Train on from where the run is."""
        there = self.checkpoint is not None and self.checkpoint.path.exists()
        if self.fabric.broadcast(there):  # as the process that writes sees it
            self._restore()
            shown.note(f"going on from step {self.step} of {self.steps}")
        self._begun = time.monotonic() - self.wall
        self._started = time.monotonic() - self.seconds
        prepared = self.step + _PREPARING
        self._written = time.monotonic()
        self._write_seconds = 0.0
        on_gpu = self.fabric.device.type == "cuda"
        kept_generators = torch.random.fork_rng(_devices(self.fabric.device))
        with Interrupts() as interrupts, _quick_products(), kept_generators:
            while not self._over():
                losses = self.train_step()
                self.sums += losses
                self.summed += 1
                self.step += 1
                if on_gpu and self.step <= prepared:
                    self._wait_prepared(losses)
                ends = self.step % self.period == 0
                if ends or not on_gpu or self.step % _STEPS_UNSEEN == 0:
                    self._look(losses, shown)
                if ends or self._over():
                    self._end_epoch(shown)
                self._keep()
                if interrupts.asked is not None:
                    self._write()
                    interrupts.leave()

    def _wait_prepared(self, losses: Tensor) -> None:
        """Leave out of the training time what the first steps take: it is not theirs."""
        losses.tolist()
        self._started = time.monotonic() - self.seconds

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

    def _look(self, losses: Tensor, shown: Progress) -> None:
        """Wait for the device, read the clock, say how far it is."""
        values = losses.tolist()
        self.seconds = time.monotonic() - self._started
        if self.settings.minutes:
            self.seconds = self.fabric.broadcast(self.seconds)
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            raise DivergedError(
                f"the loss is not finite at step {self.step} (epoch {self._epoch()}): lower the "
                "learning rate, or change the scale of the score, in another output folder"
            )
        pace = self.step / max(self.seconds, 1e-9)
        detail = f"loss {sum(finite) / len(finite):.3f}, {self._rate(pace)}"
        total = self.steps
        if self.settings.minutes:
            # By the clock, in steps of the pace so far.
            total = min(total, round(self.step / max(self._done(), 1e-9)))
        shown.update(self.step, max(total, self.step), detail)

    def _rate(self, pace: float) -> str:
        return f"{pace * self.order.batch_size:.0f} images/s, epoch {self._epoch()}"

    def _epoch(self) -> int:
        return math.ceil(self.step / self.order.steps)

    def _end_epoch(self, shown: Progress) -> None:
        entry: Entry = {
            "epoch": self.step / self.order.steps,
            "step": self.step,
            "seconds": self.seconds,
            "rate": self.do.rate,
            "images_per_second": self.step * self.order.batch_size / max(self.seconds, 1e-9),
            "loss": (self.sums / max(self.summed, 1)).tolist(),
        }
        self.sums.zero_()
        self.summed = 0
        self._warn()
        if self.evaluate and (self._over() or (self.every and self.step % self.every == 0)):
            before = time.monotonic()
            shown.update(self.step, max(self.steps, self.step), "evaluating")
            entry |= self.evaluate(self._over())
            self._started += time.monotonic() - before  # training time alone is counted
        self.journal.add(entry)

    def _warn(self) -> None:
        """Say each problem of each replica once, in one process."""
        known = {(flag.name, flag.replicas) for flag in self.flags}
        for flag in self.recipe.flags:
            if (flag.name, flag.replicas) not in known:
                self.flags.append(flag)
                if self.fabric.global_rank == 0:
                    warnings.warn(f"epoch {self._epoch()}: {flag}", FitWarning, stacklevel=2)

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
            return  # the next look ends the run, and the checkpoint before can be gone on from
        now = time.monotonic()
        write_snapshot(self.checkpoint.path, self._state(), self.checkpoint.fingerprint)
        self._written = time.monotonic()
        self._write_seconds = self._written - now
        self._started += self._write_seconds

    @property
    def wall_seconds(self) -> float:
        """Since the run began, what it did not run for between a kill and going on left out."""
        return time.monotonic() - self._begun

    def _state(self) -> dict[str, Any]:
        return {
            **self.do.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "wall": self.wall_seconds,
            "sums": self.sums,
            "summed": self.summed,
            "history": self.journal.entries,
            "flags": [[flag.name, flag.replicas, flag.message] for flag in self.flags],
        }

    def _restore(self) -> None:
        assert self.checkpoint is not None
        state = read_snapshot(self.checkpoint.path, self.checkpoint.fingerprint)
        self.do.load_state_dict(state)
        self.step, self.seconds, self.wall = (state[name] for name in ("step", "seconds", "wall"))
        self.sums.copy_(state["sums"])
        self.summed = state["summed"]
        self.journal.entries[:] = state["history"]
        self.flags = [Flag(name, tuple(which), text) for name, which, text in state["flags"]]


@contextmanager
def _quick_products() -> Iterator[None]:
    """TF32 for what is left in float32, and the fastest convolutions; put back afterwards."""
    products, search = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.benchmark = search


def _devices(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []
