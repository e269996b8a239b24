"""Plans from made-up laws by hand, as they grow, and from a small dry run of the real code."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep import PointdepError, plan
from pointdep.workflow import dry_run
from pointdep.workflow import plan as planning
from pointdep.workflow.plan import COMMANDS, START, Measured, Shape, duration, size
from refusals import refused

RESULTS = Path(__file__).parents[2] / "benchmarks/results"
FACTS = {"in_memory": 2**27, "batch": 256, "least_steps": 20, "gpu": None}
NAMES = ("preparation", "training", "audit", "score", "retrieve", "search", "pair")
MEMORY = tuple(f"{command} {kind}" for command in COMMANDS for kind in ("gib", "gpu gib"))
WITHIN = dict.fromkeys(COMMANDS, (1.5, 1.2))


@pytest.fixture
def asked(monkeypatch):
    """Laws of 1 + 0.001 a row in place of a dry run; what it was asked for."""
    laws, jobs = {"start": (2.0, 0.0), **dict.fromkeys((*NAMES, *MEMORY), (1.0, 1e-3))}, []

    def measure(shape, *, gpu, cores):
        jobs.append((shape, gpu, cores))
        return Measured("a test", {} if gpu else laws, FACTS, WITHIN)

    monkeypatch.setattr(planning, "measure", measure)
    return jobs


def test_parts_by_hand(asked):
    found = plan(10_000, (30, 40), epochs=3, folds=4, queries=500, cores=1)
    visits = 4 * 0.85 * 0.75 * 10_000
    assert found.costs["fit"].parts == {
        "training": pytest.approx(1 + 3 * visits / 1000),
        "preparation": pytest.approx(11.0),
        START: 2.0,
    }
    assert found.costs["audit"].seconds == pytest.approx(found.costs["fit"].seconds + 11)
    assert found.costs["score"].parts["scoring"] == pytest.approx(11.0)
    searched = found.costs["retrieve"].parts
    assert searched["search"] == pytest.approx(0.5 * 11)
    assert searched["scoring"] == pytest.approx(1 + min(500 * 1e4, 500 * 625 + 2**24 / 4) / 1000)
    for cost in found.costs.values():
        assert cost.seconds == pytest.approx(sum(cost.parts.values()))
        assert list(cost.parts.values()) == sorted(cost.parts.values(), reverse=True)
        assert cost.share == pytest.approx(cost.parts[cost.bottleneck] / cost.seconds)
        assert (cost.within, cost.memory_within, cost.gpu_gib) == (1.5, 1.2, None)
        assert cost.gib == pytest.approx(11.0)
    assert (found.machine, found.device, found.streamed) == ("a test", "cpu", False)
    assert asked == [(found.shape, False, 1)]
    # An epoch has a least number of steps.
    assert Shape(100, 8, 8, 1).visits(32, least_steps=20) == 5 * 20 * 32
    assert Shape(100, 8, 8, 1, folds=1).visits(32, least_steps=1) == pytest.approx(0.85 * 0.8 * 100)


ROWS, DIMS = st.integers(1000, 10**9), st.integers(1, 1000)


@given(rows=ROWS, dims=DIMS, stream=st.booleans())
@settings(deadline=None, max_examples=60)
def test_more_rows_cost_more_and_growth_is_affine(rows, dims, stream):
    shape = Shape(rows, dims, dims, 5, stream=stream)
    known, costs = planning._h200(shape, FACTS), {name: [] for name in COMMANDS}
    for k in (1, 2, 3):
        for name, found in costs.items():
            found.append(planning._cost(name, replace(shape, rows=k * rows), known, False, (1, 1)))
    for name, (one, two, three) in costs.items():
        assert one.seconds < two.seconds < three.seconds
        assert name == "score" or one.gib <= two.gib <= three.gib  # many are scored in parts
        if name != "retrieve" and rows > 10_000:  # fewer have the least number of steps
            growth = two.seconds - one.seconds
            assert three.seconds - two.seconds == pytest.approx(growth, rel=1e-6)


def test_a_billion_rows_and_more_cores(asked):
    found = plan(10**9, 512, cores=1)
    assert found.streamed
    assert found.costs["fit"].gib < found.costs["retrieve"].gib / 1000
    assert found.costs["audit"].gib > found.costs["fit"].gib
    said = " ".join(found.advice)
    for words in ("memory-mapped", "--engine ray", "long for a CPU", "TiB): search them in parts"):
        assert words in said
    assert "a cluster would not pay" in " ".join(plan(1_000, 512, cores=1).advice)
    # More cores than here are extrapolated.
    asked.clear()
    here = plan(10**5, 64).cores
    more = plan(10**5, 64, cores=4 * here).costs["fit"]
    same = plan(10**5, 64, cores=here).costs["fit"]
    assert [job[2] for job in asked] == [here] * 3
    assert (same.seconds - 2) / 4 < more.seconds - 2 < same.seconds - 2
    assert more.within > same.within
    assert plan(10**5, 64, cores=4 * here).machine == f"a test, scaled to {4 * here} cores"


def test_the_stored_gpu_where_there_is_none_and_against_measurements(asked):
    found = plan(5 * 10**6, 512, gpu=True)
    assert (found.device, found.machine) == ("gpu", "one NVIDIA H200, 16 cores")
    assert found.costs["retrieve"].gib < 32 < found.costs["retrieve"].gpu_gib
    assert "on the GPU): search them in parts" in " ".join(found.advice)
    few, many = (plan(rows, 512, gpu=True).costs["fit"].gpu_gib for rows in (8 * 10**6, 10**7))
    assert many < few  # which the GPU keeps
    assert "long for one GPU" in " ".join(plan(10**9, 512, gpu=True).advice)
    for job in json.loads((RESULTS / "cost_model_gpu.json").read_text("utf-8"))["jobs"]:
        stream = job.get("stream") if job["what"] == "audit" else None
        shape = Shape(job["rows"], *job["dims"], job.get("epochs", 1), stream=stream)
        shape = replace(shape, queries=job.get("queries", 1))
        facts = FACTS | ({"batch": 1024, "least_steps": 1} if shape.streamed(2**27) else {})
        cost = planning._cost(job["what"], shape, planning._h200(shape, facts), True, (1, 1))
        # FAISS was not there: its search for near copies took minutes.
        measured = job["seconds"] - job["parts"].get("near copies", 0.0)
        assert 1 / 2 < (cost.seconds - cost.parts[START]) / measured < 3
        assert 1 / 2 < cost.gib / job["rss_anon_peak_gib"] < 2
        assert 1 / 2 < cost.gpu_gib / job["gpu_peak_gib"] < 2.2


@pytest.mark.parametrize("stream", [False, True])
def test_dry_run(monkeypatch, capsys, stream):
    """A law goes through its points, and a small run has them all."""
    run = dry_run.DryRun(asdict(Shape(1000, 1024, 8, 1, folds=10)), False, 1, 0.0)
    run.points["score"] = {100: 3.0, 300: 7.0}
    assert run._law("score") == pytest.approx((2 * 1.0 * 2, 2 * 0.02 * 2**1.5))
    run.points["training"] = {100: 3.0}
    assert run._law("training") == pytest.approx((0, 0.06))
    run.points["start"] = {0: 3.0}
    assert run._law("start")[0] == 3.0
    fewer = {"_STEPS": 2, "_CPU_BATCH": 32, "_MORE_ROWS": 200, "_MOST_COLUMNS": 3}
    for name, value in fewer.items():
        monkeypatch.setattr(dry_run, name, value)
    shape = Shape(10**6, 2, 6, 5, folds=6, hidden=(8,), stream=stream)
    run = dry_run.DryRun(asdict(shape), False, 1, time.time())
    found = run.run()
    assert set(NAMES) < set(found.laws)
    assert {f"{command} gib" for command in COMMANDS} < set(found.laws)
    assert all(fixed >= 0 and each >= 0 for fixed, each in found.laws.values())
    assert found.facts["batch"] == (1024 if stream else 256)
    assert found.within["fit"][0] > dry_run._WITHIN["fit"][0]  # columns and folds were scaled
    assert json.loads(json.dumps(asdict(found)))["machine"] == "one core of this machine"
    assert capsys.readouterr().out.count("measured") == planning._MEASUREMENTS
    assert run.dims == [2, 3]


def test_in_a_process_of_its_own(monkeypatch):
    """Without a GPU it ends at once; an error in it is told."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    known = planning.measure(Shape(1000, 8, 8, 1), gpu=True, cores=1)
    assert (known.laws, known.facts["gpu"], known.facts["least_steps"]) == ({}, None, 20)
    monkeypatch.setattr(planning, "asdict", lambda shape: {"rows": 3})
    with pytest.raises(PointdepError, match="dry run of the plan failed"):
        planning.measure(Shape(1000, 8, 8, 1), gpu=True, cores=1)


def test_words_help_and_bad_arguments(asked):
    words = ["0.5 s", "45 s", "2.5 min", "2.0 h", "46 days", "32 years"]
    assert [*map(duration, (0.51, 45, 150, 7200, 4e6, 1e9))] == words
    assert (size(0.52), size(41.2), size(21_504)) == ("0.5 GiB", "41 GiB", "21 TiB")
    wrong = {(9, 8): "rows=9: 5", (100.5, 8): "rows=100.5", (100, 0): "x_dim", (100, (8,)): "dims="}
    for sizes, message in wrong.items():
        refused(message, plan, *sizes)
    code = (
        "import sys; from pointdep.cli.app import run; run(['plan', '--help']); "
        "import pointdep; pointdep.plan; "
        "assert not {'torch', 'numpy', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
