"""One critic of every kind, in float64 and with every weight drawn, so that nothing is zero."""

import torch
from torch import Tensor, nn

from pointdep.core import critics
from pointdep.core.critics.auto import ResidualCritic, TowersCritic

X_DIM, Y_DIM = 3, 5


class PairNet(nn.Module):
    """A user's critic of paired rows."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(X_DIM + Y_DIM, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net(torch.cat([x, y], -1)).squeeze(-1)


class ColumnNet(PairNet):
    """The same, with (n, 1) scores."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(x, y).unsqueeze(-1)


class MatrixNet(PairNet):
    """The same, with all pairs at once by a method of its own."""

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([self(row.expand(len(y), -1), y) for row in x])


def encoders() -> tuple[nn.Module, nn.Module]:
    return nn.Sequential(nn.Linear(X_DIM, 6), nn.ReLU(), nn.Linear(6, 4)), nn.Linear(Y_DIM, 4)


def residual(replicas: int) -> ResidualCritic:
    """With canonical correlations, other ones for each replica."""
    critic = ResidualCritic(replicas, X_DIM, Y_DIM, hidden=(8, 6))
    critic.correlations = torch.linspace(0.1, 0.9, 3 * replicas).view(replicas, 3)
    return critic


def labelled(replicas: int) -> ResidualCritic:
    """The same with a label of `Y_DIM` levels, some rarer than others, for y."""
    critic = ResidualCritic(replicas, X_DIM, Y_DIM, hidden=(8, 6), label="y")
    critic.correlations = torch.linspace(0.1, 0.9, 3 * replicas).view(replicas, 3)
    shares = torch.linspace(1.0, 2.0, Y_DIM).repeat(replicas, 1).softmax(-1)
    critic.set_levels(draw(*critic.levels.shape, seed=7), shares)
    return critic


def towers(replicas: int) -> TowersCritic:
    """With a closed form of its own and a mixture of its own for each replica, as it answers."""
    critic = TowersCritic(replicas, X_DIM, Y_DIM, hidden=(8, 6), embedding_dim=4)
    critic.correlations = torch.linspace(0.1, 0.9, 3 * replicas).view(replicas, 3)
    for seed, name in enumerate(("x_mean", "y_mean", "x_weight", "y_weight")):
        place = getattr(critic, name)
        place.copy_(0.5 * draw(*place.shape, seed=seed))
    critic.mixture.copy_(torch.tensor([0.7, 1.2, -0.3]) + 0.1 * torch.arange(replicas).view(-1, 1))
    return critic.eval()


KINDS = {
    "auto": residual,
    "auto, label": labelled,
    "auto, wide": towers,
    "concat": lambda r: critics.ConcatCritic(r, X_DIM, Y_DIM, hidden=(8, 6)),
    "concat, one hidden layer": lambda r: critics.ConcatCritic(r, X_DIM, Y_DIM, hidden=(7,)),
    "separable": lambda r: critics.SeparableCritic(r, X_DIM, Y_DIM, hidden=(8, 6), embedding_dim=4),
    "bilinear": lambda r: critics.BilinearCritic(r, X_DIM, Y_DIM),
    "inner": lambda r: critics.InnerProductCritic(r, X_DIM),
    "module": lambda r: critics.ModuleCritic(r, PairNet()),
    "module, column of scores": lambda r: critics.ModuleCritic(r, ColumnNet()),
    "module, own matrix": lambda r: critics.ModuleCritic(r, MatrixNet()),
    "encoders": lambda r: critics.EncoderCritic(r, *encoders()),
}


NARROW = ("auto", "auto, label")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(kind: str, replicas: int, seed: int = 0) -> critics.Critic:
    """A critic whose replicas all differ."""
    critic, generator = KINDS[kind](replicas).double(), torch.Generator().manual_seed(seed)
    for p in critic.parameters():
        p.data.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return critic


def x_dim(kind: str) -> int:
    """The default critic takes canonical coordinates and what goes with them."""
    return ResidualCritic.side_map.out_dim(X_DIM) if kind in NARROW else X_DIM


def y_dim(kind: str) -> int:
    """The inner product needs x and y in one space."""
    if kind in NARROW:
        return ResidualCritic.side_map.out_dim(Y_DIM)
    return X_DIM if kind == "inner" else Y_DIM
