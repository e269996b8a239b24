"""The training loop: one device or many through Fabric, and the same run again after a kill.

A step runs as written or, on one GPU, as a CUDA graph.
"""

from __future__ import annotations

import csv
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import Recipe, mix
from pointdep.core.precision import matmul_precision
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError, FitWarning, Flag, InputError
from pointdep.fitting.progress import Progress, Shown, Silent
from pointdep.fitting.recording import WARM_UP, on_side_stream, record
from pointdep.fitting.rendezvous import pick_device, start_fabric
from pointdep.fitting.state import read_checkpoint, sole_writer, try_to_keep, write_checkpoint

if TYPE_CHECKING:
    from lightning.fabric import Fabric

STATE = "checkpoint.safetensors"
_FORMAT = "pointdep-pretraining-2"
_STEPS_UNSEEN = 50  # on a GPU, between two looks at the loss, which wait for it
_PREPARING = 5  # steps on a GPU in which networks are compiled and a step is recorded
_SHARE_OF_WRITING = 0.05  # at most, of the training time
_PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
_VALUES = ("loss", "knn", "linear")
_COLUMNS = ("run", "epoch", "step", "seconds", "rate", *_VALUES)  # of history.csv

Entry = dict[str, Any]
"""epoch, step, seconds, rate, and loss, knn or linear with one value per replica."""


def make_fabric(device: str = "auto", precision: str = "auto") -> Fabric:
    """One process on one device; under torchrun, this process of the many (DDP)."""
    chosen = pick_device(device)
    if precision == "auto":
        has_bf16 = chosen.type == "cuda" and torch.cuda.get_device_capability(chosen) >= (8, 0)
        precision = "bf16" if has_bf16 else "32"
    if precision == "16" and chosen.type == "cpu":
        raise InputError("precision='16' needs a GPU: use bf16 or 32")
    return start_fabric(chosen, _PRECISION[precision], "pre-training", "pretrain")


def share_norms(module: nn.Module, fabric: Fabric) -> None:
    """Take batch norm over the batches of all processes; only GPUs support it."""
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]


