"""Comparisons of estimators, with estimators whose answers are known."""

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import pointdep
from pointdep.data.tasks import make_task
from pointdep.estimators.classical.catalogue import CLASSICAL
from pointdep.experiments import bench
from pointdep.experiments.bench import COLUMNS, Bench, Result, compare_pmi, open_folder, run_bench
from pointdep.inference.mutual_information import MIEstimate
from refusals import refused

from . import fakes

TASKS, ESTIMATORS = ("gaussian-1", "independent"), ("pc", "dv", "ksg", "cca")
SMALL = Bench(TASKS, ESTIMATORS, rows=(50, 20), seeds=2, confidence=0.8, device="cpu")


@pytest.fixture
def calls(monkeypatch):
    """The fits that were made: (task, estimator, rows, seed)."""
    made = []
    fakes.install(monkeypatch, made)
    return made


def test_what_is_measured(calls):
    told = []
    results, _ = run_bench(SMALL, progress=SimpleNamespace(update=lambda *w: told.append(w)))
    assert len(results) == len(calls) == 2 * 4 * 2 * 2
    # Small before large, and seed by seed.
    assert [(rows, seed) for _, _, rows, seed in calls[::8]] == [(20, 0), (50, 0), (20, 1), (50, 1)]
    assert told[0] == (0, 32, "pc on 20 rows of gaussian-1")
    assert [done for done, _, _ in told] == list(range(32))
    by = {(r.task, r.estimator, r.rows, r.seed): r for r in results}
    exact, biased = by["gaussian-1", "pc", 20, 1], by["gaussian-1", "dv", 20, 1]
    assert (exact.true_mi, exact.mi, exact.error, exact.covered) == (0.5, 0.5, 0.0, True)
    assert (exact.low, exact.high, exact.confidence) == (0.4, 0.6, 0.8)
    assert (exact.pmi_rmse, biased.error) == (0, pytest.approx(0.5))
    assert (biased.covered, biased.pmi_rmse) == (False, pytest.approx(0.5))
    assert [biased.pmi_pearson, biased.pmi_spearman] == pytest.approx([1, 1])
    assert biased.seconds >= 0
    assert (biased.flags, biased.reason) == ("not_converged saturated", "")
    # The exact PMI of independent pairs is constant: nothing to correlate with.
    assert by["independent", "dv", 20, 0].pmi_pearson is None
    assert by["independent", "dv", 20, 0].pmi_rmse == pytest.approx(0.5)
    missing = by["gaussian-1", "ksg", 20, 0]
    assert missing.mi is not None
    assert missing.pmi_rmse is missing.pmi_pearson is missing.pmi_spearman is None
    assert (missing.reason, missing.failed) == ("ksg gives no PMI of new pairs", False)
    # A failure does not end the others.
    failed = [result for result in results if result.failed]
    assert [result.estimator for result in failed] == ["cca"] * 8
    assert failed[0].reason == "ZeroDivisionError: division by zero"
    assert failed[0].mi is failed[0].seconds is None


