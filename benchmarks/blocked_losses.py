"""Value and gradient of the contrastive losses in blocks, against the same through the matrix.

    python benchmarks/blocked_losses.py --output benchmarks/results/blocked_losses.json

On a GPU: 32,768 x 128, in float32 and with TF32 allowed. `blocked` is the loss as it comes,
`whole` the same loss told to hold the matrix, `by_hand` the loss with as few operations on the
matrix as can be written down. Memory is the peak above the inputs. Errors of value and gradient,
relative to the largest entry, are against float64 at fewer rows. In addition, `pcc` by the rows of
a block. On a CPU the rows are fewer, and memory is not measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from blocked_objectives import _apart, measure
from drfc_loss import value_and_gradient
from report import report
from torch import Tensor

from pointdep.contrastive.losses import CPCLoss, DM1Loss, DM2Loss, DRFCLoss, PCCLoss

Way = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Callable[..., Any]] = {
    "cpc": CPCLoss,
    "cpc_one_way": partial(CPCLoss, symmetric=False),
    "cpc_all": partial(CPCLoss, negatives="all"),
    "pcc": PCCLoss,
    "dm1": DM1Loss,
    "dm2": DM2Loss,
    "drfc": DRFCLoss,
}


def by_hand(name: str, z1: Tensor, z2: Tensor) -> Tensor:
    """The losses with the matrix held, and little else."""
    x, y = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    n = len(x)
    if name == "cpc_all":
        z = torch.cat([x, y])
        scores = (z @ z.T) / 0.5
        scores.fill_diagonal_(-math.inf)
        own = (x * y).sum(1).repeat(2) / 0.5
        return (torch.logsumexp(scores, 1) - own).mean() - math.log(2 * n - 1)
    scores = x @ y.T * {"drfc": 10.0, "cpc": 2.0, "cpc_one_way": 2.0}.get(name, 5.0)
    own = scores.diagonal()
    if name.startswith("cpc"):
        rows = torch.logsumexp(scores, 1)
        ends = rows if name == "cpc_one_way" else 0.5 * (rows + torch.logsumexp(scores, 0))
        return (ends - own).mean() - math.log(n)
    products = n * (n - 1.0)
    if name == "drfc":
        squares = scores.square().sum() - own.square().sum()
        return 0.5 * squares / products - own.mean()
    if name == "pcc":
        others = F.softplus(scores).sum() - F.softplus(own).sum()
        return others / products - F.logsigmoid(own).mean()
    every, pairs = torch.logsumexp(scores.view(-1), 0), torch.logsumexp(own, 0)
    log_mean = every + torch.log1p(-(pairs - every).exp()) - math.log(products)
    penalty = log_mean.exp() - 1.0 if name == "dm1" else log_mean.square()
    return penalty - own.mean()


def ways_of(name: str, rows: int, block_size: int | None = None) -> dict[str, Way]:
    some = {} if block_size is None else {"block_size": block_size}
    return {
        "blocked": LOSSES[name](**some),
        # The identity of D-RFC holds no matrix; a clip far above the scores makes it walk cells.
        "whole": LOSSES[name](block_size=2 * rows, **({"clip": 1e6} if name == "drfc" else {})),
        "by_hand": partial(by_hand, name),
    }


def rows_of(rows: int, columns: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shared, *noise = torch.randn(3, rows, columns, generator=generator).to(device)
    z1, z2 = ((shared + part).requires_grad_() for part in noise)
    return z1, z2


def errors(name: str, z1: Tensor, z2: Tensor) -> dict[str, dict[str, float]]:
    """How far each way is from float64 by hand; in blocks of an eighth of the rows."""
    wide = [z.detach().double().requires_grad_() for z in (z1, z2)]
    exact = value_and_gradient(partial(by_hand, name), *wide)
    ways = ways_of(name, len(z1), block_size=len(z1) // 8)
    return {key: _apart(value_and_gradient(way, z1, z2), exact) for key, way in ways.items()}


def compare(name: str, z1: Tensor, z2: Tensor, repeats: int, few: int) -> dict[str, Any]:
    ways = ways_of(name, len(z1))
    found: dict[str, Any] = {key: measure(way, z1, z2, repeats) for key, way in ways.items()}
    measured = {key: part for key, part in found.items() if "failed" not in part}
    if "blocked" in measured:
        for unit, ratio in (("median_ms", "time"), ("peak_mib", "memory")):
            matrix = [part[unit] for k, part in measured.items() if k != "blocked" and unit in part]
            if matrix:
                least = measured["blocked"][unit] / min(matrix)
                found[f"{ratio}_over_least_matrix"] = round(least, 4)
    parts = (z.detach()[:few].clone().requires_grad_() for z in (z1, z2))
    return found | {"errors": errors(name, *parts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--few", type=int, help="rows at which errors are measured")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--output")
    given = parser.parse_args()
    cuda = torch.cuda.is_available()
    rows, few = given.rows or (32_768 if cuda else 4096), given.few or (8192 if cuda else 1024)
    z1, z2 = rows_of(rows, given.columns, "cuda" if cuda else "cpu")
    result: dict[str, Any] = {"rows": rows, "columns": given.columns, "few": few}
    for setting, precision in (("float32", "highest"), ("tf32", "high"))[: 1 + cuda]:
        torch.set_float32_matmul_precision(precision)
        torch.compiler.reset()  # or steps compiled for both count as compiled too often
        result[setting] = {}
        for name in LOSSES:
            result[setting][name] = compare(name, z1, z2, given.repeats, few)
            print(setting, name, result[setting][name], file=sys.stderr, flush=True)
        result[setting]["pcc_by_block_rows"] = {
            str(size): measure(PCCLoss(block_size=size), z1, z2, given.repeats)
            for size in (rows // 64, rows // 32, rows // 16, rows // 8)
        }
    report("blocked_losses", result, given.output)


if __name__ == "__main__":
    main()
