"""What each of several gloo processes finds: ``python -m fitting.shared.gloo FOLDER``.

Run in a single process with `ALONE`, the same functions give what the several together must.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from pointdep import PointwiseDependency
from pointdep.core.critics import build_critic
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.errors import InputError
from pointdep.estimators.fit_rows import stream_rows
from pointdep.fitting import engine as engine_module
from pointdep.fitting.batches import SplitRows, TrainingOptions
from pointdep.fitting.engine import Engine
from pointdep.fitting.processes import ALONE, Processes
from pointdep.fitting.progress import Silent
from pointdep.fitting.sharing import Sharing
from pointdep.fitting.splits import make_splits
from pointdep.fitting.streamed_batches import StreamedBatches

from ..helpers import X_DIM, Y_DIM, model_of

WORLDS = (2, 3)
STEPS = 20
KEYS = ("pc", "mine", "drf", "cpc", "dv")


def draw_weights(*modules: nn.Module) -> None:
    for number, parameter in enumerate(p for module in modules for p in module.parameters()):
        generator = torch.Generator().manual_seed(number)
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)


class PairNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(X_DIM + Y_DIM, 6), nn.Tanh(), nn.Linear(6, 1))
        draw_weights(self)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([x, y], -1))


def encoders() -> tuple[nn.Module, nn.Module]:
    made = nn.Linear(X_DIM, 4), nn.Linear(Y_DIM, 4)
    draw_weights(*made)
    return made


# Critic, rows in a block, whether rows are in groups, whether it is the critic of wide data.
TRAINED = {
    "whole blocks": ("concat", 4, False, False),
    "rows of one block": ("concat", 20, False, False),
    "groups": ("concat", 4, True, False),
    "separable": ("separable", 20, False, False),
    "separable, small blocks": ("separable", 4, False, False),
    "separable, groups": ("separable", 20, True, False),
    "bilinear": ("bilinear", 20, False, False),
    "wide": ("auto", 20, False, True),
    "module": (PairNet, 4, False, False),
    "encoders": (encoders, 20, False, False),
    "lean": ("separable", 20, False, False),
    "lean, small blocks": ("bilinear", 4, False, False),
    "lean, groups": ("separable", 20, True, False),
    "lean, wide": ("auto", 20, False, True),
    "lean, encoders": (encoders, 20, False, False),
}


def kinds(size: int) -> list[str]:
    """What so many processes train; 3 of them have unequal shares."""
    some = "whole blocks", "rows of one block", "separable", "wide", "lean", "lean, wide"
    return list(TRAINED) if size == 2 else list(some)


def laid_out(kind: str) -> Any:
    """Within, the cells of no batch of a "lean" kind are laid out."""
    most = 0 if "lean" in kind else engine_module.MOST_CELLS
    return patch.object(engine_module, "MOST_CELLS", most)


def pairs(n: int, dims: tuple[int, int] = (X_DIM, Y_DIM), seed: int = 0) -> tuple[np.ndarray, ...]:
    random, shared = np.random.default_rng(seed), min(dims)
    x, y = (random.standard_normal((n, dim)) for dim in dims)
    y[:, :shared] += x[:, :shared]
    return x, y


def trained(kind: str, processes: Processes) -> dict[str, torch.Tensor]:
    """The parameters of replicas with different objectives after 20 steps, in float64."""
    critic, block, grouped, wide = TRAINED[kind]
    model = model_of(KEYS, critic=critic if isinstance(critic, str) else critic(), wide=wide)
    x, y = (torch.from_numpy(side) for side in pairs(200))
    options = TrainingOptions(
        batch_size=20, block=block, learning_rate=1e-2, max_epochs=1, min_steps=STEPS, average=0.0
    )
    torch.manual_seed(3)  # for what the critic of wide data drops
    codes = np.arange(200) // 2 if grouped else None
    splits = make_splits(200, folds=len(KEYS), groups=codes, seed=1)
    with laid_out(kind):
        rows = SplitRows(x, y, splits, codes)
        engine = Engine(model, rows, options, progress=Silent(), processes=processes)
    assert engine.held_out.lean == ("lean" in kind)
    found = engine.run()
    history = torch.tensor([[entry[k] for k in ("train", "stop")] for entry in found.history])
    return {**model.critic.state_dict(), "history": history}


FITS = {
    "default": {"folds": 3, "max_epochs": 6},
    "cpc": {"method": "cpc", "folds": 2, "max_epochs": 2, "hidden": (16,)},
    "wide": {"folds": 2, "max_epochs": 3, "hidden": (32,)},
    "no seed": {"random_state": None, "max_epochs": 1, "folds": 2},
    "streamed": {"stream": True, "folds": 2, "max_epochs": 3},
    "streamed separable": {"stream": True, "folds": 2, "max_epochs": 3, "critic": "separable"},
    "streamed lean": {"stream": True, "folds": 2, "max_epochs": 3, "critic": "separable"},
    "streamed dv": {"stream": True, "folds": 2, "max_epochs": 3, "method": "dv"},
    "streamed wide": {"stream": True, "folds": 2, "max_epochs": 3, "hidden": (32,)},
}


def fitted(kind: str, distributed: bool) -> dict[str, object]:
    """A whole fit: what it answers, and its weights."""
    x, y = pairs(1200, (30, 28)) if "wide" in kind else pairs(600, (2, 2))
    given = {"random_state": 0, "progress": False, "distributed": distributed, **FITS[kind]}
    model = PointwiseDependency(**given)
    with warnings.catch_warnings(record=True) as told, laid_out(kind):
        warnings.simplefilter("always")
        model.fit(x, y)
    stored = model.training_rows_.mapped.ordered() if hasattr(model.training_rows_, "plan") else []
    return {
        "mi": model.mutual_information().nats,
        "lower": model.mutual_information().lower,
        "curve": model.curve_,
        "pmi": model.oof_pmi_,
        "flags": [str(flag) for flag in model.flags_],
        "history": model.history_,
        "weights": dict(model.model_.state_dict()),
        "warned": len(told),
        "stored": sum(len(chunk.numbers) for chunk in stored),
    }


def drawn(processes: Processes, grouped: bool) -> list[dict[str, Any]]:
    """Shares of streamed batches whose rows carry their numbers."""
    x = np.arange(700.0)[:, None]
    found = stream_rows(
        x, x, np.arange(700) // 2 if grouped else None, discrete=(None, None), folds=2,
        missing="error", stop_fraction=0.1, seed=0, device=torch.device("cpu"), progress=Silent(),
        processes=processes,
    )  # fmt: skip
    critic = build_critic("concat", 2, 1, 1, hidden=(4,))
    maps = Standardizer(2, 1), Standardizer(2, 1)
    mapped = found.prepare(RatioModel(critic, *maps, [METHODS["pc"]] * 2))
    batches = StreamedBatches(
        mapped.mapped, mapped.plan, TrainingOptions(32, 8, max_epochs=2),
        progress=Silent(), sharing=Sharing(processes, critic) if processes.several else None,
    )  # fmt: skip
    middle, scale = found.paired.encoder_x.center, found.paired.encoder_x.scale
    return [
        {
            "epoch": epoch,
            "rows": (cells.x[..., 0].double() * float(scale[0]) + float(middle[0])).round().long(),
            "product": cells.product,
        }
        for epoch in (0, 1)
        for cells in batches.draw(epoch, 0, 0, [0, 1])
    ]


def with_nan() -> tuple[np.ndarray, ...]:
    x, y = pairs(300)
    x[290, 1] = np.nan  # read by the last process alone
    return x, y


def with_batch_norm() -> PairNet:
    critic = PairNet()
    critic.net.insert(1, nn.BatchNorm1d(6))
    return critic


SMALL_BATCH = {"batch_size": 2, "negatives": 1, "critic": "concat", "max_epochs": 1}
# Settings and rows, of a process, of fits that must be refused in all processes alike.
WRONG = {
    "rows": lambda rank: ({}, pairs(60, seed=rank)),
    "length": lambda rank: ({}, (pairs(60)[0], pairs(60)[1][: 60 - (rank == 1)])),
    "streamed": lambda rank: ({"stream": True}, pairs(60 + 10 * rank)),
    "nan": lambda _: ({"stream": True}, with_nan()),
    "batch": lambda _: (SMALL_BATCH, pairs(60)),
    "norm": lambda _: ({"critic": with_batch_norm()}, pairs(60)),
}


def refused(name: str, rank: int) -> str:
    given, rows = WRONG[name](rank)
    try:
        PointwiseDependency(distributed=True, random_state=0, progress=False, **given).fit(*rows)
    except InputError as error:
        return str(error)
    return "not refused"


def one_of(size: int, rank: int, folder: Path) -> None:
    meeting = f"file://{folder}/meeting{size}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    processes = Processes(rank, size)
    found = {
        "trained": {kind: trained(kind, processes) for kind in kinds(size)},
        "drawn": {grouped: drawn(processes, grouped) for grouped in (False, True)},
        "refused": {name: refused(name, rank) for name in WRONG},
    }
    if size == 2:
        found["fitted"] = {kind: fitted(kind, distributed=True) for kind in FITS}
        found["apart"] = fitted("cpc", distributed=False)
    torch.save(found, folder / f"{size}.{rank}.pt")
    dist.destroy_process_group()


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    trained("whole blocks", ALONE)  # what torch imports late, once for all children
    for size in WORLDS:
        children = []
        for rank in range(size):
            children.append(os.fork())
            if not children[-1]:
                one_of(size, rank, folder)
                os._exit(0)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
