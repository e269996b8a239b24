"""The packaged constants, against every measurement that is recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pointdep.planning import memory
from pointdep.planning.constants import COMMANDS, constants, measured
from pointdep.planning.plan import START, cost

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
FACTOR = 1.5

sys.path.insert(0, str(ROOT / "benchmarks"))
from cost_fit import (  # noqa: E402
    gib_of,
    gpu_gib_of,
    predicted_bytes,
    predicted_seconds,
    seconds_of,
    shape_of,
)


def recorded():
    """(device, job, whether FAISS was there)."""
    for device in measured():
        result = json.loads((RESULTS / f"cost_model_{device}.json").read_text("utf-8"))
        for job in result["jobs"]:
            yield device, job, result["faiss"]


def named(case):
    device, job, _ = case
    return f"{device}-{job['what']}-{job['rows']}-{'x'.join(map(str, job['dims']))}"


@pytest.mark.parametrize("case", list(recorded()), ids=named)
def test_recorded_jobs(case):
    device, job, faiss = case
    # The data decide how many candidates of a query are scored: held-out jobs are not told.
    known, shape = constants(device), shape_of(job, listed=not job["held_out"])
    for command, parts in seconds_of(job, faiss).items():
        told = predicted_seconds(known, command, shape, parts)
        assert 1 / FACTOR <= told / sum(parts.values()) <= FACTOR, command
    for command, gib in gib_of(job).items():
        told = predicted_bytes(known["bytes"][command], memory.of_host(command, shape)) / 2**30
        assert 1 / FACTOR <= told / gib <= FACTOR, command
    if job["held_out"]:
        for command, gib in gpu_gib_of(job).items():
            told = predicted_bytes(known["gpu_bytes"][command], memory.of_gpu(command, shape))
            assert 1 / FACTOR <= told / 2**30 / gib <= FACTOR, command


@pytest.mark.skipif(
    not (RESULTS / "large_fit_speed.json").exists(), reason="fit on a GPU not recorded"
)
def test_ten_epochs_on_a_gpu():
    found = json.loads((RESULTS / "large_fit_speed.json").read_text("utf-8"))
    job = {**found["options"], **found, "dims": found["columns"], "folds": 5, "device": "cuda"}
    told = cost("fit", shape_of(job), "gpu", 1)
    begun = told.seconds - told.parts[START]
    assert 1 / FACTOR <= begun / found["seconds"] <= FACTOR


@pytest.mark.parametrize("device", list(measured()))
def test_constants(device):
    known = constants(device)
    assert set(known["seconds"]) == set(known["bytes"]) == set(COMMANDS) == set(memory.COMMANDS)
    for command in COMMANDS:
        assert 1 <= known["within"][command]["seconds"] <= FACTOR
        assert 1 <= known["within"][command]["bytes"] <= FACTOR
        assert ("gpu_bytes" in known["within"][command]) == (device == "gpu")
        assert known["within"][command].get("gpu_bytes", 1.0) <= FACTOR


@pytest.mark.skipif(
    not (RESULTS / "large_fit_scaling.json").exists(), reason="fits against rows not recorded"
)
def test_fits_against_rows():
    found = json.loads((RESULTS / "large_fit_scaling.json").read_text("utf-8"))
    for fit in found["fits"]:
        job = {**fit["options"], **fit, "dims": fit["columns"], "stream": True}
        told = cost("fit", shape_of(job), "cpu", 1)
        begun = told.seconds - told.parts[START]  # the clock was started then
        assert 1 / FACTOR <= begun / fit["cpu_seconds"] <= FACTOR
        assert 1 / FACTOR <= told.gib / fit["rss_anon_peak_gib"] <= FACTOR
