"""R estimates of log r(x,y) in one module: what is trained, saved and asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pointdep.core.blocked import InnerScores
from pointdep.core.critics.base import Critic
from pointdep.core.methods import Method
from pointdep.core.transforms import CanonicalMap, RankMap, Standardizer
from pointdep.errors import unknown_name

LINKS = ("score", "log_ratio", "asinh")
"""What a critic's output t stands for: the method's score, log r, or r - 1/r."""

_ROWS = 1 << 16  # mapped at a time
_CELL_NUMBERS = 1 << 22  # alive at a time
_MARGIN = 1.0  # nats of log r
_SCORE_MARGIN = 0.75  # of a rank map: about one standard deviation past the last value


class RatioModel(nn.Module):
    """Standardise, score with the critic, read out.

    `methods` names one method per replica, so that replicas with different objectives can train in
    one run. With ``link="log_ratio"`` the critic models log r and the method's inverse read-out
    turns that into its score; with ``"asinh"`` it models r - 1/r, so that log r = asinh(t / 2).
    Both keep r positive, where the plain score of `drf` may fall below zero; the second behaves
    like r itself where r is large, and its logarithm runs away slowly where r is small.
    """

    def __init__(
        self,
        critic: Critic,
        x_map: Standardizer | CanonicalMap,
        y_map: Standardizer | CanonicalMap,
        methods: Sequence[Method],
        link: str = "score",
        fronts: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if link not in LINKS:
            raise unknown_name("link", link, LINKS)
        self.critic, self.x_map, self.y_map = critic, x_map, y_map
        self.x_front, self.y_front = fronts or (nn.Identity(), nn.Identity())
        self.methods, self.link = tuple(methods), link
        self._groups = MethodGroups(self.methods)
        # seen: the lowest and highest log r that pairs and mismatched pairs of the fit had, (2,).
        # dv: log E_M[exp s], (R,). cpc: a sample of y, (R, N, dy), N = 0 until it is stored.
        self.constant: Tensor = nn.Buffer(torch.zeros(critic.replicas))
        self.seen: Tensor = nn.Buffer(torch.tensor([-torch.inf, torch.inf]))
        self.reference: Tensor = nn.Buffer(torch.zeros(critic.replicas, 0, y_map.mean.shape[1]))

    @property
    def replicas(self) -> int:
        return self.critic.replicas

    @property
    def answered(self) -> str:
        """What of a default critic gives log r, in words; "" for other critics."""
        if not self.critic.has_closed_form:
            return "low-rank table" if self.critic.is_table else ""
        return "closed form alone" if self.critic.silent else "closed form and network"

    @torch.no_grad()
    def prepare(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The maps that all replicas share, applied once: what the other calls take.

        x: (n, dx), y: (m, dy), each returned where it was.
        """
        return self.prepare_side(x, "x"), self.prepare_side(y, "y")

    @torch.no_grad()
    def prepare_side(self, rows: Tensor, side: str) -> Tensor:
        """`prepare` of one side alone, "x" or "y"."""
        front = self.x_front if side == "x" else self.y_front
        parts = torch.split(rows, _ROWS)
        return torch.cat([front(part.to(self.constant.device)).to(rows.device) for part in parts])

    def select(self, replicas: Sequence[int]) -> RatioModel:
        """A copy that holds only these replicas."""
        keep = list(replicas)
        maps = self.x_map.select(keep), self.y_map.select(keep)
        methods, fronts = [self.methods[r] for r in keep], (self.x_front, self.y_front)
        chosen = RatioModel(self.critic.select(keep), *maps, methods, self.link, fronts)
        chosen.constant, chosen.reference = self.constant[keep], self.reference[keep]
        chosen.seen = self.seen.clone()
        return chosen

    def per_method(self, function: Callable[[Method, Tensor], Tensor], values: Tensor) -> Tensor:
        """Apply function(method, part) to the replicas of each method; values: (R, ...)."""
        return self._groups.apply(function, values)

    def raw_matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """The critic's output. x: (R, ..., n, dx), y: (R, ..., m, dy) -> (R, ..., n, m)."""
        return self.critic.matrix(self.x_map(x), self.y_map(y))

    def raw_blocks(self, x: Tensor, y: Tensor) -> Tensor:
        """`raw_matrix` of x: (R, G, n, dx), y: (R, G, n, dy), a few blocks of G at a time."""
        width = self.critic.cell_width() * self.replicas * y.shape[2] ** 2
        parts = (torch.split(side, max(1, _CELL_NUMBERS // width), 1) for side in (x, y))
        return torch.cat([self.raw_matrix(*part) for part in zip(*parts, strict=True)], 1)

    def inner_scores(self, x: Tensor, y: Tensor) -> InnerScores:
        """`raw_matrix` of a separable critic, without the matrix.

        x: (R, G, n, dx), y: (R, G, n, dy); the parts, G, are taken together.
        """
        vectors_x, vectors_y, own_x, own_y = self.critic.factors(self.x_map(x), self.y_map(y))
        return InnerScores(vectors_x, vectors_y, own_x, own_y, parts=True)

    def scores(self, raw: Tensor) -> Tensor:
        """The method's scores of the critic's output, any shape (R, ...)."""
        if self.link == "score":
            return raw
        return self.per_method(lambda method, part: method.inverse(part), self._log_ratio(raw))

    def linked(self, method: Method, raw: InnerScores) -> InnerScores:
        """`scores` without the matrix, of replicas with this method."""
        if self.link == "score":
            return raw
        return raw.linked(lambda inner: method.inverse(self._log_ratio(inner)))

    def log_ratio_pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """log r of the pairs. x: (R, n, dx), y: (R, n, dy) -> (R, n)."""
        x, y = self.x_map(x), self.y_map(y)
        return self._read_out(self.critic.pairs(x, y)) - self._reference(x)

    def log_ratio_matrix(self, x: Tensor, y: Tensor, offset: Tensor | None = None) -> Tensor:
        """log r of all pairs, in blocks. x: (R, n, dx), y: (R, m, dy) -> (R, n, m).

        offset: that of x, where it is known already.
        """
        x, y = self.x_map(x), self.y_map(y)
        raw = self.critic.matrix_in_blocks(x, y)
        offset = self._reference(x) if offset is None else offset
        return self._read_out(raw) - offset.unsqueeze(-1)

    def offset(self, x: Tensor) -> Tensor:
        """What is taken off the read-out. x: (R, n, dx) -> (R, n), or (R, 1) where it is constant.

        For `cpc` it costs as much as many pairs.
        """
        return self._reference(self.x_map(x))

    @property
    def has_inner(self) -> bool:
        """Whether there are vectors whose inner product is log r or a first guess of its rank."""
        return self.critic.has_inner and (self._adds or not self.reference.shape[1])

    @property
    def inner_is_exact(self) -> bool:
        """Whether `inner_x` and `inner_y` give log r itself, the mean over the replicas."""
        return self.has_inner and self._adds and self.critic.inner_is_all

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of x, (n, R e), and its own term, (n,), all replicas together; x: (n, dx).

        Where `inner_is_exact`, log r = vector_x . vector_y + own_x + own_y; else that is the part
        of the critic's output that can be searched.
        """
        mapped = self.x_map(x.expand(self.replicas, *x.shape))
        vectors, own = self.critic.inner_x(mapped)
        if self._adds:
            own = own + self._read_out(torch.zeros_like(own)) - self._reference(mapped)
        # A critic whose replicas share their vectors gives them once.
        return vectors.transpose(0, 1).flatten(1) / len(vectors), own.mean(0)

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same of y: (m, dy) -> (m, R e), and (m,) or None where it has no term of its own."""
        vectors, own = self.critic.inner_y(self.y_map(y.expand(self.replicas, *y.shape)))
        return vectors.transpose(0, 1).flatten(1), None if own is None else own.mean(0)

    @property
    def _adds(self) -> bool:
        """Whether log r is the critic's output plus something, rather than a curve of it."""
        curved = any(method.scores_ratio for method in self.methods)
        return self.link == "log_ratio" or (self.link == "score" and not curved)

    def log_ratio_blocks(self, x: Tensor, y: Tensor, offset: Tensor | None = None) -> Tensor:
        """log r within blocks. x: (R, G, a, dx), y: (R, G, b, dy) -> (R, G, a, b).

        offset: that of x, (R, G a) or (R, 1), where it is known already.
        """
        x, y = self.x_map(x), self.y_map(y)
        offset = self._reference(x.flatten(1, 2)) if offset is None else offset
        shape = x.shape[:-1] if offset.shape[1] > 1 else (len(offset), 1, 1)
        return self._read_out(self.critic.matrix(x, y)) - offset.view(*shape, 1)

    @torch.no_grad()
    def outside(self, x: Tensor, y: Tensor, log_ratio: Tensor) -> Tensor:
        """(n,) boolean: pairs unlike any of the fit, whose log r, (n,), is an extrapolation.

        x: (n, dx), y: (n, dy), prepared. A value lies well beyond the values of its column, or log
        r beyond what pairs and mismatched pairs of the fit had.
        """
        found = (log_ratio < self.seen[0] - _MARGIN) | (log_ratio > self.seen[1] + _MARGIN)
        for side, front, own in ((x, self.x_front, self.x_map), (y, self.y_front, self.y_map)):
            if isinstance(front, RankMap):
                found = found | front.beyond(side, _SCORE_MARGIN)
            elif isinstance(own, Standardizer):
                found = found | own.beyond(side)
        return found

    def at_limit(self, log_ratio: Tensor) -> Tensor:
        """Boolean, same shape: the read-out stopped at a limit that is not in the data."""

        def stopped(method: Method, part: Tensor) -> Tensor:
            floor = method.options.get("floor") if method.reference == "none" else None
            if floor is None or self.link != "score":
                return torch.zeros_like(part, dtype=torch.bool)
            # 1e-3 is far above float32's rounding of log(1e-4) and far below any real spacing.
            limit = -math.log(floor) - 1e-3
            has_ceiling = method.options.get("alpha", 0.0) > 0 or method.options.get("b", 0.0) > 0
            return (part <= -limit) | (part >= limit) if has_ceiling else part <= -limit

        return self.per_method(stopped, log_ratio)

    def _read_out(self, raw: Tensor) -> Tensor:
        if self.link != "score":
            return self._log_ratio(raw)
        return self.per_method(lambda method, part: method.read_out(part), raw)

    def _log_ratio(self, raw: Tensor) -> Tensor:
        """log r of an output that stands for it, for the links other than "score"."""
        return raw if self.link == "log_ratio" else torch.asinh(0.5 * raw)

    def _reference(self, x: Tensor) -> Tensor:
        """What the read-out still lacks, of standardised x: (R, n, dx) -> (R, n) or (R, 1)."""
        offset = self.constant.unsqueeze(-1)
        if not self.reference.shape[1]:
            return offset
        y = self.y_map(self.reference)
        rows = max(1, _CELL_NUMBERS // (self.replicas * y.shape[1]))
        parts = (self.critic.matrix_in_blocks(part, y) for part in torch.split(x, rows, 1))
        normaliser = torch.cat([torch.logsumexp(self._read_out(part), -1) for part in parts], -1)
        return offset + normaliser - math.log(y.shape[1])


class MethodGroups:
    """Replicas with different methods side by side: those of each, in order of appearance."""

    def __init__(self, methods: Sequence[Method]) -> None:
        members: dict[Method, list[int]] = {}
        for replica, method in enumerate(methods):
            members.setdefault(method, []).append(replica)
        self.methods = tuple(members)
        self._rows = [_slice_or_list(rows) for rows in members.values()]
        order = [replica for rows in members.values() for replica in rows]
        self._back = torch.as_tensor(order).argsort()

    def apply(self, function: Callable[[Method, Tensor], Tensor], values: Tensor) -> Tensor:
        """function(method, part) of the replicas of each method; values: (R, ...) -> (R, ...)."""
        if len(self.methods) == 1:
            return function(self.methods[0], values)
        groups = zip(self.methods, self._rows, strict=True)
        parts = [function(method, values[rows]) for method, rows in groups]
        # Kept where it was used: a copy from the host cannot be part of a CUDA graph.
        self._back = self._back.to(values.device)
        return torch.cat(parts)[self._back]


def _slice_or_list(rows: list[int]) -> slice | list[int]:
    """Equally spaced rows as a slice, which needs no index on the device."""
    step = rows[1] - rows[0] if len(rows) > 1 else 1
    regular = range(rows[0], rows[-1] + 1, step)
    return slice(rows[0], rows[-1] + 1, step) if list(regular) == rows else rows
