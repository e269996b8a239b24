"""The folder of a run, and its text for a terminal."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest

import pointdep
from pointdep.experiments.figure1.claims import judge_claims
from pointdep.experiments.figure1.report import write_curves, write_report
from pointdep.experiments.figure1.summary import halves, summarise
from pointdep.experiments.figure1.tables import markdown_table, text_claims, text_table

from .synthetic import blow_up, make_curves


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
    write_report(curves, folder, "pointdep figure1 --seeds 2")
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
        curves = make_curves(methods=("pc",), tasks=("cubic",), levels=(2.0,), iterations=2)
        curves.values[:, 0] = 1 / 3, 123456.789
        write_curves(curves, tmp_path / "c.csv")
        expected = "iteration,truth,pc cubic seed 0\n0,2,0.333333\n1,2,123457\n"
        assert (tmp_path / "c.csv").read_text() == expected

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
        assert content["command"] == "pointdep figure1 --seeds 2"
        assert content["versions"]["pointdep"] == pointdep.__version__
        assert (content["precision"], content["seeds"]) == ("float32", [3, 4])
        assert content["device"]
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
        assert verdicts == {claim.key: claim.verdict for claim in judge_claims(curves)}

    def test_claims_page(self, folder, curves):
        page = (folder / "claims.md").read_text()
        for claim in judge_claims(curves):
            assert f"## {claim.key}: {claim.verdict}\n" in page
            assert claim.rule in page
        tables = [line for line in page.splitlines() if line.startswith("|")]
        unescaped = {line.replace("\\|", "").count("|") for line in tables}
        assert unescaped == {4, 6}  # three columns, or five


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
        assert "means over 2 seeds" in text
        assert "not finite were left out" in text

    def test_table_of_a_quiet_run(self):
        text = text_table(summarise(halves(make_curves(methods=("pc",)))))
        assert "*" not in text
        assert "one seed" in text

    def test_width(self, curves):
        huge = blow_up(curves, "variational", after=0.9, value=-3e38)
        for made in (curves, huge):
            lines = summarise(halves(made))
            for text in (text_table(lines), text_claims(judge_claims(made))):
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

    def test_claims(self, curves):
        text = text_claims(judge_claims(curves))
        assert 'e   holds          "CPC has the smallest variance" (main text)' in text
        assert "Of 25 claims" in text
