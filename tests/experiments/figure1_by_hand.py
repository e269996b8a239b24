"""Figure 1 a second time: one network after another, plain layers, each objective written out.

Nothing of the library is used but the samples and the initial weights.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FLOOR = 1e-4  # of DRF's read-out
TAU = 5.0  # of SMILE


def cells(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores (n, n) of the pairs, (n,), and of all other cells, (n (n - 1),)."""
    own = torch.eye(len(scores), dtype=torch.bool)
    return scores[own], scores[~own]


def learn(method: str, scores: Tensor) -> Tensor:
    """The objective of scores (n, n), to be maximised; for `pc` they are the logits."""
    joint, product = cells(scores)
    n = len(scores)
    if method == "cpc":
        return (joint - (scores.exp().sum(1) / n).log()).sum() / n
    if method == "pc":
        return -F.binary_cross_entropy_with_logits(scores, torch.eye(n, dtype=scores.dtype))
    if method in {"js", "smile", "variational"}:
        up, down = (1 + (-joint).exp()).log(), (1 + product.exp()).log()
        return -up.sum() / n - down.sum() / (n * (n - 1))
    linear, exp_mean = joint.sum() / n, product.exp().sum() / (n * (n - 1))
    return {
        "nwj": linear - exp_mean / math.e,
        "dv": linear - exp_mean.log(),
        "dm1": linear - (exp_mean - 1),
        "dm2": linear - exp_mean.log() ** 2,
        "drf": linear - (product**2).sum() / (n * (n - 1)) / 2,
    }[method]


def infer(method: str, scores: Tensor) -> float:
    """The mutual information that the method reads off its scores (n, n)."""
    joint, product = cells(scores)
    n = len(scores)
    linear = joint.sum() / n
    if method == "js":
        return (1 + linear - product.exp().sum() / (n * (n - 1))).item()
    if method == "smile":
        clipped = product.clamp(-TAU, TAU).exp().sum() / (n * (n - 1))
        return (linear - clipped.log()).item()
    if method == "pc":
        return linear.item() + math.log(n - 1)
    if method == "drf":
        return (joint.clamp(min=FLOOR).log().sum() / n).item()
    if method in {"variational", "dm1", "dm2"}:
        return linear.item()
    return learn(method, scores).item()


def perceptron(weights: list[tuple[Tensor, Tensor]]) -> nn.Sequential:
    """weights: (in, out) and (1, out) of each layer; ReLU between them."""
    layers: list[nn.Module] = []
    for weight, bias in weights:
        linear = nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias[0].clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def layers_of(stack, replica: int) -> list[tuple[Tensor, Tensor]]:
    """The weights of one replica, copied."""
    return [
        (layer.weight[replica].detach().clone(), layer.bias[replica].detach().clone())
        for layer in stack.layers
    ]


class Concat(nn.Module):
    """One replica of a ConcatCritic, on the concatenation of every x and every y."""

    def __init__(self, critic, replica: int, lower: float) -> None:
        super().__init__()
        halves = critic.x_half.weight[replica], critic.y_half.weight[replica]
        first = torch.cat([half.detach() for half in halves]), critic.x_half.bias[replica].detach()
        rest = layers_of(critic.rest, replica)
        rest[-1] = rest[-1][0], rest[-1][1] - lower
        self.net = perceptron([first, *rest])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        n = len(x)
        return self.net(torch.cat([x.repeat_interleave(n, 0), y.repeat(n, 1)], 1)).view(n, n)


class Separable(nn.Module):
    """One replica of a SeparableCritic."""

    def __init__(self, critic, replica: int, lower: float) -> None:
        super().__init__()
        self.g = perceptron(layers_of(critic.x_tower, replica))
        self.h = perceptron(layers_of(critic.y_tower, replica))
        self.bias = nn.Parameter(critic.bias[replica].detach().clone() - lower)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g(x) @ self.h(y).T + self.bias


def network(settings, critic, replica: int) -> nn.Module:
    """The replica before training; that of `pc` gives the logit, as the paper's does."""
    kind = {"concat": Concat, "separable": Separable}[settings.critic]
    is_pc = settings.cells[replica].method == "pc"
    return kind(critic, replica, math.log(settings.batch_size - 1) if is_pc else 0.0)


def train(settings, critic, replica: int, batches: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The curve of one cell; critic: untrained, batches: x and y of all cells, step by step."""
    method, net = settings.cells[replica].method, network(settings, critic, replica)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    curve = []
    for x, y in batches:
        scores = net(x[replica], y[replica])
        curve.append(infer(method, scores.detach()))
        optimizer.zero_grad()
        (-learn(method, scores)).backward()
        optimizer.step()
    return curve
