"""Adam with an update of its own: torch's Adam, to the last digits, and its state."""

import copy

import pytest
import torch

from pointdep.contrastive.pretraining import recipes
from pointdep.contrastive.pretraining.recipes import Adam

from ..compiler import needs_compiler

SHAPES = ((3, 4, 5), (2, 1, 7), (6,), (1,), ())
STEPS = 20
EXACT = {"atol": 1e-12, "rtol": 1e-12}
RATE = torch.tensor(0.05, dtype=torch.float64)  # read at every step, as where steps are recorded


def weights():
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [one.requires_grad_() for one in drawn]


def walk(optimizer, own, steps=range(STEPS)):
    """Steps with gradients of many sizes, that depend on where it is, at a rate that changes."""
    (group,) = optimizer.param_groups
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in own:
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.grad = (0.1 * weight.detach() + noise) * 10.0 ** (step % 5 - 3)
        rate = 0.05 * (1.0 - step / (2 * STEPS))
        group["lr"] = group["lr"].fill_(rate) if torch.is_tensor(group["lr"]) else rate
        optimizer.step()


def own_update(made):
    made._update = recipes._update  # as it is written; what `compile_update` compiles
    return made


def compiled_update(made):
    needs_compiler()
    made.compile_update()
    return made


WAYS = [
    pytest.param(lambda made: made, id="torch's"),
    pytest.param(own_update, id="own"),
    pytest.param(compiled_update, id="compiled", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{"betas": (0.5, 0.9), "eps": 0.3}, {"lr": RATE}], ids=str)
def test_equals_torch(way, options):
    ours, theirs = weights(), weights()
    optimizer = way(Adam(ours, **{"lr": 0.05, **options}))
    reference = torch.optim.Adam(theirs, **{**options, "lr": 0.05})
    walk(optimizer, ours)
    walk(reference, theirs)
    torch.testing.assert_close(ours, theirs, **EXACT)
    assert all(not torch.equal(one, start) for one, start in zip(ours, weights(), strict=True))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(dict(optimizer.state[one]), dict(reference.state[other]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("from_torch", [True, False])
def test_a_state_goes_on_in_the_other(way, from_torch):
    moving, theirs = weights(), weights()
    walk(torch.optim.Adam(theirs, lr=0.05), theirs)
    made = [torch.optim.Adam(moving, lr=0.05), way(Adam(moving, lr=0.05))]
    first, second = made if from_torch else reversed(made)
    walk(first, moving, range(STEPS // 2))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    walk(second, moving, range(STEPS // 2, STEPS))
    torch.testing.assert_close(moving, theirs, **EXACT)
