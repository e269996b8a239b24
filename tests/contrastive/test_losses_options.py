"""What a loss takes and refuses: types, options, torch.compile, derivatives; losses on a GPU."""

import copy
import inspect
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from pointdep.contrastive import losses
from pointdep.contrastive.losses.joined_batch import _UnitRows
from pointdep.contrastive.pretraining.protocols import METHOD_OF
from pointdep.core import objectives
from pointdep.core.blocked.sums import Quadratic, quadratic_sums
from refusals import refused

from .losses_by_hand import LOSSES, Distance, assert_same, made, pairs


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_and_autocast(name):
    z1, z2 = (z.detach().to(torch.bfloat16) for z in pairs(64, 8))
    for options in ({}, {"critic": "bilinear", "dims": 8}, {"negatives": "all", "clip": 8.0}):
        loss = made(name, **options).float()
        exact = loss(z1.float(), z2.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(z1, z2)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, exact, atol=0, rtol=0)


@pytest.mark.parametrize(("name", "options"), [("drfc", {}), ("cpc", {"block_size": 7})])
def test_compiles(name, options):
    z1, z2 = pairs(12)
    loss = made(name, **options)
    assert_same(torch.compile(loss, backend="aot_eager")(z1, z2), loss(z1, z2), [z1, z2])
    assert loss.flags == ()


@pytest.mark.parametrize("negatives", ["cross", "all"])
@pytest.mark.parametrize("name", LOSSES)
def test_compiles_as_one_graph(name, negatives):
    z1, z2 = pairs(12)
    for options in ({"learn_scale": True}, {"critic": "bilinear", "dims": 3, "clip": 5.0}):
        torch._dynamo.reset()
        loss = made(name, negatives=negatives, **options)
        compiled = torch.compile(loss, backend="eager", fullgraph=True)
        assert_same(compiled(z1, z2), loss(z1, z2), [z1, z2, *loss.parameters()])


