"""What every model offers to the loop, how one is made from the settings, and the shallow model.

The shallow model is the paper's: RealNVP of the two halves of an image, trained as many replicas.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pointdep.contrastive.distributed import gather
from pointdep.contrastive.encoders.realnvp import RealNVP
from pointdep.contrastive.losses.contrastive_loss import FREE_SPREAD, spread
from pointdep.contrastive.pretraining.protocols import METHOD_OF, Settings
from pointdep.contrastive.views import halves
from pointdep.core.critics.base import ReplicaLinear
from pointdep.core.methods import Method, get_method
from pointdep.core.precision import no_autocast
from pointdep.core.ratio import MethodGroups
from pointdep.data.images import ImageSet
from pointdep.errors import Flag, InputError, require_known

_OPTIONS = {"alpha", "lam", "eta", "a", "b", "c"}


class Recipe(nn.Module, ABC):
    """Networks, losses, views and optimiser of one run, or of R replicas that train at once.

    A recipe is made as ``Recipe(settings, shape, classes)``, with shape the (channels, height,
    width) of an image. The forward pass takes what `batch` made and returns the loss of each
    replica, (R,).
    """

    scaling, regularisation = "standard", 0.1  # of the linear evaluation; the latter is C

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:  # noqa: ARG002
        super().__init__()
        self.names = [f"{objective}-{seed}" for objective, seed in settings.runs]
        self.replicas = len(self.names)

    @classmethod
    def loss_options(cls, objective: str) -> list[str] | None:  # noqa: ARG003
        """Names of the options that this objective takes; None if the constructor checks them."""
        return None

    def prepare_images(self, images: Tensor) -> Tensor:
        """uint8 images (n, c, h, w) as this model takes them."""
        return images

    @abstractmethod
    def batch(self, images: ImageSet, rows: Tensor, generator: torch.Generator) -> Any:
        """The views of these rows, (seeds, n), with draws from the generator; no gradients."""

    @abstractmethod
    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        """Over all parameters, where they are now; with a tensor, one that can be recorded."""

    def rate(self, done: float, step: int) -> float:  # noqa: ARG002
        """Factor of the learning rate when a share `done` of the run is behind it."""
        return 1.0

    def clips_gradient(self, step: int) -> bool:  # noqa: ARG002
        """Whether the gradient's entries are cut at +-1 at this step."""
        return False

    def compile_parts(self) -> None:
        """Have the views and the networks compiled at their first use."""

    @abstractmethod
    def encode(self, images: Tensor) -> Tensor:
        """uint8 images (n, c, h, w) -> frozen features (n, d), or (R, n, d)."""

    def sound(self) -> Tensor:
        """Whether the weights of each replica are finite, (R,)."""
        return torch.stack([weight.isfinite().all() for weight in self.parameters()]).all()[None]

    def remember(self, images: Tensor, generator: torch.Generator) -> None:
        """Keep what the PMI read-out needs of the training images."""

    @property
    @abstractmethod
    def flags(self) -> tuple[Flag, ...]:
        """Problems noticed in the last batch."""

    def fused(self) -> bool | None:
        """Whether the optimiser of these weights can update them in one kernel."""
        return next(self.parameters()).device.type in {"cpu", "cuda"} or None


def make_recipe(settings: Settings, shape: tuple[int, int, int], classes: int) -> Recipe:
    """An untrained recipe, its weights drawn from the seed; shape: (channels, height, width)."""
    check_loss_options(settings)
    # Of torch's generators only the CPU's is used, and put back.
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(mix("weights", settings.seeds[0]))
    try:
        return _kind(settings.model)(settings, shape, classes)
    finally:
        torch.set_rng_state(before)


def check_loss_options(settings: Settings) -> None:
    """Refuse options that the loss of an objective does not take, before anything is trained."""
    for objective in settings.objectives:
        known = _kind(settings.model).loss_options(objective)
        for name in settings.loss if known is not None else ():
            if not known:
                raise InputError(f"{objective} has no options with {settings.model}, got {name!r}")
            require_known(f"option of the loss {objective}", name, known)


def _kind(model: str) -> type[Recipe]:
    if model == "shallow":
        return Shallow
    from pointdep.contrastive.pretraining.deep import AMDIM, SimCLR

    return AMDIM if model == "amdim" else SimCLR


