"""Two gloo processes against one that holds the joined batch: every loss, value and gradient."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pointdep.contrastive import distributed

from . import test_amdim
from .losses_by_hand import LOSSES, made, pairs

SPLITS = {"equal": (8, 8), "unequal": (10, 6), "one row": (15, 1)}
GROUPS = torch.tensor([0, 1, 2, 0, 3, 4, 5, 6, 2, 7, 8, 9, 10, 11, 5, 0])
OPTIONS = {"plain": {}, "not symmetric": {"symmetric": False}}
OPTIONS["blocks"] = {"block_size": 3, "clip": 4.0}
Result = dict[str, Tensor]


def cases() -> Iterator[tuple[str, str, dict[str, object], Tensor | None]]:
    """(key, loss, options, groups), all of them with 16 rows in all."""
    for name, negatives, grouped in itertools.product(LOSSES, ("cross", "all"), (False, True)):
        for kind, options in OPTIONS.items():
            key = f"{name}, {negatives}, {'groups' if grouped else 'no groups'}, {kind}"
            yield key, name, {"negatives": negatives, **options}, GROUPS if grouped else None


def share(split: tuple[int, int], rank: int) -> slice:
    return slice(0, split[0]) if rank == 0 else slice(split[0], sum(split))


def embeddings(part: slice) -> Result:
    found = {}
    for key, name, options, groups in cases():
        z1, z2 = (z.detach()[part].requires_grad_() for z in pairs(16, 4))
        value = made(name, **options)(z1, z2, None if groups is None else groups[part])
        value.backward()
        found[f"{key}: value"] = value.detach()
        found[f"{key}: z1"], found[f"{key}: z2"] = z1.grad, z2.grad
    return found


def trained(part: slice, critic: str, wrap: bool) -> Result:
    """Value and gradients of an encoder and of the weights in the loss, averaged by DDP."""
    found = {}
    for name, negatives in itertools.product(LOSSES, ("cross", "all")):
        options = {"critic": critic, "dims": 3} if critic != "inner" else {}
        loss = made(name, negatives=negatives, learn_scale=True, **options)
        torch.manual_seed(1)
        encoder = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        z1, z2 = (z.detach()[part] for z in pairs(16, 4))
        run_encoder = DistributedDataParallel(encoder) if wrap else encoder
        run_loss = DistributedDataParallel(loss) if wrap else loss
        n, codes = len(z1), run_encoder(torch.cat([z1, z2]))
        value = run_loss(codes[:n], codes[n:], GROUPS[part])
        value.backward()
        found[f"{name}, {negatives}: value"] = value.detach()
        for key, parameter in [*encoder.named_parameters(), *loss.named_parameters()]:
            found[f"{name}, {negatives}: {key}"] = parameter.grad
    return found


def helpers(rank: int) -> Result:
    rows = torch.full((2, 3 + rank), rank + 1.0, requires_grad=True)
    joined = distributed.gather(rows, dim=1)
    weights = torch.arange(14.0).view(2, 7) * (rank + 1)
    (joined * weights).sum().backward()
    total = torch.tensor([1.0, 10.0]) * (rank + 1)
    total.requires_grad_()
    summed = distributed.all_sum(total)
    (summed * torch.tensor([2.0, 3.0]) * (rank + 1)).sum().backward()
    whole = distributed.gather(torch.arange(rank + 1) + 10 * rank)
    return {
        "world": torch.tensor(distributed.world()),
        "joined": joined.detach(),
        "rows gradient": rows.grad,
        "summed": summed.detach(),
        "total gradient": total.grad,
        "whole": whole,
        "largest": distributed.all_max(torch.tensor([1.0 - rank, 5.0 * rank])),
    }


def alone(rank: int) -> Result:
    z1, z2 = (z.detach()[share(SPLITS["equal"], rank)] for z in pairs(16, 4))
    return {name: made(name, gather=False)(z1, z2) for name in LOSSES}


def penalised(part: slice, world: int) -> Result:
    """The gradients of |gradient of the joined loss|^2, of which this part's rows have a share."""
    found = {}
    for key, name, options, groups in cases():
        rows = [z.detach()[part].requires_grad_() for z in pairs(16, 4)]
        value = made(name, **options)(*rows, None if groups is None else groups[part])
        first = torch.autograd.grad(value, rows, create_graph=True)
        penalty = sum((gradient / world).square().sum() for gradient in first)
        found[key] = torch.cat(torch.autograd.grad(penalty, rows), 1)
    return found


