"""Figures without a screen, each closed in the end; models that many tests look at."""

import matplotlib as mpl
import numpy as np
import pytest

from pointdep import PointwiseDependency


@pytest.fixture(autouse=True)
def no_screen():
    mpl.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="session")
def data():
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 2))
    return x, x + 0.7 * random.standard_normal((200, 2))


@pytest.fixture(scope="session")
def model(data):
    options = {"critic": "concat", "hidden": (16,), "folds": 2, "max_epochs": 40, "patience": 4}
    options |= {"learning_rate": 1e-2, "random_state": 0, "device": "cpu", "progress": False}
    return PointwiseDependency(**options).fit(*data)
