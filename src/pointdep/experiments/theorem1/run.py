"""Fit every estimate of one number of rows at once, and compare it with the exact answer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.methods import Method, get_method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.estimators.assembly import CriticSettings, batch_shape
from pointdep.experiments.theorem1.settings import Theorem1
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.engine import Engine, Trained
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference.scoring import score_replicas

Floats = NDArray[np.float64]

_EMBEDDING = 32
_TYPICAL_EPOCHS = 30.0
_LEAST_WORK = 1_000  # fewer rows take as long: an epoch has its least number of steps


@dataclass(frozen=True)
class Run:
    """One estimate: a method on `rows` rows of their own. In nats, but for the shares.

    Attributes
    ----------
    held_out: mean of log r over all rows, each by a network that did not see it.
    in_sample: mean of log r by each network over the rows that it trained on: the theorem's
        plug-in, of networks that have 1 - 1 / folds of the rows, less those that stop them.
    exact: mean of the exact PMI over the same rows: the estimate of one who knows r.
    at_limit: share of the held-out rows at a limit of the method's read-out.
    limit_error: how much those alone add to `held_out` beyond their exact PMI.
    epochs: after how many the kept weights were reached, mean over the networks.
    ended_early: how many of its networks the limit on epochs ended, or divergence.
    """

    method: str
    rows: int
    seed: int
    held_out: float
    in_sample: float
    exact: float
    at_limit: float
    limit_error: float
    epochs: float
    ended_early: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """Every run; weights: of one network; seconds: of each number of rows."""

    settings: Theorem1
    runs: tuple[Run, ...]
    weights: int
    seconds: tuple[float, ...]
    device: str


@dataclass(frozen=True, eq=False)
class Fits:
    """The rows of all seeds, one below the other, and what each replica does with them.

    x, y: (seeds * rows, dim); pmi: (seeds, rows), exact. splits, methods: one per replica, in the
    order seed, method, fold: further seeds are further replicas, and leave the earlier as they are.
    """

    x: Tensor
    y: Tensor
    pmi: Floats
    splits: list[Split]
    methods: list[Method]


def run_theorem1(settings: Theorem1, progress: Progress | None = None) -> Outcome:
    """For each number of rows one training run, of all methods, seeds and folds."""
    device = pick_device(settings.device)
    runs: list[Run] = []
    seconds = []
    weights = 0
    for rows, part in _parts(settings, progress or Silent()):
        start = time.perf_counter()
        fits = make_fits(settings, rows, device)
        model = make_model(settings, fits)
        trained = train(model, settings, fits, part)
        runs += compare(settings, fits, model, trained)
        seconds.append(time.perf_counter() - start)
        part.finish()
        weights = sum(p.numel() for p in model.critic.parameters()) // model.replicas
    return Outcome(settings, tuple(runs), weights, tuple(seconds), str(device))


def make_fits(settings: Theorem1, rows: int, device: torch.device) -> Fits:
    """Draw the rows of every seed, new ones for each number of rows."""
    names = range(settings.seed, settings.seed + settings.seeds)
    drawn = [settings.joint.sample(rows, np.random.default_rng([seed, rows])) for seed in names]
    x, y, pmi = (np.stack(side) for side in zip(*drawn, strict=True))
    splits, methods = [], []
    for number, seed in enumerate(names):
        own = make_splits(rows, folds=settings.folds, seed=seed)
        for method in settings.methods:
            methods += [get_method(method)] * len(own)
            splits += [
                Split(*(part + number * rows for part in (s.train, s.stop, s.report))) for s in own
            ]
    flat_x, flat_y = (torch.from_numpy(side).float().flatten(0, 1).to(device) for side in (x, y))
    return Fits(flat_x, flat_y, pmi, splits, methods)


def make_model(settings: Theorem1, fits: Fits) -> RatioModel:
    """Untrained networks. The columns of x and y are standard normal: they stay as they are."""
    replicas, dim = len(fits.splits), settings.dim
    critic = build_critic(
        settings.critic,
        replicas,
        dim,
        dim,
        hidden=settings.hidden,
        embedding_dim=_EMBEDDING,
        activation=settings.activation,
    )
    critic.reset(replica_generators(settings.seed, replicas))
    maps = Standardizer(replicas, dim), Standardizer(replicas, dim)
    return RatioModel(critic, *maps, fits.methods).to(fits.x.device)


def train(model: RatioModel, settings: Theorem1, fits: Fits, progress: Progress) -> Trained:
    """Train with the library's defaults, batches and negatives those it chooses for `pc`."""
    smallest = min(len(split.train) for split in fits.splits)
    critic = CriticSettings(
        settings.critic, settings.hidden, _EMBEDDING, settings.activation, "score"
    )
    batch, block = batch_shape(critic, get_method("pc"), smallest, "auto", "auto")
    options = TrainingOptions(batch_size=batch, block=block, seed=settings.seed)
    trained = Engine(model, fits.x, fits.y, fits.splits, options, progress=progress).run()
    model.eval()
    model.requires_grad_(False)
    return trained


