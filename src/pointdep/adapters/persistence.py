"""A calibrated model as a folder; a function of the user's is brought again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pointdep import storage
from pointdep.adapters.critic import CalibratedCritic
from pointdep.adapters.models import assembled
from pointdep.adapters.rows import RowKind
from pointdep.adapters.sources import Table
from pointdep.data.sides import SideEncoder
from pointdep.errors import InputError, ModelFileError
from pointdep.fitting.flags import Flag
from pointdep.inference.bias import FittingBias

KIND = "calibrated"
_PARAMS = ("loss", "queries", "scale", "normalize", "folds")
_BUFFERS = ("weights", "reference", "part", "influence", "names")


def save(estimator: Any, path: Path) -> None:
    """Write a calibrated estimator."""
    critic = estimator.model_.critic
    seed = estimator.random_state
    about = {
        "kind": KIND,
        "params": {name: getattr(estimator, name) for name in _PARAMS}
        | {"random_state": int(seed) if isinstance(seed, int | np.integer) else None},
        "source": type(critic.source).__name__.lower(),
        "temperature": float(critic.temperature),
        "rows_are": [[list(kind.shape), kind.whole] for kind in estimator._kinds],
        "encoder_x": estimator.encoder_x_.to_dict(),
        "encoder_y": estimator.encoder_y_.to_dict(),
        "rows": estimator.n_rows_,
        "flags": [[f.name, list(f.replicas), f.message] for f in estimator.flags_],
        "bias": asdict(estimator.bias_),
        "jackknife": estimator.jackknife_,
    }
    tensors: dict[str, Tensor] = {name: getattr(critic, name) for name in _BUFFERS}
    tensors["seen"] = estimator.model_.seen
    tensors["oof_pmi"] = torch.from_numpy(estimator.oof_pmi_)
    tensors["oof_values"] = torch.from_numpy(estimator.oof_values_)
    if isinstance(critic.source, Table):
        tensors["logits"], tensors["named"] = critic.source.logits, critic.source.names
    if estimator.groups_ is not None:
        tensors["groups"] = torch.from_numpy(estimator.groups_)
    storage.write_model(path, about, tensors)


def load(path: Path, *, critic: Any = None, device: str = "auto") -> Any:
    """The estimator that `save` wrote, with the user's function where it had one."""
    from pointdep.adapters.estimator import CalibratedDependency

    about, tensors = storage.read_model(path)
    if about.get("kind") != KIND:
        raise ModelFileError(f"{path} is a fitted model: read it with PointwiseDependency.load")
    try:
        own = _critic(about["source"], tensors, critic, path)
        made = CalibratedDependency(own, **about["params"], device=device)
        of_x, of_y = (RowKind(tuple(shape), whole) for shape, whole in about["rows_are"])
        made._kinds = of_x, of_y
        encoder_x, encoder_y = (SideEncoder.from_dict(about[f"encoder_{side}"]) for side in "xy")
        place, source = made._device(), made._source()
        if isinstance(source, Table):
            source.names.copy_(tensors["named"])
        calibrated = CalibratedCritic(
            source,
            *(tensors[name] for name in _BUFFERS),
            queries=made._query_side(),
            temperature=float(about["temperature"]),
        )
        model = assembled(calibrated, encoder_x.dim, encoder_y.dim)
        model.seen.copy_(tensors["seen"])
        made._set_fitted(model.to(place), encoder_x, encoder_y, int(about["rows"]))
        made._set_slope()
        made.oof_pmi_, made.oof_values_ = (
            tensors[name].numpy() for name in ("oof_pmi", "oof_values")
        )
        made.groups_ = tensors["groups"].numpy() if "groups" in tensors else None
        made.flags_ = tuple(Flag(n, tuple(r), m) for n, r, m in about["flags"])
        made.bias_, made.jackknife_ = FittingBias(**about["bias"]), float(about["jackknife"])
        made.history_ = []
    except (KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{path} lacks a part or holds a wrong one: {error}") from None
    return made


def _critic(source: str, tensors: dict[str, Tensor], given: Any, path: Path) -> Any:
    if source == "function":
        if not callable(given):
            raise InputError(
                f"{path} was calibrated with your own function: give it again as "
                "load(path, critic=...)"
            )
        return given
    if given is not None:
        raise InputError(f"{path} needs no function: leave `critic` out")
    return "inner" if source == "embeddings" else tensors["logits"].numpy()
