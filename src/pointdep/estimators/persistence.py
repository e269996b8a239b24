"""What of an estimator goes into its folder, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pointdep.core.critics import CRITICS
from pointdep.core.critics.auto import EarlyResidualCritic, PickedCritic, ResidualCritic
from pointdep.core.methods import METHODS, get_method
from pointdep.data import storage
from pointdep.data.sides import SideEncoder
from pointdep.errors import Flag, InputError, ModelFileError
from pointdep.estimators import assembly
from pointdep.fitting.rendezvous import pick_device
from pointdep.inference.bias import FittingBias
from pointdep.inference.learning_curve import LearningCurve
from pointdep.inference.mutual_information import HeldOutBound

NOT_SAVED = ("cv", "checkpoint", "device", "distributed", "progress")
"""Options that are of the place of a fit."""


def fitted_parts(estimator: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What all models of pairs have found, as JSON and tensors."""
    about = {
        "encoder_x": estimator.encoder_x_.to_dict(),
        "encoder_y": estimator.encoder_y_.to_dict(),
        "rows": estimator.n_rows_,
        "flags": [[f.name, list(f.replicas), f.message] for f in estimator.flags_],
        "bias": asdict(estimator.bias_),
        "jackknife": estimator.jackknife_,
        "bound": None if estimator.bound_ is None else asdict(estimator.bound_),
        "curve": None if estimator.curve_ is None else estimator.curve_.to_dict(),
        "left_out": list(getattr(estimator, "left_out_", {}).items()),
    }
    arrays = {"oof_pmi": estimator.oof_pmi_, "oof_values": estimator.oof_values_}
    for side, encoder in zip("xy", (estimator.encoder_x_, estimator.encoder_y_), strict=True):
        arrays |= {f"encoder_{side}.{name}": one for name, one in encoder.arrays.items()}
    if estimator.groups_ is not None:
        arrays["groups"] = estimator.groups_
    return about, {name: torch.from_numpy(values) for name, values in arrays.items()}


