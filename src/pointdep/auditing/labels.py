"""Wrong labels: how labels are confused, and which label each row should have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
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
# Chosen on MNIST with drawn confusion tables and with labels by a careless classifier: with fewer
# steps all doubt of the model is taken for noise, and few labels are named.
_STEPS = 30
_FOR_SHARPNESS = 20_000  # rows
_SHARPNESS = tuple(np.geomspace(0.2, 3.0, 28).tolist())


@dataclass(frozen=True, eq=False)
class LabelDecision:
    """posterior, q_value: (n,) that the label of each row is wrong; contamination: of all of them.

    better: (n,) codes of the likeliest other labels; changed: (n,), whether these are likelier than
    the given ones; names: (k,) of them; joint: (k, k) shares of the rows by given label (first) and
    likely right one.
    """

    posterior: Array
    q_value: Array
    contamination: Contamination
    better: NDArray[np.int64]
    changed: NDArray[np.bool_]
    names: NDArray[Any]
    joint: Array

    @property
    def confusion(self) -> pd.DataFrame:
        """The table of `joint`: a line per given label, a column per likely right one."""
        names = [str(name) for name in self.names]
        return pd.DataFrame(self.joint, index=pd.Index(names, name="given"), columns=names)

    def better_label(self, doubtful: NDArray[np.bool_]) -> pd.Series[Any]:
        """The likeliest other label of doubtful rows and of those where it is likelier, or None."""
        better = pd.Series(self.names[self.better], dtype=object)
        return better.where(doubtful | self.changed, None)

    def within(self, decision: Decision) -> Decision:
        """These, unless PMI cannot tell right from wrong: then nobody is named."""
        q_value = self.q_value if decision.named else decision.q_value
        return Decision(self.posterior, q_value, self.contamination, decision.named)


def probabilities(log_ratio: NDArray[np.floating], given: NDArray[np.int64]) -> Array:
    """p(given label | x), (n, k): r times the share of each label. log_ratio: (n, k).

    Raised to the power that suits the given labels best, which the model has not seen.
    """
    shares = np.bincount(given, minlength=log_ratio.shape[1]) / len(given)
    logs = log_ratio + np.log(np.maximum(shares, np.finfo(np.float64).tiny))
    logs = logs - logs.max(1, keepdims=True)
    some = np.linspace(0, len(given) - 1, min(len(given), _FOR_SHARPNESS)).astype(np.int64)
    own = logs[some, given[some]]

    def likelihood(power: float) -> float:
        return float((power * own - np.log(np.exp(power * logs[some]).sum(1))).mean())

    odds = np.exp(max(_SHARPNESS, key=likelihood) * logs)
    found: Array = odds / odds.sum(1, keepdims=True)
    return found


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
    joint = np.full(
        (labels, labels), 1.0 / labels
    )  # a row of each label says nothing is impossible
    np.add.at(joint, (given[sure], above[sure].argmax(1)), 1.0)
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
    found: Array = right / np.maximum(right.sum(1, keepdims=True), np.finfo(np.float64).tiny)
    return found


def decide_labels(
    log_ratio: NDArray[np.floating],
    given: NDArray[np.int64],
    pmi: NDArray[np.floating],
    contamination: float | None,
    names: NDArray[Any],
) -> LabelDecision:
    """log_ratio: (n, k) of each row with each label, by models that did not see the row.

    given: (n,) codes of the labels; pmi: (n,), the order of rows that are as likely wrong;
    contamination: the share of wrong labels, where it is known: the odds of all rows follow it;
    names: (k,) of the labels.
    """
    probability = probabilities(log_ratio, given)
    right = right_labels(probability, given, confident_joint(probability, given))
    wrong = 1.0 - right[np.arange(len(given)), given]
    doubt = math.sqrt(float((wrong * (1.0 - wrong)).sum()) + 1.0) / len(wrong)
    found = Contamination(float(wrong.mean()), given=False, stderr=doubt)
    if contamination is not None:
        wrong = _of_mean(wrong, contamination)
        found = Contamination(contamination, given=True)
    labels, rows = len(names), np.arange(len(given))
    sums = [np.bincount(given, right[:, label], minlength=labels) for label in range(labels)]
    joint = np.stack(sums, 1) / len(given)
    others = right.copy()
    others[rows, given] = -1.0
    better = others.argmax(1)
    changed = others[rows, better] > right[rows, given]
    return LabelDecision(wrong, q_values(pmi, wrong), found, better, changed, names, joint)


def _of_mean(wrong: Array, mean: float) -> Array:
    """The probabilities with odds that are multiplied so that their mean is as given."""
    from scipy.optimize import brentq

    logits = np.log(np.maximum(wrong, 1e-12)) - np.log(np.maximum(1.0 - wrong, 1e-12))

    def moved(by: float) -> Array:
        found: Array = 0.5 * (1.0 + np.tanh(0.5 * (logits + by)))
        return found

    return moved(float(brentq(lambda by: float(moved(by).mean()) - mean, -60.0, 60.0)))
