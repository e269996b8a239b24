"""How a pair stands among mismatched pairs: of all rows, of its own x, and of its own y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.splits import Split
from pointdep.inference.scoring import score_blocks

_BLOCK = 128
_CELLS = 1 << 21  # mismatched pairs kept, of each replica


@dataclass(frozen=True)
class Mismatched:
    """PMI of mismatched pairs, both of whose rows the model did not see, and the pairs beside them.

    pmi: (m,), of a sample of them. standing: (n,) for each pair of the data, the higher of two
    shares: of its x with other y, and of its y with other x, how many have at most its PMI.
    standings: (m,), the same of the mismatched pairs.
    """

    pmi: NDArray[np.float32]
    standing: NDArray[np.float32]
    standings: NDArray[np.float32]


@torch.no_grad()
def mismatched_pairs(
    model: RatioModel,
    x: Tensor,
    y: Tensor,
    splits: Sequence[Split],
    *,
    seed: int,
    groups: Tensor | None = None,
) -> Mismatched:
    """Blocks of rows that a replica did not see, each x set against each y of its block."""
    standing = np.zeros(len(x), np.float32)
    sampled = []
    for replica, split in enumerate(splits):
        if not len(split.report):  # of a chunk of the rows
            continue
        cells, index = held_out_cells(x, y, [split.report], block=_BLOCK, seed=seed, groups=groups)
        pmi = score_blocks(model.select([replica]), cells.x[0], cells.y[0])
        others = cells.product[0].view(pmi.shape).cpu() > 0
        standings = find_standings(pmi, others)
        own = standings.diagonal(dim1=1, dim2=2).reshape(-1).numpy()
        real = index[0] >= 0
        standing[index[0][real]] = own[real]
        some = _sample(others, seed, replica)
        sampled.append((pmi.view(-1)[some], standings.view(-1)[some]))
    pmis, all_standings = (torch.cat(side).numpy() for side in zip(*sampled, strict=True))
    return Mismatched(pmis, standing, all_standings)


def find_standings(pmi: Tensor, others: Tensor) -> Tensor:
    """For each cell (G, b, b), of the mismatched cells in its row and in its column, the share that
    is at most as high; the higher of the two, and 0 where there are none."""
    shares = []
    for dim in (2, 1):
        values = torch.where(others, pmi, torch.inf)
        ordered = values.sort(dim).values.movedim(dim, -1).contiguous()
        found = torch.searchsorted(ordered, pmi.movedim(dim, -1).contiguous(), right=True)
        count = others.sum(dim).unsqueeze(-1)
        shares.append((found.minimum(count) / count.clamp(min=1)).movedim(-1, dim))
    return torch.maximum(*shares)


def _sample(others: Tensor, seed: int, replica: int) -> Tensor:
    """Places of mismatched cells in the flattened blocks, at most so many."""
    places = others.view(-1).nonzero().squeeze(1)
    if len(places) <= _CELLS:
        return places
    generator = torch.Generator().manual_seed(seed * 1_000_003 + replica)
    return places[torch.randint(len(places), (_CELLS,), generator=generator)]
