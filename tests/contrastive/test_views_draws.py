"""What is drawn: ranges, shares and laws, independence of images, options that are refused."""

import random

import numpy as np
import pytest
import torch
from scipy import stats

from pointdep.contrastive import views
from refusals import refused

from . import slow_views as slow
from .test_views import OPERATIONS, generator, some_images

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


def test_one_seed_one_draw_and_global_random_numbers_are_left_alone():
    recipe, images, state = views.simclr_views(blur=True), some_images(), torch.get_rng_state()
    once, again = (recipe(images, generator(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert not torch.equal(once, recipe(images, generator(6)))
    assert torch.equal(torch.get_rng_state(), state)


def test_recipes_have_the_published_settings():
    crop, flip, jitter, grey, _ = views.simclr_views(min_scale=0.08).each.operations
    assert (crop.scale, crop.ratio, flip.p) == ((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    assert jitter == views.ColourJitter(0.4, 0.4, 0.4, 0.1, p=0.8)
    assert grey == views.Grey(p=0.2)
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
