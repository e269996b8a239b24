"""R replicas trained together are R replicas trained apart."""

import numpy as np
import pytest
import torch

from pointdep.core.methods import METHODS
from pointdep.core.ratio import LINKS
from pointdep.errors import InputError
from pointdep.fitting.splits import make_splits

from .helpers import (
    clip,
    disjoint_splits,
    engine,
    model_of,
    options,
    rows,
    train_by_hand,
    weights_of,
)

DATA = rows()
MIXED = ("pc", "dv", "mine", "nwj", "pc", "drf")


def assert_same(run, trained, replica, expected):
    history = [entry["stop"][replica] for entry in trained.history]
    np.testing.assert_allclose(history[: len(expected.stop)], expected.stop, rtol=1e-9)
    assert history[len(expected.stop) :] == [None] * (len(history) - len(expected.stop))
    train = [entry["train"][replica] for entry in trained.history][: len(expected.train)]
    np.testing.assert_allclose(train, expected.train, rtol=1e-5)
    assert trained.best_epochs[replica] == expected.best_epoch
    for got, wanted in zip(weights_of(run.full, replica), expected.best, strict=True):
        # Adam makes rounding visible where the gradient is zero, as for a constant under dv.
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("critic", ["concat", "separable"])
@pytest.mark.parametrize("methods", [("pc",) * 3, MIXED], ids=["one method", "several methods"])
def test_together_is_as_apart(methods, critic):
    run = engine(model_of(methods, critic=critic), DATA)
    expected = [train_by_hand(run, r) for r in range(len(methods))]
    trained = run.run()
    for replica, alone in enumerate(expected):
        assert_same(run, trained, replica, alone)
    assert len({tuple(e.stop) for e in expected}) == len(methods)


@pytest.mark.parametrize("key", METHODS)
def test_every_method_as_the_loop_by_hand(key):
    run = engine(model_of([key, key]), DATA, options(max_epochs=2, weight_decay=0.1, clip=0.2))
    expected = train_by_hand(run, 1)
    assert_same(run, run.run(), 1, expected)


@pytest.mark.parametrize("link", [link for link in LINKS if link != "score"])
def test_links(link):
    run = engine(model_of(["drf", "drf"], link=link), DATA, options(max_epochs=2))
    expected = train_by_hand(run, 1)
    assert_same(run, run.run(), 1, expected)


def test_replicas_that_stop_at_different_epochs():
    """The crew is packed anew each time one stops; the others go on as if nothing had happened."""
    settings = options(max_epochs=30, patience=2, learning_rate=0.1)
    run = engine(model_of(("pc", "js", "dv")), rows(seed=3), settings)
    expected = [train_by_hand(run, r) for r in range(3)]
    lengths = [len(e.stop) for e in expected]
    assert len(set(lengths)) > 1
    assert min(lengths) < 30
    trained = run.run()
    for replica, alone in enumerate(expected):
        assert_same(run, trained, replica, alone)


def test_without_the_running_average_the_last_weights_are_judged():
    settings = options(average=0.0, max_epochs=1)
    run = engine(model_of(["pc"]), DATA, settings, splits=disjoint_splits(120, 1))
    model = run.full.select([0])
    optimizer = torch.optim.AdamW(model.critic.parameters(), lr=1e-2, weight_decay=0.0)
    for index in run.batches.indices(0, run.batches.steps(4), [0]):
        cells = run.batches.cells(index)
        scores = model.raw_matrix(cells.x, cells.y).flatten(1, 2)
        optimizer.zero_grad()
        (-METHODS["pc"].objective(scores, joint=cells.joint, product=cells.product)).backward()
        clip(list(model.critic.parameters()), 5.0)
        optimizer.step()
    run.run()
    for got, wanted in zip(weights_of(run.full, 0), model.critic.parameters(), strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-9, atol=1e-11)


def test_an_epoch_is_a_pass_but_not_too_short():
    run = engine(model_of(["pc"] * 2), DATA)
    assert run.batches.steps(1) == round(np.mean([len(r) / 16 for r in run.batches.rows]))
    assert run.batches.steps(9) == 9


def test_a_batch_larger_than_the_rows_is_refused():
    with pytest.raises(InputError, match=r"batch_size=100 .* only 51 training rows: .* most 51"):
        engine(model_of(["pc"] * 2), DATA, options(batch_size=100))


def test_groups_reach_the_batches_and_the_held_out_rows():
    x, y = rows()
    number = torch.arange(120)
    codes = number % 8
    groups = make_splits(120, folds=2, groups=codes.numpy())
    run = engine(
        model_of(["pc"] * 2), (number[:, None] + 0 * x, y), codes=codes.numpy(), splits=groups
    )
    batch = run.batches.cells(run.batches.indices(0, 1, [0, 1])[0])
    for cells in (batch, run.held_out):
        who = codes[cells.x[..., 0].long()]
        same = (who.unsqueeze(-1) == who.unsqueeze(-2)).flatten(1, 2)
        assert (same & (cells.joint == 0)).any()
        assert (cells.product[same] == 0).all()
        assert (cells.product == 1).any()
