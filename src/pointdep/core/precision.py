"""How torch computes: half precision, autocast, TF32, its transforms, and its threads."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch
from torch import Tensor

from pointdep.errors import require_whole

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


# Threads that share the work of small matrices wait for each other longer than they work, and where
# other work keeps one of them from running they all wait. So a fit takes one, unless its matrices
# are large and a trial says that more of them are faster now.

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
