"""Each loss against loops, the core objectives and itself; what must not change it; collapse."""

import doctest
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pointdep.contrastive import losses
from pointdep.contrastive.losses import joined_batch
from pointdep.contrastive.losses.contrastive_loss import spread
from pointdep.contrastive.losses.joined_batch import JoinedBatch
from pointdep.core import objectives
from pointdep.core.blocked import sums
from pointdep.core.critics.concat import ConcatCritic
from pointdep.core.methods import METHODS
from pointdep.core.precision import full_float32
from pointdep.errors import MEANINGS
from refusals import refused

from .losses_by_hand import CRITICS, LOSSES, Distance, assert_same, by_hand, gradients, made, pairs

GROUPS = [0, 1, 0, 2, 3, 1]
LAYOUTS = list(itertools.product(["cross", "all"], [True, False]))


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["no groups", "groups"])
@pytest.mark.parametrize(("negatives", "symmetric"), LAYOUTS)
@pytest.mark.parametrize("name", LOSSES)
def test_by_hand(name, negatives, symmetric, groups):
    """Few columns, so that D-RFC and RPC go by Gram matrices, and more columns than rows."""
    for critic, clip, columns in itertools.product(CRITICS, [None, 2], [3, 8]):
        z1, z2 = pairs(6, columns)
        options = {"clip": clip, "negatives": negatives, "symmetric": symmetric}
        loss = made(name, critic=critic, dims=columns, **options)
        expected = by_hand(name, loss, critic, z1, z2, groups)
        value = loss(z1, z2, None if groups is None else torch.tensor(groups))
        assert_same(value, expected, [z1, z2, *loss.parameters()])


