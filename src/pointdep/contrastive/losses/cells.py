"""The cells of one batch: which are pairs, which are samples of the product, and sums over them.

Each process walks the rows of its own anchors against all candidates, in blocks, and what is left
of a block is a few sums. So the matrix of scores never lives as a whole, forward or backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pointdep.contrastive import distributed
from pointdep.contrastive.losses.precision import transformed
from pointdep.contrastive.losses.scores import Scores
from pointdep.errors import InputError

_WHOLE = 1 << 26  # numbers of a matrix that is not cut into blocks
_BLOCK = 1 << 24  # numbers of one block
_FAR = -1e38  # finite: a logsumexp of nothing but -inf has no second derivative

Elementwise = Callable[[Tensor], Tensor]
Out = TypeVar("Out")


def _once(find: Callable[[Cells], Tensor]) -> property:
    """A property found when first asked for: `cached_property` has a lock that cannot be traced."""

    def kept(cells: Cells) -> Tensor:
        if find.__name__ not in cells.found:
            cells.found[find.__name__] = find(cells)
        return cells.found[find.__name__]

    return property(kept, doc=find.__doc__)


class Cells:
    """Anchors of this process against the candidates of all of them.

    Cross: the anchors are z1, the candidates z2. Both views: the candidates are z1 and z2, and so
    are the anchors, or z1 alone where it is not symmetric. A cell whose rows share an id (the
    group, or the pair's own number) is no sample of the product; `positives` holds the pairs.
    z1: (n, d1), z2: (n, d2), of `Scores.rows`; groups: (n,).
    """

    def __init__(
        self,
        scores: Scores,
        z1: Tensor,
        z2: Tensor,
        groups: Tensor | None,
        *,
        both_views: bool,
        symmetric: bool,
        joined: bool,
        block_size: int | None,
    ) -> None:
        self.found: dict[str, Tensor] = {}
        self.scores, self.joined, self.block_size = scores, joined, block_size
        self.grouped, self.views = groups is not None, 2 if both_views else 1
        self.counts = distributed.row_counts(z1) if joined else [len(z1)]
        self.rank = distributed.world()[0] if joined else 0
        self.pairs, self.groups = sum(self.counts), groups
        if self.pairs < 2:
            batch = "a batch of one pair has no negatives" if self.pairs else "the batch is empty"
            raise InputError(f"{batch}: at least two rows are needed")
        self.anchors, self.candidates = scores.sides(z1, z2)
        if both_views:
            self.candidates = torch.cat([scores.candidates(z1), self.candidates])
            if symmetric:
                self.anchors = torch.cat([self.anchors, scores.anchors(z2)])
        self.joints = self.pairs * (2 if both_views and symmetric else 1)
        self._check_groups()

    @property
    def shared(self) -> bool:
        """Whether the batch is that of several processes."""
        return len(self.counts) > 1

    def _check_groups(self) -> None:
        if self.grouped and self.anchors.device.type == "cpu" and not bool(self.products > 0):
            raise InputError("all rows are in one group: there are no negatives in the batch")

    @_once
    def positives(self) -> Tensor:
        """The score of each anchor and its pair, (a,)."""
        partners = self.candidates
        if self.views == 2:
            # The other view of z1 are the last candidates, that of z2 the first.
            partners = partners.roll(len(partners) // 2, 0)[: len(self.anchors)]
        return self.scores.pairs(self.anchors, partners)

    @_once
    def anchor_ids(self) -> Tensor:
        """The group of each anchor, or the number of its pair, (a,)."""
        own = self.groups
        if own is None:
            start = sum(self.counts[: self.rank])
            own = torch.arange(start, start + self.counts[self.rank], device=self.anchors.device)
        return own.repeat(self.joints // self.pairs)

    @_once
    def candidate_ids(self) -> Tensor:
        """The same of the candidates of all processes, (m,)."""
        if self.groups is not None:
            return self._gathered(self.groups.repeat(self.views))
        parts = torch.split(torch.arange(self.pairs, device=self.anchors.device), self.counts)
        return torch.cat([part.repeat(self.views) for part in parts])

    @_once
    def all_candidates(self) -> Tensor:
        """The candidates of all processes, (m, e)."""
        return self._gathered(self.candidates)

    @_once
    def negatives(self) -> Tensor:
        """How many samples of the product the row of each anchor has, (a,)."""
        total = self.pairs * self.views
        if not self.grouped:
            return self.anchors.new_full(self.anchors.shape[:1], total - self.views)
        return (total - same_ids(self.anchor_ids, self.candidate_ids)).to(self.anchors.dtype)

    @_once
    def products(self) -> Tensor:
        """n_M, the number of samples of the product in the joined batch, ()."""
        if not self.grouped:
            return self.anchors.new_full((), self.joints * self.views * (self.pairs - 1))
        return self.summed(self.negatives.sum())

    def joint_mean(self, values: Tensor) -> Tensor:
        """E_J of one value an anchor, (a,) -> ()."""
        return self.summed(values.sum()) / self.joints

    def product_means(self, *functions: Elementwise, masked: float = 0.0) -> tuple[Tensor, ...]:
        """E_M[function(s)] of each function; `masked` is a score at which they are all zero."""

        def block(anchors: Tensor, ids: Tensor) -> Tensor:
            scores = self._masked(anchors, ids, masked)
            return torch.stack([function(scores).sum() for function in functions])

        totals = self.summed(torch.stack(self._walk(block)).sum(0)) / self.products
        return tuple(totals.unbind())

    def product_log_mean_exp(self) -> Tensor:
        """log E_M[exp s]."""
        rows, _ = self.negative_logsumexp()
        total = self._joined_logsumexp(torch.logsumexp(rows, 0))
        count: Tensor = self.products
        return total - count.log()

    def negative_logsumexp(self, *, columns: bool = False) -> tuple[Tensor, Tensor | None]:
        """log sum exp over the product cells of each anchor's row, (a,).

        columns: the same down the columns of this process's own candidates, as they are in "cross".
        """
        # In one block of rows, a column may have no product cells at all.
        masked = _FAR if columns else -math.inf

        def block(anchors: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
            scores = self._masked(anchors, ids, masked)
            rows = torch.logsumexp(scores, 1)
            return (rows, torch.logsumexp(scores, 0)) if columns else (rows,)

        parts = list(zip(*self._walk(block), strict=True))
        rows = torch.cat(parts[0])
        if not columns:
            return rows, None
        down = self._joined_logsumexp(torch.logsumexp(torch.stack(parts[1]), 0))
        start = sum(self.counts[: self.rank])
        return rows, down[start : start + len(rows)]

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum over the processes that share a batch."""
        return distributed.all_sum(tensor) if self.joined else tensor

    def _gathered(self, tensor: Tensor) -> Tensor:
        return distributed.gather(tensor) if self.joined else tensor

    def _joined_logsumexp(self, values: Tensor) -> Tensor:
        """Entry by entry over the processes, by the largest that any of them holds."""
        if not self.shared:
            return values
        top = distributed.all_max(values)
        top = torch.where(top.isfinite(), top, 0.0)
        total = distributed.all_sum((values - top).exp())
        some = total != 0  # a NaN is something, and stays one
        return torch.where(some, torch.where(some, total, 1.0).log(), -math.inf) + top

    def _masked(self, anchors: Tensor, ids: Tensor, value: float) -> Tensor:
        scores = self.scores.cells(anchors, self.all_candidates)
        return scores.masked_fill(ids.unsqueeze(1) == self.candidate_ids, value)

    def _walk(self, block: Callable[[Tensor, Tensor], Out]) -> list[Out]:
        """block(anchors, ids) of each block of rows; several are computed again in backward."""
        rows = self.block_size or self._rows_of_block()
        anchors, ids = torch.split(self.anchors, rows), torch.split(self.anchor_ids, rows)
        # Gathered once, outside of what is computed again.
        self.all_candidates, self.candidate_ids  # noqa: B018
        parts = list(zip(anchors, ids, strict=True))
        if len(parts) == 1 or transformed():  # `torch.func` cannot compute again
            return [block(*part) for part in parts]
        return [
            checkpoint(block, *part, use_reentrant=False, preserve_rng_state=self.scores.draws)
            for part in parts
        ]

    def _rows_of_block(self) -> int:
        row = len(self.candidate_ids) * self.scores.cell_width
        whole = len(self.anchors) * row <= _WHOLE
        return max(1, len(self.anchors) if whole else _BLOCK // row)


def same_ids(ids: Tensor, among: Tensor) -> Tensor:
    """How often each id occurs in `among`: (a,), (m,) -> (a,), without looking at the host."""
    ordered = among.sort().values
    right = torch.searchsorted(ordered, ids, right=True)
    return right - torch.searchsorted(ordered, ids)
