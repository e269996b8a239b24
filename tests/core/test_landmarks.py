"""Many columns of one side brought to few features."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from pointdep import PointwiseDependency
from pointdep.auditing import why
from pointdep.auditing.evidence import HeldRows
from pointdep.core import transforms
from pointdep.core.transforms import LandmarkMap, can_be_reduced, principal_directions
from pointdep.data.raw import Array
from pointdep.fitting.progress import Silent

COLUMNS, FACTORS = 300, 6


@pytest.fixture(scope="module", autouse=True)
def fewer_columns():
    """So that the tests are quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transforms, "_LEAST_COLUMNS", 256)
        yield


def in_columns(latent: Array, seed: int, columns: int = COLUMNS) -> Array:
    """A curved image of latent rows, (n, k), with a little noise: (n, columns)."""
    random = np.random.default_rng(seed)
    curved = np.tanh(latent @ random.normal(size=(latent.shape[1], columns)) / 3)
    return np.asarray(curved + 0.1 * random.normal(size=curved.shape), np.float32)


def clusters(rows: int, count: int, seed: int) -> tuple[Array, Array, Array]:
    """Rows of both sides come from the same of `count` clusters: x, y and the cluster."""
    random = np.random.default_rng(seed)
    label = random.integers(count, size=rows)
    # The centres and the columns are the same for every seed.
    centres = np.random.default_rng(0).normal(size=(2, count, FACTORS)) * 4
    x, y = (centre[label] + random.normal(size=(rows, FACTORS)) for centre in centres)
    maps = np.random.default_rng(1).normal(size=(2, FACTORS, COLUMNS)) / 3
    sides = (np.tanh(side @ own) for side, own in zip((x, y), maps, strict=True))
    noisy = [side + 0.1 * random.normal(size=side.shape) for side in sides]
    return noisy[0].astype(np.float32), noisy[1].astype(np.float32), label


def numbers(side: Array) -> torch.Tensor:
    return torch.from_numpy((side - side.mean(0)) / side.std(0)).float()


def test_principal_directions_are_those_of_the_svd():
    random = np.random.default_rng(0)
    scales = 0.7 ** np.arange(30)
    rows = (random.normal(size=(500, 30)) * scales) @ random.normal(size=(30, 80))
    rows -= rows.mean(0)
    found = principal_directions(torch.from_numpy(rows), 8).numpy()
    np.testing.assert_allclose(found.T @ found, np.eye(8), atol=1e-8)
    expected = PCA(8).fit(rows)
    variances = np.var(rows @ found, axis=0, ddof=1)
    np.testing.assert_allclose(variances, expected.explained_variance_, rtol=1e-3)
    few = principal_directions(torch.from_numpy(rows[:, :5]), 8)
    assert few.shape == (5, 8)
    assert not bool(few[:, 5:].any())


def test_columns_that_go_together_are_reduced_and_others_are_not():
    random = np.random.default_rng(0)
    latent = random.normal(size=(2, 1_200, FACTORS))
    x, y = (numbers(in_columns(side, seed)) for seed, side in enumerate(latent))
    apart = torch.from_numpy(random.normal(size=(1_200, COLUMNS))).float()
    assert can_be_reduced(x, y, (True, True)) == (True, True)
    assert can_be_reduced(x, apart, (True, True)) == (True, False)
    assert can_be_reduced(x, y, (True, False)) == (True, False)
    assert can_be_reduced(x[:, :200], y, (True, True)) == (False, True)
    assert can_be_reduced(x[:900], y[:900], (True, True)) == (False, False)
    # With many columns apart from the rest, the scores lose most of each of them.
    more = torch.from_numpy(random.normal(size=(2, 1_200, 250))).float()
    wider = [torch.cat(sides, 1) for sides in zip((x, y), more, strict=True)]
    assert can_be_reduced(*wider, (True, True)) == (True, True)
    wider[1][:, -1] = wider[0][:, -1]  # which both sides now share
    assert can_be_reduced(*wider, (True, True)) == (False, False)


