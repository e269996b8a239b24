"""Linear evaluation: the device's solver against scikit-learn's, on halves of digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.contrastive.evaluation import LinearResult, features, linear_evaluation
from pointdep.contrastive.multinomial import (
    LogisticFit,
    _MeanLoss,
    as_features,
    logistic_regression,
    minimise,
)
from pointdep.errors import InputError
from pointdep.fitting.progress import Silent

DIGITS = load_digits()
LABELS = DIGITS.target[:1200], DIGITS.target[1200:]


def noisy_halves(replicas: int, noise: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Upper halves with noise of their own in each replica: (R, 1200, 32) and (R, 597, 32)."""
    clean = DIGITS.data[None, :, :32]
    drawn = np.random.default_rng(0).normal(size=(replicas, *clean.shape[1:]))
    found = (clean + noise * drawn).astype(np.float32)
    return found[:, :1200], found[:, 1200:]


def sklearn_model(x: np.ndarray, y: np.ndarray, C: float) -> LogisticRegression:
    """In float64 and converged."""
    return LogisticRegression(C=C, tol=1e-9, max_iter=10_000).fit(x.astype(np.float64), y)


def probabilities(fit: LogisticFit, x: np.ndarray) -> np.ndarray:
    logits = torch.from_numpy(x).double() @ fit.weights + fit.bias[:, None]
    return logits.softmax(-1).numpy()


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_the_device_solver_finds_the_model_of_sklearn(C):
    train, _ = noisy_halves(3)
    train = train / 16
    fit = logistic_regression(train, LABELS[0], C=C, tolerance=1e-6)
    assert bool(fit.converged.all())
    for replica, found in zip(train, probabilities(fit, train), strict=True):
        expected = sklearn_model(replica, LABELS[0], C).predict_proba(replica)
        assert np.abs(found - expected).max() < 1e-4


def test_two_classes_have_one_weight_vector_as_in_sklearn():
    train = noisy_halves(1)[0] / 16
    odd = LABELS[0] % 2
    fit = logistic_regression(train, odd, C=0.1, tolerance=1e-7)
    model = sklearn_model(train[0], odd, 0.1)
    found = fit.weights[0, :, 1] - fit.weights[0, :, 0]
    assert np.allclose(found.numpy(), model.coef_[0], atol=1e-5)


@pytest.mark.parametrize("scaling", ["minmax", "standard"])
def test_accuracies_agree_with_sklearn_and_its_scalers(scaling):
    train, test = noisy_halves(2)
    data = (train, LABELS[0], test, LABELS[1])
    ours = linear_evaluation(*data, scaling=scaling)
    theirs = linear_evaluation(*data, scaling=scaling, solver="sklearn", max_iter=5000)
    assert ours.converged.all()
    assert theirs.converged.all()
    assert np.abs(ours.accuracy - theirs.accuracy).max() <= 0.003
    assert np.abs(ours.train_accuracy - theirs.train_accuracy).max() <= 0.003
    scaler = (MinMaxScaler if scaling == "minmax" else StandardScaler)().fit(train[1])
    model = sklearn_model(scaler.transform(train[1]), LABELS[0], 10.0)
    by_hand = model.score(scaler.transform(test[1]), LABELS[1])
    assert abs(ours.accuracy[1] - by_hand) <= 0.003


def test_the_papers_protocol_stops_early():
    train, test = noisy_halves(1)
    found = linear_evaluation(train, LABELS[0], test, LABELS[1], solver="saga")
    scaler = MinMaxScaler().fit(train[0])
    model = LogisticRegression(solver="saga", C=10, tol=0.1, random_state=0)
    model.fit(scaler.transform(train[0]), LABELS[0])
    assert found.accuracy[0] == pytest.approx(model.score(scaler.transform(test[0]), LABELS[1]))
    assert found.iterations[0] == model.n_iter_[0] < 50


def test_replicas_do_not_touch_each_other():
    train = noisy_halves(3)[0].astype(np.float64) / 16
    train[1] *= 40  # needs many more iterations than its neighbours
    together = logistic_regression(train, LABELS[0], C=0.1, tolerance=1e-7)
    assert len(set(together.iterations.tolist())) > 1
    for replica in range(3):
        alone = logistic_regression(train[replica], LABELS[0], C=0.1, tolerance=1e-7)
        assert torch.allclose(alone.weights[0], together.weights[replica], atol=1e-4)


