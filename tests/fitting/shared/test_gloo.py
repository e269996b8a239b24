"""Several gloo processes find what one finds with the whole batch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pointdep import PointwiseDependency
from pointdep.fitting.processes import ALONE
from refusals import refused

from . import gloo

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By the number of processes, what each of them found."""
    folder, tests = tmp_path_factory.mktemp("gloo"), Path(gloo.__file__).parents[2]
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "fitting.shared.gloo", str(folder)]
    given = {"env": {**os.environ, "PYTHONPATH": path}, "timeout": 300}
    done = subprocess.run(command, check=False, capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stderr
    return {
        size: [torch.load(folder / f"{size}.{rank}.pt", weights_only=False) for rank in range(size)]
        for size in gloo.WORLDS
    }


@pytest.mark.parametrize(
    ("size", "kind"), [(size, kind) for size in gloo.WORLDS for kind in gloo.kinds(size)]
)
def test_parameters_after_20_steps(kind, size, found):
    alone = gloo.trained(kind, ALONE)
    assert alone["history"].isfinite().all()
    for one in found[size]:
        parameters = one["trained"][kind]
        assert parameters.keys() == alone.keys()
        for name, values in alone.items():
            assert torch.allclose(parameters[name], values, rtol=0, atol=1e-6), name


def test_the_steps_lead_somewhere():
    """So that parameters which were never trained would not pass for equal ones."""
    first, last = gloo.trained("separable", ALONE), gloo.trained("separable, small blocks", ALONE)
    assert max(float((first[k] - last[k]).abs().max()) for k in first if k != "history") > 0.01


@pytest.mark.parametrize("kind", ["default", "cpc", "wide"])
def test_a_fit_in_memory(kind, found):
    alone = gloo.fitted(kind, distributed=False)
    for one in found[2]:
        ours = one["fitted"][kind]
        assert ours["mi"] == pytest.approx(alone["mi"], abs=1e-5)
        assert ours["lower"] == pytest.approx(alone["lower"], abs=1e-5)
        assert (ours["curve"] is None) == (alone["curve"] is None) == (kind == "cpc")
        if ours["curve"] is not None:
            assert ours["curve"].rows == alone["curve"].rows
            assert ours["curve"].mean == pytest.approx(alone["curve"].mean, abs=1e-4)
        np.testing.assert_allclose(ours["pmi"], alone["pmi"], atol=1e-3)
        assert (ours["flags"], len(ours["history"])) == (alone["flags"], len(alone["history"]))


@pytest.mark.parametrize("kind", ["streamed", "streamed dv", "streamed wide"])
def test_a_streamed_fit(kind, found):
    """Its batches are drawn from other parts of the rows: as good a fit, and not the same."""
    alone, ours = gloo.fitted(kind, distributed=False), found[2][0]["fitted"][kind]
    assert ours["mi"] == pytest.approx(alone["mi"], rel=0.1)
    assert np.corrcoef(ours["pmi"], alone["pmi"])[0, 1] > 0.95
    assert len(ours["pmi"]) == len(alone["pmi"])


def test_a_streamed_fit_without_matrices_of_scores(found):
    laid_out, ours = (found[2][0]["fitted"][f"streamed {kind}"] for kind in ("separable", "lean"))
    np.testing.assert_allclose(ours["pmi"], laid_out["pmi"], atol=1e-3)


@pytest.mark.parametrize("kind", gloo.FITS)
def test_all_processes_have_the_same_model(kind, found):
    """After a streamed fit each of them can read all rows."""
    first, second = (one["fitted"][kind] for one in found[2])
    for key in ("history", "flags", "stored"):
        assert first[key] == second[key]
    assert first["stored"] == (len(first["pmi"]) if "streamed" in kind else 0)
    assert np.array_equal(first["pmi"], second["pmi"])
    for name, values in first["weights"].items():
        assert torch.equal(values, second["weights"][name]), name
    assert first["warned"] >= len(first["flags"])
    assert second["warned"] == 0


def test_without_the_option_each_process_fits_alone(found):
    alone = gloo.fitted("cpc", distributed=False)
    for one in found[2]:
        assert np.array_equal(one["apart"]["pmi"], alone["pmi"])
        assert one["apart"]["warned"] == alone["warned"]


@pytest.mark.parametrize("size", gloo.WORLDS)
@pytest.mark.parametrize("grouped", [False, True])
def test_shares_of_streamed_batches(size, grouped, found):
    drawn = [one["drawn"][grouped] for one in found[size]]
    assert len({len(shares) for shares in drawn}) == 1
    rows: dict[int, list[int]] = {0: [], 1: []}  # of the first replica, by epoch
    for shares in zip(*drawn, strict=True):
        batch = torch.cat([share["rows"] for share in shares], 1)
        assert batch.shape == (2, 32)
        groups = (batch // 2 if grouped else batch).view(2, 4, 8)
        product = (groups.unsqueeze(-1) != groups.unsqueeze(-2)).flatten(1, 2)
        for share in shares:
            assert torch.equal(share["product"].expand(2, 32, 8).bool(), product)
        rows[shares[0]["epoch"]] += batch[0].tolist()
    for seen in rows.values():
        assert len(set(seen)) == len(seen) > 200  # no row twice in an epoch, and most of them
    # What a process reads in one epoch is not what it reads in the next.
    of_first = [{row for share in drawn[0] if share["epoch"] == epoch
                 for row in share["rows"][0].tolist()} for epoch in (0, 1)]  # fmt: skip
    assert of_first[0] != of_first[1]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rows", "different rows or settings"),
        ("length", "inconsistent numbers of samples|Y has 59 rows"),
        ("streamed", "different rows or columns"),
        ("nan", "holds NaN in row 290"),
        ("norm", "batch norm"),
    ],
)
@pytest.mark.parametrize("size", gloo.WORLDS)
def test_what_is_refused_is_refused_by_all(name, sentence, size, found):
    (told,) = {one["refused"][name] for one in found[size]}
    assert re.search(sentence, told)


def test_a_batch_too_small_and_no_group(found):
    assert {one["refused"]["batch"] for one in found[2]} == {"not refused"}
    for one in found[3]:
        assert "batch_size=2 in blocks of 2 rows cannot be shared" in one["refused"]["batch"]
    cause = r"distributed=True .*`torchrun -m pointdep fit`"
    for given, message in ((True, cause), ("yes", "distributed='yes' must be True or False")):
        refused(message, PointwiseDependency(distributed=given).fit, *gloo.pairs(60))
