"""The measured constants, as `benchmarks/cost_fit.py` wrote them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from pointdep.errors import InputError

COMMANDS = ("fit", "score", "audit", "retrieve")


@cache
def measured() -> dict[str, dict[str, Any]]:
    """All that there are, by device."""
    text = files("pointdep.planning").joinpath("constants.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def constants(device: str) -> dict[str, Any]:
    """Of "cpu" (one core of it) or "gpu".

    machine: in words. start_seconds: until a process can begin. seconds: by command, part and kind
    of work. bytes, gpu_bytes: by command and kind of memory. parallel: the share of each command's
    time that cores divide. within: by command, the factors within which held-out times and memory
    were predicted.
    """
    if device not in measured():
        raise InputError(
            "no GPU has been measured for the plan yet: leave out --gpu, or run "
            "benchmarks/cost_model.py on one (docs/plan.md)"
        )
    return measured()[device]