def test_minimise_solves_each_quadratic_and_leaves_the_solved_alone():
    curvature = torch.tensor([[1.0, 1.0], [1.0, 1e4], [3.0, 0.01]], dtype=torch.float64)[..., None]
    bottom = torch.randn(3, 2, 1, dtype=torch.float64)
    start = torch.stack([bottom[0], bottom[1] + 5, bottom[2] - 7])

    def evaluate(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        away = point - bottom
        gradient = curvature * away
        return (curvature * away**2).sum((1, 2)) / 2, gradient, gradient.abs().amax((1, 2))

    found = minimise(
        evaluate, start, lambda gradient: gradient, tolerance=1e-8, max_iter=100, progress=Silent()
    )
    assert bool(found.converged.all())
    assert torch.equal(found.point[0], start[0])
    assert int(found.iterations[0]) == 1
    assert torch.allclose(found.point, bottom, atol=1e-6)


def test_the_gradient_is_that_of_the_loss_as_written():
    train, _ = noisy_halves(2)
    labels = torch.from_numpy(LABELS[0])
    rows = as_features(train.astype(np.float64), "the")
    scale = torch.rand(2, 32, dtype=torch.float64) + 0.5
    loss = _MeanLoss(rows, labels, 10, 0.3, scale)
    point = 0.1 * torch.randn(2, 33, 10, dtype=torch.float64)
    value, gradient, _ = loss(point)
    free = point.clone().requires_grad_()
    columns = (rows - rows.mean(1, keepdim=True)) * scale[:, None]
    logits = columns @ free[:, :-1] + free[:, -1:]
    for replica in range(2):
        entropies = torch.nn.functional.cross_entropy(logits[replica], labels, reduction="sum")
        written = (0.3 * entropies + free[replica, :-1].square().sum() / 2) / (0.3 * 1200)
        assert float(written.detach()) == pytest.approx(float(value[replica]), rel=1e-12)
        (expected,) = torch.autograd.grad(written, free, retain_graph=True)
        assert torch.allclose(expected[replica], gradient[replica], atol=1e-12)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 100), st.floats(-20, 20))
def test_minmax_scaling_undoes_units(factor, shift):
    train, test = noisy_halves(1)
    plain = linear_evaluation(train, LABELS[0], test, LABELS[1])
    moved = [np.float32(factor) * (part + np.float32(shift)) for part in (train, test)]
    found = linear_evaluation(moved[0], LABELS[0], moved[1], LABELS[1])
    assert found.accuracy[0] == pytest.approx(plain.accuracy[0], abs=0.005)


def test_separated_classes_and_constant_columns():
    labels = np.repeat([0, 1, 2], 20)
    rows = np.zeros((60, 4), dtype=np.float32)
    rows[np.arange(60), labels] = 10.0
    for scaling in ("minmax", "standard", "none"):
        found = linear_evaluation(rows, labels, rows, labels, scaling=scaling)
        assert found.converged.all()
        assert found.accuracy[0] == 1.0


@pytest.mark.parametrize("solver", ["device", "sklearn"])
def test_a_class_without_training_rows_is_never_predicted(solver):
    train, test = noisy_halves(1, noise=0.0)
    kept = LABELS[0] != 3
    found = linear_evaluation(
        train[0, kept], LABELS[0][kept], test[0], LABELS[1], solver=solver, max_iter=300
    )
    whole = linear_evaluation(train[0], LABELS[0], test[0], LABELS[1], solver=solver, max_iter=300)
    assert found.accuracy[0] < whole.accuracy[0] - 0.05
    assert found.train_accuracy[0] > 0.9


def test_too_few_iterations_are_reported():
    train, test = noisy_halves(2)
    for solver in ("device", "sklearn"):
        found = linear_evaluation(train, LABELS[0], test, LABELS[1], solver=solver, max_iter=5)
        assert not found.converged.any()
        assert found.iterations.tolist() == [5, 5]
        assert "2 of 2 did not converge" in found.summary()


