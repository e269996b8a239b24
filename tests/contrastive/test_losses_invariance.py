"""What must not change a loss, and how its read-out behaves."""

import doctest

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pointdep.contrastive import losses
from pointdep.contrastive.losses import similarity
from pointdep.core.methods import METHODS
from refusals import refused

from .losses_by_hand import LOSSES, made, pairs

names = st.sampled_from(sorted(LOSSES))
layouts = st.tuples(st.sampled_from(["cross", "all"]), st.booleans())
seeds = st.integers(0, 2**20)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(names, layouts, seeds, st.integers(4, 12), st.floats(1e-3, 1e3))
def test_what_does_not_change_the_value(name, layout, seed, n, factor):
    z1, z2 = pairs(n, 4, seed=seed)
    options = {"negatives": layout[0], "symmetric": layout[1]}
    loss, free = made(name, **options), made(name, **options, normalize=False)
    groups, order = torch.arange(n) // 2, torch.randperm(n)
    value = loss(z1, z2, groups)
    close(value, loss(z1[order], z2[order], groups[order]))  # the order of the pairs
    close(value, loss(z1, z2, -7 * groups + 3))  # the names of the groups
    turn = torch.linalg.qr(pairs(4, 4, seed + 1)[0].detach()).Q
    close(value, loss(z1 @ turn, z2 @ turn, groups))  # a rotation of both sides
    lengths = torch.linspace(1, 3, n, dtype=torch.float64).unsqueeze(1)
    close(value, loss(factor * z1, lengths * z2, groups))  # the lengths of rows
    assert not torch.equal(free(z1, z2), free(z1, 2 * z2))
    if layout[1]:  # both ways, the inner product knows no first side
        close(value, loss(z2, z1, groups))


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "cpc"])
def test_pmi_is_the_read_out(name):
    z1, z2 = pairs(9)
    loss = made(name)
    value, matrix = loss.pmi(z1, z2), loss.pmi_matrix(z1, z2[:4])
    assert (value.shape, matrix.shape, value.requires_grad) == ((9,), (9, 4), False)
    method = METHODS[LOSSES[name][0].method_key].configure(**LOSSES[name][1])
    multiplier = 10 if name in ("drfc", "rpc") else 5
    close(value, method.read_out(multiplier * F.cosine_similarity(z1, z2)).detach())
    close(matrix.diagonal(), value[:4])
    close(loss.pmi(z1[:1], z2[:1]), value[:1])  # who sits beside it does not matter


def test_pmi_of_cpc_is_normalised_over_the_reference():
    z1, z2 = pairs(9)
    loss = losses.CPCLoss()
    refused("set_reference", loss.pmi, z1, z2)
    _, reference = pairs(40, seed=3)
    scores = F.normalize(z1, dim=1) @ F.normalize(reference, dim=1).T / 0.5
    expected = F.cosine_similarity(z1, z2).detach() / 0.5 - scores.exp().mean(1).log().detach()
    close(loss.pmi(z1, z2, reference), expected)
    loss.set_reference(reference)
    close(loss.pmi(z1, z2), expected)
    close(loss.pmi_matrix(z1, reference).exp().mean(1), torch.ones(9, dtype=torch.float64))
    close(loss.pmi_matrix(z1, z2).diagonal(), expected)
    fresh = losses.CPCLoss()
    fresh.load_state_dict(loss.state_dict())
    close(fresh.pmi(z1, z2), expected)
    refused("reference has 2", loss.pmi, z1, z2, reference[:, :2])


@pytest.mark.parametrize("critic", ["inner", "concat"])
def test_read_out_in_blocks(critic, monkeypatch):
    z1, z2 = pairs(9)
    loss = made("cpc", critic=critic, dims=3)
    loss.set_reference(z2)
    whole, paired = loss.pmi_matrix(z1, z2), loss.pmi(z1, z2)
    for name, value in (("_WHOLE", 1), ("_ROWS", 20), ("best_cells", lambda _: 20)):
        monkeypatch.setattr(similarity, name, value)
    close(loss.pmi_matrix(z1, z2), whole)
    close(loss.pmi(z1, z2), paired)


def test_examples_of_the_docstrings():
    result = doctest.testmod(losses)
    assert result.attempted >= 7 * 4
    assert result.failed == 0


def test_scores_find_the_ratio():
    """Trained on pairs of known r, each loss reads out log r: two symbols that mostly agree."""
    table = torch.tensor([[0.9, 0.1], [0.1, 0.9]]) * 2  # r, of even margins
    torch.manual_seed(0)
    x = torch.arange(4000) % 2
    y = torch.where(torch.rand(4000) < 0.9, x, 1 - x)
    codes = F.one_hot(x, 2).float(), F.one_hot(y, 2).float()
    for name, (kind, _) in LOSSES.items():
        loss = kind(critic="bilinear", dims=2, block_size=4000)
        optimiser = torch.optim.LBFGS(loss.parameters(), max_iter=40)

        def closure(loss=loss, optimiser=optimiser):
            optimiser.zero_grad()
            value = loss(codes[0][:400], codes[1][:400])
            value.backward()
            return value

        optimiser.step(closure)
        if name == "cpc":
            loss.set_reference(codes[1])
        found = loss.pmi_matrix(torch.eye(2), torch.eye(2)).exp()
        torch.testing.assert_close(found, table, atol=0.15, rtol=0)