def compare(settings: Theorem1, fits: Fits, model: RatioModel, trained: Trained) -> Iterator[Run]:
    """The estimates of every seed and method."""
    rows, folds = fits.pmi.shape[1], settings.folds
    ended = {replica for flag in trained.flags for replica in flag.replicas}
    for number, exact in enumerate(fits.pmi):
        own = slice(number * rows, (number + 1) * rows)
        for position, method in enumerate(settings.methods):
            first = (number * len(settings.methods) + position) * folds
            replicas = range(first, first + folds)
            one = model.select(replicas)
            log_ratio = score_replicas(one, fits.x[own], fits.y[own])
            trained_on, unseen = np.zeros((2, folds, rows), dtype=bool)
            for fold, replica in enumerate(replicas):
                trained_on[fold, fits.splits[replica].train - number * rows] = True
                unseen[fold, fits.splits[replica].report - number * rows] = True
            values = log_ratio.double().numpy()
            limited = one.at_limit(log_ratio).numpy() & unseen
            yield Run(
                method=method,
                rows=rows,
                seed=settings.seed + number,
                held_out=float(values[unseen].mean()),
                in_sample=float(values[trained_on].mean()),
                exact=float(exact.mean()),
                at_limit=float(limited.sum() / rows),
                limit_error=float((values - exact)[limited].sum() / rows),
                epochs=float(np.mean([trained.best_epochs[r] for r in replicas])),
                ended_early=len(ended.intersection(replicas)),
            )


class _Part:
    """Shows the epochs of one number of rows as a part of the whole, which is counted in rows.

    Networks stop one after the other: the share of the work that is done nears 1 like
    1 - exp(-epochs / 30), whatever the number of rows.
    """

    def __init__(self, progress: Progress, rows: int, start: int, total: int) -> None:
        self.progress, self.rows, self.start, self.total = progress, rows, start, total

    def update(self, done: int, total: int, detail: str = "") -> None:
        del total  # a limit that few networks come to
        share = -math.expm1(-done / _TYPICAL_EPOCHS)
        self._tell(share, f"{done} {detail}")

    def finish(self) -> None:
        """Whenever the last network stopped: this part is done."""
        self._tell(1.0, "done")

    def _tell(self, share: float, detail: str) -> None:
        done = self.start + math.floor(share * _work(self.rows))
        self.progress.update(done, self.total, f"of the work, {self.rows:,} rows: {detail}")


def _parts(settings: Theorem1, progress: Progress) -> Iterator[tuple[int, _Part]]:
    """Each number of rows with its share of the work, few rows first."""
    work = [_work(rows) for rows in settings.rows]
    for position, rows in enumerate(settings.rows):
        yield rows, _Part(progress, rows, sum(work[:position]), sum(work))


def _work(rows: int) -> int:
    return max(rows, _LEAST_WORK)
