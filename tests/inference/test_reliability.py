"""The reliability curve, and its figure."""

import math

import numpy as np
import pytest
import torch

from pointdep.display.plots import plot_reliability
from pointdep.inference.moment_tests import arrange, reliability_curve

from .test_balances import exact_table

matplotlib = pytest.importorskip("matplotlib")


def test_on_an_exact_table_what_is_seen_is_what_was_said():
    curve = reliability_curve(arrange(*exact_table(4, size=30)))
    assert len(curve) > 3
    for point in curve:
        assert point.observed == pytest.approx(point.predicted, abs=1e-12)
        assert point.low <= point.predicted <= point.high
        wanted = 1 / (1 + math.exp(-point.predicted))
        assert point.predicted_probability == pytest.approx(wanted)
        assert point.observed_frequency == pytest.approx(wanted)


def test_frequencies_weigh_joint_and_product_alike():
    generator = torch.Generator().manual_seed(0)
    eye = torch.eye(200, dtype=torch.float64)[None]
    log_ratio = torch.randn(1, 200, 200, generator=generator, dtype=torch.float64) + eye
    of_joint = log_ratio[eye > 0].numpy()
    of_product = log_ratio[eye == 0].numpy()
    for point in reliability_curve(arrange(log_ratio, eye, 1 - eye)):
        joint, product = (
            np.sum((part >= point.low) & (part < point.high)) for part in (of_joint, of_product)
        )
        assert (point.joint, point.product) == (joint, product)
        share = joint / 200 / (joint / 200 + product / (200 * 199))
        assert point.observed_frequency == pytest.approx(share)
        # Few joint rows in a bin decide its error, which is then near that of a count.
        assert point.stderr == pytest.approx(math.sqrt(1 / joint - 1 / 200), rel=0.25)


def test_without_overlap_there_is_no_curve():
    eye = torch.eye(60, dtype=torch.float64)[None]
    assert reliability_curve(arrange(40 * eye - 20, eye, 1 - eye)) == ()
    assert len(reliability_curve(arrange(0 * eye, eye, 1 - eye))) == 1


def test_the_figure_shows_the_points_and_the_verdict():
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curve = reliability_curve(arrange(*exact_table(4, size=30)))
    _, given = pyplot.subplots()
    ax = plot_reliability(curve, "Passes: a verdict that is long enough to be broken once", given)
    assert ax is given
    assert "Passes" in ax.get_title(loc="left")
    points = ax.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points, [(point.predicted, point.observed) for point in curve])
    assert ax.get_xlim() == ax.get_ylim()
    assert plot_reliability((), "Cannot tell") is not given
    pyplot.close("all")
