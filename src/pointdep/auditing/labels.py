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
#
# What a model does not know looks like noise to that: with weak features it doubts many labels
# that are right. But its doubt falls with its own odds for the given label, and noise does not. So
# among rows that look like j, the rate at which i is given is a constant, the noise, plus powers
# of these odds, as that of pairs in `decision`. Some mistakes look sure, so the constant is less a
# share of those that do not: the larger, the more the model doubts in all.

FEWEST_ROWS = 20  # per label, on average: with fewer T cannot be counted
MOST_CELLS = 1 << 27  # rows times labels
# Chosen on MNIST, with good and with weak features, drawn confusion tables and labels by a careless
# classifier: such that the share of right labels among suspects is at most about the asked one.
_STEPS = 20
_POWERS = np.array([0.0, 1.0, 2.0])  # of the odds
_LOWEST = -12.0  # logarithm of the odds
_LOOK_SURE = 4.0  # times the model's doubt: mistakes that look sure to those that do not
_FEWEST = 10  # rows given i that look like j: rarer labels share one rate
_RATE_STEPS = 100
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


def clean_probabilities(probability: Array, joint: Array) -> Array:
    """p(label | x), (n, k), from p(given label | x) and shares of the rows, given by right label.

    The mixture of T's columns that comes closest to p(given label | x), by a few steps of
    expectation and maximisation (Richardson and Lucy).
    """
    noise = joint / np.maximum(joint.sum(0), 1e-12)
    clean = probability.copy()
    for _ in range(_STEPS):
        clean *= (probability / np.maximum(clean @ noise.T, 1e-12)) @ noise
        clean /= np.maximum(clean.sum(1, keepdims=True), np.finfo(np.float64).tiny)
    return clean


def wrong_probabilities(clean: Array, given: NDArray[np.int64]) -> Array:
    """That the given label is wrong, (n,): 0 where it is also the likeliest one."""
    likeliest, wrong = clean.argmax(1), np.zeros(len(given))
    sure = _LOOK_SURE * (1.0 - float(clean.max(1).mean()))
    suspects: list[NDArray[np.int64]] = []  # rows of labels that are rare among those that look so
    rare_odds, rare_total = [np.zeros(0)], np.zeros(len(_POWERS))
    for label in np.unique(likeliest[likeliest != given]):
        rows = np.flatnonzero(likeliest == label)
        logs = np.log(np.maximum(clean[rows], 1e-12))
        odds = np.maximum(logs - logs[:, [label]], _LOWEST)
        order = np.argsort(given[rows], kind="stable")
        others, starts = np.unique(given[rows][order], return_index=True)
        for other, hit in zip(others, np.split(order, starts[1:]), strict=True):
            if other == label:
                continue
            total = np.exp(np.multiply.outer(_POWERS, odds[:, other])).sum(1)
            if len(hit) >= _FEWEST:
                wrong[rows[hit]] = _share_of_noise(odds[hit, other], total, sure)
            else:
                suspects.append(rows[hit])
                rare_odds.append(odds[hit, other])
                rare_total += total
    if suspects:
        wrong[np.concatenate(suspects)] = _share_of_noise(
            np.concatenate(rare_odds), rare_total, sure
        )
    return wrong


def _share_of_noise(odds: Array, total: Array, sure: float) -> Array:
    """At rows whose given label is unlikely, (m,), the constant part of the rate of such rows.

    odds: (m,) logarithms, at most 0, of their given label; total: the sum of each power of the
    odds over all rows that could be such rows; sure: mistakes that look like noise to those that do
    not. The rate is a Poisson mixture of these powers, fitted by expectation and maximisation.
    """
    parts = np.exp(np.multiply.outer(_POWERS, odds)) / total[:, None]
    counts = np.full(len(total), len(odds) / len(total))
    for _ in range(_RATE_STEPS):
        shares = counts[:, None] * parts
        shares /= shares.sum(0)
        counts = shares.sum(1)
    noise = max(1.0 - sure * counts[1:].sum() / max(counts[0], 1e-9), 0.0)
    found: Array = noise * shares[0]
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
    clean = clean_probabilities(probability, confident_joint(probability, given))
    wrong = wrong_probabilities(clean, given)
    doubt = math.sqrt(float((wrong * (1.0 - wrong)).sum()) + 1.0) / len(wrong)
    found = Contamination(float(wrong.mean()), given=False, stderr=doubt)
    if contamination is not None:
        wrong = _of_mean(wrong, contamination)
        found = Contamination(contamination, given=True)
    labels = len(names)
    clean[np.arange(len(given)), given] = -1.0
    better = clean.argmax(1)
    joint: Array = np.diag(np.bincount(given, 1.0 - wrong, minlength=labels)).astype(np.float64)
    np.add.at(joint, (given, better), wrong)
    joint /= len(given)
    changed = wrong > 0.5
    return LabelDecision(wrong, q_values(pmi, wrong), found, better, changed, names, joint)


def _of_mean(wrong: Array, mean: float) -> Array:
    """The probabilities with odds that are multiplied so that their mean is as given."""
    from scipy.optimize import brentq

    logits = np.log(np.maximum(wrong, 1e-12)) - np.log(np.maximum(1.0 - wrong, 1e-12))

    def moved(by: float) -> Array:
        found: Array = 0.5 * (1.0 + np.tanh(0.5 * (logits + by)))
        return found

    return moved(float(brentq(lambda by: float(moved(by).mean()) - mean, -60.0, 60.0)))
