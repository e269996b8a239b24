"""From the settings to what is trained."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pointdep.contrastive.pretraining.order import mix
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.errors import InputError, unknown_name

# Those of the objectives whose scores are ratios; the others clip theirs and keep them small.
_AMDIM_OPTIONS: dict[str, tuple[str, ...]] = {"drfc": ("alpha",), "rpc": ()}


def make_recipe(settings: Settings, shape: tuple[int, int, int], classes: int) -> Recipe:
    """An untrained one, its weights drawn from the seed; shape: (channels, height, width)."""
    check_loss_options(settings)
    assert settings.width is not None
    assert settings.depth is not None
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
    with _drawn_from(mix("weights", seed)):
        if settings.model == "amdim":
            from pointdep.contrastive.pretraining.amdim import AMDIM

            return AMDIM(
                objective,
                classes,
                ndf=settings.width,
                depth=settings.depth,
                loss=settings.loss,
            )
        from pointdep.contrastive.pretraining.simclr import SimCLR

        return SimCLR(
            objective,
            depth=settings.depth,
            width=settings.width,
            loss=settings.loss,
        )


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """The CPU's generator started there, and put back; no other is touched."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def check_loss_options(settings: Settings) -> None:
    """Refuse what the loss of an objective does not take, before anything is trained."""
    if settings.model == "shallow":
        return  # whose objectives share theirs, and check them together
    for objective in settings.objectives:
        if settings.model == "amdim":
            known = list(_AMDIM_OPTIONS.get(objective, ("clip", "regulariser")))
        else:
            from pointdep.contrastive.losses import LOSSES

            parameters = inspect.signature(LOSSES[objective]).parameters.values()
            known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        for name in settings.loss:
            if not known:
                raise InputError(f"{objective} has no options with {settings.model}, got {name!r}")
            if name not in known:
                raise unknown_name(f"option of the loss {objective}", name, known)
