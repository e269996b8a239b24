"""The cells of one batch, of all processes: what the objectives ask of them.

Each process walks the rows of its own anchors against all candidates (`core.blocked`), and what is
left is a few sums, which the processes add up. So the matrix of scores never lives as a whole.
"""

import torch
from torch import Tensor

from pointdep.contrastive import distributed
from pointdep.contrastive.losses.similarity import Similarity
from pointdep.core.blocked import sums
from pointdep.core.blocked.walk import OtherCells
from pointdep.errors import InputError

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
