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
    assert (outcome.code, outcome.err) == (0, "")
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


@pytest.mark.parametrize("options", [(), ("--gpu",), ("--epochs", 3, "--folds", 2)])
def test_json(pointdep, check_json, options):
    content = pointdep("plan", 20_000, "32", *options, "--json").json()
    check_json("plan", content)
    assert [one["command"] for one in content["costs"]] == ["fit", "score", "audit", "retrieve"]
    for one in content["costs"]:
        assert one["bottleneck"] == one["parts"][0]["part"]
        assert (one["gpu_gib"] is None) == ("--gpu" not in options)


def test_options_reach_the_plan_and_mistakes_do_not(pointdep, refused):
    more = "--epochs 7 --folds 3 --queries 50 --cores 1 --json"
    content = pointdep("plan 20000 40,30", more).json()
    expected = plan(20_000, (40, 30), epochs=7, folds=3, queries=50, cores=1)
    seconds = [one.seconds for one in expected.costs.values()]
    assert ([one["seconds"] for one in content["costs"]], content["dims"]) == (seconds, [40, 30])
    for rows in ("1e6", "1_000_000", "1000000", "1,000,000", "1E+6"):
        assert pointdep("plan", rows, "8 --json").json()["rows"] == 1_000_000
    for rows in ("0", "many", "1.5", "inf", "1,50"):
        refused(f"ROWS {rows!r} must be", "plan", rows, "8")
    refused("rows=5: 5 folds", "plan", "5", "8")
    for dims in ("0", "8,8,8", "x"):
        refused(f"DIMS {dims!r} must be", "plan", "100", dims)
    for name in ("epochs", "cores", "queries"):
        refused(f"{name}=0", "plan", "100", "8", f"--{name}", "0")
