"""All parameters of R replicas as one matrix, a row per replica."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pointdep.core.critics.base import Critic


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
