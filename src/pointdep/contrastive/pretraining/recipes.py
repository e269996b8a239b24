"""From the settings to what is trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

import torch

from pointdep.contrastive.pretraining.order import mix
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.errors import unknown_name


def make_recipe(settings: Settings, shape: tuple[int, int, int], classes: int) -> Recipe:
    """An untrained one, its weights drawn from the seed; shape: (channels, height, width)."""
    assert settings.width is not None
    assert settings.depth is not None
    assert settings.batch_size is not None
    if settings.model == "shallow":
        from pointdep.contrastive.pretraining.shallow import Shallow

        return Shallow(
            settings.runs,
            shape,
            couplings=settings.depth,
            width=settings.width,
            loss=settings.loss,
        )
    ((objective, seed),) = settings.runs
    with torch.random.fork_rng([]):
        torch.manual_seed(mix(seed, 1))
        if settings.model == "amdim":
            from pointdep.contrastive.encoders.amdim_costs import GlobalToLocal
            from pointdep.contrastive.pretraining.amdim import AMDIM

            _check_options(settings.loss, GlobalToLocal, objective)
            return AMDIM(
                objective,
                classes,
                ndf=settings.width,
                depth=settings.depth,
                loss=settings.loss,
            )
        from pointdep.contrastive.pretraining.simclr import LOSSES, SimCLR

        _check_options(settings.loss, LOSSES[objective], objective)
        return SimCLR(
            objective,
            depth=settings.depth,
            width=settings.width,
            batch_size=settings.batch_size,
            loss=settings.loss,
        )


def _check_options(options: Iterable[str], loss: Callable[..., object], objective: str) -> None:
    """Refuse what the loss does not take."""
    parameters = inspect.signature(loss).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise unknown_name(f"option of the loss {objective}", name, known)