class NumberOfPairsAlone(nn.Module):
    """A critic that is a number where x is y, and NaN elsewhere."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        distance = (x - y).square().sum(-1)
        return torch.where(distance == 0, -distance, torch.nan)


def lost(part: slice) -> dict[str, tuple[float, list[str]]]:
    found = {}
    for name, symmetric in itertools.product(LOSSES, (True, False)):
        loss = made(name, critic=NumberOfPairsAlone(), symmetric=symmetric)
        rows = pairs(16, 4)[0].detach()[part]
        found[f"{name}, {symmetric}"] = loss(rows, rows).item(), [flag.name for flag in loss.flags]
    return found


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {
        "helpers": helpers(rank),
        "alone": alone(rank),
        "amdim": test_amdim.costs_of(rank),
        "lost": lost(share(SPLITS["equal"], rank)),
        "penalised": penalised(share(SPLITS["unequal"], rank), 2),
        **{name: embeddings(share(split, rank)) for name, split in SPLITS.items()},
    }
    for critic in ("inner", "bilinear", "concat"):
        found[f"trained {critic}"] = trained(share(SPLITS["unequal"], rank), critic, wrap=True)
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


TOLERANCE = {"atol": 1e-10, "rtol": 1e-9}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict[str, Result]]:
    folder = tmp_path_factory.mktemp("gloo")
    with pytest.MonkeyPatch.context() as patch:
        # By the loopback, whatever the machine's own name resolves to.
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        mp.spawn(main, (folder,), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.fixture(scope="module")
def joined() -> Result:
    return embeddings(slice(0, 16))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient(found, joined, name, split):
    ranks = [part[split] for part in found]
    keys = [key for key, own, _, _ in cases() if own == name]
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
    for key, value in penalised(slice(0, 16), 1).items():
        both = torch.cat([rank["penalised"][key] for rank in found])
        # No factor here: each process has a penalty of its own, of its own rows' gradients.
        torch.testing.assert_close(both, value, **TOLERANCE, msg=lambda m, k=key: k + m)
        assert value.abs().max() > 1e-5


@pytest.mark.parametrize("critic", ["inner", "bilinear", "concat"])
def test_ddp_trains_as_one_process_does(found, critic):
    expected, largest = trained(slice(0, 16), critic, wrap=False), 0.0
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
        assert (rank["whole"].tolist(), rank["largest"].tolist()) == ([0, 10, 11], [1.0, 5.0])
    torch.testing.assert_close(first["rows gradient"], gradient[:, :3])
    torch.testing.assert_close(second["rows gradient"], gradient[:, 3:])


def test_not_gathered_nan_and_one_process(found):
    z1, z2 = pairs(16, 4)
    for rank, part in enumerate(found):
        rows = share(SPLITS["equal"], rank)
        for name in LOSSES:
            expected = made(name)(z1[rows], z2[rows])
            torch.testing.assert_close(part["alone"][name], expected.detach(), **TOLERANCE)
    for results in (found[0]["lost"], found[1]["lost"], lost(slice(0, 16))):
        assert len(results) == 2 * len(LOSSES)
        for value, flags in results.values():
            assert math.isnan(value)
            assert flags == ["diverged"]
    rows = torch.randn(3, 2, requires_grad=True)
    assert distributed.world() == (0, 1)
    assert distributed.gather(rows) is rows
    assert distributed.all_sum(rows) is rows
    assert torch.equal(distributed.all_max(rows), rows)
    assert distributed.row_counts(rows) == [3]


def test_costs_of_amdim(found):
    first, second = (rank["amdim"] for rank in found)
    assert len(first) == 14
    for key, (values, gradients) in first.items():
        expected, whole = test_amdim.costs_and_gradients(key[0], slice(0, 4))
        others, rest = second[key]
        for costs in (values, others):
            torch.testing.assert_close(costs, expected, atol=1e-12, rtol=1e-12)
        for one, two, joined in zip(gradients, rest, whole, strict=True):
            # World-size times the gradient: what the mean of DDP takes back.
            torch.testing.assert_close(torch.cat([one, two]) / 2, joined, atol=1e-12, rtol=1e-10)