class TestFolder:
    def test_what_is_there_is_not_run_again(self, calls, tmp_path):
        first, resumed = run_bench(SMALL, tmp_path)
        assert resumed == 0
        calls.clear()
        again, resumed = run_bench(SMALL, tmp_path)
        # Only what failed is tried again.
        assert ({estimator for _, estimator, _, _ in calls}, resumed) == ({"cca"}, 24)
        assert [r for r in again if not r.failed] == [r for r in first if not r.failed]
        # Killed while writing.
        path = tmp_path / "results.csv"
        whole = path.read_bytes()
        for cut in (1, 30, len(whole) - 40, len(whole)):
            path.write_bytes(whole[:-cut])
            assert not [r for r in run_bench(SMALL, tmp_path)[0] if r.mi is None and not r.failed]
            assert path.read_bytes().endswith(b"\n")
            assert all(len(line) == len(COLUMNS) for line in csv.reader(path.open()))

    def test_what_is_new_is_run(self, calls, tmp_path, monkeypatch):
        settings = {**vars(SMALL), "estimators": ("pc",)}
        run_bench(Bench(**settings), tmp_path)
        for more, new in (({"seeds": 3}, 4), ({"rows": (20, 50, 30)}, 4), ({"confidence": 0.9}, 8)):
            calls.clear()
            run_bench(Bench(**{**settings, **more}), tmp_path)
            assert len(calls) == new
        calls.clear()
        monkeypatch.setattr(pointdep, "__version__", "9.9")  # another version is run again
        assert {r.pointdep for r in run_bench(Bench(**settings), tmp_path)[0]} == {"9.9"}
        assert len(calls) == 8

    def test_each_result_is_there_when_its_run_ends_and_comes_back(self, calls, tmp_path):
        def end(done, total, detail=""):
            if done == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_bench(SMALL, tmp_path, SimpleNamespace(update=end))
        assert len(bench.read_results(tmp_path / "results.csv")) == 3
        path = tmp_path / "results.csv"
        path.write_text("a,b\n1,2\n")
        refused("other columns", open_folder, tmp_path)
        path.write_text(",".join(COLUMNS) + "\n1,2\n")
        refused("line 2, is not a result", open_folder, tmp_path)
        assert "1,2" in path.read_text()
        refused("is a file", open_folder, path)
        refused("above it does not exist", open_folder, tmp_path / "a" / "b")
        run = bench.Run("table", "pc", 5, 0, 0.9, "cpu", "1")
        full = Result(**vars(run), true_mi=0.1, mi=1 / 3, covered=False, reason='a "b", c')
        bench.add_result(tmp_path / "other.csv", full)
        assert bench.read_results(tmp_path / "other.csv") == {run: full}


class TestReport:
    def test_files_and_figure(self, calls, tmp_path):
        results, _ = run_bench(SMALL, tmp_path)
        bench.write_report(SMALL, results, tmp_path)
        names = {"results.csv", "summary.csv", "results.json", "figure.png", "figure.svg"}
        assert {path.name for path in tmp_path.iterdir()} == names
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
        svg = (tmp_path / "figure.svg").read_bytes()
        assert b"</svg>" in svg
        bench.write_report(SMALL, results, tmp_path)
        assert (tmp_path / "figure.svg").read_bytes() == svg
        content = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
        assert content["versions"]["pointdep"] == pointdep.__version__
        assert content["command"].startswith("pointdep bench --tasks gaussian-1,independent")
        assert (len(content["results"]), content["settings"]["confidence"]) == (32, 0.8)
        assert content["device"]
        lines = list(csv.DictReader((tmp_path / "summary.csv").open()))
        assert len(lines) == 2 * 4 * 2
        biased = next(line for line in lines if line["estimator"] == "dv")
        assert (float(biased["error"]), float(biased["coverage"])) == (pytest.approx(0.5), 0)
        broken = next(line for line in lines if line["estimator"] == "cca")
        assert broken["failed"] == "2"
        assert broken["error"] == broken["seconds"] == ""
        figure = bench.draw(results)
        small, large, seconds = figure.axes
        assert (small.get_title(), large.get_title()) == ("20 rows", "50 rows")
        assert [label.get_text() for label in small.get_yticklabels()] == list(TASKS)
        assert seconds.get_xscale() == seconds.get_yscale() == "log"
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pc", "dv", "ksg"]
        bench.draw([result for result in results if result.failed])  # without any answer

    def test_means(self):
        run = {"estimator": "pc", "rows": 5, "confidence": 0.9, "device": "cpu", "pointdep": "1"}
        results = [
            Result(task="a", seed=0, true_mi=0.0, error=0.2, covered=True, seconds=1.0, **run),
            Result(task="a", seed=1, true_mi=0.0, error=-0.4, covered=False, seconds=2.0, **run),
            Result(task="b", seed=0, true_mi=0.0, reason="no", **run),
        ]
        first, second = bench.summarise(results)
        assert (first["task"], first["runs"], first["failed"], second["failed"]) == ("a", 2, 0, 1)
        assert first["error"] == pytest.approx(-0.1)
        assert (first["absolute_error"], first["coverage"]) == (pytest.approx(0.3), 0.5)
        assert second["error"] is second["coverage"] is None
        (everything,) = bench.summarise(results, over_tasks=True)
        assert (everything["runs"], everything["failed"]) == (3, 1)
        assert everything["absolute_error"] == pytest.approx(0.3)


