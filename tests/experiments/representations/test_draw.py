"""The figure: means by hand, nothing on top of something else, the same file each time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pointdep.experiments.representations.draw import draw, mean_curve, write_figure
from pointdep.experiments.representations.settings import PARTS, Experiment

from .synthetic import PIXELS, curve

NOTE = (
    "Not as in the paper: images that went through a lossy format (JPEG); runs: CPC 1, PCC 1, "
    "D-RFC 1, not 5 each; 187 to 191 epochs; the paper prints no number of its long runs. Ours, "
    "where the paper says nothing: SGD (momentum 0.9, weight decay 0.0005), learning rate 0.4 "
    "(batch 512), up over a tenth of the run, then down a cosine; scores: CPC temperature 0.2, PCC "
    "temperature 0.2, D-RFC scale 10, DM I temperature 0.2, DM II temperature 0.2."
)


def curves(seeds=3):
    return [
        curve(objective, seed, *(0.7 + 0.02 * k + 0.004 * seed for k in range(10)))
        for objective in ("cpc", "pcc", "drfc", "dm1", "dm2", "variational")
        for seed in range(seeds)
    ]


def test_mean_and_spread_by_hand():
    own = [curve("cpc", 0, 0.5, 0.7, 0.8), curve("cpc", 1, 0.6, None, 0.9, every=500)]
    where, mean, sd = mean_curve(own, "steps")
    assert where.tolist() == [750, 1500, 2250]
    assert mean == pytest.approx([55, 70, 85])
    assert sd == pytest.approx(
        [100 * np.std([0.5, 0.6], ddof=1), 0, 100 * np.std([0.8, 0.9], ddof=1)]
    )
    assert mean_curve(own, "seconds")[0] == pytest.approx(np.array([750, 1500, 2250]) / 60)


def test_runs_that_the_clock_ended_meet_at_their_ends():
    own = [curve("cpc", 0, 0.1, 0.2, 0.3, 0.4), curve("cpc", 1, 0.1, 0.2, 0.6)]
    where, mean, _ = mean_curve(own, "steps")
    assert where.tolist() == [1000, 2000, 3500]
    assert mean == pytest.approx([10, 20, 50])


def test_diverged_runs():
    assert mean_curve([curve("dm1", 0)], "steps")[0].size == 0
    where, mean, _ = mean_curve([curve("dm1", 0, 0.3, None), curve("dm1", 1)], "steps")
    assert where.tolist() == [1000, 2000]
    assert mean[0] == pytest.approx(30)
    assert math.isnan(mean[1])


def test_runs_that_ended_because_they_diverged():
    """They are drawn where there is nothing else, and shorten no other."""
    cut = [
        replace(curve("dm1", seed, *looks), cut=True)
        for seed, looks in enumerate([[0.3], [0.4, 0.5]])
    ]
    whole = curve("dm1", 2, 0.3, 0.5, 0.6)
    assert mean_curve([*cut, whole], "steps")[1] == pytest.approx([30, 50, 60])
    where, mean, _ = mean_curve(cut[1:], "steps")
    assert (where.tolist(), mean.tolist()) == ([1000, 2000], pytest.approx([40, 50]))
    figure = draw(Experiment("shallow"), [*cut, whole], replace(PIXELS, converged=False), "")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["DM I (3 runs, 2 diverged)", "pixels, upper half\n(not converged)"]


def boxes(figure):
    """Of the texts below and beside the panels, and of the panels with theirs."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    found = {"legend": figure.legends[0], "title": figure._suptitle, "note": figure._supxlabel}
    found |= {f"panel {k}": axis for k, axis in enumerate(figure.axes)}
    return {name: part.get_tightbbox(renderer) for name, part in found.items()}


@pytest.mark.parametrize("part", PARTS)
def test_nothing_lies_on_top_of_something_else(part):
    figure = draw(Experiment(part), curves(), PIXELS, NOTE)
    found = boxes(figure)
    names = list(found)
    for k, one in enumerate(names):
        for other in names[k + 1 :]:
            assert not found[one].overlaps(found[other]), (one, other)
    page = figure.bbox
    for name, box in found.items():
        assert page.x0 <= box.x0, name
        assert box.x1 <= page.x1, name
        assert page.y0 <= box.y0, name


@pytest.mark.parametrize(
    ("part", "panels", "marks"), [("shallow", 1, 0), ("deep", 2, 0), ("simclr", 2, 3)]
)
def test_what_is_drawn(part, panels, marks):
    figure = draw(Experiment(part), curves(), PIXELS, "")
    assert len(figure.axes) == panels
    for axis in figure.axes:
        drawn = [line for line in axis.lines if list(line.get_xdata()) == [0.94, 1.0]]
        heights = sorted(line.get_ydata()[0] for line in drawn)
        assert heights == pytest.approx([88.69, 91.04, 91.51][:marks])
        assert any(list(line.get_ydata()) == [80.0, 80.0] for line in axis.lines)  # pixels
        assert len(axis.collections) == 6  # bands
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:3] == ["CPC (3 runs)", "PCC (3 runs)", "D-RFC (3 runs)"]
    assert "pixels, upper half" in labels


def test_the_same_curves_give_the_same_files(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_figure(Experiment("shallow"), curves(1), PIXELS, NOTE, tmp_path / name)
    for name in ("figure.png", "figure.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
