"""The kernels for a GPU, against plain layers and autograd: skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from core.critics.emulated import unpacked
from core.interpreted import OPTIONS, SCORES, methods, scores_of
from pointdep.core.critics import hopper
from pointdep.core.critics.pair_layers import pair_scores
from pointdep.core.fused_objectives import FusedObjectives, fits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CUDA = torch.device("cuda")


def plain(hx, hy, weight, bias, last_weight, last_bias):
    """The scores (R, n, m) of a concat critic from its first layer's halves on."""
    first = torch.relu(hx[:, :, None] + hy[:, None]).flatten(1, 2)
    second = torch.relu(first @ weight + bias)
    return (second @ last_weight + last_bias).view(len(hx), hx.shape[1], hy.shape[1])


def with_gradients(function, tensors, grad):
    """The scores, and the gradients of the six inputs, of sum(scores * grad), all in float64."""
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    scores = function(*tensors)
    grads = torch.autograd.grad(scores, tensors, grad.to(scores.dtype))
    return [part.detach().double() for part in (scores, *grads)]


def of_double(tensors):
    return [tensor.double() for tensor in tensors]


def off(found, wanted):
    """The distance, in units of the wanted one's norm."""
    return ((found - wanted).norm() / wanted.norm()).item()


def random_layers(replicas, rows, columns, hidden, outputs):
    """hx, hy, the four weights, and a gradient of the scores."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape, scale=1.0):
        return scale * torch.randn(replicas, *shape, generator=generator).to(CUDA)

    tensors = [
        normal(rows, hidden),
        normal(columns, hidden),
        normal(hidden, outputs, scale=hidden**-0.5),
        normal(1, outputs, scale=0.1),
        normal(outputs, 1, scale=outputs**-0.5),
        normal(1, 1),
    ]
    return tensors, normal(rows, columns)


def whole_numbers(replicas, rows, hidden, outputs):
    """The same of small whole numbers, of which no product or sum is rounded."""
    generator = torch.Generator().manual_seed(0)

    def whole(low, high, *shape):
        drawn = torch.randint(low, high + 1, (replicas, *shape), generator=generator)
        return drawn.float().to(CUDA)

    tensors = [
        whole(-2, 2, rows, hidden),
        whole(-2, 2, rows, hidden),
        whole(-1, 1, hidden, outputs),
        whole(-2, 1, 1, outputs) + 0.5,  # so that no unit is at zero
        whole(-2, 2, outputs, 1),
        whole(-3, 3, 1, 1),
    ]
    return tensors, whole(-2, 2, rows, rows)


def rounded(tensor):
    """As bfloat16 holds it, in float64."""
    return tensor.to(torch.bfloat16).double()


def by_rounded_operands(gate, tensors, grad):
    """Scores and gradients where the operands of products are bfloat16, and sums are exact.

    gate: (R, n, n, k), one where a unit of the second layer is above zero. Also that layer.
    """
    hx, hy, weight = (rounded(tensor) for tensor in tensors[:3])
    exact_weight, bias, last_weight, last_bias = (tensor.double() for tensor in tensors[2:])
    first = rounded(torch.relu(hx[:, :, None] + hy[:, None]))
    second = first @ weight[:, None] + bias[:, None]
    scores = ((second * gate) @ last_weight[:, None]).squeeze(-1) + last_bias
    cell = grad.double()[..., None]
    back = rounded(tensors[2] * tensors[4].mT)
    cells = cell * (gate @ back.mT[:, None]) * (first > 0)
    product = first.flatten(1, 2).mT @ (rounded(grad)[..., None] * gate).flatten(1, 2)
    total = (cell * gate).flatten(1, 2).sum(1, keepdim=True)
    last = (exact_weight * product).sum(1, keepdim=True) + bias * total
    row = last_weight.mT
    grads = cells.sum(2), cells.sum(1), product * row, total * row, last.mT, cell.sum((1, 2, 3))
    return [scores, *grads[:-1], grads[-1].view(-1, 1, 1)], second


class TestPassOverCells:
    @pytest.mark.parametrize(
        ("dtype", "limits"),
        [
            (torch.float64, (1e-12, 1e-12)),
            (torch.float32, (1e-5, 1e-4)),
            (torch.bfloat16, (1e-2, 0.1)),
        ],
        ids=str,
    )
    def test_of_any_shape(self, dtype, limits):
        tensors, grad = random_layers(3, 20, 28, 64, 48)
        given = of_double(tensors) if dtype == torch.float64 else tensors
        found = with_gradients(lambda *t: pair_scores(dtype, *t), given, grad)
        wanted = with_gradients(plain, of_double(tensors), grad)
        assert off(found[0], wanted[0]) < limits[0]
        assert max(off(*pair) for pair in zip(found, wanted, strict=True)) < limits[1]


@pytest.mark.skipif(
    not (torch.cuda.is_available() and hopper.on_hopper(CUDA)), reason="no Hopper GPU with Triton"
)
@pytest.mark.parametrize(
    "shape", [(2, 128, 256, 256), (3, 128, 512, 512), (2, 256, 512, 256)], ids=str
)
class TestHopperKernels:
    """By shapes (replicas, rows, units of the first layer, units of the second)."""

    def test_whole_numbers_are_exact(self, shape):
        tensors, grad = whole_numbers(*shape)
        found = with_gradients(lambda *t: pair_scores(torch.bfloat16, *t), tensors, grad)
        wanted = with_gradients(plain, of_double(tensors), grad)
        assert all(part.any() for part in wanted)
        for part, exact in zip(found, wanted, strict=True):
            torch.testing.assert_close(part, exact, rtol=0, atol=0)

    def test_as_rounded_operands_with_exact_sums(self, shape):
        replicas, rows, hidden, outputs = shape
        tensors, grad = random_layers(replicas, rows, rows, hidden, outputs)
        assert hopper.fits(torch.bfloat16, *tensors[:3])
        found = with_gradients(lambda *t: pair_scores(torch.bfloat16, *t), tensors, grad)
        _, words = hopper._forward(*hopper._operands(*tensors[:5]))
        gate = unpacked(words).double()
        wanted, second = by_rounded_operands(gate, tensors, grad)
        # The kernel's own gate: the sign of a sum that is all but zero is a matter of rounding,
        # and one that differs is seen.
        differs = gate.bool() != (second > 0)
        assert differs.double().mean() < 1e-5
        assert not (second[differs].abs() > 1e-4).any()
        limits = {
            **{"scores": 1e-5, "hx": 1e-5, "hy": 1e-5, "weight": 1e-4, "bias": 1e-5},
            **{"last weight": 1e-4, "last bias": 1e-5},
        }
        for (name, limit), part, exact in zip(limits.items(), found, wanted, strict=True):
            assert off(part, exact) < limit, name

    def test_near_autograd(self, shape):
        replicas, rows, hidden, outputs = shape
        tensors, grad = random_layers(replicas, rows, rows, hidden, outputs)
        found = with_gradients(lambda *t: pair_scores(torch.bfloat16, *t), tensors, grad)
        wanted = with_gradients(plain, of_double(tensors), grad)
        assert off(found[0], wanted[0]) < 5e-3
        assert max(off(*pair) for pair in zip(found, wanted, strict=True)) < 8e-2

    def test_a_replica_that_is_not_a_number_leaves_the_others_alone(self, shape):
        replicas, rows, hidden, outputs = shape
        tensors, grad = random_layers(replicas, rows, rows, hidden, outputs)
        wanted = with_gradients(lambda *t: pair_scores(torch.bfloat16, *t), tensors, grad)
        for tensor in (*tensors, grad):
            tensor[0] = torch.nan
        found = with_gradients(lambda *t: pair_scores(torch.bfloat16, *t), tensors, grad)
        assert found[0][0].isnan().all()
        for part, alone in zip(found, wanted, strict=True):
            assert torch.equal(part[1:], alone[1:])


class TestFusedObjectives:
    @pytest.mark.parametrize("size", [16, 32, 64, 128])
    @pytest.mark.parametrize("kind", SCORES)
    def test_value_and_gradient(self, kind, size):
        scores = scores_of(size, kind).to(CUDA)
        assert fits(scores)
        values, grads = FusedObjectives(methods(), CUDA)(scores)
        for replica, method in enumerate(methods()):
            exact = scores[replica].double().requires_grad_()
            (grad,) = torch.autograd.grad(method.objective(exact), exact)
            value = method.inference(exact.detach())
            told = str(OPTIONS[replica])
            # Rounding of a score, or of a log, is a relative error of its exponential.
            torch.testing.assert_close(
                values[replica], value.float(), rtol=1e-4, atol=5e-5, msg=told
            )
            largest = grad.float()[grad.float().isfinite()].abs().max().item()
            torch.testing.assert_close(
                grads[replica], grad.float(), rtol=2e-4, atol=1e-6 * largest, msg=told
            )

    def test_what_is_not_a_number_is_told(self):
        scores = scores_of(32, "small").to(CUDA)
        scores[::2] = torch.nan
        values, grads = FusedObjectives(methods(), CUDA)(scores)
        assert values[::2].isnan().all()
        assert values[1::2].isfinite().all()
        assert grads[::2].isnan().any(-1).any(-1).all()
        assert grads[1::2].isfinite().all()
