"""The pictures hold the numbers they should, on the axis they were given."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from pointdep import PointwiseDependency, from_embeddings
from pointdep.display import plots
from pointdep.display.plots import BLUE, GREY, VERMILION, plot_pairs, plot_pmi, plot_training, short
from refusals import refused


def bars(ax):
    """Outline of each histogram by its colour: heights and edges."""
    steps = [patch for patch in ax.patches if not patch.get_fill()]
    return {to_hex(p.get_edgecolor()): p.get_data()[:2] for p in steps}


def words(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def axis():
    return Figure().subplots()


@pytest.mark.parametrize("call", ["plot_pmi", "plot_training", "plot_pairs"])
def test_an_axis_in_and_out(model, call):
    mine, before = axis(), pyplot.get_fignums()
    assert getattr(model, call)(ax=mine) is mine
    assert pyplot.get_fignums() == before
    own = getattr(model, call)()
    assert own.figure is not mine.figure
    assert own.get_xlabel()
    own.figure.draw_without_rendering()


def test_histogram_of_pairs_and_mismatched_ones_below(model, data):
    ax = model.plot_pmi(ax=axis())
    heights, edges = bars(ax)[BLUE.lower()]
    pmi = model.oof_pmi_
    expected, _ = np.histogram(pmi, edges)
    assert heights @ np.diff(edges) == pytest.approx(expected.sum() / len(pmi))
    # One number may fall on the other side of an edge by rounding.
    assert np.abs(heights * len(pmi) * np.diff(edges) - expected).sum() <= 2.01
    assert f"mean of pairs, {pmi.mean():.2f}" in words(ax)
    for rows in ((), (data[0][:150], data[1][:150])):
        drawn = bars(model.plot_pmi(*rows, ax=axis()))
        for colour, sign in ((GREY, -1), (BLUE, 1)):
            heights, edges = drawn[colour.lower()]
            assert sign * np.average(edges[1:] + edges[:-1], weights=heights) > 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=50), st.integers(0, 100))
def test_histogram_of_any_numbers(values, others):
    pairs, apart = np.array([*values, np.nan]), np.linspace(-80, 5, others)
    ax = plot_pmi(pairs, apart, ax=axis())
    for colour, part in ((BLUE, pairs[:-1]), (GREY, apart)):
        if len(part):
            heights, edges = bars(ax)[colour.lower()]
            inside = np.mean((part >= edges[0]) & (part <= edges[-1]))
            assert heights @ np.diff(edges) == pytest.approx(inside)


def test_the_legend_stays_clear_of_the_bars_and_suspects_are_marked():
    random = np.random.default_rng(0)
    pairs, apart = random.normal(2, 1, 800), random.normal(-6, 6, 4000)
    ax = plot_pmi(pairs, apart, pairs < -0.5, ax=Figure(figsize=(5, 3.5)).subplots())
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent().transformed(ax.transData.inverted())
    for heights, edges in bars(ax).values():
        under = (edges[1:] > box.x0) & (edges[:-1] < box.x1)
        assert heights[under].max(initial=0.0) < box.y0
    pmi = np.array([-3.0, 1.0, 2.0, 1.5])
    ax = plot_pmi(pmi, np.r_[np.full(3, -50.0), np.zeros(7)], pmi < 0, ax=axis())
    assert {"mismatched pairs, 30 % off to the left", "1 suspect"} <= set(words(ax))
    marked = [line for line in ax.lines if line.get_color() == VERMILION]
    assert [list(line.get_xdata()) for line in marked] == [[pytest.approx(-3.0, abs=0.1)]]


def test_a_saved_model_needs_rows_and_the_history(model, data, tmp_path):
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model", device="cpu")
    refused(r"plot_pmi\(X, Y\)", again.plot_pmi)
    again.plot_pmi(*data, ax=axis())
    again.plot_training(ax=axis())
    ax, folds = model.plot_training(ax=axis()), model.n_replicas_
    curves = [line.get_ydata() for line in ax.lines]
    for replica in range(folds):
        for part, curve in (("train", curves[replica]), ("stop", curves[folds + replica])):
            expected = [epoch[part][replica] for epoch in model.history_]
            np.testing.assert_array_equal(curve, np.array(expected, float))
    best = [np.nanmax(curve) for curve in curves[folds : 2 * folds]]
    assert list(ax.lines[-1].get_ydata()) == best


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_a_replica_that_ended_or_never_began_and_nothing_trained():
    ended = {"train": [None] * 2, "stop": [None] * 2}
    ax = plot_training([{"train": [0.1, None], "stop": [0.2, None]}, ended], axis())
    assert list(ax.lines[-1].get_xdata()) == [1]
    z, noise = np.random.default_rng(0).standard_normal((2, 80, 4))
    refused("nothing was trained", from_embeddings(z, z + noise, progress=False).plot_training)


PMI = np.array([0.5, -1.0, np.nan, 3.0, 2.0, -2.0])


def test_highest_above_lowest_below_labels_and_mistakes(model, data):
    ax = plot_pairs(PMI, k=2, ax=axis())
    assert [bar.get_width() for bar in ax.patches] == [3.0, 2.0, -1.0, -2.0]
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["row 3", "row 4", "row 1", "row 5"]
    assert ax.texts[0].get_text() == "1 pairs between"
    assert ax.yaxis_inverted()
    ax = plot_pairs(PMI, k=3, labels=list("abcdef"), stderr=np.full(6, 0.1), ax=axis())
    assert [tick.get_text() for tick in ax.get_yticklabels()] == list("deabf")
    assert not ax.texts
    rows = data[0][:30], data[1][:30]
    found = [bar.get_width() for bar in model.plot_pairs(*rows, k=3, ax=axis()).patches]
    expected = np.sort(model.pmi(*rows))[::-1]
    np.testing.assert_allclose(found, [*expected[:3], *expected[-3:]], rtol=1e-6)
    assert (short("costs $5\nor $6"), len(short("long " * 50))) == (r"costs \$5 or \$6", 40)
    plot_pairs(np.ones(2), labels=["$", "$x$ $"], ax=axis()).figure.draw_without_rendering()
    refused("k=0", plot_pairs, PMI, k=0)
    refused("labels has 1 entries for 6 pairs", plot_pairs, PMI, labels=["a"])
    for plot in (plot_pairs, plot_pmi):
        refused("no finite PMI", plot, np.array([np.nan]))


def test_mi_against_rows_reliability_and_colours(model):
    ax = plots.plot_mi_against_n([100, 200], [0.5, 0.6], [(0.3, 0.7), (0.5, 0.7)], ax=axis())
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [(100, 0.5), (200, 0.6)])
    segments = ax.collections[0].get_segments()
    np.testing.assert_allclose([s[:, 1] for s in segments], [(0.3, 0.7), (0.5, 0.7)])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["100", "200"]
    assert ax.get_ylim()[0] == 0
    check = model.check()
    for ax in (check.plot_reliability(axis()), check.plot(axis())):
        assert re.sub(r"\s+", " ", ax.get_title(loc="left")) == check.verdict
    for colour in (BLUE, VERMILION, GREY):
        parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) > 3


@pytest.fixture(autouse=True)
def no_screen():
    mpl.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="session")
def data():
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 2))
    return x, x + 0.7 * random.standard_normal((200, 2))


@pytest.fixture(scope="session")
def model(data):
    options = {"critic": "concat", "hidden": (16,), "folds": 2, "max_epochs": 40, "patience": 4}
    options |= {"learning_rate": 1e-2, "random_state": 0, "device": "cpu", "progress": False}
    return PointwiseDependency(**options).fit(*data)
