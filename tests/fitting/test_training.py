"""What is done around the engine: modules, options, early stopping, flags, divergence."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from pointdep.core.critics import build_critic
from pointdep.core.methods import METHODS
from pointdep.errors import MEANINGS, DivergedError
from pointdep.estimators import assembly
from pointdep.estimators.fit_rows import PairedRows, prepare
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.progress import Silent
from pointdep.fitting.splits import make_splits
from refusals import refused

from . import helpers
from .helpers import (
    X_DIM,
    Y_DIM,
    closed_form,
    disjoint_splits,
    engine,
    gaussians,
    model_of,
    options,
    rows,
    split_of,
    weights_of,
)

X, Y = (side.float() for side in rows(90))
SPLITS = make_splits(90, folds=3, seed=2)


class Noisy(nn.Module):
    """A user's module that behaves differently in training."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(X_DIM + Y_DIM)
        self.net = nn.Sequential(nn.Linear(X_DIM + Y_DIM, 6), nn.Dropout(0.5), nn.Linear(6, 1))

    def forward(self, x, y):
        return self.net(self.norm(torch.cat([x, y], -1)))


def untrained(critic, link):
    settings = assembly.CriticSettings(critic, (6,), 4, "silu", link)
    return assembly.make_model(settings, METHODS["pc"], 3, X_DIM, Y_DIM)


def paired(masks=None):
    masks = masks or (np.ones(X_DIM, bool), np.ones(Y_DIM, bool))
    encoder_x, encoder_y = (SimpleNamespace(numeric_mask=mask) for mask in masks)
    return PairedRows(X, Y, SPLITS, encoder_x=encoder_x, encoder_y=encoder_y)


def train(critic="concat", masks=None, **changed):
    model, settings = untrained(critic, "score"), options(max_epochs=3, **changed)
    return model, assembly.train_model(model, paired(masks), settings, progress=Silent())


def test_each_replica_is_standardised_by_its_own_training_rows():
    model, _ = train(masks=(np.array([True, False]), np.ones(Y_DIM, bool)))
    for replica, split in enumerate(SPLITS):
        x, y = X.numpy()[split.train], Y.numpy()[split.train]
        np.testing.assert_allclose(model.y_map.mean[replica], y.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model.y_map.scale[replica], y.std(0), rtol=1e-5)
        assert model.x_map.mean[replica].tolist() == pytest.approx([x[:, 0].mean(), 0.0], rel=1e-4)
        assert model.x_map.scale[replica].tolist() == pytest.approx([x[:, 0].std(), 1.0], rel=1e-4)
    assert not torch.equal(model.y_map.mean[0], model.y_map.mean[1])


def test_a_module_with_batch_norm_dropout_and_a_frozen_part():
    mine = Noisy().double()
    before = {name: t.clone() for name, t in mine.state_dict().items()}
    model, trained = train(mine)
    assert not any(m.training for m in model.modules())
    assert not any(p.requires_grad for p in model.parameters())
    pairs = X.expand(3, 90, X_DIM), Y.expand(3, 90, Y_DIM)
    assert torch.equal(model.log_ratio_pairs(*pairs), model.log_ratio_pairs(*pairs))
    # The running statistics are those of the best epoch, (epoch + 0) * steps updates.
    steps = max(4, round(max(len(s.train) for s in SPLITS) / 16))
    tracked = [int(c.norm.num_batches_tracked) for c in model.critic.copies]
    assert tracked == [steps * epoch for epoch in trained.trained.best_epochs]
    assert not torch.equal(*(c.net[0].weight for c in list(model.critic.copies)[:2]))
    # The user's module is not touched.
    assert mine.training
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype
    mine = Noisy()
    mine.net[0].requires_grad_(False)
    model, _ = train(mine, weight_decay=0.5)
    for copy in model.critic.copies:
        assert torch.equal(copy.net[0].weight, mine.net[0].weight)
        assert not torch.equal(copy.net[2].weight, mine.net[2].weight)
    refused("no parameters to train", build_critic, Noisy().requires_grad_(False), 1, X_DIM, Y_DIM)


