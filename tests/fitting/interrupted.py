"""Fits that are killed: run as a script with a folder, it starts one process for each kind of fit.

Each process ends itself with SIGKILL, after its third checkpoint or in the middle of writing it.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from pointdep import PointwiseDependency
from pointdep.fitting import engine, state

KINDS = ("pc", "auto", "mine", "dropout", "half written")
SAVES = 3


class DropoutNet(nn.Module):
    """Draws random numbers at every step, and has buffers."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.norm = nn.BatchNorm1d(4)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))
        for parameter in self.net.parameters():
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net(self.norm(torch.cat([x, y], -1)))


def data() -> tuple[np.ndarray, np.ndarray]:
    x, noise = np.random.default_rng(0).standard_normal((2, 180, 2))
    return x, x + noise


def estimator(kind: str, checkpoint: Path | None, **changed: object) -> PointwiseDependency:
    critic = {"dropout": DropoutNet(), "auto": "auto"}.get(kind, "concat")
    settings = {"method": "mine" if kind == "mine" else "pc", "critic": critic, "hidden": (8,)}
    settings |= {"folds": 3, "max_epochs": 8, "learning_rate": 0.02, "random_state": 5}
    settings["patience"] = 8 if kind == "auto" else 2  # its start is hard to better
    settings |= {"progress": False, "checkpoint": checkpoint}
    return PointwiseDependency(**{**settings, **changed})


def fit(kind: str, checkpoint: Path | None, **changed: object) -> PointwiseDependency:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator(kind, checkpoint, **changed).fit(*data())


def die_while_fitting(kind: str, folder: Path) -> None:
    """Does not return."""
    saves, save_state, whole_file = 0, state.save_state, state.whole_file

    def count(*args: object) -> None:
        nonlocal saves
        saves += 1
        save_state(*args)
        if saves == SAVES:
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def half(path: Path) -> Iterator[BinaryIO]:
        with whole_file(path) as file:
            if saves == SAVES:
                file.write(b"half")
                file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            yield file

    engine._CHECKPOINT_EVERY_S = 0.0
    engine.save_state = count
    if kind == "half written":
        state.whole_file = half
    fit(kind, folder / f"{kind}.checkpoint")


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    fit("pc", None, max_epochs=1)  # what torch imports late, once for all children
    children = []
    for kind in KINDS:
        children.append(os.fork())
        if not children[-1]:
            die_while_fitting(kind, folder)
            os._exit(0)  # not reached, unless the fit is shorter than it should be
    for kind, child in zip(KINDS, children, strict=True):
        _, status = os.waitpid(child, 0)
        print(kind, os.WIFSIGNALED(status) and os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
