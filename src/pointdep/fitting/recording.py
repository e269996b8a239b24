"""CUDA graphs: a training step that the host asks for once, and the device repeats."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from pointdep.fitting.batches import Cells

T = TypeVar("T")

WARM_UP = 3
"""Steps that run one by one before one is recorded."""

# Other threads do not take part in a recording: the one that reads the next rows asks for pinned
# memory, which would make it fail.
_OTHER_THREADS = "thread_local"


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
        if self._done <= WARM_UP or not self._recorded(cells):
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


def on_side_stream(function: Callable[[], T]) -> T:
    """Call the function on a stream of its own, as CUDA graphs ask of the steps before one."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(main)
    with torch.cuda.stream(side):
        value = function()
    main.wait_stream(side)
    return value


def record(
    function: Callable[[], object], generator: torch.Generator | None = None
) -> Callable[[], None]:
    """Record the function's work on the device as a CUDA graph, not yet run; calling it runs it.

    generator: what the function draws from besides torch's own generator.
    """
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(graph, capture_error_mode=_OTHER_THREADS):
            function()
    except RuntimeError:
        # After a failed recording torch's generator would refuse to draw outside of one.
        own = torch.cuda.default_generators[torch.cuda.current_device()]
        own.graphsafe_set_state(own.clone_state())
        raise
    return graph.replay
