"""The augmentations of the paper's deep models, and the view a frozen encoder is judged on."""

from __future__ import annotations

from pointdep.contrastive.views.blur import Blur
from pointdep.contrastive.views.colour import NORMALISE_CIFAR10, ColourJitter, Grey, Normalise
from pointdep.contrastive.views.compose import TwoViews, Views
from pointdep.contrastive.views.geometry import Flip, ReflectTranslate, ResizedCrop
from pointdep.contrastive.views.operation import Operation, require_between


def simclr_views(
    blur: bool = False,
    strength: float = 0.5,
    min_scale: float = 0.2,
    *,
    normalise: Normalise | None = NORMALISE_CIFAR10,
) -> TwoViews:
    """SimCLR's two views: resized crop, flip, colour jitter, grey; blurred for large images only.

    strength: of the jitter, 0.5 for CIFAR-10 and 1 for ImageNet, at most 2.5; min_scale: the least
    share of the area that a crop keeps.
    """
    require_between("strength", strength, 0, 2.5)
    operations: list[Operation] = [
        ResizedCrop(scale=(min_scale, 1.0)),
        Flip(),
        ColourJitter(0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength, p=0.8),
        Grey(p=0.2),
    ]
    if blur:
        operations.append(Blur())
    return TwoViews(shared=Views(), each=Views(*operations, *_last(normalise)))


def amdim_views(*, normalise: Normalise | None = NORMALISE_CIFAR10) -> TwoViews:
    """AMDIM's two views of CIFAR-10: one flip for both, then shift, colour jitter and grey."""
    return TwoViews(
        shared=Views(Flip()),
        each=Views(
            ReflectTranslate(4, p=0.8),
            ColourJitter(0.4, 0.4, 0.4, 0.2, p=0.8),
            Grey(p=0.25),
            *_last(normalise),
        ),
    )


def evaluation_view(*, normalise: Normalise | None = NORMALISE_CIFAR10) -> Views:
    """The image itself: converted, and normalised as in training."""
    return Views(*_last(normalise))


def _last(normalise: Normalise | None) -> tuple[Operation, ...]:
    return () if normalise is None else (normalise,)
