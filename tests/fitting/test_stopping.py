"""Early stopping, the flags, and replicas that diverge."""

import math
from types import SimpleNamespace

import pytest
import torch

from pointdep.errors import MEANINGS, DivergedError

from . import helpers
from .closed_forms import closed_form, gaussians, split_of
from .helpers import disjoint_splits, engine, model_of, options, rows, weights_of


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
    before = helpers.held_out_value(run, run.full.select([0]), 0, start)
    trained = run.run()
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
    model = model_of(("mine", "mine", "pc"))
    return engine(model, (x, y), settings, splits=splits, progress=hook)


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
