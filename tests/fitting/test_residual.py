"""Whether the default critic's network stays."""

import math

import pytest
import torch

from pointdep.fitting import closed_form as residual
from pointdep.fitting.batches import SplitRows, held_out_cells
from pointdep.fitting.closed_form import closed_form_only, drop_unproven_network

from .closed_forms import closed_form, gaussians, shout, split_of

SPLITS = [split_of(200, 45, 5), split_of(200, 45, 5, start=250)]


def network_output(model, x, y):
    """What the network adds to log r: (R, n)."""
    pairs = [side[None].expand(model.replicas, *side.shape) for side in (x, y)]
    return model.log_ratio_pairs(*pairs) - closed_form_only(model).log_ratio_pairs(*pairs)


@pytest.mark.parametrize("groups", [None, torch.arange(500) // 3])
def test_the_loss_of_a_row_by_hand(groups):
    x, y = gaussians(500)
    model = closed_form(x, y, SPLITS)
    shout(model, 0, 0.5)
    one, rows = model.select([0]), SPLITS[0].stop
    cells, index = held_out_cells(x, y, [rows], block=16, seed=3, groups=groups)
    found = dict(
        zip(index[0][index[0] >= 0].tolist(), residual._losses(one, cells).tolist(), strict=True)
    )
    assert sorted(found) == rows.tolist()
    for block in index[0].reshape(-1, 16):
        members = block[block >= 0]
        matrix = one.log_ratio_matrix(x[members][None], y[members][None])[0].detach()
        for i, row in enumerate(members.tolist()):
            others = [
                j
                for j, other in enumerate(members.tolist())
                if j != i and (groups is None or groups[other] != groups[row])
            ]
            # The classifier of one pair against so many others.
            odds = math.log(len(others))
            wanted = math.log1p(math.exp(odds - float(matrix[i, i])))
            wanted += sum(math.log1p(math.exp(float(matrix[i, j]) - odds)) for j in others)
            assert found[row] == pytest.approx(wanted, rel=1e-9)


def test_noise_goes_from_all_replicas():
    x, y = gaussians(500)
    model = closed_form(x, y, SPLITS)
    shout(model, 0, 0.5)
    shout(model, 1, 0.5, seed=1)
    assert network_output(model, x, y).abs().mean() > 0.05
    assert not drop_unproven_network(model, SplitRows(x, y, SPLITS))
    assert not network_output(model, x, y).any()


def test_a_network_that_helps_stays():
    """The closed form is made wrong by a constant, and the network's bias mends it."""
    x, y = gaussians(500)
    model = closed_form(x, y, SPLITS)
    model.constant += 1.0
    model.critic.net.rest.layers[-1].bias.data += 1.0
    before = network_output(model, x, y)
    torch.testing.assert_close(before, torch.ones_like(before))
    assert drop_unproven_network(model, SplitRows(x, y, SPLITS))
    torch.testing.assert_close(network_output(model, x, y), before)


def test_rows_of_one_group_are_one_draw():
    """Against the spread of group means, in groups of one size, and that of single rows."""
    random = torch.Generator().manual_seed(0)
    gain = torch.randn(12, generator=random, dtype=torch.float64)
    plain = float(gain.std()) / math.sqrt(12)
    assert residual._error_of_mean(gain, torch.arange(12) + 7) == pytest.approx(plain)
    copies, groups = gain.repeat_interleave(5), torch.arange(12).repeat_interleave(5)
    assert residual._error_of_mean(copies, groups) == pytest.approx(plain)
    assert residual._error_of_mean(copies, torch.arange(60)) < 0.5 * plain
    assert residual._error_of_mean(gain[:1], torch.zeros(1)) == math.inf
    assert residual._error_of_mean(gain, torch.zeros(12)) == math.inf
