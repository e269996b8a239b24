"""What the plan believes of the estimator, against the estimator."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.core.critics import build_critic
from pointdep.core.linear import part_count
from pointdep.core.methods import get_method
from pointdep.data import stored_pairs
from pointdep.errors import InputError
from pointdep.estimators import assembly, streaming
from pointdep.fitting import engine, streamed_rows
from pointdep.fitting import fold_plan as streamed_plan
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.splits import make_splits
from pointdep.planning import shape as planned
from pointdep.planning.shape import Shape

DIMS = st.integers(1, 600)


def settings_of(shape):
    """The critic as the estimator describes it."""
    columns = max(shape.x_dim, shape.y_dim)
    wide = assembly.is_wide(get_method("pc", None), columns)
    hidden = assembly.choose_hidden("auto", "auto", shape.rows, wide=columns if wide else 0)
    return assembly.CriticSettings("auto", hidden, 64, "auto", "auto", wide)


@given(st.integers(200, 10**7), DIMS, DIMS, st.booleans())
def test_critic_and_batches_are_those_of_the_estimator(rows, x_dim, y_dim, stream):
    shape = Shape(rows, x_dim, y_dim, 1, stream=stream)
    found = settings_of(shape)
    assert (shape.wide, shape.layers) == (found.wide, tuple(found.hidden))
    limits = {"largest": streaming.LARGEST_BATCH} if stream else {}
    batch = assembly.batch_shape(
        found, get_method("pc", None), shape.train, "auto", "auto", **limits
    )
    assert (shape.batch, shape.block) == batch
    assert shape.parts == part_count(x_dim, y_dim)


@given(st.integers(200, 5000), st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_rows_that_train_and_stop_in_memory(rows, folds):
    splits = make_splits(rows, folds=folds)
    shape = Shape(rows, 3, 3, 1, folds=folds)
    assert all(abs(len(split.train) - shape.train) <= 2 for split in splits)
    assert all(abs(len(split.stop) - shape.stop) <= 1 for split in splits)


@pytest.mark.parametrize(("rows", "dim"), [(50_000, 4), (300_000, 64), (200_000, 700)])
def test_rows_that_train_stop_and_are_kept_of_a_stream(rows, dim):
    shape = Shape(rows, dim, dim, 1, stream=True)
    width, most = 2 * dim, streaming._STOP_NUMBERS // (2 * dim * 5)
    found = streamed_plan.make_plan(
        rows,
        folds=5,
        stop_fraction=0.15,
        most_stop=min(streaming._STOP_ROWS, max(64, most)),
        most_kept=min(streaming._KEPT_ROWS, max(1024, streaming._KEPT_NUMBERS // width)),
        codes=None,
        seed=0,
    )
    assert shape.kept == len(found.kept)
    assert shape.train == pytest.approx(found.training_rows()[0], rel=0.01)
    assert shape.stop == pytest.approx(len(found.splits()[0].stop), rel=0.05)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (planned.IN_MEMORY, streaming.IN_MEMORY),
        (planned._CHUNK, stored_pairs._CHUNK_NUMBERS),
        (planned._MOMENT_ROWS, streamed_rows.MOST_MOMENT_ROWS),
        (planned._TABLE_ROWS, streamed_rows._TABLE_ROWS),
        (planned._STOP_BLOCK, engine._STOP_BLOCK),
        (planned._LARGEST_STOP_BLOCK, engine._LARGEST_STOP_BLOCK),
        (planned._MIN_STEPS, TrainingOptions(32, 8).min_steps),
    ],
)
def test_limits_are_those_of_the_engine(ours, theirs):
    assert ours == theirs


@pytest.mark.parametrize("dims", [(8, 8), (3, 20), (26, 4), (64, 300)])
def test_weights_are_those_of_the_critic(dims):
    shape = Shape(20_000, *dims, 1)
    critic = build_critic(
        "auto", 2, *dims, hidden=shape.layers, embedding_dim=64, activation="relu", wide=shape.wide
    )
    counted = sum(p.numel() for p in critic.parameters() if p.requires_grad) / 2
    assert shape.network.weights == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("dims", [(8, 8), (40, 30)])
def test_multiply_adds_of_a_pair_are_what_torch_counts(dims):
    from torch.utils.flop_counter import FlopCounterMode

    shape = Shape(20_000, *dims, 1)
    model = assembly.make_model(settings_of(shape), get_method("pc", None), 2, *dims).eval()
    if shape.wide:
        model.critic.set_mixture(0.5, 0.5, 0.0)
    x, y = (torch.randn(2, 100, dim) for dim in dims)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.log_ratio_pairs(x, y)
    counted = counter.get_total_flops() / 2 / 200
    assert shape.network.macs == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 3, 1), "rows=0 must be at least 1"),
        ((9, 3, 3, 1), "rows=9: 5 folds need at least 10"),
        ((1e6, 3, 3, 1), "rows=1000000.0 must be a whole number"),
        ((100, 0, 3, 1), "x_dim=0"),
        ((100, 3, 3, 0), "epochs=0"),
    ],
)
def test_bad_sizes(arguments, message):
    with pytest.raises(InputError, match=message):
        Shape(*arguments)