def test_usual_losses_are_cross_entropies():
    """SimCLR's NT-Xent and CLIP's loss, up to the log of the number of candidates."""
    z1, z2 = pairs(9, 4)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    logits = (z @ z.T / 0.3).masked_fill(torch.eye(18, dtype=torch.bool), -torch.inf)
    nt_xent = F.cross_entropy(logits, torch.arange(18).roll(9))
    loss = losses.CPCLoss(temperature=0.3, negatives="all")(z1, z2)
    assert_same(loss + math.log(17), nt_xent, [z1, z2])
    logits, labels = F.normalize(z1, dim=1) @ F.normalize(z2, dim=1).T / 0.07, torch.arange(9)
    clip = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    assert_same(losses.CPCLoss(temperature=0.07)(z1, z2) + math.log(9), clip, [z1, z2])


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("negatives", ["cross", "all"])
@pytest.mark.parametrize("name", LOSSES)
def test_blocks(name, negatives, rows):
    z1, z2 = pairs(11, 3)
    for critic, own in itertools.product(("inner", "concat"), (None, torch.arange(11) // 2)):
        loss, values = made(name, critic=critic, dims=3, negatives=negatives, clip=5.0), []
        for loss.block_size in (100, rows):
            values.append(loss(z1, z2, own))
        assert_same(*values, [z1, z2, *loss.parameters()], 1e-10)


@pytest.mark.parametrize("critic", ["inner", "concat"])
def test_auto_blocks(critic, monkeypatch):
    """Above so many numbers, the matrix is walked in blocks; only then is anything made twice."""
    z1, z2 = pairs(50)
    seen = []
    place, name = (sums, "_matmul") if critic == "inner" else (ConcatCritic, "matrix")
    made_matrix = getattr(place, name)

    def watched(*given):
        seen.append(given[-2].shape[-2])
        return made_matrix(*given)

    monkeypatch.setattr(place, name, watched)
    loss = made("cpc", critic=critic, dims=3)
    whole = loss(z1, z2)
    assert seen == [50]
    width = loss.scores.critic.cell_width() if critic == "concat" else 1
    for name, value in (("_WHOLE", 1000), ("_ROWS", 500 * width), ("best_cells", lambda _: 500)):
        monkeypatch.setattr(joined_batch, name, value)
    parts, count = loss(z1, z2), len(seen) - 1
    assert count >= 5
    assert_same(whole, parts, [z1, z2])
    assert len(seen) == 1 + 2 * count  # computed again in backward
    torch.testing.assert_close(loss(z1.detach(), z2.detach()), whole.detach())


@pytest.mark.parametrize("critic", ["inner", "bilinear", "separable"])
@pytest.mark.parametrize(("negatives", "symmetric"), LAYOUTS)
@pytest.mark.parametrize("name", ["drfc", "rpc"])
def test_identity(name, negatives, symmetric, critic, monkeypatch):
    z1, z2 = pairs(130, 4)
    options = {"critic": critic, "dims": 4, "negatives": negatives, "symmetric": symmetric}
    loss = made(name, learn_scale=True, **options)
    applies, used = JoinedBatch.identity_applies, []
    few, crowded = torch.arange(130) // 3, torch.arange(130) % 2
    for groups, expected in ((None, True), (few, True), (crowded, False)):
        monkeypatch.setattr(
            JoinedBatch, "identity_applies", lambda b: used.append(applies(b)) or used[-1]
        )
        value = loss(z1, z2, groups)
        assert used.pop() is expected
        monkeypatch.setattr(JoinedBatch, "identity_applies", lambda _: False)
        assert_same(value, loss(z1, z2, groups), [z1, z2, *loss.parameters()])


def test_identity_in_float32_and_the_setting_of_tf32():
    z1, z2 = (z.detach().float().requires_grad_() for z in pairs(600, 16))
    wide = [z.detach().double().requires_grad_() for z in (z1, z2)]
    value = losses.DRFCLoss()(z1, z2)
    exact = -objectives.drf(10 * F.normalize(wide[0], dim=1) @ F.normalize(wide[1], dim=1).T)
    assert abs(value.item() - exact.item()) < 1e-5 * abs(exact.item())
    for a, b in zip(gradients(value, z1, z2), gradients(exact, *wide), strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5 * float(b.abs().max()), rtol=0)
    matmul, before = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with full_float32():
            assert matmul.fp32_precision == "ieee"
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = "tf32"
        with full_float32():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = "ieee"
        torch.set_float32_matmul_precision(before)


def test_one_large_group_one_alone_and_an_infinite_score(monkeypatch):
    z1, z2 = pairs(4)
    groups = torch.tensor([0, 0, 0, 1])
    for name in LOSSES:
        assert all(g.isfinite().all() for g in gradients(made(name)(z1, z2, groups), z1, z2))
        refused("one group", made(name), z1, z2, torch.zeros(4, dtype=torch.int64))
    # As on a device, where the groups are not looked at.
    monkeypatch.setattr(joined_batch, "_can_look", lambda _: False)
    for name, (negatives, symmetric) in itertools.product(LOSSES, LAYOUTS):
        loss = made(name, negatives=negatives, symmetric=symmetric)
        assert loss(z1, z2, torch.zeros(4, dtype=torch.int64)).isnan()
        assert [flag.name for flag in loss.flags] == ["diverged"]

    class Infinite(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x * y).sum(-1) / 0.0 if len(x) == 3 else (x * y).sum(-1)

    assert not losses.CPCLoss(critic=Infinite())(torch.eye(3), torch.eye(3)).isfinite()


def test_learned_scale_and_users_critics():
    z1, z2 = pairs(6)
    loss = losses.CPCLoss(temperature=0.25, learn_scale=True).double()
    assert loss.temperature == pytest.approx(0.25)
    (log_multiplier,) = loss.parameters()
    step = 1e-6
    (gradient,) = gradients(loss(z1, z2), log_multiplier)
    up = losses.CPCLoss(temperature=0.25 * torch.e**-step)(z1, z2)
    down = losses.CPCLoss(temperature=0.25 * torch.e**step)(z1, z2)
    assert gradient.item() == pytest.approx((up - down).item() / (2 * step), rel=1e-6)
    assert losses.DRFCLoss(scale=3.0, learn_scale=True).scale == pytest.approx(3.0)
    assert losses.DRFCLoss(scale=3.0).state_dict().keys() == set()
    critic = Distance()
    scores = -critic.rate * torch.cdist(z1, z2).square()
    value = losses.PCCLoss(critic=critic)(z1, z2)
    assert_same(value, -objectives.js(scores), [z1, z2, critic.rate])
    first, second = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    loss, scores = losses.DRFCLoss(critic=(first, second)), first(z1) @ second(z2).T
    assert_same(loss(z1, z2), -objectives.drf(scores), [z1, z2, first.weight, second.bias])
    assert {id(p) for p in loss.parameters()} >= {id(first.weight), id(second.weight)}


def test_dropout_in_a_critic_is_drawn_once():
    """Computed again in backward, a block must see the same random numbers."""

    class Dropped(Distance):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return super().forward(F.dropout(x, 0.5), y)

    z1, z2 = (torch.ones(8, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    found = []
    for rows, later in ((100, 0), (8, 0), (3, 0), (3, 1)):
        torch.manual_seed(0)
        value = losses.PCCLoss(critic=Dropped(), block_size=rows)(z1, z2)
        torch.manual_seed(later)  # the state at backward may be another one
        found.append((value, *gradients(value, z1, z2)))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[2], found[3])


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
        monkeypatch.setattr(joined_batch, name, value)
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


def flagged(loss: losses.ContrastiveLoss, *rows: torch.Tensor) -> list[str]:
    """The flags of the loss after these rows."""
    loss(*rows)
    return [flag.name for flag in loss.flags]


@pytest.mark.parametrize("name", LOSSES)
def test_constant_representations(name):
    loss = made(name).float()
    assert math.isnan(loss.spread)
    assert loss.flags == ()
    good, constant = torch.randn(32, 8), torch.randn(1, 8).expand(32, 8)
    assert flagged(loss, good, good + 0.1 * torch.randn(32, 8)) == []
    assert loss.spread > 0.5
    half = constant.to(torch.bfloat16)
    for z1, z2 in ((constant, constant), (good, constant), (constant, good), (half, half)):
        assert flagged(loss, z1, z2) == ["collapsed"]
        assert loss.spread < 1e-10
        assert MEANINGS["collapsed"] in str(loss.flags[0])
    assert flagged(loss, good, good) == []
    zeros = torch.zeros(6, 3, requires_grad=True)
    value = loss(zeros, torch.randn(6, 3))
    value.backward()
    assert value.isfinite()
    assert zeros.grad.isfinite().all()
    assert flagged(loss, zeros, torch.randn(6, 3)) == ["collapsed"]


def test_direction_scale_divergence_and_spread():
    rows = torch.linspace(1, 3, 32).unsqueeze(1) * torch.randn(1, 8)
    assert flagged(losses.CPCLoss(), rows, rows) == ["collapsed"]
    assert flagged(losses.CPCLoss(critic="bilinear", dims=8), rows, rows) == []
    rows, loss = torch.randn(64, 8), losses.PCCLoss(normalize=False, temperature=1e30)
    for factor in (1e-12, 1.0, 1e12):
        assert flagged(loss, factor * rows, factor * rows) == []
    loss = losses.PCCLoss(critic="concat", dims=8)
    far = rows + 1000.0  # a critic with weights can still tell them apart
    assert flagged(loss, far, far) == []
    rounded = torch.full((64, 8), 0.1) * (1 + 1e-7 * torch.randn(64, 8))
    assert flagged(loss, rounded, rounded) == ["collapsed"]
    rows, loss = torch.randn(8, 3), losses.DM1Loss(normalize=False)
    assert flagged(loss, rows, rows) == []
    assert flagged(loss, 1e3 * rows, 1e3 * rows) == ["diverged"]
    assert spread(torch.tensor([[1.0, 2.0], [3.0, 2.0]])).item() == pytest.approx(2 / 18)
    assert spread(torch.tensor([[1.0, -1.0], [-1.0, 1.0]])).item() == pytest.approx(1.0)  # centred
