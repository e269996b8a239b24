"""From a calibration to a model that answers, and what the calibration leaves in doubt."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from pointdep.core.critics.base import Critic
from pointdep.core.methods import get_method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.estimators import calibration
from pointdep.estimators.calibration import BY_LEVEL, combine, parts_of, pulls
from pointdep.estimators.embeddings import Source
from pointdep.estimators.fit_rows import PairedRows

# A critic that is not trained: logits from elsewhere, moved and stretched to log r.

_CELLS = 1 << 24  # logits of queries with reference candidates, alive at a time


BUFFERS = ("weights", "reference", "part", "influence", "names")
"""What a calibration has found, as a saved model holds it."""


class CalibratedCritic(Critic):
    """log r = slope * logit + shift, by R calibrations of the same logits.

    weights: (R, k), the slope and the shift, and with queries of side "x" or "y" how the levels of
    a query's logits over `reference` are mixed (see `levels`). reference: (N, d) candidates, (0, d)
    without queries; part: (N,), the fold of each. Replica r leaves out its own fold's, those of
    `kept[r]`: their pairs are what it reports. Rows are the same for all replicas.
    influence: (R, m, k), of each calibration row on the weights; names: (m,), its group.
    """

    weights: Tensor
    reference: Tensor
    part: Tensor
    influence: Tensor
    names: Tensor
    kept: Tensor
    temperature: Tensor

    def __init__(
        self, source: Source, *buffers: Tensor, queries: str | None, temperature: float
    ) -> None:
        """buffers: those of `BUFFERS`, in this order."""
        super().__init__(len(buffers[0]))
        self.source, self.queries = source, queries
        self.has_inner = source.has_inner
        for name, values in zip(BUFFERS, buffers, strict=True):
            self.register_buffer(name, values)
        self.register_buffer("kept", torch.arange(len(self.weights)))
        self.register_buffer("temperature", torch.tensor(temperature))

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        return self.weights[:, :1] * self.source.pairs(x[0], y[0]) + self._own(x[0], y[0])

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self.source.matrix(x[0], y[0])
        slope = self.weights[:, 0].view(-1, *[1] * logits.ndim)
        if self.queries is None:
            return slope * logits + self.weights[:, 1].view_as(slope)
        rows = x[0] if self.queries == "x" else y[0]
        own = self._of_queries(rows.reshape(-1, rows.shape[-1]))
        own = own.view(len(own), *rows.shape[:-1])
        return slope * logits + own.unsqueeze(-1 if self.queries == "x" else -2)

    def inner_x(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """One vector for all replicas, whose mean over them is what is asked for."""
        vectors = self.weights[:, 0].mean() * self.source.vectors_x(x[0])
        if self.queries == "y":
            return vectors.unsqueeze(0), x.new_zeros(x.shape[:-1])
        return vectors.unsqueeze(0), self._own(x[0], x[0])

    def inner_y(self, y: Tensor) -> tuple[Tensor, Tensor | None]:
        own = self._of_queries(y[0]) if self.queries == "y" else None
        return self.source.vectors_y(y[0]).unsqueeze(0), own

    def select(self, replicas: Sequence[int]) -> CalibratedCritic:
        chosen = copy.copy(self)
        chosen.replicas = len(replicas)
        chosen._buffers = dict(self._buffers)
        index = torch.as_tensor(list(replicas), device=self.weights.device)
        for name in ("weights", "kept", "influence"):
            setattr(chosen, name, getattr(self, name)[index])
        return chosen

    def read_out(self, logits: Tensor, reference: Tensor | None) -> Tensor:
        """Mean log r of logits, of any shape, or of queries (n, m) with reference (n, N)."""
        if reference is None:
            weights = self.weights.to(logits).mean(0)
            return weights[0] * logits + weights[1]
        everything = torch.ones_like(reference, dtype=torch.bool)
        heat = float(self.temperature)
        own = self._from_levels(combine([parts_of(reference, everything, heat)], heat))
        return self.weights[:, 0].to(logits).mean() * logits + own.mean(0).unsqueeze(-1)

    def influence_on_mean(self, x: Tensor, y: Tensor) -> Tensor:
        """Of each calibration row on the mean log r of pairs x: (n, dx), y: (n, dy): (m,)."""
        logits = self.source.pairs(x, y)
        if self.queries is None:
            means = torch.stack([logits.mean(), logits.new_ones(())])
            return (self.influence @ means).mean(0)
        with_reference, used = self._with_reference(x if self.queries == "x" else y)
        level = self._levels(with_reference, used)
        means = calibration.columns(logits.to(level), level).mean(1)
        means = torch.cat([means[:, :1], torch.ones_like(means[:, :1]), means[:, 1:]], 1)
        by_level = self.weights.to(level) @ BY_LEVEL.T.to(level)
        asked = by_level[:, None, :, None].expand(-1, len(x), -1, 1) / by_level.shape[0] / len(x)
        used_by = self.kept.unsqueeze(1) != self.part
        pulled = pulls(with_reference, used, used_by, level, asked, float(self.temperature))
        return (self.influence @ means.unsqueeze(-1)).mean(0)[:, 0] + pulled.sum(0)[:, 0]

    def _own(self, x: Tensor, y: Tensor) -> Tensor:
        """What is added to slope * logit of paired rows: (R, n), or (R, 1) without queries."""
        if self.queries is None:
            return self.weights[:, 1:2].expand(-1, len(x))
        return self._of_queries(x if self.queries == "x" else y)

    def _of_queries(self, rows: Tensor) -> Tensor:
        """The same of queries alone: (n, d) -> (R, n)."""
        parts = torch.split(rows, max(1, _CELLS // max(1, len(self.reference))))
        found = [self._from_levels(self._levels(*self._with_reference(part))) for part in parts]
        return torch.cat(found, 1).to(rows)

    def _with_reference(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of queries (n, d) with the reference, and which of them count: (n, N) each."""
        if self.queries == "x":
            logits = self.source.matrix(rows, self.reference)
            same = self.source.same_row(rows, self.reference)
        else:
            logits = self.source.matrix(self.reference, rows).T
            same = self.source.same_row(self.reference, rows)
            same = None if same is None else same.T
        return logits, torch.ones_like(logits, dtype=torch.bool) if same is None else ~same

    def _levels(self, logits: Tensor, used: Tensor) -> Tensor:
        """By the logits of queries with the reference, (n, N), for each replica: (R, n, COUNT)."""
        heat = float(self.temperature)
        parts = {
            fold: parts_of(logits[:, self.part == fold], used[:, self.part == fold], heat)
            for fold in torch.unique(self.part).tolist()
        }
        others = [[p for fold, p in parts.items() if fold != own] for own in self.kept.tolist()]
        return torch.stack([combine(some, heat) for some in others])

    def _from_levels(self, level: Tensor) -> Tensor:
        """What is added to slope * logit, of levels (R, n, COUNT) or (n, COUNT): (R, n)."""
        slope, shift, *mix = self.weights.to(level).unsqueeze(-1).unbind(1)
        first = level[..., 0]
        excess = torch.zeros_like(first)
        for k, weight in enumerate(mix, 1):
            excess = excess + weight * (first - level[..., k])
        return shift - slope * first + excess

    def stderr(self, influences: Tensor) -> float:
        """Of what the calibration rows have these influences on, (m,)."""
        return calibration.summed_stderr(influences.cpu(), self.names.cpu().numpy())


