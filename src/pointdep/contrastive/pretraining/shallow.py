"""The paper's shallow model: two invertible encoders, one a half of the image, and v1' W v2.

All objectives and seeds train at once, as replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pointdep.contrastive.distributed import gather
from pointdep.contrastive.encoders.realnvp import RealNVP
from pointdep.contrastive.losses import collapse
from pointdep.contrastive.losses.precision import no_autocast
from pointdep.contrastive.pretraining.adam import Adam
from pointdep.contrastive.pretraining.order import mix
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.views import halves
from pointdep.core.critics.layers import ReplicaLinear
from pointdep.core.methods import Method, get_method
from pointdep.core.ratio import MethodGroups
from pointdep.errors import Flag, InputError

METHOD_OF = {
    "cpc": "cpc",
    "pcc": "js",
    "drfc": "drf",
    "variational": "variational",
    "dm1": "dm1",
    "dm2": "dm2",
    "rpc": "rpc",
}
"""The estimator that each objective trains with."""

_OPTIONS = {"alpha", "lam", "eta", "a", "b", "c"}


class Shallow(Recipe):
    """RealNVP encoders of the upper and of the lower half, (objective, seed) a replica."""

    scaling, regularisation = "minmax", 10.0
    seed_of: Tensor
    spread: Tensor
    _adam: Adam | None = None

    def __init__(
        self,
        runs: Sequence[tuple[str, int]],
        shape: Sequence[int],
        *,
        couplings: int = 30,
        width: int = 512,
        loss: Mapping[str, Any] | None = None,
    ) -> None:
        """shape: (channels, height, width) of an image."""
        super().__init__()
        self.replicas = len(runs)
        self.names = [f"{objective}-{seed}" for objective, seed in runs]
        seeds = list(dict.fromkeys(seed for _, seed in runs))
        self.register_buffer(
            "seed_of", torch.tensor([seeds.index(seed) for _, seed in runs]), persistent=False
        )
        self.methods = _methods([objective for objective, _ in runs], loss or {})
        self.groups = MethodGroups(self.methods)
        dim = math.prod(shape) // 2
        # Objectives of a seed start alike.
        generators = [
            torch.Generator().manual_seed(mix("weights", seed, side))
            for side in range(2)
            for _, seed in runs
        ]
        # The upper halves' in the first R replicas, the lower halves' in the others.
        self.encoders = RealNVP(
            2 * self.replicas,
            dim,
            couplings=couplings,
            hidden=(width, width),
            generators=generators,
        )
        self.product = ReplicaLinear(self.replicas, dim, dim, bias=False)
        self.register_buffer("spread", torch.ones(self.replicas), persistent=False)
        bound = math.sqrt(6.0 / (2 * dim))  # Glorot's, as the paper's framework draws it
        with torch.no_grad():
            for weight, generator in zip(self.product.weight, generators, strict=False):
                weight.copy_((2.0 * torch.rand(dim, dim, generator=generator) - 1.0) * bound)

    @torch.no_grad()
    def batch(
        self, images: Tensor, labels: Tensor, rows: Tensor, generator: torch.Generator
    ) -> Tensor:
        """-> the upper halves, then the lower ones, (2 R, n, d)."""
        del labels, generator
        sides = halves(images[rows.flatten()])
        return torch.cat([side.view(*rows.shape, -1)[self.seed_of] for side in sides])

    def forward(self, batch: Tensor) -> Tensor:
        upper, lower = gather(self.encoders(batch), 1).chunk(2)
        with no_autocast(upper):
            scores = self.product(upper) @ lower.transpose(-1, -2)
        with torch.no_grad():
            sides = [collapse.spread(code) for code in (upper, lower)]
            self.spread.copy_(torch.minimum(*sides))
        return -self.groups.apply(lambda method, part: method.objective(part), scores)

    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        self._adam = Adam(
            self.parameters(),
            lr=learning_rate,
            fused=next(self.parameters()).device.type in {"cpu", "cuda"} or None,
            capturable=isinstance(learning_rate, Tensor),
        )
        return self._adam

    def compile_parts(self) -> None:
        # Of one function torch compiles eight versions at most; numbers of replicas may be more.
        torch.compiler.reset()
        self.encoders.compile_coupling()
        if self._adam is not None and self._adam.defaults["capturable"]:
            self._adam.compile_update()

    def encode(self, images: Tensor) -> Tensor:
        """The codes of the upper halves, (R, n, d)."""
        code: Tensor = self.encoders(halves(images)[0], slice(self.replicas))
        return code

    def sound(self) -> Tensor:
        finite = [weight.flatten(1).isfinite().all(1) for weight in self.parameters()]
        # Of an encoder's weights there are two for each replica.
        return torch.cat([one.view(-1, self.replicas) for one in finite]).all(0)

    @property
    def flags(self) -> tuple[Flag, ...]:
        noticed = (
            ("collapsed", self.spread < collapse.UNTOUCHED, "the codes of all images are the same"),
            ("diverged", ~self.spread.isfinite(), "the codes are not finite"),
        )
        found = []
        for name, where, message in noticed:
            replicas = tuple(where.nonzero().flatten().tolist())
            if replicas:
                whose = ", ".join(self.names[replica] for replica in replicas)
                found.append(Flag(name, replicas, f"{message} ({whose})"))
        return tuple(found)


def _methods(objectives: Sequence[str], options: Mapping[str, Any]) -> list[Method]:
    """Each with those of the options that it has; alpha belongs to drfc alone."""
    methods = [get_method(METHOD_OF[objective]) for objective in objectives]
    for name in options:
        if name not in _OPTIONS:
            raise InputError(
                f"the shallow model's score is v1' W v2 as it is: it has no {name!r}, but "
                "alpha (drfc), lam (dm1), eta (dm2) and a, b, c (rpc)"
            )
        if not any(name in method.options for method in methods):
            raise InputError(f"{name!r} is no option of {', '.join(dict.fromkeys(objectives))}")
    return [
        method.configure(**{k: v for k, v in options.items() if k in method.options})
        for method in methods
    ]
