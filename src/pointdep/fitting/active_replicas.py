"""The replicas that still train, one step after another."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pointdep.core.blocked import InnerScores, Others
from pointdep.core.critics.base import Critic
from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import Batches, Cells, TrainingOptions
from pointdep.fitting.recording import RecordedStep
from pointdep.fitting.sharing import Sharing
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
        pairs = zip(grads, self._parameters, strict=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in pairs]
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
        return [] if self.critic.stacked else list(self.critic.copies[replica].buffers())


class Adam:
    """AdamW of one matrix of weights, as `torch.optim.AdamW` does it.

    That class imports torch's compiler when it is made, which takes longer than some fits.
    first, second: the running moments, (R, P); step: how many steps they come from; rate: to be
    set before a step, of one number, because a recorded step reads it where it lies.
    """

    def __init__(self, first: Tensor, second: Tensor, step: int) -> None:
        self.first, self.second = first.clone(), second.clone()
        self.step, self.rate = first.new_tensor(float(step)), first.new_zeros(())

    @torch.no_grad()
    def step_(self, values: Tensor, decay: float) -> None:
        """Move the weights against their gradient."""
        assert values.grad is not None
        self.step += 1
        how: dict[str, Any] = {"lr": self.rate, "weight_decay": decay, "eps": 1e-8, "beta1": 0.9}
        how |= {"beta2": 0.999, "amsgrad": False, "maximize": False}
        update: Any = torch._fused_adamw_
        grads, steps = [values.grad], [self.step]
        update([values], grads, [self.first], [self.second], [], steps, **how)


class Crew:
    """The replicas that still train, packed together so that the finished ones cost nothing."""

    def __init__(
        self,
        model: RatioModel,
        batches: Batches,
        held_out: Cells,
        options: TrainingOptions,
        state: TrainingState,
        sharing: Sharing | None = None,
    ) -> None:
        self.batches, self.options, self.state = batches, options, state
        self.sharing = sharing
        self.replicas = rows = list(state.active)
        self.model = model.select(rows)
        self.flat = FlatParameters(self.model.critic)
        self.flat.load(state.values[rows])
        for position, replica in enumerate(rows):
            kept = zip(self.flat.buffers(position), state.buffers[replica], strict=True)
            for tensor, value in kept:
                tensor.copy_(value)
        self.average = state.average[rows].clone()
        self.moving = state.moving[rows].clone()
        self.recorded = self._recorded_step()
        self.adam = Adam(state.first[rows], state.second[rows], state.step)
        self.held_out = held_out.select(rows)
        if sharing is not None and sharing.divides(*held_out.x.shape[1:3]):
            self.held_out = sharing.take(self.held_out)

    @torch.no_grad()
    def map_first(self) -> None:
        """Take batches of rows that have been through the maps, and put the held-out ones there."""
        held, model = self.held_out, self.model
        self.held_out = replace(held, x=model.x_map(held.x), y=model.y_map(held.y))
        mapped: Any = nn.Identity()
        model.x_map = model.y_map = mapped

    def _recorded_step(self) -> RecordedStep | None:
        """For one GPU and critics and methods of ours that keep nothing from step to step."""
        plain = self.model.critic.stacked and all(m.gradient is None for m in self.model.methods)
        if self.average.device.type != "cuda" or self.sharing is not None or not plain:
            return None
        return RecordedStep(self._step, self.average.new_zeros(()))

    def train_epoch(self) -> list[float]:
        """One epoch of steps; the mean objective of each replica's training batches."""
        state, average = self.state, self.options.average
        self.model.train()
        self.adam.rate.fill_(self.options.rate(state.epoch - 1))
        total = torch.zeros(len(self.replicas), device=self.average.device)
        first, count = state.step, self.batches.steps(self.options.min_steps)
        for cells in self.batches.draw(state.epoch - 1, first, count, self.replicas):
            after = state.step + 1
            weight = 1.0 - min(average, (1 + after) / (10 + after))
            step = self._step if self.recorded is None or cells.lean else self.recorded
            total += step(cells, weight)
            state.step = after  # a step may ask whether it is the first
        if not average:
            self.average.copy_(self.flat.values.detach())
        return (total / max(1, state.step - first)).tolist()

    def _step(self, cells: Cells, weight: float | Tensor) -> Tensor:
        """Learn from a batch; weight: of the new weights in their average. The objectives, (A,)."""
        if self.sharing is not None and cells.whole is None:
            cells = self.sharing.take(cells)
        value = self._objective(cells, training=True)
        gradient = self.flat.backward(-value.sum())
        if self.sharing is not None:
            self.sharing.processes.add_(gradient)
        self.flat.clip_(self.options.clip)
        self.adam.step_(self.flat.values, self.options.weight_decay)
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
        return value.tolist()

    def _objective(self, cells: Cells, *, training: bool) -> Tensor:
        """The objective of each replica, (A,)."""
        scores = self._scores(cells, training)

        def of_method(method: Method, rows: Tensor) -> Tensor:
            part, usable = scores[rows], None
            if isinstance(part, InnerScores):
                part = self.model.linked(method, part)
            joint, product = (
                weights if isinstance(weights, Tensor) and weights.ndim < 3 else weights[rows]
                for weights in (cells.joint, cells.product)
            )
            if training:
                product, usable = _with_samples(product)
            if training and method.gradient is not None:
                # Not "is any of it NaN": a replica that diverges must not restart its neighbours.
                known = self.moving[rows] if self.state.step else None
                value, new = method.gradient(part, known, joint=joint, product=product)
                self.moving[rows] = new
            else:
                value = method.objective(part, joint=joint, product=product)
            return value if usable is None else torch.where(usable, value, 0.0)

        rows = torch.arange(len(self.replicas), device=cells.x.device)
        return self.model.per_method(of_method, rows)

    def _scores(self, cells: Cells, training: bool) -> Tensor | InnerScores:
        """(A, G*b, b), of a lean batch before the link; without gradients in small parts."""
        score = self.model.raw_matrix if training else self.model.raw_blocks
        if self.sharing is not None and cells.whole is not None:
            raw: Tensor | InnerScores = self.sharing.scores(self.model, cells, score)
        elif cells.lean:
            raw = self.model.inner_scores(cells.x, cells.y)
        else:
            raw = score(cells.x, cells.y)
        return self.model.scores(raw).flatten(1, 2) if isinstance(raw, Tensor) else raw

    def keep_best(self, position: int) -> None:
        """Copy the averaged weights (and a module's buffers) as the best of their replica."""
        replica = self.replicas[position]
        self.state.best[replica] = self.average[position]
        self.state.best_buffers[replica] = [t.clone() for t in self.flat.buffers(position)]

    def write_back(self) -> None:
        """Bring the state of these replicas up to date."""
        state, rows = self.state, self.replicas
        state.values[rows] = self.flat.values.detach()
        state.average[rows], state.moving[rows] = self.average, self.moving
        state.first[rows], state.second[rows] = self.adam.first, self.adam.second
        for position, replica in enumerate(rows):
            state.buffers[replica] = [t.clone() for t in self.flat.buffers(position)]


def _with_samples(product: Tensor | Others) -> tuple[Tensor | Others, Tensor | None]:
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
