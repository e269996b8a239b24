"""The training loop where samples are drawn, not stored: every step sees a batch of its own.

R replicas train at once, each with its own network, objective and samples. There is nothing to hold
out: the value of a batch, taken before its step, is an honest one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pointdep.core.critics.base import Critic
from pointdep.core.critics.concat import one_part_a_thread
from pointdep.core.methods import Method
from pointdep.core.precision import matmul_precision
from pointdep.core.ratio import MethodGroups
from pointdep.errors import InputError, unknown_name
from pointdep.fitting.active_replicas import FlatParameters
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.recording import WARM_UP, on_side_stream, record

PRECISIONS = ("bf16", "tf32", "float32", "float64")
"""Of the matrix products. Sums, losses and read-outs stay in float32, or float64 with the last."""

Draw = Callable[[Tensor], tuple[Tensor, Tensor]]
"""step: (1,), a whole number on the device -> x: (R, n, dx), y: (R, n, dy), a fresh batch."""

_REPLAYS = 50  # between two looks at the clock


@dataclass(frozen=True, eq=False)
class Streamed:
    """values: (steps, R), what each method infers from each batch, before learning from it."""

    values: Tensor
    setup_seconds: float
    train_seconds: float


class StreamEngine:
    """Trains the replicas of a critic on samples that are drawn as they are needed.

    On a GPU a step is recorded once, as a CUDA graph, and replayed: nothing in it waits for the
    host. A replica whose values are no longer finite goes on alone: no operation mixes replicas.
    """

    def __init__(
        self,
        critic: Critic,
        methods: Sequence[Method],
        draw: Draw,
        *,
        learning_rate: float = 1e-3,
        precision: str = "float32",
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise unknown_name("precision", precision, PRECISIONS)
        if any(method.gradient is not None for method in methods):
            raise InputError("a method with a running state cannot be trained on a stream")
        self.device, self.precision = torch.device(device), precision
        self.generator = generator
        wide = torch.float64 if precision == "float64" else torch.float32
        self.critic = critic.to(self.device, wide)
        critic.pair_dtype = torch.bfloat16 if precision == "bf16" else wide
        self.flat = FlatParameters(critic)
        on_gpu = self.device.type == "cuda"
        fused = self.device.type in {"cpu", "cuda"} or None
        self.optimizer = torch.optim.Adam(
            [self.flat.values], lr=learning_rate, fused=fused, capturable=on_gpu
        )
        self.groups, self.draw = MethodGroups(methods), draw
        self._judge = torch.compile(self._values, dynamic=False) if on_gpu else self._values

    def run(self, steps: int, progress: Progress | None = None) -> Streamed:
        """Train for this many steps."""
        shown = progress or Silent()
        step = torch.zeros(1, dtype=torch.long, device=self.device)
        values = self.flat.values.new_zeros(steps, self.critic.replicas).detach()

        def one() -> None:
            values.index_copy_(0, step, self._step(step)[None])
            step.add_(1)

        # float32 products as TF32, or not.
        with matmul_precision("high" if self.precision in {"bf16", "tf32"} else "highest"):
            if self.device.type == "cuda":
                with torch.cuda.device(self.device):
                    seconds = self._replay(one, steps, shown)
            else:
                start = time.perf_counter()
                with one_part_a_thread():
                    for done in range(steps):
                        one()
                        shown.update(done + 1, steps, "iterations")
                seconds = 0.0, time.perf_counter() - start
        return Streamed(values.cpu(), *seconds)

    def _step(self, step: Tensor) -> Tensor:
        """Draw, judge, learn; the values of the batch, (R,)."""
        x, y = self.draw(step)
        half = self.precision == "bf16" and not self.critic.fusable
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            scores = self.critic.matrix(x, y)
        objective, value = self._judge(scores.to(self.flat.values.dtype))
        self.flat.backward(-objective.sum())
        self.optimizer.step()
        return value

    def _values(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The objective and the inference of each replica, (R,) each."""
        objective = self.groups.apply(lambda method, part: method.objective(part), scores)
        value = self.groups.apply(lambda method, part: method.inference(part), scores.detach())
        return objective, value

    def _replay(self, one: Callable[[], None], steps: int, shown: Progress) -> tuple[float, float]:
        start = time.perf_counter()
        warm = min(WARM_UP, steps)

        def warm_up() -> None:
            for _ in range(warm):
                one()

        on_side_stream(warm_up)
        replay = record(one, self.generator)
        torch.cuda.synchronize()
        ready = time.perf_counter()
        for done in range(warm, steps):
            replay()
            if done % _REPLAYS == 0:
                torch.cuda.synchronize()
                shown.update(done, steps, "iterations")
        torch.cuda.synchronize()
        return ready - start, time.perf_counter() - ready