def set_fitted_parts(made: Any, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Give an estimator what `fitted_parts` took of another, but for its model."""
    storage.require_kinds(about, _Fitted)
    made.encoder_x_, made.encoder_y_ = (
        SideEncoder.from_dict(about[f"encoder_{side}"], _arrays_of(f"encoder_{side}.", tensors))
        for side in "xy"
    )
    made.n_rows_ = about["rows"]
    made.left_out_ = dict(about.get("left_out", ()))
    made.flags_ = tuple(Flag(n, tuple(r), m) for n, r, m in about["flags"])
    kinds = {"bias": FittingBias, "bound": HeldOutBound, "curve": LearningCurve}
    for name, kind in kinds.items():  # early models have neither bound nor curve
        saved = about[name] if name == "bias" else about.get(name)
        storage.require_kinds(saved or {}, kind)
        told = {k: tuple(v) if isinstance(v, list) else v for k, v in (saved or {}).items()}
        setattr(made, f"{name}_", None if saved is None else kind(**told))
    made.jackknife_ = float(about["jackknife"])
    made.oof_pmi_, made.oof_values_ = tensors["oof_pmi"].numpy(), tensors["oof_values"].numpy()
    made.groups_ = tensors["groups"].numpy() if "groups" in tensors else None
    for name, of_kind in (("oof_pmi", "f"), ("oof_values", "f"), ("groups", "i")):
        rows = getattr(made, f"{name}_")
        if rows is None:
            continue
        fits = rows.dtype.kind == of_kind and rows.shape == (made.n_rows_,)
        if name == "oof_pmi" and rows.dtype.kind == "f" and rows.ndim == 1:
            # Rows of the data that were left out have no PMI, and are counted nowhere else.
            fits = np.count_nonzero(~np.isnan(rows)) <= made.n_rows_ <= len(rows)
        if not fits:
            raise ValueError(f"{name} is not one number for each of {made.n_rows_} rows")


class _Fitted:
    """The types of what is in model.json beside the parts that check themselves."""

    rows: int
    replicas: int
    jackknife: float
    hidden: Sequence[int] | str
    wide: bool
    table: bool
    flags: Sequence[Sequence[Any]]
    history: Sequence[dict[str, Any]]
    digests: Sequence[str] | None
    params: dict[str, Any]
    bias: dict[str, Any]
    bound: dict[str, Any] | None
    curve: dict[str, Any] | None


def _arrays_of(start: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Those whose names start so, by the rest of their names."""
    return {n.removeprefix(start): t.numpy() for n, t in tensors.items() if n.startswith(start)}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of a folder that lacks something which one it is."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as e:
        reason = (str(e).splitlines() or [type(e).__name__])[-1].strip()
        raise ModelFileError(f"{path} lacks a part or holds a wrong one: {reason}") from None


def data_of(estimator: Any) -> dict[str, Any]:
    """What tells the data of a fitted estimator from other data."""
    encoders = estimator.encoder_x_, estimator.encoder_y_
    digests = getattr(estimator, "digests_", None)
    names = [list(encoder.names) for encoder in encoders]
    return {"digests": digests and list(digests), "rows": estimator.n_rows_, "names": names}


def require_same_data(path: Path, data: dict[str, Any]) -> None:
    """Refuse to replace a model that was fitted on other data; data: as of `data_of`."""
    about = storage.peek(path)
    if about is None:
        return
    digests, names = about.get("digests"), [about.get(f"encoder_{side}", {}) for side in "xy"]
    same = digests == data["digests"]
    if digests is None or data["digests"] is None:  # of streamed rows
        of_names = [one.get("names") for one in names]
        same = about.get("rows") == data["rows"] and of_names == data["names"]
    if not same:
        raise InputError(
            f"{path} holds a model of other data ({about.get('rows')} rows): choose another "
            "folder, or replace it by overwrite=True"
        )


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator as a folder."""
    about, tensors = fitted_parts(estimator)
    about |= {
        "params": estimator.fit_params_,
        "hidden": estimator.hidden_,
        "wide": estimator.model_.critic.wide,
        "table": estimator.model_.critic.is_table,
        "replicas": estimator.n_replicas_,
        "history": estimator.history_,
        "digests": estimator.digests_,
    }
    tensors |= {f"model.{name}": t for name, t in estimator.model_.state_dict().items()}
    storage.write_model(path, about, tensors)


_OTHERS = {
    "encoder": "is an encoder: read it with contrastive.load_encoder",
    "classical": "trains no network: use ClassicalDependency.load",
}
"""Kinds of models that are read by others."""


def load(kind: Any, path: Path, *, critic: Any, device: str) -> Any:
    """An estimator of class `kind` from its folder, with the user's own critic where it had one."""
    about, tensors = storage.read_model(path)
    if about.get("kind") in _OTHERS:
        raise ModelFileError(f"{path} {_OTHERS[about['kind']]}")
    if about.get("kind") == "calibrated":
        from pointdep.estimators import calibrated  # which imports this module

        return calibrated.load(about, tensors, path, critic=critic, device=device)
    with reading(path):
        params = dict(about["params"])
        storage.require_kinds(params, kind, NOT_SAVED)
        if not isinstance(params["critic"], str | dict):
            raise TypeError(f"critic={params['critic']!r:.60}")
        METHODS.require_here(params["method"], path)
        get_method(params["method"], params["method_options"])
        made = kind(**{**params, "hidden": _hidden(params["hidden"]), "device": device})
        set_fitted_parts(made, about, tensors)
        made.hidden_, replicas = _hidden(about["hidden"]), about["replicas"]
        if tensors["model.constant"].shape != (replicas,) or len(made.hidden_) > len(tensors):
            raise ValueError("there are other weights than those of its replicas and layers")
        # Early models have no such entries.
        shape = {name: bool(about.get(name, False)) for name in ("wide", "table")}
        made.history_, made.fit_params_ = about["history"], about["params"]
        digests = about.get("digests")  # early models and streamed fits have none
        made.digests_ = None if digests is None else tuple(digests)
    made.critic = _critic(made.critic, critic, path)
    method = get_method(made.method, made.method_options)
    settings = replace(made._critic_settings(made.n_rows_, 0), hidden=made.hidden_, **shape)
    state = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    if settings.kind is ResidualCritic and "x_map.frequencies" not in state:
        settings = replace(settings, critic=EarlyResidualCritic)
    if "x_map.picked" in state:
        settings = replace(settings, critic=PickedCritic)
    reduced = "x_front.landmarks" in state, "y_front.landmarks" in state
    settings = replace(settings, reduced=reduced)
    if "critic.levels" in state:  # early models have none
        settings = replace(settings, label=assembly.label_side(made.encoder_x_, made.encoder_y_))
    widths = made.encoder_x_.dim, made.encoder_y_.dim
    make = partial(assembly.make_model, settings, method, replicas, *widths)
    with reading(path):
        if critic is None and settings.kind.__module__.startswith("pointdep."):
            storage.require_shapes(make, state)
        model = make()
    if "reference" in state:
        model.reference = torch.zeros_like(state["reference"])
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ModelFileError(f"{path}: the critic does not fit its weights: {reason}") from None
    model.eval().requires_grad_(False)
    made._set_model(model.to(pick_device(device)))
    return made


def saved_params(estimator: Any) -> dict[str, Any]:
    """The options as they are now, as JSON; what cannot be written is left at its default."""
    kept = dict(estimator.get_params(deep=False))
    kept["critic"] = _describe_critic(estimator.critic)
    kept["hidden"] = plain_hidden(estimator.hidden)
    options = estimator.method_options
    kept["method_options"] = {k: plain(v) for k, v in options.items()} if options else None
    kept["random_state"] = plain_seed(estimator.random_state)
    for name in NOT_SAVED:
        kept.pop(name)
    return {name: plain(value) for name, value in kept.items()}


def plain_seed(seed: Any) -> int | None:
    """A seed as JSON knows it; a generator has none."""
    return int(seed) if isinstance(seed, int | np.integer) else None


def plain_hidden(hidden: Any) -> Any:
    """Layer widths as JSON knows them."""
    return hidden if isinstance(hidden, str) else [int(width) for width in hidden]


def _hidden(saved: Any) -> Any:
    return saved if isinstance(saved, str) else tuple(saved)


def plain(value: Any) -> Any:
    """A NumPy number as Python's own, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def _describe_critic(critic: Any) -> Any:
    """A critic's entry in model.json: its name or import path, or that the user must bring it."""
    if isinstance(critic, str):
        return critic
    if isinstance(critic, type):
        path = f"{critic.__module__}:{critic.__qualname__}"
        return next((name for name, known in CRITICS.items() if known is critic), path)
    return {"own": "module" if isinstance(critic, nn.Module) else "encoders"}


def _critic(saved: Any, given: Any, path: Path) -> Any:
    """The critic to build: the named one that was saved, or the user's own, brought again."""
    if isinstance(saved, str):
        if given is None:
            CRITICS.require_here(saved, path, ", or give the class as load(path, critic=...)")
            return saved
        if isinstance(given, type) and _describe_critic(given) == saved:
            return given
        raise InputError(f"{path} has a {saved!r} critic: leave `critic` out")
    if given is None:
        own = f"your own {saved.get('own')}"
        raise InputError(f"{path} was fitted with {own}: give it again as load(path, critic=...)")
    return given
