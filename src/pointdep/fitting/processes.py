"""The processes that fit one model together, and what they tell each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from pointdep.errors import InputError, PointdepError

if TYPE_CHECKING:
    from torch import Tensor


T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process, `rank`, of `size` in the group of torch.distributed; alone by default.

    All of them must make the same calls in the same order. An error of ours in one of them is
    raised in all, so that none waits for another that has given up.
    """

    rank: int = 0
    size: int = 1

    @property
    def several(self) -> bool:
        return self.size > 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and prints."""
        return self.rank == 0

    @property
    def share(self) -> str:
        """For the title of work on streamed rows: whose rows are counted."""
        return f" (rows of one of {self.size} processes)" if self.several else ""

    def sizes(self, count: int) -> list[int]:
        """How many of `count` things in a row each process has: equally many, or one more."""
        edges = [count * rank // self.size for rank in range(self.size + 1)]
        return [stop - start for start, stop in pairwise(edges)]

    def own(self, count: int) -> slice:
        """Which of them this process has."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def every(self, work: Callable[[], T]) -> list[T]:
        """What `work` gives in each process, in their order."""
        if not self.several:
            return [work()]
        import torch.distributed as dist

        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, _outcome(work))
        return [_result(outcome) for outcome in told]

    def together(self, work: Callable[[], T]) -> T:
        """What `work` gives here, once it has gone well everywhere."""
        kept: list[T] = []
        self.every(lambda: kept.append(work()))
        return kept[0]

    def first(self, work: Callable[[], T]) -> T:
        """What `work` gives in the first process, which alone does it."""
        if not self.several:
            return work()
        import torch.distributed as dist

        told: list[Any] = [_outcome(work) if self.is_first else None]
        dist.broadcast_object_list(told, src=0)
        result: T = _result(told[0])
        return result

    def add_(self, tensor: Tensor) -> None:
        """The sum over all processes, in place."""
        if self.several:
            import torch.distributed as dist

            dist.all_reduce(tensor)

    def align_(self, tensors: Iterable[Tensor]) -> None:
        """What the first process has, in place."""
        if self.several:
            import torch.distributed as dist

            for tensor in tensors:
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, src=0)
                tensor.detach().copy_(whole)


ALONE = Processes()


def processes_of_group() -> Processes:
    """Those of the group that torch.distributed has been told of."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InputError(
            "distributed=True shares a fit among processes that know of each other: start them "
            "with torchrun and call torch.distributed.init_process_group first, or use `torchrun "
            "-m pointdep fit`"
        )
    return Processes(dist.get_rank(), dist.get_world_size())


def _outcome(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except (PointdepError, OSError) as error:
        return None, error


def _result(outcome: tuple[Any, Exception | None]) -> Any:
    result, error = outcome
    if error is not None:
        raise error
    return result
