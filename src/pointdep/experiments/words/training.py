"""Train the paper's networks on word pairs: all cells of a batch, and the last weights kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pointdep.core.critics import SeparableCritic, replica_generators
from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.data.word_pairs import WordPairs
from pointdep.errors import DivergedError
from pointdep.experiments.words.numbers import Floats
from pointdep.experiments.words.settings import Training
from pointdep.fitting.batches import RowBatches
from pointdep.fitting.progress import Progress
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.sampler import StreamEngine
from pointdep.fitting.splits import Rows

# How many steps an expected time is read off, and how many seconds they may take.
_TIMED, _TIMED_S = 5, 3.0


@dataclass(frozen=True, eq=False)
class Job:
    """One network: its method and the rows it trains on, (n,)."""

    method: Method
    rows: Rows


@dataclass(frozen=True, eq=False)
class Trained:
    """model: a replica a job, with the last weights.

    curve: (epochs, jobs), the mutual information that each method infers from a batch before it
    learns from it, mean over the epoch.
    """

    model: RatioModel
    curve: Floats


@dataclass(frozen=True, eq=False)
class Sides:
    """audio: (n, dx) and text: (n, dy) as they are in the files, on the device."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, pairs: WordPairs, settings: Training) -> Sides:
        device = pick_device(settings.device)
        return cls(*(torch.from_numpy(side).to(device) for side in (pairs.audio, pairs.text)))


def split_words(settings: Training, words: int) -> tuple[Rows, Rows]:
    """Row numbers that train and that test, both in random order."""
    train, _ = settings.split_sizes(words)
    order = np.random.default_rng([settings.seed, 4]).permutation(words)
    return order[:train], order[train:]


def steps_of(settings: Training, rows: int) -> int:
    """How many steps the epochs have; as in the released notebook, ragged ends are left out."""
    return settings.epochs * (rows // settings.batch_size)


def train(
    settings: Training, sides: Sides, jobs: Sequence[Job], progress: Progress | None = None
) -> Trained:
    """Train all networks from start to end; all jobs have the same number of rows."""
    steps = steps_of(settings, len(jobs[0].rows))
    model, engine = make_engine(settings, sides, jobs, steps)
    values = engine.run(steps, progress).values.double().numpy()
    model.requires_grad_(False)
    model.eval()
    for replica, job in enumerate(jobs):
        if not all(bool(torch.isfinite(p[replica]).all()) for p in model.critic.parameters()):
            raise DivergedError(
                f"training with method {job.method.key!r} gave weights that are not finite: try a "
                "smaller --learning-rate, or leave it out"
            )
    return Trained(model, values.reshape(settings.epochs, -1, len(jobs)).mean(1))


def expected_seconds(settings: Training, sides: Sides, in_turn: Sequence[Sequence[Job]]) -> float:
    """How long it will take to train these, one list of jobs after the other, from a few steps."""
    return sum(
        _seconds_a_step(settings, sides, jobs) * steps_of(settings, len(jobs[0].rows))
        for jobs in in_turn
    )


def _seconds_a_step(settings: Training, sides: Sides, jobs: Sequence[Job]) -> float:
    _, engine = make_engine(settings, sides, jobs, 1)
    engine.run(1)
    times: list[float] = []
    while len(times) < _TIMED and sum(times) < _TIMED_S:
        times.append(engine.run(1).train_seconds)
    return min(times)


def make_engine(
    settings: Training, sides: Sides, jobs: Sequence[Job], steps: int
) -> tuple[RatioModel, StreamEngine]:
    """The networks at their first step, and what trains them."""
    device, replicas = sides.x.device, len(jobs)
    methods = [job.method for job in jobs]
    critic = make_critic(settings, sides, methods)
    batches = RowBatches(
        sides.x,
        sides.y,
        [job.rows for job in jobs],
        batch_size=settings.batch_size,
        block=settings.batch_size,
        seed=settings.seed,
    )
    index = batches.indices(0, steps, range(replicas))

    def draw(step: Tensor) -> tuple[Tensor, Tensor]:
        rows = index.index_select(0, step)[0]
        return sides.x[rows], sides.y[rows]

    engine = StreamEngine(
        critic, methods, draw, learning_rate=settings.learning_rate, device=device
    )
    # Inputs as they are: a standardiser that was not fitted changes nothing.
    x_map, y_map = (Standardizer(replicas, side.shape[1]) for side in (sides.x, sides.y))
    return RatioModel(critic, x_map, y_map, methods).to(device), engine


def make_critic(settings: Training, sides: Sides, methods: Sequence[Method]) -> SeparableCritic:
    """g(x) . h(y), plus log(batch size - 1) for `pc`, which stays as it is.

    The paper's classifier gives the logit g(x) . h(y), and log r is that plus log(n - 1), n the
    batch it was trained on. Ours gives log r: the same network, and the same steps.
    """
    critic = SeparableCritic(
        len(methods),
        sides.x.shape[1],
        sides.y.shape[1],
        hidden=settings.hidden,
        embedding_dim=settings.embedding_dim,
        activation="relu",
    )
    critic.reset(replica_generators(settings.seed, len(methods)))
    offset = math.log(settings.batch_size - 1)
    critic.raise_scores(torch.tensor([offset if m.key == "pc" else 0.0 for m in methods]))
    critic.bias.requires_grad_(False)
    return critic