class Unchanged(Standardizer):
    """Rows as they are: what an outside model takes must not be rescaled."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    def select(self, replicas: list[int]) -> Unchanged:
        return Unchanged(len(replicas), self.mean.shape[1]).to(self.mean.device)


def calibrated_model(
    source: Source, found: calibration.Calibration, rows: PairedRows, side: str | None
) -> RatioModel:
    """side: the queries, "x" or "y", whose levels are taken over the rows' other side; or None."""
    candidates = rows.x if side == "y" else rows.y
    kept = slice(None if side is not None else 0)
    rows_of, fold, names = map(torch.from_numpy, (found.rows[kept], found.fold[kept], found.names))
    reference, influence = candidates[rows_of.to(candidates.device)], found.influence.float()
    buffers = found.weights.float(), reference, fold, influence, names
    critic = CalibratedCritic(source, *buffers, queries=side, temperature=found.temperature)
    return assembled(critic, rows.x.shape[1], rows.y.shape[1]).to(rows.x.device)


def assembled(critic: CalibratedCritic, x_dim: int, y_dim: int) -> RatioModel:
    """A model of this critic, on rows as they are."""
    count = critic.replicas
    maps = Unchanged(count, x_dim), Unchanged(count, y_dim)
    model = RatioModel(critic, *maps, [get_method("pc")] * count, "log_ratio")
    return model.eval().requires_grad_(False)
