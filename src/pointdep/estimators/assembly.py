"""Join the rooms: from encoded rows and settings to a trained model."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pointdep.core.critics.auto import PickedCritic
from pointdep.core.critics.base import Critic
from pointdep.core.critics.build import build_critic, critic_class, replica_generators
from pointdep.core.critics.table import TableCritic
from pointdep.core.linear import Canonical
from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import (
    CodeMap,
    LandmarkMap,
    RankMap,
    Standardizer,
    can_be_reduced,
)
from pointdep.data.encoder import SideEncoder
from pointdep.errors import InputError, require_whole
from pointdep.estimators.fit_rows import PairedRows
from pointdep.fitting.batches import Batches, TrainingOptions
from pointdep.fitting.closed_form import (
    drop_unproven_network,
    fit_closed_form,
    fit_mixture,
    has_few_pairs,
)
from pointdep.fitting.engine import Engine, Trained
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.splits import Split
from pointdep.fitting.state import Checkpoint

# A score that grows like r is hard to fit where r is large: it needs more product samples, and
# with them ReLU, whose outputs are linear far out, does better than SiLU (see benchmarks/).
_NEGATIVES, _NEGATIVES_RATIO = 7, 15
_NEGATIVES_INFORMED = 3  # the logarithm of a mean, as that of dv, needs more to be steady
_ACTIVATION_RATIO = "relu"
_SMALLEST_BATCH, _LARGEST_BATCH = 32, 256
_CPC_BATCH = 64
_MANY_CATEGORIES, _HIDDEN_MANY = 2_000, (64, 64)
_WIDE = 25  # columns: with more, towers do better than a network on all pairs
_MOST_LEVELS = 64  # of a label over which log r is normalised
# Learning rate, epochs after which it is a half (0: never), and patience. A network that starts at
# the closed form has little left to learn: large steps that shrink reach the same held-out score
# in a third of the time (tuning half of the further tasks, 10,000 rows).
_PACE, _PACE_INFORMED = (1e-3, 0.0, 8), (4e-3, 4.0, 5)
_PATIENT = 3  # times the patience, with high effort
_LEAST_PATIENCE = 2
_PASS_STEPS = 40  # steps a pass over the training rows should have, batch size permitting


@dataclass(frozen=True)
class CriticSettings:
    """What the user said about the critic.

    reduced: whether the columns of x, and of y, are brought to few features first.
    """

    critic: Any
    hidden: Sequence[int] | str
    embedding_dim: int
    activation: str
    link: str
    wide: bool = False
    table: bool = False
    label: str = ""
    reduced: tuple[bool, bool] = (False, False)

    @property
    def kind(self) -> type[Critic]:
        """The class of the critic, which declares what it can do."""
        return critic_class(self.critic, wide=self.wide, table=self.table)

    @property
    def critic_link(self) -> str:
        """What the critic's output stands for."""
        if self.kind.models_log_ratio and self.link not in {"auto", "log_ratio"}:
            raise InputError(f"link={self.link!r}: the critic {self.critic!r} models log r")
        if self.link == "auto":
            return "log_ratio" if self.kind.models_log_ratio else "score"
        return self.link


def is_wide(method: Method, columns: int) -> bool:
    """Whether "auto" stands for the default critic of wide data, by the wider side.

    Methods that learn r up to a constant or a function of x cannot be mixed with a closed form.
    """
    return columns > _WIDE and method.reference == "none"


def is_table(
    critic: Any, hidden: Sequence[int] | str, method: Method, sides: Sequence[SideEncoder]
) -> bool:
    """Whether "auto" stands for the default critic of two columns of many categories.

    Layers that were asked for are those of a network.
    """
    categories = [0 if side.numeric_at else len(side.categories) for side in sides]
    return (
        categories == [1, 1]
        and is_wide(method, max(side.dim for side in sides))
        and isinstance(hidden, str)
        and critic_class(critic, table=True).is_table
    )


