"""The two figures of docs/check.md: a check that passes, and one that fails.

python docs/figures/make_check_figures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pointdep import PointwiseDependency


def draw(rows: int, correlation: float, seed: int) -> tuple[NDArray[np.float64], ...]:
    """Pairs of two columns each, every column of y correlated with its column of x."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 2))
    return x, correlation * x + np.sqrt(1 - correlation**2) * random.normal(size=(rows, 2))


def main() -> None:
    model = PointwiseDependency(hidden=(64,), random_state=0).fit(*draw(500, 0.8, 0))
    checks = {"check_pass": model.check(), "check_fail": model.check(*draw(1000, 0.6, 1))}
    for name, check in checks.items():
        print(f"{name}: {check}")
        figure = Figure(figsize=(5.0, 5.4), layout="constrained")
        check.plot(figure.subplots())
        figure.savefig(Path(__file__).with_name(f"{name}.png"), dpi=90)


if __name__ == "__main__":
    main()
