"""Wrong labels: how labels are confused, and which label each row should have."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.auditing.decision import Decision, q_values
from pointdep.auditing.result import Contamination

Array = NDArray[np.float64]

# People do not mislabel by chance: a cat becomes a dog and not a truck. So wrong labels are not
# chance pairs, and the model is that of class-conditional noise: T[i, j] is the probability that
# a row whose label should be j has the label i. T is counted from confident rows (Northcutt, Jiang
# and Chuang, 2021), and what the label should be follows from p(given label | x) = T p(label | x).

FEWEST_ROWS = 20  # per label, on average: with fewer T cannot be counted
MOST_CELLS = 1 << 27  # rows times labels
_STEPS = 30


@dataclass(frozen=True, eq=False)
class LabelDecision:
    """decision: as for pairs; likely: (n,) codes of the likely right labels; joint: (k, k) shares
    of the rows by given label (first) and likely right one."""

    decision: Decision
    likely: NDArray[np.int64]
    joint: Array


def probabilities(log_ratio: NDArray[np.floating], given: NDArray[np.int64]) -> Array:
    """p(given label | x), (n, k): r times the share of each label. log_ratio: (n, k)."""
    shares = np.bincount(given, minlength=log_ratio.shape[1]) / len(given)
    logs = log_ratio + np.log(np.maximum(shares, np.finfo(np.float64).tiny))
    found: Array = np.exp(logs - logs.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def confident_joint(probability: Array, given: NDArray[np.int64]) -> Array:
    """Shares of the rows by given and likely right label, (k, k).

    A row counts for the likeliest of the labels whose probability is at least the mean of rows
    that have the label. Each given label keeps its share.
    """
    labels = probability.shape[1]
    counts = np.bincount(given, minlength=labels)
    own = probability[np.arange(len(given)), given]
    mean = np.bincount(given, own, minlength=labels) / np.maximum(counts, 1)
    above = np.where(probability >= mean, probability, 0.0)
    sure = above.max(1) > 0.0
    joint = np.zeros((labels, labels))
    np.add.at(joint, (given[sure], above[sure].argmax(1)), 1.0)
    joint[np.arange(labels), np.arange(labels)] += 1e-6  # labels without a confident row
    scaled: Array = joint * (counts / joint.sum(1))[:, None] / len(given)
    return scaled


def right_labels(probability: Array, given: NDArray[np.int64], joint: Array) -> Array:
    """The probability of each label to be the right one of the row, (n, k).

    p(label | x) is the mixture of T's columns that comes closest to p(given label | x), by a few
    steps of expectation and maximisation (Richardson and Lucy).
    """
    noise = joint / np.maximum(joint.sum(0), 1e-12)
    right = probability.copy()
    for _ in range(_STEPS):
        right *= (probability / np.maximum(right @ noise.T, 1e-12)) @ noise
        right /= right.sum(1, keepdims=True)
    right *= noise[given]
    return right / np.maximum(right.sum(1, keepdims=True), np.finfo(np.float64).tiny)


def decide_labels(
    log_ratio: NDArray[np.floating],
    given: NDArray[np.int64],
    pmi: NDArray[np.floating],
    contamination: float | None,
) -> LabelDecision:
    """log_ratio: (n, k) of each row with each label, by models that did not see the row.

    given: (n,) codes of the labels; pmi: (n,), the order of rows that are as likely wrong.
    contamination: the share of wrong labels, where it is known; the odds of all rows follow it.
    """
    probability = probabilities(log_ratio, given)
    joint = confident_joint(probability, given)
    right = right_labels(probability, given, joint)
    rows = np.arange(len(given))
    wrong = 1.0 - right[rows, given]
    found = Contamination(float(wrong.mean()), given=False, stderr=_error(wrong))
    if contamination is not None:
        wrong = _of_mean(wrong, contamination)
        found = Contamination(contamination, given=True)
    likely = right.argmax(1)
    return LabelDecision(Decision(wrong, q_values(pmi, wrong), found), likely, _joint(right, given))


def _joint(right: Array, given: NDArray[np.int64]) -> Array:
    """(k, k) shares of the rows by given label and by the probabilities of the right one."""
    labels = right.shape[1]
    sums = [np.bincount(given, right[:, label], minlength=labels) for label in range(labels)]
    joint: Array = np.stack(sums, 1) / len(given)
    return joint


def _error(wrong: Array) -> float:
    return float(np.sqrt((wrong * (1.0 - wrong)).sum() + 1.0) / len(wrong))


def _of_mean(wrong: Array, mean: float) -> Array:
    """The probabilities with odds that are multiplied so that their mean is as given."""
    odds = wrong / np.maximum(1.0 - wrong, 1e-12)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        moved = odds * np.exp(middle)
        low, high = (middle, high) if (moved / (1.0 + moved)).mean() < mean else (low, middle)
    moved = odds * np.exp(low)
    found: Array = moved / (1.0 + moved)
    return found


def label_table(joint: Array, names: NDArray[Any]) -> Any:
    """The confusion table as a DataFrame: rows are given labels, columns likely right ones."""
    import pandas as pd

    shown = [str(name) for name in names]
    return pd.DataFrame(joint, index=pd.Index(shown, name="given"), columns=shown)
