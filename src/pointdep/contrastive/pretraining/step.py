"""One training step on the device that Fabric set up, as written or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pointdep.contrastive.pretraining.recipes import Recipe
from pointdep.data.images import ImageSet
from pointdep.errors import InputError
from pointdep.fitting.recording import WARM_UP, on_side_stream, record
from pointdep.fitting.rendezvous import pick_device, start_fabric

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def make_fabric(device: str = "auto", precision: str = "auto") -> Fabric:
    """One process on one device; under torchrun, this process of the many (DDP)."""
    chosen = pick_device(device)
    if precision == "auto":
        has_bf16 = chosen.type == "cuda" and torch.cuda.get_device_capability(chosen) >= (8, 0)
        precision = "bf16" if has_bf16 else "32"
    if precision == "16" and chosen.type == "cpu":
        raise InputError("precision='16' needs a GPU: use bf16 or 32")
    return start_fabric(chosen, _PRECISION[precision], "pre-training", "pretrain")


def share_statistics(module: nn.Module, fabric: Fabric) -> None:
    """Take batch norm over the batches of all processes; only GPUs support it."""
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]


class Step:
    """Rows in, losses out: views, forward, backward, optimiser.

    recorded: replay the step from a CUDA graph, as the host is slower than the device. None: on
    one GPU, unless the precision has a loss scale that is decided at each step.
    """

    def __init__(
        self,
        recipe: Recipe,
        images: ImageSet,
        fabric: Fabric,
        learning_rate: float,
        recorded: bool | None = None,
    ) -> None:
        if recorded is None:
            alone = fabric.device.type == "cuda" and fabric.world_size == 1
            recorded = alone and getattr(fabric._precision, "scaler", None) is None
        self.recipe, self.images, self.fabric, self.recorded = recipe, images, fabric, recorded
        # A number would be recorded with the rest, and optimisers only record with a tensor.
        rate = torch.tensor(learning_rate, device=fabric.device) if recorded else learning_rate
        self.optimizer = recipe.optimizer(rate)
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.module, self._optimizer = fabric.setup(recipe, self.optimizer)
        self.generator = torch.Generator(fabric.device)
        self._rates = [torch.tensor(base, device=fabric.device) for base in self.base_rates]
        self._warm, self._rows = 0, torch.empty(0)
        # By whether the gradient is clipped: the graph, and where it leaves the losses.
        self.graphs: dict[bool, tuple[Callable[[], None], Tensor]] = {}

    def __call__(self, rows: Tensor, seed: int, factor: float, clip: bool) -> Tensor:
        """The losses of the replicas, (R,), before the step.

        rows: (seeds, n); seed: where the random draws start; factor: of the learning rate; clip:
        whether the gradient's entries are cut at +-1.
        """
        self.generator.manual_seed(seed)
        # Dropout must not repeat the draws of the views; no other device's generator is touched.
        torch.default_generator.manual_seed(seed + 1)
        if self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(seed + 1)
        groups = zip(self.optimizer.param_groups, self._rates, self.base_rates, strict=True)
        for group, rate, base in groups:
            group["lr"] = rate.fill_(base * factor) if self.recorded else base * factor
        if not self.recorded:
            return self._do(rows, clip)
        if self._warm < WARM_UP:
            self._warm += 1
            return on_side_stream(lambda: self._do(rows, clip))
        self._rows = rows.clone() if not self.graphs else self._rows.copy_(rows)
        if clip not in self.graphs:
            left: list[Tensor] = []
            replay = record(lambda: left.append(self._do(self._rows, clip)), self.generator)
            self.graphs[clip] = replay, left[0]
        replay, losses = self.graphs[clip]
        replay()
        return losses.clone()

    def _do(self, rows: Tensor, clip: bool) -> Tensor:
        self._optimizer.zero_grad()
        batch = self.recipe.batch(self.images, rows, self.generator)
        losses: Tensor = self.module(batch)
        self.fabric.backward(losses.sum())
        if clip:
            self.fabric.clip_gradients(self.module, self._optimizer, clip_val=1.0)
        self._optimizer.step()
        return losses.detach()

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Of networks, optimiser and loss scaling."""
        return {
            "module": self.recipe.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric._precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first step."""
        self.recipe.load_state_dict(state["module"])
        # The options of the optimiser depend on where it runs now: only its state is taken.
        own = [dict(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, options in zip(self.optimizer.param_groups, own, strict=True):
            group.update({k: v for k, v in options.items() if k != "params"})
        for weight, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if torch.is_tensor(value) and value.shape == weight.shape:
                    # In the weight's own memory format, without which no fused step takes it.
                    kept[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
        self.fabric._precision.load_state_dict(state["precision"])
