"""Work that falls into parts, a thread for each: what a CPU has instead of one large product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor

_POOL: ContextVar[ThreadPoolExecutor | None] = ContextVar("_POOL", default=None)


@contextmanager
def one_part_a_thread() -> Iterator[None]:
    """Within it torch works on one thread, and `of_each` on as many as torch had before.

    Threads that share the work of one small operation wait for each other at its end; where other
    work keeps one of them from running, that takes ten times as long. Threads with work of their
    own do not.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(before, "pair-layers", _keep_to_one_thread) as pool:
            token = _POOL.set(pool if before > 1 else None)
            try:
                yield
            finally:
                _POOL.reset(token)
    finally:
        torch.set_num_threads(before)


def _keep_to_one_thread() -> None:
    torch.get_num_threads()  # the first question in a thread sets the number to that of all
    torch.set_num_threads(1)


def of_each(
    function: Callable[..., tuple[Tensor, ...]], parts: Sequence[tuple[Any, ...]]
) -> list[tuple[Tensor, ...]]:
    """function(*part) of each part, without gradients where the parts have threads of their own."""
    pool = _POOL.get()
    if pool is None:
        return [function(*part) for part in parts]
    return list(pool.map(partial(_without_grad, function), parts))


def _without_grad(function: Callable[..., Any], part: tuple[Any, ...]) -> Any:
    with torch.no_grad():  # which is set for each thread by itself
        return function(*part)
