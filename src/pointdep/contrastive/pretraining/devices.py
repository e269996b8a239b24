"""From what the user says of device and precision to lightning's Fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pointdep.errors import InputError
from pointdep.fitting.rendezvous import pick_device, start_fabric

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_PRECISION: dict[str, Any] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def make_fabric(device: str = "auto", precision: str = "auto") -> Fabric:
    """One process on one device; under torchrun, this process of the many (DDP)."""
    chosen = pick_device(device)
    if precision == "auto":
        precision = "bf16" if _has_bf16(chosen) else "32"
    if precision == "16" and chosen.type == "cpu":
        raise InputError("precision='16' needs a GPU: use bf16 or 32")
    return start_fabric(chosen, _PRECISION[precision], "pre-training", "pretrain")


def share_statistics(module: nn.Module, fabric: Fabric) -> None:
    """Batch norm over the batches of all processes, on GPUs, which alone have it."""
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]


def _has_bf16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
