"""PMI by two-tower models that plain PyTorch trained, against our own `pc` fit of the same towers.

    python benchmarks/adapters.py --output benchmarks/results/adapters.json

Correlated Gaussians, 20 + 20 dimensions, whose PMI is known in closed form. Towers, their initial
weights, rows, batch size, learning rate, running average of the weights and early stopping are
those of our fit with one fold; of its three parts of the rows the first trains, the second stops,
and the third, which our fit keeps for its report, calibrates. RMSE is over fresh pairs. Beside it:
that of the raw logit moved by the best constant, which only the truth tells; of our fit calibrated
on the same pairs; and of `pc` with five folds, whose PMI is a mean of five models.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from report import report
from torch import Tensor, nn

from pointdep import PointwiseDependency, from_logits
from pointdep.data.tasks import correlated_gaussians
from pointdep.data.tasks.continuous import Task
from pointdep.fitting.splits import Split

DIM, HIDDEN, EMBEDDING = 20, 128, 32
BATCH, RATE, AVERAGE, PATIENCE, EPOCHS = 256, 1e-3, 0.99, 8, 200
FRESH = 4_000
MOST = {"sigmoid": 1.10, "softmax": 1.15, "softmax_one_sided": 1.25}


def sigmoid_loss(logits: Tensor) -> Tensor:
    """SigLIP: every cell is a pair or is not."""
    sign = 2 * torch.eye(len(logits)) - 1
    return F.softplus(-sign * logits).sum() / len(logits)


def softmax_loss(logits: Tensor) -> Tensor:
    """CLIP: the right y among the columns, the right x among the rows."""
    right = torch.arange(len(logits))
    return (F.cross_entropy(logits, right) + F.cross_entropy(logits.T, right)) / 2


def one_sided_loss(logits: Tensor) -> Tensor:
    """The right y among the columns alone."""
    return F.cross_entropy(logits, torch.arange(len(logits)))


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": sigmoid_loss,
    "softmax": softmax_loss,
    "softmax_one_sided": one_sided_loss,
}


def tower() -> nn.Module:
    return nn.Sequential(
        nn.Linear(DIM, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, EMBEDDING),
    )


class TwoTowers(nn.Module):
    """scale * g(x) . h(y) + bias, as SigLIP and CLIP have it."""

    def __init__(self, g: nn.Module, h: nn.Module) -> None:
        super().__init__()
        self.g, self.h = g, h
        self.log_scale = nn.Parameter(torch.tensor(0.0))
        self.bias = nn.Parameter(torch.tensor(-math.log(BATCH - 1.0)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        product: Tensor = self.g(x) @ self.h(y).T
        return self.log_scale.exp() * product + self.bias


def train(
    loss: Callable[[Tensor], Tensor],
    towers: tuple[nn.Module, nn.Module],
    x: Tensor,
    y: Tensor,
    split: Split,
    seed: int,
) -> TwoTowers:
    """By Adam with a running average of the weights, stopped early: no pointdep in it."""
    torch.manual_seed(seed)
    model = TwoTowers(*copy.deepcopy(towers))
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    averaging = torch.optim.swa_utils.get_ema_multi_avg_fn(AVERAGE)  # type: ignore[no-untyped-call]
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=averaging)
    rows, stop = torch.from_numpy(split.train), torch.from_numpy(split.stop)
    best, waited, kept = math.inf, 0, model.state_dict()
    for _ in range(EPOCHS):
        order = rows[torch.randperm(len(rows))]
        for part in torch.split(order[: len(order) // BATCH * BATCH], BATCH):
            optimiser.zero_grad()
            loss(model(x[part], y[part])).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            average.update_parameters(model)
        with torch.no_grad():
            parts = [p for p in torch.split(stop, BATCH) if len(p) == BATCH]
            value = sum(float(loss(average.module(x[p], y[p]))) for p in parts) / len(parts)
        waited += 1
        if value < best:
            best, waited, kept = value, 0, copy.deepcopy(average.module.state_dict())
        if waited == PATIENCE:
            break
    model.load_state_dict(kept)
    return model.eval()


def own_fit(task: Task, towers: tuple[nn.Module, nn.Module], folds: int, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PointwiseDependency(
            method="pc",
            critic=towers,
            folds=folds,
            batch_size=BATCH,
            negatives=BATCH - 1,
            learning_rate=RATE,
            average=AVERAGE,
            patience=PATIENCE,
            max_epochs=EPOCHS,
            device="cpu",
            random_state=seed,
            progress=False,
        ).fit(task.x, task.y)


def rmse(found: NDArray[Any], truth: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(found - truth))))


def measure(mi: float, seed: int, rows: int) -> dict[str, Any]:
    task = correlated_gaussians(rows, DIM, mi, seed=seed)
    fresh = correlated_gaussians(FRESH, DIM, mi, seed=seed + 1_000)
    torch.manual_seed(seed)
    towers = tower(), tower()
    start = time.perf_counter()
    own = own_fit(task, towers, 1, seed)
    seconds = {"pc": time.perf_counter() - start}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, Any] = {"pc": {"pmi_rmse": rmse(own.pmi(fresh.x, fresh.y), fresh.pmi)}}
        five = own_fit(task, towers, 5, seed)
        found["pc_five_folds"] = {"pmi_rmse": rmse(five.pmi(fresh.x, fresh.y), fresh.pmi)}
    split = own.training_rows_.paired.splits[0]
    x, y = (torch.tensor(side, dtype=torch.float32) for side in (task.x, task.y))
    held = split.report
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mended = from_logits(own.pmi_matrix(task.x[held], task.y[held]), progress=False)
        pmi = mended.read_out(own.pmi(fresh.x, fresh.y))
    found["pc_calibrated"] = {"pmi_rmse": rmse(pmi, fresh.pmi)}
    for name, loss in LOSSES.items():
        start = time.perf_counter()
        trained = train(loss, towers, x, y, split, seed)
        seconds[f"train {name}"] = time.perf_counter() - start
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = from_logits(trained, task.x[held], task.y[held], loss=name, progress=False)
        seconds[f"calibrate {name}"] = time.perf_counter() - start
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = rmse(model.pmi(fresh.x, fresh.y), fresh.pmi)
        raw = raw_logits(trained, fresh)
        estimate = model.mutual_information()
        found[name] = {
            "pmi_rmse": error,
            "ratio": error / found["pc"]["pmi_rmse"],
            "raw_logit_rmse": rmse(raw - raw.mean() + fresh.pmi.mean(), fresh.pmi),
            "slope": model.slope_,
            "mi": estimate.nats,
            "check": model.check().fault,
            "flags": [flag.name for flag in model.flags_],
            "warnings": len(caught),
        }
    return {"true_mi": mi, "seed": seed, "found": found, "seconds": seconds}


@torch.no_grad()
def raw_logits(model: TwoTowers, fresh: Task) -> NDArray[Any]:
    """Of the fresh pairs, (n,)."""
    x, y = (torch.tensor(side, dtype=torch.float32) for side in (fresh.x, fresh.y))
    found: NDArray[Any] = (model.log_scale.exp() * (model.g(x) * model.h(y)).sum(1)).numpy()
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and whether each bar is met."""
    answer: dict[str, Any] = {}
    for mi in sorted({run["true_mi"] for run in runs}):
        of = [run["found"] for run in runs if run["true_mi"] == mi]
        pc = float(np.mean([found["pc"]["pmi_rmse"] for found in of]))
        part: dict[str, Any] = {"pc": round(pc, 3)}
        for name in ("pc_calibrated", "pc_five_folds"):
            own = [found[name]["pmi_rmse"] for found in of]
            part[name] = round(float(np.mean(own)), 3)
        for name, most in MOST.items():
            error = float(np.mean([found[name]["pmi_rmse"] for found in of]))
            worst = max(found[name]["ratio"] for found in of)
            part[name] = {
                "pmi_rmse": round(error, 3),
                "ratio": round(error / pc, 3),
                "worst_ratio": round(worst, 3),
                "at_most": most,
                "met": bool(worst <= most),
                "raw_logit_rmse": round(
                    float(np.mean([found[name]["raw_logit_rmse"] for found in of])), 3
                ),
                "slope": round(float(np.mean([found[name]["slope"] for found in of])), 3),
                "mi": round(float(np.mean([found[name]["mi"] for found in of])), 3),
                "checks_passed": sum(found[name]["check"] == "none" for found in of),
            }
        answer[f"{mi:g} nats"] = part
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--mi", type=float, nargs="+", default=[2.0, 6.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for mi in arguments.mi:
        for seed in range(arguments.seeds):
            runs.append(measure(mi, seed, arguments.rows))
            print(runs[-1], flush=True)
    settings = {"rows": arguments.rows, "fresh_pairs": FRESH, "seeds": arguments.seeds}
    report("adapters", {**settings, "summary": summary(runs), "runs": runs}, arguments.output)


if __name__ == "__main__":
    main()
