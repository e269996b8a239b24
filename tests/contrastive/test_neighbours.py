"""Nearest neighbours against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from pointdep.contrastive.evaluation import knn_accuracy
from pointdep.errors import InputError

from .on_apple import OnApple

DIGITS = load_digits()
ROWS = np.random.default_rng(0).normal(size=(3, 1797, 32)) * 3 + DIGITS.data[None, :, :32]
TRAIN, TEST = ROWS[:, :1200], ROWS[:, 1200:]
LABELS = DIGITS.target[:1200], DIGITS.target[1200:]


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (20, 0.1), (200, 0.02), (1200, 0.05)])
def test_agrees_with_sklearn(k, temperature):
    found = knn_accuracy(TRAIN, LABELS[0], TEST, LABELS[1], k=k, temperature=temperature)
    assert found.shape == (3,)
    for replica in range(3):
        model = KNeighborsClassifier(
            k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / temperature)
        ).fit(TRAIN[replica], LABELS[0])
        expected = model.score(TEST[replica], LABELS[1])
        assert 0.2 < expected < 0.98
        assert found[replica] == pytest.approx(expected, abs=1e-12)


def test_blocks_lengths_and_kinds_change_nothing():
    whole = knn_accuracy(TRAIN, LABELS[0], TEST, LABELS[1])
    assert np.array_equal(knn_accuracy(TRAIN, LABELS[0], TEST, LABELS[1], block=7), whole)
    longer = TEST * np.random.default_rng(1).uniform(0.1, 10, size=(3, 597, 1))
    assert np.allclose(knn_accuracy(3 * TRAIN, LABELS[0], longer, LABELS[1]), whole, atol=1e-3)
    one = knn_accuracy(
        torch.from_numpy(TRAIN[1]), torch.from_numpy(LABELS[0]), TEST[1], LABELS[1].tolist()
    )
    assert one.shape == (1,)
    assert one[0] == whole[1]


def test_a_low_temperature_does_not_overflow():
    nearest = knn_accuracy(TRAIN, LABELS[0], TEST, LABELS[1], k=1)
    cold = knn_accuracy(TRAIN, LABELS[0], TEST, LABELS[1], k=20, temperature=1e-6)
    assert np.allclose(cold, nearest)


def test_a_class_without_training_rows_counts_as_wrong():
    found = knn_accuracy(TRAIN[0], LABELS[0] * 0 + 7, TEST[0], LABELS[1])
    assert found[0] == pytest.approx((LABELS[1] == 7).mean())


def test_features_on_a_device_without_float64_go_to_the_cpu():
    train, test = (torch.from_numpy(part).float() for part in (TRAIN, TEST))
    plain = knn_accuracy(train, LABELS[0], test, LABELS[1])
    there = knn_accuracy(
        train.as_subclass(OnApple), LABELS[0], test.as_subclass(OnApple), LABELS[1]
    )
    assert np.array_equal(there, plain)


def test_mistakes_are_named():
    for options, message in [
        ({"k": 1201}, "give at most 1200"),
        ({"k": 0}, "k=0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"block": 0}, "block=0"),
    ]:
        with pytest.raises(InputError, match=message):
            knn_accuracy(TRAIN, LABELS[0], TEST, LABELS[1], **options)
    with pytest.raises(InputError, match="test features of replica 0 are not finite"):
        knn_accuracy(TRAIN, LABELS[0], TEST * np.inf, LABELS[1])
