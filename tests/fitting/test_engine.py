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

from . import helpers
from .helpers import X_DIM, Y_DIM, engine, model_of, options, rows, weights_of

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
    expected = [helpers.train_by_hand(run, r) for r in range(len(methods))]
    trained = run.run()
    for replica, alone in enumerate(expected):
        assert_same(run, trained, replica, alone)
    assert len({tuple(e.stop) for e in expected}) == len(methods)


@pytest.mark.parametrize(
    ("keys", "link", "changed"),
    [
        *(((key, key), "score", {"weight_decay": 0.1, "clip": 0.2}) for key in METHODS),
        *((("drf", "drf"), link, {}) for link in LINKS if link != "score"),
        (("pc", "js"), "score", {"average": 0.0}),  # the last weights are judged
    ],
)
def test_methods_links_and_weights_as_the_loop_by_hand(keys, link, changed):
    run = engine(model_of(keys, link=link), DATA, options(max_epochs=2, **changed))
    expected = helpers.train_by_hand(run, 1)
    assert_same(run, run.run(), 1, expected)


def test_replicas_that_stop_at_different_epochs():
    """The crew is packed anew each time one stops; the others go on as if nothing had happened."""
    settings = options(max_epochs=30, patience=2, learning_rate=0.1)
    run = engine(model_of(("pc", "js", "dv")), rows(seed=3), settings)
    expected = [helpers.train_by_hand(run, r) for r in range(3)]
    lengths = [len(e.stop) for e in expected]
    assert len(set(lengths)) > 1
    assert min(lengths) < 30
    trained = run.run()
    for replica, alone in enumerate(expected):
        assert_same(run, trained, replica, alone)


def test_an_epoch_is_a_pass_and_groups_reach_the_batches():
    run = engine(model_of(["pc"] * 2), DATA)
    assert run.batches.steps(1) == round(np.mean([len(r) / 16 for r in run.batches.rows]))
    assert run.batches.steps(9) == 9
    with pytest.raises(InputError, match=r"batch_size=100 .* only 51 training rows: .* most 51"):
        engine(model_of(["pc"] * 2), DATA, options(batch_size=100))
    (x, y), number = rows(), torch.arange(120)
    codes = number % 8
    extra = {"codes": codes.numpy(), "splits": make_splits(120, folds=2, groups=codes.numpy())}
    run = engine(model_of(["pc"] * 2), (number[:, None] + 0 * x, y), **extra)
    batch = run.batches.cells(run.batches.indices(0, 1, [0, 1])[0])
    for cells in (batch, run.held_out):
        who = codes[cells.x[..., 0].long()]
        same = (who.unsqueeze(-1) == who.unsqueeze(-2)).flatten(1, 2)
        assert (same & (cells.joint == 0)).any()
        assert (cells.product[same] == 0).all()
        assert (cells.product == 1).any()


# Large batches of separable critics train as if their scores were laid out.


def trained(make, monkeypatch, most_cells, **extra):
    """The parameters and the history of a fit that lays out this many cells at most."""
    monkeypatch.setattr(module, "MOST_CELLS", most_cells)
    torch.manual_seed(0)
    settings = extra.pop("settings", options(max_epochs=3, block=16, batch_size=32))
    run = engine(make(), DATA, settings, **extra)
    assert run.batches.lean == run.held_out.lean == (most_cells == 0)
    history = run.run().history
    return [p.detach().clone() for p in run.full.critic.parameters()], history


def assert_same_training(make, monkeypatch, **extra):
    (ours, our_history), (theirs, history) = (
        trained(make, monkeypatch, most, **extra) for most in (0, 1 << 30)
    )
    for entry, expected in zip(our_history, history, strict=True):
        np.testing.assert_allclose(entry["train"], expected["train"], rtol=1e-6)
        np.testing.assert_allclose(entry["stop"], expected["stop"], rtol=1e-9)
    for a, b in zip(ours, theirs, strict=True):
        # Adam makes rounding visible where the gradient is zero, as for a constant under dv.
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize(
    ("keys", "link"),
    [
        *(((key, key), "score") for key in METHODS),
        *((("drf", "dm1", "rpc"), link) for link in LINKS),
    ],
)
def test_every_method_and_link(keys, link, monkeypatch):
    assert_same_training(lambda: model_of(keys, critic="separable", link=link), monkeypatch)


@pytest.mark.parametrize("critic", ["separable", "bilinear", "encoders", "towers"])
def test_every_separable_critic(critic, monkeypatch):
    methods = ["pc", "dv", "pc", "cpc"]

    def make():
        torch.manual_seed(1)
        pair = (nn.Linear(X_DIM, 4), nn.Sequential(nn.Linear(Y_DIM, 4), nn.Tanh()))
        named = {"encoders": pair, "towers": "auto"}.get(critic, critic)
        return model_of(methods, critic=named, wide=critic == "towers")

    assert_same_training(make, monkeypatch)


@pytest.mark.parametrize("key", ["pc", "cpc", "drf", "mine"])
def test_groups(key, monkeypatch):
    codes = np.arange(120) % 12
    extra = {"codes": codes, "splits": make_splits(120, folds=2, groups=codes)}
    assert_same_training(lambda: model_of([key] * 2, critic="separable"), monkeypatch, **extra)


@pytest.mark.parametrize("key", ["pc", "dv", "cpc"])
def test_a_batch_of_one_group_sits_a_step_out(key, monkeypatch):
    codes = np.zeros(120, np.int64)
    codes[[5, 40, 65, 100]] = 1  # one training row and one stopping row of each replica
    extra = {"codes": codes, "splits": helpers.disjoint_splits(120, 2)}
    extra["settings"] = options(max_epochs=2, block=3, batch_size=6)
    assert_same_training(lambda: model_of([key] * 2, critic="separable"), monkeypatch, **extra)


def test_small_batches_and_other_critics_are_laid_out_and_large_batches_not():
    settings = options(batch_size=40, block=40)
    small = engine(model_of(["pc"] * 2, critic="separable"), DATA, settings)
    assert small.batches.lean is small.held_out.lean is False
    assert [build_critic(c, 1, 2, 2).separable for c in ("concat", "auto")] == [False, False]
    assert all(build_critic(c, 1, 2, 2).separable for c in ("separable", "bilinear", "inner"))
    assert build_critic("auto", 1, 2, 2, wide=True).separable
    settings = options(batch_size=2100, block=2100, max_epochs=1, min_steps=1)
    run = engine(model_of(["js"] * 2, critic="separable"), rows(7000), settings)
    assert run.batches.lean
    assert not run.held_out.lean  # fewer rows
    assert np.isfinite(run.run().history[0]["stop"]).all()


def test_held_out_cells_are_the_same():
    parts = [np.arange(7), np.arange(5, 30)]
    given = {"block": 6, "seed": 3, "groups": torch.arange(120) % 4}
    cells, _ = held_out_cells(*DATA, parts, **given)
    lean, _ = held_out_cells(*DATA, parts, **given, lean=True)
    assert torch.equal(cells.x, lean.x)
    weights = lean.product.rows.unsqueeze(-1) * lean.product.rows.unsqueeze(-2)
    weights = weights * (lean.product.ids.unsqueeze(-1) != lean.product.ids.unsqueeze(-2))
    assert torch.equal(cells.product, weights.flatten(1, 2))
    assert torch.equal(cells.joint, torch.diag_embed(lean.joint.rows).flatten(1, 2))
    assert torch.equal(cells.has_product(), lean.has_product())
