"""The paper's shallow model: two invertible encoders, one per half of the image, and v1' W v2.

All objectives and seeds train at once, as replicas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pointdep.contrastive.distributed import gather
from pointdep.contrastive.encoders.realnvp import RealNVP
from pointdep.contrastive.losses.contrastive_loss import FREE_SPREAD, spread
from pointdep.contrastive.pretraining.protocols import METHOD_OF, Settings
from pointdep.contrastive.pretraining.recipes import Recipe, mix
from pointdep.contrastive.views import halves
from pointdep.core.critics.base import ReplicaLinear
from pointdep.core.methods import Method, get_method
from pointdep.core.precision import no_autocast
from pointdep.core.ratio import MethodGroups
from pointdep.data.images import ImageSet
from pointdep.errors import Flag, InputError

_OPTIONS = {"alpha", "lam", "eta", "a", "b", "c"}


class Shallow(Recipe):
    """RealNVP encoders of the upper and of the lower half, one replica per (objective, seed)."""

    scaling, regularisation = "minmax", 10.0
    seed_of: Tensor
    spread: Tensor
    _adam: Adam | None = None

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(settings, shape, classes)
        runs, size = settings.runs, settings.filled
        self.replicas = len(runs)
        self.names = [f"{objective}-{seed}" for objective, seed in runs]
        seeds = torch.tensor([settings.seeds.index(seed) for _, seed in runs])
        self.register_buffer("seed_of", seeds, persistent=False)
        self.register_buffer("spread", torch.ones(self.replicas), persistent=False)
        self.methods = _methods([objective for objective, _ in runs], settings.loss)
        self.groups = MethodGroups(self.methods)
        dim = math.prod(shape) // 2
        # Objectives of a seed start alike.
        generators = [
            torch.Generator().manual_seed(mix("weights", seed, side))
            for side in range(2)
            for _, seed in runs
        ]
        # The first R replicas encode the upper halves, the others the lower halves.
        self.encoders = RealNVP(
            2 * self.replicas,
            dim,
            couplings=size.depth,
            hidden=(size.width, size.width),
            generators=generators,
        )
        self.product = ReplicaLinear(self.replicas, dim, dim, bias=False)
        bound = math.sqrt(6.0 / (2 * dim))  # Glorot's, as the paper's framework draws it
        with torch.no_grad():
            for weight, generator in zip(self.product.weight, generators, strict=False):
                weight.copy_((2.0 * torch.rand(dim, dim, generator=generator) - 1.0) * bound)

    @torch.no_grad()
    def batch(self, images: ImageSet, rows: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """-> the upper halves, then the lower ones, (2 R, n, d)."""
        sides = halves(images.train[rows.flatten()])
        return torch.cat([side.view(*rows.shape, -1)[self.seed_of] for side in sides])

    def forward(self, batch: Tensor) -> Tensor:
        upper, lower = gather(self.encoders(batch), 1).chunk(2)
        with no_autocast(upper):
            scores = self.product(upper) @ lower.transpose(-1, -2)
        with torch.no_grad():
            self.spread.copy_(torch.minimum(spread(upper), spread(lower)))
        return -self.groups.apply(lambda method, part: method.objective(part), scores)

    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        recorded = isinstance(learning_rate, Tensor)
        weights = self.parameters()
        self._adam = Adam(weights, lr=learning_rate, fused=self.fused(), capturable=recorded)
        return self._adam

    def compile_parts(self) -> None:
        # torch compiles at most eight versions of one function; replicas may come in more numbers.
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
        # Each replica has two encoders.
        return torch.cat([one.view(-1, self.replicas) for one in finite]).all(0)

    @property
    def flags(self) -> tuple[Flag, ...]:
        noticed = (
            ("collapsed", self.spread < FREE_SPREAD, "the codes of all images are the same"),
            ("diverged", ~self.spread.isfinite(), "the codes are not finite"),
        )
        found = []
        for name, where, message in noticed:
            if replicas := tuple(where.nonzero().flatten().tolist()):
                whose = ", ".join(self.names[replica] for replica in replicas)
                found.append(Flag(name, replicas, f"{message} ({whose})"))
        return tuple(found)


def _methods(objectives: Sequence[str], options: Mapping[str, Any]) -> list[Method]:
    """One per objective, each with the options that it has; alpha belongs to drfc alone."""
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


class Adam(torch.optim.Adam):
    """torch's Adam, and after `compile_update` one whose update is a single pass over memory.

    With many replicas there are more weights than work on them, and the update takes most of a
    step. The state is torch's, so a checkpoint of one is a checkpoint of the other.
    """

    _update: Callable[..., None] | None = None
    _apart = False  # a weight has missed a step

    def compile_update(self) -> None:
        """From the second step on, run at the speed of the memory (torch's has three fifths)."""
        plain = ("weight_decay", "amsgrad", "maximize")
        if any(group[name] for group in self.param_groups for name in plain):
            raise InputError(f"only Adam without {', '.join(plain)} can be compiled")
        self._update = torch.compile(_update, dynamic=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step: torch's, unless the own update is compiled and all weights are in step."""
        if self._update is None or closure is not None or not self._in_step():
            return super().step(closure)
        for group in self.param_groups:
            weights = group["params"]
            states = [self.state[weight] for weight in weights]
            torch._foreach_add_([state["step"] for state in states], 1)
            step, (first, second) = states[0]["step"].double(), group["betas"]
            # Both with the corrections of the two averages.
            rate = (group["lr"] / (1 - first**step)).to(weights[0].dtype)
            widened = (1 / (1 - second**step)).to(weights[0].dtype)
            for weight, state in zip(weights, states, strict=True):
                own = (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])
                flat = tuple(tensor.view(-1) for tensor in own)
                self._update(flat, rate, widened, group["betas"], group["eps"])
        return None

    def _in_step(self) -> bool:
        """Whether every weight has a gradient, has had one at each step, and is contiguous."""
        weights = [weight for group in self.param_groups for weight in group["params"]]
        self._apart |= any(weight.grad is None for weight in weights)
        ready = (weight in self.state and weight.is_contiguous() for weight in weights)
        return not self._apart and all(ready)


def _update(
    own: Sequence[Tensor], rate: Tensor, widened: Tensor, betas: tuple[float, float], eps: float
) -> None:
    """Update one weight in place; own: the weight, its gradient and Adam's two averages."""
    weight, gradient, mean, square = own
    mean.lerp_(gradient, 1 - betas[0])
    square.lerp_(gradient * gradient, 1 - betas[1])
    weight.sub_(rate * mean / ((square * widened).sqrt() + eps))
