"""The halves of the digits and the rows that were swapped."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pointdep.data.images import digit_halves
from pointdep.errors import InputError


def test_halves_make_the_digits_again():
    halves, digits = digit_halves(swapped=0.0), load_digits()
    assert not halves.swapped.any()
    np.testing.assert_array_equal(np.hstack([halves.x, halves.y]), digits.data)
    np.testing.assert_array_equal(halves.labels, digits.target)


@pytest.mark.parametrize("fraction", [0.0012, 0.05, 1.0])
def test_swapped_rows_are_permuted_and_none_stays(fraction):
    halves, digits = digit_halves(swapped=fraction, seed=5), load_digits()
    lower, mask = digits.data[:, 32:], halves.swapped
    assert mask.sum() == round(fraction * len(lower))
    np.testing.assert_array_equal(halves.y[~mask], lower[~mask])
    np.testing.assert_array_equal(halves.x, digits.data[:, :32])
    order = lambda rows: rows[np.lexsort(rows.T)]  # noqa: E731
    np.testing.assert_array_equal(order(halves.y[mask]), order(lower[mask]))
    # Two digits may have the same lower half, so a few rows can look unmoved.
    assert (halves.y[mask] == lower[mask]).all(axis=1).mean() < 0.01


def test_seed():
    assert np.array_equal(digit_halves(seed=1).swapped, digit_halves(seed=1).swapped)
    assert not np.array_equal(digit_halves(seed=1).swapped, digit_halves(seed=2).swapped)


def test_arguments():
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="swapped must be a fraction"):
            digit_halves(swapped=fraction)
    with pytest.raises(InputError, match="single row"):
        digit_halves(swapped=0.0005)
