"""Derivatives of the first and the second order, by `torch.autograd` and by `torch.func`."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from pointdep.contrastive import losses
from pointdep.contrastive.losses.similarity import _UnitRows
from pointdep.core.blocked.sums import Quadratic, quadratic_sums

from .losses_by_hand import LOSSES, made, pairs

OPTIONS = {
    "plain": {},
    "not normalised": {"normalize": False},
    "all, not symmetric": {"negatives": "all", "symmetric": False},
    "blocks": {"block_size": 2, "clip": 4.0},
    "bilinear": {"critic": "bilinear", "dims": 2, "learn_scale": True},
}


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_against_finite_differences(name, kind):
    loss = made(name, **OPTIONS[kind])
    of = (*pairs(5, 2), *loss.parameters())
    # A perturbed parameter is seen by the loss: it is the loss's own.
    assert gradcheck(lambda a, b, *_: loss(a, b), of)
    assert gradgradcheck(lambda a, b, *_: loss(a, b), of)


@pytest.mark.parametrize("name", LOSSES)
def test_groups_and_no_identity(name):
    groups, loss = torch.tensor([0, 1, 0, 2]), made(name)
    for columns in (2, 5):  # with more columns than rows there is no identity
        assert gradgradcheck(lambda a, b: loss(a, b, groups), pairs(4, columns))


def test_third_derivative_parts_and_low_temperature():
    loss = made("rpc")

    def slope(a: Tensor, b: Tensor) -> Tensor:
        return torch.autograd.grad(loss(a, b), a, create_graph=True)[0]

    assert gradgradcheck(slope, pairs(4, 2))
    rows, other = pairs(6, 3)
    for linear, square in ((0.0, -0.5), (-0.2, 0.0), (0.3, 0.7)):
        function = Quadratic(linear, square)

        def total(x: Tensor, y: Tensor, function: Quadratic = function) -> Tensor:
            return quadratic_sums(x.unsqueeze(0), y.unsqueeze(0), function)

        torch.testing.assert_close(total(rows, other)[0], function(rows @ other.T).sum())
        assert gradcheck(total, (rows, other))
        assert gradgradcheck(total, (rows, other))
    assert gradcheck(_UnitRows.apply, (rows,))
    assert gradgradcheck(_UnitRows.apply, (rows,))
    # And at a row of zeros.
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    (unit,) = _UnitRows.apply(rows)
    (gradient,) = torch.autograd.grad(unit[:, 0].sum(), rows, create_graph=True)
    (second,) = torch.autograd.grad(gradient[1].sum() + 1e-12 * gradient[0].sum(), rows)
    assert second[0].tolist() == [0.0, 0.0]
    assert second[1].abs().max() > 0
    z1, loss = torch.eye(3).requires_grad_(), losses.CPCLoss(temperature=0.01)
    (gradient,) = torch.autograd.grad(loss(z1, -torch.eye(3)), z1, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), z1)
    assert second.isfinite().all()


@pytest.mark.parametrize("negatives", ["cross", "all"])
@pytest.mark.parametrize("name", LOSSES)
def test_transforms(name, negatives):
    z1, z2 = pairs(7)
    loss = made(name, negatives=negatives)
    (expected,) = torch.autograd.grad(loss(z1, z2), z1)
    a, b = z1.detach(), z2.detach()
    assert loss.spread > 0
    torch.testing.assert_close(torch.func.grad(loss)(a, b), expected)
    assert loss.flags == ()  # nothing of a transform is kept
    along = torch.func.jvp(lambda rows: loss(rows, b), (a,), (b,))[1]
    torch.testing.assert_close(along, (expected * b).sum())
    many = torch.stack([a, b, a + b]), torch.stack([b, a, a - b])
    singly = torch.stack([loss(*part) for part in zip(*many, strict=True)])
    torch.testing.assert_close(torch.func.vmap(loss)(*many), singly)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(*many)[0], expected)
    hessian = torch.func.hessian(loss)(a, b)
    (first,) = torch.autograd.grad(loss(z1, z2), z1, create_graph=True)
    (product,) = torch.autograd.grad((first * b).sum(), z1)
    torch.testing.assert_close(torch.einsum("ijkl,kl->ij", hessian, b), product)


def test_transforms_in_blocks():
    z1, z2 = pairs(40, 4)
    for loss, own in ((made("cpc", block_size=7), None), (made("rpc"), torch.arange(40) // 3)):
        (expected,) = torch.autograd.grad(loss(z1, z2, own), z1)
        torch.testing.assert_close(torch.func.grad(loss)(z1.detach(), z2.detach(), own), expected)
