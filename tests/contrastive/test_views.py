"""Views of a batch against the slow reference, one image at a time, for the same draw."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    before = images.clone()
    drawn = operation.draw(len(images), height, width, generator())
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


def test_hue_at_the_corners_of_the_circle():
    jitter, steps = views.ColourJitter(0, 0, 0, 0.5, p=1.0), torch.linspace(0, 1, 5)
    cube = torch.cartesian_prod(steps, steps, steps).T.reshape(1, 3, 5, 25)
    for shift in (-0.5, -1 / 3, -1 / 6, 0.0, 1 / 12, 1 / 6, 1 / 3, 0.5):
        drawn = torch.tensor([[1, 1, 1, 1, shift]])
        close(jitter.apply(cube, drawn)[0], slow.hue_shifted(cube[0].double().numpy(), shift))


def test_never_applied_or_without_effect():
    images, crop = some_images(), views.ResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0))
    jitter = views.ColourJitter(0.4, 0.4, 0.4, 0.2, p=0)
    shift = views.ReflectTranslate(p=0)
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
    colour = views.as_rgb(torch.ones(1, 1, 3, 8), size=17)
    expected = torch.zeros(17, 17)
    expected[5:11, :16] = 1
    assert torch.equal(colour[0, 0], expected)
    refused("33 x 20 do not fit", views.as_rgb, torch.zeros(2, 1, 33, 20))
    for shape in ((2, 2, 8, 8), (8, 8)):
        refused("1 or 3", views.as_rgb, torch.zeros(shape))
    refused("7 rows have no halves", views.halves, torch.rand(2, 1, 7, 8))
