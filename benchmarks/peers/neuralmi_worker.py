"""NeuralMI's `rigorous` mode on independent rows, the other settings at their defaults.

The library trains on subsets of the rows, several for each size, and extrapolates the estimates to
infinitely many rows.

The rows go in as they are. The call in its README also asks for windows,
`Processing(x="continuous", x_params={"window_size": 1})`; in release 1.0.0 such a window holds two
neighbouring rows, so that of independent rows it measures about twice the information.
"""

from __future__ import annotations

import neural_mi as nmi  # type: ignore[import-not-found]
import torch

from peers.worker import Array, serve


def rigorous(x: Array, y: Array, seed: int) -> float:
    """The extrapolated value, in nats; random splits, because the rows are independent."""
    result = nmi.run(
        x,
        y,
        mode="rigorous",
        split=nmi.Split(mode="random"),
        output=nmi.Output(units="nats"),
        n_workers=1,
        seed=seed,
        show_progress=False,
        device="cpu",
    )
    return float(result.mi_estimate)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"neuralmi": rigorous}, ["neural_mi", "torch", "numpy"])
