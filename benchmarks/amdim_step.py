"""AMDIM at full size: parameters, feature maps, and time and memory of a step of each objective.

    python benchmarks/amdim_step.py [--output benchmarks/results/FILE.json]

A step is all of it: rows, views, both encodings, the three costs, backward, Adam.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from report import report
from simclr_epoch import random_images, wait

from pointdep.contrastive.pretraining.loop import Training, make_fabric
from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.data.images import ImageSet


def measure(images: ImageSet, settings: Settings, steps: int) -> dict[str, Any]:
    fabric = make_fabric("auto", settings.precision)
    on_gpu = fabric.device.type == "cuda"
    recipe: Any = make_recipe(settings, images.shape, 10).to(fabric.device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        recipe.to(memory_format=torch.channels_last)
    training = Training(recipe, images.to(fabric.device), settings, fabric)
    seconds, losses = [], []
    for _ in range(steps):
        started = time.perf_counter()
        losses.append(training.train_step())
        wait(fabric.device)
        seconds.append(time.perf_counter() - started)
        training.step += 1
    values = torch.cat(losses).tolist()
    return {
        "step_ms": 1e3 * statistics.median(seconds[len(seconds) // 3 :]),
        "first_step_ms": 1e3 * seconds[0],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "first_loss": values[0],
        "last_loss": values[-1],
    }


def shapes(width: int, depth: int) -> dict[str, Any]:
    """Of the network that D-RFC trains, with batch norm everywhere, as in the released code."""
    settings = Settings("amdim", ("drfc",), width=width, depth=depth)
    encoder: Any = make_recipe(settings, (3, 32, 32), 10).encoder
    maps = encoder(torch.zeros(2, 3, 32, 32))
    parts = (encoder.head_five, encoder.head_seven)
    heads = sum(p.numel() for part in parts for p in part.parameters())
    total = sum(p.numel() for p in encoder.parameters())
    return {
        "trunk_parameters": total - heads,
        "parameters": total,
        "maps": [list(part.shape[1:]) for part in maps],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=480)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES))
    parser.add_argument("--output")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    images = random_images(options.batch_size * options.steps)
    result: dict[str, Any] = {
        "batch_size": options.batch_size,
        "network": shapes(options.width, options.depth),
    }
    for objective in options.objectives:
        settings = Settings(
            "amdim",
            (objective,),
            epochs=1,
            batch_size=options.batch_size,
            width=options.width,
            depth=options.depth,
        )
        result[objective] = measure(images, settings, options.steps)
        print(objective, result[objective], flush=True)
    report("amdim_step", result, options.output)


if __name__ == "__main__":
    main()
