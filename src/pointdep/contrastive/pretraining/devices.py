"""From what the user says of device and precision to lightning's Fabric."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pointdep.assembly import pick_device
from pointdep.errors import InputError

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def make_fabric(device: str = "auto", precision: str = "auto") -> Fabric:
    """One process on one device; under torchrun, this process of the many (DDP)."""
    try:
        from lightning.fabric import Fabric
    except ImportError:
        raise InputError('pre-training needs lightning: pip install "pointdep[pretrain]"') from None
    chosen = pick_device(device)
    if precision == "auto":
        precision = "bf16" if _has_bf16(chosen) else "32"
    if precision == "16" and chosen.type == "cpu":
        raise InputError("precision='16' needs a GPU: use bf16 or 32")
    options: dict[str, Any] = {"devices": 1 if chosen.index is None else [chosen.index]}
    ranks = processes()
    if ranks > 1:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        options = {"devices": here, "num_nodes": ranks // here, "strategy": "ddp"}
    with _quiet():
        fabric = Fabric(accelerator=chosen.type, precision=_PRECISION[precision], **options)
        fabric.launch()
    return fabric


def processes() -> int:
    """How many train together, as torchrun says it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning tells what it was told; its warnings still come."""
    # Either may be the one that speaks.
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("fabric", "pytorch")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def share_statistics(module: nn.Module, fabric: Fabric) -> None:
    """Batch norm over the batches of all processes, on GPUs, which alone have it."""
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]


def _has_bf16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
