"""Adam whose update can be compiled: where weights outnumber the work on them, it is the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pointdep.errors import InputError

Update = Callable[..., None]


class Adam(torch.optim.Adam):
    """torch's own, and with `compile_update` in one pass over memory.

    The state is torch's, so a checkpoint of one is a checkpoint of the other.
    """

    _update: Update | None = None
    _apart = False  # a weight has missed a step

    def compile_update(self) -> None:
        """From the second step on, at the speed of the memory (torch's has three fifths of it)."""
        plain = ("weight_decay", "amsgrad", "maximize")
        if any(group[name] for group in self.param_groups for name in plain):
            raise InputError(f"only Adam without {', '.join(plain)} can be compiled")
        self._update = torch.compile(_update, dynamic=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step: torch's, unless its own is compiled and all weights are in step."""
        if self._update is None or closure is not None or not self._in_step():
            return super().step(closure)
        for group in self.param_groups:
            weights = group["params"]
            states = [self.state[weight] for weight in weights]
            torch._foreach_add_([state["step"] for state in states], 1)
            step, (first, second) = states[0]["step"].double(), group["betas"]
            rate = (group["lr"] / (1 - first**step)).to(weights[0].dtype)
            widened = (1 / (1 - second**step)).to(weights[0].dtype)
            for weight, state in zip(weights, states, strict=True):
                own = (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])
                flat = (tensor.view(-1) for tensor in own)
                self._update(*flat, rate, widened, first, second, group["eps"])
        return None

    def _in_step(self) -> bool:
        """Whether every weight has a gradient, has had one at each step, and lies in one piece."""
        weights = [weight for group in self.param_groups for weight in group["params"]]
        self._apart |= any(weight.grad is None for weight in weights)
        ready = (weight in self.state and weight.is_contiguous() for weight in weights)
        return not self._apart and all(ready)


def _update(
    weight: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    rate: Tensor,
    widened: Tensor,
    first: float,
    second: float,
    eps: float,
) -> None:
    """Of one tensor, in its place; rate and widened: with the corrections of the two averages."""
    mean.lerp_(gradient, 1 - first)
    square.lerp_(gradient * gradient, 1 - second)
    weight.sub_(rate * mean / ((square * widened).sqrt() + eps))