def for_few_pairs(
    settings: CriticSettings, hidden: Sequence[int] | str, rows: PairedRows
) -> CriticSettings:
    """The default critic of a few of many columns, where these hold what a closed form cannot see.

    hidden: as it was asked for; layers that were asked for are those of towers.
    """
    most = PickedCritic.side_map.most
    sides = rows.encoder_x, rows.encoder_y
    left_to_us = settings.kind.is_mixture and isinstance(hidden, str)
    if not left_to_us or any(not side.numeric_at and side.dim > most for side in sides):
        return settings
    if not has_few_pairs(rows, most):
        return settings
    layers = choose_hidden(PickedCritic, hidden, len(rows.x))
    return replace(settings, critic=PickedCritic, hidden=layers, wide=False)


def for_many_columns(
    settings: CriticSettings, hidden: Sequence[int] | str, rows: PairedRows
) -> CriticSettings:
    """The same with the sides named whose many columns few features can stand for.

    hidden: as it was asked for. Only for the default critic of wide data.
    """
    if not settings.kind.is_mixture:
        return settings
    used = torch.from_numpy(rows.splits[0].train)
    numeric = [bool(side.numeric_mask.all()) for side in (rows.encoder_x, rows.encoder_y)]
    found = can_be_reduced(rows.x, rows.y, (numeric[0], numeric[1]), used)
    widths = (
        LandmarkMap.width if reduced else side.shape[1]
        for reduced, side in zip(found, (rows.x, rows.y), strict=True)
    )
    layers = choose_hidden(settings.critic, hidden, len(rows.x), wide=max(widths))
    return replace(settings, reduced=found, hidden=layers)


def for_many_categories(
    settings: CriticSettings, hidden: Sequence[int] | str, sides: Sequence[SideEncoder]
) -> CriticSettings:
    """Narrower towers for very many categories: of few rows each, and costly in the first layer.

    hidden: as it was asked for.
    """
    categories = max(sum(column.values.size for column in side.categories) for side in sides)
    many = categories >= _MANY_CATEGORIES
    ours = settings.kind.is_mixture and isinstance(hidden, str)
    return replace(settings, hidden=_HIDDEN_MANY) if ours and many else settings


def label_side(encoder_x: SideEncoder, encoder_y: SideEncoder) -> str:
    """The side, "x" or "y", that is one column of few categories while the other has numbers."""
    for name, side, other in (("x", encoder_x, encoder_y), ("y", encoder_y, encoder_x)):
        one = len(side.categories) == 1 and not side.numeric_at
        if one and side.dim <= _MOST_LEVELS and other.numeric_at:
            return name
    return ""


def choose_hidden(
    critic: Any, hidden: Sequence[int] | str, rows: int, *, wide: int = 0
) -> Sequence[int] | str:
    """The critic's layers, where they are left to it.

    wide: columns of the wider side, for the default critic of wide data.
    """
    if not (isinstance(hidden, str) and hidden == "auto"):
        return hidden
    return critic_class(critic, wide=bool(wide)).hidden_for(rows, wide)


def make_model(
    settings: CriticSettings, method: Method, replicas: int, x_dim: int, y_dim: int
) -> RatioModel:
    """An untrained model of zero weights (the user's modules keep theirs)."""
    activation = settings.activation
    if activation == "auto":
        activation = _ACTIVATION_RATIO if method.scores_ratio else settings.kind.default_activation
    how: dict[str, Any] = {"hidden": settings.hidden, "embedding_dim": settings.embedding_dim}
    how |= {"activation": activation, "wide": settings.wide, "table": settings.table}
    how["label"] = settings.label
    fronts = [
        LandmarkMap(dim) if reduced else RankMap(dim)
        for dim, reduced in zip((x_dim, y_dim), settings.reduced, strict=True)
    ]
    x_dim, y_dim = (
        LandmarkMap.width if reduced else dim
        for dim, reduced in zip((x_dim, y_dim), settings.reduced, strict=True)
    )
    critic = build_critic(settings.critic, replicas, x_dim, y_dim, **how)
    kind, methods = settings.kind, [method] * replicas
    if kind.is_table:
        maps = kind.side_map(replicas, 1), kind.side_map(replicas, 1)
        return RatioModel(critic, *maps, methods, settings.critic_link, (CodeMap(), CodeMap()))
    maps = kind.side_map(replicas, x_dim), kind.side_map(replicas, y_dim)
    ranked = (fronts[0], fronts[1]) if kind.ranked else None
    return RatioModel(critic, *maps, methods, settings.critic_link, ranked)


