"""Adam with an update of its own: torch's Adam, to the last digits, and its state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from pointdep.contrastive.pretraining.adam import Adam
from torch import Tensor

from pointdep.contrastive.pretraining import adam

from ..compiler import needs_compiler

SHAPES = ((3, 4, 5), (2, 1, 7), (6,), (1,), ())
STEPS = 20


def weights(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [one.requires_grad_() for one in drawn]


def walk(
    optimizer: torch.optim.Optimizer, own: Sequence[Tensor], steps: range = range(STEPS)
) -> None:
    """Steps with gradients of many sizes, that depend on where it is, at a rate that changes."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in own:
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.grad = (0.1 * weight.detach() + noise) * 10.0 ** (step % 5 - 3)
        for group in optimizer.param_groups:
            rate = 0.05 * (1.0 - step / (2 * STEPS))
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        optimizer.step()


def with_own_update(made: Adam) -> Adam:
    """The update as it is written; what `compile_update` compiles."""
    made._update = adam._update
    return made


def with_compiled_update(made: Adam) -> Adam:
    needs_compiler()
    made.compile_update()
    return made


def by_torch(made: Adam) -> Adam:
    return made


WAYS = [
    pytest.param(by_torch, id="torch's"),
    pytest.param(with_own_update, id="own"),
    pytest.param(with_compiled_update, id="compiled", marks=pytest.mark.slow),
]
Way = Callable[[Adam], Adam]


def assert_same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9)])
def test_equals_torch(way: Way, betas: tuple[float, float]) -> None:
    ours, theirs = weights(), weights()
    optimizer = way(Adam(ours, lr=0.05, betas=betas))
    reference = torch.optim.Adam(theirs, lr=0.05, betas=betas)
    walk(optimizer, ours)
    walk(reference, theirs)
    assert_same(ours, theirs)
    assert all(not torch.equal(one, start) for one, start in zip(ours, weights(), strict=True))
    for one, other in zip(ours, theirs, strict=True):
        kept, expected = optimizer.state[one], reference.state[other]
        assert kept["step"] == expected["step"] == STEPS
        assert_same([kept["exp_avg"]], [expected["exp_avg"]])
        assert_same([kept["exp_avg_sq"]], [expected["exp_avg_sq"]])


@pytest.mark.parametrize("eps", [1e-8, 0.3])
def test_against_the_formula(eps: float) -> None:
    """Kingma and Ba's, number by number."""
    (weight,) = own = [torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)]
    optimizer = with_own_update(Adam(own, lr=0.1, betas=(0.8, 0.95), eps=eps))
    values, mean, square = [0.5, -2.0], [0.0, 0.0], [0.0, 0.0]
    for step in range(1, 6):
        gradient = [step * 0.7 - 2.0, 1.0 / step]
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        for k, slope in enumerate(gradient):
            mean[k] = 0.8 * mean[k] + 0.2 * slope
            square[k] = 0.95 * square[k] + 0.05 * slope**2
            corrected = mean[k] / (1 - 0.8**step), square[k] / (1 - 0.95**step)
            values[k] -= 0.1 * corrected[0] / (corrected[1] ** 0.5 + eps)
    assert weight.tolist() == pytest.approx(values, abs=1e-13)


def test_a_rate_in_a_tensor_is_read_at_every_step() -> None:
    """As where steps are recorded, and a number would be recorded with them."""
    ours, theirs = weights(), weights()
    optimizer = with_own_update(Adam(ours, lr=torch.tensor(0.05, dtype=torch.float64)))
    walk(optimizer, ours)
    walk(torch.optim.Adam(theirs, lr=0.05), theirs)
    assert_same(ours, theirs)


def test_groups_keep_their_own_options() -> None:
    ours, theirs = weights(), weights()

    def groups(own: list[Tensor]) -> list[dict[str, object]]:
        return [
            {"params": own[:2], "betas": (0.5, 0.9), "eps": 1e-2},
            {"params": own[2:], "betas": (0.9, 0.99), "eps": 1e-6},
        ]

    walk(with_own_update(Adam(groups(ours), lr=0.05)), ours)
    walk(torch.optim.Adam(groups(theirs), lr=0.05), theirs)
    assert_same(ours, theirs)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("from_torch", [True, False])
def test_a_state_goes_on_in_the_other(way: Way, from_torch: bool) -> None:
    """Half the steps by one, the other half by the other, as if by one alone."""
    moving, theirs = weights(), weights()
    walk(torch.optim.Adam(theirs, lr=0.05), theirs)

    def made(torchs: bool) -> torch.optim.Optimizer:
        return torch.optim.Adam(moving, lr=0.05) if torchs else way(Adam(moving, lr=0.05))

    first = made(from_torch)
    walk(first, moving, range(STEPS // 2))
    second = made(not from_torch)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    walk(second, moving, range(STEPS // 2, STEPS))
    assert_same(moving, theirs)


def test_states_have_the_same_entries() -> None:
    ours, theirs = weights(), weights()
    optimizer, reference = with_own_update(Adam(ours)), torch.optim.Adam(theirs)
    walk(optimizer, ours)
    walk(reference, theirs)
    one, other = optimizer.state_dict(), reference.state_dict()
    assert one["param_groups"] == other["param_groups"]
    assert one["state"].keys() == other["state"].keys()
    for kept, expected in zip(one["state"].values(), other["state"].values(), strict=True):
        assert list(kept) == list(expected)
        for name, value in kept.items():
            assert (value.dtype, value.shape) == (expected[name].dtype, expected[name].shape)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("idle", [0, 3])
def test_a_weight_without_gradient_is_left_alone(way: Way, idle: int) -> None:
    ours, theirs = weights(), weights()
    optimizer, reference = way(Adam(ours, lr=0.05)), torch.optim.Adam(theirs, lr=0.05)
    for made, own in ((optimizer, ours), (reference, theirs)):
        walk(made, own[:idle] + own[idle + 1 :])
    assert torch.equal(ours[idle], weights()[idle])
    assert not optimizer.state[ours[idle]]
    assert_same(ours, theirs)


def test_a_step_with_a_closure_is_torchs() -> None:
    ours, theirs = weights(), weights()
    optimizer, reference = with_own_update(Adam(ours, lr=0.05)), torch.optim.Adam(theirs, lr=0.05)
    for made, own in ((optimizer, ours), (reference, theirs)):
        walk(made, own, range(3))

        def closure(own: list[Tensor] = own) -> Tensor:
            return torch.stack([weight.square().sum() for weight in own]).sum()

        assert made.step(closure) is not None
    assert_same(ours, theirs)
