"""latentmi with its defaults: autoencoders to eight dimensions, then nearest neighbours.

The library trains on half of the rows and returns a value for each row of the other half, the half
that also decides when to stop. The values are in bits; the estimate is their mean in nats.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from latentmi import lmi  # type: ignore[import-not-found]

from peers.worker import Array, serve


def latent(x: Array, y: Array, seed: int) -> float:
    """Mean of the point-wise values, from bits to nats."""
    np.random.seed(seed)  # the state latentmi draws from
    torch.manual_seed(seed)
    values, _, _ = lmi.estimate(x, y)
    return float(np.nanmean(values)) * math.log(2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"latentmi": latent}, ["latentmi", "torch", "numpy"])