def batch_shape(
    settings: CriticSettings,
    method: Method,
    smallest: int,
    batch_size: int | str,
    negatives: int | str,
    largest: int = _LARGEST_BATCH,
) -> tuple[int, int]:
    """Rows per batch and per block, for training sets of at least `smallest` rows.

    largest: the batch that "auto" does not exceed.
    """
    everything = settings.kind.separable or method.bounded_by_batch
    for name, value, words in (
        ("batch_size", batch_size, ("auto",)),
        ("negatives", negatives, ("auto", "all")),
    ):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole and not (isinstance(value, str) and value in words):
            allowed = " or ".join(map(repr, words))
            raise InputError(f"{name}={value!r} must be a whole number or {allowed}")
    if isinstance(batch_size, str):
        batch = min(max(smallest // _PASS_STEPS, _SMALLEST_BATCH), largest, smallest)
        if method.bounded_by_batch and not settings.kind.separable:
            batch = min(batch, _CPC_BATCH)
    else:
        batch = int(batch_size)
    if isinstance(negatives, str):
        normalised = method.reference == "constant"
        few = _NEGATIVES_INFORMED if settings.kind.informed and not normalised else _NEGATIVES
        few = _NEGATIVES_RATIO if method.scores_ratio else few
        block = batch if everything or negatives == "all" else min(few + 1, batch)
    else:
        block = int(negatives) + 1
    if isinstance(batch_size, str):
        if block > smallest:
            limit = f"a split has only {smallest} training rows: choose at most {smallest - 1}"
            raise InputError(f"negatives={negatives} but {limit}")
        batch = max(block, batch - batch % block)
    return batch, block


def pace(
    settings: CriticSettings, learning_rate: float | str, patience: int | str, effort: str
) -> dict[str, Any]:
    """`learning_rate`, `halving` and `patience` of the training; "auto" is left to the critic."""
    rate, halving, epochs = _PACE_INFORMED if settings.kind.informed else _PACE
    for name, value in (("learning_rate", learning_rate), ("patience", patience)):
        if isinstance(value, str) and value != "auto":
            raise InputError(f"{name}={value!r} must be a number or 'auto'")
    if not isinstance(learning_rate, str):
        rate, halving = learning_rate, 0.0  # as it was asked for, throughout
    if effort == "quick" and not (settings.kind.has_closed_form or settings.kind.is_table):
        said = f"critic={settings.critic!r}"
        raise InputError(
            f"effort='quick' trains no networks, and {said} is one: leave it at 'auto'"
        )
    if not isinstance(patience, str):
        require_whole("patience", patience)
        epochs = int(patience)
    epochs *= _PATIENT if effort == "high" else 1
    return {"learning_rate": rate, "halving": halving, "patience": epochs}


@dataclass(frozen=True)
class TrainedModel:
    """What `train_model` gives.

    curve: models that were fitted on a share of the rows, with their splits, smallest share first;
    of_curve: what training found of each.
    """

    model: RatioModel
    trained: Trained
    curve: tuple[tuple[RatioModel, Sequence[Split]], ...] = ()
    of_curve: tuple[Trained, ...] = ()


def train_model(
    model: RatioModel,
    rows: PairedRows,
    options: TrainingOptions,
    *,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    keep_unproven: bool = False,
    canonical: Sequence[Canonical] | None = None,
    batches: Batches | None = None,
    processes: Processes = ALONE,
    curve: Sequence[Sequence[Split]] = (),
    whole_parts: bool = False,
    quick: bool = False,
) -> TrainedModel:
    """Draw the initial weights, fit the standardisers on training rows only, and train.

    keep_unproven: keep the default critic's network even where it does not help beyond chance.
    canonical, batches: each replica's coordinates, and where training rows come from, where `rows`
    are a sample of the data. processes: that train together; all have the same model in the end.
    curve: splits of further replicas, which the model has after those of `rows`, for each point of
    a learning curve. They train in the same run and change nothing about the others; whole_parts:
    they are as patient, too. quick: train nothing, and let the closed form answer alone.
    """
    device = rows.x.device
    own = len(rows.splits)
    rows = replace(rows, splits=[*rows.splits, *(split for part in curve for split in part)])
    sizes = [own, *(len(part) for part in curve if part)]
    longest = max(len(split.train) for split in rows.splits)
    trained = [Trained((), [], []) for _ in sizes]
    if not isinstance(model.critic, TableCritic):
        how: dict[str, Any] = {"checkpoint": checkpoint, "batches": batches, "processes": processes}
        how |= {"progress": progress or Silent(), "reported": own}
        shares = [1.0 if whole_parts else len(s.train) / longest for s in rows.splits[own:]]
        how["patience"] = [options.patience] * own + [_patience(options, s) for s in shares]
        engine = _train(model, rows, options, canonical, quick=quick, **how)
        ends = np.cumsum(sizes).tolist()
        if engine is not None:
            trained = [engine.told(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    model.to(device).eval()
    model.requires_grad_(False)
    parts, first = [], 0
    for splits in (rows.splits[:own], *(part for part in curve if part)):
        replicas = range(first, first + len(splits))
        one = model if len(splits) == model.replicas else model.select(replicas)
        if isinstance(one.critic, TableCritic):
            from pointdep.fitting.tables import fit_tables

            fit_tables(one.critic, replace(rows, splits=splits))
        if not quick:
            _weigh_parts(one, replace(rows, splits=splits), keep_unproven=keep_unproven)
        processes.align_(one.state_dict().values())
        parts.append((one, splits))
        first += len(splits)
    for number, (one, _) in enumerate(parts):
        found = trained[number]
        if one.answered == "closed form alone" and len(found.history) >= options.patience:
            # More epochs would have improved what is not used. After fewer nobody knows its use.
            flags = tuple(flag for flag in found.flags if flag.name != "still_improving")
            trained[number] = replace(found, flags=flags)
    return TrainedModel(parts[0][0], trained[0], tuple(parts[1:]), tuple(trained[1:]))


def _patience(options: TrainingOptions, share: float) -> int:
    """Of a replica with this share of the rows, which it passes over several times in an epoch."""
    least = min(_LEAST_PATIENCE, options.patience)
    return max(least, min(options.patience, math.ceil(options.patience * share)))


def _train(
    model: RatioModel,
    rows: PairedRows,
    options: TrainingOptions,
    canonical: Sequence[Canonical] | None,
    *,
    quick: bool,
    **how: Any,
) -> Engine | None:
    """Fit what is not trained, and train the rest; how: of the `Engine`, which has run.

    quick: without the rest, and without an engine.
    """
    device = rows.x.device
    model.critic.reset(replica_generators(options.seed, model.replicas))
    if not model.critic.ranked:  # normal scores are left as they are
        for replica, split in enumerate(rows.splits):
            train = torch.from_numpy(split.train).to(device)
            for standardizer, values, encoder in (
                (model.x_map, rows.x, rows.encoder_x),
                (model.y_map, rows.y, rows.encoder_y),
            ):
                assert isinstance(standardizer, Standardizer)
                numeric = torch.from_numpy(encoder.numeric_mask)
                standardizer.fit_replica(replica, values[train].cpu(), numeric)
    model.to(device)
    if model.critic.has_closed_form:
        fit_closed_form(model, rows, canonical, judged=how["reported"])
    how["processes"].align_(model.state_dict().values())
    if quick:
        model.critic.silence()
        return None
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.manual_seed(options.seed)  # for dropout in the user's own modules
        engine = Engine(model, rows, options, **how)
        engine.run()
    return engine


def _weigh_parts(model: RatioModel, rows: PairedRows, *, keep_unproven: bool) -> None:
    """How much of the closed form and of the network the stopping rows bear out."""
    if model.critic.is_mixture:
        fit_mixture(model, rows)
    judged = model.critic.has_closed_form and model.methods[0].reference == "none"
    if judged and not keep_unproven:
        drop_unproven_network(model, rows)


def open_checkpoint(path: str | Path, identity: str, settings: dict[str, Any]) -> Checkpoint:
    """The checkpoint file, in a folder that exists and can be written."""
    place, reason = Path(path), ""
    if place.is_dir():
        reason = "is a folder: give the name of a file in it"
    elif not place.resolve().parent.is_dir():
        reason = "cannot be used: its folder does not exist"
    else:
        try:
            with tempfile.TemporaryFile(dir=place.resolve().parent):
                pass
        except OSError as error:
            reason = f"cannot be written: {error.strerror or error}"
    if reason:
        raise InputError(f"checkpoint={str(path)!r} {reason}")
    return Checkpoint(place, identity, settings)
