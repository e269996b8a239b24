"""How often the check passes the exact PMI, and how often it finds a fault put in on purpose.

    python benchmarks/checks.py --output benchmarks/results/checks.json

20 + 20 dimensional Gaussians of known PMI, rows set against each other in blocks of 128. Each fault
is read on rows that no fit has seen. Then the share of false alarms on the exact PMI of other
tasks, and of the nearest-neighbour alarm next to their true MI.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from report import report
from torch import Tensor, nn

from pointdep.data.tasks import Task, correlated_gaussians, make_task
from pointdep.estimators.classical.ksg import ksg_alarm
from pointdep.fitting.batches import held_out_cells
from pointdep.inference.checks import RatioCheck, check_log_ratio
from pointdep.inference.mutual_information import MIEstimate

DIM, BLOCK = 20, 128
LEVEL_TASKS = "gaussian-5,student-3,uniform-0.75,mixture-cross,label,table,sparse-2"


@dataclass(frozen=True)
class Draw:
    """x, y: (G, b, 20), exact log r of the cells (G, b, b), and what made them."""

    x: Tensor
    y: Tensor
    exact: Tensor
    mi: float
    seed: int


def exact(x: Tensor, y: Tensor, mi: float) -> Tensor:
    """The closed form for every x with every y of a block."""
    rho = torch.full((DIM,), math.sqrt(-math.expm1(-2 * mi / DIM)), dtype=torch.float64)
    return closed_form(x, y, rho)


def closed_form(u: Tensor, v: Tensor, rho: Tensor) -> Tensor:
    """log r of canonical coordinates u, v: (G, b, 20) by matrix products -> (G, b, b)."""
    square = rho.square()
    own, cross = square / (1 - square), rho / (1 - square)
    alone = (u.square() @ own).unsqueeze(2) + (v.square() @ own).unsqueeze(1)
    log_ratio: Tensor = (u * cross) @ v.transpose(1, 2) - 0.5 * alone
    return log_ratio - 0.5 * torch.log1p(-square).sum()


def missing_read_out(draw: Draw) -> Tensor:
    """log r + c(x) with E[e^c(x)] = 1: what a CPC score is before its read-out."""
    generator = torch.Generator().manual_seed(draw.seed)
    direction = torch.randn(DIM, generator=generator, dtype=torch.float64)
    function: Tensor = draw.x @ (direction / direction.norm())
    return draw.exact + function.unsqueeze(2) - 0.5


def pair_noise(draw: Draw, sd: float, waves: int = 64) -> Tensor:
    """A fixed random function of the pair: waves of random direction and phase."""
    generator = torch.Generator().manual_seed(draw.seed)
    u, v = torch.randn(2, DIM, waves, generator=generator, dtype=torch.float64) * 2 / math.sqrt(DIM)
    phase = 2 * math.pi * torch.rand(waves, generator=generator, dtype=torch.float64)
    of_x, of_y = draw.x @ u + phase, (draw.y @ v).transpose(1, 2)
    noise: Tensor = of_x.cos() @ of_y.cos() - of_x.sin() @ of_y.sin()
    return sd * math.sqrt(2 / waves) * noise


def fitted_gaussian(draw: Draw, rows: int) -> Tensor:
    """The closed form with correlations and directions fitted on few rows."""
    task = correlated_gaussians(rows, DIM, draw.mi, seed=draw.seed + 5_000)
    means = [torch.from_numpy(side.mean(0)) for side in (task.x, task.y)]
    centred = [
        torch.from_numpy(side) - mean for side, mean in zip((task.x, task.y), means, strict=True)
    ]
    white = [torch.linalg.cholesky(torch.linalg.inv(side.T @ side / rows)) for side in centred]
    cross = white[0].T @ (centred[0].T @ centred[1] / rows) @ white[1]
    left, rho, right = torch.linalg.svd(cross)
    u, v = (draw.x - means[0]) @ white[0] @ left, (draw.y - means[1]) @ white[1] @ right.T
    return closed_form(u, v, rho)


def over_trained(draw: Draw, rows: int = 500, epochs: int = 400, width: int = 64) -> Tensor:
    """A classifier of pairs trained on few rows for many epochs."""
    torch.manual_seed(draw.seed)
    task = correlated_gaussians(rows, DIM, draw.mi, seed=draw.seed + 7_000)
    x, y = (torch.from_numpy(side).float() for side in (task.x, task.y))
    of_x, of_y = nn.Linear(DIM, width), nn.Linear(DIM, width)
    rest = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
    weights = [*of_x.parameters(), *of_y.parameters(), *rest.parameters()]
    optimiser = torch.optim.Adam(weights, lr=3e-3)
    for _ in range(epochs):
        other = y[torch.randperm(rows)]
        same, shuffled = (rest(of_x(x) + of_y(part)) for part in (y, other))
        loss = nn.functional.softplus(-same).mean() + nn.functional.softplus(shuffled).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        sides = zip(of_x(draw.x.float()), of_y(draw.y.float()), strict=True)
        return torch.stack([rest(a[:, None] + b[None]).squeeze(2) for a, b in sides]).double()


def half_of_the_columns(draw: Draw) -> Tensor:
    """The exact log r of ten of the columns: right as far as it goes, and no test can tell."""
    rho = torch.full((DIM // 2,), math.sqrt(-math.expm1(-2 * draw.mi / DIM)), dtype=torch.float64)
    return closed_form(draw.x[..., : DIM // 2], draw.y[..., : DIM // 2], rho)


def halved_in_part(draw: Draw) -> Tensor:
    """log r is halved where the first column of x is negative."""
    return torch.where(draw.x[..., :1] > 0, draw.exact, 0.5 * draw.exact)


KINDS: dict[str, Callable[[Draw], Tensor]] = {
    "exact": lambda draw: draw.exact,
    "log r times 1.3": lambda draw: 1.3 * draw.exact,
    "log r + 0.3": lambda draw: draw.exact + 0.3,
    "log r + 2": lambda draw: draw.exact + 2.0,
    "log r + 0.4 sin(2 log r)": lambda draw: draw.exact + 0.4 * torch.sin(2 * draw.exact),
    "log r halved in part": halved_in_part,
    "log r of half the columns": half_of_the_columns,
    "log r + c(x), sd 1": missing_read_out,
    "log r + noise of the pair, sd 1": lambda draw: draw.exact + pair_noise(draw, 1.0) - 0.5,
    "log r + noise of the pair, sd 1.5": lambda draw: draw.exact + pair_noise(draw, 1.5),
    "closed form fitted on 80 rows": lambda draw: fitted_gaussian(draw, 80),
    "classifier over-trained on 500 rows": over_trained,
}


def check_draw(setting: tuple[int, float, int]) -> dict[str, RatioCheck]:
    """Every kind of log-ratio on one draw of rows."""
    rows, mi, seed = setting
    torch.set_num_threads(1)
    task = correlated_gaussians(rows, DIM, mi, seed=seed)
    cells, _ = held_out_cells(
        torch.from_numpy(task.x),
        torch.from_numpy(task.y),
        [np.arange(rows)],
        block=BLOCK,
        seed=seed,
    )
    x, y = cells.x[0], cells.y[0]
    shape = (*x.shape[:2], x.shape[1])
    draw = Draw(x, y, exact(x, y, mi), mi, seed)
    weights = cells.joint[0].view(shape), cells.product[0].view(shape)
    return {name: check_log_ratio(kind(draw), *weights) for name, kind in KINDS.items()}


def summary(rows: int, mi: float, checks: list[dict[str, RatioCheck]]) -> list[dict[str, Any]]:
    results = []
    for name in KINDS:
        found = [each[name] for each in checks]
        fits = [check.recalibration for check in found if check.recalibration is not None]
        results.append(
            {
                "rows": rows,
                "mi": mi,
                "log_ratio": name,
                "passed": round(float(np.mean([check.passed for check in found])), 3),
                "conclusive": round(float(np.mean([check.conclusive for check in found])), 3),
                "median_p_value": float(f"{np.median([check.p_value for check in found]):.2g}"),
                "shift": round(float(np.median([fit.shift for fit in fits])), 3) if fits else None,
                "slope": round(float(np.median([fit.slope for fit in fits])), 3) if fits else None,
                "faults": dict(Counter(check.fault for check in found).most_common()),
            }
        )
        print(results[-1], flush=True)
    return results


def exact_blocks(task: Task) -> Tensor:
    """Exact log r of every x with every y of a block, (G, b, b); the last rows are left out."""
    count = len(task.x) // BLOCK
    one, other = np.divmod(np.arange(BLOCK * BLOCK), BLOCK)
    blocks = [
        task.log_ratio(task.x[BLOCK * g + one], task.y[BLOCK * g + other]) for g in range(count)
    ]
    return torch.from_numpy(np.stack(blocks).reshape(count, BLOCK, BLOCK))


def false_alarms(name: str, rows: int, draws: int) -> dict[str, Any]:
    """Shares of draws in which the check rejects the exact log r, and KSG the true MI."""
    failed, inconclusive, alarms = 0, 0, 0
    eye = torch.eye(BLOCK, dtype=torch.float64)
    for seed in range(draws):
        task = make_task(name, rows, seed=seed)
        log_ratio = exact_blocks(task)
        joint = eye.expand(log_ratio.shape)
        check = check_log_ratio(log_ratio, joint, 1 - joint)
        failed += check.conclusive and not check.passed
        inconclusive += not check.conclusive
        mi = task.mutual_information
        alarm = ksg_alarm(task.x, task.y, task.pmi, MIEstimate(mi, 0.0, (mi, mi)), seed)
        alarms += alarm is not None
    shares = {"failed": failed, "inconclusive": inconclusive, "ksg_alarms": alarms}
    found = {"task": name, "rows": rows, **{k: round(v / draws, 4) for k, v in shares.items()}}
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="2000,5000,10000")
    parser.add_argument("--mi", default="2,6,10")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--level-tasks", default=LEVEL_TASKS)
    parser.add_argument("--level-rows", default="500,2000")
    parser.add_argument("--level-draws", type=int, default=50)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    results = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for rows in map(int, arguments.rows.split(",")):
            for mi in map(float, arguments.mi.split(",")):
                settings = [(rows, mi, seed) for seed in range(arguments.draws)]
                results += summary(rows, mi, list(pool.map(check_draw, settings)))
    level = [
        false_alarms(name, int(rows), arguments.level_draws)
        for name in arguments.level_tasks.split(",")
        for rows in arguments.level_rows.split(",")
    ]
    found = {"draws": arguments.draws, "results": results}
    found |= {"level_draws": arguments.level_draws, "level": level}
    report("checks", found, arguments.output)


if __name__ == "__main__":
    main()
