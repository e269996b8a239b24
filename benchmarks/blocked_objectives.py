"""Value and gradient of the objectives without the matrix of scores, against the same through it.

    python benchmarks/blocked_objectives.py --output benchmarks/results/blocked_objectives.json

On a GPU: 32,768 x 128, in float32 and where the user allows TF32. `through_objective` is the core's
function of a matrix, `through_matrix` the same with as few operations on the matrix as can be
written down; memory is the peak above the inputs. Beside them, `pc` by the size of a block.

On a CPU: 65,536 x 128, each objective in a process of its own, whose memory is set against what it
held when the inputs were made; and both ways at fewer rows.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from drfc_loss import milliseconds, peak_bytes, value_and_gradient
from report import report
from torch import Tensor

from pointdep.core import objectives
from pointdep.core.blocked import InnerScores

NAMES = ("pc", "js", "cpc", "nwj", "dv", "dm1", "dm2", "drf")
Way = Callable[[Tensor, Tensor], Tensor]


def blocked(name: str, x: Tensor, y: Tensor, cells: int | None = None) -> Tensor:
    value: Tensor = getattr(objectives, name)(InnerScores(x, y, cells=cells))
    return value


def through_objective(name: str, x: Tensor, y: Tensor) -> Tensor:
    value: Tensor = getattr(objectives, name)(x @ y.T)
    return value


def through_matrix(name: str, x: Tensor, y: Tensor) -> Tensor:
    """The objectives with the matrix held, and little else."""
    scores = x @ y.T
    own, n = scores.diagonal(), len(scores)
    if name == "cpc":
        return (own - torch.logsumexp(scores, 1)).mean() + math.log(n)
    if name == "drf":
        squares = scores.square().sum() - own.square().sum()
        return own.mean() - 0.5 * squares / (n * (n - 1.0))
    if name in {"pc", "js"}:
        shift = math.log(n - 1.0) if name == "pc" else 0.0
        others = F.softplus(scores - shift).sum() - F.softplus(own - shift).sum()
        pairs = F.logsigmoid(own - shift).sum()
        return (pairs - others) / n**2 if name == "pc" else pairs / n - others / (n * (n - 1.0))
    every, pairs = torch.logsumexp(scores.view(-1), 0), torch.logsumexp(own, 0)
    log_mean = every + torch.log1p(-(pairs - every).exp()) - math.log(n * (n - 1.0))
    if name == "dm2":
        return own.mean() - log_mean.square()
    if name == "dv":
        return own.mean() - log_mean
    return own.mean() - ((log_mean - 1.0).exp() if name == "nwj" else log_mean.exp() - 1.0)


def rows_of(rows: int, columns: int, device: str) -> tuple[Tensor, Tensor]:
    """Dependent x and y whose scores are of the size of log r."""
    generator = torch.Generator().manual_seed(0)
    shared, *noise = torch.randn(3, rows, columns, generator=generator)
    x, y = ((shared + part) * (2.0 / columns) ** 0.5 for part in noise)
    return x.to(device).requires_grad_(), y.to(device).requires_grad_()


def measure(way: Way, x: Tensor, y: Tensor, repeats: int) -> dict[str, float | str]:
    """Seconds of the first call, milliseconds of others, and the peak in MiB on a GPU."""
    try:
        began = time.perf_counter()
        value_and_gradient(way, x, y)
        if x.is_cuda:
            torch.cuda.synchronize()
        found: dict[str, float | str] = {"first_s": round(time.perf_counter() - began, 3)}
        step = partial(value_and_gradient, way, x, y)
        if x.is_cuda:
            found["peak_mib"] = round(peak_bytes(step) / 2**20, 1)
        times = milliseconds(step, repeats, x.is_cuda)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return {"failed": "out of memory"}
    return found | {
        "median_ms": round(statistics.median(times), 3),
        "best_ms": round(min(times), 3),
    }


def difference(name: str, x: Tensor, y: Tensor) -> dict[str, dict[str, float]]:
    """How far value and gradient are from those of the matrix in float64, relative to the largest,
    in blocks and through the core's function of the matrix; and the two from each other."""
    exact = value_and_gradient(
        partial(through_objective, name), *(s.detach().double().requires_grad_() for s in (x, y))
    )
    ours = value_and_gradient(partial(blocked, name), x, y)
    theirs = value_and_gradient(partial(through_objective, name), x, y)
    pairs = {
        "blocked_from_float64": (ours, exact),
        "matrix_from_float64": (theirs, exact),
        "blocked_from_matrix": (ours, theirs),
    }
    return {what: _apart(one, other) for what, (one, other) in pairs.items()}


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> dict[str, float]:
    parts = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(one, other, strict=True)]
    return {"value": parts[0], "gradient": max(parts[1:])}


