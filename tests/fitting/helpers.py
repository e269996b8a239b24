"""Small rows, splits and engines, and a training loop written out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.fitting.batches import SplitRows, TrainingOptions
from pointdep.fitting.closed_form import fit_closed_form
from pointdep.fitting.engine import Engine
from pointdep.fitting.progress import Silent
from pointdep.fitting.splits import Split, make_splits

X_DIM, Y_DIM = 2, 3


def rows(n: int = 120, *, seed: int = 0, strength: float = 1.0) -> tuple[Tensor, Tensor]:
    """Dependent x: (n, 2) and y: (n, 3), float64."""
    random = np.random.default_rng(seed)
    x, y = (random.standard_normal((n, dim)) for dim in (X_DIM, Y_DIM))
    y[:, :X_DIM] += strength * x
    return torch.from_numpy(x), torch.from_numpy(y)


def model_of(
    methods: Sequence[str], *, critic: object = "concat", link: str = "score", wide: bool = False
) -> RatioModel:
    """One replica per method, float64."""
    sizes = {"hidden": (8,), "embedding_dim": 4, "wide": wide}
    made = build_critic(critic, len(methods), X_DIM, Y_DIM, **sizes)
    made.reset(replica_generators(0, len(methods)))
    maps = Standardizer(len(methods), X_DIM), Standardizer(len(methods), Y_DIM)
    return RatioModel(made, *maps, [METHODS[key] for key in methods], link).double()


def options(**changed: object) -> TrainingOptions:
    settings = {"batch_size": 16, "block": 4, "seed": 7, "learning_rate": 1e-2, "max_epochs": 5}
    settings |= {"min_steps": 4, "patience": 3, "average": 0.9}
    return TrainingOptions(**{**settings, **changed})


def engine(model: RatioModel, data: tuple[Tensor, Tensor], settings=None, **extra) -> Engine:
    """extra: splits and codes of the rows, and what `Engine` takes."""
    splits = extra.pop("splits", None) or make_splits(len(data[0]), folds=model.replicas, seed=1)
    extra.setdefault("progress", Silent())
    settings = settings or options()
    own = SplitRows(*data, splits, extra.pop("codes", None), settings.seed)
    return Engine(model, own, settings, **extra)


def disjoint_splits(n: int, replicas: int) -> list[Split]:
    """Splits that share no row at all, so that the rows of one replica can be spoilt."""
    parts = np.array_split(np.arange(n), replicas)
    return [Split(p[: len(p) // 2], p[len(p) // 2 : -2], p[-2:]) for p in parts]


@dataclass
class ByHand:
    """What the loop of one replica found."""

    train: list[float] = field(default_factory=list)
    stop: list[float] = field(default_factory=list)
    best: list[Tensor] = field(default_factory=list)
    best_epoch: int = 0


def train_by_hand(run: Engine, replica: int) -> ByHand:
    """One replica alone, with torch's optimiser on its own parameters; before `run.run()`."""
    settings, model = run.options, run.full.select([replica])
    method, parameters = model.methods[0], list(model.critic.parameters())
    average = [p.detach().clone() for p in parameters]
    rates = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    optimizer = torch.optim.AdamW(parameters, **rates)
    blocks = run.batches.batch_size // settings.block
    eye = torch.eye(settings.block, dtype=torch.float64).repeat(blocks, 1)
    found, step, bad, moving = ByHand(), 0, 0, None
    while len(found.stop) < settings.max_epochs and bad < settings.patience:
        values = []
        for _ in range(run.batches.steps(settings.min_steps)):
            index = run.batches.indices(step, 1, [replica])[0, 0]
            scores = [
                model.scores(model.raw_matrix(run.batches.x[i][None], run.batches.y[i][None]))
                for i in torch.split(index, settings.block)
            ]
            scores = torch.cat(scores, 1)
            if method.gradient is not None:
                value, moving = method.gradient(scores, moving, joint=eye, product=1 - eye)
            else:
                value = method.objective(scores, joint=eye, product=1 - eye)
            optimizer.zero_grad()
            (-value.sum()).backward()
            norm = sum(p.grad.square().sum() for p in parameters).sqrt().item()
            for p in parameters:
                p.grad *= min(1.0, settings.clip / norm)
            optimizer.step()
            step += 1
            decay = min(settings.average, (1 + step) / (10 + step))
            for kept, now in zip(average, parameters, strict=True):
                kept.mul_(decay).add_(now.detach(), alpha=1 - decay)
            values.append(value.item())
        found.train.append(float(np.mean(values)))
        found.stop.append(held_out_value(run, model, replica, average))
        best = found.stop[found.best_epoch - 1] if found.best_epoch else -np.inf
        if not found.best_epoch or found.stop[-1] > best + 1e-4 * abs(best):
            found.best_epoch, bad = len(found.stop), 0
            found.best = [kept.clone() for kept in average]
        else:
            bad += 1
    return found


@torch.no_grad()
def held_out_value(run: Engine, model: RatioModel, replica: int, weights: list[Tensor]) -> float:
    """The held-out objective of one replica with these weights; the model keeps its own."""
    judged, cells = model.select([0]), run.held_out
    for parameter, value in zip(judged.critic.parameters(), weights, strict=True):
        parameter.copy_(value)
    scores = judged.scores(judged.raw_matrix(cells.x[[replica]], cells.y[[replica]]))
    joint, product = cells.joint[[replica]], cells.product[[replica]]
    return judged.methods[0].objective(scores.flatten(1, 2), joint=joint, product=product).item()


def weights_of(model: RatioModel, replica: int) -> list[Tensor]:
    """Copies of the critic's parameters of one replica, (1, ...) each."""
    return [p.detach().clone() for p in model.critic.select([replica]).parameters()]


def gaussians(n: int, dim: int = 2, rho: float = 0.8, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Column k of x and column k of y correlate by rho, float64."""
    x, noise = np.random.default_rng(seed).standard_normal((2, n, dim))
    return torch.from_numpy(x), torch.from_numpy(rho * x + np.sqrt(1 - rho**2) * noise)


def split_of(*sizes: int, start: int = 0) -> Split:
    """So many rows to train, to stop and to report, one after the other."""
    ends = np.cumsum([start, *sizes])
    return Split(*(np.arange(a, b) for a, b in pairwise(ends)))


def default_model(
    replicas: int, x_dim: int, y_dim: int, *, seed: int = 0, label: str = ""
) -> RatioModel:
    critic = build_critic("auto", replicas, x_dim, y_dim, hidden=(8, 4), label=label)
    critic.reset(replica_generators(seed, replicas))
    maps = critic.side_map(replicas, x_dim), critic.side_map(replicas, y_dim)
    return RatioModel(critic, *maps, [METHODS["pc"]] * replicas, "log_ratio").double()


def closed_form(
    x: Tensor, y: Tensor, splits: Sequence[Split], label: str = "", *, judged: int | None = None
) -> RatioModel:
    model = default_model(len(splits), x.shape[1], y.shape[1], label=label)
    fit_closed_form(model, SplitRows(x, y, splits), judged=judged)
    return model


def shout(model: RatioModel, replica: int, size: float, *, seed: int = 0) -> None:
    """Give one replica's network a last layer of drawn weights."""
    last, generator = model.critic.net.rest.layers[-1].weight, torch.Generator().manual_seed(seed)
    last.data[replica] = size * torch.randn(last[0].shape, generator=generator, dtype=last.dtype)