class Step:
    """Rows in, losses out: views, forward, backward, optimiser.

    recorded: replay the step from a CUDA graph, as the host is slower than the device. None: on
    one GPU, unless the precision has a loss scale that is decided at each step.
    """

    def __init__(
        self,
        recipe: Recipe,
        images: ImageSet,
        fabric: Fabric,
        learning_rate: float,
        recorded: bool | None = None,
    ) -> None:
        if recorded is None:
            alone = fabric.device.type == "cuda" and fabric.world_size == 1
            recorded = alone and getattr(fabric._precision, "scaler", None) is None
        self.recipe, self.images, self.fabric, self.recorded = recipe, images, fabric, recorded
        # A number would be recorded with the rest, and optimisers only record with a tensor.
        rate = torch.tensor(learning_rate, device=fabric.device) if recorded else learning_rate
        self.optimizer = recipe.optimizer(rate)
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.module, self._optimizer = fabric.setup(recipe, self.optimizer)
        self.generator = torch.Generator(fabric.device)
        self._rates = [torch.tensor(base, device=fabric.device) for base in self.base_rates]
        self._warm, self._rows = 0, torch.empty(0)
        # By whether the gradient is clipped: the graph, and where it leaves the losses.
        self.graphs: dict[bool, tuple[Callable[[], None], Tensor]] = {}

    def __call__(self, rows: Tensor, seed: int, factor: float, clip: bool) -> Tensor:
        """The losses of the replicas, (R,), before the step.

        rows: (seeds, n); seed: where the random draws start; factor: of the learning rate; clip:
        whether the gradient's entries are cut at +-1.
        """
        self.generator.manual_seed(seed)
        # Dropout must not repeat the draws of the views; no other device's generator is touched.
        torch.default_generator.manual_seed(seed + 1)
        if self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(seed + 1)
        groups = zip(self.optimizer.param_groups, self._rates, self.base_rates, strict=True)
        for group, rate, base in groups:
            group["lr"] = rate.fill_(base * factor) if self.recorded else base * factor
        if not self.recorded:
            return self._do(rows, clip)
        if self._warm < WARM_UP:
            self._warm += 1
            return on_side_stream(lambda: self._do(rows, clip))
        self._rows = rows.clone() if not self.graphs else self._rows.copy_(rows)
        if clip not in self.graphs:
            left: list[Tensor] = []
            replay = record(lambda: left.append(self._do(self._rows, clip)), self.generator)
            self.graphs[clip] = replay, left[0]
        replay, losses = self.graphs[clip]
        replay()
        return losses.clone()

    def _do(self, rows: Tensor, clip: bool) -> Tensor:
        self._optimizer.zero_grad()
        losses: Tensor = self.module(self.recipe.batch(self.images, rows, self.generator))
        self.fabric.backward(losses.sum())
        if clip:
            self.fabric.clip_gradients(self.module, self._optimizer, clip_val=1.0)
        self._optimizer.step()
        return losses.detach()

    def state_dict(self) -> dict[str, Any]:
        """Of networks, optimiser and loss scaling."""
        return {
            "module": self.recipe.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric._precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first step."""
        self.recipe.load_state_dict(state["module"])
        # The options of the optimiser depend on where it runs now: only its state is taken.
        own = [dict(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, options in zip(self.optimizer.param_groups, own, strict=True):
            group.update({k: v for k, v in options.items() if k != "params"})
        for weight, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if torch.is_tensor(value) and value.shape == weight.shape:
                    # In the weight's own memory format, without which no fused step takes it.
                    kept[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
        self.fabric._precision.load_state_dict(state["precision"])


class Training:
    """One run: `run` trains until the epochs, the iterations or the minutes are over."""

    def __init__(
        self,
        recipe: Recipe,
        images: ImageSet,
        settings: Settings,
        fabric: Fabric,
        *,
        evaluate: Callable[[Training, bool], dict[str, list[float]]] | None = None,
        folder: Path | None = None,
        fingerprint: str = "",
        write_every: float = 0.0,
    ) -> None:
        """images: on the fabric's device, as the recipe prepared them. evaluate: finds accuracies
        by kind, one per replica; told whether it is the end. folder: where the history and, every
        so many seconds, a checkpoint with this fingerprint are written."""
        told = settings.filled
        self.recipe, self.settings, self.images = recipe, settings, images
        self.fabric, self.fingerprint, self.write_every = fabric, fingerprint, write_every
        self.evaluate, self.state = evaluate, folder and folder / STATE
        self.journal = Journal(recipe.names, None if fabric.global_rank else folder)
        self.do = Step(recipe, images, fabric, told.learning_rate)
        self.order = Order(len(images.train), told.batch_size, settings.seeds, fabric)
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
        self._unwritten = False

    def run(self, shown: Shown | Silent) -> None:
        """Train on from where the run is."""
        alone = self.state is None or self.fabric.global_rank
        with nullcontext() if alone else sole_writer(self.state):  # type: ignore[arg-type]
            self._run(shown)

    def _run(self, shown: Shown | Silent) -> None:
        there = self.state is not None and self.state.exists()
        if self.fabric.broadcast(there):  # as the process that writes sees it
            self._restore()
            shown.note(f"going on from step {self.step} of {self.steps}")
        self._written = now = time.monotonic()
        self._begun, self._started = now - self.wall, now - self.seconds
        self._write_seconds, prepared = 0.0, self.step + _PREPARING
        device = self.fabric.device
        on_gpu = device.type == "cuda"
        kept_generators = torch.random.fork_rng([device] if on_gpu else [])
        with _noted_signals() as asked, _quick_products(), kept_generators:
            while not asked and not self._over():
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
                self._keep(now=bool(asked) or self._over())
        if asked:
            signal.raise_signal(asked[0])

    def _over(self) -> bool:
        return self.step >= self.steps or self._done() >= 1.0

    def _done(self) -> float:
        """The share of the run that is behind it, by steps or by the clock."""
        minutes = self.settings.minutes
        by_clock = self.seconds / (60.0 * minutes) if minutes else 0.0
        return max(self.step / self.steps, by_clock)

    def train_step(self) -> Tensor:
        """The losses of the replicas, (R,), before the step."""
        return self.do(
            self.order.batch(self.step),
            mix("step", self.settings.seeds[0], self.step, self.fabric.global_rank),
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
            lost = f"the loss is not finite at step {self.step} (epoch {self._epoch})"
            raise DivergedError(f"{lost}: lower the learning rate, or the scale of the score")
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
            "rate": float(self.do.optimizer.param_groups[0]["lr"]),
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
            entry |= self.fabric.broadcast(self.evaluate(self, self._over()))
            self._started += time.monotonic() - before  # only training time is counted
        self.journal.add(entry)

    def _keep(self, *, now: bool) -> None:
        """Write the state now, or when it is time: never for more than a small share of it."""
        wait = max(self.write_every, self._write_seconds / _SHARE_OF_WRITING)
        if not now and time.monotonic() - self._written < wait:
            return
        if self.state is None or self.fabric.global_rank != 0:
            return
        if not self.recipe.sound().any():
            return  # the next look ends the run, and the checkpoint before is still good
        begun = time.monotonic()
        state = {
            **self.do.state_dict(),
            **{name: getattr(self, name) for name in ("step", "seconds", "sums", "summed")},
            "wall": self.wall_seconds,
            "history": self.journal.entries,
            "flags": [list(asdict(flag).values()) for flag in self.flags],
        }
        write = partial(write_checkpoint, self.state, _FORMAT, self.fingerprint, state)
        self._unwritten = try_to_keep(write, self._unwritten)
        self._written = time.monotonic()
        self._write_seconds = self._written - begun
        self._started += self._write_seconds

    @property
    def wall_seconds(self) -> float:
        """Since the run began, without the time between a kill and going on."""
        return time.monotonic() - self._begun

    def _restore(self) -> None:
        assert self.state is not None
        other = (
            "belongs to a run with other data or other settings, or of another number of "
            "processes: delete it, or choose another output folder"
        )
        state = read_checkpoint(self.state, _FORMAT, self.fingerprint, lambda _: other)
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

    def __init__(self, rows: int, batch_size: int, seeds: Sequence[int], fabric: Fabric) -> None:
        if batch_size > rows:
            raise InputError(f"batch_size={batch_size} is more than the {rows} training images")
        if batch_size % (ranks := fabric.world_size):
            raise InputError(f"batch_size={batch_size} is no multiple of the {ranks} processes")
        self.rows, self.batch_size, self.seeds, self.fabric = rows, batch_size, seeds, fabric
        self.steps = rows // batch_size
        self._epoch, self._permutation = -1, torch.empty(0)

    def batch(self, step: int) -> Tensor:
        """(seeds, batch_size / ranks): the part of this rank."""
        epoch, place = divmod(step, self.steps)
        if epoch != self._epoch:
            starts = [mix("order", seed, epoch) for seed in self.seeds]
            generators = [torch.Generator().manual_seed(start) for start in starts]
            drawn = [torch.randperm(self.rows, generator=one) for one in generators]
            self._epoch, self._permutation = epoch, torch.stack(drawn).to(self.fabric.device)
        share = self.batch_size // self.fabric.world_size
        start = place * self.batch_size + self.fabric.global_rank * share
        return self._permutation[:, start : start + share]


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Hold back Ctrl-C and SIGTERM until a step is over and its state can be kept.

    The first signal is only noted, in the list; a second one takes effect at once.
    """
    asked: list[int] = []
    before: dict[int, Any] = {}

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if len(asked) > 1:
            put_back()
            signal.raise_signal(number)

    if threading.current_thread() is threading.main_thread():  # others cannot
        before |= {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        put_back()


class Journal:
    """The history so far; with a folder, also as ``history.csv`` and for TensorBoard."""

    def __init__(self, names: Sequence[str], folder: Path | None = None) -> None:
        """names: of the replicas."""
        self.names, self.folder = tuple(names), folder
        self.entries: list[Entry] = []
        self._writer: Any = None

    def add(self, entry: Entry) -> None:
        """Keep one entry."""
        # Steps that a killed run wrote after its last checkpoint are written again.
        first = self.entries[-1]["step"] + 1 if self.entries else 0
        self.entries.append({key: _finite(value) for key, value in entry.items()})
        if self.folder is None:
            return
        with (self.folder / "history.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, _COLUMNS, extrasaction="ignore")
            table.writeheader()
            for kept in self.entries:
                for replica, name in enumerate(self.names):
                    values = {kind: kept[kind][replica] for kind in _VALUES if kind in kept}
                    table.writerow({**kept, "run": name, **values})
        if self._writer is None:
            with suppress(ImportError):  # TensorBoard is an extra
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(str(self.folder / "tensorboard"), purge_step=first)
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

    def close(self) -> None:
        """Finish the event files."""
        if self._writer is not None:
            self._writer.close()


def _finite(value: Any) -> Any:
    """As JSON takes it: what is not finite becomes None."""
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
