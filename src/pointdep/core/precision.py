"""Products of matrices at the full precision of float32, whatever the user allows elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def gram(rows: Tensor) -> Tensor:
    """rows' rows, (..., n, d) -> (..., d, d), without TF32 in value and gradient.

    A sum over all cells stands on these few numbers: TF32's three digits would be all it has.
    """
    if not rows.is_cuda:
        return rows.mT @ rows
    product: Tensor = Gram.apply(rows)  # type: ignore[no-untyped-call]
    return product


class Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        with full_float32():
            return rows.mT @ rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        rows: Tensor = ctx.saved_tensors[0]
        with full_float32():
            return rows @ (gradient + gradient.mT)


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
    """TF32 off in CUDA's matrix products, however it was turned on; as it was afterwards."""
    matmul = torch.backends.cuda.matmul
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by `fp32_precision`, beside which the older setting is unreadable
        legacy = "highest"
    if legacy != "highest":
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(legacy)
        return
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before
