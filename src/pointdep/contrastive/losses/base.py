"""What all losses share: `ContrastiveLoss`, for scores that are logarithms or ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from pointdep.contrastive.losses import collapse
from pointdep.contrastive.losses.cells import Cells
from pointdep.contrastive.losses.inputs import check_pairs, group_ids
from pointdep.contrastive.losses.options import (
    CriticLike,
    LossOptions,
    check_block_size,
    check_flags,
    check_negatives,
    check_positive,
)
from pointdep.contrastive.losses.precision import no_autocast, raised, transformed
from pointdep.contrastive.losses.scores import Scores, dimensions, loss_critic
from pointdep.core.methods import get_method
from pointdep.errors import Flag


class ContrastiveLoss(nn.Module):
    """``loss(z1, z2, groups=None)``: minus a learning objective of Table 1, to be minimised.

    Row i of z1, (n, d1), and row i of z2, (n, d2), are a pair; the other rows are its negatives.

    Options, all by keyword
    -----------------------
    normalize: bring rows to unit length. None: yes for the inner product, no for other critics.
    clip: bound the scores smoothly, ``clip * tanh(score / clip)``; None: not at all.
    learn_scale: make the temperature or scale a parameter, kept as its logarithm.
    critic: "inner", without weights of its own; "bilinear", "separable" or "concat"; a module
        called on paired rows; or two encoders whose inner product is the score.
    dims: (d1, d2), or one number for both, where a named critic has weights.
    negatives: "cross", z1 against z2; or "all", both views against both, as in SimCLR. Then an
        anchor meets all other representations of either view, and its positive is its other view;
        a critic with two sides takes the anchor on its x side.
    symmetric: in "all", the anchors are both views, or z1 alone where it is false. In "cross", CPC
        takes the mean of its row-wise and column-wise forms; the other objectives are sums over
        cells and do not change.
    gather: where `torch.distributed` is initialised, the batch is that of all processes: the value
        and, after DDP's mean, the gradients are those of one process with all rows. See
        `pointdep.contrastive.distributed`.
    block_size: rows of the score matrix at a time. "auto": all of them up to 2^26 numbers, then
        blocks of about 2^24; blocks are computed again in backward, so that the matrix never lives.

    groups: (n,) whole numbers. Cells between rows of one group are neither positives nor negatives.
    A batch of one group has no negatives: an error on the CPU, and a NaN on a device, which is not
    stopped to look.

    Half precision is raised to float32, and autocast is off inside; only a critic whose own weights
    are in half precision, after ``loss.half()``, runs in it. TF32 is left as you set it, see
    `pointdep.contrastive.losses.precision`.

    Derivatives of higher order are right too, as for a gradient penalty. Under `torch.func` (grad,
    vmap and so on) blocks are kept for the backward pass, and nothing for `flags`.
    """

    method_key: ClassVar[str]

    def __init__(
        self,
        method_options: Mapping[str, Any],
        multiplier: float | None,
        *,
        normalize: bool | None = None,
        clip: float | None = None,
        learn_scale: bool = False,
        critic: CriticLike = "inner",
        dims: int | tuple[int, int] | None = None,
        negatives: Literal["cross", "all"] = "cross",
        symmetric: bool = True,
        gather: bool = True,
        block_size: int | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        check_positive("clip", clip)
        check_negatives(negatives)
        check_block_size(block_size)
        check_flags(learn_scale=learn_scale, symmetric=symmetric, gather=gather)
        if normalize is not None:
            check_flags(normalize=normalize)
        self._own_options = dict(method_options)
        self.method = get_method(self.method_key, method_options)
        self.negatives, self.symmetric = negatives, symmetric
        self.gather, self.block_size = gather, block_size
        plain = isinstance(critic, str) and critic == "inner"
        unit = plain if normalize is None else normalize
        if multiplier is None:
            multiplier = self._default_multiplier() if plain and unit else 1.0
        self.dims = None if dims is None else dimensions(str(critic), dims)
        self.scores = Scores(
            loss_critic(critic, dims),
            normalize=unit,
            multiplier=multiplier,
            learn=learn_scale,
            clip=clip,
        )
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def objective(self, cells: Cells) -> Tensor:
        """The learning objective of the joined batch, (), maximised."""
        raise NotImplementedError

    def _default_multiplier(self) -> float:
        raise NotImplementedError

    def _shown_multiplier(self) -> dict[str, float]:
        raise NotImplementedError

    def forward(self, z1: Tensor, z2: Tensor, groups: Tensor | None = None) -> Tensor:
        """Minus the objective, (). z1: (n, d1), z2: (n, d2), groups: (n,) whole numbers."""
        both = self.negatives == "all"
        check_pairs(z1, z2, self.dims, same=both or self.scores.critic is None)
        with no_autocast(z1):
            rows = self.scores.rows(*raised(z1, z2))
            cells = Cells(
                self.scores,
                rows[0],
                rows[1],
                group_ids(groups, z1),
                both_views=both,
                symmetric=self.symmetric,
                joined=self.gather,
                block_size=None if self.block_size == "auto" else self.block_size,
            )
            loss = -self.objective(cells)
        # Looked at when asked: nothing is computed, or waited for, in training.
        last = rows[0].detach(), rows[1].detach(), loss.detach()
        self._last = None if transformed() else last  # tensors do not outlive a transform
        return loss

    @torch.no_grad()
    def pmi(self, z1: Tensor, z2: Tensor) -> Tensor:
        """log r of each pair, (n,), without gradient: a function of that pair alone.

        z1: (n, d1), z2: (n, d2). A read-out with a floor, r >= 1e-4, ends at -9.2.
        """
        check_pairs(z1, z2, self.dims, same=self.scores.critic is None)
        with no_autocast(z1):
            rows = self.scores.rows(*raised(z1, z2))
            anchors, candidates = self.scores.sides(*rows)
            return self.method.read_out(self.scores.pairs(anchors, candidates))

    @torch.no_grad()
    def pmi_matrix(self, z1: Tensor, z2: Tensor) -> Tensor:
        """log r of all pairs, in blocks. z1: (n, d1), z2: (m, d2) -> (n, m), without gradient."""
        check_pairs(z1, z2, self.dims, same=self.scores.critic is None, paired=False)
        with no_autocast(z1):
            rows = self.scores.rows(*raised(z1, z2))
            anchors, candidates = self.scores.sides(*rows)
            return self.method.read_out(self.scores.cells_in_blocks(anchors, candidates))

    @property
    def spread(self) -> float:
        """How much the rows of the last batch vary, the smaller of the two sides.

        0 where they are constant, 1 where they are centred; NaN before the first batch. On several
        processes: of the rows of this one.
        """
        if self._last is None:
            return math.nan
        sides = [collapse.spread(rows) for rows in self._last[:2] if len(rows) > 1]
        return min((float(side) for side in sides), default=math.nan)

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What is wrong with the last batch: "collapsed" or "diverged"."""
        if self._last is None:
            return ()
        limit = collapse.NORMALISED if self.scores.normalize else collapse.UNTOUCHED
        return collapse.flags(self.spread, float(self._last[2]), limit)

    def extra_repr(self) -> str:
        shown = {
            **self._own_options,
            **self._shown_multiplier(),
            "normalize": self.scores.normalize,
            "clip": self.scores.clip,
            "negatives": self.negatives,
            "symmetric": self.symmetric,
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def __getstate__(self) -> dict[str, Any]:
        # A copy, or what is pickled, does not take the last batch along.
        return {**self.__dict__, "_last": None}


class LogScoreLoss(ContrastiveLoss):
    """A loss whose score stands for log r: similarity / temperature."""

    default_temperature: ClassVar[float]

    def __init__(
        self,
        method_options: Mapping[str, Any],
        *,
        temperature: float | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        check_positive("temperature", temperature)
        multiplier = None if temperature is None else 1.0 / temperature
        super().__init__(method_options, multiplier, **options)

    def _default_multiplier(self) -> float:
        return 1.0 / self.default_temperature

    def _shown_multiplier(self) -> dict[str, float]:
        return {"temperature": float(f"{self.temperature:.6g}")}

    @property
    def temperature(self) -> float:
        """What similarities are divided by, as it is now."""
        return 1.0 / self.scores.strength


class RatioScoreLoss(ContrastiveLoss):
    """A loss whose score stands for r: scale * similarity."""

    default_scale: ClassVar[float] = 10.0

    def __init__(
        self,
        method_options: Mapping[str, Any],
        *,
        scale: float | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        check_positive("scale", scale)
        super().__init__(method_options, scale, **options)

    def _default_multiplier(self) -> float:
        return self.default_scale

    def _shown_multiplier(self) -> dict[str, float]:
        return {"scale": float(f"{self.scale:.6g}")}

    @property
    def scale(self) -> float:
        """What similarities are multiplied by, as it is now."""
        return self.scores.strength
