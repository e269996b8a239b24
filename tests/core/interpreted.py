"""The kernel of the objectives through Triton's interpreter: as a script, with a file to write to.

The interpreter is chosen when Triton is first imported, so that it needs a process of its own.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from pointdep.core.fused_objectives import FusedObjectives
from pointdep.core.methods import PAPER_METHODS, Method, get_method

OPTIONS = (
    *((key, {}) for key in PAPER_METHODS),
    ("smile", {"tau": 1.0}),
    ("dm1", {"lam": 2.5}),
    ("dm1", {"lam": 0.2}),
    ("dm2", {"corrected": False}),
    ("dm2", {"eta": 0.3}),
    ("dm2", {"eta": 3.0, "corrected": False}),
    ("drf", {"floor": 0.5}),
)
# Scale and shift of the scores; exp(150) does not fit float32, nor does a sum of some exp(80).
SCORES = {"small": (1.0, 0.0), "wide": (18.0, 0.0), "high": (1.0, 150.0), "low": (1.0, -150.0)}
SIZES = (16, 32)


def methods() -> list[Method]:
    return [get_method(key, options) for key, options in OPTIONS]


def scores_of(size: int, kind: str) -> Tensor:
    """(methods, size, size), higher for the pairs."""
    generator = torch.Generator().manual_seed(size)
    scale, shift = SCORES[kind]
    drawn = torch.randn(len(OPTIONS), size, size, generator=generator)
    return shift + scale * (drawn + 1.5 * torch.eye(size))


def main(path: str) -> None:
    fused = FusedObjectives(methods(), torch.device("cpu"))
    found = {f"{kind} {size}": fused(scores_of(size, kind)) for size in SIZES for kind in SCORES}
    torch.save(found, path)


if __name__ == "__main__":
    main(sys.argv[1])
