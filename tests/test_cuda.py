"""The same code on a GPU: skipped where there is none."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pointdep import PointwiseDependency, audit, mi_against_n
from pointdep.core.critics import CRITICS
from pointdep.core.methods import PAPER_METHODS
from pointdep.data.tasks import correlated_gaussians
from pointdep.experiments.figure1 import Cell, Figure1, make_draw, make_engine, run_figure1
from pointdep.fitting import engine, recording, sampler, streamed_rows
from pointdep.fitting.active_replicas import Crew
from pointdep.fitting.batches import Cells

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning"),
]
TASK = correlated_gaussians(400, 3, 1.0, seed=0)
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FIGURE = Figure1(iterations=60, hidden=(256, 256), device="cuda")
SMALL = replace(FIGURE, hidden=(64, 64), batch_size=32, precision="float32")
TOLERANCES = {"float32": 1e-4, "bf16": 5e-3}  # of what differs by the order of sums only


def fitted(device: str, **options) -> PointwiseDependency:
    settings = {"hidden": (16,), "folds": 3, "max_epochs": 4, "progress": False, "random_state": 0}
    return PointwiseDependency(device=device, **{**settings, **options}).fit(TASK.x, TASK.y)


@pytest.mark.parametrize("critic", ["auto", "concat"])
@pytest.mark.parametrize("method", ["pc", "cpc", "dv", "mine", "drf"])
def test_as_on_the_cpu(method, critic):
    there, here = (fitted(device, method=method, critic=critic) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(there.oof_pmi_, here.oof_pmi_, rtol=2e-3, atol=2e-3)
    nats = (model.mutual_information().nats for model in (there, here))
    assert next(nats) == pytest.approx(next(nats), abs=2e-3)


def test_the_curve_the_limits_and_the_parts_as_on_the_cpu():
    found = []
    for device in ("cuda", "cpu"):
        model = fitted(device, critic="concat")
        own, new = model.mutual_information(), model.mutual_information(TASK.x, TASK.y)
        parts = mi_against_n(model, TASK.x, TASK.y, sizes=[200, 400], progress=False)
        nats = [one.nats for one in parts.estimates]
        found.append([*own.curve.mean, own.lower, new.lower, *nats])
    np.testing.assert_allclose(*found, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("critic", ["auto", "concat"])
def test_streamed_rows_as_on_the_cpu(critic):
    there, here = (fitted(device, critic=critic, stream=True) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(there.oof_pmi_, here.oof_pmi_, rtol=2e-3, atol=2e-3)
    assert there.check().passed == here.check().passed


@pytest.mark.parametrize("critic", CRITICS)
def test_a_model_moves_between_devices(critic, tmp_path):
    there = fitted("cuda", critic=critic)
    there.save(tmp_path / "model")
    here = PointwiseDependency.load(tmp_path / "model", device="cpu")
    data, far, near = (TASK.x, TASK.y), (9 * TASK.x, TASK.y), {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(here.pmi(*data), there.pmi(*data), **near)
    np.testing.assert_allclose(np.diag(there.pmi_matrix(*data)), there.pmi(*data), **near)
    np.testing.assert_array_equal(here.outside(*far), there.outside(*far))
    errors = here.pmi_stderr(*data), there.pmi_stderr(*data)
    np.testing.assert_allclose(*errors, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("critic", ["auto", "separable"])
def test_the_check_and_the_null(critic):
    there, here = (fitted(device, critic=critic) for device in ("cuda", "cpu"))
    assert there.check().passed == here.check().passed
    assert there.check().p_value == pytest.approx(here.check().p_value, abs=0.05)
    assert there.mutual_information(shuffles=4).null_p == pytest.approx(0.2)


@pytest.mark.parametrize("critic", ["auto", "separable", "concat"])
def test_recorded_steps_are_as_steps_one_by_one(critic, monkeypatch):
    told, record = [], recording.record
    monkeypatch.setattr(recording, "record", lambda step: told.append(step) or record(step))
    replayed = fitted("cuda", critic=critic)
    assert told
    monkeypatch.setattr(Crew, "_recorded_step", lambda crew: None)
    one_by_one = fitted("cuda", critic=critic)
    np.testing.assert_allclose(replayed.oof_pmi_, one_by_one.oof_pmi_, rtol=1e-3, atol=1e-3)


def dropped(batch, weight):
    """A step that draws at random."""
    return nn.functional.dropout(batch.x * batch.y, 0.5).sum((1, 2, 3)) * weight


def one_batch():
    x, y = (torch.randn(2, 1, 4, 3, device=CUDA) for _ in range(2))
    eye = torch.eye(4, device=CUDA)
    return Cells(x, y, eye, 1.0 - eye)


def test_steps_are_recorded_while_a_thread_takes_pinned_memory():
    done, taken = threading.Event(), []

    def take():
        while not done.is_set() and len(taken) < 400:
            taken.append(torch.empty(1 << 20).pin_memory())

    batch = one_batch()
    steps = [recording.RecordedStep(dropped, torch.zeros((), device=CUDA)) for _ in range(30)]
    for step in steps:
        for _ in range(3):
            step(batch, 1.0)
    thread = threading.Thread(target=take)
    thread.start()
    try:
        for step in steps:
            step(batch, 1.0)  # recorded now
        during = len(taken)
    finally:
        done.set()
        thread.join()
    assert 0 < during < 400
    assert not any(step.fails for step in steps)


def test_a_step_that_cannot_be_recorded_goes_on_drawing():
    def waits(batch, weight):
        value = dropped(batch, weight)
        return value * (1.0 if float(value.detach().sum()) < math.inf else 0.0)

    step, batch = recording.RecordedStep(waits, torch.zeros((), device=CUDA)), one_batch()
    values = torch.stack([step(batch, 1.0) for _ in range(40)])
    assert step.fails
    assert len(values.unique(dim=0)) > 5
    torch.manual_seed(0)
    first = torch.rand(3, device=CUDA)
    torch.manual_seed(0)
    torch.testing.assert_close(torch.rand(3, device=CUDA), first)
    again = recording.RecordedStep(dropped, torch.zeros((), device=CUDA))
    for _ in range(6):
        again(batch, 1.0)
    assert not again.fails


@pytest.mark.parametrize("width", [3, 40])
def test_rows_kept_on_the_device(width, monkeypatch):
    task = correlated_gaussians(6000, width, 2.0, seed=0)
    x, y = (side.astype(np.float16) for side in (task.x, task.y))
    options = {"folds": 2, "max_epochs": 3, "progress": False, "random_state": 0, "device": "cuda"}
    kept = PointwiseDependency(stream=True, **options).fit(x, y)
    monkeypatch.setattr(streamed_rows, "_free_bytes", lambda device: 0)
    read = PointwiseDependency(stream=True, **options).fit(x, y)
    np.testing.assert_allclose(kept.oof_pmi_, read.oof_pmi_, rtol=1e-3, atol=1e-3)


def test_wide_data_with_audit_and_retrieval():
    task = correlated_gaussians(600, 30, 3.0, seed=0)
    options = {"folds": 2, "max_epochs": 6, "progress": False, "random_state": 0}
    there, here = (
        PointwiseDependency(device=device, **options).fit(task.x, task.y)
        for device in ("cuda", "cpu")
    )
    # Inputs are dropped by other random numbers there.
    np.testing.assert_allclose(
        there.mutual_information().nats, here.mutual_information().nats, atol=0.3
    )
    assert np.corrcoef(there.oof_pmi_, here.oof_pmi_)[0, 1] > 0.9
    assert np.isfinite(there.retrieve(task.x[:20], task.y, k=5).pmi).all()
    table = audit(task.x, task.y, folds=2, random_state=0, device="cuda", progress=False).table
    assert np.isfinite(table["pmi"]).all()
    assert len(table) == 600


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))

    def forward(self, x, y):
        return self.net(torch.cat([x, y], -1)).squeeze(-1)


def test_a_resumed_fit_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_CHECKPOINT_EVERY_S", 0.0)
    torch.manual_seed(0)
    critic, place = WithDropout(), tmp_path / "fit.ckpt"
    whole, save = fitted("cuda", critic=critic), engine.save_state

    def save_and_stop(path, state, *rest):
        save(path, state, *rest)
        if state.epoch == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine, "save_state", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            fitted("cuda", critic=critic, checkpoint=place)
    assert place.exists()
    resumed = fitted("cuda", critic=critic, checkpoint=place)
    np.testing.assert_array_equal(resumed.oof_pmi_, whole.oof_pmi_)


def stored(settings, steps):
    """The samples of a run on the CPU, by the step, wherever it is."""
    _, draw = make_draw(settings, CPU, settings.precision)
    batches = [draw(torch.tensor([step])) for step in range(steps)]
    x, y = (torch.stack(side).to(settings.device) for side in zip(*batches, strict=True))
    return lambda step: (x.index_select(0, step)[0], y.index_select(0, step)[0])


def trained(settings, steps, *, spoilt=None, progress=None):
    """The values of `steps` on stored samples, (steps, cells), on the CPU."""
    run = make_engine(settings)
    run.draw, run.generator = stored(settings, steps), None
    if spoilt is not None:
        run.flat.values.data[spoilt] = torch.nan
    return run.run(steps, progress).values


def assert_near(found, wanted, limit):
    torch.testing.assert_close(found, wanted, rtol=limit, atol=limit)


class TestFigure1:
    @pytest.mark.parametrize("precision", ["bf16", "float32"])
    def test_all_cells(self, precision):
        curves = run_figure1(replace(FIGURE, precision=precision))
        assert curves.values.shape == (60, 20)
        assert np.isfinite(curves.values).all()
        assert (curves.device, curves.precision) == ("cuda", precision)
        for task in ("gaussian", "cubic"):
            assert curves.of(Cell("cpc", task, 0)).max() <= math.log(128)
            assert curves.of(Cell("pc", task, 0))[0] == pytest.approx(math.log(127), abs=0.5)
            learnt = curves.of(Cell("cpc", task, 0))
            assert learnt[-10:].mean() > learnt[:10].mean() + 1.0

    def test_auto_is_bf16_and_progress(self):
        curves = run_figure1(replace(SMALL, precision="auto", methods=("pc",), iterations=20))
        assert curves.precision == "bf16"
        told = []

        class Told:
            def update(self, done, total, detail=""):
                told.append((done, total))

        make_engine(replace(SMALL, methods=("pc",), iterations=120)).run(120, Told())
        assert told == [(50, 120), (100, 120)]

    @pytest.mark.parametrize(
        ("critic", "batch_size"),
        [("concat", 32), ("separable", 32), ("concat", 20)],
        ids=["concat", "separable", "objectives that are compiled"],
    )
    def test_as_on_the_cpu(self, critic, batch_size):
        settings = replace(SMALL, batch_size=batch_size, critic=critic)
        here = trained(replace(settings, device="cpu"), 20)
        assert_near(trained(settings, 20), here, 1e-4)

    @pytest.mark.parametrize("hidden", [(64,), (64, 64, 64)], ids=str)
    @pytest.mark.parametrize("precision", ["bf16", "float32"])
    def test_networks_that_are_not_fused(self, hidden, precision):
        settings = replace(SMALL, hidden=hidden, precision=precision, methods=("pc", "cpc"))
        here = trained(replace(settings, device="cpu", precision="float32"), 10)
        assert_near(trained(settings, 10), here, 0.05 if precision == "bf16" else 1e-4)

    @pytest.mark.parametrize("precision", ["bf16", "float32"])
    def test_replayed_is_as_one_by_one(self, precision, monkeypatch):
        settings = replace(FIGURE, precision=precision)
        replayed = trained(settings, 20)
        fewer = trained(settings, 2)  # than are done before the recording
        monkeypatch.setattr(
            sampler.StreamEngine,
            "_replay",
            lambda self, one, steps, shown: [one() for _ in range(steps)] and (0.0, 0.0),
        )
        one_by_one = trained(settings, 20)
        assert_near(replayed, one_by_one, TOLERANCES[precision])
        assert_near(fewer, one_by_one[:2], TOLERANCES[precision])

    def test_bf16_is_close_to_float32(self):
        rough, exact = (trained(replace(FIGURE, precision=p), 10) for p in ("bf16", "float32"))
        ratio = [cell.method == "drf" for cell in FIGURE.cells]  # the log of a ratio near zero
        assert (rough - exact)[:, [not one for one in ratio]].abs().max() < 0.03
        assert (rough - exact)[:, ratio].abs().median() < 0.03
        assert not torch.equal(rough, exact)

    @pytest.mark.parametrize("critic", ["concat", "separable"])
    @pytest.mark.parametrize("precision", ["bf16", "float32"])
    def test_a_replica_that_is_not_a_number_leaves_the_others_alone(self, precision, critic):
        settings = replace(FIGURE, precision=precision, critic=critic)
        alone, lost = trained(settings, 10), PAPER_METHODS.index("drf")
        values = trained(settings, 10, spoilt=lost)
        others = torch.arange(20) != lost
        assert values[:, lost].isnan().all()
        assert values[:, others].isfinite().all()
        assert_near(values[:, others], alone[:, others], TOLERANCES[precision])

    def test_every_replayed_batch_is_fresh_and_correlated_as_it_should_be(self):
        """With next to no learning, values differ by their samples alone."""
        settings = replace(SMALL, learning_rate=1e-30, methods=("pc", "cpc"))
        values = make_engine(settings).run(60).values
        assert all(len(column.unique()) == 60 for column in values.T)
        assert_near(make_engine(settings).run(60).values, values, 1e-4)
        other = make_engine(replace(settings, seed=1)).run(60).values
        assert (other - values).abs().max() > 0.01
        settings = Figure1(methods=("pc",), iterations=20, batch_size=4000, device="cuda")
        generator, draw = make_draw(settings, CUDA, "bf16")
        assert generator.device.type == "cuda"
        for step in range(20):
            x, y = draw(torch.tensor([step], device=CUDA))
            assert x.dtype == y.dtype == torch.float32
            level = (2.0, 4.0, 6.0, 8.0, 10.0)[step // 4]
            cube_root = y[1].sign() * y[1].abs() ** (1 / 3)
            for one, other in ((x[0], y[0]), (x[1], cube_root)):
                found = (one * other).mean().item()
                assert found == pytest.approx(math.sqrt(1 - math.exp(-level / 10)), abs=0.02)
                assert other.square().mean().item() == pytest.approx(1.0, abs=0.03)
