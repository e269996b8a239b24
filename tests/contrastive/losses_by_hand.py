"""The losses written as loops over single cells, from the equations and without the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pointdep.contrastive import losses

Score = Callable[[Tensor, Tensor], Tensor]
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

Anchor = tuple[Tensor, list[Tensor]]  # the score of its positive, those of its negatives


def loss_by_hand(
    name: str,
    score: Score,
    z1: Tensor,
    z2: Tensor,
    groups: Sequence[int] | None,
    negatives: str,
    symmetric: bool,
) -> Tensor:
    """Minus the objective, cell by cell; score takes two vectors."""
    groups = list(range(len(z1))) if groups is None else list(groups)
    rows = anchors_of(score, z1, z2, groups, negatives, symmetric)
    if name == "cpc" and negatives == "cross" and symmetric:
        columns = anchors_of(lambda y, x: score(x, y), z2, z1, groups, "cross", symmetric)
        return -0.5 * (cpc(rows) + cpc(columns))
    if name == "cpc":
        return -cpc(rows)
    positive = [own for own, _ in rows]
    product = [s for _, others in rows for s in others]
    return -OBJECTIVES[name](positive, product)


def anchors_of(
    score: Score, z1: Tensor, z2: Tensor, groups: list[int], negatives: str, symmetric: bool
) -> list[Anchor]:
    n = len(z1)
    views = [z1, z2]
    found = []
    for v in [0, 1] if negatives == "all" and symmetric else [0]:
        for i in range(n):
            others = []
            for w in [0, 1] if negatives == "all" else [1]:
                for j in range(n):
                    if groups[i] != groups[j]:
                        others.append(score(views[v][i], views[w][j]))
            found.append((score(views[v][i], views[1 - v][i]), others))
    return found


def cpc(anchors: list[Anchor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for own, others in anchors:
        shares = sum(s.exp() for s in [own, *others]) / (1 + len(others))
        total = total + own - torch.log(shares)
    return total / len(anchors)


def js(positive: list[Tensor], product: list[Tensor]) -> Tensor:
    return mean([-torch.log1p((-s).exp()) for s in positive]) - mean(
        [torch.log1p(s.exp()) for s in product]
    )


def dm1(positive: list[Tensor], product: list[Tensor]) -> Tensor:
    return mean(positive) - 0.7 * (mean([s.exp() for s in product]) - 1)


def dm2(positive: list[Tensor], product: list[Tensor]) -> Tensor:
    return mean(positive) - 1.3 * torch.log(mean([s.exp() for s in product])) ** 2


def drf(positive: list[Tensor], product: list[Tensor]) -> Tensor:
    squares = 0.1 * mean([s * s for s in positive]) + 0.9 * mean([s * s for s in product])
    return mean(positive) - squares / 2


def rpc(positive: list[Tensor], product: list[Tensor]) -> Tensor:
    squares = 0.05 * mean([s * s for s in positive]) + 0.8 * mean([s * s for s in product])
    return mean(positive) - 0.9 * mean(product) - squares / 2


OBJECTIVES = {"pcc": js, "variational": js, "dm1": dm1, "dm2": dm2, "drfc": drf, "rpc": rpc}


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum() / len(values)


def score_by_hand(loss: losses.ContrastiveLoss, critic: str, multiplier: float) -> Score:
    """The score of two vectors, from the critic's weights."""
    weights = dict(loss.scores.named_parameters())
    unit, clip = loss.scores.normalize, loss.scores.clip

    def score(x: Tensor, y: Tensor) -> Tensor:
        if unit:
            x, y = x / (x * x).sum() ** 0.5, y / (y * y).sum() ** 0.5
        value = multiplier * CRITICS[critic](x, y, weights)
        return value if clip is None else clip * torch.tanh(value / clip)

    return score


def inner(x: Tensor, y: Tensor, _: dict[str, Tensor]) -> Tensor:
    return (x * y).sum()


def bilinear(x: Tensor, y: Tensor, w: dict[str, Tensor]) -> Tensor:
    return x @ w["critic.product.weight"][0] @ y + w["critic.bias"][0, 0]


def perceptron(x: Tensor, w: dict[str, Tensor], name: str) -> Tensor:
    layers = sorted({k.split(".")[-2] for k in w if k.startswith(f"critic.{name}.layers")})
    for position, layer in enumerate(layers):
        x = x * torch.sigmoid(x) if position else x
        prefix = f"critic.{name}.layers.{layer}"
        x = x @ w[f"{prefix}.weight"][0] + w[f"{prefix}.bias"][0, 0]
    return x


def separable(x: Tensor, y: Tensor, w: dict[str, Tensor]) -> Tensor:
    codes = perceptron(x, w, "x_tower"), perceptron(y, w, "y_tower")
    return codes[0] @ codes[1] + w["critic.bias"][0, 0]


def concat(x: Tensor, y: Tensor, w: dict[str, Tensor]) -> Tensor:
    first = torch.cat([w["critic.x_half.weight"][0], w["critic.y_half.weight"][0]])
    hidden = torch.cat([x, y]) @ first + w["critic.x_half.bias"][0, 0]
    return perceptron(hidden * torch.sigmoid(hidden), w, "rest")[0]


CRITICS = {"inner": inner, "bilinear": bilinear, "separable": separable, "concat": concat}


def pairs(n: int, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Dependent rows in float64, with gradients."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, d, generator=generator, dtype=torch.float64)
    z1 = shared + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    z2 = shared + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return z1.requires_grad_(), z2.requires_grad_()


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


def default_multiplier(name: str, critic: str) -> float:
    if critic != "inner":
        return 1.0
    return {"cpc": 1 / 0.5, "drfc": 10.0, "rpc": 10.0}.get(name, 1 / 0.2)


class Distance(nn.Module):
    """A critic of the user's own: minus the squared distance."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.rate * (x - y).square().sum(-1)


def gradients(value: Tensor, *of: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(value, of, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, of, strict=True)]


def assert_same(first: Tensor, second: Tensor, of: list[Tensor], tolerance: float = 1e-9) -> None:
    """Value and gradients agree."""
    torch.testing.assert_close(first, second, atol=tolerance, rtol=tolerance)
    for a, b in zip(gradients(first, *of), gradients(second, *of), strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
