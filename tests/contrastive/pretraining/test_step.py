"""One step of training, and its state."""

import pytest
import torch

from pointdep.contrastive.pretraining.loop import Order
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.contrastive.pretraining.step import Step, make_fabric

from . import small


def made(model):
    settings, images = small.settings(model), small.images_for(model)
    recipe = make_recipe(settings, images.shape, 4).to(memory_format=torch.channels_last)
    order = Order(len(images.train), 16, (0,), torch.device("cpu"))
    return Step(recipe, images, make_fabric("cpu", "32"), 0.1), order


@pytest.mark.parametrize("model", ["simclr", "amdim"])
def test_a_state_is_laid_out_as_its_weights(model):
    """As a checkpoint does not keep it, and as the fused steps of a GPU ask for it."""
    (step, order), (again, _) = made(model), made(model)
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
