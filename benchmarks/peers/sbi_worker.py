"""Ratio estimators of sbi: NRE-A and NRE-C with the defaults of `train`.

The parameter is y and the observation is x. Training gets the first four fifths of the rows (a
tenth of which sbi keeps back for early stopping). The estimate is the mean log ratio over the last
fifth, which training never sees; nothing normalises the ratio.
"""

from __future__ import annotations

from functools import partial

import torch
from sbi.inference import NRE_A, NRE_C  # type: ignore[import-not-found]

from peers.worker import Array, held_out, serve


def ratio(x: Array, y: Array, seed: int, trainer: type) -> float:
    """Mean log ratio over the held-out rows."""
    torch.manual_seed(seed)
    theta, seen = torch.from_numpy(y), torch.from_numpy(x)
    cut = held_out(len(x))
    inference = trainer(show_progress_bars=False)
    network = inference.append_simulations(theta[:cut], seen[:cut]).train()
    network.eval()
    with torch.no_grad():
        return float(network(theta[cut:], seen[cut:]).double().mean())


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(
        {"sbi-nre-a": partial(ratio, trainer=NRE_A), "sbi-nre-c": partial(ratio, trainer=NRE_C)},
        ["sbi", "torch", "numpy"],
    )
