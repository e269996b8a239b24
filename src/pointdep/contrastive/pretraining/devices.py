"""From what the user says of device and precision to lightning's Fabric."""

from __future__ import annotations

import os
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
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        devices: list[int] | int = 1 if chosen.index is None else [chosen.index]
        fabric = Fabric(accelerator=chosen.type, devices=devices, precision=_PRECISION[precision])
    else:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        fabric = Fabric(
            accelerator=chosen.type,
            devices=here,
            num_nodes=ranks // here,
            strategy="ddp",
            precision=_PRECISION[precision],
        )
    fabric.launch()
    return fabric


def share_statistics(module: nn.Module, fabric: Fabric) -> None:
    """Batch norm over the batches of all processes, on GPUs, which alone have it."""
    if fabric.world_size > 1 and fabric.device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]


def _has_bf16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
