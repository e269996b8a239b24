"""`pointdep demo`, which takes half a minute and is run once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pointdep.cli import demo
from pointdep.cli.app import run
from pointdep.data.digits import digit_halves


@pytest.fixture(scope="module")
def shown():
    """Exit code, standard output and the result behind it."""
    import contextlib
    import io

    results = []
    out = io.StringIO()
    as_json = demo.as_json
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(demo, "as_json", lambda result: results.append(result) or as_json(result))
        code = run(["demo", "--json", "--quiet"])
    return code, out.getvalue(), results[0]


@pytest.fixture(scope="module")
def content(shown):
    code, out, _ = shown
    assert code == 0
    assert out.count("\n") == 1
    return json.loads(out)


def test_json_is_as_documented(content, check_json):
    check_json("demo", content)
    assert content["command"] == "demo"


def test_the_halves_are_dependent(content):
    low, high = content["estimate"]["ci"]
    assert 0 < low < content["estimate"]["nats"] < high
    assert content["estimate"]["rows"] == 1797


def test_swaps_are_found(content):
    planted = content["planted"]
    assert planted == 90
    # A random order would put 5% of them, four or five, among the lowest 90.
    assert content["planted_among_lowest"] >= planted / 2
    assert content["planted_below_zero"] >= planted / 2
    assert content["below_zero"] - content["planted_below_zero"] <= 0.1 * (1797 - planted)


def test_counts_against_a_plain_recount(content, shown):
    pmi, swapped = shown[2].model.oof_pmi_, digit_halves(swapped=0.05, seed=0).swapped
    lowest = sorted(range(1797), key=lambda row: pmi[row])
    assert content["planted_among_lowest"] == sum(swapped[row] for row in lowest[:90])
    assert content["below_zero"] == sum(value < 0 for value in pmi)
    assert content["planted_below_zero"] == sum(pmi[row] < 0 for row in np.flatnonzero(swapped))
    assert [entry["row"] for entry in content["lowest"]] == lowest[:10]
    assert [entry["swapped"] for entry in content["lowest"]] == [
        bool(swapped[row]) for row in lowest[:10]
    ]


def test_what_a_person_reads(content, shown, capsys):
    demo.print_result(shown[2])
    out = capsys.readouterr().out
    estimate = content["estimate"]
    assert f"{estimate['nats']:.3f} nats ({estimate['bits']:.3f} bits)" in out
    for entry in content["lowest"]:
        swapped = "yes" if entry["swapped"] else "no"
        assert f"{entry['row']:>8} {entry['pmi']:>8.2f}  {swapped}\n" in out
    caught, below = content["planted_among_lowest"], content["planted_below_zero"]
    others = content["below_zero"] - below
    assert f"{caught} of the 90 planted swaps are among the 90 pairs of lowest PMI" in out
    assert f"{below} have a PMI below zero,\nand so have {others} of the 1707 pairs" in out
    assert "pointdep mi x.npy y.npy" in out
    assert max(map(len, out.splitlines())) <= 100


def test_pictures():
    upper, lower = np.zeros(32), np.full(32, 16.0)
    assert demo._picture(upper, lower) == [" " * 16] * 4 + ["@" * 16] * 4