@pytest.mark.parametrize("critic", ["concat", Noisy()], ids=["concat", "module"])
def test_no_generator_is_touched_and_none_matters(critic):
    """Nor does it matter that a caller wants no gradients."""
    torch.manual_seed(11)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, _ = train(critic)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()
    torch.manual_seed(12)
    with torch.no_grad():
        second, _ = train(critic)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_fewer_units_for_fewer_rows_and_options_refused():
    rows = (1, 4_999, 5_000, 49_999, 50_000, 10**7)
    units = [sum(assembly.choose_hidden("auto", "auto", n)) for n in rows]
    assert units == sorted(units)
    assert assembly.choose_hidden("auto", "auto", 1_000) == (128, 32)
    assert assembly.choose_hidden("auto", "auto", 10**6) == (256, 64)
    # Only where it is left to the default critic.
    assert assembly.choose_hidden("auto", (7,), 10) == (7,)
    assert assembly.choose_hidden("auto", "wide", 10) == "wide"
    assert assembly.choose_hidden("concat", "auto", 10) == "auto"
    assert assembly.choose_hidden(Noisy(), "auto", 10) == "auto"
    for name, values in (
        ("learning_rate", (0.0, float("nan"), "fast")),
        ("clip", (-1.0, 0.0)),
        ("weight_decay", (-0.1, float("inf"))),
        ("max_epochs", (0, 2.5)),
        ("patience", (0,)),
        ("min_steps", (0,)),
        ("average", (1.0, -0.1)),
    ):
        for value in values:
            refused(re.escape(f"{name}={value!r} must"), options, **{name: value})
    for block in (1, 17):
        refused(f"batch_size=16 with {block - 1} neg", options, block=block)
    assert TrainingOptions(2, 2, average=0, max_epochs=np.int64(3)).max_epochs == 3


def test_the_default_critic_needs_no_standardiser_and_ends_ready_to_use():
    model = untrained("auto", "auto")
    rows = prepare(model, paired())
    # The maps of columns are shared, and the same for a row whichever replica asks.
    torch.testing.assert_close(rows.x, model.x_front(X))
    assert not torch.equal(rows.x, X)
    assert prepare(model, rows).x.shape == X.shape
    assembly.train_model(model, rows, options(max_epochs=2), progress=Silent())
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert model.critic.correlations.any()


def shape(critic="concat", method="pc", smallest=1000, batch_size="auto", negatives="auto"):
    settings = assembly.CriticSettings(critic, (6,), 4, "silu", "score")
    return assembly.batch_shape(settings, METHODS[method], smallest, batch_size, negatives)


def test_batch_shape():
    # 40 steps a pass, and whole blocks
    sizes = [shape(smallest=smallest) for smallest in (1000, 4000, 10**6, 20, 5)]
    assert sizes == [(32, 8), (96, 8), (256, 8), (16, 8), (5, 5)]
    # A critic that starts at the closed form needs fewer, unless the loss has a mean's logarithm.
    assert [shape("auto", m)[1] for m in ("pc", "nwj", "dv", "mine", "drf")] == [4, 4, 8, 8, 16]
    assert shape("separable") == (32, 32)
    assert shape(method="cpc", smallest=10**6) == (64, 64)
    assert shape("bilinear", method="cpc", smallest=10**6) == (256, 256)
    assert shape(negatives="all") == (32, 32)
    assert shape(negatives=3) == (32, 4)
    assert shape(negatives=99) == (100, 100)
    assert shape(batch_size=50) == (50, 8)
    for wrong in ({"batch_size": "all"}, {"negatives": 2.0}, {"batch_size": True}):
        refused("must be a whole number or 'auto'", shape, **wrong)
    refused("negatives=99 .* 50 training rows: .* most 49", shape, negatives=99, smallest=50)


def flags(trained):
    return {flag.name: flag.replicas for flag in trained.flags}


