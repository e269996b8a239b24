"""Figure 1 as one run of replicas, against networks trained by hand, and what it is reduced to."""

import math
from dataclasses import replace
from itertools import product
from statistics import stdev
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.core.critics import build_critic
from pointdep.experiments import figure1
from pointdep.experiments.figure1 import Cell, Figure1, halves, make_engine, run_figure1, summarise
from refusals import refused

from .figure1_curves import with_values

CPU = torch.device("cpu")
WHOLE = Figure1(iterations=50, hidden=(64, 64), batch_size=32, precision="float64", device="cpu")
SEPARABLE = replace(WHOLE, critic="separable", methods=("cpc", "pc", "dm2", "drf"), embedding_dim=5)
SMALL = replace(WHOLE, iterations=20, hidden=(16, 16), batch_size=16)
LEVELS = (2.0, 4.0, 6.0, 8.0, 10.0)


@pytest.fixture(scope="module")
def small():
    """The twenty curves, of small networks."""
    return run_figure1(SMALL)


def batches(settings, steps=None):
    """x: (cells, n, dim) and y of each step, as a run of these settings sees them."""
    _, draw = figure1.make_draw(settings, CPU, settings.precision)
    return [draw(torch.tensor([step])) for step in range(steps or settings.iterations)]


@pytest.mark.parametrize("settings", [WHOLE, SEPARABLE], ids=["concat", "separable"])
def test_all_cells_by_hand(settings):
    """The whole run against loops that share none of its code, its first values untrained."""
    curves, critic, drawn = run_figure1(settings), make_engine(settings).critic, batches(settings)
    assert len(curves.cells) == 2 * len(settings.methods)
    for replica, cell in enumerate(curves.cells):
        by_hand = train(settings, critic, replica, drawn)
        close = {"rtol": 1e-9, "atol": 1e-9, "err_msg": str(cell)}
        np.testing.assert_allclose(curves.of(cell), by_hand, **close)
        x, y = (side[replica] for side in drawn[0])
        with torch.no_grad():
            untrained = infer(cell.method, network(settings, critic, replica)(x, y))
        np.testing.assert_allclose(curves.of(cell)[0], untrained, **close)


class TestCells:
    def test_do_not_depend_on_which_others_there_are(self, small):
        fewer = run_figure1(replace(SMALL, methods=("drf", "dv", "pc"), tasks=("cubic",)))
        assert len(fewer.cells) == 3
        for cell in fewer.cells:
            np.testing.assert_allclose(fewer.of(cell), small.of(cell), rtol=1e-9)
        several = run_figure1(replace(SMALL, methods=("pc", "dv"), seeds=2))
        later = run_figure1(replace(SMALL, methods=("pc", "dv"), seed=1))
        for cell in product(("pc", "dv"), ("gaussian", "cubic")):
            first, second = (several.of(Cell(*cell, seed)) for seed in (0, 1))
            np.testing.assert_allclose(first, small.of(Cell(*cell, 0)), rtol=1e-9)
            np.testing.assert_allclose(second, later.of(Cell(*cell, 1)), rtol=1e-9)
            assert abs(first - second).min() > 1e-4
        # Weights, samples and curves of all cells differ.
        settings = replace(SMALL, seeds=2)
        weights = make_engine(settings).critic.x_half.weight.flatten(1)
        (x, y), (later, _) = batches(settings, 2)
        for drawn in (weights, torch.cat([x, later]).flatten(1), y.flatten(1)):
            assert len(drawn.unique(dim=0)) == len(drawn) >= 40
        assert len({tuple(curve) for curve in small.values.T}) == 20

    @pytest.mark.parametrize("critic", ["concat", "separable"])
    def test_pc_starts_at_the_logit_of_the_paper(self, critic):
        """Its scores, log r, start log(n - 1) above those of the same weights."""
        settings = replace(SMALL, critic=critic)
        more = {"hidden": (16, 16), "embedding_dim": 32, "activation": "relu"}
        plain = build_critic(critic, 20, 20, 20, **more)
        seeds = [figure1.cell_seed(cell) for cell in settings.cells]
        plain.reset([torch.Generator().manual_seed(seed) for seed in seeds])
        x, y = batches(settings, 1)[0]
        with torch.no_grad():
            raised = make_engine(settings).critic.matrix(x, y) - plain.double().matrix(x, y)
        for cell, amount in zip(settings.cells, raised, strict=True):
            expected = torch.full_like(amount, math.log(15) if cell.method == "pc" else 0.0)
            torch.testing.assert_close(amount, expected, rtol=0, atol=1e-6, msg=str(cell))


