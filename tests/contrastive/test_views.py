"""Views of a batch against the slow reference, one image at a time, for the same draw."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.contrastive.views import (
    NORMALISE_CIFAR10,
    NORMALISE_MNIST,
    Blur,
    ColourJitter,
    Flip,
    Grey,
    Normalise,
    ReflectTranslate,
    ResizedCrop,
    Views,
    amdim_views,
    as_rgb,
    evaluation_view,
    halves,
    simclr_views,
)  # fmt: skip
from pointdep.errors import InputError

from . import slow_views as slow

SLOW = {
    ResizedCrop: slow.resized_crop,
    Flip: slow.flip,
    ReflectTranslate: slow.reflect_translate,
    ColourJitter: slow.colour_jitter,
    Grey: slow.grey,
}

OPERATIONS = [
    ResizedCrop(),
    ResizedCrop(scale=(0.02, 0.3), ratio=(0.3, 3.0)),
    Flip(),
    ReflectTranslate(),
    ColourJitter(0.4, 0.4, 0.4, 0.1),
    ColourJitter(2.0, 2.0, 2.0, 0.5, p=1.0),
    Grey(p=0.5),
    Blur(p=0.7),
    Blur(p=0.7, sigma=(0.02, 5.0), kernel=9),
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
    if isinstance(operation, Blur):
        side = min(image.shape[1:])
        kernel = operation.kernel or max(3, side // 10 // 2 * 2 + 1)
        return slow.blur(image, *row, radius=kernel // 2)
    if isinstance(operation, Normalise):
        return slow.normalise(image, operation.mean, operation.std)
    return SLOW[type(operation)](image, *row)


def slow_batch(operations, images: torch.Tensor, drawn) -> np.ndarray:
    out = []
    for i, image in enumerate(images.double().numpy()):
        view = image
        for operation, rows in zip(operations, drawn, strict=True):
            view = slowly(operation, view, rows[i].tolist())
        out.append(view)
    return np.stack(out)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
@pytest.mark.parametrize(("height", "width"), [(20, 20), (12, 17)])
def test_operation_is_the_slow_one(operation, height, width):
    images = some_images(height=height, width=width)
    before = images.clone()
    drawn = operation.draw(len(images), height, width, generator())
    views = operation.apply(images, drawn)
    assert views.dtype == torch.float32
    assert views.shape == images.shape
    np.testing.assert_allclose(
        views.numpy(), slow_batch([operation], images, [drawn]), atol=1e-5, rtol=0
    )
    assert torch.equal(images, before)
    assert not torch.equal(views, images)


@pytest.mark.parametrize(
    "recipe", [simclr_views(blur=True), amdim_views()], ids=["simclr", "amdim"]
)
def test_recipe_is_the_slow_one(recipe):
    images = some_images(n=5, height=32, width=32)
    shared, each = recipe.draw(5, 32, 32, generator())
    views = recipe.apply(images, (shared, each))
    assert views.shape == (2, 5, 3, 32, 32)
    once = torch.from_numpy(slow_batch(recipe.shared.operations, images, shared))
    for view in (0, 1):
        own = [rows[view * 5 : view * 5 + 5] for rows in each]
        expected = slow_batch(recipe.each.operations, once, own)
        np.testing.assert_allclose(views[view].numpy(), expected, atol=5e-5, rtol=0)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_box_is_the_interpolated_box(data):
    height, width = data.draw(st.integers(1, 24)), data.draw(st.integers(1, 24))
    rows, columns = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top = data.draw(st.integers(0, height - rows))
    left = data.draw(st.integers(0, width - columns))
    images = some_images(n=2, height=height, width=width)
    box = torch.tensor([[top, left, rows, columns]], dtype=torch.float32).expand(2, 4)
    views = ResizedCrop().apply(images, box)
    np.testing.assert_allclose(
        views.numpy(), slow_batch([ResizedCrop()], images, [box]), atol=1e-5, rtol=0
    )
    # Nothing outside the box is seen, however large it is.
    outside = torch.full_like(images, 1e30)
    inside = (..., slice(top, top + rows), slice(left, left + columns))
    outside[inside] = images[inside]
    assert torch.equal(ResizedCrop().apply(outside, box), views)


def test_hue_at_the_corners_of_the_circle():
    jitter = ColourJitter(0, 0, 0, 0.5, p=1.0)
    steps = torch.linspace(0, 1, 5)
    cube = torch.cartesian_prod(steps, steps, steps).T.reshape(1, 3, 5, 25)
    for shift in (-0.5, -1 / 3, -1 / 6, 0.0, 1 / 12, 1 / 6, 1 / 3, 0.5):
        drawn = torch.tensor([[1, 1, 1, 1, shift]])
        expected = slow.hue_shifted(cube[0].double().numpy(), shift)
        np.testing.assert_allclose(jitter.apply(cube, drawn)[0].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    "operation",
    [
        *(Flip(p=0), ReflectTranslate(p=0), ColourJitter(0.4, 0.4, 0.4, 0.2, p=0), Grey(p=0)),
        *(Blur(p=0), ReflectTranslate(0), ColourJitter(0, 0, 0, 0)),
        ResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0)),
    ],
    ids=str,
)
def test_never_applied_or_without_effect(operation):
    images = some_images()
    views = Views(operation)(images, generator())
    torch.testing.assert_close(
        views, images, atol=0 if getattr(operation, "p", 1) == 0 else 1e-6, rtol=0
    )


def test_bytes_are_scaled():
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(2, 3, -1, -1)
    plain = evaluation_view(normalise=None)(images, generator())
    assert plain.dtype == torch.float32
    np.testing.assert_allclose(plain.numpy(), images.numpy() / 255, atol=1e-7)
    recipe = simclr_views()
    drawn = recipe.draw(2, 16, 16, generator())
    torch.testing.assert_close(recipe.apply(images, drawn), recipe.apply(plain, drawn))


@pytest.mark.parametrize("normalise", [NORMALISE_CIFAR10, NORMALISE_MNIST], ids=["cifar", "mnist"])
def test_evaluation_view_is_the_normalised_image(normalise):
    images = some_images()
    views = evaluation_view(normalise=normalise)(images, generator())
    expected = slow_batch([normalise], images, [torch.empty(12, 0)])
    np.testing.assert_allclose(views.numpy(), expected, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 5))
def test_an_image_s_view_is_its_own(order, which):
    """Views follow their images in any order, and do not see the others' pixels."""
    views = Views(*OPERATIONS)
    images, drawn = some_images(6), views.draw(6, 20, 20, generator())
    together = views.apply(images, drawn)
    permuted = views.apply(images[order], tuple(rows[order] for rows in drawn))
    torch.testing.assert_close(permuted, together[order], atol=1e-6, rtol=0)
    others = 1 - images
    others[which] = images[which]
    torch.testing.assert_close(
        views.apply(others, drawn)[which], together[which], atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_halves_are_those_of_the_flat_image(channels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 6, 7, channels), dtype=np.uint8)  # (n, h, w, c)
    flat = images.reshape(5, -1) / 255
    top, bottom = halves(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    np.testing.assert_allclose(top.numpy(), flat[:, : flat.shape[1] // 2], atol=1e-7)
    np.testing.assert_allclose(bottom.numpy(), flat[:, flat.shape[1] // 2 :], atol=1e-7)
    assert top.dtype == torch.float32


@pytest.mark.parametrize(
    ("shape", "size", "factor"),
    [((4, 1, 28, 28), 32, 1), ((3, 8, 8), 32, 4), ((3, 8, 8), 35, 4), ((2, 3, 32, 32), 32, 1)],
)
def test_small_images_are_enlarged_and_framed(shape, size, factor):
    images = torch.randint(1, 256, shape, dtype=torch.uint8)
    colour = as_rgb(images, size)
    channels = images.numpy() if len(shape) == 4 else images[:, None].numpy()
    copies = 3 // channels.shape[1]
    enlarged = np.kron(channels, np.ones((1, copies, factor, factor), np.uint8))
    rest = size - enlarged.shape[-1]
    around = (rest // 2, rest - rest // 2)
    assert np.array_equal(colour.numpy(), np.pad(enlarged, ((0, 0), (0, 0), around, around)))
    assert colour.is_contiguous()


def test_an_oblong_image_is_set_in_the_middle():
    colour = as_rgb(torch.ones(1, 1, 3, 8), size=17)
    assert colour[0, 0].nonzero().aminmax(dim=0).min.tolist() == [5, 0]
    assert colour[0, 0].nonzero().aminmax(dim=0).max.tolist() == [10, 15]
    assert colour[0, 0].sum() == 6 * 16


@pytest.mark.parametrize(
    ("shape", "message"),
    [((2, 1, 33, 20), "33 x 20 do not fit"), ((2, 2, 8, 8), "1 or 3"), ((8, 8), "1 or 3")],
)
def test_refused(shape, message):
    with pytest.raises(InputError, match=message):
        as_rgb(torch.zeros(shape))
    with pytest.raises(InputError, match="7 rows have no halves"):
        halves(torch.rand(2, 1, 7, 8))
