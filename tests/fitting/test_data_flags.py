"""Flags about the data: copies of rows, and sides that determine each other."""

import numpy as np
import pytest
import torch

from pointdep.fitting.data_flags import determined_flags, duplicate_flags

from .closed_forms import closed_form, default_model, gaussians, split_of


def names(flags):
    return [flag.name for flag in flags]


def doubled(share, rows=200):
    """So many of the rows once more at the end."""
    x, y = gaussians(rows)
    copies = round(share * rows)
    return torch.cat([x, x[:copies]]), torch.cat([y, y[:copies]])


@pytest.mark.parametrize(("share", "flagged"), [(0.0, False), (0.005, False), (0.05, True)])
def test_copies(share, flagged):
    found = duplicate_flags(*doubled(share))
    assert names(found) == ["duplicated_rows"] * flagged
    if flagged:
        assert "10 distinct pairs occur more than once" in found[0].message


def test_equal_sides_alone_are_no_copies():
    """Each x stands four times, every time with another y."""
    x, y = gaussians(200)
    assert duplicate_flags(x[:50].repeat(4, 1), y) == []
    assert duplicate_flags(x, y[:50].repeat(4, 1)) == []


def test_pairs_of_few_values_repeat_by_nature():
    random = np.random.default_rng(0)
    few = torch.from_numpy(random.integers(0, 5, (300, 2)).astype(float))
    assert duplicate_flags(few, few.flip(1)) == []


def test_many_categories_meet_again_by_chance():
    """A hundred on either side: of 500 pairs a dozen occur twice."""
    x, y = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (2, 500, 1)))
    pairs = np.unique(np.hstack([x, y]), axis=0)
    assert 470 < len(pairs) < 495
    assert duplicate_flags(x, y) == []
    # With numbers beside them it would be no chance.
    _, number = gaussians(500, dim=1)
    number[400:], x[400:], y[400:] = number[:100], x[:100], y[:100]
    found = duplicate_flags(torch.cat([x, number], 1), y)
    assert names(found) == ["duplicated_rows"]


def test_determined():
    x, y = gaussians(300, rho=0.99)
    model = closed_form(x, y, [split_of(200, 60, 40)])
    assert determined_flags(model) == []
    model = closed_form(x, 3 * x.flip(1), [split_of(200, 60, 40)])
    assert names(determined_flags(model)) == ["determined"]
    assert "column that both sides share" in determined_flags(model)[0].message
    assert determined_flags(default_model(1, 2, 2)) == []
