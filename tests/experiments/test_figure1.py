"""Figure 1 as one run of replicas, against one network after another trained by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pointdep.core.critics import build_critic
from pointdep.core.methods import PAPER_METHODS, get_method
from pointdep.experiments import figure1 as run_module
from pointdep.experiments.figure1 import (
    Cell,
    Figure1,
    cell_seed,
    expected_seconds,
    make_draw,
    make_engine,
    paper_method,
    resolved_precision,
    run_figure1,
)

from .figure1_by_hand import infer, network, train

CPU = torch.device("cpu")
WHOLE = Figure1(iterations=50, hidden=(64, 64), batch_size=32, precision="float64", device="cpu")
SMALL = replace(WHOLE, iterations=20, hidden=(16, 16), batch_size=16)
LEVELS = (2.0, 4.0, 6.0, 8.0, 10.0)


@pytest.fixture(scope="module")
def whole():
    """The twenty curves."""
    return run_figure1(WHOLE)


@pytest.fixture(scope="module")
def small():
    """The twenty curves, of smaller networks."""
    return run_figure1(SMALL)


def batches_of(settings, steps=None):
    """x: (cells, n, dim) and y of each step, as a run of these settings sees them."""
    _, draw = make_draw(settings, CPU, settings.precision)
    return [draw(torch.tensor([step])) for step in range(steps or settings.iterations)]


class TestByHand:
    """The whole run against loops that share none of its code."""

    def test_all_cells(self, whole):
        assert len(whole.cells) == 20
        critic, batches = make_engine(WHOLE).critic, batches_of(WHOLE)
        for replica, cell in enumerate(whole.cells):
            by_hand = train(WHOLE, critic, replica, batches)
            np.testing.assert_allclose(
                whole.of(cell), by_hand, rtol=1e-9, atol=1e-9, err_msg=str(cell)
            )

    def test_the_separable_critic(self):
        settings = replace(
            WHOLE, critic="separable", methods=("cpc", "pc", "dm2", "drf"), embedding_dim=5
        )
        curves = run_figure1(settings)
        critic, batches = make_engine(settings).critic, batches_of(settings)
        for replica, cell in enumerate(curves.cells):
            by_hand = train(settings, critic, replica, batches)
            np.testing.assert_allclose(
                curves.of(cell), by_hand, rtol=1e-9, atol=1e-9, err_msg=str(cell)
            )

    def test_values_are_of_the_weights_before_the_step(self, whole):
        critic, (x, y) = make_engine(WHOLE).critic, batches_of(WHOLE, 1)[0]
        with torch.no_grad():
            untrained = [
                infer(cell.method, network(WHOLE, critic, replica)(x[replica], y[replica]))
                for replica, cell in enumerate(WHOLE.cells)
            ]
        np.testing.assert_allclose(whole.values[0], untrained, rtol=1e-9)


class TestCells:
    def test_do_not_depend_on_which_others_there_are(self, small):
        fewer = run_figure1(replace(SMALL, methods=("drf", "dv", "pc"), tasks=("cubic",)))
        assert len(fewer.cells) == 3
        for cell in fewer.cells:
            np.testing.assert_allclose(fewer.of(cell), small.of(cell), rtol=1e-9)

    def test_have_curves_of_their_own(self, small):
        # Even those that learn the same objective: networks and samples differ.
        assert len({tuple(curve) for curve in small.values.T}) == 20

    def test_seeds(self, small):
        several = run_figure1(replace(SMALL, methods=("pc", "dv"), seeds=2))
        later = run_figure1(replace(SMALL, methods=("pc", "dv"), seed=1))
        for method in ("pc", "dv"):
            for task in ("gaussian", "cubic"):
                first, second = (several.of(Cell(method, task, seed)) for seed in (0, 1))
                np.testing.assert_allclose(first, small.of(Cell(method, task, 0)), rtol=1e-9)
                np.testing.assert_allclose(second, later.of(Cell(method, task, 1)), rtol=1e-9)
                assert abs(first - second).min() > 1e-4

    def test_weights_and_samples_of_all_cells_differ(self):
        settings = replace(SMALL, seeds=2)
        weights = make_engine(settings).critic.x_half.weight.flatten(1)
        x, y = batches_of(settings, 1)[0]
        for drawn in (weights, x.flatten(1), y.flatten(1)):
            assert len(drawn.unique(dim=0)) == 40

    @pytest.mark.parametrize("critic", ["concat", "separable"])
    def test_pc_starts_at_the_logit_of_the_paper(self, critic):
        """Its scores, log r, start log(n - 1) above those of the same weights."""
        settings = replace(SMALL, critic=critic)
        plain = build_critic(
            critic, 20, 20, 20, hidden=(16, 16), embedding_dim=32, activation="relu"
        )
        plain.reset([torch.Generator().manual_seed(cell_seed(cell)) for cell in settings.cells])
        x, y = batches_of(settings, 1)[0]
        with torch.no_grad():
            raised = make_engine(settings).critic.matrix(x, y) - plain.double().matrix(x, y)
        for cell, amount in zip(settings.cells, raised, strict=True):
            expected = math.log(15) if cell.method == "pc" else 0.0
            torch.testing.assert_close(
                amount, torch.full_like(amount, expected), rtol=0, atol=1e-6, msg=str(cell)
            )

    def test_methods_are_those_of_the_paper(self):
        assert paper_method("dm2") == get_method("dm2", {"corrected": False})
        others = [key for key in PAPER_METHODS if key != "dm2"]
        assert [paper_method(key) for key in others] == [get_method(key) for key in others]


class TestDraw:
    @pytest.mark.parametrize("dim", [20, 6])
    @pytest.mark.parametrize("precision", ["float32", "float64"])
    def test_covariance_at_each_level(self, dim, precision):
        settings = Figure1(methods=("pc",), iterations=20, dim=dim, batch_size=4000, device="cpu")
        _, draw = make_draw(settings, CPU, precision)
        for step in range(20):
            x, y = draw(torch.tensor([step]))
            assert x.dtype == y.dtype == getattr(torch, precision)
            rho = math.sqrt(1 - math.exp(-2 * LEVELS[step // 4] / dim))
            truth = np.eye(2 * dim)
            truth[:dim, dim:] = truth[dim:, :dim] = rho * np.eye(dim)
            cube_root = y[1].sign() * y[1].abs() ** (1 / 3)
            for one, other in ((x[0], y[0]), (x[1], cube_root)):
                rows = torch.cat([one, other], 1).double().numpy()
                found = rows.T @ rows / len(rows)
                assert abs(found - truth).max() < 0.13  # the standard errors are at most 0.022
                along = found[:dim, dim:].trace() / dim
                assert along == pytest.approx(rho, abs=5 / math.sqrt(4000 * dim))

    def test_cubic_is_the_cube_of_what_the_gaussian_task_would_draw(self, monkeypatch):
        settings = Figure1(methods=("pc",), iterations=20, batch_size=50, device="cpu")
        # With one seed for both tasks, they have the same x and the same noise.
        monkeypatch.setattr(run_module, "cell_seed", lambda cell: 7)
        for step in range(0, 20, 5):
            x, y = make_draw(settings, CPU, "float64")[1](torch.tensor([step]))
            assert torch.equal(x[0], x[1])
            torch.testing.assert_close(y[1], y[0] * y[0] * y[0])

    def test_every_batch_is_fresh(self):
        xs = [x for x, _ in batches_of(SMALL, 6)]
        assert len({x[3, 0, 0].item() for x in xs}) == 6


def spoilt(settings, replica, value):
    """The run where one replica starts from weights of this value."""
    engine = make_engine(settings)
    for parameter in engine.critic.parameters():
        parameter.data[replica] = value
    return engine.run(settings.iterations).values.numpy()


class TestBlowUps:
    @pytest.mark.parametrize("critic", ["concat", "separable"])
    @pytest.mark.parametrize(
        ("precision", "value"),
        [("float64", math.nan), ("float64", 1e200), ("float32", math.inf), ("bf16", math.nan)],
    )
    def test_leave_all_other_curves_as_they_are(self, critic, precision, value):
        settings = replace(SMALL, precision=precision, critic=critic)
        alone = run_figure1(settings).values
        for replica in (0, 13):
            values = spoilt(settings, replica, value)
            assert not np.isfinite(values[:, replica]).any()
            others = np.arange(20) != replica
            assert np.isfinite(values[:, others]).all()
            np.testing.assert_array_equal(values[:, others], alone[:, others])

    def test_are_kept_in_the_curves(self):
        """A learning rate at which everything is lost."""
        curves = run_figure1(replace(SMALL, learning_rate=1e3, methods=("nwj", "cpc")))
        assert curves.values.shape == (20, 4)
        assert np.isfinite(curves.values[0]).all()
        assert not np.isfinite(curves.of(Cell("nwj", "gaussian", 0))[1:]).all()


class TestPrecision:
    @pytest.mark.parametrize(
        ("critic", "hidden"),
        [("concat", (32, 32)), ("concat", (32,)), ("separable", (32, 32)), ("separable", (32,))],
    )
    @pytest.mark.parametrize("methods", [("pc",), ("pc", "cpc", "drf")])
    def test_bf16_is_close_to_float32(self, critic, hidden, methods):
        settings = replace(
            SMALL, critic=critic, hidden=hidden, methods=methods, tasks=("gaussian",)
        )
        exact, rough = (
            run_figure1(replace(settings, precision=precision)) for precision in ("float32", "bf16")
        )
        assert exact.values.dtype == rough.values.dtype == np.float32
        np.testing.assert_allclose(rough.values[:, 0], exact.values[:, 0], atol=0.05)
        assert (rough.values != exact.values).any()  # it is not float32 under another name

    def test_auto(self):
        auto, asked = replace(SMALL, precision="auto"), replace(SMALL, precision="tf32")
        assert resolved_precision(auto, CPU) == "float32"
        assert resolved_precision(auto, torch.device("cuda")) == "bf16"
        assert resolved_precision(asked, CPU) == "tf32"

    def test_curves_say_what_was_used(self, small):
        assert (small.device, small.precision) == ("cpu", "float64")
        assert small.settings == SMALL
        assert small.values.shape == (20, 20)
        assert small.train_seconds > 0


class Paced:
    """An engine whose steps take these seconds, one after another."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.runs = seconds, 0

    def run(self, steps: int) -> SimpleNamespace:
        assert steps == 1
        self.runs += 1
        return SimpleNamespace(train_seconds=self.seconds[self.runs - 1])


class TestExpectedSeconds:
    @pytest.mark.parametrize("iterations", [20, 1000, 20_000])
    def test_is_the_fastest_step_times_the_steps(self, iterations, monkeypatch):
        """The first, which is slow, or may be skipped in part, is not counted."""
        engine = Paced(0.01, 0.5, 0.2, 0.3, 0.4, 0.25)
        monkeypatch.setattr(run_module, "make_engine", lambda _: engine)
        assert expected_seconds(Figure1(iterations=iterations)) == pytest.approx(0.2 * iterations)
        assert engine.runs == 6

    def test_does_not_take_long_itself(self, monkeypatch):
        engine = Paced(9.0, 2.0, 1.9)
        monkeypatch.setattr(run_module, "make_engine", lambda _: engine)
        assert expected_seconds(Figure1(iterations=100)) == pytest.approx(190.0)
        assert engine.runs == 3

    def test_here(self):
        large = replace(SMALL, hidden=(64, 64), batch_size=32)
        assert 0 < expected_seconds(SMALL) < expected_seconds(large)

    def test_of_few_iterations(self):
        assert expected_seconds(replace(SMALL, levels=(2.0,), iterations=4)) > 0
