"""The options of each objective's loss: whose they are, whether it takes them, and in words."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.errors import InputError, unknown_name

Options = Mapping[str, Any]


def check_options(model: str, objective: str, options: Options) -> None:
    """Refuse names and values that the loss of this objective does not take."""
    if not options:
        return
    if model == "shallow":
        known = _shallow_defaults(objective)
        for name in options:
            if not known:
                raise InputError(f"{objective} has no options with shallow, got {name!r}")
            if name not in known:
                raise unknown_name(f"option of the loss {objective}", name, known)
        _method(objective).configure(**options)
        return
    from pointdep.contrastive.pretraining.recipes import check_loss_options

    check_loss_options(Settings(model, (objective,), loss=options))
    if model == "simclr":
        _simclr_loss(objective, options)
        return
    from pointdep.contrastive.pretraining.deep import GlobalToLocal

    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name}={value!r} must be a number")
    GlobalToLocal(objective, **options)


def own_options(model: str, objective: str, of_run: Options) -> dict[str, Any]:
    """Those that are this objective's of what the objectives of a run share."""
    if model != "shallow":
        return dict(of_run)
    known = _shallow_defaults(objective)
    return {name: value for name, value in of_run.items() if name in known}


def told_options(model: str, objective: str, options: Options) -> str:
    """ "temperature 0.2": of simclr always the scale of the score; then what is not the default."""
    rest = {k: v for k, v in options.items() if v != _defaults(model, objective).get(k)}
    said = []
    if model == "simclr":
        loss = _simclr_loss(objective, options)
        scale = "temperature" if hasattr(loss, "temperature") else "scale"
        rest.pop(scale, None)
        said.append(f"{scale} {getattr(loss, scale):g}")
    return ", ".join([*said, *(f"{name} {value}" for name, value in rest.items())])


def _defaults(model: str, objective: str) -> dict[str, Any]:
    if model == "shallow":
        return _shallow_defaults(objective)
    from pointdep.contrastive.pretraining.deep import LOSSES, GlobalToLocal

    made = LOSSES[objective] if model == "simclr" else GlobalToLocal
    return {one.name: one.default for one in inspect.signature(made).parameters.values()}


def _method(objective: str) -> Any:
    from pointdep.contrastive.pretraining.protocols import METHOD_OF
    from pointdep.core.methods import get_method

    return get_method(METHOD_OF[objective])


def _shallow_defaults(objective: str) -> dict[str, Any]:
    """Of the options that the learning objective takes; those of a read-out train nothing."""
    method = _method(objective)
    takes = inspect.signature(method.objective).parameters
    return {name: value for name, value in method.options.items() if name in takes}


def _simclr_loss(objective: str, options: Options) -> Any:
    from pointdep.contrastive.pretraining.deep import LOSSES

    return LOSSES[objective](**{"negatives": "all", **options})