def test_patience_still_improving_and_not_converged():
    settings = options(max_epochs=60, patience=4, learning_rate=0.05)
    trained = engine(model_of(["pc"]), rows(), settings, splits=disjoint_splits(120, 1)).run()
    assert (len(trained.history), flags(trained)) == (trained.best_epochs[0] + 4, {})
    trained = engine(model_of(["pc"] * 2), rows(strength=3.0), options(max_epochs=2)).run()
    assert flags(trained) == {"still_improving": (0, 1)}
    message = trained.flags[0].message
    assert "max_epochs (now 2)" in message
    assert MEANINGS["still_improving"] in message
    assert str(trained.flags[0]) == f"still_improving: {message}"
    # Noise learned by heart: the first epochs are the best, and patience has not run out.
    settings = options(max_epochs=12, patience=12, learning_rate=0.1)
    trained = engine(model_of(["pc"] * 2), rows(strength=0.0), settings).run()
    assert flags(trained) == {"not_converged": (0, 1)}
    assert max(trained.best_epochs) < 12


def informed_engine(learning_rate, **changed):
    """The default critic, which starts from an estimate, on Gaussian pairs."""
    data, splits = gaussians(300), [split_of(200, 60, 40)]
    settings = options(learning_rate=learning_rate, **changed)
    return engine(closed_form(*data, splits), data, settings, splits=splits)


def test_an_informed_critic_is_judged_from_where_it_started():
    """Steps beyond reason: nothing is better than the weights of epoch 0."""
    run = informed_engine(100.0, max_epochs=10, patience=3, average=0.0)
    start = weights_of(run.full, 0)
    before, trained = helpers.held_out_value(run, run.full.select([0]), 0, start), run.run()
    assert (trained.best_epochs, len(trained.history)) == ([0], 3)
    assert all(entry["stop"][0] < before for entry in trained.history)
    assert all(map(torch.equal, weights_of(run.full, 0), start))
    assert flags(trained) == {}
    # A constant of log r that is wrong, which the network's bias can mend.
    run = informed_engine(0.01, max_epochs=4)
    run.full.critic.net.rest.layers[-1].bias.data -= 1.0
    before = helpers.held_out_value(run, run.full.select([0]), 0, weights_of(run.full, 0))
    trained = run.run()
    assert trained.best_epochs[0] > 0
    assert trained.history[trained.best_epochs[0] - 1]["stop"][0] > before


def poisoned_run(epoch):
    """The training rows of replica 0 turn into NaN after `epoch` epochs."""
    (x, y), splits = rows(), disjoint_splits(120, 3)

    def poison(done, *_):
        if done == epoch:
            x[splits[0].train] = math.nan

    poison(0)
    settings, hook = options(max_epochs=6, patience=6), SimpleNamespace(update=poison)
    return engine(model_of(("mine", "mine", "pc")), (x, y), settings, splits=splits, progress=hook)


def test_a_diverging_replica_does_not_touch_its_neighbours():
    run, healthy = poisoned_run(2), poisoned_run(99)
    trained, expected = run.run(), healthy.run()
    assert flags(trained)["diverged"] == (0,)
    assert "diverged" not in flags(expected)
    assert [e["stop"][0] is None for e in trained.history] == [False] * 2 + [True] * 4
    for replica in (1, 2):
        values = [[e["stop"][replica] for e in one.history] for one in (trained, expected)]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
        assert trained.best_epochs[replica] == expected.best_epochs[replica]
        got, wanted = (weights_of(one.full, replica) for one in (run, healthy))
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    # The diverged one keeps its best weights.
    kept = weights_of(run.full, 0)
    assert all(torch.isfinite(part).all() for part in kept)
    assert trained.best_epochs[0] in {1, 2}
    value = helpers.held_out_value(run, run.full.select([0]), 0, kept)
    assert value == pytest.approx(trained.history[trained.best_epochs[0] - 1]["stop"][0])
    message = next(f.message for f in trained.flags if f.name == "diverged")
    assert "method='pc'" in message
    assert "[0]" in message


def test_nothing_to_keep():
    with pytest.raises(DivergedError, match=r"'mine'.*method='pc'.*learning_rate"):
        poisoned_run(0).run()
    # Finite weights whose objective is not: exp of a score beyond float64.
    (x, y), splits = rows(), disjoint_splits(120, 2)
    x[splits[0].stop] *= 1e200
    run = engine(model_of(("nwj", "pc")), (x, y), options(max_epochs=3), splits=splits)
    with pytest.raises(DivergedError, match="'nwj'"):
        run.run()
