"""AMDIM's global-to-local costs: loops over images and cells, and two processes against one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from core import reference
from pointdep.contrastive.encoders.amdim import FeatureMaps
from pointdep.contrastive.pretraining.deep import OBJECTIVES, GlobalToLocal
from pointdep.errors import InputError

BY_HAND = {
    "cpc": reference.cpc,
    "pcc": reference.js,
    "drfc": lambda s, j, p: reference.drf(s, j, p, alpha=0.01),
    "variational": reference.js,
    "dm1": reference.dm1,
    "dm2": reference.dm2,
    "rpc": reference.rpc,
}


def drawn_maps(seed: int, n: int = 3, width: int = 6) -> FeatureMaps:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(n, width), (n, width, 5, 5), (n, width, 7, 7)]
    return FeatureMaps(
        *(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    )


def loop_cost(name: str, source: Tensor, target: Tensor) -> tuple[float, float]:
    """(cost, regulariser) of one direction. source: (n, d), target: (n, d, h, w)."""
    n, width, h, w = target.shape
    scores: list[list[float]] = [[] for _ in range(n)]
    joint: list[list[float]] = [[] for _ in range(n)]
    squares = 0.0
    for i in range(n):
        for j in range(n):
            for row in range(h):
                for column in range(w):
                    score = sum(
                        source[i, k].item() * target[j, k, row, column].item() for k in range(width)
                    ) / math.sqrt(width)
                    squares += score**2 / (n * n * h * w)
                    if name not in {"drfc", "rpc"}:
                        score = 20 * math.tanh(score / 20)
                    scores[i].append(score)
                    joint[i].append(float(i == j))
    product = [[1 - weight for weight in row] for row in joint]
    cost = -BY_HAND[name](scores, joint, product)
    return cost, 0.0 if name in {"drfc", "rpc"} else 0.05 * squares


@pytest.mark.parametrize("name", OBJECTIVES)
def test_costs_against_loops_over_images_and_cells(name: str) -> None:
    maps1, maps2 = drawn_maps(0), drawn_maps(1)
    cells = torch.tensor([[0, 7, 24], [13, 7, 4]])
    got = GlobalToLocal(name)(maps1, maps2, cells=cells)
    sources = [
        torch.stack([maps.five[i, :, c // 5, c % 5] for i, c in enumerate(chosen.tolist())])
        for maps, chosen in ((maps1, cells[0]), (maps2, cells[1]))
    ]
    expected, regulariser = [], 0.0
    for (source1, source2), (target1, target2) in (
        ((maps1.one, maps2.one), (maps1.five, maps2.five)),
        ((maps1.one, maps2.one), (maps1.seven, maps2.seven)),
        (sources, (maps1.five, maps2.five)),
    ):
        there, back = loop_cost(name, source1, target2), loop_cost(name, source2, target1)
        expected.append((there[0] + back[0]) / 2)
        regulariser += (there[1] + back[1]) / 2
    values = [value.item() for value in got]
    assert values == pytest.approx([sum(expected) + regulariser, *expected, regulariser], rel=1e-9)


def test_cpc_is_the_released_cross_entropy_up_to_a_constant() -> None:
    maps1, maps2 = drawn_maps(0), drawn_maps(1)
    got = GlobalToLocal("cpc")(maps1, maps2).one_to_seven
    losses = []
    for source, target in ((maps1.one, maps2.seven), (maps2.one, maps1.seven)):
        for i in range(3):
            scores = 20 * torch.tanh(torch.einsum("d,jdhw->jhw", source[i], target) / 6**0.5 / 20)
            others = torch.cat([scores[:i], scores[i + 1 :]]).flatten()
            for positive in scores[i].flatten():
                logits = torch.cat([positive[None], others])
                losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(0)))
    torch.testing.assert_close(got, torch.stack(losses).mean() - math.log(1 + 2 * 49))


def test_cells_are_drawn_from_the_generator() -> None:
    maps1, maps2 = drawn_maps(0, n=40), drawn_maps(1, n=40)
    cost = GlobalToLocal("pcc")
    seeded = [
        cost(maps1, maps2, generator=torch.Generator().manual_seed(s)).five_to_five
        for s in (3, 3, 4)
    ]
    assert seeded[0] == seeded[1] != seeded[2]
    cells = torch.randint(25, (2, 40), generator=torch.Generator().manual_seed(3))
    assert cost(maps1, maps2, cells=cells).five_to_five == seeded[0]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_half_precision_maps_are_scored_in_full(name: str) -> None:
    maps1, maps2 = (FeatureMaps(*(m.bfloat16() for m in drawn_maps(seed))) for seed in (0, 1))
    cells = torch.zeros(2, 3, dtype=torch.long)
    cost = GlobalToLocal(name)
    half = cost(maps1, maps2, cells=cells)
    assert half.total.dtype == torch.float32
    full = cost(*(FeatureMaps(*(m.double() for m in maps)) for maps in (maps1, maps2)), cells=cells)
    torch.testing.assert_close(half.total.double(), full.total, atol=2e-2, rtol=2e-2)


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'drfc'"):
        GlobalToLocal("drf")
    with pytest.raises(InputError, match=r"alpha=1.0 is outside"):
        GlobalToLocal("drfc", alpha=1.0)
    with pytest.raises(InputError, match="one image has no product"):
        GlobalToLocal("cpc")(drawn_maps(0, n=1), drawn_maps(1, n=1))


SPLITS = {"even": (2, 2), "uneven": (1, 3)}


def costs_and_gradients(name: str, rows: slice) -> tuple[Tensor, list[Tensor]]:
    leaves = [
        [m[rows].clone().requires_grad_() for m in drawn_maps(seed, n=4, width=5)]
        for seed in (0, 1)
    ]
    cells = torch.tensor([[0, 7, 24, 3], [13, 7, 4, 20]])[:, rows]
    got = GlobalToLocal(name)(*(FeatureMaps(*maps) for maps in leaves), cells=cells)
    got.total.backward()
    return torch.stack(list(got)).detach(), [leaf.grad for maps in leaves for leaf in maps]


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    results = {}
    for name in OBJECTIVES:
        for split, sizes in SPLITS.items():
            rows = slice(0, sizes[0]) if rank == 0 else slice(sizes[0], 4)
            results[name, split] = costs_and_gradients(name, rows)
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_are_one_with_the_joined_batch(tmp_path: Path) -> None:
    mp.spawn(worker, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert len(first) == 14
    for key, (values, gradients) in first.items():
        expected, whole = costs_and_gradients(key[0], slice(0, 4))
        others, rest = second[key]
        torch.testing.assert_close(values, expected, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(others, expected, atol=1e-12, rtol=1e-12)
        for one, two, joined in zip(gradients, rest, whole, strict=True):
            # World-size times the gradient: what the mean of DDP takes back.
            torch.testing.assert_close(torch.cat([one, two]) / 2, joined, atol=1e-12, rtol=1e-10)
