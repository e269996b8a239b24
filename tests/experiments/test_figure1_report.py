"""The folder of a run, and its text for a terminal."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest

import pointdep
from pointdep.errors import InputError
from pointdep.experiments.figure1 import Curves, Figure1, halves, summarise
from pointdep.experiments.figure1_claims import judge_figure1
from pointdep.experiments.figure1_report import (
    markdown_claims,
    markdown_table,
    read_curves,
    text_claims,
    text_table,
    write_again,
    write_curves,
    write_report,
)

from .figure1_curves import blow_up, make_curves, with_values


@pytest.fixture(scope="module")
def curves():
    """Two seeds, of which curves end as nan, inf and -inf."""
    made = make_curves(seeds=2, seed=3)
    made = blow_up(made, "dv", "cubic", after=0.66)
    made = blow_up(made, "nwj", after=0.97, value=-np.inf)
    return blow_up(made, "dm1", after=0.9, value=np.inf, seeds=(4,))


@pytest.fixture(scope="module")
def folder(curves, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figure1") / "made"
    write_report(curves, folder)
    return folder


class TestFolder:
    def test_files(self, folder):
        assert {path.name for path in folder.iterdir()} == {
            *("figure1.png", "figure1.svg", "figure1.pdf", "figure1.json"),
            *("curves.csv", "table.csv", "table.md", "claims.md"),
        }

    def test_curves_come_back(self, folder, curves):
        read = pd.read_csv(folder / "curves.csv")
        assert list(read.columns[:3]) == ["iteration", "truth", "cpc gaussian seed 3"]
        assert read.columns[-1] == "drf cubic seed 4"
        assert np.array_equal(read["iteration"], np.arange(1000))
        assert np.array_equal(read["truth"], curves.settings.truth())
        values = read[read.columns[2:]].to_numpy()
        finite = np.isfinite(curves.values)
        assert np.allclose(values[finite], curves.values[finite], rtol=1e-5, atol=0)
        assert np.array_equal(values[~finite], curves.values[~finite], equal_nan=True)
        assert {str(v) for v in values[~finite]} == {"nan", "inf", "-inf"}

    def test_six_digits(self, tmp_path):
        curves = make_curves(methods=("pc",), tasks=("cubic",), levels=(2.0,), iterations=4)
        curves.values[:, 0] = 1 / 3, 123456.789, -1e-9, 0
        write_curves(curves, tmp_path / "c.csv")
        lines = (tmp_path / "c.csv").read_text().splitlines()
        assert lines[0] == "iteration,truth,pc cubic seed 0"
        assert lines[1:] == ["0,2,0.333333", "1,2,123457", "2,2,-1e-09", "3,2,0"]

    def test_numbers(self, folder):
        lines = list(csv.DictReader((folder / "table.csv").open()))
        assert len(lines) == 10 * 2 * 5 * (2 + 1)
        found = {
            (line["method"], line["task"], float(line["level"]), line["seed"]): line
            for line in lines
        }
        mean = found["cpc", "gaussian", 6.0, "mean"]
        assert float(mean["bias"]) == pytest.approx(-1.83, abs=1e-5)
        assert float(mean["sd"]) == pytest.approx(0.12, abs=1e-5)
        assert float(mean["rmse"]) == pytest.approx(np.hypot(1.83, 0.12), abs=1e-5)
        assert float(found["cpc", "gaussian", 6.0, "4"]["bias"]) == pytest.approx(-1.83, abs=1e-5)
        lost = found["dv", "cubic", 10.0, "mean"]
        assert (lost["bias"], lost["sd"], lost["rmse"], lost["not_finite"]) == ("", "", "", "200")
        assert found["nwj", "gaussian", 10.0, "3"]["not_finite"] == "30"

    def test_json(self, folder, curves):
        text = (folder / "figure1.json").read_text()
        content = json.loads(text, parse_constant=pytest.fail)
        assert content["command"] == curves.settings.command
        assert set(content) == {
            *("command", "run", "settings", "times", "summary", "by_seed"),
            *("claims_noise", "claims"),
        }
        assert set(content["run"]) == {"versions", "device", "threads", "precision"}
        assert content["run"]["versions"]["pointdep"] == pointdep.__version__
        # What was used in "run", what was asked for in "settings".
        assert content["run"]["precision"] == "float32"
        assert content["run"]["device"]
        assert content["settings"]["precision"] == content["settings"]["device"] == "auto"
        assert (content["settings"]["seeds"], content["settings"]["seed"]) == (2, 3)
        assert content["settings"]["levels"] == [2, 4, 6, 8, 10]
        assert content["times"] == {
            "setup_seconds": 1.5,
            "train_seconds": 40.0,
            "ms_per_iteration": 40.0,
        }
        assert len(content["summary"]) == 100
        assert len(content["by_seed"]) == 200
        lost = [line for line in content["summary"] if line["bias"] is None]
        assert [(line["method"], line["level"]) for line in lost] == [("dv", 8), ("dv", 10)]
        verdicts = {claim["key"]: claim["verdict"] for claim in content["claims"]}
        assert verdicts == {claim.key: claim.verdict for claim in judge_figure1(curves)}

    def test_claims_page(self, folder, curves):
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


@pytest.fixture(scope="module", params=[1e200, -1.7e308])
def enormous(request, tmp_path_factory):
    made = make_curves(iterations=200)
    values = made.values.astype(np.float64)
    values[150:, 3] = request.param  # dv, gaussian
    curves = Curves(made.settings, values, 1.0, 2.0, "cpu", "float64")
    folder = tmp_path_factory.mktemp("enormous")
    write_report(curves, folder)
    return curves, folder


class TestEnormousValues:
    """Finite in float64, though their squares are not."""

    def test_all_files(self, enormous, folder):
        _, made = enormous
        assert {path.name for path in made.iterdir()} == {path.name for path in folder.iterdir()}
        content = json.loads((made / "figure1.json").read_text(), parse_constant=pytest.fail)
        unknown = [
            (line["method"], line["level"]) for line in content["summary"] if line["rmse"] is None
        ]
        assert unknown == [("dv", 8), ("dv", 10)]

    def test_tables(self, enormous):
        lines = summarise(halves(enormous[0]))
        for text in (text_table(lines), markdown_table(lines)):
            row = next(line for line in text.splitlines() if "dv" in line and "/" not in line)
            assert row.replace("|", " ").split()[-2:] == ["-", "-"]
            assert "- where no value is finite, or the statistic is not." in text
            assert "left out" not in text
            assert "inf" not in text.replace("infer", "")

    def test_it_is_not_the_better_one(self, enormous):
        claims = {claim.key: claim for claim in judge_figure1(enormous[0])}
        assert "dv, gaussian blew up" in claims["n2"].because


class TestStored:
    def test_curves(self, folder, curves):
        read = read_curves(folder)
        assert read.settings == curves.settings
        assert read.values.dtype == curves.values.dtype
        assert np.allclose(read.values, curves.values, rtol=1e-5, atol=0, equal_nan=True)
        assert (read.setup_seconds, read.train_seconds) == (1.5, 40.0)
        assert read.precision == "float32"

    def test_judged_again(self, curves, tmp_path):
        # Made-up seeds are alike to the last digit, unlike any that were drawn.
        shifts = np.random.default_rng(0).normal(scale=0.01, size=len(curves.cells))
        drawn = with_values(curves.settings, curves.values + shifts)
        write_report(drawn, tmp_path)
        first, again = judge_figure1(drawn), judge_figure1(read_curves(tmp_path))
        assert [claim.verdict for claim in again] == [claim.verdict for claim in first]
        for one, other in zip(first, again, strict=True):
            for before, after in zip(one.findings, other.findings, strict=True):
                assert (before.about, before.supports) == (after.about, after.supports)
                if before.value is None:
                    assert after.value is None
                else:
                    assert after.value == pytest.approx(before.value, rel=1e-3, abs=1e-4)

    def test_float64(self, tmp_path):
        made = make_curves(methods=("pc", "cpc"), iterations=20, hidden=(3,), precision="float64")
        values = made.values.astype(np.float64)
        values[0, 0], values[1, 0] = 1e200, np.inf
        curves = Curves(made.settings, values, 1.0, 2.0, "cpu", "float64")
        write_report(curves, tmp_path)
        read = read_curves(tmp_path)
        assert read.settings == curves.settings
        assert read.values.dtype == np.float64
        assert np.allclose(read.values, values, rtol=1e-5, atol=0)

    def test_written_again(self, folder, tmp_path):
        """Where and with what it ran is kept, not what it is written again with."""
        stored = tmp_path / "stored"
        stored.mkdir()
        (stored / "curves.csv").write_bytes((folder / "curves.csv").read_bytes())
        content = json.loads((folder / "figure1.json").read_text())
        run = {
            "versions": {"python": "3.0", "torch": "0.1"},
            "device": "an abacus",
            "threads": 7,
            "precision": "float32",
        }
        (stored / "figure1.json").write_text(json.dumps({**content, "run": run}))
        write_again(stored, tmp_path / "again")
        again = json.loads((tmp_path / "again" / "figure1.json").read_text())
        assert again["run"] == run
        for name in ("command", "settings", "times"):
            assert again[name] == content[name]
        assert (tmp_path / "again" / "claims.md").read_text().count("\n## ") == 25
        curves = (folder / "curves.csv").read_bytes()
        assert (tmp_path / "again" / "curves.csv").read_bytes() == curves

    def test_refused(self, folder, tmp_path):
        with pytest.raises(InputError, match=r"figure1.json is missing: give the folder of"):
            read_curves(tmp_path)
        content = json.loads((folder / "figure1.json").read_text())
        (tmp_path / "figure1.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=r"curves.csv is missing"):
            read_curves(tmp_path)
        lines = (folder / "curves.csv").read_text().splitlines()
        for other in (lines[:-1], [lines[0].replace("pc cubic", "pc conic"), *lines[1:]]):
            (tmp_path / "curves.csv").write_text("\n".join(other))
            with pytest.raises(InputError, match="not of one run"):
                read_curves(tmp_path)


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

    def test_table_of_a_quiet_run(self):
        text = text_table(summarise(halves(make_curves(methods=("pc",)))))
        assert "*" not in text
        assert "one seed" in text

    def test_width(self, curves):
        huge = blow_up(curves, "variational", after=0.9, value=-3e38)
        for made in (curves, huge):
            lines = summarise(halves(made))
            for text in (text_table(lines), text_claims(judge_figure1(made), made.settings)):
                assert max(map(len, text.splitlines())) <= 100

    def test_many_levels(self):
        shape = ((0.0,) * 12, (0.1,) * 12)
        levels = tuple(float(level) for level in range(1, 13))
        curves = make_curves({"pc": shape}, methods=("pc",), tasks=("cubic",), levels=levels)
        text = text_table(summarise(halves(curves)))
        headers = [line.split()[-1] for line in text.splitlines() if line.startswith("cubic, RMSE")]
        assert headers == ["5", "10", "12"]
        assert max(map(len, text.splitlines())) <= 100

    def test_markdown_table(self, curves):
        text = markdown_table(summarise(halves(curves)))
        assert "## Gaussian task, bias / sd\n\n| method | 2 | 4 | 6 | 8 | 10 |\n| --- |" in text
        assert "| dm1 | -0.08/0.18 | -0.20/0.28 | -0.52/0.49 | -1.29/0.89 | -2.77/2.18\\* |" in text
        assert "## Cubic task, RMSE" in text

    def test_what_was_not_run_is_only_named(self):
        made = make_curves(methods=("pc",), tasks=("gaussian",))
        text = text_claims(judge_figure1(made), made.settings)
        assert "CPC has the smallest variance" not in text
        assert re.search(r"Not run, and therefore open: .*\be\b", text)

    def test_other_settings_than_the_papers_are_said(self):
        made = make_curves(methods=("cpc", "pc"))
        for text in (
            text_claims(judge_figure1(made), made.settings),
            markdown_claims(judge_figure1(made), made.settings),
        ):
            filled = " ".join(text.split())
            assert "not the paper's settings, and the verdicts are about this run alone" in filled
            assert "methods cpc, pc, not cpc, nwj, js" in filled
            assert "Of one seed" in filled

    def test_claims(self, curves):
        text = text_claims(judge_figure1(curves), curves.settings)
        assert 'e   cannot tell    "CPC has the smallest variance" (main text)' in text
        assert "p   holds          DM II, read out as the paper prints it" in text
        filled = " ".join(text.split())
        verdicts = [claim.verdict for claim in judge_figure1(curves) if claim.source != "pointdep"]
        holds, fails = verdicts.count("holds"), verdicts.count("does not hold")
        assert f"Of the paper's 24 claims, {holds} hold, {fails} do not hold, and" in filled
        assert "Ours: p holds." in filled


def test_departures():
    assert Figure1(seeds=3, seed=4, precision="float32", device="cpu").departures == ""
    quick = Figure1().quick().departures
    assert quick == (
        "iterations 5000, not 20000; batch size 32, not 128; hidden 64, 64, not 512, 512; "
        "learning rate 0.002, not 0.001"
    )
