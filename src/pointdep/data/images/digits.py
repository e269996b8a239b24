"""scikit-learn's 8 x 8 digits, which come with the package: 1,437 to train on, 360 to test on."""

from __future__ import annotations

import numpy as np

from pointdep.data.images.image_set import ImageSet, Parts

_TRAIN = 1437


def read_digits() -> ImageSet:
    """The images, (n, 1, 8, 8), with their values of 0 to 16 spread over 0 to 255."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    # RandomState, since its streams never change from one version of numpy to the next.
    order = np.random.RandomState(0).permutation(len(digits.target))
    pixels = np.round(digits.images[order, None] * (255 / 16)).astype(np.uint8)
    labels = digits.target[order].astype(np.int64)
    parts = Parts(pixels[:_TRAIN], labels[:_TRAIN], pixels[_TRAIN:], labels[_TRAIN:])
    classes = tuple(str(digit) for digit in range(10))
    return ImageSet(
        "digits", *parts.tensors(), classes=classes, source="8 x 8 digits of scikit-learn"
    )
