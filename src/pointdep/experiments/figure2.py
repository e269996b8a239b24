"""Figure 2 and SimCLR: the objectives compared, and the paper's sentences judged by that.

Numbers are differences of the linear accuracy at the end, in points, paired by seed. An interval
joins two errors, whose halves are added in squares: that of the seeds, which gets less with their
number, and that of the test images, which does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from pointdep.experiments.claims import (
    OURS,
    Answer,
    Claim,
    Finding,
    Measured,
    Statement,
    every,
    judge_all,
)
from pointdep.experiments.pretraining_runs import Curve, Pixels
from pointdep.experiments.representations import MAIN, NAMES, Experiment

PAR = 0.3  # points within which two objectives are on a par
SEED_SD = 0.5  # points: by how much seeds are taken to differ if there is only one
_Z = 1.959964
NOISE = (
    "Each verdict is about the experiment of this folder alone. Numbers are differences of the "
    "linear accuracy at the end, in points, paired by seed: runs of one seed begin with the same "
    "weights and see the same batches. One is above another when the 95 % interval of the mean "
    "difference lies above zero, and below it when it lies below; within the interval it cannot be "
    "told. The interval has two parts, whose squares are added: the error of the seeds, by "
    f"Student's t, or of a single seed as if seeds differed by {SEED_SD:g} points (standard "
    "deviation; a number of ours, not measured); and the least error that a difference so large "
    "has on so many test images, which are the same for all. On other images than these the error "
    "is larger. A run that diverged counts with the accuracy of chance."
)
Finals = Mapping[int, float]
"""The accuracy at the end, a share, by seed."""


def summarise(curves: Sequence[Curve], experiment: Experiment) -> list[dict[str, Any]]:
    """One line per objective, in the order of the curves: its runs at their end.

    runs: that ended, of which `diverged` have no finite features and are not in mean and sd. steps,
    epochs, minutes: mean length of a run that came to its end. paper: what the paper prints. None
    if unknown.
    """
    lines = []
    for objective in dict.fromkeys(curve.objective for curve in curves):
        own = [curve for curve in curves if curve.objective == objective]
        finals = [curve.final for curve in own if curve.final is not None]
        whole = [curve for curve in own if curve.steps and not curve.cut]
        seconds = _mean([curve.seconds[-1] for curve in whole])
        lines.append(
            {
                "objective": objective,
                "runs": len(own),
                "diverged": len(own) - len(finals),
                "mean": _mean(finals),
                "sd": float(np.std(finals, ddof=1)) if len(finals) > 1 else None,
                "steps": _mean([curve.steps[-1] for curve in whole]),
                "epochs": _mean([curve.epochs[-1] for curve in whole]),
                "minutes": None if seconds is None else seconds / 60,
                "paper": experiment.paper_values.get(objective),
            }
        )
    return lines


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def difference(one: Finals, other: Finals, test: int, runs: int = 2) -> Measured | None:
    """Mean of one less other in points, paired by seed, with its 95 % interval; test: images.

    Both are evaluated on the same images, and which of these each gets right is not kept: the error
    of the images is the least that a difference so large has. With one seed the spread is taken to
    be that of so many runs with `SEED_SD` each. None without a common seed.
    """
    from scipy.stats import t

    seeds = sorted(one.keys() & other.keys())
    n = len(seeds)
    if not seeds:
        return None
    first, second = (np.array([finals[seed] for seed in seeds]) for finals in (one, other))
    apart = abs(first.mean() - second.mean())
    images = 100.0**2 * apart * (1.0 - apart) / test
    points = 100 * (first - second)
    if n > 1:
        spread = float(t.ppf(0.975, n - 1)) * float(points.std(ddof=1)) / math.sqrt(n)
    else:
        spread = _Z * SEED_SD * math.sqrt(runs)
    middle, reach = float(points.mean()), math.hypot(spread, _Z * math.sqrt(images))
    return Measured(middle, middle - reach, middle + reach, n)


@dataclass(frozen=True)
class Evidence:
    """The curves and the baseline of one experiment."""

    experiment: Experiment
    curves: Sequence[Curve]
    pixels: Pixels

    def finals(self, objective: str) -> dict[int, float]:
        """By seed; a run that diverged has the accuracy of chance."""
        chance = 1 / self.pixels.classes
        own = [curve for curve in self.curves if curve.objective == objective]
        return {curve.seed: chance if curve.final is None else curve.final for curve in own}

    def missing(self, objectives: Iterable[str]) -> list[str]:
        """Those that were not run."""
        run = {curve.objective for curve in self.curves}
        return [objective for objective in dict.fromkeys(objectives) if objective not in run]

    def above(self, one: str, other: str, margin: float = 0.0, *, alike: bool = False) -> Finding:
        """Is `one` above `other` by more than the margin, in points? Both were run.

        alike: they are one objective, so that it is refuted if they are on a par.
        """
        found = difference(self.finals(one), self.finals(other), self.pixels.test)
        supports = None if found is None else found.above(margin)
        if alike and found is not None and found.low > -PAR and found.high < PAR:
            supports = False
        values = self.experiment.paper_values
        known = {one, other} <= values.keys()
        paper = 100 * (values[one] - values[other]) if known else None
        return _finding(f"{NAMES[one]} less {NAMES[other]}", found, supports, paper)

    def above_pixels(self, objective: str) -> Finding:
        """Is it above the baseline, which does not depend on a seed?"""
        finals = self.finals(objective)
        baseline = dict.fromkeys(finals, self.pixels.accuracy)
        found = difference(finals, baseline, self.pixels.test, runs=1)
        supports = None if found is None else found.above(0.0)
        return _finding(f"{NAMES[objective]} less pixels", found, supports)


def _finding(
    about: str, found: Measured | None, supports: bool | None, paper: float | None = None
) -> Finding:
    if found is None:
        return Finding(f"{about}, no seed in common")
    seeds = "1 seed" if found.n == 1 else f"{found.n} seeds"
    numbers = found.value, found.low, found.high, paper
    return Finding(f"{about}, points, {seeds}", *numbers, supports)


def _above(
    *pairs: tuple[str, str], pixels: Sequence[str] = (), margin: float = 0.0
) -> Callable[[Evidence], Answer]:
    """The first of each pair is above the second, and those of `pixels` are above the baseline.

    All must support it, and what was not run does not.
    """

    def judge(evidence: Evidence) -> Answer:
        missing = evidence.missing([*chain(*pairs), *pixels])
        findings = [evidence.above(*pair, margin) for pair in pairs if not {*pair} & {*missing}] + [
            evidence.above_pixels(one) for one in pixels if one not in missing
        ]
        if missing:
            findings.append(Finding(f"not run: {', '.join(NAMES[one] for one in missing)}"))
        return findings, every([one.supports for one in findings])

    return judge


def _pcc_and_cpc(evidence: Evidence) -> Answer:
    """PCC above CPC on shallow CIFAR-10, below it elsewhere."""
    better = evidence.experiment.name == "shallow cifar10"
    return _above(("pcc", "cpc") if better else ("cpc", "pcc"))(evidence)


def _on_a_par(evidence: Evidence) -> Answer:
    """PCC and D-RFC no worse than CPC, and all three better than pixels."""
    findings, answer = _above(("drfc", "cpc"), ("pcc", "cpc"), pixels=MAIN, margin=-PAR)(evidence)
    compared = evidence.missing(["cpc"]) == [] and evidence.above_pixels("cpc").supports
    return findings, answer if compared else None


def _like_pcc(evidence: Evidence) -> Answer:
    """PCC above Variational, which is the same objective; nothing is said of runs that failed."""
    if evidence.missing(("pcc", "variational")):
        return _above(("pcc", "variational"))(evidence)
    learned = evidence.above_pixels("pcc")
    findings = [evidence.above("pcc", "variational", alike=True), learned]
    return findings, findings[0].supports if learned.supports else None


_FIGURE2, _DEEPER, _ALL = ("shallow", "deep"), ("deep", "simclr"), ("shallow", "deep", "simclr")
_HERE = "{here}"
_DM = (
    "our empirical observation finds Density Matching I/II lead to worsened representation as "
    "comparing to other contrastive learning objectives."
)
_DM_RULE = "CPC, PCC and D-RFC are each above DM I and above DM II."
_DM_JUDGE = _above(*((good, bad) for bad in ("dm1", "dm2") for good in MAIN))
STATEMENTS: Sequence[Statement[Evidence]] = (
    Statement(
        "a",
        "main text",
        "D-RFC performs the best (when comparing to CPC and PCC)",
        "D-RFC is above CPC and above PCC.",
        _above(("drfc", "cpc"), ("drfc", "pcc")),
        parts=_FIGURE2,
    ),
    Statement(
        "b",
        "main text",
        "In the Shallow task on CIFAR10, PCC performs better than CPC, while it performs worse on "
        f"the other experiments. {_HERE}",
        "PCC is above CPC in the shallow experiment on CIFAR-10, CPC above PCC in every other; of "
        "these the one that is here.",
        _pcc_and_cpc,
        parts=_FIGURE2,
    ),
    Statement(
        "c",
        "main text",
        "our PD estimation objectives [PCC, D-RFC] can be used for self-supervised representation "
        "learning, which is either at par or better than prior approaches [CPC].",
        f"PCC and D-RFC are both less than {PAR:g} points below CPC, with the whole interval, and "
        "all three are above the pixels. Where CPC is not above them there is nothing to compare "
        f"with, and it cannot be told. The paper does not say what is on a par: the {PAR:g} points "
        "are ours.",
        _on_a_par,
        parts=_ALL,
    ),
    Statement("d", "supplement", _DM, _DM_RULE, _DM_JUDGE, parts=("shallow", "simclr")),
    Statement(
        "d",
        "supplement",
        _DM,
        f"{_DM_RULE} As in the paper, CPC alone trains without batch norm in its blocks and "
        "without gradient clipping; DM I and DM II, of whose settings the paper says nothing, have "
        "those of PCC. What CPC differs by is not the objective's alone.",
        _DM_JUDGE,
        parts=("deep",),
    ),
    Statement(
        "e",
        "supplement",
        "I_JS [Variational] may encounter a relatively higher training instability [than PCC] "
        "[...] approaches with higher variance may result in a lower down-stream task performance, "
        "which accords with our empirical observation.",
        "PCC is above Variational. Table 1 trains both by Eq. (1), and here they are one "
        "objective, computed with the same care (softplus) and trained alike, so that a difference "
        f"is not expected: with the whole interval within {PAR:g} points of zero they are equal, "
        "and it does not hold. Where PCC is not above the pixels it cannot be told.",
        _like_pcc,
        parts=_ALL,
    ),
    Statement(
        "f1",
        "supplement",
        f"D-RFC works slightly better than CPC [in the deep experiment and in SimCLR] {_HERE}",
        "D-RFC is above CPC. How much is slightly is not said: the sign is judged.",
        _above(("drfc", "cpc")),
        parts=_DEEPER,
    ),
    Statement(
        "f2",
        "supplement",
        f"PCC works slightly worse than CPC [in the deep experiment and in SimCLR] {_HERE}",
        "CPC is above PCC; again the sign is judged.",
        _above(("cpc", "pcc")),
        parts=_DEEPER,
    ),
    Statement(
        "g",
        OURS,
        "CPC, PCC and D-RFC learn something: each is above the same classifier on raw pixels.",
        "Each of the three is above the pixel baseline.",
        _above(pixels=MAIN),
        parts=_ALL,
    ),
)


def judge_claims(experiment: Experiment, curves: Sequence[Curve], pixels: Pixels) -> list[Claim]:
    """Every sentence about this part of the paper, whatever was run of it.

    "{here}" in a sentence that speaks of several experiments is the one that is judged.
    """
    here = f"[here: {experiment.title}]"
    about = [
        replace(one, quote=one.quote.replace(_HERE, here))
        for one in STATEMENTS
        if experiment.part in one.parts
    ]
    return judge_all(about, Evidence(experiment, curves, pixels))