def mix(purpose: str, *numbers: int) -> int:
    """A seed for a generator, unlike those of other purposes and numbers."""
    # The count is among them because a seed sequence is filled up with zeros.
    entropy = [zlib.crc32(purpose.encode()), len(numbers), *numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)


class Shallow(Recipe):
    """RealNVP encoders of the upper and of the lower half, one replica per (objective, seed)."""

    scaling, regularisation = "minmax", 10.0
    seed_of: Tensor
    spread: Tensor
    _adam: Adam | None = None

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(settings, shape, classes)
        runs, size = settings.runs, settings.filled
        seeds = torch.tensor([settings.seeds.index(seed) for _, seed in runs])
        self.register_buffer("seed_of", seeds, persistent=False)
        self.register_buffer("spread", torch.ones(self.replicas), persistent=False)
        self.methods = _methods(settings)
        self.groups = MethodGroups(self.methods)
        dim = math.prod(shape) // 2
        # Objectives of a seed start alike.
        seeds_of = [(seed, side) for side in range(2) for _, seed in runs]
        generators = [torch.Generator().manual_seed(mix("weights", *one)) for one in seeds_of]
        # The first R replicas encode the upper halves, the others the lower halves.
        how: dict[str, Any] = {"hidden": (size.width, size.width), "generators": generators}
        self.encoders = RealNVP(2 * self.replicas, dim, couplings=size.depth, **how)
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
        found = []
        for name, where, message in (
            ("collapsed", self.spread < FREE_SPREAD, "the codes of all images are the same"),
            ("diverged", ~self.spread.isfinite(), "the codes are not finite"),
        ):
            if replicas := tuple(where.nonzero().flatten().tolist()):
                whose = ", ".join(self.names[replica] for replica in replicas)
                found.append(Flag(name, replicas, f"{message} ({whose})"))
        return tuple(found)


def _methods(settings: Settings) -> list[Method]:
    """One per replica, each with the options that it has; alpha belongs to drfc alone."""
    methods = [get_method(METHOD_OF[objective]) for objective, _ in settings.runs]
    for name in settings.loss:
        if name not in _OPTIONS:
            fault = f"the shallow model's score is v1' W v2 as it is: it has no {name!r}"
            raise InputError(f"{fault}, but alpha (drfc), lam (dm1), eta (dm2) and a, b, c (rpc)")
        if not any(name in method.options for method in methods):
            raise InputError(f"{name!r} is no option of {', '.join(settings.objectives)}")
    given = settings.loss.items()
    return [one.configure(**{k: v for k, v in given if k in one.options}) for one in methods]


class Adam(torch.optim.Adam):
    """torch's Adam, and after `compile_update` one whose update is a single pass over memory.

    With many replicas there are more weights than work on them, and the update takes most of a
    step. The state is torch's, so a checkpoint of one is a checkpoint of the other. All weights are
    in one group, and every step has a gradient of each.
    """

    _update: Callable[..., None] | None = None

    def compile_update(self) -> None:
        """From the second step on, run at the speed of the memory (torch's has three fifths)."""
        self._update = torch.compile(_update, dynamic=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step: torch's, unless the own update is compiled and there is a state to update."""
        if self._update is None or not self.state:
            return super().step(closure)
        (group,) = self.param_groups
        weights, (first, second) = group["params"], group["betas"]
        states = [self.state[weight] for weight in weights]
        torch._foreach_add_([state["step"] for state in states], 1)
        step = states[0]["step"].double()
        # Both with the corrections of the two averages.
        rate = (group["lr"] / (1 - first**step)).to(weights[0].dtype)
        widened = (1 / (1 - second**step)).to(weights[0].dtype)
        for weight, state in zip(weights, states, strict=True):
            own = (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])
            flat = tuple(tensor.view(-1) for tensor in own)
            self._update(flat, rate, widened, group["betas"], group["eps"])
        return None


def _update(
    own: Sequence[Tensor], rate: Tensor, widened: Tensor, betas: tuple[float, float], eps: float
) -> None:
    """Update one weight in place; own: the weight, its gradient and Adam's two averages."""
    weight, gradient, mean, square = own
    mean.lerp_(gradient, 1 - betas[0])
    square.lerp_(gradient * gradient, 1 - betas[1])
    weight.sub_(rate * mean / ((square * widened).sqrt() + eps))
