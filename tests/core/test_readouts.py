"""Read-outs and their inverses; replicas of different methods side by side."""

import math

import pytest
import torch

from pointdep.core import readouts
from pointdep.core.methods import METHODS, get_method
from pointdep.core.ratio import MethodGroups

CONFIGURED = {
    **METHODS,
    "dm1 lam=0.3": METHODS["dm1"].configure(lam=0.3),
    "dm2 eta=0.2": METHODS["dm2"].configure(eta=0.2),
    "dm2 printed": METHODS["dm2"].configure(corrected=False),
    "drf alpha=0.5": METHODS["drf"].configure(alpha=0.5),
    "drf_relative alpha=0.9": METHODS["drf_relative"].configure(alpha=0.9),
    "rpc a=0": METHODS["rpc"].configure(a=0.0),
    "rpc b=0": METHODS["rpc"].configure(b=0.0),
    "rpc a=2 b=0.5 c=0.3": METHODS["rpc"].configure(a=2.0, b=0.5, c=0.3),
}
every_method = pytest.mark.parametrize("method", CONFIGURED.values(), ids=CONFIGURED)
LOG_RATIOS = torch.linspace(-8.0, 8.0, 161, dtype=torch.float64)


@every_method
def test_inverse_undoes_the_read_out(method):
    """And the gradients of both are those of finite differences."""
    scores = method.inverse(LOG_RATIOS)
    assert (scores.diff() > 0).all()
    assert (method.read_out(scores).diff() > 0).all()
    torch.testing.assert_close(method.read_out(scores), LOG_RATIOS, rtol=1e-9, atol=1e-9)
    single = method.read_out(method.inverse(LOG_RATIOS.float()))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, LOG_RATIOS.float(), rtol=0, atol=2e-3)
    log_ratios = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(method.inverse, (log_ratios,))
    scores = method.inverse(log_ratios).detach().requires_grad_()
    assert torch.autograd.gradcheck(method.read_out, (scores,))
    # Extreme scores read out finite.
    scores = torch.tensor([-1e30, -80.0, -1.0, 0.0, 1e-30, 1.0, 80.0, 1e30])
    bounded = method.read_out(scores)
    assert torch.isfinite(bounded).all()
    if method.scores_ratio:
        assert bounded.min() >= 2 * math.log(1e-4)
        if method.options.get("alpha") or method.key == "rpc":
            assert bounded.max() <= -math.log(1e-4) + 1e-2


