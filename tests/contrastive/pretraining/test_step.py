"""One step of training and its state, recorded as written (CUDA), and Adam with its own update."""

import copy
import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from pointdep.contrastive.pretraining import recipes
from pointdep.contrastive.pretraining.loop import Order, Step, make_fabric, share_norms
from pointdep.contrastive.pretraining.recipes import Adam, make_recipe
from refusals import refused

from ..compiler import needs_compiler
from . import small

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
STEPS = 8  # three of them before the recording


@pytest.mark.parametrize(("ranks", "device"), [(1, "cuda"), (2, "cpu"), (2, "cuda")])
def test_batch_norm_is_shared_by_several_gpus(ranks, device):
    module = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    weight = module[1][0].weight
    share_norms(module, SimpleNamespace(world_size=ranks, device=torch.device(device)))
    shared = (ranks, device) == (2, "cuda")
    assert isinstance(module[1][0], nn.SyncBatchNorm) == shared
    assert module[1][0].weight is weight


def test_a_fabric_leaves_what_others_log_and_half_precision_needs_a_gpu():
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("fabric", "pytorch")]
    make_fabric("cpu", "32")
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    make_fabric("cpu", "bf16")
    assert [logger.level for logger in loggers] == [logging.DEBUG] * 2
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
    refused("needs a GPU", make_fabric, "cpu", "16")


@pytest.mark.parametrize("model", ["simclr", "amdim"])
def test_a_state_is_laid_out_as_its_weights(model):
    """As a checkpoint does not keep it, and as the fused steps of a GPU ask for it."""
    images, fabric = small.images_for(model), make_fabric("cpu", "32")
    order, last = Order(64, 16, (0,), fabric), {"memory_format": torch.channels_last}
    recipes = (make_recipe(small.settings(model), images.shape, 4).to(**last) for _ in range(2))
    step, again = (Step(recipe, images, fabric, 0.1) for recipe in recipes)
    assert not step.recorded
    step(order.batch(0), 0, 1.0, clip=False)
    state = step.state_dict()
    for kept in state["optimizer"]["state"].values():
        for name, value in kept.items():
            if torch.is_tensor(value):
                kept[name] = value.contiguous()
    again.load_state_dict(state)
    laid_out = 0
    for weight, kept in again.optimizer.state.items():
        for value in kept.values():
            if torch.is_tensor(value) and value.ndim == 4:
                laid_out += weight.stride() != weight.contiguous().stride()
                assert value.stride() == weight.stride()
    assert laid_out
    ours, theirs = (one(order.batch(1), 1, 1.0, clip=False) for one in (step, again))
    assert torch.equal(ours, theirs)


def made(model, recorded=None, precision="32", *, compiled=False, **changed):
    """The step and the rows of each step.

    SimCLR's network magnifies the rounding of its convolutions' gradients, which differs from run
    to run, within a few steps: it is taken wider than elsewhere, and hardly moved.
    """
    calm = {"width": 32, "learning_rate": 1e-6} if model == "simclr" else {}
    settings = small.settings(model, precision=precision, **{**calm, **changed})
    fabric = make_fabric("cuda", precision)
    images = small.some_images().to(fabric.device)
    recipe = make_recipe(settings, images.shape, 4).to(fabric.device)
    step = Step(recipe, images, fabric, settings.learning_rate, recorded)
    if compiled:
        recipe.compile_parts()
    return step, Order(len(images.train), settings.batch_size, settings.seeds, fabric)


def trained(model, recorded=True, precision="32", **changed):
    """The losses of some steps, each with its own rows, draws and rate; the step, and how far the
    weights went."""
    step, order = made(model, recorded, precision, **changed)
    start = weights(step)
    losses = [step(order.batch(k), k, 0.1 * (k + 1), clip=k > 5) for k in range(STEPS)]
    return torch.stack(losses), step, weights(step) - start


def weights(step):
    return torch.cat([p.detach().double().flatten() for p in step.recipe.parameters()])


