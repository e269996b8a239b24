"""Files of figures are the same each time, and hold no date."""

from __future__ import annotations

from matplotlib.figure import Figure

from pointdep.experiments.reports import COLOURS, MARKERS, save, style


@style()
def made():
    figure = Figure()
    axis = figure.subplots()
    axis.plot([1, 2], color=COLOURS[0], marker=MARKERS[0], label="a")
    axis.set_title("title")
    return figure


def test_same_figure_same_files(tmp_path):
    for name in ("one", "other"):
        save(made(), tmp_path, name)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [f"{n}.{s}" for n in ("one", "other") for s in ("pdf", "png", "svg")]
    for suffix in ("pdf", "png", "svg"):
        one, other = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "other"))
        assert one == other
        assert b"CreationDate" not in one
        assert b"<dc:date>" not in one


def test_formats(tmp_path):
    save(made(), tmp_path, "figure", ("png",))
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]


def test_size_of_text():
    assert made().axes[0].yaxis.label.get_fontsize() == 9


def test_colours_differ():
    assert len(set(COLOURS)) == len(COLOURS)
    assert len(set(MARKERS)) == len(MARKERS)
