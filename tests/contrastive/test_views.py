"""Views against the slow reference: their values, what is drawn, and what the device does."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from pointdep.contrastive import views
from refusals import refused

from . import slow_views as slow

SLOW = {
    views.ResizedCrop: slow.resized_crop,
    views.Flip: slow.flip,
    views.ReflectTranslate: slow.reflect_translate,
    views.ColourJitter: slow.colour_jitter,
    views.Grey: slow.grey,
}

OPERATIONS = [
    views.ResizedCrop(),
    views.ResizedCrop(scale=(0.02, 0.3), ratio=(0.3, 3.0)),
    views.Flip(),
    views.ReflectTranslate(),
    views.ColourJitter(0.4, 0.4, 0.4, 0.1),
    views.ColourJitter(2.0, 2.0, 2.0, 0.5, p=1.0),
    views.Grey(p=0.5),
    views.Blur(p=0.7),
    views.Blur(p=0.7, sigma=(0.02, 5.0), kernel=9),
]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_images(n: int = 12, height: int = 20, width: int = 20, seed: int = 1) -> torch.Tensor:
    """Smooth, noisy, extreme and grey images in turn, (n, 3, h, w) in [0, 1]."""
    images = torch.rand((n, 3, height, width), generator=generator(seed))
    images[1::4] = images[1::4].round()
    images[2::4] = images[2::4, :1].expand(-1, 3, -1, -1).clone()
    images[3::4] = (images[3::4] * 4).round() / 4
    return images


def slowly(operation, image: np.ndarray, row: list[float]) -> np.ndarray:
    if isinstance(operation, views.Blur):
        kernel = operation.kernel or max(3, min(image.shape[1:]) // 10 // 2 * 2 + 1)
        return slow.blur(image, *row, radius=kernel // 2)
    if isinstance(operation, views.Normalise):
        return slow.normalise(image, operation.mean, operation.std)
    return SLOW[type(operation)](image, *row)


def slow_batch(operations, images: torch.Tensor, drawn) -> np.ndarray:
    out = images.double().numpy()
    for operation, rows in zip(operations, drawn, strict=True):
        out = np.stack([slowly(operation, *one) for one in zip(out, rows.tolist(), strict=True)])
    return out


def close(found: torch.Tensor, expected: np.ndarray, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found.numpy(), expected, atol=atol, rtol=0)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
@pytest.mark.parametrize(("height", "width"), [(20, 20), (12, 17)])
def test_operation_is_the_slow_one(operation, height, width):
    images = some_images(height=height, width=width)
    before, drawn = images.clone(), operation.draw(len(images), height, width, generator())
    seen = operation.apply(images, drawn)
    assert (seen.dtype, seen.shape) == (torch.float32, images.shape)
    close(seen, slow_batch([operation], images, [drawn]))
    assert torch.equal(images, before)
    assert not torch.equal(seen, images)


@pytest.mark.parametrize("recipe", [views.simclr_views(blur=True), views.amdim_views()])
def test_recipe_is_the_slow_one(recipe):
    images = some_images(n=5, height=32, width=32)
    shared, each = recipe.draw(5, 32, 32, generator())
    seen = recipe.apply(images, (shared, each))
    assert seen.shape == (2, 5, 3, 32, 32)
    once = torch.from_numpy(slow_batch(recipe.shared.operations, images, shared))
    for view in (0, 1):
        own = [rows[view * 5 : view * 5 + 5] for rows in each]
        close(seen[view], slow_batch(recipe.each.operations, once, own), atol=5e-5)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_box_is_the_interpolated_box(data):
    height, width = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 24))
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top = data.draw(st.integers(0, height - rows))
    left = data.draw(st.integers(0, width - columns))
    images = some_images(n=2, height=height, width=width)
    box = torch.tensor([[top, left, rows, columns]], dtype=torch.float32).expand(2, 4)
    seen = views.ResizedCrop().apply(images, box)
    close(seen, slow_batch([views.ResizedCrop()], images, [box]))
    # Nothing outside the box is seen, however large it is.
    outside = torch.full_like(images, 1e30)
    inside = (..., slice(top, top + rows), slice(left, left + columns))
    outside[inside] = images[inside]
    assert torch.equal(views.ResizedCrop().apply(outside, box), seen)


def test_hue_at_the_corners_of_the_circle_and_no_effect():
    jitter, steps = views.ColourJitter(0, 0, 0, 0.5, p=1.0), torch.linspace(0, 1, 5)
    cube = torch.cartesian_prod(steps, steps, steps).T.reshape(1, 3, 5, 25)
    for shift in (-0.5, -1 / 3, -1 / 6, 0.0, 1 / 12, 1 / 6, 1 / 3, 0.5):
        drawn = torch.tensor([[1, 1, 1, 1, shift]])
        close(jitter.apply(cube, drawn)[0], slow.hue_shifted(cube[0].double().numpy(), shift))
    images, crop = some_images(), views.ResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0))
    jitter, shift = views.ColourJitter(0.4, 0.4, 0.4, 0.2, p=0), views.ReflectTranslate(p=0)
    for never in (views.Flip(p=0), shift, jitter, views.Grey(0), views.Blur(0)):
        assert torch.equal(views.Views(never)(images, generator()), images), never
    for still in (views.ReflectTranslate(0), views.ColourJitter(0, 0, 0, 0), crop):
        close(views.Views(still)(images, generator()), images.numpy(), atol=1e-6)


def test_bytes_are_scaled():
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(2, 3, -1, -1)
    plain = views.evaluation_view(normalise=None)(images, generator())
    assert plain.dtype == torch.float32
    close(plain, images.numpy() / 255, atol=1e-7)
    recipe = views.simclr_views()
    drawn = recipe.draw(2, 16, 16, generator())
    torch.testing.assert_close(recipe.apply(images, drawn), recipe.apply(plain, drawn))

    for normalise in (views.NORMALISE_CIFAR10, views.NORMALISE_MNIST):
        normalised = views.evaluation_view(normalise=normalise)(some_images(), generator())
        close(normalised, slow_batch([normalise], some_images(), [torch.empty(12, 0)]))


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 5))
def test_an_image_s_view_is_its_own(order, which):
    recipe = views.Views(*OPERATIONS)
    images, drawn = some_images(6), recipe.draw(6, 20, 20, generator())
    together = recipe.apply(images, drawn)
    permuted = recipe.apply(images[order], tuple(rows[order] for rows in drawn))
    close(permuted, together[order].numpy(), atol=1e-6)
    others = 1 - images
    others[which] = images[which]
    close(recipe.apply(others, drawn)[which], together[which].numpy(), atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_halves_are_those_of_the_flat_image(channels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 6, 7, channels), dtype=np.uint8)  # (n, h, w, c)
    flat = images.reshape(5, -1) / 255
    top, bottom = views.halves(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    close(top, flat[:, : flat.shape[1] // 2], atol=1e-7)
    close(bottom, flat[:, flat.shape[1] // 2 :], atol=1e-7)
    assert top.dtype == torch.float32


@pytest.mark.parametrize(
    ("shape", "size", "factor"),
    [((4, 1, 28, 28), 32, 1), ((3, 8, 8), 32, 4), ((3, 8, 8), 35, 4), ((2, 3, 32, 32), 32, 1)],
)
def test_small_images_are_enlarged_and_framed(shape, size, factor):
    images = torch.randint(1, 256, shape, dtype=torch.uint8)
    channels = images.numpy() if len(shape) == 4 else images[:, None].numpy()
    enlarged = np.kron(channels, np.ones((1, 3 // channels.shape[1], factor, factor), np.uint8))
    rest = size - enlarged.shape[-1]
    around = (rest // 2, rest - rest // 2)
    colour = views.as_rgb(images, size)
    assert np.array_equal(colour.numpy(), np.pad(enlarged, ((0, 0), (0, 0), around, around)))
    assert colour.is_contiguous()


def test_an_oblong_image_is_set_in_the_middle_and_others_are_refused():
    colour, expected = views.as_rgb(torch.ones(1, 1, 3, 8), size=17), torch.zeros(17, 17)
    expected[5:11, :16] = 1
    assert torch.equal(colour[0, 0], expected)
    refused("33 x 20 do not fit", views.as_rgb, torch.zeros(2, 1, 33, 20))
    for shape in ((2, 2, 8, 8), (8, 8)):
        refused("1 or 3", views.as_rgb, torch.zeros(shape))
    refused("7 rows have no halves", views.halves, torch.rand(2, 1, 7, 8))


N = 20_000


def drawn_by(operation, n: int = N, height: int = 32, width: int = 32) -> np.ndarray:
    return operation.draw(n, height, width, generator(3)).numpy()


def is_share(flags: np.ndarray, p: float) -> bool:
    """Within four standard errors of p."""
    return abs(flags.mean() - p) < 4 * np.sqrt(p * (1 - p) / len(flags))


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((32, 32), (0.2, 1.0), (3 / 4, 4 / 3)),
        ((32, 32), (0.8, 1.0), (1 / 4, 4.0)),  # few boxes fit: some images use up the ten tries
        ((20, 48), (0.3, 1.0), (3 / 4, 4 / 3)),
        ((48, 20), (0.3, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_boxes_follow_the_law_of_the_slow_ones(size, scale, ratio):
    boxes = drawn_by(views.ResizedCrop(scale, ratio), 6000, *size).astype(float)
    numbers = random.Random(4)
    slowly = np.array([slow.crop_box(*size, scale, ratio, numbers) for _ in range(6000)])
    assert np.array_equal(boxes, boxes.round())
    corners, sides = boxes[:, :2], boxes[:, 2:]
    assert corners.min() >= 0
    assert sides.min() >= 1
    assert ((corners + sides).max(0) <= size).all()
    ours, theirs = ([box[:, 2] * box[:, 3], box[:, 2] / box[:, 3]] for box in (boxes, slowly))
    for found, expected in zip([*boxes.T, *ours], [*slowly.T, *theirs], strict=True):
        assert stats.ks_2samp(found, expected, method="asymp").pvalue > 1e-3


@pytest.mark.parametrize(("height", "width"), [(10, 41), (41, 10), (9, 40), (40, 9), (10, 11)])
def test_without_a_box_that_fits_the_crop_is_central(height, width):
    """No box of nearly the whole area has an allowed ratio: torchvision's last resort."""
    ratio = (0.8, 0.8) if width > height else (1.25, 1.25)
    crop = views.ResizedCrop(scale=(0.999, 1.0), ratio=ratio)
    expected = slow.crop_box(height, width, crop.scale, ratio, random.Random(0))
    assert (drawn_by(crop, 50, height, width) == expected).all()


