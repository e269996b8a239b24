"""Value and gradient of DRFCLoss, against the same loss through the B x B matrix of scores.

    python benchmarks/drfc_loss.py --output benchmarks/results/drfc_loss.json

Both take the same unit vectors, times included; memory is the peak above the inputs. Beside them,
CPC and PCC in blocks at the same size, which never hold the matrix either. On a CPU the rows are
fewer unless they are given, and memory is not measured.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from report import report
from torch import Tensor

from pointdep.contrastive.losses import CPCLoss, DRFCLoss, PCCLoss
from pointdep.core import objectives

Loss = Callable[[Tensor, Tensor], Tensor]


def through_matrix(z1: Tensor, z2: Tensor) -> Tensor:
    """DRFCLoss by its definition, with as few operations on the matrix as can be written down."""
    scores = 10.0 * F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T
    rows, own = len(scores), scores.diagonal()
    squares = (scores.square().sum() - own.square().sum()) / (rows * (rows - 1.0))
    return -(own.mean() - 0.5 * squares)


def through_objective(z1: Tensor, z2: Tensor) -> Tensor:
    """The same by the core's function of any matrix of scores."""
    return -objectives.drf(10.0 * F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T)


def value_and_gradient(loss: Loss, z1: Tensor, z2: Tensor) -> tuple[Tensor, ...]:
    value = loss(z1, z2)
    return (value.detach(), *torch.autograd.grad(value, (z1, z2)))


def milliseconds(function: Callable[[], Any], repeats: int, cuda: bool) -> list[float]:
    """One time a repeat after three to warm up: by device events, or by the clock."""
    times = []
    for number in range(repeats + 3):
        if cuda:
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            function()
            end.record()
            torch.cuda.synchronize()
            passed = float(start.elapsed_time(end))
        else:
            began = time.perf_counter()
            function()
            passed = 1e3 * (time.perf_counter() - began)
        if number >= 3:
            times.append(passed)
    return times


def peak_bytes(function: Callable[[], Any]) -> int:
    """Memory of the device at its peak, above what is held before."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def measure(loss: Loss, z1: Tensor, z2: Tensor, repeats: int) -> dict[str, float]:
    """Median and best milliseconds, and the peak in MiB where there is a GPU."""

    def step() -> tuple[Tensor, ...]:
        return value_and_gradient(loss, z1, z2)

    times = milliseconds(step, repeats, z1.is_cuda)
    found = {"median_ms": round(statistics.median(times), 4), "best_ms": round(min(times), 4)}
    if z1.is_cuda:
        found["peak_mib"] = round(peak_bytes(step) / 2**20, 2)
    return found


def difference(z1: Tensor, z2: Tensor, loss: Loss) -> dict[str, float]:
    """How far value and gradient of the two ways are apart, relative to the largest entry."""
    ours, theirs = (value_and_gradient(way, z1, z2) for way in (loss, through_matrix))
    parts = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True)]
    return {"value": parts[0], "gradient": max(parts[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--tf32", action="store_true", help="the user allows TF32")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = arguments.rows or (32_768 if device == "cuda" else 2048)
    torch.set_float32_matmul_precision("high" if arguments.tf32 else "highest")
    generator = torch.Generator().manual_seed(0)
    shared, *noise = torch.randn(3, rows, arguments.columns, generator=generator).to(device)
    z1, z2 = ((shared + part).requires_grad_() for part in noise)
    slow = max(3, arguments.repeats // 5)
    drfc = DRFCLoss()
    ours = measure(drfc, z1, z2, arguments.repeats)
    matrix = measure(through_matrix, z1, z2, slow)
    result: dict[str, Any] = {
        "rows": rows,
        "columns": arguments.columns,
        "tf32": arguments.tf32,
        "drfc": ours,
        "through_matrix": matrix,
        "through_objective": measure(through_objective, z1, z2, slow),
        "times_faster": round(matrix["median_ms"] / ours["median_ms"], 1),
        "relative_difference": difference(z1, z2, drfc),
        "cpc": measure(CPCLoss(), z1, z2, slow),
        "cpc_all": measure(CPCLoss(negatives="all"), z1, z2, slow),
        "pcc": measure(PCCLoss(), z1, z2, slow),
        "target_times": 20,
    }
    if device == "cuda":
        result["times_leaner"] = round(matrix["peak_mib"] / ours["peak_mib"], 1)
    report("drfc_loss", result, arguments.output)


if __name__ == "__main__":
    main()
