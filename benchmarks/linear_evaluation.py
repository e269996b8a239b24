"""Logistic regression on frozen features: the batched solver against scikit-learn's.

    python benchmarks/linear_evaluation.py --mnist mnist/ \
        --output benchmarks/results/linear_evaluation.json

The features are the top halves of MNIST digits, scaled to [0, 1] and with N(0, 0.05^2) noise, drawn
anew for each replica: the pixel baseline of linear evaluation. "saga" is the paper's protocol,
which stops before it has converged.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from datasets import halves, mnist
from report import report
from torch import Tensor

from pointdep.contrastive.evaluation import LinearResult, linear_evaluation
from pointdep.fitting.progress import show

NOISE = 0.05

Data = tuple[Tensor, Tensor, Tensor, Tensor]


def noisy_halves(folder: Path, part: str, rows: int, replicas: int, seed: int) -> list[Tensor]:
    """Features (R, n, 392) and labels (n,)."""
    images, labels = mnist(folder, part)
    pixels = torch.from_numpy(halves(images[:rows])[0]) / 255
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn((replicas, *pixels.shape), generator=generator).mul_(NOISE).add_(pixels)
    return [found, torch.from_numpy(labels[:rows])]


def timed(data: Data, replicas: int, **options: Any) -> tuple[LinearResult, dict[str, Any]]:
    """The evaluation of the first replicas, and what to report of it."""
    train, train_labels, test, test_labels = data
    title = f"{options['solver']}, {options['scaling']}, {replicas} replicas"
    with show(title) as progress:
        started, used = time.perf_counter(), time.process_time()
        found = linear_evaluation(
            train[:replicas],
            train_labels,
            test[:replicas],
            test_labels,
            progress=progress,
            **options,
        )
        seconds, used = time.perf_counter() - started, time.process_time() - used
    return found, {
        "replicas": replicas,
        "accuracy": found.accuracy.tolist(),
        "train_accuracy": found.train_accuracy.tolist(),
        "converged": int(found.converged.sum()),
        "iterations": found.iterations.tolist(),
        "seconds": seconds,
        "seconds_per_replica": seconds / replicas,
        "cpu_seconds_per_replica": used / replicas,
    }


def compare(data: Data, scaling: str, sklearn: int, max_iter: int) -> dict[str, Any]:
    """Each solver on the same replicas; scikit-learn's and saga on so many of them."""
    timed(data, 1, solver="device", scaling=scaling, max_iter=2)  # libraries load, the device wakes
    _, one = timed(data, 1, solver="device", scaling=scaling, max_iter=max_iter)
    ours, many = timed(data, len(data[0]), solver="device", scaling=scaling, max_iter=max_iter)
    theirs, reference = timed(data, sklearn, solver="sklearn", scaling=scaling, max_iter=max_iter)
    _, paper = timed(data, sklearn, solver="saga", scaling=scaling, max_iter=max_iter)
    apart = abs(ours.accuracy[:sklearn] - theirs.accuracy).max()
    return {
        "device_one": one,
        "device": many,
        "sklearn": reference,
        "saga": paper,
        "largest_difference_in_points": 100 * float(apart),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=60_000, help="of the training split")
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--sklearn", type=int, default=2, help="replicas scikit-learn is given")
    parser.add_argument("--scalings", nargs="+", default=["minmax", "none"])
    parser.add_argument("--max-iter", type=int, default=5000)
    parser.add_argument("--output")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train = noisy_halves(options.mnist, "train", options.rows, options.replicas, seed=0)
    test = noisy_halves(options.mnist, "t10k", 10_000, options.replicas, seed=1)
    data = train[0].to(device), train[1].to(device), test[0].to(device), test[1].to(device)
    result: dict[str, Any] = {
        "train_rows": len(train[1]),
        "test_rows": len(test[1]),
        "columns": train[0].shape[2],
        "noise": NOISE,
    }
    for scaling in options.scalings:
        result[scaling] = compare(data, scaling, options.sklearn, options.max_iter)
    report("linear_evaluation", result, options.output)


if __name__ == "__main__":
    main()
