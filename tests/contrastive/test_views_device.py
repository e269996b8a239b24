"""What views owe to the device: one compiled graph, no waiting, few launches, full precision."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pointdep.contrastive.views import Views, amdim_views, evaluation_view, simclr_views

from .test_views import OPERATIONS, generator, some_images

RECIPES = {
    "simclr": simclr_views(),
    "simclr blurred": simclr_views(blur=True),
    "amdim": amdim_views(),
    "evaluation": evaluation_view(),
    "all": Views(*OPERATIONS),
}

# Each of these waits for the device, or has a shape that hangs on values.
WAITING = ("_local_scalar_dense", "nonzero", "index.Tensor", "masked_select", "lift_fresh", "copy_")


class Launches(TorchDispatchMode):
    """Counts the operations that are not views of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not function.is_view:
            self.names[str(function)] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", RECIPES)
def test_apply_is_the_same_compiled_in_channels_last_and_under_autocast(name):
    recipe, images = RECIPES[name], (some_images() * 255).to(torch.uint8)
    drawn = recipe.draw(12, 20, 20, generator())
    expected = recipe.apply(images, drawn)
    compiled = torch.compile(recipe.apply, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images, drawn), expected)
    last = images.to(memory_format=torch.channels_last)
    torch.testing.assert_close(recipe.apply(last, drawn), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(recipe.apply(images, drawn), expected)


@pytest.mark.parametrize("name", RECIPES)
def test_apply_looks_at_no_value(name):
    recipe = RECIPES[name]
    drawn = recipe.draw(12, 20, 20, generator())
    drawn = torch.utils._pytree.tree_map(lambda rows: rows.to("meta"), drawn)
    views = recipe.apply(torch.empty((12, 3, 20, 20), dtype=torch.uint8, device="meta"), drawn)
    assert (views.device.type, views.shape[-4:]) == ("meta", (12, 3, 20, 20))


@pytest.mark.parametrize(("name", "most"), [("simclr", 145), ("amdim", 100), ("evaluation", 9)])
def test_few_launches_and_no_waiting(name, most):
    images, numbers = (some_images() * 255).to(torch.uint8), generator()
    with Launches() as launches:
        RECIPES[name](images, numbers)
    assert launches.names.total() <= most
    assert not [seen for seen in launches.names if any(bad in seen for bad in WAITING)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", RECIPES)
def test_on_cuda_without_waiting(name):
    recipe, images = RECIPES[name], (some_images() * 255).to(torch.uint8)
    numbers, there = torch.Generator("cuda").manual_seed(0), images.cuda()
    recipe(there, numbers)
    torch.cuda.set_sync_debug_mode("error")
    try:
        drawn = recipe.draw(12, 20, 20, numbers)
        views = recipe.apply(there, drawn)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    here = torch.utils._pytree.tree_map(lambda rows: rows.cpu(), drawn)
    torch.testing.assert_close(views.cpu(), recipe.apply(images, here), atol=5e-5, rtol=0)