class TestDraw:
    @pytest.mark.parametrize("dim", [20, 6])
    @pytest.mark.parametrize("precision", ["float32", "float64"])
    def test_covariance_at_each_level(self, dim, precision):
        settings = Figure1(methods=("pc",), iterations=20, dim=dim, batch_size=4000, device="cpu")
        _, draw = figure1.make_draw(settings, CPU, precision)
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
        monkeypatch.setattr(figure1, "cell_seed", lambda cell: 7)
        for step in range(0, 20, 5):
            x, y = figure1.make_draw(settings, CPU, "float64")[1](torch.tensor([step]))
            assert torch.equal(x[0], x[1])
            torch.testing.assert_close(y[1], y[0] * y[0] * y[0])


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
            engine = make_engine(settings)
            for parameter in engine.critic.parameters():
                parameter.data[replica] = value
            values = engine.run(settings.iterations).values.numpy()
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
    @pytest.mark.parametrize("critic", ["concat", "separable"])
    @pytest.mark.parametrize("hidden", [(32, 32), (32,)])
    @pytest.mark.parametrize("methods", [("pc",), ("pc", "cpc", "drf")])
    def test_bf16_is_close_to_float32(self, critic, hidden, methods):
        asked = replace(SMALL, critic=critic, hidden=hidden, methods=methods, tasks=("gaussian",))
        exact, rough = (run_figure1(replace(asked, precision=p)) for p in ("float32", "bf16"))
        assert exact.values.dtype == rough.values.dtype == np.float32
        np.testing.assert_allclose(rough.values[:, 0], exact.values[:, 0], atol=0.05)
        assert (rough.values != exact.values).any()  # it is not float32 under another name

    def test_which(self, small):
        auto, asked = replace(SMALL, precision="auto"), replace(SMALL, precision="tf32")
        assert figure1.resolved_precision(auto, CPU) == "float32"
        assert figure1.resolved_precision(auto, torch.device("cuda")) == "bf16"
        assert figure1.resolved_precision(asked, CPU) == "tf32"
        assert (small.device, small.precision, small.settings) == ("cpu", "float64", SMALL)
        assert small.train_seconds > 0


def test_expected_seconds(monkeypatch):
    """The fastest of five steps, the first not counted, times the steps."""
    left = [0.01, 0.5, 0.2, 0.3, 0.4, 0.25]
    engine = SimpleNamespace(run=lambda steps: SimpleNamespace(train_seconds=left.pop(0)))
    monkeypatch.setattr(figure1, "make_engine", lambda _: engine)
    assert figure1.expected_seconds(Figure1(iterations=20_000)) == pytest.approx(0.2 * 20_000)
    left[:] = 9.0, 2.0, 1.9  # not for long
    assert figure1.expected_seconds(Figure1(iterations=20)) == pytest.approx(1.9 * 20)
    monkeypatch.undo()
    assert figure1.expected_seconds(replace(SMALL, levels=(2.0,), iterations=4)) > 0


FEW = Figure1(("pc", "dv"), ("cubic",), levels=(1.0, 3.0), iterations=8, seeds=2, seed=5)


def made(**columns):
    """Eight values a cell of FEW; cells that are not named are right."""
    values = np.repeat(FEW.truth()[:, None], len(FEW.cells), axis=1)
    for name, column in columns.items():
        method, seed = name.split("_")
        values[:, [(c.method, c.seed) for c in FEW.cells].index((method, int(seed)))] = column
    return with_values(FEW, values)


def pick(lines, **wanted):
    (found,) = [line for line in lines if all(line[name] == v for name, v in wanted.items())]
    return found


class TestHalves:
    def test_only_finite_values_of_the_second_half_count(self):
        lines = halves(made(pc_5=[99, 99, 0, 4, 99, 99, 2, 3]))
        cells = [(line["method"], line["seed"], line["level"]) for line in lines]
        assert cells == [*product(("pc", "dv"), (5, 6), (1.0, 3.0))]
        first, second = (pick(lines, method="pc", seed=5, level=level) for level in (1.0, 3.0))
        assert [first[k] for k in ("bias", "sd", "iterations", "not_finite")] == [1.0, 2.0, 2, 0]
        assert first["rmse"] == pytest.approx(math.sqrt(5))
        assert (second["bias"], second["sd"], second["not_finite"]) == (-0.5, 0.5, 0)
        assert second["rmse"] == pytest.approx(math.sqrt(0.5))
        lines = halves(made(pc_5=[1, 1, np.nan, 4, 3, 3, np.inf, -np.inf]))
        one, none = (pick(lines, method="pc", seed=5, level=level) for level in (1.0, 3.0))
        assert (one["not_finite"], one["bias"], one["sd"], one["rmse"]) == (1, 3.0, None, 3.0)
        assert (none["not_finite"], none["bias"], none["sd"], none["rmse"]) == (2, None, None, None)
        assert none["bias_stderr"] is none["log_sd_stderr"] is None

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("big", [1e200, 1e308])
    def test_what_overflows_is_unknown(self, big):
        values = np.repeat(FEW.truth()[:, None], len(FEW.cells), axis=1)
        values[2:4, :] = big
        values[6:, :] = -big, -big / 2, big, big / 2
        lines = halves(figure1.Curves(FEW, values, 1.0, 1.0, "cpu", "float64"))
        for line in (*lines, *summarise(lines)):
            numbers = [value for value in line.values() if isinstance(value, float)]
            assert all(map(math.isfinite, numbers))
            assert (line["rmse"], line["not_finite"]) == (None, 0)
        assert (lines[0]["bias"] is None) == (big == 1e308)


