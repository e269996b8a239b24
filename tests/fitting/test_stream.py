"""Training on samples that are drawn as they are needed."""

from __future__ import annotations

import math

import pytest
import torch

from pointdep.core.critics import build_critic, replica_generators
from pointdep.core.methods import get_method
from pointdep.errors import InputError
from pointdep.fitting.sampler import StreamEngine

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
    made = critic_of(len(methods), critic, hidden)
    return StreamEngine(
        made, [get_method(key) for key in methods], draw or gaussians(len(methods)), **options
    )


class Told:
    """Keeps what a progress is told."""

    def __init__(self):
        self.updates = []

    def update(self, done, total, detail=""):
        self.updates.append((done, total, detail))


class TestLearning:
    def test_mutual_information_of_gaussians(self):
        methods = ("pc", "variational", "dm1")
        run = engine(methods, gaussians(3, 64), hidden=(32, 32), learning_rate=5e-3)
        values = run.run(400).values
        assert values.shape == (400, 3)
        for replica in range(3):
            assert values[-100:, replica].mean().item() == pytest.approx(TRUE, abs=0.1)
            assert abs(values[:5, replica].mean().item() - TRUE) > 0.5

    def test_the_step_is_counted_from_zero(self):
        seen, inner = [], gaussians(2)

        def draw(step):
            assert step.shape == (1,)
            seen.append(step.item())
            return inner(step)

        run = engine(draw=draw)
        run.run(4)
        run.run(2)
        assert seen == [0, 1, 2, 3, 0, 1]

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


class TestInputs:
    def test_a_method_with_a_state_is_refused(self):
        with pytest.raises(InputError, match="running state"):
            engine(("pc", "mine"))

    def test_a_precision_that_is_none_is_refused(self):
        with pytest.raises(InputError, match="unknown precision 'fp32': did you mean 'tf32'"):
            engine(precision="fp32")

    @pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "float64"])
    def test_types(self, precision):
        dtype = torch.float64 if precision == "float64" else torch.float32
        run = engine(draw=gaussians(2, dtype=dtype), precision=precision)
        assert run.run(3).values.dtype == dtype
        assert {parameter.dtype for parameter in run.critic.parameters()} == {dtype}
        assert run.critic.pair_dtype == (torch.bfloat16 if precision == "bf16" else dtype)

    @pytest.mark.parametrize("methods", [("pc",), ("pc", "drf", "variational")])
    @pytest.mark.parametrize("hidden", [(16,), (16, 16), (16, 16, 16)], ids=str)
    @pytest.mark.parametrize("critic", ["concat", "separable"])
    def test_read_outs_are_in_float32_also_where_products_are_not(self, critic, hidden, methods):
        run = engine(methods, None, critic, hidden, precision="bf16")
        values = run.run(3).values
        assert values.isfinite().all()
        # bfloat16 has 8 digits: a mean read out in it would be one of its numbers.
        assert (values != values.bfloat16().float()).any()


class TestProgress:
    def test_is_told_of_every_step(self):
        told = Told()
        engine().run(5, told)
        assert told.updates == [(done, 5, "iterations") for done in range(1, 6)]


class TestMatrixProducts:
    """The setting of torch is that of the run, and afterwards what it was."""

    @pytest.fixture(params=["highest", "high", "medium"])
    def setting(self, request):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(request.param)
        yield request.param
        torch.set_float32_matmul_precision(before)

    @pytest.mark.parametrize(
        ("precision", "wanted"),
        [("float32", "highest"), ("float64", "highest"), ("tf32", "high"), ("bf16", "high")],
    )
    def test_of_the_run(self, precision, wanted, setting):
        seen = []
        dtype = torch.float64 if precision == "float64" else torch.float32
        inner = gaussians(2, dtype=dtype)

        def draw(step):
            seen.append(torch.get_float32_matmul_precision())
            return inner(step)

        engine(draw=draw, precision=precision).run(2)
        assert seen == [wanted] * 2
        assert torch.get_float32_matmul_precision() == setting

    def test_restored_after_an_interruption(self, setting):
        def draw(step):
            raise KeyboardInterrupt

        for precision in ("float32", "tf32"):
            with pytest.raises(KeyboardInterrupt):
                engine(draw=draw, precision=precision).run(2)
            assert torch.get_float32_matmul_precision() == setting
