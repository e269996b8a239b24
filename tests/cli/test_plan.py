"""``pointdep plan``."""

import pytest

from pointdep import plan
from pointdep.workflow import plan as planning


@pytest.fixture(autouse=True)
def _no_dry_run(monkeypatch):
    """Laws of the stored GPU in place of a dry run."""
    facts = {"in_memory": 2**27, "batch": 256, "least_steps": 20, "gpu": None}
    monkeypatch.setattr(planning, "measure", lambda shape, **_: planning._h200(shape, facts))


def test_what_it_prints(pointdep):
    outcome = pointdep("plan", "1e6", "512,64", "--cores", 1)
    assert outcome.code == 0
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert lines[0] == "1,000,000 pairs of 512 + 64 columns, 5 folds, 20 epochs, 1 core of a CPU"
    said = " ".join(outcome.out.split())
    for command, cost in plan(10**6, (512, 64), cores=1).costs.items():
        line = next(line for line in lines if line.startswith(command))
        assert line.endswith(f"{cost.bottleneck}, {cost.share:.0%}")
        assert "GiB" in line
        assert f"{command} {cost.within:.1f} and {cost.memory_within:.1f}" in said
    assert "docs/large.md" in outcome.out
    assert "memory + GPU" in pointdep("plan", "1e6", 512, "--gpu").out.splitlines()[2]


@pytest.mark.parametrize("rows", ["1e6", "1_000_000", "1000000", "1,000,000", "1E+6"])
def test_ways_to_write_rows(pointdep, rows):
    assert pointdep("plan", rows, "8", "--json").json()["rows"] == 1_000_000


@pytest.mark.parametrize("options", [(), ("--gpu",), ("--epochs", 3, "--folds", 2)])
def test_json(pointdep, check_json, options):
    content = pointdep("plan", 20_000, "32", *options, "--json").json()
    check_json("plan", content)
    assert [one["command"] for one in content["costs"]] == ["fit", "score", "audit", "retrieve"]
    for one in content["costs"]:
        assert one["bottleneck"] == one["parts"][0]["part"]
        assert (one["gpu_gib"] is None) == ("--gpu" not in options)


def test_options_reach_the_plan(pointdep):
    more = ("--epochs", 7, "--folds", 3, "--queries", 50, "--cores", 1)
    content = pointdep("plan", 20_000, "40,30", *more, "--json").json()
    expected = plan(20_000, (40, 30), epochs=7, folds=3, queries=50, cores=1)
    assert [one["seconds"] for one in content["costs"]] == [
        one.seconds for one in expected.costs.values()
    ]
    assert content["dims"] == [40, 30]


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("ROWS '0' must be", ("0", "8")),
        *((f"ROWS {rows!r} must be", (rows, "8")) for rows in ("many", "1.5", "inf", "1,50")),
        ("rows=5: 5 folds", ("5", "8")),
        *((f"DIMS {dims!r} must be", ("100", dims)) for dims in ("0", "8,8,8", "x")),
        *((f"{name}=0", ("100", "8", f"--{name}", "0")) for name in ("epochs", "cores", "queries")),
    ],
)
def test_mistakes(refused, message, arguments):
    refused(message, "plan", *arguments)
