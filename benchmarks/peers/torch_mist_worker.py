"""SMILE and JS of torch-mist through `estimate_mi`, with its defaults.

- `torch-mist-smile` and `torch-mist-js` make the plain call: without `test_data` the library scores
  its estimator on all the rows it was given, those it trained on included.
- `torch-mist-smile-heldout` and `torch-mist-js-heldout` train on the first four fifths (a tenth of
  which the library keeps back for early stopping) and pass the last fifth as `test_data`.
"""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import torch
from torch_mist import estimate_mi  # type: ignore[import-not-found]

from peers.worker import Array, held_out, serve


def estimate(x: Array, y: Array, seed: int, name: str, hold: bool) -> float:
    """One call of `estimate_mi`; its first result is the estimate, the rest is the training log."""
    random.seed(seed)
    np.random.seed(seed)  # the state torch-mist draws from
    torch.manual_seed(seed)
    cut = held_out(len(x))
    if hold:
        result = estimate_mi(
            data=(x[:cut], y[:cut]), test_data=(x[cut:], y[cut:]), estimator=name, verbose=False
        )
    else:
        result = estimate_mi(data=(x, y), estimator=name, verbose=False)
    return float(result[0])


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(
        {
            "torch-mist-smile": partial(estimate, name="smile", hold=False),
            "torch-mist-js": partial(estimate, name="js", hold=False),
            "torch-mist-smile-heldout": partial(estimate, name="smile", hold=True),
            "torch-mist-js-heldout": partial(estimate, name="js", hold=True),
        },
        ["torch-mist", "torch", "numpy"],
    )