def test_laws_of_shifts_jitter_blur_and_coins():
    shifts = drawn_by(views.ReflectTranslate(4, p=1.0))
    for axis in (0, 1):
        values, counts = np.unique(shifts[:, axis], return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert stats.chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 4 / np.sqrt(N)
    stays = (drawn_by(views.ReflectTranslate(4, p=0.8)) == 0).all(1)
    assert is_share(stays, 0.2 + 0.8 / 81)
    applied, sigma = drawn_by(views.Blur(p=0.5)).T
    assert is_share(applied, 0.5)
    assert stats.kstest(sigma, stats.uniform(0.1, 1.9).cdf).pvalue > 1e-3
    applied, *levels = drawn_by(views.ColourJitter(0.4, 1.5, 0.2, 0.1, p=0.8)).T
    assert is_share(applied, 0.8)
    ranges = (0.6, 1.4), (0.0, 2.5), (0.8, 1.2), (-0.1, 0.1)
    for level, (low, high) in zip(levels, ranges, strict=True):
        assert level.min() >= low - 1e-6
        assert level.max() <= high + 1e-6
        assert stats.kstest(level, stats.uniform(low, high - low).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef([applied, *levels]) - np.eye(5)).max() < 4.5 / np.sqrt(N)
    for operation, p in ((views.Flip(), 0.5), (views.Flip(0.1), 0.1), (views.Grey(), 0.2)):
        flags = drawn_by(operation)[:, 0]
        assert set(np.unique(flags)) == {0.0, 1.0}
        assert is_share(flags, p)
    for p in (0.0, 1.0):
        assert (drawn_by(views.Flip(p)) == p).all()


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_images_are_drawn_independently(operation):
    drawn = drawn_by(operation)
    assert drawn.dtype == np.float32
    for column in drawn.T[drawn.std(0) > 0]:
        for apart in (1, 2, N // 2):
            paired = np.corrcoef(column[:-apart], column[apart:])[0, 1]
            assert abs(paired) < 4.5 / np.sqrt(N - apart)


def test_one_seed_one_draw_and_the_published_settings():
    recipe, images, state = views.simclr_views(blur=True), some_images(), torch.get_rng_state()
    once, again = (recipe(images, generator(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert not torch.equal(once, recipe(images, generator(6)))
    assert torch.equal(torch.get_rng_state(), state)
    crop, flip, jitter, grey, _ = views.simclr_views(min_scale=0.08).each.operations
    assert (crop.scale, crop.ratio, flip.p) == ((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    assert (jitter, grey) == (views.ColourJitter(0.4, 0.4, 0.4, 0.1, p=0.8), views.Grey(p=0.2))
    assert views.simclr_views(blur=True).each.operations[4] == views.Blur(p=0.5, sigma=(0.1, 2.0))
    assert views.amdim_views().shared == views.Views(views.Flip(p=0.5))
    assert views.amdim_views().each.operations[:3] == (
        views.ReflectTranslate(4, p=0.8),
        views.ColourJitter(0.4, 0.4, 0.4, 0.2, p=0.8),
        views.Grey(p=0.25),
    )
    assert hash(views.simclr_views()) == hash(views.simclr_views())


def test_refused():
    for message, make, *arguments in (
        ("p=1.5 must be between 0 and 1", views.Flip, 1.5),
        ("finite number", views.Flip, float("nan")),
        ("finite number", views.Grey, "often"),
        ("scale", views.ResizedCrop, (0.0, 1.0)),
        ("between 0 and 1", views.ResizedCrop, (0.5, 1.2)),
        ("low <= high", views.ResizedCrop, (0.2, 1.0), (2.0, 1.0)),
        ("pair", views.ResizedCrop, (0.2, 1.0), 0.75),
        ("whole number", views.ReflectTranslate, 1.5),
        ("brightness", views.ColourJitter, -0.1, 0, 0, 0),
        ("between 0 and 0.5", views.ColourJitter, 0, 0, 0, 0.6),
        ("odd", views.Blur, 0.5, (0.1, 2.0), 4),
        ("sigma", views.Blur, 0.5, (0.0, 1.0)),
        ("greater than zero", views.Normalise, (0.5,), (0.0,)),
        ("one number per channel", views.Normalise, (0.5,), (0.1, 0.1)),
        ("not an operation", views.Views, "flip"),
        ("shared must be Views", views.TwoViews, views.Flip(), views.Views()),
        ("strength", views.simclr_views, False, 3),
        ("smaller than the images' side", views.ReflectTranslate(9).draw, 2, 32, 9, generator()),
    ):
        refused(message, make, *arguments)
    for message, recipe, images in (
        ("needs images larger", views.Views(views.Blur(kernel=9)), some_images(2, 4, 9)),
        ("see as_rgb", views.Views(views.Grey()), torch.rand(2, 1, 8, 8)),
        ("3 channels", views.amdim_views(), torch.rand(2, 4, 8, 8)),
        ("n, channels, height, width", views.Views(), torch.rand(3, 8, 8)),
        ("uint8", views.Views(), torch.ones(2, 3, 8, 8, dtype=torch.int64)),
        ("generator", views.Views(), torch.empty(2, 3, 8, 8, device="meta")),
        ("3 channels, not 1", views.Views(views.Normalise((0.5,), (0.1,))), some_images()),
    ):
        refused(message, recipe, images, generator())


RECIPES = {
    "simclr": views.simclr_views(),
    "simclr blurred": views.simclr_views(blur=True),
    "amdim": views.amdim_views(),
    "evaluation": views.evaluation_view(),
    "all": views.Views(*OPERATIONS),
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
def test_apply_is_the_same_compiled_and_under_autocast_and_looks_at_no_value(name):
    recipe, images = RECIPES[name], (some_images() * 255).to(torch.uint8)
    drawn = recipe.draw(12, 20, 20, generator())
    expected = recipe.apply(images, drawn)
    compiled = torch.compile(recipe.apply, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images, drawn), expected)
    last = images.to(memory_format=torch.channels_last)
    torch.testing.assert_close(recipe.apply(last, drawn), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(recipe.apply(images, drawn), expected)
    drawn = torch.utils._pytree.tree_map(lambda rows: rows.to("meta"), drawn)
    seen = recipe.apply(torch.empty((12, 3, 20, 20), dtype=torch.uint8, device="meta"), drawn)
    assert (seen.device.type, seen.shape[-4:]) == ("meta", (12, 3, 20, 20))


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
        seen = recipe.apply(there, drawn)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    here = torch.utils._pytree.tree_map(lambda rows: rows.cpu(), drawn)
    torch.testing.assert_close(seen.cpu(), recipe.apply(images, here), atol=5e-5, rtol=0)
