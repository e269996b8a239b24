"""The figure: what is in its panels, and that its files are always the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pointdep.experiments.figure1 import Figure1
from pointdep.experiments.figure1_report import draw, smooth, write_figure

from .figure1_curves import blow_up, make_curves


@pytest.fixture(scope="module")
def curves():
    """All ten, with one that ends, one that has gaps and one that is far away."""
    made = make_curves(seeds=2)
    made = blow_up(made, "dv", "cubic", after=0.66)
    made = blow_up(made, "nwj", "gaussian", after=0.9, value=-3e38, seeds=(1,))
    made.values[500, 2] = np.inf  # js, gaussian, seed 0
    return made


@pytest.fixture(scope="module")
def figure(curves):
    return draw(curves)


def lines(axis, label):
    return [line for line in axis.lines if line.get_label() == label]


class TestPanels:
    def test_two_rows_of_five(self, figure):
        places = [axis.get_subplotspec() for axis in figure.axes]
        assert [(p.rowspan.start, p.colspan.start) for p in places] == [
            (row, column) for row in range(2) for column in range(5)
        ]
        titles = [axis.get_title() for axis in figure.axes]
        assert titles[:2] == ["CPC (InfoNCE)", "NWJ"]
        assert titles[-1] == "Density-Ratio Fitting"
        for axis in figure.axes:
            assert axis.get_ylim() == (0, 12)
            assert axis.get_xlim() == (0, 1000)

    def test_curves_of_a_panel(self, figure, curves):
        axis = figure.axes[6]
        (truth,) = lines(axis, "true MI")
        assert np.array_equal(truth.get_ydata(), curves.settings.truth())
        assert truth.get_color() == "black"
        raw = [line for line in axis.lines if line.get_rasterized()]
        assert len(raw) == 2  # of the first seed, for each task
        cell = next(c for c in curves.cells if (c.method, c.task) == ("pc", "cubic"))
        assert np.array_equal(raw[1].get_ydata(), curves.of(cell))
        assert raw[0].get_color() != raw[1].get_color()
        assert len(axis.lines) == 1 + 2 + 2 * 2  # truth, raw, a smooth curve each seed

    def test_ceiling_is_on_cpc_alone(self, figure):
        dashed = [[line for line in a.lines if line.get_linestyle() == "--"] for a in figure.axes]
        assert [len(found) for found in dashed] == [1] + [0] * 9
        assert dashed[0][0].get_ydata()[0] == pytest.approx(np.log(128))
        assert [text.get_text() for text in figure.axes[0].texts] == ["log(batch size)"]

    def test_legend(self, figure):
        (legend,) = figure.legends
        assert [t.get_text() for t in legend.get_texts()] == ["Gaussian", "Cubic", "true MI"]

    def test_what_blew_up_is_said(self, figure):
        told = {axis.get_title(): [t.get_text() for t in axis.texts] for axis in figure.axes[1:]}
        assert told["DV (MINE)"] == ["cubic: not finite from 660 in 2 of 2 seeds"]
        assert told["JS"][0].startswith("gaussian: not finite 1 times")
        assert "off the axis" in told["NWJ"][0]
        assert not told["SMILE"]
        crosses = [line for line in figure.axes[3].lines if line.get_marker() == "x"]
        assert [line.get_xdata()[0] for line in crosses] == [660, 660]

    def test_as_many_panels_as_methods(self):
        figure = draw(make_curves({"rpc": ((0,) * 5, (0,) * 5)}, methods=("pc", "rpc", "cpc")))
        assert len(figure.axes) == 3
        methods = ("pc", "dv", "cpc", "js", "nwj", "drf", "smile")
        figure = draw(make_curves(methods=methods, tasks=("cubic",), levels=(2.0, 5.0)))
        assert len(figure.axes) == 7
        named = [axis.get_xlabel() for axis in figure.axes]
        assert named == ["", "", *["iteration"] * 5]  # under each column
        assert figure.axes[0].get_ylim() == (0, 6)


class TestSmooth:
    def test_span_is_200_of_20_000(self):
        values = np.random.default_rng(0).normal(size=20_000)
        expected = pd.Series(values).ewm(span=200).mean().to_numpy()
        assert np.array_equal(smooth(values, Figure1()), expected)
        shorter = pd.Series(values[:5000]).ewm(span=50).mean().to_numpy()
        assert np.array_equal(smooth(values[:5000], Figure1(iterations=5000)), shorter)

    def test_by_hand(self):
        # Span 3 is a weight of 1/2: (2 + 4 / 2) / (1 + 1 / 2) and so on.
        settings = Figure1(iterations=300)
        made = smooth(np.array([4.0, 2.0, np.nan, np.inf]), settings)
        assert made[:2] == pytest.approx([4.0, 4 / 1.5])
        assert np.isnan(made[2:]).all()


class TestFiles:
    @pytest.mark.slow
    def test_same_curves_same_files(self, curves, tmp_path):
        first, second = tmp_path / "a", tmp_path / "b"
        for folder in (first, second):
            folder.mkdir()
            write_figure(curves, folder)
        names = ["figure1.pdf", "figure1.png", "figure1.svg"]
        assert sorted(path.name for path in first.iterdir()) == names
        for name in names:
            assert (first / name).read_bytes() == (second / name).read_bytes()
        assert (first / "figure1.png").read_bytes().startswith(b"\x89PNG")
        assert (first / "figure1.pdf").read_bytes().startswith(b"%PDF")
        svg = (first / "figure1.svg").read_bytes()
        assert svg.count(b"<image") == 10  # the raw curves of each panel
        assert len(svg) < 1_500_000
