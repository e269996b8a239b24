"""R replicas trained together are R replicas trained apart, with or without a score matrix."""

import numpy as np
import pytest
import torch
from torch import nn

from pointdep.core.critics import build_critic
from pointdep.core.methods import METHODS
from pointdep.core.ratio import LINKS
from pointdep.errors import InputError
from pointdep.fitting import engine as module
from pointdep.fitting.batches import held_out_cells
from pointdep.fitting.splits import make_splits

from .helpers import (
    X_DIM,
    Y_DIM,
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
def test_links_by_hand(link):
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
    run = engine(model_of(["pc", "js"]), DATA, options(average=0.0, max_epochs=2))
    expected = train_by_hand(run, 1)
    assert_same(run, run.run(), 1, expected)


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


# Large batches of separable critics train as if their scores were laid out.


DATA = rows()
SETTINGS = options(max_epochs=3, block=16, batch_size=32)


def trained(make, monkeypatch, most_cells, **extra):
    """The parameters and the history of a fit that lays out this many cells at most."""
    monkeypatch.setattr(module, "MOST_CELLS", most_cells)
    torch.manual_seed(0)
    run = engine(make(), DATA, extra.pop("settings", SETTINGS), **extra)
    lean = most_cells == 0
    assert run.batches.lean == lean
    assert run.held_out.lean == lean
    history = run.run().history
    return [p.detach().clone() for p in run.full.critic.parameters()], history


def assert_same_training(make, monkeypatch, **extra):
    (ours, our_history), (theirs, history) = (
        trained(make, monkeypatch, most, **extra) for most in (0, 1 << 30)
    )
    for entry, expected in zip(our_history, history, strict=True):
        for key in ("train", "stop"):
            np.testing.assert_allclose(
                entry[key], expected[key], rtol=1e-6 if key == "train" else 1e-9
            )
    for a, b in zip(ours, theirs, strict=True):
        # Adam makes rounding visible where the gradient is zero, as for a constant under dv.
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("key", METHODS)
def test_every_method(key, monkeypatch):
    assert_same_training(lambda: model_of([key, key], critic="separable"), monkeypatch)


@pytest.mark.parametrize("critic", ["separable", "bilinear", "encoders", "towers"])
def test_every_separable_critic(critic, monkeypatch):
    methods = ["pc", "dv", "pc", "cpc"]

    def make():
        if critic == "encoders":
            torch.manual_seed(1)
            pair = (nn.Linear(X_DIM, 4), nn.Sequential(nn.Linear(Y_DIM, 4), nn.Tanh()))
            return model_of(methods, critic=pair)
        towers = critic == "towers"
        return model_of(methods, critic="auto" if towers else critic, wide=towers)

    assert_same_training(make, monkeypatch)


@pytest.mark.parametrize("link", LINKS)
def test_links(link, monkeypatch):
    assert_same_training(
        lambda: model_of(["drf", "dm1", "rpc"], critic="separable", link=link), monkeypatch
    )


@pytest.mark.parametrize("key", ["pc", "cpc", "drf", "mine"])
def test_groups(key, monkeypatch):
    codes = torch.arange(120) % 12
    splits = make_splits(120, folds=2, groups=codes.numpy())
    assert_same_training(
        lambda: model_of([key] * 2, critic="separable"),
        monkeypatch,
        codes=codes.numpy(),
        splits=splits,
    )


@pytest.mark.parametrize("key", ["pc", "dv", "cpc"])
def test_a_batch_of_one_group_sits_a_step_out(key, monkeypatch):
    codes = torch.zeros(120, dtype=torch.long)
    codes[[5, 40, 65, 100]] = 1  # one training row and one stopping row of each replica
    splits = disjoint_splits(120, 2)
    settings = options(max_epochs=2, block=3, batch_size=6)
    assert_same_training(
        lambda: model_of([key] * 2, critic="separable"),
        monkeypatch,
        codes=codes.numpy(),
        splits=splits,
        settings=settings,
    )


def test_small_batches_and_other_critics_are_laid_out():
    settings = options(batch_size=40, block=40)
    small = engine(model_of(["pc"] * 2, critic="separable"), DATA, settings)
    assert not small.batches.lean
    assert not small.held_out.lean
    assert [build_critic(c, 1, 2, 2).separable for c in ("concat", "auto")] == [False, False]
    assert all(build_critic(c, 1, 2, 2).separable for c in ("separable", "bilinear", "inner"))
    assert build_critic("auto", 1, 2, 2, wide=True).separable


def test_large_batches_are_not():
    data = rows(7000)
    settings = options(batch_size=2100, block=2100, max_epochs=1, min_steps=1)
    run = engine(model_of(["js"] * 2, critic="separable"), data, settings)
    assert run.batches.lean
    assert not run.held_out.lean  # fewer rows
    assert np.isfinite(run.run().history[0]["stop"]).all()


def test_held_out_cells_are_the_same():
    parts = [np.arange(7), np.arange(5, 30)]
    codes = torch.arange(120) % 4
    given = {"block": 6, "seed": 3, "groups": codes}
    cells, _ = held_out_cells(*DATA, parts, **given)
    lean, _ = held_out_cells(*DATA, parts, **given, lean=True)
    assert torch.equal(cells.x, lean.x)
    weights = lean.product.rows.unsqueeze(-1) * lean.product.rows.unsqueeze(-2)
    weights = weights * (lean.product.ids.unsqueeze(-1) != lean.product.ids.unsqueeze(-2))
    assert torch.equal(cells.product, weights.flatten(1, 2))
    assert torch.equal(cells.joint, torch.diag_embed(lean.joint.rows).flatten(1, 2))
    assert torch.equal(cells.has_product(), lean.has_product())
