"""The losses from whole matrices: scores by the critics' equations, objectives by `core`."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pointdep.contrastive import losses
from pointdep.core import objectives

LOSSES = {
    "cpc": (losses.CPCLoss, {}),
    "pcc": (losses.PCCLoss, {}),
    "variational": (losses.VariationalLoss, {}),
    "dm1": (losses.DM1Loss, {"lam": 0.7}),
    "dm2": (losses.DM2Loss, {"eta": 1.3}),
    "drfc": (losses.DRFCLoss, {"alpha": 0.1}),
    "rpc": (losses.RPCLoss, {"a": 0.9, "b": 0.05, "c": 0.8}),
}
"""Each loss with options away from their defaults."""

OBJECTIVES = {"pcc": objectives.js, "variational": objectives.js, "drfc": objectives.drf}
DEFAULTS = {"cpc": 1 / 0.5, "drfc": 10.0, "rpc": 10.0}  # multipliers of the inner product


def by_hand(
    name: str,
    loss: losses.ContrastiveLoss,
    critic: str,
    z1: Tensor,
    z2: Tensor,
    groups: Sequence[int] | None,
) -> Tensor:
    """Minus the objective of the matrix of scores under weights written out."""
    n, both = len(z1), loss.negatives == "all"
    ids = torch.arange(n) if groups is None else torch.tensor(groups)
    joint, x, y = torch.eye(n, dtype=torch.float64), z1, z2
    if both:
        joint = torch.eye(2 * n, dtype=torch.float64).roll(n, 0)
        x = y = torch.cat([z1, z2])
        ids = ids.repeat(2)
    product, scores = (ids[:, None] != ids).double(), matrix_by_hand(name, loss, critic, x, y)
    if both and not loss.symmetric:
        scores, joint, product = scores[:n], joint[:n], product[:n]
    objective = OBJECTIVES.get(name) or getattr(objectives, name)
    value = -objective(scores, joint=joint, product=product, **LOSSES[name][1])
    if name == "cpc" and loss.symmetric and not both:
        value = (value - objective(scores.T, joint=joint, product=product)) / 2
    return value


def matrix_by_hand(name: str, loss: nn.Module, critic: str, x: Tensor, y: Tensor) -> Tensor:
    """The scores of all pairs, from the critic's weights. x: (n, d1), y: (m, d2)."""
    weights = dict(loss.scores.named_parameters())
    if loss.scores.normalize:
        x, y = (z / (z * z).sum(1, keepdim=True) ** 0.5 for z in (x, y))
    multiplier = DEFAULTS.get(name, 1 / 0.2) if critic == "inner" else 1.0
    value, clip = multiplier * CRITICS[critic](x, y, weights), loss.scores.clip
    return value if clip is None else clip * torch.tanh(value / clip)


def perceptron(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    layers = sorted({k.split(".")[-2] for k in w if k.startswith(f"critic.{name}.layers")})
    for position, layer in enumerate(layers):
        x = x * torch.sigmoid(x) if position else x
        prefix = f"critic.{name}.layers.{layer}"
        x = x @ w[f"{prefix}.weight"][0] + w[f"{prefix}.bias"][0, 0]
    return x


def separable(x: Tensor, y: Tensor, w: dict[str, Tensor]) -> Tensor:
    return perceptron(x, w, "x_tower") @ perceptron(y, w, "y_tower").T + w["critic.bias"][0, 0]


def concat(x: Tensor, y: Tensor, w: dict[str, Tensor]) -> Tensor:
    first = torch.cat([w["critic.x_half.weight"][0], w["critic.y_half.weight"][0]])
    pairs = torch.cat([x.repeat_interleave(len(y), 0), y.repeat(len(x), 1)], 1)
    hidden = pairs @ first + w["critic.x_half.bias"][0, 0]
    return perceptron(hidden * torch.sigmoid(hidden), w, "rest").view(len(x), len(y))


CRITICS = {
    "inner": lambda x, y, _: x @ y.T,
    "bilinear": lambda x, y, w: x @ w["critic.product.weight"][0] @ y.T + w["critic.bias"][0, 0],
    "separable": separable,
    "concat": concat,
}


def pairs(n: int, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Dependent rows in float64, with gradients."""
    generator = torch.Generator().manual_seed(seed)
    shared, *noise = torch.randn(3, n, d, generator=generator, dtype=torch.float64)
    z1, z2 = ((shared + 0.5 * part).requires_grad_() for part in noise)
    return z1, z2


def made(name: str, **options: object) -> losses.ContrastiveLoss:
    """The loss of that name in float64, its critic's weights drawn and not zero."""
    kind, own = LOSSES[name]
    torch.manual_seed(0)
    loss = kind(**own, **options).double()
    with torch.no_grad():
        for key, parameter in loss.named_parameters():
            if key.endswith("bias"):
                parameter.add_(0.3)
    return loss


class Distance(nn.Module):
    """A critic of the user's own: minus the squared distance."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.rate * (x - y).square().sum(-1)


def gradients(value: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, of, allow_unused=True, materialize_grads=True)


def assert_same(first: Tensor, second: Tensor, of: list[Tensor], tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(first, second, atol=tolerance, rtol=tolerance)
    for a, b in zip(gradients(first, *of), gradients(second, *of), strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
