"""Flags about the data: copies of rows, and sides that determine each other."""

import numpy as np
import pytest
import torch

from pointdep.fitting import data_flags
from pointdep.fitting.data_flags import CopyCount, determined_flags, duplicate_flags

from .helpers import closed_form, default_model, gaussians, split_of


def names(flags):
    return [flag.name for flag in flags]


@pytest.mark.parametrize("copies", [0, 1, 10])
def test_copies(copies):
    """So many of 200 rows once more at the end."""
    found = duplicate_flags(*(torch.cat([side, side[:copies]]) for side in gaussians(200)))
    assert names(found) == ["duplicated_rows"] * (copies == 10)
    if found:
        assert "10 distinct pairs occur more than once" in found[0].message


def test_what_is_no_copy():
    # Each x stands four times, every time with another y.
    x, y = gaussians(200)
    assert duplicate_flags(x[:50].repeat(4, 1), y) == []
    assert duplicate_flags(x, y[:50].repeat(4, 1)) == []
    # Pairs of few values repeat by nature.
    few = torch.from_numpy(np.random.default_rng(0).integers(0, 5, (300, 2)).astype(float))
    assert duplicate_flags(few, few.flip(1)) == []
    # Many categories meet again by chance: of 500 pairs a dozen occur twice.
    x, y = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (2, 500, 1)))
    assert 470 < len(np.unique(np.hstack([x, y]), axis=0)) < 495
    assert duplicate_flags(x, y) == []
    # With numbers beside them it would be no chance.
    _, number = gaussians(500, dim=1)
    number[400:], x[400:], y[400:] = number[:100], x[:100], y[:100]
    assert names(duplicate_flags(torch.cat([x, number], 1), y)) == ["duplicated_rows"]


def rounded(seed, rows=4000, labels=None):
    """x: three rounded columns; y: a dependent whole number, or a label."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3)).round(1)
    y = (x @ [1.0, 0.5, 0.2] + 0.6 * random.normal(size=rows)).round()
    return x, (y > labels if labels is not None else y).astype(float)[:, None]


def flags(x, y, streamed):
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if not streamed:
        return duplicate_flags(x, y)
    parts = [CopyCount(), CopyCount()]
    for first, (a, b) in enumerate(zip(x.split(300), y.split(300), strict=True)):
        parts[first % 2].add(a, b, 300 * first)
    parts[0].merge(parts[1])
    return parts[0].flags()


@pytest.mark.parametrize("labels", [None, 0.0, 1.0])
@pytest.mark.parametrize("streamed", [False, True])
def test_rounded_numbers_that_meet_again_are_no_copies(labels, streamed, monkeypatch):
    monkeypatch.setattr(data_flags, "_DRAWN", 500)
    x, y = rounded(0, labels=labels)
    again = len(x) - len(np.unique(np.hstack([x, y]), axis=0))
    assert again > 0.01 * len(x)
    assert flags(x, y, streamed) == []
    # Copies on top of these are found.
    copied = [np.concatenate([side, side[:1500]]) for side in (x, y)]
    assert names(flags(*copied, streamed)) == ["duplicated_rows"]


def test_determined():
    x, y = gaussians(300, rho=0.99)
    model = closed_form(x, y, [split_of(200, 60, 40)])
    assert determined_flags(model) == []
    model = closed_form(x, 3 * x.flip(1), [split_of(200, 60, 40)])
    assert names(determined_flags(model)) == ["determined"]
    assert "column that both sides share" in determined_flags(model)[0].message
    assert determined_flags(default_model(1, 2, 2)) == []