def test_over_seeds():
    lines = summarise(halves(made(pc_5=[0, 0, 0, 4, 3, 3, 3, 3], pc_6=[0, 0, 4, 6, 3, 3, 3, 3])))
    assert len(lines) == 4
    found = pick(lines, method="pc", level=1.0)
    # Biases 1 and 4, standard deviations 2 and 1, mean squares 5 and 17.
    assert (found["seeds"], found["bias"], found["sd"]) == (2, 2.5, 1.5)
    assert (found["bias_stderr"], found["rmse"]) == pytest.approx((1.5, math.sqrt(11)))
    assert (found["blown_up"], found["iterations"], found["not_finite"]) == (0, 4, 0)
    # One that blew up.
    lines = summarise(halves(made(pc_5=[1, 1, 1, 1, 3, np.nan, np.nan, np.nan])))
    found = pick(lines, method="pc", level=3.0)
    assert (found["seeds"], found["blown_up"], found["not_finite"]) == (2, 1, 2)
    assert (found["bias"], found["sd"], found["rmse"]) == (0.0, 0.0, 0.0)
    assert found["bias_stderr"] is None  # one seed does not tell what differs between them
    lost = [1, 1, 1, 1, np.nan, np.nan, np.nan, np.nan]
    found = pick(summarise(halves(made(pc_5=lost, pc_6=lost))), method="pc", level=3.0)
    assert found["bias"] is found["sd"] is found["rmse"] is found["bias_stderr"] is None


def test_batch_means():
    rng = np.random.default_rng(0)
    # Each draw stands for ten iterations: 60 independent ones in 600.
    draws = [rng.normal(size=60) for _ in range(200)]
    errors = [figure1.batch_means_error(np.repeat(draw, 10)) for draw in draws]
    assert np.mean(errors) == pytest.approx(np.std([draw.mean() for draw in draws]), rel=0.15)
    assert figure1.batch_means_error(np.arange(9.0)) is None
    means = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    error = figure1.batch_means_error(np.repeat(means, 2))
    assert error == pytest.approx(stdev(means) / math.sqrt(5))
    assert [figure1.batches_of(count) for count in (2, 10, 39, 40, 2000)] == [1, 5, 19, 20, 20]
    # They are the error of one seed.
    settings = Figure1(methods=("pc",), tasks=("cubic",), levels=(0.0,), iterations=80)
    values = np.random.default_rng(0).normal(size=(80, 1))
    (half,) = halves(with_values(settings, values))
    (line,) = summarise([half])
    assert line["bias_stderr"] == half["bias_stderr"]
    means = values[40:, 0].reshape(20, 2).mean(1)
    assert half["bias_stderr"] == pytest.approx(stdev(means) / math.sqrt(20), rel=1e-5)
    squares = np.square(values[40:, 0] - values[40:, 0].mean())
    expected = stdev(squares.reshape(20, 2).mean(1)) / math.sqrt(20) / (2 * squares.mean())
    assert half["log_sd_stderr"] == pytest.approx(expected, rel=1e-5)


def test_settings():
    Figure1(iterations=20)
    refused("iterations=19 must be at least 20", Figure1, iterations=19)
    refused("method 'smi' infers squared-loss", Figure1, methods=("smi",))
    refused("method 'mine' has a running state.*'dv'", Figure1, methods=("mine",))
    for levels in ((-1.0, 2.0), (2.0, math.inf)):
        refused("levels=.* must be finite and not negative", Figure1, levels=levels)
    assert Figure1(seeds=3, seed=4, precision="float32", device="cpu").departures == ""
    assert Figure1().quick().departures == (
        "iterations 5000, not 20000; batch size 32, not 128; hidden 64, 64, not 512, 512; "
        "learning rate 0.002, not 0.001"
    )


