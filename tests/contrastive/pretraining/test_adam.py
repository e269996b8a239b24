"""Adam with an update of its own: torch's Adam, to the last digits, and its state."""

import copy

import pytest
import torch

from pointdep.contrastive.pretraining import shallow
from pointdep.contrastive.pretraining.shallow import Adam
from pointdep.errors import InputError

from ..compiler import needs_compiler

SHAPES = ((3, 4, 5), (2, 1, 7), (6,), (1,), ())
STEPS = 20


def weights():
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [one.requires_grad_() for one in drawn]


def walk(optimizer, own, steps=range(STEPS)):
    """Steps with gradients of many sizes, that depend on where it is, at a rate that changes."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in own:
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.grad = (0.1 * weight.detach() + noise) * 10.0 ** (step % 5 - 3)
        for group in optimizer.param_groups:
            rate = 0.05 * (1.0 - step / (2 * STEPS))
            is_tensor = isinstance(group["lr"], torch.Tensor)
            group["lr"] = group["lr"].fill_(rate) if is_tensor else rate
        optimizer.step()


def own_update(made):
    """The update as it is written; what `compile_update` compiles."""
    made._update = shallow._update
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


def assert_same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "options",
    [
        {"betas": (0.9, 0.999)},
        {"betas": (0.5, 0.9), "eps": 0.3},
        # A rate in a tensor is read at every step, as where steps are recorded.
        {"lr": torch.tensor(0.05, dtype=torch.float64)},
    ],
    ids=str,
)
def test_equals_torch(way, options):
    ours, theirs = weights(), weights()
    optimizer = way(Adam(ours, **{"lr": 0.05, **options}))
    reference = torch.optim.Adam(theirs, **{**options, "lr": 0.05})
    walk(optimizer, ours)
    walk(reference, theirs)
    assert_same(ours, theirs)
    assert all(not torch.equal(one, start) for one, start in zip(ours, weights(), strict=True))
    for one, other in zip(ours, theirs, strict=True):
        kept, expected = optimizer.state[one], reference.state[other]
        assert list(kept) == list(expected)
        for name, value in kept.items():
            assert (value.dtype, value.shape) == (expected[name].dtype, expected[name].shape)
            assert_same(value, expected[name])


def test_against_the_formula():
    """Kingma and Ba's, number by number."""
    (weight,) = own = [torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)]
    optimizer = own_update(Adam(own, lr=0.1, betas=(0.8, 0.95), eps=0.3))
    values, mean, square = [0.5, -2.0], [0.0, 0.0], [0.0, 0.0]
    for step in range(1, 6):
        gradient = [step * 0.7 - 2.0, 1.0 / step]
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        for k, slope in enumerate(gradient):
            mean[k] = 0.8 * mean[k] + 0.2 * slope
            square[k] = 0.95 * square[k] + 0.05 * slope**2
            corrected = mean[k] / (1 - 0.8**step), square[k] / (1 - 0.95**step)
            values[k] -= 0.1 * corrected[0] / (corrected[1] ** 0.5 + 0.3)
    assert weight.tolist() == pytest.approx(values, abs=1e-13)


def test_groups_keep_their_own_options():
    ours, theirs = weights(), weights()

    def groups(own):
        return [
            {"params": own[:2], "betas": (0.5, 0.9), "eps": 1e-2},
            {"params": own[2:], "betas": (0.9, 0.99), "eps": 1e-6},
        ]

    walk(own_update(Adam(groups(ours), lr=0.05)), ours)
    walk(torch.optim.Adam(groups(theirs), lr=0.05), theirs)
    assert_same(ours, theirs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("from_torch", [True, False])
def test_a_state_goes_on_in_the_other(way, from_torch):
    """Half the steps by one, the other half by the other, as if by one alone."""
    moving, theirs = weights(), weights()
    walk(torch.optim.Adam(theirs, lr=0.05), theirs)
    made = [torch.optim.Adam(moving, lr=0.05), way(Adam(moving, lr=0.05))]
    first, second = made if from_torch else reversed(made)
    walk(first, moving, range(STEPS // 2))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    walk(second, moving, range(STEPS // 2, STEPS))
    assert_same(moving, theirs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("idle", [0, 3])
def test_a_weight_without_gradient_is_left_alone(way, idle):
    ours, theirs = weights(), weights()
    optimizer, reference = way(Adam(ours, lr=0.05)), torch.optim.Adam(theirs, lr=0.05)
    for made, own in ((optimizer, ours), (reference, theirs)):
        walk(made, own[:idle] + own[idle + 1 :])
    assert torch.equal(ours[idle], weights()[idle])
    assert not optimizer.state[ours[idle]]
    assert_same(ours, theirs)


def test_a_step_with_a_closure_is_torchs():
    ours, theirs = weights(), weights()
    optimizer, reference = own_update(Adam(ours, lr=0.05)), torch.optim.Adam(theirs, lr=0.05)
    for made, own in ((optimizer, ours), (reference, theirs)):
        walk(made, own, range(3))
        assert made.step(lambda own=own: sum(weight.square().sum() for weight in own)) is not None
    assert_same(ours, theirs)


def test_options_that_the_own_update_does_not_have():
    with pytest.raises(InputError, match="weight_decay"):
        Adam(weights(), weight_decay=0.1).compile_update()
