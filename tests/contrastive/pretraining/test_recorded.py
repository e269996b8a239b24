"""A step that is recorded and replayed does what the written one does. Needs a GPU."""

import pytest
import torch

from pointdep.contrastive.pretraining.loop import Order
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.contrastive.pretraining.step import RecordedStep, Step, make_fabric, make_step

from . import small

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

STEPS = 8  # three of them before the recording


def made(model, kind, precision="32", *, compiled=False, **changed):
    """The step and the rows of each step.

    SimCLR's network magnifies the rounding of its convolutions' gradients, which differs from run
    to run, within a few steps: it is taken wider than elsewhere, and hardly moved.
    """
    calm = {"width": 32, "learning_rate": 1e-6} if model == "simclr" else {}
    settings = small.settings(model, precision=precision, **{**calm, **changed})
    fabric = make_fabric("cuda", precision)
    images = small.some_images().to(fabric.device)
    recipe = make_recipe(settings, images.shape, 4).to(fabric.device)
    step = kind(recipe, images, fabric, settings.learning_rate)
    if compiled:
        recipe.compile_parts()
    return step, Order(len(images.train), settings.batch_size, settings.seeds, fabric.device)


def trained(model, kind, precision="32", **changed):
    """The losses of some steps, each with its own rows, draws and rate; the step, and how far the
    weights went."""
    step, order = made(model, kind, precision, **changed)
    start = weights(step)
    losses = [step(order.batch(k), k, 0.1 * (k + 1), clip=k > 5) for k in range(STEPS)]
    return torch.stack(losses), step, weights(step) - start


def weights(step):
    return torch.cat([p.detach().double().flatten() for p in step.recipe.parameters()])


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("model", small.SMALL)
def test_losses_and_weights_agree(model, precision):
    (ours, recorded, way), (theirs, written, their_way) = (
        trained(model, kind, precision) for kind in (RecordedStep, Step)
    )
    assert len(recorded._graphs) == 2  # with and without clipping
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(theirs[3:5], theirs[5:7], rtol=1e-3)
    assert their_way.norm() > 0
    assert torch.nn.functional.cosine_similarity(way, their_way, dim=0) > 0.9
    assert (way.norm() / their_way.norm()).item() == pytest.approx(1.0, abs=0.1)
    assert recorded.rate == pytest.approx(written.rate)


def test_the_seed_decides_the_views_of_a_replay():
    step, order = made("simclr", RecordedStep, learning_rate=1e-12)
    rows = order.batch(0)
    values = [step(rows, seed, 1.0, clip=False).item() for seed in (0, 0, 0, 0, 1, 2, 1)]
    assert values[4] == pytest.approx(values[6], rel=1e-4)
    assert values[4] != pytest.approx(values[5], rel=1e-4)


def test_a_clipped_gradient_is_within_one():
    _, step, _ = trained("amdim", RecordedStep)
    gradients = torch.cat([p.grad.flatten() for p in step.recipe.parameters()])
    assert 0 < gradients.abs().max() <= 1.0


def test_compiled_networks_are_recorded_too():
    compiled, plain = (
        trained("simclr", RecordedStep, compiled=c, learning_rate=1e-12)[0] for c in (True, False)
    )
    torch.testing.assert_close(compiled, plain, rtol=1e-2, atol=1e-2)


def test_a_state_goes_from_one_kind_to_the_other():
    losses = {}
    for kind in (RecordedStep, Step):
        _, first, _ = trained("shallow", RecordedStep)
        second, order = made("shallow", kind)
        second.load_state_dict(first.state_dict())
        losses[kind] = torch.stack([second(order.batch(k), k, 1.0, clip=False) for k in range(6)])
    torch.testing.assert_close(losses[RecordedStep], losses[Step], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["32", "16"])
def test_only_what_can_be_recorded_is(precision):
    fabric = make_fabric("cuda", precision)
    images = small.some_images().to(fabric.device)
    settings = small.settings("simclr", precision=precision)
    recipe = make_recipe(settings, images.shape, 4).to(fabric.device)
    step = make_step(recipe, images, fabric, 0.1)
    assert type(step) is (Step if precision == "16" else RecordedStep)
