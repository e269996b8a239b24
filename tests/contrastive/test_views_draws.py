"""What is drawn: ranges, shares and laws, independence of images, options that are refused."""

import random

import numpy as np
import pytest
import torch
from scipy import stats

from pointdep.contrastive.views import (
    Blur,
    ColourJitter,
    Flip,
    Grey,
    Normalise,
    ReflectTranslate,
    ResizedCrop,
    TwoViews,
    Views,
    amdim_views,
    simclr_views,
)  # fmt: skip
from pointdep.errors import InputError

from . import slow_views as slow
from .test_views import OPERATIONS, generator, some_images

N = 20_000


def drawn_by(operation, n: int = N, height: int = 32, width: int = 32) -> np.ndarray:
    return operation.draw(n, height, width, generator(3)).numpy()


def is_share(flags: np.ndarray, p: float) -> bool:
    """Within four standard errors of p."""
    return abs(flags.mean() - p) < 4 * np.sqrt(p * (1 - p) / len(flags))


@pytest.mark.parametrize(
    ("height", "width", "scale", "ratio"),
    [
        (32, 32, (0.2, 1.0), (3 / 4, 4 / 3)),
        (32, 32, (0.8, 1.0), (1 / 4, 4.0)),  # few boxes fit: some images use up the ten tries
        (20, 48, (0.3, 1.0), (3 / 4, 4 / 3)),
        (48, 20, (0.3, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_boxes_follow_the_law_of_the_slow_ones(height, width, scale, ratio):
    boxes = drawn_by(ResizedCrop(scale, ratio), 6000, height, width).astype(float)
    numbers = random.Random(4)
    slowly = np.array([slow.crop_box(height, width, scale, ratio, numbers) for _ in range(6000)])
    assert np.array_equal(boxes, boxes.round())
    top, left, rows, columns = boxes.T
    assert min(top.min(), left.min()) >= 0
    assert min(rows.min(), columns.min()) >= 1
    assert (top + rows).max() <= height
    assert (left + columns).max() <= width
    for measure in (
        *(lambda box, k=k: box[:, k] for k in range(4)),
        lambda box: box[:, 2] * box[:, 3],
        lambda box: box[:, 2] / box[:, 3],
    ):
        compared = stats.ks_2samp(measure(boxes), measure(slowly), method="asymp")
        assert compared.pvalue > 1e-3


@pytest.mark.parametrize(("height", "width"), [(10, 41), (41, 10), (9, 40), (40, 9), (10, 11)])
def test_without_a_box_that_fits_the_crop_is_central(height, width):
    """No box of nearly the whole area has an allowed ratio: torchvision's last resort."""
    crop = ResizedCrop(scale=(0.999, 1.0), ratio=(0.8, 0.8) if width > height else (1.25, 1.25))
    expected = slow.crop_box(height, width, crop.scale, crop.ratio, random.Random(0))
    assert (drawn_by(crop, 50, height, width) == expected).all()


def test_shifts_are_whole_and_equally_frequent():
    shifts = drawn_by(ReflectTranslate(4, p=1.0))
    for axis in (0, 1):
        values, counts = np.unique(shifts[:, axis], return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert stats.chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 4 / np.sqrt(N)
    stays = (drawn_by(ReflectTranslate(4, p=0.8)) == 0).all(1)
    assert is_share(stays, 0.2 + 0.8 / 81)


def test_jitter_and_blur_are_uniform_in_their_ranges():
    applied, sigma = drawn_by(Blur(p=0.5)).T
    assert is_share(applied, 0.5)
    assert stats.kstest(sigma, stats.uniform(0.1, 1.9).cdf).pvalue > 1e-3
    applied, *levels = drawn_by(ColourJitter(0.4, 1.5, 0.2, 0.1, p=0.8)).T
    assert is_share(applied, 0.8)
    for level, (low, high) in zip(
        levels, [(0.6, 1.4), (0.0, 2.5), (0.8, 1.2), (-0.1, 0.1)], strict=True
    ):
        assert level.min() >= low - 1e-6
        assert level.max() <= high + 1e-6
        assert stats.kstest(level, stats.uniform(low, high - low).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef([applied, *levels]) - np.eye(5)).max() < 4.5 / np.sqrt(N)


def test_coins():
    for operation, p in ((Flip(), 0.5), (Flip(0.1), 0.1), (Grey(), 0.2)):
        flags = drawn_by(operation)[:, 0]
        assert set(np.unique(flags)) == {0.0, 1.0}
        assert is_share(flags, p)
    for p in (0.0, 1.0):
        assert (drawn_by(Flip(p)) == p).all()


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_images_are_drawn_independently(operation):
    drawn = drawn_by(operation)
    assert drawn.dtype == np.float32
    for column in drawn.T[drawn.std(0) > 0]:
        for apart in (1, 2, N // 2):
            paired = np.corrcoef(column[:-apart], column[apart:])[0, 1]
            assert abs(paired) < 4.5 / np.sqrt(N - apart)


def test_one_seed_one_draw_and_global_random_numbers_are_left_alone():
    recipe, images, state = simclr_views(blur=True), some_images(), torch.get_rng_state()
    once, again = (recipe(images, generator(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert not torch.equal(once, recipe(images, generator(6)))
    assert torch.equal(torch.get_rng_state(), state)


def test_recipes_have_the_published_settings():
    crop, flip, jitter, grey, _ = simclr_views(min_scale=0.08).each.operations
    assert (crop.scale, crop.ratio, flip.p) == ((0.08, 1.0), (3 / 4, 4 / 3), 0.5)
    assert jitter == ColourJitter(0.4, 0.4, 0.4, 0.1, p=0.8)
    assert grey == Grey(p=0.2)
    assert simclr_views(blur=True).each.operations[4] == Blur(p=0.5, sigma=(0.1, 2.0))
    assert amdim_views().shared == Views(Flip(p=0.5))
    assert amdim_views().each.operations[:3] == (
        ReflectTranslate(4, p=0.8),
        ColourJitter(0.4, 0.4, 0.4, 0.2, p=0.8),
        Grey(p=0.25),
    )
    assert hash(simclr_views()) == hash(simclr_views())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flip(p=1.5), "p=1.5 must be between 0 and 1"),
        (lambda: Flip(p=float("nan")), "finite number"),
        (lambda: Grey(p="often"), "finite number"),
        (lambda: ResizedCrop(scale=(0.0, 1.0)), "scale"),
        (lambda: ResizedCrop(scale=(0.5, 1.2)), "between 0 and 1"),
        (lambda: ResizedCrop(ratio=(2.0, 1.0)), "low <= high"),
        (lambda: ResizedCrop(ratio=0.75), "pair"),
        (lambda: ReflectTranslate(pixels=1.5), "whole number"),
        (lambda: ColourJitter(-0.1, 0, 0, 0), "brightness"),
        (lambda: ColourJitter(0, 0, 0, 0.6), "between 0 and 0.5"),
        (lambda: Blur(kernel=4), "odd"),
        (lambda: Blur(sigma=(0.0, 1.0)), "sigma"),
        (lambda: Normalise((0.5,), (0.0,)), "greater than zero"),
        (lambda: Normalise((0.5,), (0.1, 0.1)), "one number per channel"),
        (lambda: Views("flip"), "not an operation"),
        (lambda: TwoViews(shared=Flip(), each=Views()), "shared must be Views"),
        (lambda: simclr_views(strength=3), "strength"),
        (lambda: ReflectTranslate(9).draw(2, 32, 9, generator()), "smaller than the images' side"),
        (lambda: Views(Blur(kernel=9))(some_images(2, 4, 9), generator()), "needs images larger"),
        (lambda: Views(Grey())(torch.rand(2, 1, 8, 8), generator()), "see as_rgb"),
        (lambda: amdim_views()(torch.rand(2, 4, 8, 8), generator()), "3 channels"),
        (lambda: Views()(torch.rand(3, 8, 8), generator()), "n, channels, height, width"),
        (lambda: Views()(torch.ones(2, 3, 8, 8, dtype=torch.int64), generator()), "uint8"),
        (lambda: Views()(torch.empty(2, 3, 8, 8, device="meta"), generator()), "generator"),
        (lambda: Views(Normalise((0.5,), (0.1,)))(some_images(), generator()), "3 channels, not 1"),
    ],
)
def test_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
