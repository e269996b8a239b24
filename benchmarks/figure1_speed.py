"""How fast Figure 1 trains on this GPU, by each way of doing it, and how far from the floors.

    python benchmarks/figure1_speed.py --output benchmarks/results/figure1_speed.json

Floors: the arithmetic of three matrix products a step over the rate of a large product measured
here, and the bytes of weights and optimiser over the bandwidth of a copy measured here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from report import report

from pointdep.core.critics import ConcatCritic
from pointdep.experiments.figure1 import Figure1, make_engine, run_figure1


def median_seconds(function: Callable[[], Any], repeats: int = 20) -> float:
    """The median over repeats after a warm-up, by device events."""
    times = []
    for number in range(repeats + 3):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(start.elapsed_time(end) / 1e3)
    return float(sorted(times)[repeats // 2])


def ceilings() -> dict[str, float]:
    """The rate of a large product, and the bandwidth of a copy, read plus written."""
    square = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16)
    numbers = torch.randn(2**29, device="cuda")
    target = torch.empty_like(numbers)
    product = median_seconds(lambda: square @ square)
    copy = median_seconds(lambda: target.copy_(numbers))
    return {"flops": 2 * 8192**3 / product, "bytes_per_second": 8 * 2**29 / copy}


def floors(settings: Figure1, rates: dict[str, float]) -> dict[str, float]:
    """Milliseconds of a step below which no version can come."""
    cells, (first, second) = len(settings.cells), settings.hidden
    flops = 3 * 2 * cells * settings.batch_size**2 * first * second
    weights = cells * (2 * settings.dim * first + first * second + first + 2 * second + 1)
    moved = 4 * 8 * weights  # values and two moments read and written, gradients written and read
    return {
        "arithmetic_ms": 1e3 * flops / rates["flops"],
        "bytes_ms": 1e3 * moved / rates["bytes_per_second"],
    }


def kernels(settings: Figure1) -> dict[str, float]:
    """Milliseconds a step of the kernels that take longest."""
    engine = make_engine(settings)
    step = torch.zeros(1, dtype=torch.long, device="cuda")
    for _ in range(3):
        engine._step(step)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(10):
            engine._step(step)
        torch.cuda.synchronize()
    found = {event.key: event.self_device_time_total / 1e4 for event in profile.key_averages()}
    longest = sorted(found, key=lambda key: -found[key])[:8]
    return {key[:60]: round(found[key], 4) for key in longest} | {"all": sum(found.values())}


def per_step(settings: Figure1, *, autograd: bool = False) -> float:
    """Milliseconds a step, after compilation; with the gradient of the critic by autograd."""
    engine = make_engine(settings)
    if autograd:
        critic = engine.critic
        assert isinstance(critic, ConcatCritic)
        critic.fusable = False
        critic.matrix = torch.compile(critic.matrix, dynamic=False)
    return 1e3 * engine.run(settings.iterations).train_seconds / settings.iterations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--output")
    options = parser.parse_args()
    full = Figure1(iterations=options.iterations)
    short = Figure1(iterations=min(500, options.iterations))
    rates = ceilings()
    curves = run_figure1(full)
    result: dict[str, Any] = {
        "cells": len(full.cells),
        "iterations": full.iterations,
        "setup_seconds": curves.setup_seconds,
        "train_seconds": curves.train_seconds,
        "ceilings": rates,
        "floors": floors(full, rates),
        "kernels_ms": kernels(short),
        "ms_per_step": {
            "gradient by hand, compiled": 1e3 * curves.train_seconds / full.iterations,
            "autograd, compiled": per_step(short, autograd=True),
        },
    }
    report("figure1_speed", result, options.output)


if __name__ == "__main__":
    main()
