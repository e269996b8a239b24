"""Inference and gradient of many replicas with different methods, in one launch on a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

from pointdep.core.methods import Method

# As `objective_kernels` numbers them.
_KINDS = {
    "cpc": 0,
    "nwj": 1,
    "js": 2,
    "dv": 3,
    "smile": 4,
    "variational": 5,
    "pc": 6,
    "dm1": 7,
    "dm2": 8,
    "drf": 9,
}
_SIZES = (16, 32, 64, 128)  # batches whose scores fit the registers of a program


def knows(methods: Sequence[Method]) -> bool:
    """Whether the kernel has these methods."""
    return all(m.key in _KINDS and not m.options.get("alpha") for m in methods)


def fits(scores: Tensor) -> bool:
    """Whether the kernel takes these scores, on this device."""
    return (
        scores.device.type == "cuda"
        and scores.dtype == torch.float32
        and scores.shape[-1] in _SIZES
        and find_spec("triton") is not None
    )


class FusedObjectives:
    """The methods of R replicas, as numbers on the device."""

    def __init__(self, methods: Sequence[Method], device: torch.device) -> None:
        kinds = [_KINDS[method.key] for method in methods]
        self.kinds = torch.tensor(kinds, dtype=torch.int32, device=device)
        self.options = torch.tensor([_option(method) for method in methods], device=device)
        self.shifts = torch.tensor([_shift(method) for method in methods], device=device)

    def __call__(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The inferences (R,) and the gradients of the objectives (R, n, n) at scores (R, n, n)."""
        from pointdep.core.objective_kernels import objectives_kernel

        values, grads = scores.new_empty(len(scores)), torch.empty_like(scores)
        objectives_kernel[(len(scores),)](
            scores.contiguous(), self.kinds, self.options, self.shifts, values, grads,
            scores.shape[-1], num_warps=16,
        )  # fmt: skip
        return values, grads


def _option(method: Method) -> float:
    """The one number that the kernel needs of a method's options."""
    names = {"smile": "tau", "dm1": "lam", "dm2": "eta", "drf": "floor"}
    return float(method.options[names[method.key]]) if method.key in names else 0.0


def _shift(method: Method) -> float:
    """What the read-out adds to a score."""
    if method.key == "dm1":
        return math.log(method.options["lam"])
    if method.key == "dm2" and method.options["corrected"]:
        return -0.5 / float(method.options["eta"])
    return 0.0
