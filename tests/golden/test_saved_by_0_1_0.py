"""Folders that pointdep 0.1.0 wrote are read, and answer as they did then."""

import importlib.util
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from pointdep import ConditionalDependency, PointwiseDependency

HERE = Path(__file__).parent
SAVED = HERE / "saved_by_0_1_0"
THEN = json.loads((SAVED / "answers.json").read_text("utf-8"))


def _models():
    """The module beside this one, from wherever tests are run."""
    spec = importlib.util.spec_from_file_location("golden_models", HERE / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models = _models()


def load(name, folder):
    path = SAVED / name
    if name in models.ZIPPED:
        path = folder / name
        shutil.unpack_archive(SAVED / f"{name}.zip", path)
    if name == "conditional":
        return ConditionalDependency.load(path, device="cpu")
    return PointwiseDependency.load(path, critic=models.own_critic(name), device="cpu")


def assert_same(now, then):
    """Numbers at 1e-5, all else exactly; NaN where there was NaN."""
    assert now.keys() == then.keys()
    for key, value in then.items():
        if key in ("flags", "indices", "shape", "outside"):
            assert now[key] == value, key
        else:
            np.testing.assert_allclose(now[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", models.NAMES)
def test_models_answer_as_then_and_again_when_saved(name, tmp_path):
    model, fresh = load(name, tmp_path), models.rows(name, seed=1, count=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows, some of them unlike those of the fit
        assert_same(models.answers(name, model), THEN[name])
        model.save(tmp_path / "again")
        critic = {} if name == "conditional" else {"critic": models.own_critic(name)}
        again = type(model).load(tmp_path / "again", device="cpu", **critic)
        np.testing.assert_array_equal(again.pmi(*fresh), model.pmi(*fresh))


def test_they_have_neither_a_curve_nor_a_lower_limit(tmp_path):
    for name in set(models.NAMES) - {"conditional"}:
        found = load(name, tmp_path).mutual_information()
        assert (found.lower, found.curve) == (None, None)
        assert "at least" not in str(found)


@pytest.mark.parametrize("name", models.INDICES)
def test_indices_find_as_then(name, tmp_path):
    of, side, _ = models.INDICES[name]
    model = load(of, tmp_path)
    assert_same(models.retrieved(model, side, model.load_index(SAVED / name)), THEN[name])


def test_an_encoder_encodes_as_then():
    pytest.importorskip("lightning")
    from pointdep.contrastive import load_encoder

    features = load_encoder(SAVED / "encoder", device="cpu").encode(models.images().test[:4])
    now = {"shape": list(features.shape), "first": features[..., :6].tolist()}
    assert_same(now, THEN["encoder"])
