"""A training step that the host asks for once, and the device repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pointdep.fitting.batches import Cells

_WARM_UP = 3
OTHER_THREADS = "thread_local"
"""How other threads bear on what is recorded: not at all. One that reads the next rows asks for
pinned memory, by which a recording would fail."""


class RecordedStep:
    """step(cells, weight) on one GPU, after the first few as a CUDA graph.

    To ask for the hundred operations of a step takes the host longer than to do them the device.
    Cells must keep their shapes; those with weights of their own, and a step that cannot be
    recorded, are done as they stand.
    """

    def __init__(self, step: Callable[[Cells, Tensor], Tensor], weight: Tensor) -> None:
        """weight: where the weight is put for the step to read, a tensor of one number."""
        self._step, self._weight = step, weight
        self._done = 0
        self._cells: Cells | None = None
        self._replay: Callable[[], None] | None = None
        self._value = self._weight
        self.fails = False

    def __call__(self, cells: Cells, weight: float) -> Tensor:
        self._weight.fill_(weight)
        self._done += 1
        if self._done <= _WARM_UP or not self._recorded(cells):
            return self._step(cells, self._weight)
        assert self._cells is not None
        assert self._replay is not None
        self._cells.x.copy_(cells.x)
        self._cells.y.copy_(cells.y)
        self._replay()
        return self._value

    def _recorded(self, cells: Cells) -> bool:
        """Whether there is a recording for such cells; it is made for the first."""
        if self._cells is None and not self.fails and cells.product.ndim == 2:
            self._cells = replace(cells, x=cells.x.clone(), y=cells.y.clone())
            try:
                self._replay = record(self._once)
            except RuntimeError:  # such as a critic that waits for the device
                torch.cuda.synchronize()
                self._cells, self.fails = None, True
        known = self._cells
        return known is not None and known.product is cells.product and known.joint is cells.joint

    def _once(self) -> None:
        assert self._cells is not None
        self._value = self._step(self._cells, self._weight)


def record(function: Callable[[], None]) -> Callable[[], None]:
    """The function's work on the device as a CUDA graph, not yet done; calling it does it."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(graph, capture_error_mode=OTHER_THREADS):
            function()
    except RuntimeError:
        _end_of_recording()
        raise
    return graph.replay


def _end_of_recording() -> None:
    """After a recording that failed torch's generator would refuse to draw outside of one."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())
