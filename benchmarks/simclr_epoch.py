"""SimCLR with ResNet-18: an epoch of pre-training against the bare forward and backward pass.

    python benchmarks/simclr_epoch.py [--data FOLDER] [--output benchmarks/results/FILE.json]

The epoch has everything in it: the choice of rows, both views of each image, forward, loss,
backward, optimiser, and the looks at loss and clock. The bare pass runs the same network
(encoder and projection head, the same precision and memory format) forward and backward on one
fixed batch of views, as many times as the epoch has steps: launched from Python, and on a GPU also
recorded as a CUDA graph, as the epoch's steps are; the ratio is to the quicker of the two. Eager
and compiled networks, in one process.
Without --data the 50,000 images are random bytes: no step depends on what is in them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from report import report

from pointdep.contrastive.pretraining.loop import Training, make_fabric
from pointdep.contrastive.pretraining.protocols import Settings
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.data.images import ImageSet, load_images
from pointdep.fitting.progress import Silent
from pointdep.fitting.recording import WARM_UP, on_side_stream, record

TARGET = 1.25


def random_images(rows: int) -> ImageSet:
    """Of CIFAR-10's shape."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (rows, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(rows) % 10
    names = tuple(str(k) for k in range(10))
    return ImageSet("random", pixels, labels, pixels[:100], labels[:100], names, "random bytes")


def measure(images: ImageSet, settings: Settings, compiled: bool) -> dict[str, Any]:
    """Seconds of an epoch and of the bare passes in it, in turn."""
    fabric = make_fabric("auto", settings.precision)
    recipe: Any = make_recipe(settings, images.shape, 10).to(fabric.device)
    if fabric.device.type == "cuda":
        recipe.to(memory_format=torch.channels_last)
    training = Training(recipe, images.to(fabric.device), settings, fabric)
    if compiled:
        recipe.compile_parts()
    started = time.perf_counter()
    training.run(Silent())
    ends = [entry["seconds"] for entry in training.journal.entries]
    epochs = [after - before for before, after in pairwise(ends)]
    rows = training.order.batch(0)
    generator = torch.Generator(fabric.device).manual_seed(0)
    batch = recipe.batch(training.images, rows, generator)
    bare = bare_pass(recipe, batch.flatten(0, 1), fabric)
    ways = {"bare_s": bare}
    if fabric.device.type == "cuda":
        ways["bare_recorded_s"] = recorded(bare)
    passes = {
        name: [timed(way, training.order.steps, fabric.device) for _ in range(len(epochs))]
        for name, way in ways.items()
    }
    medians = {name: statistics.median(times) for name, times in passes.items()}
    epoch = statistics.median(epochs)
    return {
        "epoch_s": epoch,
        **medians,
        "all_epochs_s": epochs,
        **{f"all_{name}": times for name, times in passes.items()},
        "first_epoch_s": ends[0],
        "total_s": time.perf_counter() - started,
        "ratio": epoch / min(medians.values()),
        "target": TARGET,
    }


def recorded(once: Callable[[], None]) -> Callable[[], None]:
    """The same as a CUDA graph."""
    for _ in range(WARM_UP):
        on_side_stream(once)
    return record(once)


def bare_pass(recipe: Any, views: torch.Tensor, fabric: Any) -> Callable[[], None]:
    """Forward and backward of the network, on views that stay the same."""
    with fabric.autocast():
        gradient = torch.randn_like(recipe.project(views))
    parameters = list(recipe.parameters())

    def once() -> None:
        with fabric.autocast():
            projected = recipe.project(views)
        projected.backward(gradient)
        for parameter in parameters:
            parameter.grad = None

    return once


def timed(once: Callable[[], None], times: int, device: torch.device) -> float:
    for _ in range(3):
        once()
    wait(device)
    started = time.perf_counter()
    for _ in range(times):
        once()
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--objectives", nargs="+", default=["cpc", "drfc"])
    parser.add_argument("--modes", nargs="+", default=["eager", "compiled"])
    parser.add_argument("--output")
    options = parser.parse_args()
    images = load_images("cifar10", options.data) if options.data else random_images(options.rows)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    result: dict[str, Any] = {"rows": len(images.train), "batch_size": options.batch_size}
    for mode in options.modes:
        for objective in options.objectives:
            settings = Settings(
                "simclr",
                (objective,),
                epochs=options.epochs,
                batch_size=options.batch_size,
                width=options.width,
            )
            found = measure(images, settings, compiled=mode == "compiled")
            result[f"{mode}_{objective}"] = found
            print(mode, objective, found, flush=True)
    report("simclr_epoch", result, options.output)


if __name__ == "__main__":
    main()
