"""What `dv` and `cpc` store to finish their read-out."""

import itertools
import math

import numpy as np
import pytest
import torch

from pointdep.fitting.batches import SplitRows
from pointdep.fitting.reference import reference_flags, store_reference
from pointdep.fitting.splits import Split, make_splits

from .helpers import model_of, rows

X, Y = rows(90)
SPLITS = make_splits(90, folds=3, seed=2)


def store(model, splits=SPLITS, data=(X, Y), codes=None, size=20):
    return store_reference(model, SplitRows(*data, splits, codes, seed=4), size)


@pytest.mark.parametrize("key", ["dv", "mine"])
@pytest.mark.parametrize("groups", [None, np.arange(90) // 3], ids=["rows", "groups"])
def test_the_constant_is_the_mean_over_held_out_product_pairs(key, groups):
    model = model_of([key] * 3)
    store(model, codes=groups)
    for replica, split in enumerate(SPLITS):
        one = model.select([replica])
        exponentials = [
            one.raw_matrix(X[i][None, None], Y[j][None, None]).exp().item()
            for i, j in itertools.permutations(split.stop, 2)
            if groups is None or groups[i] != groups[j]
        ]
        constant = math.log(np.mean(exponentials))
        assert model.constant[replica].item() == pytest.approx(constant, rel=1e-9)
    assert len(set(model.constant.tolist())) == 3


def test_a_constant_over_several_blocks_and_none_of_other_methods():
    """More stopping rows than a block holds: pairs within blocks, each of them once."""
    x, y = rows(400)
    split = Split(np.arange(10), np.arange(10, 300), np.arange(300, 400))
    model = model_of(["dv"])
    store(model, [split], (x, y))
    with torch.no_grad():
        scores = model.raw_matrix(x[None, 10:300], y[None, 10:300])[0]
    everything = (scores.exp().sum() - scores.diagonal().exp().sum()) / (290 * 289)
    assert model.constant.item() == pytest.approx(everything.log().item(), abs=0.05)
    for key in ("pc", "nwj", "drf"):
        model = model_of([key] * 3)
        assert store(model) == []
        assert (model.constant == 0).all()
        assert model.reference.shape == (3, 0, 3)


def test_the_sample_of_y_is_of_rows_that_are_not_reported():
    model = model_of(["cpc"] * 3)
    store(model)
    assert model.reference.shape == (3, 20, 3)
    for reference, split in zip(model.reference, SPLITS, strict=True):
        at = [int((row == Y).all(1).nonzero()) for row in reference]
        assert len(set(at)) == 20
        assert not set(at) & set(split.report)
    over_the_sample = model.log_ratio_matrix(X[:5].expand(3, 5, 2), model.reference)
    assert over_the_sample.exp().mean(-1).tolist() == pytest.approx(np.ones((3, 5)))
    store(model, size=1000)  # of which there are fewer
    assert model.reference.shape == (3, 60, 3)


def test_a_constant_that_rests_on_few_pairs_is_flagged():
    model = model_of(["dv"] * 3)
    assert store(model) == []
    model.critic.rest.layers[-1].weight.data[1] *= 200.0
    (flag,) = store(model)
    assert (flag.name, flag.replicas) == ("reference_too_small", (1,))
    assert "method='pc'" in flag.message
    # Kish's number, on both sides of the limit of 50: equal scores count in full.
    model = model_of(["dv"])
    for parameter in model.critic.parameters():
        parameter.data.zero_()
    x, y = rows(20)
    few = Split(np.arange(4), np.arange(4, 11), np.arange(11, 20))  # 7 * 6 = 42 pairs
    enough = Split(np.arange(4), np.arange(4, 12), np.arange(12, 20))  # 8 * 7 = 56
    assert [f.name for f in store(model, [few], (x, y))] == ["reference_too_small"]
    assert store(model, [enough], (x, y)) == []


def test_a_sample_too_small_for_the_pmi_is_flagged():
    model = model_of(["cpc"] * 3)
    store(model, size=30)
    assert reference_flags(model, torch.full((100,), math.log(2.9))) == []
    (flag,) = reference_flags(model, torch.full((100,), math.log(3.1)))
    assert flag.name == "reference_too_small"
    assert "there are 30" in flag.message
    assert "reference_size" in flag.message
    assert reference_flags(model, torch.zeros(0)) == []
    assert reference_flags(model_of(["pc"]), torch.full((9,), 50.0)) == []
