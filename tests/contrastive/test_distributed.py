"""Two gloo processes against one that holds the joined batch: every loss, value and gradient."""

import math

import pytest
import torch
import torch.multiprocessing as mp

from pointdep.contrastive import distributed

from . import two_processes as two
from .losses_by_hand import LOSSES, made, pairs

TOLERANCE = {"atol": 1e-10, "rtol": 1e-9}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict[str, two.Result]]:
    folder = tmp_path_factory.mktemp("gloo")
    with pytest.MonkeyPatch.context() as patch:
        # By the loopback, whatever the machine's own name resolves to.
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        mp.spawn(two.main, (folder,), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.fixture(scope="module")
def joined() -> two.Result:
    return two.embeddings(slice(0, 16))


@pytest.mark.parametrize("split", two.SPLITS)
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient(found, joined, name, split):
    ranks = [part[split] for part in found]
    keys = [key for key, own, _, _ in two.cases() if own == name]
    assert len(keys) == 12
    for key in keys:
        for rank in ranks:
            torch.testing.assert_close(rank[f"{key}: value"], joined[f"{key}: value"], **TOLERANCE)
        for side in ("z1", "z2"):
            whole = torch.cat([rank[f"{key}: {side}"] for rank in ranks])
            # World-size times the joined gradient: DDP's mean over ranks divides by it.
            torch.testing.assert_close(whole, 2 * joined[f"{key}: {side}"], **TOLERANCE)
            assert whole.abs().max() > 1e-4  # a factor would show


def test_second_derivative(found):
    for key, value in two.penalised(slice(0, 16), 1).items():
        both = torch.cat([rank["penalised"][key] for rank in found])
        # No factor here: each process has a penalty of its own, of its own rows' gradients.
        torch.testing.assert_close(both, value, **TOLERANCE, msg=lambda m, k=key: k + m)
        assert value.abs().max() > 1e-5


@pytest.mark.parametrize("critic", ["inner", "bilinear", "concat"])
def test_ddp_trains_as_one_process_does(found, critic):
    expected = two.trained(slice(0, 16), critic, wrap=False)
    largest = 0.0
    for rank in found:
        result = rank[f"trained {critic}"]
        assert result.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(result[key], value, **TOLERANCE, msg=lambda m, k=key: k + m)
            if "bias" not in key and "value" not in key:
                largest = max(largest, float(value.abs().max()))
    assert largest > 1e-2


def test_helpers(found):
    first, second = (rank["helpers"] for rank in found)
    assert (first["world"].tolist(), second["world"].tolist()) == ([0, 2], [1, 2])
    expected = torch.tensor([1.0, 1, 1, 2, 2, 2, 2]).expand(2, 7)
    gradient = 3 * torch.arange(14.0).view(2, 7)  # once from rank 0, twice from rank 1
    for rank in (first, second):
        torch.testing.assert_close(rank["joined"], expected)
        assert rank["summed"].tolist() == [3.0, 30.0]
        assert rank["total gradient"].tolist() == [6.0, 9.0]
        assert rank["whole"].tolist() == [0, 10, 11]
        assert rank["largest"].tolist() == [1.0, 5.0]
    torch.testing.assert_close(first["rows gradient"], gradient[:, :3])
    torch.testing.assert_close(second["rows gradient"], gradient[:, 3:])


def test_not_gathered_and_nan(found):
    z1, z2 = pairs(16, 4)
    for rank, part in enumerate(found):
        rows = two.share(two.SPLITS["equal"], rank)
        for name in LOSSES:
            expected = made(name)(z1[rows], z2[rows])
            torch.testing.assert_close(part["alone"][name], expected.detach(), **TOLERANCE)
    for results in (found[0]["lost"], found[1]["lost"], two.lost(slice(0, 16))):
        assert len(results) == 2 * len(LOSSES)
        for value, flags in results.values():
            assert math.isnan(value)
            assert flags == ["diverged"]


def test_one_process():
    rows = torch.randn(3, 2, requires_grad=True)
    assert distributed.world() == (0, 1)
    assert distributed.gather(rows) is rows
    assert distributed.all_sum(rows) is rows
    assert torch.equal(distributed.all_max(rows), rows)
    assert distributed.row_counts(rows) == [3]
