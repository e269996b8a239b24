"""Labelled images as tensors: a part to train on and a part to test on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.errors import InputError, require_whole

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


class Parts(NamedTuple):
    """What a reader found: pixels (n, channels, height, width) and labels (n,), twice."""

    train: Pixels
    train_labels: Labels
    test: Pixels
    test_labels: Labels

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four as tensors, in the order of ImageSet."""
        train, train_labels, test, test_labels = map(torch.from_numpy, self)
        return train, train_labels, test, test_labels


@dataclass(frozen=True, eq=False)
class ImageSet:
    """train: (n, channels, height, width) uint8 with train_labels (n,) int64; test: (m, channels,
    height, width) with test_labels (m,). A label is a place in classes. source says in a phrase
    what was read; lossy, whether the pixels went through a lossy format (JPEG)."""

    name: str
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    source: str
    lossy: bool = False

    def __post_init__(self) -> None:
        for part in ("train", "train_labels", "test", "test_labels"):
            object.__setattr__(self, part, _as_tensor(f"{self.name}: {part}", getattr(self, part)))
        _check_part(self, "train", self.train, self.train_labels)
        _check_part(self, "test", self.test, self.test_labels)
        if self.train.shape[1:] != self.test.shape[1:]:
            raise InputError(
                f"{self.name} ({self.source}): images of train are {tuple(self.train.shape[1:])} "
                f"and those of test {tuple(self.test.shape[1:])}: they must be of one size"
            )
        tensors = (self.train, self.train_labels, self.test, self.test_labels)
        if len({tensor.device for tensor in tensors}) > 1:
            raise InputError(f"{self.name}: all four tensors must be on one device")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> ImageSet:
        """The same images with all four tensors on a device."""
        return replace(
            self,
            train=self.train.to(device),
            train_labels=self.train_labels.to(device),
            test=self.test.to(device),
            test_labels=self.test_labels.to(device),
        )

    def head(self, n_train: int, n_test: int | None = None) -> ImageSet:
        """The first n_train images to train on and the first n_test (None: all) to test on."""
        n_test = len(self.test) if n_test is None else n_test
        for option, count, there in (
            ("n_train", n_train, len(self.train)),
            ("n_test", n_test, len(self.test)),
        ):
            require_whole(option, count)
            if count > there:
                raise InputError(f"{option}={count} is more than the {there} images of {self.name}")
        return replace(
            self,
            train=self.train[:n_train],
            train_labels=self.train_labels[:n_train],
            test=self.test[:n_test],
            test_labels=self.test_labels[:n_test],
        )


def as_labels(what: str, values: object) -> Labels:
    """A list of whole numbers as labels, (n,); InputError that names what was read otherwise."""
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise InputError(f"{what}: labels must be a list of whole numbers")
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise InputError(f"{what} holds a label that is far too large") from None


def check_labels(what: str, labels: Labels, rows: int, classes: int) -> Labels:
    """The labels, (rows,) from 0 to classes - 1; InputError that names what was read otherwise."""
    if labels.shape != (rows,):
        raise InputError(
            f"{what} holds {len(labels)} labels where there are {rows} images: each image needs one"
        )
    outside = labels[(labels < 0) | (labels >= classes)]
    if len(outside):
        raise InputError(f"{what} holds the label {outside[0]}: labels are 0 to {classes - 1}")
    return labels


def _as_tensor(what: str, values: object) -> Tensor:
    """Arrays are welcome too; whole numbers other than bytes become int64."""
    if not isinstance(values, Tensor | np.ndarray):
        raise InputError(f"{what} must be a tensor or an array, not {type(values).__name__}")
    if isinstance(values, np.ndarray) and values.dtype.kind not in "buif":
        raise InputError(f"{what} must be numbers, not {values.dtype}")
    tensor = torch.as_tensor(values)
    whole = not tensor.is_floating_point() and tensor.dtype not in (torch.uint8, torch.bool)
    return tensor.long() if whole else tensor


def _check_part(images: ImageSet, part: str, pixels: Tensor, labels: Tensor) -> None:
    what = f"{images.name} ({images.source}), {part}"
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or min(pixels.shape) == 0:
        raise InputError(
            f"{what}: images must be (n, channels, height, width) uint8 with none of them 0, not "
            f"{tuple(pixels.shape)} {pixels.dtype}"
        )
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise InputError(
            f"{what}: labels must be (n,) int64, not {tuple(labels.shape)} {labels.dtype}"
        )
    check_labels(what, labels.cpu().numpy(), len(pixels), len(images.classes))