@on_cuda
@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("model", small.SMALL)
def test_losses_and_weights_agree(model, precision):
    (ours, recorded, way), (theirs, written, their_way) = (
        trained(model, kind, precision) for kind in (True, False)
    )
    assert len(recorded.graphs) == 2  # with and without clipping
    assert not written.graphs
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(theirs[3:5], theirs[5:7], rtol=1e-3)
    assert their_way.norm() > 0
    assert torch.nn.functional.cosine_similarity(way, their_way, dim=0) > 0.9
    assert (way.norm() / their_way.norm()).item() == pytest.approx(1.0, abs=0.1)
    rates = [float(step.optimizer.param_groups[0]["lr"]) for step in (recorded, written)]
    assert rates[0] == pytest.approx(rates[1])


@on_cuda
def test_views_gradients_and_states_of_what_is_recorded():
    step, order = made("simclr", learning_rate=1e-12)
    rows = order.batch(0)
    values = [step(rows, seed, 1.0, clip=False).item() for seed in (0, 0, 0, 0, 1, 2, 1)]
    assert values[4] == pytest.approx(values[6], rel=1e-4)
    assert values[4] != pytest.approx(values[5], rel=1e-4)
    # Compiled networks are recorded too.
    compiled, plain = (trained("simclr", compiled=c, learning_rate=1e-12)[0] for c in (True, False))
    torch.testing.assert_close(compiled, plain, rtol=1e-2, atol=1e-2)
    # A clipped gradient is within one.
    _, step, _ = trained("amdim")
    assert 0 < torch.cat([p.grad.flatten() for p in step.recipe.parameters()]).abs().max() <= 1.0
    # A state goes from one kind to the other.
    losses = {}
    for kind in (True, False):
        _, first, _ = trained("shallow")
        second, order = made("shallow", kind)
        second.load_state_dict(first.state_dict())
        losses[kind] = torch.stack([second(order.batch(k), k, 1.0, clip=False) for k in range(6)])
    torch.testing.assert_close(losses[True], losses[False], rtol=1e-3, atol=1e-3)


@on_cuda
@pytest.mark.parametrize("precision", ["32", "16"])
def test_only_what_can_be_recorded_is(precision):
    assert made("simclr", None, precision)[0].recorded == (precision != "16")


SHAPES = ((3, 4, 5), (2, 1, 7), (6,), (1,), ())
ADAM_STEPS = 20
EXACT = {"atol": 1e-12, "rtol": 1e-12}
RATE = torch.tensor(0.05, dtype=torch.float64)  # read at every step, as where steps are recorded


def drawn_weights():
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [one.requires_grad_() for one in drawn]


def walk(optimizer, own, steps=range(ADAM_STEPS)):
    """Steps with gradients of many sizes, that depend on where it is, at a rate that changes."""
    (group,) = optimizer.param_groups
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for weight in own:
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.grad = (0.1 * weight.detach() + noise) * 10.0 ** (step % 5 - 3)
        rate = 0.05 * (1.0 - step / (2 * ADAM_STEPS))
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
    ours, theirs, begun = (drawn_weights() for _ in range(3))
    optimizer = way(Adam(ours, **{"lr": 0.05, **options}))
    reference = torch.optim.Adam(theirs, **{**options, "lr": 0.05})
    walk(optimizer, ours)
    walk(reference, theirs)
    torch.testing.assert_close(ours, theirs, **EXACT)
    assert all(not torch.equal(one, start) for one, start in zip(ours, begun, strict=True))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(dict(optimizer.state[one]), dict(reference.state[other]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("from_torch", [True, False])
def test_a_state_goes_on_in_the_other(way, from_torch):
    moving, theirs = drawn_weights(), drawn_weights()
    walk(torch.optim.Adam(theirs, lr=0.05), theirs)
    made = [torch.optim.Adam(moving, lr=0.05), way(Adam(moving, lr=0.05))]
    first, second = made if from_torch else reversed(made)
    walk(first, moving, range(ADAM_STEPS // 2))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    walk(second, moving, range(ADAM_STEPS // 2, ADAM_STEPS))
    torch.testing.assert_close(moving, theirs, **EXACT)