@pytest.mark.parametrize("critic", ["inner", "bilinear", "separable", "concat", "module", "two"])
@pytest.mark.parametrize("name", LOSSES)
def test_type_of_the_critic(name, critic):
    """A loss moved to another type than its rows runs in its own, and gives float32 at least."""
    z1, z2 = (z.detach().float() for z in pairs(24, 4))
    own = {"module": Distance(), "two": (nn.Linear(4, 3), nn.Linear(4, 3))}.get(critic, critic)
    dims = None if own is not critic else 4
    loss = made(name, critic=own, dims=dims, learn_scale=True).float()
    exact = loss(z1, z2)
    pmi = loss.pmi(z1, z2, z2) if name == "cpc" else loss.pmi(z1, z2)
    for rows, weights, tolerance in (
        (torch.float64, torch.float32, 1e-5),
        (torch.float32, torch.float64, 1e-5),
        (torch.float32, torch.float16, 0.03),
        (torch.float16, torch.float16, 0.03),
        (torch.bfloat16, torch.bfloat16, 0.2),
    ):
        moved = copy.deepcopy(loss).to(weights)
        a, b = (z.to(rows, copy=True).requires_grad_() for z in (z1, z2))
        value = moved(a, b)
        value.backward()
        assert value.dtype in (torch.float32, torch.float64)
        torch.testing.assert_close(value.float(), exact, atol=tolerance, rtol=tolerance)
        assert all(p.grad.dtype == weights and p.grad.isfinite().all() for p in moved.parameters())
        assert a.grad.dtype == rows
        read = moved.pmi(a, b, b) if name == "cpc" else moved.pmi(a, b)
        if name not in ("drfc", "rpc"):  # the logarithm near their floor has no such tolerance
            torch.testing.assert_close(read.float(), pmi, atol=3 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("critic", ["bilinear", Distance()])
def test_half_critic_counts_all_cells(critic):
    """Of 400 rows there are 159,600 product cells, more than float16 can hold."""
    z1, z2 = (z.detach().float() for z in pairs(400, 4))
    for name in LOSSES:
        loss = made(name, critic=critic, dims=4).float()
        for own in (None, torch.arange(400)):
            value = copy.deepcopy(loss).half()(z1, z2, own)
            torch.testing.assert_close(value, loss(z1, z2), atol=0.03, rtol=0.03)


def test_names_of_options():
    shown = repr(losses.DRFCLoss(alpha=0.1, scale=3.0, clip=20.0, negatives="all"))
    assert "alpha=0.1, scale=3.0, normalize=True, clip=20.0, negatives='all', symmetric=T" in shown
    shown = repr(losses.CPCLoss(temperature=0.07, learn_scale=True, symmetric=False))
    assert "temperature=0.07, normalize=True, clip=None, negatives='cross', symmetric=F" in shown
    assert "lam=1.0, temperature=0.2" in repr(losses.DM1Loss())
    options = inspect.signature(losses.DM1Loss).parameters
    assert {"lam", "temperature", "negatives", "critic"} <= set(options)
    assert "scale" not in options
    assert (options["negatives"].default, options["lam"].default) == ("cross", 1.0)
    assert {name: loss.method_key for name, loss in losses.LOSSES.items()} == METHOD_OF
    for kind, given, nearest in (
        (losses.PCCLoss, "temprature", "'temperature'"),
        (losses.DRFCLoss, "alfa", "'alpha'"),
        (losses.DM1Loss, "blocksize", "'block_size'"),
        (losses.DM1Loss, "learnscale", "'learn_scale'"),
        (losses.DM1Loss, "scale", "'temperature', which is 1 / scale"),
        (losses.DM1Loss, "scal", "'temperature', which is 1 / scale"),
        (losses.DRFCLoss, "temperature", "'scale', which is 1 / temperature"),
        (losses.DRFCLoss, "temprature", "'scale', which is 1 / temperature"),
    ):
        with pytest.raises(TypeError, match=f"{kind.__name__}.*{given!r}.*{nearest}"):
            kind(**{given: 0.1})


def test_bad_options_inputs_and_critics():
    for message, options in (
        ("temperature=0.0.*positive", {"temperature": 0.0}),
        ("clip=-1.*positive", {"clip": -1}),
        ("did you mean 'all'", {"negatives": "al"}),
        ("block_size=0", {"block_size": 0}),
        ("dims=", {"critic": "bilinear"}),
        ("did you mean 'bilinear'", {"critic": "bilinaer"}),
        ("dims=.*two", {"critic": "bilinear", "dims": (1, 2, 3)}),
        ("two torch modules", {"critic": (nn.Identity(),)}),
        ("normalize=3", {"normalize": 3}),
        ("symmetric=None", {"symmetric": None}),
    ):
        refused(message, losses.CPCLoss, **options)
    refused("lam=0", losses.DM1Loss, lam=0)
    z = torch.zeros(4, 3)
    for message, *rows in (
        (r"z1.*\(rows, columns\)", z[0], z),
        ("z1 has 4 rows and z2 has 2", z, z[:2]),
        ("one pair", z[:1], z[:1]),
        ("empty", z[:0], z[:0]),
        ("z1 has no columns", z[:, :0], z[:, :0]),
        ("z1 has 3 columns and z2 has 5", z, torch.zeros(4, 5)),
        (r"groups.*\(4,\)", z, z, torch.zeros(3, dtype=torch.int64)),
        ("groups.*whole numbers", z, z, torch.zeros(4)),
    ):
        refused(message, losses.CPCLoss(), *rows)
    loss = losses.CPCLoss(critic="bilinear", dims=(3, 5))
    refused("z2 has 3 columns", loss, z, z)
    for reference, message in ((z, "3 columns"), (torch.zeros(0, 5), "empty"), (z[0], "columns")):
        refused(f"reference.*{message}", loss.set_reference, reference)
    z = torch.randn(4, 3)
    for name, negatives in itertools.product(("drfc", "pcc"), ("cross", "all")):
        loss = made(name, critic=(nn.Linear(3, 4), nn.Linear(3, 2)), negatives=negatives).float()
        for call in (loss, loss.pmi, loss.pmi_matrix):
            refused("vectors of 4 and 2 numbers", call, z, z)
    for critic in (nn.Linear(3, 1), (nn.Linear(5, 2), nn.Linear(3, 2))):
        said = refused(r"with float32 of shape .*\), failed", losses.PCCLoss(critic=critic), z, z)
        assert "one-hot" not in said


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


def on_gpu(n: int, d: int) -> list[torch.Tensor]:
    return [z.detach().float().cuda().requires_grad_() for z in pairs(n, d)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnGpu:
    """No loss makes the host wait, and TF32 does not touch the sums over all cells."""

    @pytest.mark.parametrize("negatives", ["cross", "all"])
    @pytest.mark.parametrize("name", LOSSES)
    def test_host_does_not_wait(self, name, negatives):
        z1, z2 = on_gpu(64, 8)
        groups = None if name in ("drfc", "rpc") else torch.arange(64, device="cuda") // 2
        for options in ({}, {"block_size": 20, "clip": 5.0}, {"critic": "bilinear", "dims": 8}):
            loss = made(name, negatives=negatives, learn_scale=True, **options).float().cuda()
            loss(z1, z2, groups).backward()
            torch.cuda.set_sync_debug_mode("error")
            try:
                loss(z1, z2, groups).backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            assert loss.flags == ()

    @pytest.mark.parametrize("name", LOSSES)
    def test_same_as_on_the_cpu_with_a_second_derivative_and_nan(self, name):
        z1, z2 = on_gpu(200, 16)
        groups = torch.arange(200) // 3
        for options in ({}, {"block_size": 64, "negatives": "all"}):
            loss = made(name, **options).float()
            value = loss.cuda()(z1, z2, groups.cuda())
            found = torch.autograd.grad(value, (z1, z2))
            rows = [z.detach().cpu().requires_grad_() for z in (z1, z2)]
            expected = loss.cpu()(*rows, groups)
            torch.testing.assert_close(value.cpu(), expected, atol=1e-5, rtol=1e-5)
            for a, b in zip(found, torch.autograd.grad(expected, rows), strict=True):
                torch.testing.assert_close(a.cpu(), b, atol=1e-5 * float(b.abs().max()), rtol=1e-4)
        rows = [z.detach().cuda().requires_grad_() for z in pairs(5, 2)]
        for negatives in ("cross", "all"):
            assert torch.autograd.gradgradcheck(made(name, negatives=negatives), rows)
        loss = made(name)
        assert loss(*on_gpu(6, 2), torch.zeros(6, dtype=torch.int64, device="cuda")).isnan()
        assert [flag.name for flag in loss.flags] == ["diverged"]

    def test_sums_of_large_batches(self):
        z1, z2 = on_gpu(4096, 64)
        wide = [z.detach().double().requires_grad_() for z in (z1, z2)]
        exact = -objectives.drf(10 * F.normalize(wide[0], dim=1) @ F.normalize(wide[1], dim=1).T)
        before = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("high")
            value = losses.DRFCLoss()(z1, z2)
            found = torch.autograd.grad(value, (z1, z2))
            assert torch.get_float32_matmul_precision() == "high"
        finally:
            torch.set_float32_matmul_precision(before)
        assert value.item() == pytest.approx(exact.item(), rel=2e-6)
        for a, b in zip(found, torch.autograd.grad(exact, wide), strict=True):
            torch.testing.assert_close(a.double(), b, atol=1e-5 * float(b.abs().max()), rtol=0)
        # No matrix of all pairs is ever held.
        z1, z2 = on_gpu(16_384, 64)
        matrix = 4 * 16_384**2
        for loss in (losses.DRFCLoss(), losses.CPCLoss(), losses.PCCLoss()):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            loss(z1, z2).backward()
            assert torch.cuda.max_memory_allocated() - before < matrix
