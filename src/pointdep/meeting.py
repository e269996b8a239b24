"""How processes that torchrun started find each other, again after a restart.

After a restart torchrun hands its workers the store that the attempt before has used (torch 2.13,
although it means to make a new one), and they would read the addresses of dead processes in it. So
those of one attempt first agree on a name that no other attempt has, and meet under that.
"""

from __future__ import annotations

import atexit
import json
import os
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.distributed import Store  # type: ignore[attr-defined]

_PAUSE_S = 0.05
_TIMEOUT_S = 1800.0  # as torch's own


def meet(device: torch.device) -> None:
    """Join the group of torch.distributed, where torchrun keeps one store for all attempts."""
    import torch.distributed as dist

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or dist.is_initialized():
        return  # Fabric does it
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store: Store = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=_TIMEOUT_S),
    )
    backend = "gloo"
    if device.type == "cuda":
        import torch

        backend = "nccl"
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    name = agree(store, rank, size)
    own = dist.PrefixStore(name, store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=own, rank=rank, world_size=size)
    atexit.register(_leave)


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


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
