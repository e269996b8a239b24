"""Models with drawn weights: nothing is fitted here."""

import numpy as np
import torch
from torch import Tensor

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.methods import METHODS
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.inference.checks import RatioCheck, check_log_ratio

X_DIM, Y_DIM = 2, 3


def rows(n: int) -> tuple[Tensor, Tensor]:
    x, y = np.random.default_rng(1).standard_normal((2, n, 3)).astype(np.float32)
    return torch.from_numpy(x[:, :X_DIM]), torch.from_numpy(y)


def model_of(key: str, replicas: int = 3, *, scale: float = 2.0) -> RatioModel:
    """One method, drawn weights; with what dv and cpc would have stored."""
    critic = build_critic("concat", replicas, X_DIM, Y_DIM, hidden=(8,))
    critic.reset(replica_generators(3, replicas))
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.mul_(scale)
    maps = Standardizer(replicas, X_DIM), Standardizer(replicas, Y_DIM)
    model = RatioModel(critic, *maps, [METHODS[key]] * replicas).eval().requires_grad_(False)
    if METHODS[key].reference == "constant":
        model.constant = torch.linspace(-0.2, 0.3, replicas)
    if METHODS[key].reference == "row":
        model.reference = rows(40)[1].expand(replicas, 40, Y_DIM)
    return model


def log_ratio_by_hand(model: RatioModel, replica: int, x: Tensor, y: Tensor) -> float:
    """Of one pair and one replica, from the definition of the read-out."""
    one, method = model.select([replica]), model.methods[replica]
    score = one.critic.pairs(x[None, None], y[None, None])
    value = method.read_out(score).item() - one.constant.item()
    if len(one.reference[0]):
        over = [one.critic.pairs(x[None, None], r[None, None]).item() for r in one.reference[0]]
        value -= float(np.log(np.mean(np.exp(over))))
    return value


def check_matrix(log_ratio: object, groups: Tensor | None = None, **options: object) -> RatioCheck:
    """The check of every x with every y, (n, n), pairs on the diagonal; groups: (n,)."""
    scores = torch.as_tensor(log_ratio)[None]
    names = torch.arange(scores.shape[1]) if groups is None else groups
    joint, product = torch.eye(len(names))[None], (names[:, None] != names)[None]
    return check_log_ratio(scores, joint, product, groups=names[None], **options)