def compare(name: str, x: Tensor, y: Tensor, repeats: int) -> dict[str, Any]:
    ways = (blocked, through_matrix, through_objective)
    found: dict[str, Any] = {
        way.__name__: measure(partial(way, name), x, y, repeats) for way in ways
    }
    matrix = [found[way.__name__] for way in ways[1:] if "failed" not in found[way.__name__]]
    ours = found["blocked"]
    if matrix and "failed" not in ours:
        fastest = min(part["median_ms"] for part in matrix)
        found["time_over_fastest_matrix"] = round(ours["median_ms"] / fastest, 3)
        if x.is_cuda:
            leanest = min(part["peak_mib"] for part in matrix)
            found["memory_over_leanest_matrix"] = round(ours["peak_mib"] / leanest, 4)
    return found | {"relative_difference": difference(name, x, y)}


def on_gpu(rows: int, columns: int, repeats: int) -> dict[str, Any]:
    x, y = rows_of(rows, columns, "cuda")
    found: dict[str, Any] = {"rows": rows, "columns": columns}
    for setting, precision in (("float32", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision(precision)
        torch.compiler.reset()  # or steps compiled for both count as compiled too often
        found[setting] = {}
        for name in NAMES:
            found[setting][name] = compare(name, x, y, repeats)
            print(setting, name, found[setting][name], file=sys.stderr, flush=True)
        found[setting]["pc_by_cells"] = {
            f"2^{power}": measure(partial(blocked, "pc", cells=1 << power), x, y, repeats)
            for power in range(22, 28)
        }
    return found


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20


def one_process(name: str, rows: int, columns: int) -> dict[str, float]:
    """One value and gradient in this process, and the memory it took."""
    x, y = rows_of(rows, columns, "cpu")
    before = resident_mib()
    began = time.perf_counter()
    value, *_ = value_and_gradient(partial(blocked, name), x, y)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {
        "value": float(value),
        "seconds": round(seconds, 2),
        "peak_above_inputs_mib": round(peak - before, 1),
        "peak_of_process_mib": round(peak, 1),
    }


def on_cpu(rows: int, columns: int, few: int, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": rows, "columns": columns, "alone": {}}
    for name in NAMES:
        command = [sys.executable, __file__, "--one", name, "--rows", str(rows)]
        command += ["--columns", str(columns)]
        out = subprocess.run(command, capture_output=True, text=True, check=True)
        found["alone"][name] = json.loads(out.stdout)
        print(name, found["alone"][name], file=sys.stderr, flush=True)
    x, y = rows_of(few, columns, "cpu")
    found["compared"] = {"rows": few} | {n: compare(n, x, y, repeats) for n in NAMES}
    peaks = [part["peak_above_inputs_mib"] for part in found["alone"].values()]
    return found | {"largest_peak_above_inputs_mib": max(peaks), "target_mib": 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--few", type=int, default=4096, help="rows of the comparison on a CPU")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--cpu", action="store_true", help="though there is a GPU")
    parser.add_argument("--one", choices=NAMES, help="that objective alone, in this process")
    parser.add_argument("--output")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one_process(given.one, given.rows or 65_536, given.columns)))
    elif torch.cuda.is_available() and not given.cpu:
        result = on_gpu(given.rows or 32_768, given.columns, given.repeats or 10)
        report("blocked_objectives", result, given.output)
    else:
        result = on_cpu(given.rows or 65_536, given.columns, given.few, given.repeats or 2)
        report("blocked_objectives", result, given.output)


if __name__ == "__main__":
    main()
