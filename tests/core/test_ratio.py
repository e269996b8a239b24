"""Replicas of different methods side by side, against a loop over the replicas."""

import pytest
import torch

from pointdep.core.methods import get_method
from pointdep.core.ratio import MethodGroups

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
