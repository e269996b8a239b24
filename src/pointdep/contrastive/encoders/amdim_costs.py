"""The costs AMDIM learns from: one vector of a view against all cells of a map of the other."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from pointdep.contrastive.distributed import all_sum, gather, row_counts, world
from pointdep.contrastive.encoders.amdim import FeatureMaps
from pointdep.contrastive.losses import LOSSES
from pointdep.core.methods import get_method
from pointdep.errors import InputError, unknown_name

_RATIO_SCORES = {"drfc", "rpc"}  # scores near r and not log r: they are used as they are
_WHOLE_MATRIX = {"dm2"}  # not a mean over rows, so that each process needs all of them


class GlobalToLocalCosts(NamedTuple):
    """`total` is to be minimised: the three costs and the regulariser, each a scalar."""

    total: Tensor
    one_to_five: Tensor
    one_to_seven: Tensor
    five_to_five: Tensor
    regulariser: Tensor


class GlobalToLocal(nn.Module):
    """The sum of the costs 1->5, 1->7 and 5->5, each the mean of view 1->2 and view 2->1.

    In the cost a->b the vector of image i from map a of one view meets every cell of map b of the
    other, of all images: the cells of image i are samples of the joint, those of the OTHER images
    samples of the product. The source of 5->5 is one cell per image, drawn at random. A score is
    the inner product over sqrt(n_rkhs).

    cpc, pcc, variational, dm1 and dm2, whose scores are log r, add `regulariser` times the mean
    squared score and then clip it smoothly, clip * tanh(s / clip). drfc (in its relative form,
    `alpha`) and rpc do neither. cpc's value is relative to chance, as everywhere in this library:
    it differs from a plain cross-entropy by the log of the number of candidates.

    With torch.distributed the cells of all processes are compared, and every process returns the
    cost of the joined batch (see `pointdep.contrastive.distributed`).
    """

    def __init__(
        self,
        objective: str,
        *,
        alpha: float = 0.01,
        clip: float = 20.0,
        regulariser: float = 0.05,
    ) -> None:
        super().__init__()
        if objective not in LOSSES:
            raise unknown_name("objective", objective, LOSSES)
        if not 0.0 <= alpha < 1.0:
            raise InputError(f"alpha={alpha} is outside [0, 1)")
        if clip <= 0.0 or regulariser < 0.0:
            raise InputError(
                f"clip={clip} must be above zero and regulariser={regulariser} not below it"
            )
        self.name = objective
        options = {"alpha": alpha} if objective == "drfc" else {}
        self.objective = get_method(LOSSES[objective].method_key, options).objective
        self.clip, self.regulariser = clip, regulariser

    def forward(
        self,
        maps1: FeatureMaps,
        maps2: FeatureMaps,
        *,
        cells: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> GlobalToLocalCosts:
        """The costs of two views of the same n images.

        cells: (2, n), which of the 25 cells of each view is the source of 5->5; drawn from
        `generator` (of the maps' device) unless given.
        """
        n, device = len(maps1.one), maps1.one.device
        if cells is None:
            cells = torch.randint(25, (2, n), generator=generator, device=device)
        sources1, sources2 = _Sources.of(maps1, cells[0]), _Sources.of(maps2, cells[1])
        five1, five2 = _joined_cells(maps1.five), _joined_cells(maps2.five)
        seven1, seven2 = _joined_cells(maps1.seven), _joined_cells(maps2.seven)
        if len(five1) < 2:
            raise InputError("a batch of one image has no product samples: two are needed")
        counts = row_counts(maps1.one)
        start = sum(counts[: world()[0]])
        if self.name in _WHOLE_MATRIX:
            sources1, sources2, start = sources1.joined(), sources2.joined(), 0
        parts = torch.stack(
            [
                self._both_ways((sources1.one, five2), (sources2.one, five1), start),
                self._both_ways((sources1.one, seven2), (sources2.one, seven1), start),
                self._both_ways((sources1.five, five2), (sources2.five, five1), start),
            ]
        )
        if self.name not in _WHOLE_MATRIX:
            parts = all_sum(parts * (n / sum(counts)))
        costs, squares = parts.unbind(1)
        regulariser = squares.sum()
        return GlobalToLocalCosts(
            costs.sum() + regulariser, costs[0], costs[1], costs[2], regulariser
        )

    def _both_ways(
        self, there: tuple[Tensor, Tensor], back: tuple[Tensor, Tensor], start: int
    ) -> Tensor:
        """The cost and the regulariser, (2,), as the mean of two directions."""
        return (self._cost(*there, start) + self._cost(*back, start)) / 2

    def _cost(self, source: Tensor, cells: Tensor, start: int) -> Tensor:
        """The cost and the regulariser, (2,). source: (rows, d), cells: (images, L, d).

        Row i is of image start + i.
        """
        images, places, width = cells.shape
        scores = source @ cells.flatten(0, 1).T
        # The product may run in half precision; what is made of it may not.
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) / width**0.5
        squares = scores.new_zeros(())
        if self.name not in _RATIO_SCORES:
            squares = self.regulariser * scores.square().mean()
            scores = self.clip * torch.tanh(scores / self.clip)
        rows = torch.arange(start, start + len(source), device=scores.device)
        own = rows[:, None] == torch.arange(images, device=scores.device)
        joint = own[:, :, None].expand(-1, -1, places).flatten(1)
        return torch.stack([-self.objective(scores, joint=joint, product=~joint), squares])


class _Sources(NamedTuple):
    """The vectors of one view that predict the other: its 1x1 map, and a cell of its 5x5 map."""

    one: Tensor  # (n, d)
    five: Tensor  # (n, d)

    @classmethod
    def of(cls, maps: FeatureMaps, cells: Tensor) -> _Sources:
        chosen = maps.five.flatten(2).take_along_dim(cells[:, None, None], 2)
        return cls(maps.one, chosen.squeeze(2))

    def joined(self) -> _Sources:
        return _Sources(gather(self.one), gather(self.five))


def _joined_cells(feature_map: Tensor) -> Tensor:
    """The cells of all processes: (n, d, h, w) -> (images, h * w, d)."""
    return gather(feature_map.flatten(2).transpose(1, 2))
