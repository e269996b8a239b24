"""The default critics: the Gaussian closed form of log r, and a network for what it misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.core.critics.base import Critic, Factors, SideNet
from pointdep.core.critics.concat import ConcatCritic
from pointdep.core.critics.inner import SeparableCritic
from pointdep.core.critics.table import TableCritic
from pointdep.core.linear import Canonical, gaussian_matrix, gaussian_terms
from pointdep.core.transforms import CanonicalMap, PickedMap, WaveMap, fill

_HIDDEN = ((50_000, (256, 64)), (5_000, (128, 64)), (0, (128, 32)))  # from so many rows on
_HIDDEN_WIDE = ((129, (512, 512)), (0, (256, 256)))  # from so many columns on
_Score = Callable[[Tensor, Tensor], Tensor]
_DROPPED = 0.2  # share of the inputs that a training step does not see


class _ClosedFormCritic(Critic):
    """A critic of log r that holds the closed form of Gaussian pairs, and a network beside it.

    correlations: (R, k), the canonical correlations of the closed form, given and not trained.
    shrunk: whether they are smaller than those of the data because these are not Gaussian.
    label: the side, "x" or "y", that is one column of categories, which is never Gaussian.
    """

    ranked = True
    models_log_ratio = True
    has_inner = True
    has_closed_form = True

    def __init__(self, replicas: int, x_dim: int, y_dim: int, label: str = "") -> None:
        super().__init__(replicas)
        self.label = label
        self.correlations = nn.Buffer(torch.zeros(replicas, min(x_dim, y_dim)))
        self.shrunk = False

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        u, v = self._coordinates(x, "x"), self._coordinates(y, "y")
        return self._with_unrelated(gaussian_matrix(u, v, self.correlations))

    def _with_unrelated(self, log_ratio: Tensor) -> Tensor:
        """log r of a mixture in which some pairs are not related, from that of the others."""
        return log_ratio

    def _coordinates(self, rows: Tensor, side: str) -> Tensor:
        """Canonical coordinates of x or y: (R, ..., n, d) -> (R, ..., n, k)."""
        raise NotImplementedError


class ResidualCritic(_ClosedFormCritic):
    """log r(x, y) = Gaussian closed form of canonical coordinates + a perceptron from zero.

    Both sides come as `CanonicalMap` gives them. The closed form is that of Gaussian pairs with the
    canonical correlations (R, k), which are given and not trained. A share e of the pairs may be
    unrelated, `unrelated`, (R, 1): then the closed form g becomes log(e + (1 - e) exp g).

    If one side is a label of L levels, say y, the sum s(x, y) of both is normalised exactly,

        log r(x, y) = s(x, y) - log sum_l p(l) exp s(x, l),

    with the frequencies p of the training rows: a softmax classifier. Its closed form is then
    linear discriminant analysis. levels: (R, L, d), the mapped rows of the levels; log_shares:
    (R, L), their log p.
    """

    side_map: type[CanonicalMap] = WaveMap
    mixes = True  # the share of unrelated pairs is a part of its state
    informed = True

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 64),
        activation: str = "silu",
        label: str = "",
    ) -> None:
        x_dim, y_dim = self.side_map.kept(x_dim), self.side_map.kept(y_dim)
        super().__init__(replicas, x_dim, y_dim, label)
        widths = [self.side_map.out_dim(dim) for dim in (x_dim, y_dim)]
        self.net = ConcatCritic(replicas, *widths, hidden=hidden, activation=activation)
        self.net.x_half, self.net.y_half = (
            SideNet(replicas, width, hidden[0], sum(widths), activation) for width in widths
        )
        self.unrelated: Tensor = nn.Buffer(torch.zeros(replicas, 1), persistent=self.mixes)
        if label:
            count, width = (x_dim, widths[0]) if label == "x" else (y_dim, widths[1])
            self.levels: Tensor = nn.Buffer(torch.zeros(replicas, count, width))
            self.log_shares: Tensor = nn.Buffer(torch.zeros(replicas, count))

    @classmethod
    def for_data(cls, *, wide: bool) -> type[Critic]:
        return TowersCritic if wide else cls

    @classmethod
    def for_table(cls) -> type[Critic]:
        return TableCritic

    @classmethod
    def hidden_for(cls, rows: int, columns: int) -> Sequence[int] | str:
        del columns
        return next(widths for least, widths in _HIDDEN if rows >= least)

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        self.net.reset(generators)
        self.silence()

    def set_canonical(self, replica: int, found: Canonical) -> None:
        fill(self.correlations[replica], found.correlations)

    def set_levels(self, levels: Tensor, shares: Tensor) -> None:
        self.levels, self.log_shares = levels.to(self.levels), shares.log().to(self.log_shares)

    def silence(self) -> None:
        for parameter in self.net.rest.layers[-1].parameters():
            parameter.data.zero_()

    @property
    def silent(self) -> bool:
        return all(not bool(parameter.any()) for parameter in self.net.rest.layers[-1].parameters())

    @property
    def inner_is_all(self) -> bool:
        return self.silent and not bool(self.unrelated.any())

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u = self._coordinates(x, "x")
        own, _, cross = gaussian_terms(u, u, self.correlations)
        return cross, own - self._normaliser(x) if self.label == "y" else own

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        v = self._coordinates(y, "y")
        own = gaussian_terms(v, v, self.correlations)[1]
        return v, own - self._normaliser(y) if self.label == "x" else own

    def cell_width(self) -> int:
        return self.net.cell_width() * (self.levels.shape[1] if self.label else 1)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        if self.label:
            label, rows = (x, y) if self.label == "x" else (y, x)
            return (self._by_level(rows, self._sum) * self._indicators(label)).sum(-1)
        u, v = self._coordinates(x, "x"), self._coordinates(y, "y")
        own_x, own_y, cross = gaussian_terms(u, v, self.correlations)
        found = self._with_unrelated(own_x + own_y + (cross * v).sum(-1))
        return self.net.pairs(x, y) + found

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        return self._normalised(x, y, self._sum)

    def closed_form(self, x: Tensor, y: Tensor) -> Tensor:
        return self._normalised(x, y, super().closed_form)

    def _sum(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net.matrix(x, y) + super().closed_form(x, y)

    def _coordinates(self, rows: Tensor, side: str) -> Tensor:
        del side  # a `CanonicalMap` has been there
        return rows[..., : self.correlations.shape[1]]

    def _with_unrelated(self, log_ratio: Tensor) -> Tensor:
        share = self.unrelated.view(-1, *[1] * (log_ratio.ndim - 1))
        return torch.logaddexp(share.log(), torch.log1p(-share) + log_ratio)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        # Models that were saved before it was known have no such share.
        if self.mixes:
            state_dict.setdefault(f"{prefix}unrelated", torch.zeros_like(self.unrelated))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _normalised(self, x: Tensor, y: Tensor, score: _Score) -> Tensor:
        """Scores of all pairs: log r, if a side is a label."""
        if self.label == "x":
            return self._indicators(x) @ self._by_level(y, score).mT
        return self._by_level(x, score) @ self._indicators(y).mT if self.label else score(x, y)

    def _by_level(self, rows: Tensor, score: _Score) -> Tensor:
        """log r of rows of the other side with each level: (R, ..., n, d) -> (R, ..., n, L)."""
        flat = rows.reshape(rows.shape[0], -1, rows.shape[-1])
        scores = score(self.levels, flat).mT if self.label == "x" else score(flat, self.levels)
        scores = scores - self._log_mean(scores).unsqueeze(-1)
        return scores.view(*rows.shape[:-1], -1)

    def _normaliser(self, rows: Tensor) -> Tensor:
        """What the closed form of rows, (R, n, d), is too large by: (R, n)."""
        score = super().closed_form
        scores = score(self.levels, rows).mT if self.label == "x" else score(rows, self.levels)
        return self._log_mean(scores)

    def _log_mean(self, scores: Tensor) -> Tensor:
        """log of the mean of exp(scores) over the levels: (R, n, L) -> (R, n)."""
        shares = self.log_shares.unsqueeze(1)
        # Of shares that add up to one but for rounding, so that scores of zero have a mean of zero.
        return torch.logsumexp(scores + shares, -1) - torch.logsumexp(shares, -1)

    def _indicators(self, rows: Tensor) -> Tensor:
        """One-hot levels of rows of the label: (R, ..., n, d) -> (R, ..., n, L)."""
        flat = rows.reshape(rows.shape[0], -1, rows.shape[-1])
        nearest = torch.cdist(flat, self.levels).argmin(-1)  # mapped again, up to rounding
        found = F.one_hot(nearest, self.levels.shape[1]).to(rows.dtype)
        return found.view(*rows.shape[:-1], -1)


class EarlyResidualCritic(ResidualCritic):
    """The `ResidualCritic` of models that were saved before it knew waves and unrelated pairs."""

    side_map = CanonicalMap
    mixes = False


class PickedCritic(ResidualCritic):
    """The `ResidualCritic` of a few of many columns, which hold what the closed form cannot see."""

    side_map = PickedMap
    screened = True


class TowersCritic(_ClosedFormCritic):
    """log r(x, y) = a Gaussian closed form + b g(x) . h(y) + c.

    The towers g and h are trained alone, on inputs of which each step drops some; how much of each
    part is right, (a, b, c), is decided afterwards by `set_mixture`. With many columns a network
    finds more from scratch than as an addition to the closed form, whose errors it would first have
    to undo. All of it is an inner product with terms of x and of y alone.
    """

    wide = True
    default_activation = "relu"
    separable = True
    draws = True
    is_mixture = True

    def __init__(
        self,
        replicas: int,
        x_dim: int,
        y_dim: int,
        *,
        hidden: Sequence[int] = (256, 256),
        embedding_dim: int = 64,
        activation: str = "relu",
        label: str = "",
    ) -> None:
        super().__init__(replicas, x_dim, y_dim, label)
        how: dict[str, Any] = {"hidden": hidden, "activation": activation}
        self.towers = SeparableCritic(replicas, x_dim, y_dim, embedding_dim=embedding_dim, **how)
        kept = min(x_dim, y_dim)
        self.x_mean: Tensor = nn.Buffer(torch.zeros(replicas, x_dim))
        self.x_weight: Tensor = nn.Buffer(torch.zeros(replicas, x_dim, kept))
        self.y_mean: Tensor = nn.Buffer(torch.zeros(replicas, y_dim))
        self.y_weight: Tensor = nn.Buffer(torch.zeros(replicas, y_dim, kept))
        self.mixture: Tensor = nn.Buffer(torch.tensor([0.0, 1.0, 0.0]).repeat(replicas, 1))

    @classmethod
    def hidden_for(cls, rows: int, columns: int) -> Sequence[int] | str:
        del rows
        return next(widths for least, widths in _HIDDEN_WIDE if columns >= least)

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        self.towers.reset(generators)
        self.set_mixture(0.0, 1.0, 0.0)

    def set_canonical(self, replica: int, found: Canonical) -> None:
        kept = min(len(found.correlations), self.correlations.shape[1])
        for name in ("x_weight", "y_weight", "correlations"):
            fill(getattr(self, name)[replica], getattr(found, name)[..., :kept])
        fill(self.x_mean[replica], found.x_mean)
        fill(self.y_mean[replica], found.y_mean)

    def set_mixture(self, closed_form: float, network: float, shift: float) -> None:
        self.mixture[:] = self.mixture.new_tensor([closed_form, network, shift])

    def silence(self) -> None:
        self.set_mixture(1.0, 0.0, 0.0)

    @property
    def silent(self) -> bool:
        return not bool(self.mixture[:, 1].any())

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        if self.training:
            return self.towers.matrix(*self._dropped(x, y))
        return super().matrix(x, y)

    def factors(self, x: Tensor, y: Tensor) -> Factors:
        if self.training:
            return self.towers.factors(*self._dropped(x, y))
        return super().factors(x, y)

    def network(self, x: Tensor, y: Tensor) -> Tensor:
        return self.towers.matrix(x, y)

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c = self._mixture(x.ndim)
        bias = self.towers.bias.view(-1, *[1] * (x.ndim - 2))
        vector, own = self.towers.embed_x(x) * b.unsqueeze(-1), (c + b * bias).expand(x.shape[:-1])
        if not bool(self.mixture[:, 0].any()):
            return vector, own
        u = self._coordinates(x, "x")
        own_x, _, cross = gaussian_terms(u, u, self.correlations)
        return torch.cat([vector, a.unsqueeze(-1) * cross], -1), own + a * own_x

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        vector = self.towers.embed_y(y)
        if not bool(self.mixture[:, 0].any()):
            return vector, None
        v = self._coordinates(y, "y")
        own_y = gaussian_terms(v, v, self.correlations)[1]
        return torch.cat([vector, v], -1), self._mixture(y.ndim)[0] * own_y

    def _mixture(self, ndim: int) -> tuple[Tensor, Tensor, Tensor]:
        """a, b and c, each (R, 1, ...), for rows of x with `ndim` dimensions."""
        a, b, c = self.mixture.view(-1, 3, *[1] * (ndim - 2)).unbind(1)
        return a, b, c

    def _coordinates(self, rows: Tensor, side: str) -> Tensor:
        mean, weight = getattr(self, f"{side}_mean"), getattr(self, f"{side}_weight")
        flat = rows.reshape(rows.shape[0], -1, rows.shape[-1]) - mean.unsqueeze(1)
        return torch.bmm(flat, weight).view(*rows.shape[:-1], -1)

    def _dropped(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The same inputs for all replicas, so that none depends on which others still train.

        A part of a batch drops what it would drop in the whole.
        """

        def drop(rows: Tensor) -> Tensor:
            if self.batch_part is None:
                drawn = torch.rand(rows.shape[1:], device=rows.device)
            else:
                count, own = self.batch_part
                drawn = torch.rand((count, rows.shape[-1]), device=rows.device)[own]
            return rows * ((drawn >= _DROPPED) / (1.0 - _DROPPED))

        return drop(x), drop(y)
