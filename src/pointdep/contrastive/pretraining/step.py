"""One training step, as it is written, or recorded on a GPU once and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.data.images import ImageSet
from pointdep.fitting.recording import OTHER_THREADS

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_WARM_UP = 3  # steps done one by one before one is recorded


class Step:
    """Rows in, losses out: views, forward, backward, optimiser."""

    def __init__(
        self, recipe: Recipe, images: ImageSet, fabric: Fabric, learning_rate: float
    ) -> None:
        self.recipe, self.images, self.fabric = recipe, images, fabric
        self.optimizer = recipe.optimizer(self._rate(learning_rate))
        self.base_rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.module, self._optimizer = fabric.setup(recipe, self.optimizer)
        self.generator = torch.Generator(fabric.device)

    def __call__(self, rows: Tensor, seed: int, factor: float, clip: bool) -> Tensor:
        """The losses of the replicas, (R,), before the step.

        rows: (seeds, n); seed: where the random draws start; factor: of the learning rate; clip:
        whether the gradient's entries are cut at +-1.
        """
        self.generator.manual_seed(seed)
        # Dropout's, which must not repeat the draws of the views; no other device's is touched.
        torch.default_generator.manual_seed(seed + 1)
        if self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(seed + 1)
        self._set_rates(factor)
        return self._do(rows, clip)

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
        # How the optimiser works is decided by where it works now: the state is what is taken.
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

    def _rate(self, learning_rate: float) -> float | Tensor:
        return learning_rate

    def _set_rates(self, factor: float) -> None:
        for group, base in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = base * factor

    def _do(self, rows: Tensor, clip: bool) -> Tensor:
        self._optimizer.zero_grad()
        images = self.images
        batch = self.recipe.batch(images.train, images.train_labels, rows, self.generator)
        losses: Tensor = self.module(batch)
        self.fabric.backward(losses.sum())
        if clip:
            self.fabric.clip_gradients(self.module, self._optimizer, clip_val=1.0)
        self._optimizer.step()
        return losses.detach()


class RecordedStep(Step):
    """The same on one GPU as a CUDA graph: the host, slower than the device, asks for it once."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._warm, self._rows = 0, torch.empty(0)
        self._rates = [torch.tensor(rate, device=self.fabric.device) for rate in self.base_rates]
        # By whether the gradient is clipped: the graph, and where it leaves the losses.
        self._graphs: dict[bool, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def _rate(self, learning_rate: float) -> Tensor:
        # A number would be recorded with the rest; and only so do optimisers agree to be recorded.
        return torch.tensor(learning_rate, device=self.fabric.device)

    def _set_rates(self, factor: float) -> None:
        groups = zip(self.optimizer.param_groups, self._rates, self.base_rates, strict=True)
        for group, rate, base in groups:
            group["lr"] = rate.fill_(base * factor)

    def _do(self, rows: Tensor, clip: bool) -> Tensor:
        if self._warm < _WARM_UP:
            self._warm += 1
            return self._aside(rows, clip)
        self._rows = rows.clone() if not self._graphs else self._rows.copy_(rows)
        if clip not in self._graphs:
            self._graphs[clip] = self._record(clip)
        graph, losses = self._graphs[clip]
        graph.replay()
        return losses.clone()

    def _aside(self, rows: Tensor, clip: bool) -> Tensor:
        """On a stream of its own, as recording needs it."""
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            losses = super()._do(rows, clip)
        main.wait_stream(side)
        return losses

    def _record(self, clip: bool) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, capture_error_mode=OTHER_THREADS):
            losses = super()._do(self._rows, clip)
        return graph, losses


def make_step(recipe: Recipe, images: ImageSet, fabric: Fabric, learning_rate: float) -> Step:
    """Recorded where it can be: on one GPU, and without a scale that is decided at each step."""
    alone = fabric.device.type == "cuda" and fabric.world_size == 1
    scaled = getattr(fabric._precision, "scaler", None) is not None
    kind = RecordedStep if alone and not scaled else Step
    return kind(recipe, images, fabric, learning_rate)
