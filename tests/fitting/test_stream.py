"""Training on samples that are drawn as they are needed."""

import math
from types import SimpleNamespace

import pytest
import torch

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.methods import get_method
from pointdep.fitting.sampler import StreamEngine
from refusals import refused

RHO = 0.9
TRUE = -math.log(1 - RHO**2)  # of two dimensions, in nats


def gaussians(replicas, rows=32, *, seed=0, dtype=torch.float32):
    """A draw of pairs in two dimensions, other ones at every call."""
    generator = torch.Generator().manual_seed(seed)

    def draw(step):
        x, noise = torch.randn(2, replicas, rows, 2, generator=generator, dtype=dtype)
        return x, RHO * x + math.sqrt(1 - RHO**2) * noise

    return draw


def critic_of(replicas, critic="concat", hidden=(16, 16)):
    made = build_critic(critic, replicas, 2, 2, hidden=hidden, embedding_dim=8, activation="relu")
    made.reset(replica_generators(0, replicas))
    return made


def engine(methods=("pc", "js"), draw=None, critic="concat", hidden=(16, 16), **options):
    made, draw = critic_of(len(methods), critic, hidden), draw or gaussians(len(methods))
    return StreamEngine(made, [get_method(key) for key in methods], draw, **options)


class TestLearning:
    def test_mutual_information_of_gaussians_and_steps(self):
        methods = ("pc", "variational", "dm1")
        run = engine(methods, gaussians(3, 64), hidden=(32, 32), learning_rate=5e-3)
        values = run.run(300).values
        assert values.shape == (300, 3)
        for replica in range(3):
            assert values[-100:, replica].mean().item() == pytest.approx(TRUE, abs=0.1)
            assert abs(values[:5, replica].mean().item() - TRUE) > 0.5
        seen, told, inner = [], [], gaussians(2)

        def draw(step):
            seen.append(step.tolist())
            return inner(step)

        run = engine(draw=draw)
        run.run(4, SimpleNamespace(update=lambda *what: told.append(what)))
        run.run(2)
        assert seen == [[0], [1], [2], [3], [0], [1]]
        assert told == [(done, 4, "iterations") for done in range(1, 5)]

    def test_as_with_an_optimiser_on_the_parameters(self):
        """Another learning rate, other critic and methods than the figure's own."""
        methods = ("rpc", "drf_relative", "rpc")
        draws = [gaussians(3, dtype=torch.float64) for _ in range(2)]
        run = engine(methods, draws[0], "bilinear", learning_rate=0.05, precision="float64")
        plain, draw = critic_of(3, "bilinear").double(), draws[1]
        optimizer = torch.optim.Adam(plain.parameters(), lr=0.05)
        for values in run.run(15).values:
            scores = plain.matrix(*draw(None))
            each = [(get_method(key), part) for key, part in zip(methods, scores, strict=True)]
            wanted = torch.stack([method.inference(part) for method, part in each])
            torch.testing.assert_close(values, wanted.detach(), rtol=1e-9, atol=1e-9)
            optimizer.zero_grad()
            (-sum(method.objective(part) for method, part in each)).backward()
            optimizer.step()


def test_refusals():
    refused("running state", engine, ("pc", "mine"))
    refused("unknown precision 'fp32': did you mean 'tf32'", engine, precision="fp32")


@pytest.mark.parametrize("methods", [("pc",), ("pc", "drf", "variational")])
@pytest.mark.parametrize("hidden", [(16,), (16, 16), (16, 16, 16)], ids=str)
@pytest.mark.parametrize("critic", ["concat", "separable"])
def test_read_outs_are_in_float32_also_where_products_are_not(critic, hidden, methods):
    values = engine(methods, None, critic, hidden, precision="bf16").run(3).values
    assert values.isfinite().all()
    # bfloat16 has 8 digits: a mean read out in it would be one of its numbers.
    assert (values != values.bfloat16().float()).any()


@pytest.fixture(params=["highest", "high", "medium"])
def setting(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("precision", "products"),
    [("float32", "highest"), ("float64", "highest"), ("tf32", "high"), ("bf16", "high")],
)
def test_precisions(precision, products, setting):
    """Types of a run; torch's setting of products is that of the run, and then what it was."""
    seen, dtype = [], torch.float64 if precision == "float64" else torch.float32
    inner = gaussians(2, dtype=dtype)

    def draw(step):
        seen.append(torch.get_float32_matmul_precision())
        if len(seen) == 4:
            raise KeyboardInterrupt
        return inner(step)

    run = engine(draw=draw, precision=precision)
    assert run.run(3).values.dtype == dtype
    assert {parameter.dtype for parameter in run.critic.parameters()} == {dtype}
    assert run.critic.pair_dtype == (torch.bfloat16 if precision == "bf16" else dtype)
    assert torch.get_float32_matmul_precision() == setting
    with pytest.raises(KeyboardInterrupt):
        run.run(1)
    assert (seen, torch.get_float32_matmul_precision()) == ([products] * 4, setting)
