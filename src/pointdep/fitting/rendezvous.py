"""Processes that torchrun has started, joined by lightning's Fabric."""

from __future__ import annotations

import atexit
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pointdep.errors import InputError, unknown_name
from pointdep.fitting.processes import ALONE, Processes

if TYPE_CHECKING:
    import torch
    from lightning.fabric import Fabric
    from torch.distributed import Store  # type: ignore[attr-defined]


# How processes that torchrun started find each other, again after a restart.
#
# After a restart torchrun hands its workers the store that the attempt before has used (torch 2.13,
# although it means to make a new one), and they would read the addresses of dead processes in it.
# So those of one attempt first agree on a name that no other attempt has, and meet under that.

_DEVICES = ("auto", "cpu", "cuda", "mps")
_PAUSE_S = 0.05
_TIMEOUT_S = 1800.0  # as torch's own


def meet(device: torch.device) -> None:
    """Join the group of torch.distributed, where torchrun keeps one store for all attempts."""
    import torch.distributed as dist

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or dist.is_initialized():
        return  # Fabric does it
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place, limit = os.environ["MASTER_ADDR"], timedelta(seconds=_TIMEOUT_S)
    port = int(os.environ["MASTER_PORT"])
    store: Store = dist.TCPStore(place, port, is_master=False, timeout=limit)  # type: ignore[attr-defined]
    backend = "gloo"
    if device.type == "cuda":
        import torch

        backend = "nccl"
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    own = dist.PrefixStore(agree(store, rank, size), store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=own, rank=rank, world_size=size)

    def leave() -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    atexit.register(leave)


def agree(store: Store, rank: int, size: int) -> str:
    """A name that `size` processes have agreed on, whatever others have left in the store.

    Each says who it is. The first offers a name to those it finds; one that it finds is dead does
    not accept, and says nothing, until it is replaced by a living one, and a new name is offered.
    """
    me, limit = uuid.uuid4().hex, time.monotonic() + _TIMEOUT_S
    store.set(f"pointdep/here/{rank}", me)
    offer: tuple[str, list[str]] = "", []
    while time.monotonic() < limit:
        if rank == 0:
            here = [store.get(f"pointdep/here/{r}").decode() for r in range(size)]
            if offer[1] != here:
                offer = uuid.uuid4().hex, here
                store.set("pointdep/offer", json.dumps(offer))
            if store.check([f"pointdep/{offer[0]}/{r}" for r in range(1, size)]):
                store.set(f"pointdep/{offer[0]}/go", "yes")
                return offer[0]
        else:
            name, here = json.loads(store.get("pointdep/offer"))
            if len(here) == size and here[rank] == me:
                store.set(f"pointdep/{name}/{rank}", "yes")
                if store.check([f"pointdep/{name}/go"]):
                    return str(name)
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"process {rank} of {size} did not hear from all others")


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


def pick_device(device: str) -> torch.device:
    """The named device, or with "auto" the first of CUDA, MPS and CPU that is here."""
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if str(device).split(":")[0] not in _DEVICES:
        raise unknown_name("device", device, _DEVICES)
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
        reason = str(error).splitlines()[0]
        raise InputError(f"device={device!r} cannot be used here: {reason}") from None
    return chosen


def join_processes(device: str) -> tuple[Processes, str]:
    """The processes that fit together, and the device of this one; one alone without torchrun."""
    if process_count() == 1:
        return ALONE, device
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
