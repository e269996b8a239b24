"""The folder of a run of Figure 1, its text for a terminal, and its figure."""

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pointdep
from pointdep.experiments import figure1_report
from pointdep.experiments.figure1 import Curves, Figure1, halves, summarise
from pointdep.experiments.figure1_claims import judge_figure1
from pointdep.experiments.figure1_report import draw, markdown_table, text_table, write_report
from pointdep.experiments.reports import save

from .figure1_curves import blow_up, make_curves, with_values

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from figure1_again import write_again


@pytest.fixture(scope="module")
def curves():
    """Two seeds, of which curves end as nan, inf and -inf, one has a gap and one is far away."""
    made = make_curves(seeds=2, seed=3)
    made = blow_up(made, "dv", "cubic", after=0.66)
    made = blow_up(made, "nwj", after=0.97, value=-np.inf)
    made = blow_up(made, "smile", after=0.9, value=-3e38, seeds=(4,))
    made.values[500, 2] = np.inf  # js, gaussian, seed 3
    return blow_up(made, "dm1", after=0.9, value=np.inf, seeds=(4,))


@pytest.fixture(scope="module")
def folder(curves, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figure1") / "made"
    write_report(curves, folder)
    return folder


class TestFolder:
    def test_curves_and_numbers_come_back(self, folder, curves, tmp_path):
        read = pd.read_csv(folder / "curves.csv")
        assert list(read.columns[:3]) == ["iteration", "truth", "cpc gaussian seed 3"]
        assert read.columns[-1] == "drf cubic seed 4"
        assert np.array_equal(read["iteration"], np.arange(1000))
        assert np.array_equal(read["truth"], curves.settings.truth())
        values, finite = read[read.columns[2:]].to_numpy(), np.isfinite(curves.values)
        assert np.allclose(values[finite], curves.values[finite], rtol=1e-5, atol=0)
        assert np.array_equal(values[~finite], curves.values[~finite], equal_nan=True)
        assert {str(v) for v in values[~finite]} == {"nan", "inf", "-inf"}
        # With six digits.
        curves = make_curves(methods=("pc",), tasks=("cubic",), levels=(2.0,), iterations=4)
        curves.values[:, 0] = 1 / 3, 123456.789, -1e-9, 0
        figure1_report.write_curves(curves, tmp_path / "c.csv")
        lines = (tmp_path / "c.csv").read_text().splitlines()
        assert lines[0] == "iteration,truth,pc cubic seed 0"
        assert lines[1:] == ["0,2,0.333333", "1,2,123457", "2,2,-1e-09", "3,2,0"]
        lines = list(csv.DictReader((folder / "table.csv").open()))
        assert len(lines) == 10 * 2 * 5 * (2 + 1)
        found = {(li["method"], li["task"], float(li["level"]), li["seed"]): li for li in lines}
        mean = found["cpc", "gaussian", 6.0, "mean"]
        measured = [float(mean[name]) for name in ("bias", "sd", "rmse")]
        assert measured == pytest.approx([-1.83, 0.12, np.hypot(1.83, 0.12)], abs=1e-5)
        assert float(found["cpc", "gaussian", 6.0, "4"]["bias"]) == pytest.approx(-1.83, abs=1e-5)
        lost = found["dv", "cubic", 10.0, "mean"]
        assert (lost["bias"], lost["sd"], lost["rmse"], lost["not_finite"]) == ("", "", "", "200")
        assert found["nwj", "gaussian", 10.0, "3"]["not_finite"] == "30"

    def test_json_and_claims_page(self, folder, curves):
        content = json.loads((folder / "figure1.json").read_text(), parse_constant=pytest.fail)
        assert content["command"] == curves.settings.command
        names = "command run settings times summary by_seed claims_noise claims"
        assert set(content) == set(names.split())
        assert set(content["run"]) == {"versions", "device", "threads", "precision"}
        assert content["run"]["versions"]["pointdep"] == pointdep.__version__
        # What was used in "run", what was asked for in "settings".
        assert content["run"]["precision"] == "float32"
        assert content["run"]["device"]
        assert content["settings"]["precision"] == content["settings"]["device"] == "auto"
        assert (content["settings"]["seeds"], content["settings"]["seed"]) == (2, 3)
        assert content["settings"]["levels"] == [2, 4, 6, 8, 10]
        times = {"setup_seconds": 1.5, "train_seconds": 40.0, "ms_per_iteration": 40.0}
        assert content["times"] == times
        assert (len(content["summary"]), len(content["by_seed"])) == (100, 200)
        lost = [line for line in content["summary"] if line["bias"] is None]
        assert [(line["method"], line["level"]) for line in lost] == [("dv", 8), ("dv", 10)]
        verdicts = {claim["key"]: claim["verdict"] for claim in content["claims"]}
        assert verdicts == {claim.key: claim.verdict for claim in judge_figure1(curves)}
        page = (folder / "claims.md").read_text()
        for claim in judge_figure1(curves):
            assert f"## {claim.key}: {claim.verdict}\n" in page
            assert claim.rule in page
        tables = [line for line in page.splitlines() if line.startswith("|")]
        unescaped = {line.replace("\\|", "").count("|") for line in tables}
        assert unescaped == {4, 6}  # three columns, or five
        assert "\n> (ours, not the paper's)\n" in page
        assert "| dv, cubic | " in page
        assert "MI 2, 4, 6 only" in page


@pytest.mark.parametrize("value", [1e200, -1.7e308])
def test_enormous_values(value, folder, tmp_path):
    """Finite in float64, though their squares are not."""
    made = make_curves(iterations=200)
    values = made.values.astype(np.float64)
    values[150:, 3] = value  # dv, gaussian
    written = Curves(made.settings, values, 1.0, 2.0, "cpu", "float64")
    lines, claims = write_report(written, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.iterdir()}
    content = json.loads((tmp_path / "figure1.json").read_text(), parse_constant=pytest.fail)
    unknown = [line for line in content["summary"] if line["rmse"] is None]
    assert [(line["method"], line["level"]) for line in unknown] == [("dv", 8), ("dv", 10)]
    for text in (text_table(lines), markdown_table(lines)):
        row = next(line for line in text.splitlines() if "dv" in line and "/" not in line)
        assert row.replace("|", " ").split()[-2:] == ["-", "-"]
        assert "- where no value is finite, or the statistic is not." in text
        assert "left out" not in text
        assert "inf" not in text.replace("infer", "")
    assert "dv, gaussian blew up" in {claim.key: claim for claim in claims}["n2"].because


class TestStored:
    """benchmarks/figure1_again.py"""

    def test_judged_again(self, curves, tmp_path):
        # Made-up seeds are alike to the last digit, unlike any that were drawn.
        shifts = np.random.default_rng(0).normal(scale=0.01, size=len(curves.cells))
        _, first = write_report(with_values(curves.settings, curves.values + shifts), tmp_path)
        read = write_again(tmp_path, tmp_path / "again")
        assert (read.settings, read.values.dtype) == (curves.settings, curves.values.dtype)
        assert (read.setup_seconds, read.train_seconds, read.precision) == (1.5, 40.0, "float32")
        for one, other in zip(first, judge_figure1(read), strict=True):
            assert one.verdict == other.verdict
            for before, after in zip(one.findings, other.findings, strict=True):
                assert (before.about, before.supports) == (after.about, after.supports)
                close = before.value and pytest.approx(before.value, rel=1e-3, abs=1e-4)
                assert after.value == close

    def test_where_it_ran_is_kept(self, folder, tmp_path):
        stored, content = tmp_path / "stored", json.loads((folder / "figure1.json").read_text())
        stored.mkdir()
        lines = (folder / "curves.csv").read_text().splitlines()
        (stored / "curves.csv").write_text("\n".join(lines) + "\n")
        run = {"versions": {"torch": "0.1"}, "device": "abacus", "threads": 7, "precision": "bf16"}
        (stored / "figure1.json").write_text(json.dumps({**content, "run": run}))
        write_again(stored, tmp_path / "again")
        again = json.loads((tmp_path / "again" / "figure1.json").read_text())
        assert again["run"] == run
        for name in ("command", "settings", "times"):
            assert again[name] == content[name]
        written = (tmp_path / "again" / "curves.csv").read_bytes()
        assert written == (stored / "curves.csv").read_bytes()
        for other in (lines[:-1], [lines[0].replace("pc cubic", "pc conic"), *lines[1:]]):
            (stored / "curves.csv").write_text("\n".join(other))
            with pytest.raises(ValueError, match="not of one run"):
                write_again(stored, tmp_path / "again")


class TestText:
    def test_table(self, curves):
        text = text_table(summarise(halves(curves)))
        rows = [line.split() for line in text.splitlines()]
        assert ["gaussian,", "bias", "/", "sd", "2", "4", "6", "8", "10"] in rows
        assert ["pc", "-0.09/0.18", "-0.15/0.23", "-0.27/0.26", "-0.45/0.27", "-0.68/0.29"] in rows
        assert ["dm2", "+0.43/0.19", "+0.34/0.27", "+0.16/0.36", "-0.09/0.44", "-0.17/0.73"] in rows
        assert ["drf", "0.37", "0.55", "0.82", "1.14", "1.59"] in rows
        assert ["dv", "-0.12/0.22", "-0.30/0.35", "-0.70/0.60", "-", "-"] in rows
        assert "-2.77/2.18*" in text
        assert "means over 2 seeds, RMSE is over all their values" in " ".join(text.split())
        assert "not finite were left out" in text
        quiet = text_table(summarise(halves(make_curves(methods=("pc",)))))
        assert "*" not in quiet
        assert "one seed" in quiet
        page = markdown_table(summarise(halves(curves)))
        assert "## Gaussian task, bias / sd\n\n| method | 2 | 4 | 6 | 8 | 10 |\n| --- |" in page
        assert "| dm1 | -0.08/0.18 | -0.20/0.28 | -0.52/0.49 | -1.29/0.89 | -2.77/2.18\\* |" in page
        shapes, levels = {"pc": ((0.0,) * 12, (0.1,) * 12)}, tuple(map(float, range(1, 13)))
        many = make_curves(shapes, methods=("pc",), tasks=("cubic",), levels=levels)
        text = text_table(summarise(halves(many)))
        headers = [line.split()[-1] for line in text.splitlines() if line.startswith("cubic, RMSE")]
        assert headers == ["5", "10", "12"]
        for made in (many, curves, blow_up(curves, "variational", after=0.9, value=-3e38)):
            text = text_table(summarise(halves(made)))
            text += figure1_report.text_claims(judge_figure1(made), made.settings)
            assert max(map(len, text.splitlines())) <= 100

    def test_claims(self, tmp_path):
        made = make_curves(methods=("cpc", "pc"), tasks=("gaussian",))
        claims = judge_figure1(made)
        text = figure1_report.text_claims(claims, made.settings)
        assert 'c1  holds          "The only exception is CPC' in text
        assert "JS has larger variance" not in text
        assert re.search(r"Not run, and therefore open: .*\bj\b", " ".join(text.split()))
        verdicts = [claim.verdict for claim in claims if claim.source != "pointdep"]
        holds, fails = verdicts.count("holds"), verdicts.count("does not hold")
        write_report(made, tmp_path)
        for page in (text, (tmp_path / "claims.md").read_text()):
            filled = " ".join(page.split())
            assert f"Of the paper's 24 claims, {holds} hold, {fails} do not hold, and" in filled
            assert "Ours: p cannot tell." in filled
            assert "not the paper's settings, and the verdicts are about this run alone" in filled
            assert "methods cpc, pc, not cpc, nwj, js" in filled
            assert "Of one seed" in filled


class TestFigure:
    def test_panels(self, curves, tmp_path):
        figure = draw(curves)
        places = [axis.get_subplotspec() for axis in figure.axes]
        assert [(p.rowspan.start, p.colspan.start) for p in places] == [*np.ndindex(2, 5)]
        titles = [axis.get_title() for axis in figure.axes]
        assert (titles[:2], titles[-1]) == (["CPC (InfoNCE)", "NWJ"], "Density-Ratio Fitting")
        assert {(a.get_ylim(), a.get_xlim()) for a in figure.axes} == {((0, 12), (0, 1000))}
        (legend,) = figure.legends
        assert [t.get_text() for t in legend.get_texts()] == ["Gaussian", "Cubic", "true MI"]
        # The curves of a panel.
        axis = figure.axes[6]
        (truth,) = [line for line in axis.lines if line.get_label() == "true MI"]
        assert np.array_equal(truth.get_ydata(), curves.settings.truth())
        assert truth.get_color() == "black"
        raw = [line for line in axis.lines if line.get_rasterized()]
        assert len(raw) == 2  # of the first seed, for each task
        cell = next(c for c in curves.cells if (c.method, c.task) == ("pc", "cubic"))
        assert np.array_equal(raw[1].get_ydata(), curves.of(cell))
        assert raw[0].get_color() != raw[1].get_color()
        assert len(axis.lines) == 1 + 2 + 2 * 2  # truth, raw, a smooth curve each seed
        # The ceiling is on CPC alone.
        dashed = [[line for line in a.lines if line.get_linestyle() == "--"] for a in figure.axes]
        assert [len(found) for found in dashed] == [1] + [0] * 9
        assert dashed[0][0].get_ydata()[0] == pytest.approx(np.log(128))
        assert [text.get_text() for text in figure.axes[0].texts] == ["log(batch size)"]
        # What blew up is said.
        told = {axis.get_title(): [t.get_text() for t in axis.texts] for axis in figure.axes[1:]}
        assert told["DV (MINE)"] == ["cubic: not finite from 660 in 2 of 2 seeds"]
        assert told["JS"][0].startswith("gaussian: not finite 1 times")
        assert "off the axis" in told["SMILE"][0]
        assert not told["Density-Ratio Fitting"]
        crosses = [line for line in figure.axes[3].lines if line.get_marker() == "x"]
        assert [line.get_xdata()[0] for line in crosses] == [660, 660]
        save(figure, tmp_path, "figure1", ("svg",))
        svg = (tmp_path / "figure1.svg").read_bytes()
        assert svg.count(b"<image") == 10  # the raw curves of each panel
        assert len(svg) < 1_500_000

    def test_as_many_panels_as_methods_and_smooth_curves(self):
        figure = draw(make_curves({"rpc": ((0,) * 5, (0,) * 5)}, methods=("pc", "rpc", "cpc")))
        assert len(figure.axes) == 3
        methods = ("pc", "dv", "cpc", "js", "nwj", "drf", "smile")
        figure = draw(make_curves(methods=methods, tasks=("cubic",), levels=(2.0, 5.0)))
        named = [axis.get_xlabel() for axis in figure.axes]
        assert named == ["", "", *["iteration"] * 5]  # under each column
        assert figure.axes[0].get_ylim() == (0, 6)
        values = np.random.default_rng(0).normal(size=20_000)
        for iterations, span in ((20_000, 200), (5000, 50)):
            own = values[:iterations]
            expected = pd.Series(own).ewm(span=span).mean().to_numpy()
            found = figure1_report.smooth(own, Figure1(iterations=iterations))
            assert np.array_equal(found, expected)
        # Span 3 is a weight of 1/2: (2 + 4 / 2) / (1 + 1 / 2) and so on.
        made = figure1_report.smooth(np.array([4.0, 2.0, np.nan, np.inf]), Figure1(iterations=300))
        assert made[:2] == pytest.approx([4.0, 4 / 1.5])
        assert np.isnan(made[2:]).all()
