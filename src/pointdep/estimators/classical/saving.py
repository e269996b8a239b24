"""Classical estimators on disk: their fits are plain arrays and numbers, in a folder like others.

Read back, nothing is made but the classes listed here, from exactly the fields that they have.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pointdep.core.linear import Canonical, GaussianSample
from pointdep.data import storage
from pointdep.data.encoder import SideEncoder
from pointdep.errors import Flag
from pointdep.estimators.classical import kernels, likelihood, plug_in
from pointdep.estimators.classical.catalogue import get_classical
from pointdep.estimators.classical.prepared import SideReader
from pointdep.estimators.persistence import plain, plain_seed, reading

KIND = "classical"
_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(kernels.PHSICModel, kernels.KernelFeatures, kernels.KernelRatio),
        *(likelihood.Mixture, likelihood.JointMixture, likelihood.LabelMixtures),
        *(plug_in.CountModel, plug_in.GaussianModel, GaussianSample, Canonical),
    )
}


def _packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON, its arrays among the tensors under names that begin with this one."""
    if isinstance(value, Tensor | np.ndarray):
        kind, given = ("tensor", value) if isinstance(value, Tensor) else ("array", np.array(value))
        tensors[name] = torch.as_tensor(given)
        return {kind: name}
    if is_dataclass(value):
        own = {
            f.name: _packed(getattr(value, f.name), f"{name}.{f.name}", tensors)
            for f in fields(value)
        }
        return {"class": type(value).__name__, "fields": own}
    if isinstance(value, tuple | list):
        return [_packed(part, f"{name}.{at}", tensors) for at, part in enumerate(value)]
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(saved: Any, tensors: dict[str, Tensor]) -> Any:
    """What was packed; KeyError, TypeError or ValueError when it is something else."""
    if isinstance(saved, list):
        return tuple(_unpacked(part, tensors) for part in saved)
    if not isinstance(saved, dict):
        return saved
    if "array" in saved:
        return tensors[saved["array"]].numpy()
    if "tensor" in saved:
        return tensors[saved["tensor"]]
    kind, own = _CLASSES[saved["class"]], saved["fields"]
    if {f.name for f in fields(kind)} != own.keys():
        raise ValueError(f"the fields of {saved['class']} are others")
    return kind(**{name: _unpacked(value, tensors) for name, value in own.items()})


def save(estimator: Any, path: Path) -> None:
    """Write a fitted `ClassicalDependency` as a folder."""
    tensors: dict[str, Tensor] = {}
    params = {**estimator.get_params(deep=False), "progress": True}
    params["random_state"] = plain_seed(estimator.random_state)
    params = {name: plain(value) for name, value in params.items()}
    params["method_options"] = {n: plain(v) for n, v in estimator.method_.options.items()}
    readers = {"x": estimator.reader_x_, "y": estimator.reader_y_}
    about: dict[str, Any] = {"kind": KIND, "params": params, "rows": estimator.n_rows_}
    about |= {f"encoder_{side}": reader.encoder.to_dict() for side, reader in readers.items()}
    about["digests"], about["seed"] = list(estimator.digests_), estimator.seed_
    about["flags"] = [[f.name, list(f.replicas), f.message] for f in estimator.flags_]
    parts = {f"seen_{side}": reader.seen for side, reader in readers.items()}
    parts |= {"model": estimator.model_, "oof": estimator._oof, "groups": estimator.groups_}
    parts["mi_values"] = estimator.mi_values_
    about["parts"] = {name: _packed(value, name, tensors) for name, value in parts.items()}
    storage.write_model(path, about, tensors)


def load(made: Any, about: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> Any:
    """Give a new `ClassicalDependency` what was saved."""
    with reading(path):
        params = dict(about["params"])
        storage.require_kinds(params, type(made))
        made.set_params(**params)
        made.method_ = get_classical(made.method, made.method_options)
        parts = {name: _unpacked(part, tensors) for name, part in about["parts"].items()}
        for side in "xy":
            encoder = SideEncoder.from_dict(about[f"encoder_{side}"])
            setattr(made, f"reader_{side}_", SideReader(encoder, parts[f"seen_{side}"]))
        made.n_rows_, made.seed_ = int(about["rows"]), int(about["seed"])
        made.digests_ = tuple(about["digests"])
        made.flags_ = tuple(Flag(n, tuple(r), m) for n, r, m in about["flags"])
        made.model_, made._oof, made.groups_ = parts["model"], parts["oof"], parts["groups"]
        made.mi_values_ = parts["mi_values"]
        made._set_features(made.reader_x_.encoder)
    return made
