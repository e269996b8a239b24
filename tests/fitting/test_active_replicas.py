"""All parameters of R replicas as one matrix; steps that are recorded and replayed."""

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from pointdep.core.critics import build_critic, replica_generators
from pointdep.fitting import recording
from pointdep.fitting.active_replicas import Crew, FlatParameters
from pointdep.fitting.batches import Cells
from pointdep.fitting.recording import RecordedStep

from .helpers import X_DIM, Y_DIM, engine, model_of, options, rows, weights_of


class PairNet(nn.Module):
    """A user's module with a buffer and a part that the user has frozen."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(X_DIM + Y_DIM, 5)
        self.norm = nn.BatchNorm1d(5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.last = nn.Linear(5, 1)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x, y):
        return self.last(torch.tanh(self.frozen(self.norm(self.first(torch.cat([x, y], -1))))))


CRITICS = {
    "concat": "concat",
    "separable": "separable",
    "bilinear": "bilinear",
    "module": PairNet(),
    "encoders": (nn.Linear(X_DIM, 4), nn.Sequential(nn.Linear(Y_DIM, 6), nn.Linear(6, 4))),
}
every_critic = pytest.mark.parametrize("kind", CRITICS)


def make(kind):
    critic = build_critic(CRITICS[kind], 3, X_DIM, Y_DIM, hidden=(6, 5), embedding_dim=4)
    critic.reset(replica_generators(0, 3))
    generator = torch.Generator().manual_seed(1)
    for parameter in critic.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return critic.double()


def loss_of(critic):
    generator, weights = torch.Generator().manual_seed(2), torch.arange(1.0, 4.0).double()
    x, y = (torch.randn(3, 7, d, generator=generator).double() for d in (X_DIM, Y_DIM))
    return (weights[:, None] * critic.pairs(x, y).square()).sum()


def trainable_of(critic):
    return [p for p in critic.parameters() if p.requires_grad]


def row_of(critic, replica, tensors):
    """What belongs to one replica, flat; tensors: one per trainable parameter of the critic."""
    if critic.stacked:
        return torch.cat([t[replica].reshape(-1) for t in tensors])
    own = set(map(id, critic.copies[replica].parameters()))
    pairs = zip(trainable_of(critic), tensors, strict=True)
    return torch.cat([t.reshape(-1) for p, t in pairs if id(p) in own])


@every_critic
def test_layout_shared_memory_and_gradient(kind):
    critic = make(kind)
    before, flat = [p.detach().clone() for p in trainable_of(critic)], FlatParameters(critic)
    assert flat.values.shape == (3, sum(p.numel() for p in before) // 3)
    for replica in range(3):
        assert torch.equal(flat.values[replica].detach(), row_of(critic, replica, before))
    for parameter, kept in zip(trainable_of(critic), before, strict=True):
        assert torch.equal(parameter.detach(), kept)
        assert parameter.untyped_storage().data_ptr() == flat.values.untyped_storage().data_ptr()
    with torch.no_grad():
        flat.values[1] += 1.0
    for replica, moved in enumerate((0.0, 1.0, 0.0)):
        now = row_of(critic, replica, [p.detach() for p in trainable_of(critic)])
        torch.testing.assert_close(now, row_of(critic, replica, before) + moved)
    flat.load(torch.zeros_like(flat.values))
    assert all((p == 0).all() for p in trainable_of(critic))
    plain, flat = make(kind), FlatParameters(make(kind))
    loss_of(plain).backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trainable_of(plain)]
    found = flat.backward(loss_of(flat.critic))
    assert flat.values.grad is found
    for replica in range(3):
        wanted = row_of(plain, replica, grads)
        assert wanted.abs().max() > 0
        torch.testing.assert_close(found[replica], wanted)


def test_clip_is_per_replica():
    flat = FlatParameters(make("concat"))
    grad = flat.backward(loss_of(flat.critic)).clone()
    norms = grad.norm(dim=1)
    limit = norms.sort().values[1].item()  # the largest is above it, the smallest below
    flat.clip_(limit)
    for replica in range(3):
        factor = min(1.0, limit / norms[replica].item())
        torch.testing.assert_close(flat.values.grad[replica], grad[replica] * factor)
    assert (flat.values.grad.norm(dim=1) < norms - 1e-9).sum() == 1
    untouched = flat.values.grad.clone()
    flat.clip_(1e9)
    assert torch.equal(flat.values.grad, untouched)


# Recorded steps: here on the CPU, where what is recorded is done again.


DATA, EYE = rows(), torch.eye(4)
OTHERS = 1.0 - EYE


def cells(seed, product=OTHERS):
    x, y = torch.randn(2, 2, 1, 4, 3, generator=torch.Generator().manual_seed(seed))
    return Cells(x, y, EYE, product)


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


def test_every_batch_is_seen_and_weights_of_their_own_are_not_recorded(recorded):
    step = RecordedStep(product_sum, torch.zeros(()))
    for number in range(8):
        batch = cells(number)
        torch.testing.assert_close(step(batch, number / 2), product_sum(batch, number / 2))
    assert recorded == {"recorded": 1, "replayed": 5}
    recorded.update(recorded=0, replayed=0)
    step = RecordedStep(product_sum, torch.zeros(()))
    for number in range(6):
        step(cells(number, torch.ones(2, 4, 4)), 1.0)
    assert recorded == {"recorded": 0, "replayed": 0}
    for number in range(2):
        step(cells(number), 1.0)
        step(cells(number, 1.0 - EYE), 1.0)  # equal, but elsewhere in memory
    assert recorded == {"recorded": 1, "replayed": 2}


def test_a_step_that_cannot_be_recorded(monkeypatch):
    record = Mock(side_effect=RuntimeError("operation not permitted when stream is capturing"))
    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    step = RecordedStep(product_sum, torch.zeros(()))
    for number in range(8):
        batch = cells(number)
        torch.testing.assert_close(step(batch, 1.0), product_sum(batch, 1.0))
    assert record.call_count == 1


@pytest.mark.parametrize("critic", ["concat", "separable"])
def test_a_fit_is_the_same(recorded, monkeypatch, critic):
    plain, run = (
        engine(model_of(("pc", "cpc", "drf"), critic=critic), DATA, options(max_epochs=3))
        for _ in range(2)
    )
    expected = plain.run()
    assert recorded["recorded"] == 0  # only a GPU records
    monkeypatch.setattr(
        Crew, "_recorded_step", lambda crew: RecordedStep(crew._step, crew.average.new_zeros(()))
    )
    assert run.run().history == expected.history
    assert recorded["replayed"] > 3
    for replica in range(3):
        got, wanted = (weights_of(one.full, replica) for one in (run, plain))
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-14)
