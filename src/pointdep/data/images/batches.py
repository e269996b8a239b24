"""CIFAR-10's own python batches: pickles, read without letting them run anything."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from pointdep.data.images.files import Files, Progress, reading
from pointdep.data.images.image_set import Labels, Parts, Pixels, as_labels, check_labels
from pointdep.errors import InputError

TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"


def read_batches(files: Files, prefix: str, progress: Progress | None) -> Parts:
    """Both parts, from the five batches to train on and the one to test on below prefix."""
    batches = []
    for name in (*TRAIN, TEST):
        content = files.required(prefix + name)
        batches.append(read_batch(files.path(prefix + name), content))
        if progress is not None:
            progress(len(batches), len(TRAIN) + 1)
    pixels, labels = zip(*batches, strict=True)
    return Parts(np.concatenate(pixels[:-1]), np.concatenate(labels[:-1]), pixels[-1], labels[-1])


def read_batch(path: str, content: bytes) -> tuple[Pixels, Labels]:
    """Images (n, 3, 32, 32) and labels (n,) of one pickle; path is what messages call it."""
    with reading(path):
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict):
        raise InputError(f"{path} is no batch of CIFAR-10: it holds no dict")
    # Python 2 wrote the keys as bytes, Python 3 writes them as strings.
    fields = {key.decode() if isinstance(key, bytes) else key: batch[key] for key in batch}
    data = fields.get("data")
    rows = data.values if isinstance(data, _Array) else None
    if rows is None or rows.ndim != 2 or rows.shape[1] != 3072 or len(rows) == 0:
        raise InputError(f"{path}: data must be an array (n, 3072) of bytes")
    labels = check_labels(path, as_labels(path, fields.get("labels")), len(rows), 10)
    return rows.reshape(-1, 3, 32, 32), labels


class _Dtype:
    """Stands in for numpy.dtype in a pickle."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment say nothing about single bytes."""


class _Array:
    """Stands in for numpy.ndarray in a pickle: keeps its bytes, and takes no other kind."""

    def __init__(self, *_: Any) -> None:
        self.values: Pixels | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.values = _bytes_as_array(content, dtype, shape, "F" if fortran else "C")


def _bytes_as_array(content: Any, dtype: Any, shape: Any, order: Any) -> Pixels:
    if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", "|u1"):
        raise pickle.UnpicklingError("it holds an array that is not of bytes (uint8)")
    return np.frombuffer(content, np.uint8).reshape(shape, order=order).copy()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """Stands in for what numpy writes in pickles of protocol 5."""
    array = _Array()
    array.values = _bytes_as_array(content, dtype, shape, order)
    return array


def _latin1(text: str, encoding: str) -> bytes:
    """Stands in for codecs.encode, by which Python 3 writes bytes for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes by {encoding!r}")
    return text.encode("latin1")


class _StandIn:
    """A function that a pickle can call and cannot change: what would set its attributes (BUILD)
    calls __setstate__ instead."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it sets attributes of a function")


# numpy 2 renamed its module core to _core.
_STAND_INS = {
    ("numpy", "ndarray"): _StandIn(_Array),
    ("numpy", "dtype"): _StandIn(_Dtype),
    ("numpy.core.multiarray", "_reconstruct"): _StandIn(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _StandIn(_Array),
    ("numpy.core.numeric", "_frombuffer"): _StandIn(_from_buffer),
    ("numpy._core.numeric", "_frombuffer"): _StandIn(_from_buffer),
    ("_codecs", "encode"): _StandIn(_latin1),
}


class _ArraysOnly(pickle.Unpickler):
    """Reads plain values and arrays of bytes; whatever else a pickle names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which a batch of arrays has no need of, and is not "
                "loaded for safety"
            ) from None
