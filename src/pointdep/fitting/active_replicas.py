"""The replicas that still train, one step after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pointdep.core.blocked import InnerScores, Others, Pairs
from pointdep.core.critics.base import Critic
from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import Batches, Cells, LeanCells, TrainingOptions
from pointdep.fitting.recording import RecordedStep
from pointdep.fitting.sharing import SharedCells, Sharing
from pointdep.fitting.state import TrainingState

# All parameters of R replicas as one matrix, a row per replica.


class FlatParameters:
    """Lays a critic's parameters into ``values: (R, P)``, of which they become views.

    Parameters that the user has frozen stay out of it: they are neither trained nor decayed.
    What is done to every weight of a replica - an optimiser step, a gradient norm, a running
    average, keeping the best - is then one operation on one matrix, and a replica is one row.
    """

    def __init__(self, critic: Critic) -> None:
        self.critic = critic
        self._parameters = [p for p in critic.parameters() if p.requires_grad]
        self.values = nn.Parameter(self._rows([p.detach() for p in self._parameters]))
        self.values.grad = torch.zeros_like(self.values)
        offset, width = 0, self.values.shape[1]
        for parameter in self._parameters:
            if critic.stacked:
                size = parameter[0].numel()
                part = self.values.data[:, offset : offset + size]
            else:
                size = parameter.numel()
                part = self.values.data[offset // width, offset % width : offset % width + size]
            parameter.data = part.view(parameter.shape)
            offset += size

    def backward(self, loss: Tensor) -> Tensor:
        """The gradient of the loss as (R, P), stored for the optimiser."""
        grads = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        filled = [
            torch.zeros_like(p) if g is None else g
            for g, p in zip(grads, self._parameters, strict=True)
        ]
        self.values.grad = self._rows(filled)
        return self.values.grad

    def clip_(self, limit: float) -> None:
        """Scale each replica's gradient down to at most `limit` in norm."""
        grad = self.values.grad
        assert grad is not None
        norms = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
        if grad.device.type == "cpu" and bool((norms <= limit).all()):
            return  # asking is free here; on a GPU it would wait for the device
        grad.mul_((limit / norms.clamp(min=1e-12)).clamp(max=1.0))

    @torch.no_grad()
    def load(self, values: Tensor) -> None:
        """Set the parameters of all replicas from (R, P)."""
        self.values.copy_(values)

    def _rows(self, tensors: Sequence[Tensor]) -> Tensor:
        """One tensor per parameter -> (R, P)."""
        replicas = self.critic.replicas
        if self.critic.stacked:
            return torch.cat([t.reshape(replicas, -1) for t in tensors], 1)
        return torch.cat([t.reshape(-1) for t in tensors]).view(replicas, -1)

    def buffers(self, replica: int) -> list[Tensor]:
        """The buffers of a user's module (running statistics), which are not trained but kept."""
        if self.critic.stacked:
            return []
        return list(_copies(self.critic)[replica].buffers())


def _copies(critic: Critic) -> nn.ModuleList:
    copies = critic.copies
    assert isinstance(copies, nn.ModuleList)
    return copies