# By hand: one network after another, plain layers, each objective written out. Nothing of the
# library is used but the samples and the initial weights.
FLOOR = 1e-4  # of DRF's read-out
TAU = 5.0  # of SMILE


def cells(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores (n, n) of the pairs, (n,), and of all other cells, (n (n - 1),)."""
    own = torch.eye(len(scores), dtype=torch.bool)
    return scores[own], scores[~own]


def learn(method: str, scores: Tensor) -> Tensor:
    """The objective of scores (n, n), to be maximised; for `pc` they are the logits."""
    joint, product = cells(scores)
    n = len(scores)
    if method == "cpc":
        return (joint - (scores.exp().sum(1) / n).log()).sum() / n
    if method == "pc":
        return -F.binary_cross_entropy_with_logits(scores, torch.eye(n, dtype=scores.dtype))
    if method in {"js", "smile", "variational"}:
        up, down = (1 + (-joint).exp()).log(), (1 + product.exp()).log()
        return -up.sum() / n - down.sum() / (n * (n - 1))
    linear, exp_mean = joint.sum() / n, product.exp().sum() / (n * (n - 1))
    return {
        "nwj": linear - exp_mean / math.e,
        "dv": linear - exp_mean.log(),
        "dm1": linear - (exp_mean - 1),
        "dm2": linear - exp_mean.log() ** 2,
        "drf": linear - (product**2).sum() / (n * (n - 1)) / 2,
    }[method]


def infer(method: str, scores: Tensor) -> float:
    """The mutual information that the method reads off its scores (n, n)."""
    joint, product = cells(scores)
    n = len(scores)
    linear = joint.sum() / n
    if method == "js":
        return (1 + linear - product.exp().sum() / (n * (n - 1))).item()
    if method == "smile":
        clipped = product.clamp(-TAU, TAU).exp().sum() / (n * (n - 1))
        return (linear - clipped.log()).item()
    if method == "pc":
        return linear.item() + math.log(n - 1)
    if method == "drf":
        return (joint.clamp(min=FLOOR).log().sum() / n).item()
    if method in {"variational", "dm1", "dm2"}:
        return linear.item()
    return learn(method, scores).item()


def perceptron(weights: list[tuple[Tensor, Tensor]]) -> nn.Sequential:
    """weights: (in, out) and (1, out) of each layer; ReLU between them."""
    layers: list[nn.Module] = []
    for weight, bias in weights:
        linear = nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias[0].clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def layers_of(stack, replica: int) -> list[tuple[Tensor, Tensor]]:
    """The weights of one replica, copied."""
    return [
        (layer.weight[replica].detach().clone(), layer.bias[replica].detach().clone())
        for layer in stack.layers
    ]


class Concat(nn.Module):
    """One replica of a ConcatCritic, on the concatenation of every x and every y."""

    def __init__(self, critic, replica: int, lower: float) -> None:
        super().__init__()
        halves = critic.x_half.weight[replica], critic.y_half.weight[replica]
        first = torch.cat([half.detach() for half in halves]), critic.x_half.bias[replica].detach()
        rest = layers_of(critic.rest, replica)
        rest[-1] = rest[-1][0], rest[-1][1] - lower
        self.net = perceptron([first, *rest])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        n = len(x)
        return self.net(torch.cat([x.repeat_interleave(n, 0), y.repeat(n, 1)], 1)).view(n, n)


class Separable(nn.Module):
    """One replica of a SeparableCritic."""

    def __init__(self, critic, replica: int, lower: float) -> None:
        super().__init__()
        self.g = perceptron(layers_of(critic.x_tower, replica))
        self.h = perceptron(layers_of(critic.y_tower, replica))
        self.bias = nn.Parameter(critic.bias[replica].detach().clone() - lower)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g(x) @ self.h(y).T + self.bias


def network(settings, critic, replica: int) -> nn.Module:
    """The replica before training; that of `pc` gives the logit, as the paper's does."""
    kind = {"concat": Concat, "separable": Separable}[settings.critic]
    is_pc = settings.cells[replica].method == "pc"
    return kind(critic, replica, math.log(settings.batch_size - 1) if is_pc else 0.0)


def train(settings, critic, replica: int, batches: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The curve of one cell; critic: untrained, batches: x and y of all cells, step by step."""
    method, net = settings.cells[replica].method, network(settings, critic, replica)
    optimizer, curve = torch.optim.Adam(net.parameters(), lr=1e-3), []
    for x, y in batches:
        scores = net(x[replica], y[replica])
        curve.append(infer(method, scores.detach()))
        optimizer.zero_grad()
        (-learn(method, scores)).backward()
        optimizer.step()
    return curve
