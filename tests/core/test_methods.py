"""The table of methods."""

import inspect
import itertools
import math

import pytest
import torch

from pointdep.core import objectives
from pointdep.core.methods import METHODS, PAPER_METHODS, Method, get_method
from refusals import refused

PAPER = {"cpc", "nwj", "js", "dv", "smile", "variational", "dm1", "dm2", "pc", "drf"}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
SCORES = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_keys():
    assert set(METHODS) == PAPER | {"drf_relative", "rpc", "smi", "mine"}
    assert sorted(PAPER_METHODS) == sorted(PAPER)
    assert all(key == method.key for key, method in METHODS.items())
    assert len({method.name for method in METHODS.values()}) == len(METHODS)


@every_method
def test_every_method_is_complete(method):
    assert isinstance(method, Method)
    for text in (method.name, method.identifies, method.learning, method.inferring):
        assert text.strip()
        assert text in (method.name, method.identifies) or text in method.equation
    for function in (method.objective, method.inference):
        value = function(SCORES, joint=None, product=None)
        assert value.shape == ()
        assert torch.isfinite(value)
        assert function(SCORES.expand(2, 6, 6)).shape == (2,)
    assert method.read_out(SCORES).shape == method.inverse(SCORES).shape == (6, 6)
    moved = torch.where(torch.eye(6, dtype=torch.bool), SCORES, SCORES + 0.5)
    changed = method.inference(moved).item() != method.inference(SCORES).item()
    assert changed == method.uses_product  # whether the product cells matter to inference


def test_what_each_method_lacks_or_needs_and_its_equation():
    smi, rpc = METHODS["smi"], METHODS["rpc"]
    assert smi.equation == "as drf (Eq. 6); squared-loss MI: 1/2 E_J[r] - 1/2"
    assert rpc.configure().equation == f"{rpc.learning}; {rpc.reading}; MI: E_J[log r]"
    lacks = {k: m.reference for k, m in METHODS.items() if m.reference != "none"}
    assert lacks == {"cpc": "row", "dv": "constant", "mine": "constant"}
    assert [k for k, m in METHODS.items() if m.bounded_by_batch] == ["cpc"]
    assert [k for k, m in METHODS.items() if m.gradient is not None] == ["mine"]
    ratios = {k for k, m in METHODS.items() if m.scores_ratio}
    assert ratios == {"drf", "drf_relative", "smi", "rpc"}
    assert {k for k, m in METHODS.items() if m.estimates != "mutual information"} == {"smi"}


@every_method
def test_options_are_bound_to_every_part_that_takes_them(method):
    """Changing an option changes some part, and each part takes its defaults from the options."""
    for name, value in method.options.items():
        other = not value if isinstance(value, bool) else (value + 0.1) / 2
        changed = method.configure(**{name: other})
        assert changed.options == {**method.options, name: other}
        names = ("objective", "read_out", "inverse", "inference", "gradient")
        parts = [getattr(changed, part) for part in names]
        bound = [part for part in parts if name in getattr(part, "keywords", {})]
        assert bound
        for part in bound:
            assert part.keywords[name] == other
            assert name in inspect.signature(part.func).parameters


def test_options_reach_the_numbers():
    relative = METHODS["drf_relative"].configure(alpha=0.4)
    assert relative.objective(SCORES).item() == objectives.drf(SCORES, alpha=0.4).item()
    smile = METHODS["smile"].configure(tau=0.5)
    assert smile.inference(SCORES).item() == objectives.smile_bound(SCORES, tau=0.5).item()
    dm1 = METHODS["dm1"].configure(lam=2.0)
    by_hand = SCORES.diagonal().mean().item() + math.log(2.0)
    assert dm1.inference(SCORES).item() == pytest.approx(by_hand)
    rpc = METHODS["rpc"].configure(b=0.3)
    assert rpc.objective(SCORES).item() == objectives.rpc(SCORES, b=0.3).item()
    _, state = METHODS["mine"].configure(floor=0.5).gradient(SCORES - 30, None)
    assert state.exp().item() == pytest.approx(0.5)
    edge = {"drf": {"alpha": 0}, "rpc": {"a": 0, "b": 0}, "mine": {"momentum": 0.99, "floor": 1e-8}}
    for key, options in edge.items():
        assert torch.isfinite(get_method(key, options).objective(SCORES))


@pytest.mark.parametrize("key", ["dm1", "dm2", "pc", "variational", "drf", "drf_relative", "rpc"])
def test_inference_is_the_mean_read_out_of_the_pairs(key):
    method = METHODS[key]
    scores = method.inverse(SCORES)
    joint = torch.rand(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    cells = itertools.product(range(6), range(6))
    by_hand = sum(joint[at].item() * method.read_out(scores[at]).item() for at in cells)
    value = method.inference(scores, joint=joint, product=torch.ones(6, 6))
    assert value.item() == pytest.approx(by_hand / joint.sum().item(), rel=1e-10)
    paired = method.inference(scores).item()
    assert paired == pytest.approx(method.read_out(scores.diagonal()).mean().item())


def test_configuring_twice_and_what_is_refused():
    twice = METHODS["rpc"].configure(a=0.2).configure(b=0.1)
    assert dict(twice.options) == {"a": 0.2, "b": 0.1, "c": 1.0, "floor": 1e-4}
    assert twice.objective(SCORES).item() == objectives.rpc(SCORES, a=0.2, b=0.1).item()
    assert METHODS["rpc"].options["a"] == 1.0
    assert METHODS["rpc"].objective(SCORES).item() == objectives.rpc(SCORES).item()
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["dv"]
    with pytest.raises(TypeError):
        METHODS["dm1"].options["lam"] = 2.0
    with pytest.raises(AttributeError):
        METHODS["dm1"].key = "dm3"
    refused("did you mean 'smile'", get_method, "smille")
    refused("did you mean 'drf'", get_method, "DRF")
    for unknown in (None, ["pc"], "zzzzzz"):
        refused("choose from cpc, dm1, dm2", get_method, unknown)
    refused("did you mean 'momentum'", get_method, "mine", {"momentun": 0.5})
    refused("'pc' has no options, got 'alpha'", get_method, "pc", {"alpha": 0.5})
    refused("unknown option of method 'smi' 'alpha'", get_method, "smi", {"alpha": 0.5})
    for key, name, values in (
        ("drf", "alpha", (1.0, -0.1)),
        ("drf", "floor", (0.0, 1.0)),
        ("dm1", "lam", (0.0, -1.0, "one", True, None)),
        ("dm2", "eta", (0.0, math.nan)),
        ("dm2", "corrected", (1, "no")),
        ("smile", "tau", (0.0, math.inf)),
        ("rpc", "c", (0.0,)),
        ("rpc", "b", (-0.1,)),
        ("mine", "momentum", (1.0, 0.0)),
    ):
        for value in values:
            refused(f"option {name}=", get_method, key, {name: value})
