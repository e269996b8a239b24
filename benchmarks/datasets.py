"""Real data that benchmarks are given by path, and mismatches planted in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pointdep.data.images.datasets import read_part

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Words:
    """audio, text: (n, d); homophone: (n,), whether another word has exactly the same audio."""

    audio: Array
    text: Array
    homophone: NDArray[np.bool_]


def words(path: Path) -> Words:
    """Word vectors of two kinds from an .npz with the keys audio and text."""
    with np.load(path) as archive:
        audio, text = (archive[key].astype(np.float32) for key in ("audio", "text"))
    _, inverse, counts = np.unique(audio, axis=0, return_inverse=True, return_counts=True)
    return Words(audio, text, counts[inverse.reshape(-1)] > 1)


def mnist(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 28, 28) and labels (n,) of "train" or "t10k", from the idx files."""
    return read_part(folder, part)


def halves(images: NDArray[np.uint8]) -> tuple[Array, Array]:
    """The upper and the lower half of each image, (n, 392) each."""
    flat = images.reshape(len(images), -1).astype(np.float32)
    return flat[:, :392], flat[:, 392:]


def plant(y: Array, share: float, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """y with so many of its rows permuted among themselves, none in its place; and which."""
    rows = np.random.default_rng(seed).permutation(len(y))[: round(share * len(y))]
    planted = np.zeros(len(y), dtype=bool)
    planted[rows] = True
    y = y.copy()
    y[rows] = y[np.roll(rows, 1)]  # one cycle has no fixed point
    return y, planted
