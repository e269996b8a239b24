"""Early stopping, the flags, and replicas that diverge."""

import math

import pytest
import torch

from pointdep.errors import MEANINGS, DivergedError

from .closed_forms import closed_form, gaussians, split_of
from .helpers import (
    AtEpoch,
    disjoint_splits,
    engine,
    held_out_value,
    model_of,
    options,
    rows,
    weights_of,
)


def flags(trained):
    return {flag.name: flag.replicas for flag in trained.flags}


def test_patience():
    settings = options(max_epochs=60, patience=4, learning_rate=0.05)
    trained = engine(model_of(["pc"]), rows(), settings, splits=disjoint_splits(120, 1)).run()
    assert len(trained.history) == trained.best_epochs[0] + 4
    assert flags(trained) == {}


def test_still_improving():
    trained = engine(model_of(["pc"] * 2), rows(strength=3.0), options(max_epochs=2)).run()
    assert flags(trained) == {"still_improving": (0, 1)}
    message = trained.flags[0].message
    assert "max_epochs (now 2)" in message
    assert MEANINGS["still_improving"] in message
    assert str(trained.flags[0]) == f"still_improving: {message}"


def test_not_converged():
    """Noise learned by heart: the first epochs are the best, and patience has not run out."""
    settings = options(max_epochs=12, patience=12, learning_rate=0.1)
    trained = engine(model_of(["pc"] * 2), rows(strength=0.0), settings).run()
    assert flags(trained) == {"not_converged": (0, 1)}
    assert max(trained.best_epochs) < 12


def informed_engine(learning_rate, **changed):
    """The default critic, which starts from an estimate, on Gaussian pairs."""
    x, y = gaussians(300)
    splits = [split_of(200, 60, 40)]
    model = closed_form(x, y, splits)
    settings = options(learning_rate=learning_rate, **changed)
    return engine(model, (x, y), settings, splits=splits)


def test_an_informed_critic_can_stay_as_it_started():
    """Steps beyond reason: nothing is better than the weights of epoch 0."""
    run = informed_engine(100.0, max_epochs=10, patience=3, average=0.0)
    start = weights_of(run.full, 0)
    before = held_out_value(run, run.full.select([0]), 0, start)
    trained = run.run()
    assert trained.best_epochs == [0]
    assert len(trained.history) == 3
    assert all(entry["stop"][0] < before for entry in trained.history)
    for a, b in zip(weights_of(run.full, 0), start, strict=True):
        assert torch.equal(a, b)
    assert flags(trained) == {}


def test_an_informed_critic_that_learns_is_judged_from_where_it_started():
    """A constant of log r that is wrong, which the network's bias can mend."""
    run = informed_engine(0.01, max_epochs=4)
    run.full.critic.net.rest.layers[-1].bias.data -= 1.0
    before = held_out_value(run, run.full.select([0]), 0, weights_of(run.full, 0))
    trained = run.run()
    assert trained.best_epochs[0] > 0
    assert trained.history[trained.best_epochs[0] - 1]["stop"][0] > before


METHODS = ("mine", "mine", "pc")


def poisoned_run(epoch, methods=METHODS):
    """The training rows of replica 0 turn into NaN after `epoch` epochs."""
    x, y = rows()
    splits = disjoint_splits(120, len(methods))

    def poison():
        x[splits[0].train] = math.nan

    if epoch == 0:
        poison()
    settings = options(max_epochs=6, patience=6)
    hook = AtEpoch(epoch, poison)
    return engine(model_of(methods), (x, y), settings, splits=splits, progress=hook)


def test_a_diverging_replica_does_not_touch_its_neighbours():
    run, healthy = poisoned_run(2), poisoned_run(99)
    trained, expected = run.run(), healthy.run()
    assert flags(trained)["diverged"] == (0,)
    assert "diverged" not in flags(expected)
    assert [e["stop"][0] is None for e in trained.history] == [False] * 2 + [True] * 4
    for replica in (1, 2):
        assert [e["stop"][replica] for e in trained.history] == pytest.approx(
            [e["stop"][replica] for e in expected.history], rel=1e-12
        )
        assert trained.best_epochs[replica] == expected.best_epochs[replica]
        for a, b in zip(
            weights_of(run.full, replica), weights_of(healthy.full, replica), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_diverged_replica_keeps_its_best_weights():
    run = poisoned_run(2)
    trained = run.run()
    kept = weights_of(run.full, 0)
    assert all(torch.isfinite(part).all() for part in kept)
    assert trained.best_epochs[0] in {1, 2}
    value = held_out_value(run, run.full.select([0]), 0, kept)
    assert value == pytest.approx(trained.history[trained.best_epochs[0] - 1]["stop"][0])
    message = next(f.message for f in trained.flags if f.name == "diverged")
    assert "method='pc'" in message
    assert "[0]" in message


def test_nothing_to_keep():
    with pytest.raises(DivergedError, match=r"'mine'.*method='pc'.*learning_rate"):
        poisoned_run(0).run()


def test_a_held_out_objective_that_overflows_is_a_divergence():
    """Finite weights whose objective is not: exp of a score beyond float64."""
    x, y = rows()
    splits = disjoint_splits(120, 2)
    x[splits[0].stop] *= 1e200
    run = engine(model_of(("nwj", "pc")), (x, y), options(max_epochs=3), splits=splits)
    with pytest.raises(DivergedError, match="'nwj'"):
        run.run()
