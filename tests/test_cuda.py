"""The same code on a GPU: skipped where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pointdep import PointwiseDependency
from pointdep.core.critics import CRITICS
from pointdep.data.tasks import correlated_gaussians
from pointdep.fitting import engine

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning"),
]
TASK = correlated_gaussians(400, 3, 1.0, seed=0)


def fitted(device: str, **options) -> PointwiseDependency:
    settings = {"hidden": (16,), "folds": 3, "max_epochs": 4, "progress": False, "random_state": 0}
    return PointwiseDependency(device=device, **{**settings, **options}).fit(TASK.x, TASK.y)


@pytest.mark.parametrize("critic", ["auto", "concat"])
@pytest.mark.parametrize("method", ["pc", "cpc", "dv", "mine", "drf"])
def test_as_on_the_cpu(method, critic):
    there, here = (fitted(device, method=method, critic=critic) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(there.oof_pmi_, here.oof_pmi_, rtol=2e-3, atol=2e-3)
    assert there.mutual_information().nats == pytest.approx(
        here.mutual_information().nats, abs=2e-3
    )


@pytest.mark.parametrize("critic", CRITICS)
def test_a_model_moves_between_devices(critic, tmp_path):
    there = fitted("cuda", critic=critic)
    there.save(tmp_path / "model")
    here = PointwiseDependency.load(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(
        here.pmi(TASK.x, TASK.y), there.pmi(TASK.x, TASK.y), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        np.diag(there.pmi_matrix(TASK.x, TASK.y)), there.pmi(TASK.x, TASK.y), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(
        here.outside(9 * TASK.x, TASK.y), there.outside(9 * TASK.x, TASK.y)
    )
    np.testing.assert_allclose(
        here.pmi_stderr(TASK.x, TASK.y), there.pmi_stderr(TASK.x, TASK.y), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("critic", ["auto", "separable"])
def test_the_check_and_the_null(critic):
    there, here = (fitted(device, critic=critic) for device in ("cuda", "cpu"))
    assert there.check().passed == here.check().passed
    assert there.check().p_value == pytest.approx(here.check().p_value, abs=0.05)
    assert there.mutual_information(shuffles=4).null_p == pytest.approx(0.2)


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
    whole = fitted("cuda", critic=critic)
    save = engine.save_state

    def save_and_stop(path, state, fingerprint):
        save(path, state, fingerprint)
        if state.epoch == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine, "save_state", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            fitted("cuda", critic=critic, checkpoint=place)
    assert place.exists()
    resumed = fitted("cuda", critic=critic, checkpoint=place)
    np.testing.assert_array_equal(resumed.oof_pmi_, whole.oof_pmi_)
