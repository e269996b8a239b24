"""Steps that are recorded and replayed: here on the CPU, where what is recorded is done again."""

import pytest
import torch

from pointdep.fitting import recording
from pointdep.fitting.active_replicas import Crew
from pointdep.fitting.batches import Cells
from pointdep.fitting.recording import RecordedStep

from .helpers import engine, model_of, options, rows, weights_of

DATA = rows()


def cells(seed, product=None):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(2, 1, 4, 3, generator=generator) for _ in range(2))
    return Cells(x, y, EYE, 1.0 - EYE if product is None else product)


EYE = torch.eye(4)
OTHERS = 1.0 - EYE


@pytest.fixture
def recorded(monkeypatch):
    """How often something was recorded, and how often it was done again."""
    counts = {"recorded": 0, "replayed": 0}

    def record(function):
        counts["recorded"] += 1

        def replay():
            counts["replayed"] += 1
            function()

        return replay

    monkeypatch.setattr(recording, "record", record)
    return counts


def product_sum(batch, weight):
    return (batch.x * batch.y).sum((1, 2, 3)) * weight


def test_every_batch_is_seen(recorded):
    step = RecordedStep(product_sum, torch.zeros(()))
    for number in range(8):
        batch = cells(number, OTHERS)
        torch.testing.assert_close(step(batch, number / 2), product_sum(batch, number / 2))
    assert recorded == {"recorded": 1, "replayed": 5}


def test_weights_of_their_own_are_not_recorded(recorded):
    step = RecordedStep(product_sum, torch.zeros(()))
    for number in range(6):
        step(cells(number, torch.ones(2, 4, 4)), 1.0)
    assert recorded == {"recorded": 0, "replayed": 0}
    for number in range(2):
        step(cells(number, OTHERS), 1.0)
        step(cells(number), 1.0)  # equal, but elsewhere in memory
    assert recorded == {"recorded": 1, "replayed": 2}


def test_a_step_that_cannot_be_recorded(monkeypatch):
    tried = []

    def record(function):
        tried.append(function)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    step = RecordedStep(product_sum, torch.zeros(()))
    for number in range(8):
        batch = cells(number, OTHERS)
        torch.testing.assert_close(step(batch, 1.0), product_sum(batch, 1.0))
    assert len(tried) == 1


@pytest.mark.parametrize("critic", ["concat", "separable"])
def test_a_fit_is_the_same(recorded, monkeypatch, critic):
    methods = ("pc", "cpc", "drf")
    plain = engine(model_of(methods, critic=critic), DATA, options(max_epochs=3))
    expected = plain.run()
    monkeypatch.setattr(
        Crew, "_recorded_step", lambda crew: RecordedStep(crew._step, crew.average.new_zeros(()))
    )
    run = engine(model_of(methods, critic=critic), DATA, options(max_epochs=3))
    assert run.run().history == expected.history
    assert recorded["replayed"] > 3
    for replica in range(3):
        for got, wanted in zip(
            weights_of(run.full, replica), weights_of(plain.full, replica), strict=True
        ):
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)


def test_only_a_gpu_records(recorded):
    engine(model_of(("pc", "pc")), DATA).run()
    assert recorded["recorded"] == 0
