"""Pairs, a model of them, and their shards."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pointdep import PointwiseDependency

from .helpers import write_shards

SIZES = (20, 1, 33, 0, 46)


@pytest.fixture(scope="session")
def pairs():
    """x: (100, 3), y: (100, 2), as float16 holds them."""
    random = np.random.default_rng(0)
    x = random.normal(size=(100, 3)).astype(np.float16)
    return x, (x[:, :2] + random.normal(size=(100, 2))).astype(np.float16)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """Fit on any pairs with next to no training, and save."""

    def make(x, y, seed=0, **options):
        place = tmp_path_factory.mktemp("models") / "model"
        common = {"hidden": (8,), "folds": 2, "max_epochs": 2, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            PointwiseDependency(**{**common, **options}, random_state=seed).fit(x, y).save(place)
        return place

    return make


@pytest.fixture(scope="session")
def model(make_model, pairs):
    return make_model(*pairs)


@pytest.fixture
def folders(tmp_path, monkeypatch, pairs):
    """The working folder, with x/ and y/ in it, of five shards each, one of them empty."""
    monkeypatch.chdir(tmp_path)
    for name, values in zip("xy", pairs, strict=True):
        write_shards(name, {"id": np.arange(100), "e": values}, SIZES)
    return tmp_path
