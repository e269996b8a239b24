"""MIST, a pretrained set transformer that reads a sample and answers its mutual information.

The package on the index has no weights, and without them `MISTQuickEstimator` answers with a
network that was never trained. The weights are in the library's repository,
`checkpoints/mist/weights.ckpt`; MIST_WEIGHTS names a local copy. Without it every run fails and
says so.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from mist_statinf import MISTQuickEstimator  # type: ignore[import-not-found]

from peers.worker import Array, serve

MOST_ROWS = 500  # the largest sample it was trained on
MOST_COLUMNS = 64  # of x and y together; it drops the rest without a word


@cache
def pretrained(path: str) -> Any:
    """The network of the paper with a point estimate."""
    return MISTQuickEstimator(loss="mse", checkpoint=path, device="cpu")


def point(x: Array, y: Array, seed: int) -> float:  # noqa: ARG001
    """The estimate from the first rows, as many as the network was trained for."""
    path = os.environ.get("MIST_WEIGHTS", "")
    if not Path(path).is_file():
        raise FileNotFoundError("mist-statinf comes without weights: set MIST_WEIGHTS to a copy")
    if x.shape[1] + y.shape[1] > MOST_COLUMNS:
        raise ValueError(f"MIST takes {MOST_COLUMNS} columns of x and y together")
    return float(pretrained(path).estimate_point(x[:MOST_ROWS], y[:MOST_ROWS]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"mist-statinf": point}, ["mist-statinf", "torch", "numpy"])