@pytest.mark.parametrize(
    ("read_out", "by_hand"),
    [
        (METHODS["pc"].read_out, lambda s: s),
        (readouts.nwj, lambda s: s - 1),
        (lambda s: readouts.dm1(s, lam=3.0), lambda s: s + math.log(3)),
        (lambda s: readouts.dm2(s), lambda s: s - 0.5),
        (lambda s: readouts.dm2(s, eta=2.0), lambda s: s - 0.25),
        (lambda s: readouts.dm2(s, eta=2.0, corrected=False), lambda s: s),
        (readouts.drf, math.log),
        (lambda s: readouts.drf(s, alpha=0.3), lambda s: math.log(0.7 * s / (1 - 0.3 * s))),
        (
            lambda s: readouts.rpc(s, a=0.5, b=0.2, c=2.0),
            lambda s: math.log((0.5 + 2 * s) / (1 - 0.2 * s)),
        ),
    ],
)
def test_equations(read_out, by_hand):
    scores = torch.tensor([0.2, 1.0, 2.5], dtype=torch.float64)
    expected = torch.tensor([by_hand(s) for s in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(read_out(scores), expected, rtol=1e-12, atol=1e-12)


def test_limits():
    """At s = 1/alpha the relative ratio is infinite; it is held at 1/floor."""
    for floor in (1e-4, 1e-2):
        scores = torch.tensor([-3.0, 0.0, floor / 2, 2 * floor], dtype=torch.float64)
        wanted = [math.log(floor)] * 3 + [math.log(2 * floor)]
        assert readouts.drf(scores, floor=floor).tolist() == pytest.approx(wanted)
    for alpha in (0.01, 0.3, 0.9):
        scores = torch.tensor([1 / alpha, 1 / alpha + 1, 1e6], dtype=torch.float64)
        read = readouts.drf(scores, alpha=alpha, floor=1e-3)
        assert read.tolist() == pytest.approx([math.log(1e3)] * 3, abs=1e-6)
        large = torch.tensor([50.0, 700.0], dtype=torch.float64)
        assert readouts.drf_inverse(large, alpha=alpha).tolist() == pytest.approx([1 / alpha] * 2)
    scores = torch.tensor([-1e6, -1.0, 200.0, 1e6], dtype=torch.float64)
    read = readouts.rpc(scores, floor=1e-3)
    assert read.tolist() == pytest.approx([math.log(1e-3)] * 2 + [math.log(1e3)] * 2, abs=1e-6)
    far = torch.tensor([-500.0, 500.0])  # without overflow
    assert readouts.rpc_inverse(far).tolist() == pytest.approx([-1.0, 200.0])
    assert readouts.drf_inverse(far, alpha=0.2).tolist() == pytest.approx([0.0, 5.0])


ORDERS = {
    "one method": ["pc", "pc", "pc"],
    "one replica": ["dv"],
    "all different": ["dv", "pc", "cpc"],
    "in blocks": ["dv", "dv", "pc", "pc"],
    "in turns": ["dv", "pc", "cpc", "dv", "pc", "cpc"],
    "not evenly spaced": ["pc", "pc", "dv", "pc", "cpc", "dv", "dv", "pc"],
    "a method comes back once": ["dv", "pc", "pc", "dv"],
}


def scores_of(replicas):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(replicas, 5, 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("keys", ORDERS.values(), ids=ORDERS)
def test_as_one_replica_after_another(keys):
    methods, scores = [get_method(key) for key in keys], scores_of(len(keys)).requires_grad_()
    groups = MethodGroups(methods)
    found = groups.apply(lambda method, part: method.objective(part), scores)
    alone = torch.stack([m.objective(part) for m, part in zip(methods, scores, strict=True)])
    torch.testing.assert_close(found, alone)
    weights = torch.arange(1.0, len(keys) + 1, dtype=torch.float64)
    grad, wanted = (torch.autograd.grad(values, scores, weights)[0] for values in (found, alone))
    torch.testing.assert_close(grad, wanted)
    # A second time, as an engine does.
    assert torch.equal(groups.apply(lambda method, part: method.objective(part), scores), found)
    # Each method is asked once, for its own replicas.
    seen, values = [], torch.arange(2.0 * len(keys)).view(-1, 2)

    def record(method, part):
        seen.append((method.key, part[:, 0].tolist()))
        return part

    assert torch.equal(groups.apply(record, values), values)
    assert seen == [
        (key, [2.0 * row for row, other in enumerate(keys) if other == key])
        for key in dict.fromkeys(keys)
    ]


def test_methods_with_other_options_and_no_copies():
    one, other = get_method("dm2", {"eta": 0.5}), get_method("dm2", {"eta": 2.0})
    groups = MethodGroups([one, other, get_method("dm2", {"eta": 0.5})])
    assert groups.methods == (one, other)
    found = groups.apply(lambda method, part: method.inference(part), torch.zeros(3, 4, 4))
    torch.testing.assert_close(found, torch.tensor([-1.0, -0.25, -1.0]))
    # Evenly spaced replicas are not copied: an index would have to be brought to a GPU.
    values, shared = scores_of(6), []

    def record(method, part):
        shared.append(part.untyped_storage().data_ptr() == values.untyped_storage().data_ptr())
        return part

    MethodGroups([get_method(key) for key in ("pc", "dv", "cpc") * 2]).apply(record, values)
    assert shared == [True] * 3