def test_estimators_and_settings():
    model = bench.make_estimator("dv:bilinear", seed=3, device="cpu")
    assert (model.method, model.critic) == ("dv", "bilinear")
    assert (model.random_state, model.device) == (3, "cpu")
    assert bench.make_estimator("drf", seed=0).critic == type(model)().critic
    for name in CLASSICAL:
        model = bench.make_estimator(name, seed=3)
        assert (model.method, model.random_state, model.progress) == (name, 3, False)
    for name, message in (
        ("pcc", "unknown estimator 'pcc': did you mean 'pc'"),
        ("kgs", "did you mean 'ksg'"),
        ("ksg:concat", "unknown estimator 'ksg'"),
        ("pc:conct", "unknown critic of 'pc:conct'.*did you mean 'concat'"),
        ("pc:", "unknown critic"),
    ):
        refused(message, bench.check_estimator, name)
    for change, message in (
        ({"tasks": ("spirals",)}, "unknown task 'spirals'"),
        ({"tasks": ()}, "tasks must name at least one"),
        ({"estimators": ("pv",)}, "unknown estimator"),
        ({"rows": (0,)}, "rows=0"),
        ({"seeds": 0}, "seeds=0"),
        ({"confidence": 1.0}, "confidence=1.0"),
    ):
        refused(message, Bench, **change)


def test_comparisons():
    reasons = []
    squared = MIEstimate(1.0, 0.1, (0.9, 1.1), estimates="squared-loss mutual information")
    assert bench.compare_information(squared, 1.0, reasons) == {}
    assert reasons == ["estimates the squared-loss mutual information"]
    assert bench.compare_information(MIEstimate(math.nan, 0.1, (0.0, 1.0)), 1.0, reasons) == {}
    bare = bench.compare_information(MIEstimate(1.5, math.inf, (-math.inf, math.inf)), 1.0, reasons)
    assert bare == {"mi": 1.5, "error": 0.5}
    true, reasons = np.array([0.0, 1.0, 2.0, 4.0]), []
    found = compare_pmi(np.array([0.0, 2.0, 1.0, 4.0]), true, reasons)
    assert found["pmi_rmse"] == pytest.approx(np.sqrt(0.5))
    assert found["pmi_spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert found["pmi_pearson"] == pytest.approx(np.corrcoef([0, 2, 1, 4], true)[0, 1])
    score = compare_pmi(true / 100, true, reasons, nats=False)
    assert score == {"pmi_spearman": pytest.approx(1), "pmi_pearson": pytest.approx(1)}
    infinite = compare_pmi(np.array([-np.inf, 1.0, 2.0, 3.0]), true, reasons)
    assert infinite == {"pmi_spearman": pytest.approx(1)}
    assert compare_pmi(np.array([np.nan, 1.0, 2.0, 3.0]), true, reasons) == {}
    assert reasons == ["1 of 4 PMI are infinite", "1 of 4 PMI are NaN"]


@pytest.mark.parametrize(
    ("task", "name", "reason"),
    [
        ("gaussian-1", "pc:bilinear", ""),
        ("gaussian-1", "smi:bilinear", "estimates the squared-loss"),
        ("gaussian-1", "cca", ""),
        ("gaussian-1", "ksg", "method 'ksg' gives no PMI"),
        ("gaussian-1", "phsic", "method 'phsic' gives no mutual information"),
        ("gaussian-1", "counting", "method 'counting': X holds numbers"),
        ("table", "counting", ""),
    ],
)
def test_a_real_estimator(task, name, reason):
    found = bench.measure(bench.Run(task, name, 60, 0, 0.9, "cpu", "1"))
    assert found.reason.startswith(reason)
    assert bool(found.reason) == bool(reason)
    assert found.true_mi == make_task(task, 5).mutual_information
    assert found.failed == (task == "gaussian-1" and name == "counting")
    if found.mi is not None:
        assert found.error == pytest.approx(found.mi - found.true_mi)
        assert found.low < found.mi < found.high
        assert found.covered == (found.low <= found.true_mi <= found.high)
    assert (found.mi is None) == (name in {"smi:bilinear", "phsic"} or found.failed)
    assert (found.pmi_spearman is None) == (name == "ksg" or found.failed)
    assert (found.pmi_rmse is None) == (name in {"ksg", "phsic"} or found.failed)
    if found.pmi_spearman is not None:
        assert found.pmi_spearman > 0.5
