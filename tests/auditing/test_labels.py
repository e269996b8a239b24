"""Wrong labels: of clouds whose p(label | x) and confusion are known."""

import numpy as np
import pytest

from pointdep.auditing.labels import (
    clean_probabilities,
    confident_joint,
    decide_labels,
    probabilities,
    wrong_probabilities,
)

ROWS, LABELS = 6000, 4


def drawn(noise, seed=0, rows=ROWS):
    """Exact log r of each row with each label, given and right labels; noise: T[given, right]."""
    random = np.random.default_rng(seed)
    right = random.integers(0, LABELS, rows)
    centers = 3.5 * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    x = centers[right] + random.normal(size=(rows, 2))
    likelihood = np.exp(-0.5 * np.square(x[:, None] - centers).sum(2))
    clean = likelihood / likelihood.sum(1, keepdims=True)
    given = np.array([random.choice(LABELS, p=noise[:, label]) for label in right])
    shares = np.bincount(given, minlength=LABELS) / rows
    return np.log(clean @ noise.T / shares), given, right, clean


def confusion(rate):
    """Each label is mistaken for the next one, and half as often for the one after it."""
    noise = np.zeros((LABELS, LABELS))
    for label in range(LABELS):
        noise[(label + 1) % LABELS, label] = rate * 2 / 3
        noise[(label + 2) % LABELS, label] = rate / 3
        noise[label, label] = 1 - rate
    return noise


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
def test_the_confusion_and_the_share_of_good_labels_among_suspects(rate):
    noise = confusion(rate)
    log_ratio, given, right, _ = drawn(noise)
    pmi = log_ratio[np.arange(ROWS), given]
    found = decide_labels(log_ratio, given, pmi, None, np.array(list("abcd")))
    wrong = given != right
    assert found.contamination.share == pytest.approx(wrong.mean(), rel=0.15)
    np.testing.assert_allclose(found.confusion.to_numpy(), noise / LABELS, atol=0.02)
    assert list(found.confusion) == list(found.confusion.index) == list("abcd")
    suspect = found.q_value <= 0.1
    assert (~wrong[suspect]).mean() < 0.14
    assert suspect[wrong].mean() > 0.8
    better = found.better_label(np.zeros(ROWS, bool))
    assert (better.notna() == found.changed).all()
    names = np.array(list("abcd"))
    assert (better[found.changed] == names[right][found.changed]).mean() > 0.8


def test_a_share_that_is_given():
    log_ratio, given, _, _ = drawn(confusion(0.2), rows=1000)
    pmi, names = log_ratio[np.arange(1000), given], np.arange(LABELS)
    free, told = (decide_labels(log_ratio, given, pmi, share, names) for share in (None, 0.05))
    assert told.contamination.given
    assert told.posterior.mean() == pytest.approx(0.05, rel=1e-3)
    assert (np.argsort(told.posterior) == np.argsort(free.posterior)).mean() > 0.9


def test_probabilities_and_right_labels_by_hand():
    log_ratio, given, _, clean = drawn(confusion(0.2))
    found = probabilities(log_ratio, given)
    np.testing.assert_allclose(found.sum(1), 1.0)
    exact = clean @ confusion(0.2).T
    assert np.abs(found - exact).mean() < 0.02  # the power is near 1
    joint = confident_joint(found, given)
    np.testing.assert_allclose(joint.sum(1), np.bincount(given) / ROWS)
    # The noise is undone, up to the steps that are not taken; without any nothing changes.
    undone = clean_probabilities(exact, confusion(0.2) / LABELS)
    assert np.abs(undone - clean).mean() < 0.2 * np.abs(exact - clean).mean()
    np.testing.assert_allclose(clean_probabilities(found, np.eye(LABELS)), found, atol=1e-9)


def test_doubt_of_the_model_is_no_noise():
    # The labels are right, drawn from p(label | x) of clouds that overlap much and little.
    random = np.random.default_rng(0)
    for width in (0.5, 1.0, 2.0):
        logs = random.normal(size=(ROWS, LABELS)) / width
        likely = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
        given = (likely.cumsum(1) > random.random((ROWS, 1))).argmax(1)
        log_ratio = np.log(likely / (np.bincount(given) / ROWS))
        pmi = log_ratio[np.arange(ROWS), given]
        found = decide_labels(log_ratio, given, pmi, None, np.arange(LABELS))
        assert (found.q_value <= 0.1).sum() <= 3


def test_labels_that_are_rare_where_they_are_wrong_share_one_rate():
    random = np.random.default_rng(0)
    right = np.repeat(np.arange(20), 50)
    given = right.copy()
    given[::50] = (right[::50] + random.integers(1, 20, 20)) % 20  # each confusion about once
    clean = np.full((1000, 20), 1e-4)
    clean[np.arange(1000), right] = 1.0
    found = wrong_probabilities(clean, given)
    assert (found[given == right] == 0.0).all()
    np.testing.assert_allclose(found[given != right], found[0])
