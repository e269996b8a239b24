"""What `dv` and `cpc` must store to finish their read-out."""

import math

import numpy as np
import torch
from torch import Tensor

from pointdep.core.objectives import product_log_mean_exp
from pointdep.core.ratio import RatioModel
from pointdep.errors import MEANINGS, Flag
from pointdep.fitting.batches import SplitRows

_BLOCK = 128
_FEW_EFFECTIVE = 50.0  # a constant that rests on fewer product pairs than this is not trusted
_SPARE = 10.0  # references wanted per unit of e^PMI


@torch.no_grad()
def store_reference(model: RatioModel, rows: SplitRows, size: int) -> list[Flag]:
    """Fill the model's `constant` or `reference`, from rows that no reported row belongs to."""
    kind = model.methods[0].reference
    if kind == "row":
        model.reference = torch.stack([rows.y[one] for one in _samples(rows, size)])
    if kind != "constant":
        return []
    few = []
    for replica, split in enumerate(rows.splits):
        one, (cells, _) = model.select([replica]), rows.held_out([split.stop], _BLOCK)
        scores = one.scores(one.raw_blocks(cells.x, cells.y)).flatten(1, 2)
        log_mean = product_log_mean_exp(scores, cells.product)
        model.constant[replica] = log_mean[0]
        # Kish's effective number of terms of the mean of exp s.
        second = product_log_mean_exp(2.0 * scores, cells.product)
        effective = float(cells.product.sum() * (2.0 * log_mean - second).exp())
        if effective < _FEW_EFFECTIVE:
            few.append(replica)
    if not few:
        return []
    message = (
        f"{MEANINGS['reference_too_small']} (models {few}): the read-out's constant rests on "
        f"fewer than {_FEW_EFFECTIVE:.0f} product pairs, so every PMI may be off by the same "
        "amount; use method='pc', or more rows"
    )
    return [Flag("reference_too_small", tuple(few), message)]


def reference_flags(model: RatioModel, pmi: Tensor) -> list[Flag]:
    """Whether the stored sample of y is large enough for the PMI found, (n,)."""
    size = model.reference.shape[1]
    if not size or not len(pmi):
        return []
    reach = float(torch.quantile(pmi.double(), 0.95))
    if reach <= math.log(size / _SPARE):
        return []
    message = (
        f"{MEANINGS['reference_too_small']}: PMI reaches {reach:.1f} nats, which needs far more "
        f"than e^{reach:.1f} = {math.exp(min(reach, 700.0)):.3g} references and there are {size}; "
        "raise reference_size or use method='pc'"
    )
    return [Flag("reference_too_small", tuple(range(model.replicas)), message)]


def _samples(rows: SplitRows, size: int) -> list[Tensor]:
    """Rows of y that each replica may see, equally many for every replica."""
    seen = [np.concatenate([split.stop, split.train]) for split in rows.splits]
    count = min(size, *(len(own) for own in seen))
    drawn = (np.random.default_rng([rows.seed, 4]).permutation(own)[:count] for own in seen)
    return [torch.from_numpy(own) for own in drawn]
