"""How many threads torch works with in a fit.

Threads that share the work of small matrices wait for each other longer than they work, and where
other work keeps one of them from running they all wait. So a fit takes one, unless its matrices are
large and a trial says that more of them are faster now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

from pointdep.errors import require_whole

_LARGE = 1 << 28  # products of a training step: about 20 ms of one core
_TRIALS, _TRIAL_SIZE = 5, 512
_WORTH = 1.25  # how much faster more threads must be


@contextmanager
def own_threads(asked: int | None) -> Iterator[int]:
    """Within it torch works on the threads asked for, or on one; after it as it did before.

    Gives the number that torch would take: the most that `paying_threads` may choose.
    """
    if asked is not None:
        require_whole("threads", asked)
    before = torch.get_num_threads()
    torch.set_num_threads(asked or 1)
    try:
        yield asked or before
    finally:
        torch.set_num_threads(before)


def paying_threads(most: int, products: int) -> int:
    """How many of at most so many threads are worth it, for steps of so many products."""
    if most == 1 or products < _LARGE:
        return 1
    before = torch.get_num_threads()
    try:
        alone, together = (_trial(count) for count in (1, most))
    finally:
        torch.set_num_threads(before)
    return most if alone > _WORTH * together else 1


def _trial(threads: int) -> float:
    """Seconds of one product of matrices, in the median of a few."""
    torch.set_num_threads(threads)
    matrix = torch.ones(_TRIAL_SIZE, _TRIAL_SIZE)
    seconds = []
    for _ in range(_TRIALS):
        begin = time.perf_counter()
        torch.mm(matrix, matrix)
        seconds.append(time.perf_counter() - begin)
    return median(seconds)
