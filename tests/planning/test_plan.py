"""Counted work times constants: by hand, and as it grows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pointdep import InputError, plan
from pointdep.planning import memory, work
from pointdep.planning import plan as planning
from pointdep.planning.advice import duration
from pointdep.planning.constants import measured
from pointdep.planning.shape import Shape

ONES = {
    "machine": "one core",
    "start_seconds": 2.0,
    "seconds": {"score": {"reading": {"numbers": 1e-6}, "networks": {"macs": 1e-9}}},
    "bytes": {"score": {"fixed": 2.0**30, "numbers": 8.0}},
    "parallel": {"score": 0.5},
    "within": {"score": {"seconds": 1.2, "bytes": 1.3}},
}


@pytest.fixture
def ones(monkeypatch):
    monkeypatch.setattr(planning, "constants", lambda device: ONES)


def test_score_by_hand(ones):
    shape = Shape(1000, 30, 40, epochs=1, folds=3)
    found = planning.cost("score", shape, "cpu", 1)
    towers = 30 * 256 + 256 * 256 + 256 * 64 + 40 * 256 + 256 * 256 + 256 * 64
    macs = towers + 64 + 30 * 30 + 40 * 30 + 64 + 30  # inner product, coordinates, both vectors
    networks = 3 * 1000 * macs * 1e-9
    assert found.parts["reading"] == pytest.approx(1000 * 70 * 1e-6)
    assert found.parts["networks"] == pytest.approx(networks)
    assert found.seconds == pytest.approx(2.0 + 0.07 + networks)
    assert found.bottleneck == planning.START
    assert found.share == pytest.approx(2.0 / found.seconds)
    assert found.gib == pytest.approx(1 + 1000 * 70 * 8 / 2**30)
    assert found.gpu_gib is None
    assert (found.within, found.memory_within) == (1.2, 1.3)


def test_cores_divide_the_parallel_share(ones):
    shape = Shape(100_000, 30, 30, epochs=1)
    one, four = (planning.cost("score", shape, "cpu", cores).seconds for cores in (1, 4))
    assert four - 2.0 == pytest.approx((one - 2.0) * (0.5 + 0.5 / 4))


@pytest.mark.parametrize("parallel", [{}, {"score": 0.5}])
def test_cores_that_were_not_measured_are_refused(monkeypatch, parallel):
    monkeypatch.setattr(planning, "constants", lambda device: {**ONES, "parallel": parallel})
    if parallel:
        assert planning._cores("cpu", 4) == 4
        assert planning._cores("cpu", None) >= 1
        return
    assert planning._cores("cpu", None) == planning._cores("cpu", 1) == 1
    with pytest.raises(InputError, match="cores=4: one core has been measured, no more yet"):
        planning._cores("cpu", 4)


def test_training_by_hand():
    shape = Shape(100_000, 8, 8, epochs=3, folds=4)
    train = 75_000 - 11_250
    steps = round(train / 256)
    counts = work.fit(shape)["training"]
    assert counts["steps"] == 3 * steps
    assert counts["inputs"] == 3 * steps * 4 * 256 * 16
    assert counts["cells"] == 3 * steps * 4 * 256 * 8
    assert counts["pair_units"] == counts["cells"] * (256 + 64)
    side = 2 * 14 * 256 + 256 * 256
    pair = 256 * 64 + 64
    rows = 3 * steps * 4 * 256
    closed = 2 * (8 * 16 + 8) + 8
    assert counts["macs"] == 3 * (rows * 2 * side + rows * 8 * pair) + rows * closed
    assert "streamed" not in counts


def test_search_by_hand():
    wide = work.retrieve(Shape(50_000, 64, 32, 1, queries=100))
    assert wide["search"] == {"macs": 100 * 50_000 * (5 * (64 + 32) + 1), "cells": 5_000_000}
    few = work.retrieve(Shape(1_000, 8, 8, 1, queries=1000))["search"]
    assert few["pair_units"] == 5 * 1000 * 1000 * (128 + 32)
    lists = work.retrieve(Shape(160_000, 8, 8, 1, queries=1000))
    assert lists["search"]["pair_units"] == 5 * 1000 * 5000 * (256 + 64)
    assert lists["known answers"]["pair_units"] == 5 * 20 * 160_000 * (256 + 64)


def test_an_audit_has_its_fit_in_it():
    found = plan(30_000, 64, cores=1).costs
    assert set(found["fit"].parts) < set(found["audit"].parts)
    assert found["audit"].seconds > found["fit"].seconds
    for rows in (30_000, 10**6):
        found = plan(rows, 512, cores=1).costs
        assert found["audit"].gib >= found["fit"].gib


def test_a_streamed_fit_has_memory_that_hardly_grows():
    one, ten = (plan(rows, 512, cores=1).costs["fit"].gib for rows in (10**7, 10**8))
    assert ten - one < 9e7 * 64 / 2**30
    assert plan(10**7, 512, cores=1).streamed
    assert not plan(10**5, 512, cores=1).streamed


ROWS, DIMS = st.integers(1000, 10**8), st.integers(1, 1000)


@pytest.mark.parametrize("device", list(measured()))
@given(rows=ROWS, dims=DIMS, stream=st.booleans())
@settings(deadline=None, max_examples=50)
def test_twice_the_rows_cost_no_less(device, rows, dims, stream):
    small, large = (
        plan(count, dims, gpu=device == "gpu", cores=1, stream=stream).costs
        for count in (rows, 2 * rows)
    )
    for command in ("fit", "score"):
        # Batches grow with the rows, and an epoch of more rows may have a step fewer.
        assert large[command].seconds >= 0.99 * small[command].seconds
    assert large["fit"].gib >= 0.999 * small["fit"].gib
    if dims > 25:  # of narrow data a longer list of candidates may replace all pairs
        assert large["retrieve"].seconds >= small["retrieve"].seconds


@pytest.mark.parametrize("device", list(measured()))
@given(rows=ROWS, dims=DIMS, stream=st.booleans())
@settings(deadline=None, max_examples=50)
def test_more_columns_cost_no_less(device, rows, dims, stream):
    shapes = [Shape(rows, count, count, 5, stream=stream) for count in (dims, dims + dims // 4 + 1)]
    # Encoders of wide data are cheaper than a network on pairs, and parts are fewer beyond 200.
    assume(shapes[0].layers == shapes[1].layers)
    assume(shapes[0].wide == shapes[1].wide)
    assume(shapes[0].parts == shapes[1].parts)
    assume(shapes[0].large == shapes[1].large)  # large ones are scored in parts
    less, more = (
        [planning.cost(name, one, device, 1) for name in ("fit", "score", "retrieve")]
        for one in shapes
    )
    for a, b in zip(less, more, strict=True):
        assert b.seconds >= 0.97 * a.seconds  # of fewer rows at a time are a few less used
        assert b.gib >= 0.9 * a.gib


@given(rows=ROWS, dims=DIMS)
@settings(deadline=None, max_examples=30)
def test_every_part_is_a_time(rows, dims):
    found = plan(rows, dims, cores=1)
    for one in found.costs.values():
        assert one.seconds == pytest.approx(sum(one.parts.values()))
        assert list(one.parts.values()) == sorted(one.parts.values(), reverse=True)
        assert min(one.parts.values()) >= 0
        assert 0 < one.share <= 1
        assert one.within >= 1


def test_every_command_has_work_and_memory():
    assert list(work.COMMANDS) == list(memory.COMMANDS) == list(plan(100, 3, cores=1).costs)


def test_advice_of_a_gpu():
    """Its memory is short before that of the process."""
    found = plan(5 * 10**6, 512, gpu=True)
    assert found.costs["retrieve"].gib < 32 < found.costs["retrieve"].gpu_gib
    assert "GiB of the GPU): cut them into parts" in " ".join(found.advice)


def test_rows_that_a_gpu_keeps():
    few, many = (Shape(rows, 512, 512, epochs=3, keeping=True) for rows in (8_000_000, 9_000_000))
    assert few.resident
    assert not many.resident
    assert not Shape(8_000_000, 512, 512, epochs=3).resident  # of a CPU
    assert not Shape(1000, 512, 512, epochs=3, keeping=True).resident  # not streamed
    assert work.fit(few)["training"]["resident"] == 3 * few.numbers
    assert work.fit(many)["training"]["streamed"] == 3 * many.numbers
    assert memory.of_gpu("fit", few)["resident"] == few.numbers
    assert "resident" not in memory.of_gpu("fit", many)
    assert "resident" not in memory.of_host("fit", few)
    assert "resident" not in memory.of_gpu("score", few)


def test_advice():
    small, large = (" ".join(plan(rows, 512, cores=1).advice) for rows in (10_000, 10**9))
    assert "a cluster would not pay" in small
    assert "docs/large.md" in small
    assert "--engine ray" in large
    assert "memory-mapped" in large
    assert "in memory (21 TiB): cut them into parts" in large


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.51, "0.5 s"), (45, "45 s"), (150, "2.5 min"), (7200, "2.0 h"), (4e6, "46 days")],
)
def test_duration(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 8), "rows=0"),
        ((100, 0), "x_dim=0"),
        ((100, (8, 8, 8)), "dims="),
        ((100.5, 8), "rows=100.5 must be a whole number"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        plan(*arguments)
    with pytest.raises(InputError, match="cores=0"):
        plan(100, 8, cores=0)


def test_without_a_measured_gpu(monkeypatch, tmp_path):
    from pointdep.planning import constants

    (tmp_path / "constants.json").write_text(json.dumps({"cpu": ONES}))
    monkeypatch.setattr(constants, "files", lambda package: tmp_path)
    constants.measured.cache_clear()
    with pytest.raises(InputError, match="no GPU has been measured for the plan yet: leave out"):
        plan(1000, 8, gpu=True)
    constants.measured.cache_clear()


def test_torch_and_numpy_are_not_imported():
    code = (
        "import sys; from pointdep.cli.app import run; assert run(['plan', '1e6', '512']) == 0; "
        "import pointdep; pointdep.plan(10**6, 64); "
        "assert not {'torch', 'numpy', 'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
