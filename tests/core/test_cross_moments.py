"""Canonical analysis by sums, against that of the rows themselves."""

from __future__ import annotations

import pytest
import torch

from pointdep.core import linear
from pointdep.core.linear import CrossMoments, canonical_correlations, canonical_from_moments


def rows(count, dx, dy, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    sides = []
    for dim in (dx, dy):
        mixing = torch.randn(2, dim, generator=generator, dtype=torch.float64)
        sides.append(3.0 + z @ mixing + torch.randn(count, dim, generator=generator).double())
    return sides


@pytest.mark.parametrize(
    ("count", "dx", "dy"), [(500, 4, 3), (400, 2, 6), (1000, 210, 5), (60, 30, 8)]
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_the_same_as_of_the_rows(count, dx, dy, pieces):
    x, y = rows(count, dx, dy)
    wanted = canonical_correlations(x, y)
    parts = linear.part_count(dx, dy)
    number, draws = linear._parts(count, parts, None)
    sums = []
    for part in range(parts):
        one = CrossMoments.zero(dx + dy, torch.device("cpu"))
        for some in torch.cat([x, y], 1)[number == part].chunk(pieces):
            one = one.add_(some)
        sums.append(one)
    found = canonical_from_moments(sums, dx, draws)
    torch.testing.assert_close(found.correlations, wanted.correlations, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.x_mean, wanted.x_mean)
    k = int((wanted.correlations > 0.05).sum())
    for got, want in ((found.x_weight, wanted.x_weight), (found.y_weight, wanted.y_weight)):
        sign = (got[:, :k] * want[:, :k]).sum(0).sign()
        torch.testing.assert_close(got[:, :k] * sign, want[:, :k], rtol=1e-5, atol=1e-7)


def test_one_part_alone_has_nothing_left_out():
    x, y = rows(200, 3, 3)
    one = CrossMoments.zero(6, torch.device("cpu")).add_(torch.cat([x, y], 1))
    assert not canonical_from_moments([one], 3, 200).correlations.any()
