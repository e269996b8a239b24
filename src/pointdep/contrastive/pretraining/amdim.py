"""AMDIM: feature maps of 1, 5 and 7 cells a side, and the global-to-local costs between views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.contrastive.encoders.amdim import AMDIMEncoder, FeatureMaps
from pointdep.contrastive.encoders.amdim_costs import GlobalToLocal
from pointdep.contrastive.losses import collapse
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.views import amdim_views, as_rgb, evaluation_view
from pointdep.errors import Flag, InputError

_WARM_UP_STEPS = 500
_DROPS = (250 / 300, 280 / 300)  # shares of the run after which the rate falls to a fifth


class AMDIM(Recipe):
    """Its settings are those of the paper; classifiers of detached features train beside it.

    Of the objectives that the paper does not give settings for, each has those of PCC.
    """

    spread: Tensor

    def __init__(
        self,
        objective: str,
        classes: int,
        *,
        ndf: int = 192,
        depth: int = 8,
        loss: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for name, value in (loss or {}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name}={value!r} must be a number")
        self.objective = objective
        self.encoder = AMDIMEncoder(
            ndf=ndf, n_rkhs=8 * ndf, depth=depth, batch_norm=objective != "cpc"
        )
        self.costs = GlobalToLocal(objective, **(loss or {}))
        self.linear = nn.Linear(8 * ndf, classes)
        self.perceptron = nn.Sequential(
            nn.Dropout(0.2),
            nn.Linear(8 * ndf, 1024, bias=False),
            nn.BatchNorm1d(1024),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(1024, classes),
        )
        self.views, self.plain = amdim_views(), evaluation_view()
        self._make_views = self.views.apply
        self.register_buffer("spread", torch.ones(()), persistent=False)

    def prepare_images(self, images: Tensor) -> Tensor:
        return as_rgb(images)

    @torch.no_grad()
    def batch(
        self, images: Tensor, labels: Tensor, rows: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """-> views (2, n, 3, 32, 32), labels (n,), the cells of the 5 to 5 cost (2, n)."""
        chosen = images[rows[0]]
        height, width = chosen.shape[-2:]
        drawn = self.views.draw(len(chosen), height, width, generator)
        views = self._make_views(chosen, drawn)
        cells = torch.randint(25, (2, len(chosen)), generator=generator, device=images.device)
        return views, labels[rows[0]], cells

    def forward(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        views, labels, cells = batch
        first, second = (self._maps(view) for view in views)
        cost = self.costs(first, second, cells=cells).total
        features = torch.cat([first.one, second.one]).detach()
        self.spread.copy_(collapse.spread(features.float()))
        beside = torch.stack(
            [
                F.cross_entropy(classifier(features).float(), labels.repeat(2))
                for classifier in (self.linear, self.perceptron)
            ]
        ).sum()
        # The classifiers learn, and the value stays that of the cost.
        return torch.stack([cost + (beside - beside.detach())])

    def _maps(self, view: Tensor) -> FeatureMaps:
        if view.device.type == "cuda":
            view = view.contiguous(memory_format=torch.channels_last)
        maps: FeatureMaps = self.encoder(view)
        return maps

    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            self.parameters(),
            lr=learning_rate,
            betas=(0.8, 0.999),
            weight_decay=1e-5,
            fused=next(self.parameters()).device.type in {"cpu", "cuda"} or None,
            capturable=isinstance(learning_rate, Tensor),
        )

    def rate(self, done: float, step: int) -> float:
        """Up in a line over 500 steps; a fifth after 250 of 300 epochs, again after 280."""
        return min(1.0, (step + 1) / _WARM_UP_STEPS) * 0.2 ** sum(done >= drop for drop in _DROPS)

    def clips_gradient(self, step: int) -> bool:
        return self.objective != "cpc" and (self.objective == "drfc" or step >= _WARM_UP_STEPS)

    def compile_parts(self) -> None:
        self.encoder.compile()
        self._make_views = torch.compile(self.views.apply)

    def encode(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder.features(self.plain(images, torch.Generator(images.device)))
        return features

    @property
    def flags(self) -> tuple[Flag, ...]:
        if self.spread.item() >= collapse.UNTOUCHED:
            return ()
        return (Flag("collapsed", (0,), "the features of all images are the same"),)
