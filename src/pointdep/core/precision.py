"""The type and precision of numbers: half precision, autocast, TF32, and torch's transforms."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def no_autocast(tensor: Tensor) -> torch.autocast:
    """Autocast off on the tensor's device: scores in bfloat16 have two or three digits."""
    return torch.autocast(tensor.device.type, enabled=False)


def raised(*tensors: Tensor) -> list[Tensor]:
    """The tensors in one type: float32 where they are in half precision or whole numbers."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.dtype not in HALF and tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def transformed() -> bool:
    """Whether a transform of `torch.func` is under way."""
    return torch._C._are_functorch_transforms_active()


def own_functions_apply() -> bool:
    """Whether our autograd functions may stand for plain operations.

    torch.compile fuses plain ones by itself, and the transforms of `torch.func` need them.
    """
    return not (torch.compiler.is_compiling() or transformed())


@contextmanager
def matmul_precision(setting: str) -> Iterator[None]:
    """Set torch's precision of float32 products ("highest", "high"), and put it back afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def full_float32() -> Iterator[None]:
    """TF32 off in CUDA's matrix products, however it was turned on; restored afterwards."""
    matmul = torch.backends.cuda.matmul
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by `fp32_precision`, which makes the older setting unreadable
        legacy = "highest"
    if legacy != "highest":
        with matmul_precision("highest"):
            yield
        return
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before