def test_summary():
    some = LinearResult(
        np.array([0.8, 0.9]), np.array([1.0, 1.0]), np.ones(2, bool), np.ones(2, int)
    )
    assert some.summary() == "linear accuracy 85.00 +- 7.07 %, mean of 2 (train 100.00 %)"


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_and_expanded_views(kind):
    train = torch.from_numpy(noisy_halves(1)[0]).to(kind).expand(2, -1, -1)
    fit = logistic_regression(train, LABELS[0], C=0.1)
    alone = logistic_regression(train[0].float(), LABELS[0], C=0.1)
    assert torch.allclose(fit.weights[0], fit.weights[1])
    assert torch.allclose(fit.weights[0], alone.weights[0], atol=1e-3)


def test_blocks_of_rows_give_the_same(monkeypatch):
    train, test = noisy_halves(2)
    whole = linear_evaluation(train, LABELS[0], test, LABELS[1])
    monkeypatch.setattr("pointdep.contrastive.multinomial._BUDGET", 2 * 10 * 170)
    parts = linear_evaluation(train, LABELS[0], test, LABELS[1])
    assert np.abs(whole.accuracy - parts.accuracy).max() <= 0.002


def test_wide_features_go_by_their_diagonal(monkeypatch):
    train, test = noisy_halves(2)
    full = linear_evaluation(train, LABELS[0], test, LABELS[1])
    monkeypatch.setattr("pointdep.contrastive.multinomial._WIDEST", 8)
    diagonal = linear_evaluation(train, LABELS[0], test, LABELS[1])
    assert diagonal.converged.all()
    assert np.abs(full.accuracy - diagonal.accuracy).max() <= 0.003


def test_mistakes_are_named():
    train, test = noisy_halves(2)
    broken = train.copy()
    broken[1, 5, 3] = np.nan
    cases = [
        ((broken, LABELS[0], test, LABELS[1]), {}, "train features of replica 1 are not finite"),
        ((train, LABELS[0][:-1], test, LABELS[1]), {}, "train labels have shape"),
        ((train, LABELS[0] - 1, test, LABELS[1]), {}, "count classes from 0"),
        ((train, LABELS[0] / 2, test, LABELS[1]), {}, "give whole numbers"),
        ((train, LABELS[0].astype(str), test, LABELS[1]), {}, "train labels are <U.*one a class"),
        ((train, LABELS[0], test[:1], LABELS[1]), {}, "same encoders"),
        ((train, LABELS[0] * 0, test, LABELS[1]), {}, "two classes"),
        ((train[0, 0], LABELS[0], test, LABELS[1]), {}, "give \\(rows, columns\\)"),
        ((train, LABELS[0], test, LABELS[1]), {"scaling": "min-max"}, "did you mean 'minmax'"),
        ((train, LABELS[0], test, LABELS[1]), {"solver": "skleran"}, "did you mean 'sklearn'"),
        ((train, LABELS[0], test, LABELS[1]), {"C": 0.0}, "C=0.0"),
        ((train, LABELS[0], test, LABELS[1]), {"max_iter": 0}, "max_iter=0"),
    ]
    for data, options, message in cases:
        with pytest.raises(InputError, match=message):
            linear_evaluation(*data, **options)
    with pytest.raises(InputError, match="no row has label 1"):
        logistic_regression(train, 2 * LABELS[0])
    with pytest.raises(InputError, match="NaN or infinity"):
        logistic_regression(broken, LABELS[0])


@pytest.mark.parametrize("replicas", [None, 3])
def test_features_come_in_batches_without_gradients(replicas):
    images = torch.randint(0, 256, (25, 1, 4, 4), dtype=torch.uint8)
    weights = torch.randn(*([replicas] if replicas else []), 16, 5, requires_grad=True)
    seen = []

    def encode(batch: torch.Tensor) -> torch.Tensor:
        seen.append(len(batch))
        return ((batch.flatten(1).float() / 255) @ weights).to(torch.float64)

    found = features(encode, images, batch_size=10)
    assert seen == [10, 10, 5]
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert torch.allclose(found, ((images.flatten(1).float() / 255) @ weights).detach(), atol=1e-6)
    with pytest.raises(InputError, match="encode gave shape"):
        features(lambda batch: batch.float(), images, batch_size=10)
