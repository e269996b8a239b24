"""Halves of images and grey images in colour, against numpy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pointdep.contrastive.views import as_rgb, halves
from pointdep.errors import InputError


@pytest.mark.parametrize("channels", [1, 3])
def test_halves_are_those_of_the_flat_image(channels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 6, 7, channels), dtype=np.uint8)  # (n, h, w, c)
    flat = images.reshape(5, -1) / 255
    top, bottom = halves(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    np.testing.assert_allclose(top.numpy(), flat[:, : flat.shape[1] // 2], atol=1e-7)
    np.testing.assert_allclose(bottom.numpy(), flat[:, flat.shape[1] // 2 :], atol=1e-7)
    assert top.dtype == torch.float32


def test_halves_of_floats_are_not_scaled():
    images = torch.rand(3, 1, 4, 2)
    top, bottom = halves(images)
    assert torch.equal(top, images[:, 0, :2].flatten(1))
    assert torch.equal(bottom, images[:, 0, 2:].flatten(1))


def test_an_odd_image_has_no_halves():
    with pytest.raises(InputError, match="images of 7 rows have no halves"):
        halves(torch.rand(2, 1, 7, 8))


def test_mnist_gets_a_border():
    images = torch.randint(1, 256, (4, 1, 28, 28), dtype=torch.uint8)
    colour = as_rgb(images)
    assert colour.dtype == torch.uint8
    expected = np.pad(images.numpy().repeat(3, 1), ((0, 0), (0, 0), (2, 2), (2, 2)))
    assert np.array_equal(colour.numpy(), expected)
    assert colour.is_contiguous()


@pytest.mark.parametrize("size", [32, 35])
def test_digits_are_enlarged(size):
    images = torch.rand(3, 8, 8)
    colour = as_rgb(images, size)
    border = (size - 32) // 2
    inside = colour[:, :, border : border + 32, border : border + 32]
    expected = np.kron(images[:, None].numpy(), np.ones((1, 3, 4, 4), dtype=np.float32))
    assert np.array_equal(inside.numpy(), expected)
    assert colour.shape == (3, 3, size, size)
    assert colour.sum().item() == pytest.approx(expected.sum(), rel=1e-5)


def test_colour_images_of_the_right_size_stay():
    images = torch.rand(2, 3, 32, 32).to(memory_format=torch.channels_last)
    assert torch.equal(as_rgb(images), images)
    assert as_rgb(images).is_contiguous()


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
