"""Labelled images as tensors: a part to train on and a part to test on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.errors import InputError, require_whole

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Part = tuple[Pixels, Labels]
"""Pixels (n, channels, height, width) and labels (n,)."""

_TENSORS = ("train", "train_labels", "test", "test_labels")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images to train on and to test on; it checks itself.

    Parameters
    ----------
    name : str
        Of the set, for messages.
    train : Tensor or array of shape (n, channels, height, width)
        uint8 images.
    train_labels : Tensor or array of shape (n,)
        Each a position in `classes`.
    test, test_labels : Tensor or array
        Like `train` and `train_labels`.
    classes : tuple of str
        Names of the classes.
    source : str
        What was read, in a phrase.
    lossy : bool, default=False
        Whether the pixels went through a lossy format (JPEG).

    Examples
    --------
    >>> import numpy as np
    >>> from pointdep.data.images import ImageSet
    >>> pixels, labels = np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 0, 1])
    >>> mine = ImageSet("mine", pixels, labels, pixels, labels, ("a", "b"), "nothing but black")
    >>> mine.shape
    (1, 8, 8)
    """

    name: str
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    source: str
    lossy: bool = False

    def __post_init__(self) -> None:
        for part in _TENSORS:
            object.__setattr__(self, part, _as_tensor(f"{self.name}: {part}", getattr(self, part)))
        for part in ("train", "test"):
            what = f"{self.name} ({self.source}), {part}"
            pixels, labels = getattr(self, part), getattr(self, f"{part}_labels")
            if pixels.dtype != torch.uint8 or pixels.ndim != 4 or min(pixels.shape) == 0:
                kind = f"{tuple(pixels.shape)} {pixels.dtype}"
                raise InputError(f"{what}: images must be (n, channels, h, w) uint8, not {kind}")
            if labels.dtype != torch.int64 or labels.ndim != 1:
                kind = f"{tuple(labels.shape)} {labels.dtype}"
                raise InputError(f"{what}: labels must be (n,) int64, not {kind}")
            check_labels(what, labels.cpu().numpy(), len(pixels), len(self.classes))
        sizes = [tuple(images.shape[1:]) for images in (self.train, self.test)]
        if sizes[0] != sizes[1]:
            raise InputError(f"{self.name}: images of train and test must be of one size: {sizes}")
        if len({getattr(self, part).device for part in _TENSORS}) > 1:
            raise InputError(f"{self.name}: all four tensors must be on one device")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> ImageSet:
        """The same images with all four tensors on a device."""
        return replace(self, **{part: getattr(self, part).to(device) for part in _TENSORS})

    def head(self, n_train: int, n_test: int | None = None) -> ImageSet:
        """The first n_train images to train on and the first n_test (None: all) to test on."""
        parts = {}
        counts = {"train": n_train, "test": len(self.test) if n_test is None else n_test}
        for part, count in counts.items():
            require_whole(f"n_{part}", count)
            there = len(getattr(self, part))
            if count > there:
                raise InputError(f"n_{part}={count} is more than the {there} images of {self.name}")
            for tensor in (part, f"{part}_labels"):
                parts[tensor] = getattr(self, tensor)[:count]
        return replace(self, **parts)


def make_set(
    name: str, train: Part, test: Part, classes: tuple[str, ...], source: str, lossy: bool = False
) -> ImageSet:
    """An ImageSet of what a reader found."""
    a, b, c, d = (torch.from_numpy(array) for array in (*train, *test))
    return ImageSet(name, a, b, c, d, classes=classes, source=source, lossy=lossy)


def as_labels(what: str, values: object, rows: int) -> Labels:
    """A list of whole numbers from 0 to 9 as labels, (rows,); InputError names what was read."""
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise InputError(f"{what}: labels must be a list of whole numbers")
    return check_labels(what, np.array(values, dtype=object), rows, 10).astype(np.int64)


def check_labels(what: str, labels: NDArray[Any], rows: int, classes: int) -> NDArray[Any]:
    """The labels, (rows,) from 0 to classes - 1; InputError that names what was read otherwise."""
    if labels.shape != (rows,):
        raise InputError(f"{what} holds {len(labels)} labels for {rows} images: each needs one")
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
