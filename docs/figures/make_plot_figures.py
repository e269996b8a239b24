"""The figures of docs/plots.md.

python docs/figures/make_plot_figures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pointdep import ClassicalDependency, PointwiseDependency, audit, mi_against_n


def save(ax: Axes, name: str) -> None:
    figure = ax.figure
    assert isinstance(figure, Figure)
    figure.savefig(Path(__file__).with_name(f"{name}.png"), dpi=80)


def main() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(500, 2))
    y = np.tanh(2 * x) + 0.3 * random.normal(size=(500, 2))
    y[[10, 20]] = y[[20, 10]]
    model = PointwiseDependency(critic="concat", hidden=(64,), random_state=0)
    found = audit(x, y, model=model)
    save(found.plot_pmi(), "plot_pmi")
    save(found.plot_pairs(k=5), "plot_pairs")
    save(model.fit(x, y).plot_training(), "plot_training")
    save(mi_against_n(ClassicalDependency("ksg", random_state=0), x, y).plot_mi(), "plot_mi")


if __name__ == "__main__":
    main()
