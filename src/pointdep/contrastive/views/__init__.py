"""Views of images: augmentations in batches on the device, each image with its own draw."""

from __future__ import annotations

from pointdep.contrastive.views.blur import Blur
from pointdep.contrastive.views.colour import (
    NORMALISE_CIFAR10,
    NORMALISE_MNIST,
    ColourJitter,
    Grey,
    Normalise,
)
from pointdep.contrastive.views.compose import TwoViews, Views
from pointdep.contrastive.views.geometry import Flip, ReflectTranslate, ResizedCrop
from pointdep.contrastive.views.layouts import as_rgb, halves
from pointdep.contrastive.views.operation import Operation
from pointdep.contrastive.views.recipes import amdim_views, evaluation_view, simclr_views

__all__ = [
    "NORMALISE_CIFAR10",
    "NORMALISE_MNIST",
    "Blur",
    "ColourJitter",
    "Flip",
    "Grey",
    "Normalise",
    "Operation",
    "ReflectTranslate",
    "ResizedCrop",
    "TwoViews",
    "Views",
    "amdim_views",
    "as_rgb",
    "evaluation_view",
    "halves",
    "simclr_views",
]
