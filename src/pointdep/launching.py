"""Processes that torchrun has started, joined by lightning's Fabric."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pointdep.errors import InputError
from pointdep.fitting.processes import ALONE, Processes
from pointdep.meeting import meet

if TYPE_CHECKING:
    import torch
    from lightning.fabric import Fabric


def process_count() -> int:
    """How many processes work together, as torchrun says it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def start_fabric(chosen: torch.device, precision: Any, purpose: str, extra: str) -> Fabric:
    """One process on one device; under torchrun, this process of the many (DDP).

    purpose, extra: what needs lightning, and the extra of ours that brings it.
    """
    try:
        from lightning.fabric import Fabric
    except ImportError:
        raise InputError(f'{purpose} needs lightning: pip install "pointdep[{extra}]"') from None
    options: dict[str, Any] = {"devices": 1 if chosen.index is None else [chosen.index]}
    ranks = process_count()
    if ranks > 1:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
        options = {"devices": here, "num_nodes": ranks // here, "strategy": "ddp"}
        meet(chosen)
    with _quiet():
        fabric = Fabric(accelerator=chosen.type, precision=precision, **options)
        fabric.launch()
    return fabric


def join_processes(device: str) -> tuple[Processes, str]:
    """The processes that fit together, and the device of this one; one alone without torchrun."""
    if process_count() == 1:
        return ALONE, device
    from pointdep.assembly import pick_device

    chosen = pick_device(device)
    if chosen.type not in ("cpu", "cuda"):
        raise InputError(f"device={device!r}: several processes share a fit on cpu or cuda")
    fabric = start_fabric(chosen, "32-true", "a fit by several processes", "distributed")
    return Processes(fabric.global_rank, fabric.world_size), str(fabric.device)


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