class Crew:
    """The replicas that still train, packed together so that the finished ones cost nothing."""

    def __init__(
        self,
        model: RatioModel,
        batches: Batches,
        held_out: Cells | LeanCells,
        options: TrainingOptions,
        state: TrainingState,
        sharing: Sharing | None = None,
    ) -> None:
        self.batches, self.options, self.state = batches, options, state
        self.sharing = sharing
        self.steps = batches.steps(options.min_steps)
        self.replicas = rows = list(state.active)
        self.model = model.select(rows)
        self.flat = FlatParameters(self.model.critic)
        self.flat.load(state.values[rows])
        for position, replica in enumerate(rows):
            for tensor, value in zip(
                self.flat.buffers(position), state.buffers[replica], strict=True
            ):
                tensor.copy_(value)
        self.average = state.average[rows].clone()
        self.moving = state.moving[rows].clone()
        self.recorded = self._recorded_step()
        self.optimizer = torch.optim.AdamW(
            [self.flat.values],
            lr=options.learning_rate,
            weight_decay=options.weight_decay,
            fused=self.average.device.type in {"cpu", "cuda"} or None,
            capturable=self.recorded is not None,
        )
        if state.step:
            self.optimizer.state[self.flat.values] = {
                "step": torch.tensor(float(state.step), device=self._step_device()),
                "exp_avg": state.first[rows].clone(),
                "exp_avg_sq": state.second[rows].clone(),
            }
        self.held_out: Cells | LeanCells | SharedCells = held_out.select(rows)
        if sharing is not None and sharing.divides(*held_out.x.shape[1:3]):
            self.held_out = sharing.take(held_out.select(rows))

    def _step_device(self) -> torch.device:
        device = self.average.device
        return device if device.type == "cuda" else torch.device("cpu")

    def _recorded_step(self) -> RecordedStep | None:
        """For one GPU and critics and methods of ours that keep nothing from step to step."""
        model = self.model
        plain = model.critic.stacked and all(m.gradient is None for m in model.methods)
        if self.average.device.type != "cuda" or self.sharing is not None or not plain:
            return None
        return RecordedStep(self._step, self.average.new_zeros(()))

    def train_epoch(self) -> list[float]:
        """One epoch of steps; the mean objective of each replica's training batches."""
        state, average = self.state, self.options.average
        self.model.train()
        total = torch.zeros(len(self.replicas), device=self.average.device)
        steps = 0
        for cells in self.batches.draw(state.epoch - 1, state.step, self.steps, self.replicas):
            after = state.step + 1
            weight = 1.0 - min(average, (1 + after) / (10 + after))
            if self.recorded is not None and isinstance(cells, Cells):
                total += self.recorded(cells, weight)
            else:
                total += self._step(cells, weight)
            state.step, steps = after, steps + 1  # a step may ask whether it is the first
        if not average:
            self.average.copy_(self.flat.values.detach())
        return [float(v) for v in total / max(1, steps)]

    def _step(self, cells: Cells | LeanCells | SharedCells, weight: float | Tensor) -> Tensor:
        """Learn from a batch; weight: of the new weights in their average. The objectives, (A,)."""
        value = self._objective(cells, training=True)
        gradient = self.flat.backward(-value.sum())
        if self.sharing is not None:
            self.sharing.processes.add_(gradient)
        self.flat.clip_(self.options.clip)
        self.optimizer.step()
        if self.options.average:
            self.average.lerp_(self.flat.values.detach(), weight)
        return value.detach()

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """The held-out objective of the averaged weights, per replica."""
        self.model.eval()
        current = self.flat.values.detach().clone()
        self.flat.load(self.average)
        value = self._objective(self.held_out, training=False)
        self.flat.load(current)
        return [float(v) for v in value]

    def _objective(self, cells: Cells | LeanCells | SharedCells, *, training: bool) -> Tensor:
        """The objective of each replica, (A,)."""
        scores: Tensor | InnerScores
        if isinstance(cells, LeanCells):
            scores = self.model.inner_scores(cells.x, cells.y)
        elif isinstance(cells, SharedCells) and cells.lean:
            assert self.sharing is not None
            scores = self.sharing.inner_scores(self.model, cells)
        else:
            scores = self.model.scores(self._raw(cells, training)).flatten(1, 2)

        def of_method(method: Method, rows: Tensor) -> Tensor:
            joint, product, part = cells.joint, cells.product, scores[rows]
            if not isinstance(joint, Tensor) or joint.ndim == 3:
                joint = joint[rows]
            if not isinstance(product, Tensor) or product.ndim == 3:
                product = product[rows]
            if isinstance(part, InnerScores):
                part = self.model.linked(method, part)
            if not training:
                return method.objective(part, joint=joint, product=product)
            return self._training_objective(method, rows, part, joint, product)

        rows = torch.arange(len(self.replicas), device=cells.x.device)
        return self.model.per_method(of_method, rows)

    def _training_objective(
        self,
        method: Method,
        rows: Tensor,
        scores: Tensor | InnerScores,
        joint: Tensor | Pairs,
        product: Tensor | Others,
    ) -> Tensor:
        product, usable = _with_samples(product)
        if method.gradient is not None:
            value = self._running(method, rows, scores, joint, product)
        else:
            value = method.objective(scores, joint=joint, product=product)
        return value if usable is None else torch.where(usable, value, 0.0)

    def _running(
        self,
        method: Method,
        rows: Tensor,
        scores: Tensor | InnerScores,
        joint: Tensor | Pairs,
        product: Tensor | Others,
    ) -> Tensor:
        assert method.gradient is not None
        # Not "is any of it NaN": a replica that diverges must not restart its neighbours.
        known = self.moving[rows] if self.state.step else None
        value, new = method.gradient(scores, known, joint=joint, product=product)
        self.moving[rows] = new
        return value

    def _raw(self, cells: Cells | SharedCells, training: bool) -> Tensor:
        """The critic's output (A, G, b, b)."""
        score = self.model.raw_matrix if training else self._in_chunks
        if isinstance(cells, SharedCells):
            assert self.sharing is not None
            return self.sharing.raw(self.model, cells, score)
        return score(cells.x, cells.y)

    def _in_chunks(self, x: Tensor, y: Tensor) -> Tensor:
        """`raw_matrix` without gradients, a few blocks at a time to bound the memory."""
        width = self.model.critic.cell_width() * len(self.replicas) * y.shape[2] ** 2
        blocks = max(1, (1 << 22) // width)
        return torch.cat(
            [
                self.model.raw_matrix(a, b)
                for a, b in zip(torch.split(x, blocks, 1), torch.split(y, blocks, 1), strict=True)
            ],
            1,
        )

    def is_finite(self, position: int) -> bool:
        return bool(torch.isfinite(self.average[position]).all())

    def keep_best(self, position: int) -> None:
        """Copy the averaged weights (and a module's buffers) as the best of their replica."""
        replica = self.replicas[position]
        self.state.best[replica] = self.average[position]
        self.state.best_buffers[replica] = [t.clone() for t in self.flat.buffers(position)]

    def write_back(self) -> None:
        """Bring the state of these replicas up to date."""
        state, rows = self.state, self.replicas
        moments = self.optimizer.state[self.flat.values]
        state.values[rows] = self.flat.values.detach()
        state.average[rows], state.moving[rows] = self.average, self.moving
        state.first[rows], state.second[rows] = moments["exp_avg"], moments["exp_avg_sq"]
        for position, replica in enumerate(rows):
            state.buffers[replica] = [t.clone() for t in self.flat.buffers(position)]


def _with_samples(
    product: Tensor | Others,
) -> tuple[Tensor | Others, Tensor | None]:
    """Product weights that are never all zero, and whether they are the given ones, (A,).

    Groups may leave a replica's batch without any product sample: it sits this step out.
    """
    if isinstance(product, Tensor):
        if product.ndim < 3:
            return product, None
        usable = (product > 0).flatten(1).any(1)
        return torch.where(usable[:, None, None], product, 1.0), usable
    if product.ids is None:
        return product, None
    usable = product.exist().any(-1)
    numbers = torch.arange(product.ids.shape[-1], device=product.ids.device)
    return Others(product.rows, torch.where(usable[:, None, None], product.ids, numbers)), usable
