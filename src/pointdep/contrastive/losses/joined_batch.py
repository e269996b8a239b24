"""From representations to scores, and the cells of one batch of all processes.

`Similarity` has unit length, critic, temperature or scale, and clip. `JoinedBatch` is what the
objectives ask of: each process walks the rows of its own anchors against all candidates
(`core.blocked`), and what is left is a few sums, which the processes add up. So the matrix of
scores never lives as a whole.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.contrastive import distributed
from pointdep.core.blocked import sums
from pointdep.core.blocked.sums import Job
from pointdep.core.blocked.walk import CellWeights, OtherCells, best_cells
from pointdep.core.critics.base import Critic
from pointdep.core.critics.build import EncoderCritic, ModuleCritic, build_critic
from pointdep.core.precision import own_functions_apply, raised
from pointdep.errors import InputError, require_whole, unknown_name

_WHOLE = 1 << 26  # numbers of a matrix that is not cut into blocks
_ROWS = 1 << 24  # numbers alive in some rows of a critic's matrix
_LEAST = 1e-12  # the length of rows of zeros, as in `F.normalize`

NAMED = ("inner", "bilinear", "separable", "concat")
"""The critics a loss builds by name."""


class Similarity(nn.Module):
    """s(anchor, candidate) = clip(multiplier * critic(anchor, candidate)).

    A critic that is an inner product of two embeddings embeds each row once: `anchors` and
    `candidates` are then the embeddings, the multiplier and the critic's constants among them.
    A critic runs in the type of its weights, and what it gives is raised to float32.
    """

    def __init__(
        self, critic: Critic | None, normalize: bool, factor: float, learn: bool, clip: float | None
    ) -> None:
        super().__init__()
        self.critic, self.normalize, self.clip = critic, normalize, clip
        self._multiplier = factor
        self.log_multiplier = nn.Parameter(torch.tensor(math.log(factor))) if learn else None

    @property
    def multiplier(self) -> Tensor | float:
        """What similarities are multiplied by."""
        if self.log_multiplier is None:
            return self._multiplier
        return raised(self.log_multiplier)[0].exp()

    @property
    def strength(self) -> float:
        """The multiplier as a number; waits for the device where it is learned."""
        with torch.no_grad():
            return float(self.multiplier)

    @property
    def inner(self) -> bool:
        """Whether the critic's score is an inner product of two embeddings, and nothing besides."""
        return self.critic is None or (self.critic.has_inner and self.critic.inner_is_all)

    def rows(self, *sides: Tensor) -> list[Tensor]:
        """Representations as the critic sees them: in one type, of unit length if asked."""
        sides = tuple(raised(*sides))
        if not self.normalize:
            return list(sides)
        if not own_functions_apply():
            return [F.normalize(rows, dim=-1, eps=_LEAST) for rows in sides]
        return list(_UnitRows.apply(*sides))  # type: ignore[no-untyped-call]

    def anchors(self, z: Tensor) -> Tensor:
        """What is kept of `rows` in the place of x. z: (n, d) -> (n, e)."""
        if not self.inner:
            return z
        if self.critic is None:
            return z * self.multiplier
        vectors, own = self.critic.inner_x(self._as_weights(z[None]))
        return raised(_with_own(vectors[0], own[0], torch.ones_like(own[0])))[0] * self.multiplier

    def candidates(self, z: Tensor) -> Tensor:
        """What is kept of `rows` in the place of y. z: (m, d) -> (m, e)."""
        if not self.inner or self.critic is None:
            return z
        vectors, own = self.critic.inner_y(self._as_weights(z[None]))
        last = torch.zeros_like(vectors[0, :, 0]) if own is None else own[0]
        return raised(_with_own(vectors[0], torch.ones_like(last), last))[0]

    def sides(self, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        """`anchors` of z1, (n, d1), and `candidates` of z2, (m, d2)."""
        anchors, candidates = self.anchors(z1), self.candidates(z2)
        widths = anchors.shape[1], candidates.shape[1]
        if self.inner and widths[0] != widths[1]:
            raise InputError(
                f"critic=(encoder_x, encoder_y): they give vectors of {widths[0] - 2} and "
                f"{widths[1] - 2} numbers; an inner product needs equally many"
            )
        return anchors, candidates

    def pairs(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Scores of the pairs, (n, e) and (n, e) -> (n,)."""
        if self.inner:
            return self._clipped((anchors * candidates).sum(-1))
        return self._asked("pairs", anchors.unsqueeze(0), candidates.unsqueeze(0))[0]

    def matrix(self, anchors: Tensor, candidates: Tensor) -> Tensor:
        """Scores of all pairs, (n, e) and (m, e) -> (n, m)."""
        if self.inner:
            return self._clipped(anchors @ candidates.T)
        return self._asked("matrix_in_blocks", anchors.unsqueeze(0), candidates.unsqueeze(0))[0]

    def job(
        self, weights: CellWeights | None, x: Tensor, y: Tensor, block_size: int | None = None
    ) -> Job:
        """How `core.blocked` walks the scores of anchors and candidates: as a whole if few."""
        cells = len(x) * len(y)
        critic = self.critic
        width = 1 if critic is None or self.inner else critic.cell_width()
        if block_size is not None:
            some = block_size * len(y)
        elif cells * width <= _WHOLE:
            some = cells
        else:
            some = best_cells(x.device) if self.inner else _ROWS // width
        return Job(
            weights,
            some,
            link=None if self.clip is None else self._clipped,
            score=None if self.inner else partial(self._asked, "matrix"),
            # Dropout in a user's module must be drawn alike when rows are computed again.
            draws=isinstance(critic, ModuleCritic),
            plain=some >= cells,
        )

    def _asked(self, what: str, x: Tensor, y: Tensor) -> Tensor:
        """Scores by a critic that is no inner product, of (1, n, d1) and (1, m, d2)."""
        scores = getattr(self.critic, what)(self._as_weights(x), self._as_weights(y))
        return self._clipped(raised(scores)[0] * self.multiplier)

    def _as_weights(self, rows: Tensor) -> Tensor:
        """In the type of the critic's weights, if it has any."""
        weights = self.critic.parameters() if self.critic is not None else ()
        types = (weight.dtype for weight in weights if weight.is_floating_point())
        return rows.to(next(types, rows.dtype))

    def _clipped(self, scores: Tensor) -> Tensor:
        return scores if self.clip is None else self.clip * torch.tanh(scores / self.clip)


def _with_own(vectors: Tensor, *own: Tensor) -> Tensor:
    """[v, own, 1], so that its product with [w, 1, own] adds the terms of each side alone."""
    return torch.cat([vectors, torch.stack(own, -1)], -1)


class _UnitRows(torch.autograd.Function):
    """`F.normalize` of rows, (n, d) each, with fewer operations in the backward pass."""

    @staticmethod
    def forward(ctx: Any, *sides: Tensor) -> tuple[Tensor, ...]:
        found = [_unit(rows) for rows in sides]
        ctx.save_for_backward(*sides, *(part for unit in found for part in unit))
        return tuple(unit for unit, _ in found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        saved, count = ctx.saved_tensors, len(gradients)
        found = list(zip(saved[count::2], saved[count + 1 :: 2], strict=True))
        if torch.is_grad_enabled():  # a second derivative is wanted: as functions of the rows
            found = [_unit(rows) for rows in saved[:count]]
        return tuple(
            torch.addcmul(slope, unit, (slope * unit).sum(-1, keepdim=True), value=-1.0) / length
            for slope, (unit, length) in zip(gradients, found, strict=True)
        )


def _unit(rows: Tensor) -> tuple[Tensor, Tensor]:
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp(min=_LEAST)
    return rows / length, length


def loss_critic(critic: Any, dims: int | tuple[int, int] | None) -> Critic | None:
    """The critic of a loss: None is the plain inner product, without weights.

    A module is used itself, not a copy, so that an optimiser made beforehand trains it.
    """
    own: ModuleCritic | EncoderCritic
    if isinstance(critic, nn.Module):
        own, copy = ModuleCritic(1, nn.Identity()), critic
    elif isinstance(critic, tuple | list):
        if len(critic) != 2 or not all(isinstance(part, nn.Module) for part in critic):
            raise InputError("critic=(encoder_x, encoder_y) takes exactly two torch modules")
        own = EncoderCritic(1, nn.Identity(), nn.Identity())
        copy = nn.ModuleDict({"x": critic[0], "y": critic[1]})
    elif not isinstance(critic, str) or critic not in NAMED:
        raise unknown_name("critic", critic, NAMED)
    elif critic == "inner":
        return None
    else:
        made = build_critic(critic, 1, *dimensions(critic, dims))
        # As torch's own layers do: the initial weights follow torch.manual_seed.
        made.reset([torch.Generator().manual_seed(int(torch.randint(2**31, ())))])
        return made
    own.copies, own.prepared = nn.ModuleList([copy]), ""
    return own


def dimensions(critic: str, dims: int | Sequence[int] | None) -> tuple[int, int]:
    """dims as (d1, d2)."""
    if dims is None:
        raise InputError(f"critic={critic!r} needs dims=(d1, d2), the columns of z1 and z2")
    pair = (dims, dims) if isinstance(dims, int) else tuple(dims)
    if len(pair) != 2:
        raise InputError(f"dims={dims!r} must be one number, or two: the columns of z1 and z2")
    for dim in pair:
        require_whole("dims", dim)
    return pair[0], pair[1]


_TAKEN_OFF = 1 << 26  # numbers of the rows that meet in cells which are no samples of the product


class JoinedBatch:
    """Anchors of this process against the candidates of all of them, in the place of a matrix.

    Cross: the anchors are z1, the candidates z2. Both views: the candidates are z1 and z2, and so
    are the anchors, or z1 alone where it is not symmetric. A cell whose rows share an id (the
    group, or the pair's own number) is no sample of the product.
    z1: (n, d1), z2: (n, d2), of `Similarity.rows`; groups: (n,).

    The weights that objectives pass on are ignored: groups say which cells count.
    """

    def __init__(
        self,
        scores: Similarity,
        z1: Tensor,
        z2: Tensor,
        groups: Tensor | None,
        *,
        both_views: bool,
        symmetric: bool,
        joined: bool,
        block_size: int | None,
    ) -> None:
        self.scores, self.joined, self.block_size = scores, joined, block_size
        self.groups, self.views = groups, 2 if both_views else 1
        self.both_ways = symmetric and not both_views
        self.counts = distributed.row_counts(z1) if joined else [len(z1)]
        self.shared = len(self.counts) > 1
        self.first = sum(self.counts[: distributed.world()[0]]) if self.shared else 0
        self.pairs = sum(self.counts)
        if self.pairs < 2:
            batch = "a batch of one pair has no negatives" if self.pairs else "the batch is empty"
            raise InputError(f"{batch}: at least two rows are needed")
        self.anchors, self.candidates = scores.sides(z1, z2)
        partners = self.candidates
        if both_views:
            own = scores.candidates(z1)
            partners, self.candidates = torch.cat([partners, own]), torch.cat([own, partners])
            if symmetric:
                self.anchors = torch.cat([self.anchors, scores.anchors(z2)])
        self._partners = partners[: len(self.anchors)]
        self._positives: Tensor | None = None
        self.joints = self.pairs * (2 if both_views and symmetric else 1)
        self.weights = OtherCells(self.anchors.unsqueeze(0), ids=self._ids(), period=self.pairs)
        self.negatives: Tensor | int = self.views * (self.pairs - 1)  # of each anchor
        self.products: Tensor | int = self.joints * self.negatives
        if groups is not None:
            negatives = self.weights.row_sums()[0].to(self.anchors.dtype)
            products = self._summed(negatives.sum())
            if _can_look(products) and not bool(products > 0):
                raise InputError("all rows are in one group: there are no negatives in the batch")
            self.negatives, self.products = (
                torch.where(count > 0, count, torch.nan) for count in (negatives, products)
            )

    @property
    def positives(self) -> Tensor:
        """Scores of the pairs, (a,)."""
        if self._positives is None:  # torch.compile does not follow a cached_property
            self._positives = self.scores.pairs(self.anchors, self._partners)
        return self._positives

    def joint_mean(self, _: object, function: sums.Elementwise | None = None) -> Tensor:
        """E_J[function(s)], ()."""
        return self._pair_mean(function(self.positives) if function else self.positives)

    def product_mean(self, _: object, function: sums.Elementwise | None = None) -> Tensor:
        """E_M[function(s)], ()."""
        if isinstance(function, sums.Quadratic) and self.identity_applies():
            joined = distributed.all_sum if self.shared else None
            every = sums.quadratic_sums(self.anchors, self.candidates, function, joined=joined)
            return (every - self._summed(function(self._excluded()).sum())) / self.products
        return self._summed(sums.cell_sums(*self._walk(), function)[0]) / self.products

    def quadratic_means(
        self, joint: object, product: object, of_joint: sums.Quadratic, of_product: sums.Quadratic
    ) -> Tensor:
        """E_J[of_joint(s)] + E_M[of_product(s)], ()."""
        plain = self.groups is None and self.views == 1 and not self.shared
        if not plain or not self.identity_applies():
            return self.joint_mean(joint, of_joint) + self.product_mean(product, of_product)
        return sums.quadratic_means(self.anchors, self.candidates, of_joint, of_product)

    def product_log_mean_exp(self, _: object) -> Tensor:
        """log E_M[exp s], ()."""
        (rows,) = sums.log_sums(*self._walk())
        total = self._joined_logsumexp(torch.logsumexp(rows[0], 0))
        return total - self._count(self.products).log()

    def against_rows(self, *_: object) -> Tensor:
        """E_J of s - log mean exp over the pair and the negatives of its row, (); in "cross",
        symmetric, the mean of that and the same down the columns."""
        rows, *columns = sums.log_sums(*self._walk(), columns=self.both_ways)
        negatives = self._count(self.negatives)
        terms = sums.against(self.positives, rows[0], negatives)
        if columns:
            own = self._joined_logsumexp(columns[0][0])[self.first : self.first + len(terms)]
            terms = 0.5 * (terms + sums.against(self.positives, own, negatives))
        return self._pair_mean(terms)

    def identity_applies(self) -> bool:
        """Whether scores are inner products of few numbers, and few cells have to be taken off."""
        scores, width = self.scores, self.anchors.shape[1]
        if not scores.inner or scores.clip is not None or width >= self.pairs:
            return False
        if self.groups is None:
            return True
        cells = self.joints * self.views * self.pairs
        # Beyond an eighth of the cells, walking them all is cheaper than taking them off. Of the
        # joined batch, so that all processes decide alike.
        return bool(cells - self.products <= min(cells // 8, _TAKEN_OFF // width))

    def _ids(self) -> tuple[Tensor, Tensor] | None:
        """Of the anchors, (1, a), and of all candidates, (1, m): the group, or the pair's number.

        None if the numbers of the pairs follow from the positions of the rows.
        """
        if self.groups is None and not self.shared:
            return None
        anchor_views = self.joints // self.pairs
        if self.groups is not None:
            every = self._gathered(self.groups.repeat(self.views))
            return self.groups.repeat(anchor_views).unsqueeze(0), every.unsqueeze(0)
        numbers = torch.arange(self.pairs, device=self.anchors.device)
        own = numbers[self.first : self.first + len(self.anchors) // anchor_views]
        every = torch.cat([part.repeat(self.views) for part in torch.split(numbers, self.counts)])
        return own.repeat(anchor_views).unsqueeze(0), every.unsqueeze(0)

    def _walk(self) -> tuple[Tensor, Tensor, sums.Job]:
        candidates = self._gathered(self.candidates)
        job = self.scores.job(self.weights, self.anchors, candidates, self.block_size)
        return self.anchors.unsqueeze(0), candidates.unsqueeze(0), job

    def _excluded(self) -> Tensor:
        """The scores of this process's cells that are no samples of the product, (k,)."""
        if self.groups is None:
            if self.views == 1:
                return self.positives
            itself = (self.anchors * self.candidates[: len(self.anchors)]).sum(1)
            return torch.cat([self.positives, itself])
        order, first, last = (part[0] for part in self.weights.alike())
        counts = last - first
        rows = torch.repeat_interleave(counts)
        within = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        columns = order[first[rows] + within]
        return (self.anchors[rows] * self._gathered(self.candidates)[columns]).sum(1)

    def _count(self, number: Tensor | int) -> Tensor:
        return number if isinstance(number, Tensor) else self.positives.new_full((), number)

    def _pair_mean(self, values: Tensor) -> Tensor:
        return self._summed(values.sum()) / self.joints

    def _summed(self, tensor: Tensor) -> Tensor:
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
        return torch.where(some, torch.where(some, total, 1.0).log(), -torch.inf) + top


def _can_look(tensor: Tensor) -> bool:
    """Whether to look at a number does not make the host wait for a device."""
    return tensor.device.type == "cpu"