def test_features_tell_regions_apart_and_belong_to_one_row():
    # Two rings of one centre, which no straight line tells apart.
    random = np.random.default_rng(0)
    angle, outer = random.uniform(0, 2 * math.pi, 1_200), random.random(1_200) < 0.5
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) * np.where(outer, 2.0, 0.7)[:, None]
    spread = np.random.default_rng(2).normal(size=(2, COLUMNS))
    rows = numbers(ring @ spread + 0.05 * random.normal(size=(1_200, COLUMNS)))
    front = LandmarkMap(COLUMNS).fit(rows, torch.ones(COLUMNS, dtype=torch.bool))
    found = front(rows)
    assert found.shape == (1_200, LandmarkMap.width)
    places = found[:, -40:].double().numpy()
    target = np.where(outer, 1.0, -1.0)
    weights = np.linalg.lstsq(places[:900], target[:900], rcond=None)[0]
    assert np.mean(np.sign(places[900:] @ weights) == target[900:]) > 0.99
    torch.testing.assert_close(front(rows[7:8]), found[7:8], rtol=1e-3, atol=1e-3)
    other = LandmarkMap(COLUMNS)
    other.load_state_dict(front.state_dict())
    assert torch.equal(other(rows), found)


@pytest.fixture(scope="module")
def fitted(fewer_columns) -> tuple[PointwiseDependency, Array, Array]:
    x, y, _ = clusters(1_200, 4, 0)
    how = {"folds": 2, "curve": False, "progress": False, "max_epochs": 30}
    return PointwiseDependency(random_state=0, **how).fit(x, y), x, y


def test_a_fit_of_reduced_columns(fitted, tmp_path, monkeypatch):
    model, x, _ = fitted
    assert isinstance(model.model_.x_front, LandmarkMap)
    assert list(model.hidden_) == [256, 256]
    found = model.mutual_information()
    low, high = found.ci
    assert low < math.log(4) < high
    assert found.lower < math.log(4)
    new_x, new_y, label = clusters(300, 4, 9)
    pmi = model.pmi(new_x, new_y)
    assert abs(float(pmi.mean()) - math.log(4)) < 0.15
    other = model.pmi(new_x, new_y[np.argsort(label)][::-1])
    assert float(other.mean()) < 0
    np.testing.assert_allclose(model.pmi(new_x[:1], new_y[:1]), pmi[:1], atol=0.02)
    best = model.retrieve(new_x[:20], new_y, 5).indices
    assert np.mean(label[best] == label[:20, None]) > 0.9
    monkeypatch.setattr(why, "_UNNAMED", x.shape[1])  # no feature is told as a column
    among = HeldRows(model.model_, model.training_rows_.paired).searched(
        model.oof_pmi_, np.arange(9)
    )
    assert why.explain(model, among, x, x, Silent()) is None
    model.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model")
    np.testing.assert_array_equal(again.pmi(new_x, new_y), pmi)
    assert model.mutual_information(shuffles=19).null_p == 0.05
    assert bool(model.outside(np.full_like(x[:1], 50.0), new_y[:1])[0])


def test_rows_of_groups_and_of_one_wide_side():
    x, _, label = clusters(1_200, 3, 1)
    y = np.eye(3)[label] + 0.1 * np.random.default_rng(0).normal(size=(1_200, 3))
    groups = np.arange(1_200) // 2
    how = {"folds": 2, "curve": False, "max_epochs": 30, "progress": False, "random_state": 0}
    model = PointwiseDependency(**how).fit(x, y, groups=groups)
    assert isinstance(model.model_.x_front, LandmarkMap)
    assert not isinstance(model.model_.y_front, LandmarkMap)
    low, high = model.mutual_information().ci
    assert low < math.log(3) < high
