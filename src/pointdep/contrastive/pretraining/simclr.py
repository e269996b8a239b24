"""SimCLR: a ResNet with the CIFAR stem, a projection head, and any of the losses between views."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pointdep.contrastive.encoders.resnet import ProjectionHead, ResNet
from pointdep.contrastive.losses import (
    CPCLoss,
    DM1Loss,
    DM2Loss,
    DRFCLoss,
    PCCLoss,
    RPCLoss,
    VariationalLoss,
)
from pointdep.contrastive.losses.base import ContrastiveLoss
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.views import as_rgb, evaluation_view, simclr_views
from pointdep.errors import Flag

LOSSES: Mapping[str, type[ContrastiveLoss]] = MappingProxyType(
    {
        "cpc": CPCLoss,
        "pcc": PCCLoss,
        "drfc": DRFCLoss,
        "variational": VariationalLoss,
        "dm1": DM1Loss,
        "dm2": DM2Loss,
        "rpc": RPCLoss,
    }
)
"""The loss of each objective."""

_WARM_UP = 0.1  # share of the run in which the rate rises


class SimCLR(Recipe):
    """Network and views are the public recipe's for CIFAR-10; optimiser and rate are ours."""

    def __init__(
        self,
        objective: str,
        *,
        depth: int = 18,
        width: int = 64,
        loss: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = ResNet(depth, width=width)
        self.head = ProjectionHead(self.encoder.feature_dim)
        self.loss = LOSSES[objective](**{"negatives": "all", **(loss or {})})
        self.views, self.plain = simclr_views(), evaluation_view()
        self._make_views, self._network = self.views.apply, self._in_turn

    def prepare_images(self, images: Tensor) -> Tensor:
        return as_rgb(images)

    @torch.no_grad()
    def batch(
        self, images: Tensor, labels: Tensor, rows: Tensor, generator: torch.Generator
    ) -> Tensor:
        """-> (2, n, 3, h, w)."""
        del labels
        chosen = images[rows[0]]
        height, width = chosen.shape[-2:]
        return self._make_views(chosen, self.views.draw(len(chosen), height, width, generator))

    def forward(self, views: Tensor) -> Tensor:
        first, second = self.project(views.flatten(0, 1)).chunk(2)
        return torch.stack([self.loss(first, second)])

    def project(self, views: Tensor) -> Tensor:
        """Views, (n, 3, h, w), as `batch` makes them -> what the loss compares, (n, 128)."""
        return self._network(_laid_out(views))

    def _in_turn(self, views: Tensor) -> Tensor:
        projected: Tensor = self.head(self.encoder(views))
        return projected

    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        networks = [*self.encoder.parameters(), *self.head.parameters()]
        groups: list[dict[str, Any]] = [{"params": networks}]
        if own := list(self.loss.parameters()):  # a learned scale is not to be drawn to one
            groups.append({"params": own, "weight_decay": 0.0})
        return torch.optim.SGD(
            groups,
            lr=learning_rate,
            momentum=0.9,
            weight_decay=5e-4,
            fused=next(self.parameters()).device.type in {"cpu", "cuda"} or None,
        )

    def rate(self, done: float, step: int) -> float:
        """Up in a line, then down along a cosine."""
        del step
        if done < _WARM_UP:
            return max(done, 1e-3) / _WARM_UP
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (done - _WARM_UP) / (1.0 - _WARM_UP))))

    def compile_parts(self) -> None:
        self._network = torch.compile(self._in_turn)
        self._make_views = torch.compile(self.views.apply)

    def encode(self, images: Tensor) -> Tensor:
        views = self.plain(images, torch.Generator(images.device))
        features: Tensor = self.encoder(_laid_out(views))
        return features

    @torch.no_grad()
    def pmi(self, first: Tensor, second: Tensor) -> Tensor:
        """log r of two views of one image each, both (n, 3, h, w) as `batch` makes them -> (n,)."""
        return self.loss.pmi(self.project(first), self.project(second))

    def image_pmi(self, first: Tensor, second: Tensor) -> Tensor:
        """The same of uint8 images, (n, 3, h, w), seen as they are."""
        generator = torch.Generator(first.device)
        return self.pmi(self.plain(first, generator), self.plain(second, generator))

    @torch.no_grad()
    def remember(self, images: Tensor, generator: torch.Generator) -> None:
        if isinstance(self.loss, CPCLoss):
            rows = torch.arange(len(images), device=images.device)[None]
            self.loss.set_reference(self.project(self.batch(images, rows, rows, generator)[1]))

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.loss.flags


def _laid_out(views: Tensor) -> Tensor:
    """In the memory format that a GPU's convolutions are fastest in."""
    on_gpu = views.device.type == "cuda"
    return views.contiguous(memory_format=torch.channels_last) if on_gpu else views
