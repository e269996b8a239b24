"""What the paper says of its representations, sentence by sentence, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pointdep.experiments.representations.pixels import Pixels
from pointdep.experiments.representations.results import Curve
from pointdep.experiments.representations.settings import MAIN, NAMES, Experiment
from pointdep.experiments.representations.summary import (
    SEED_SD,
    above_fixed,
    difference,
    finals_of,
)
from pointdep.experiments.words.claims import Claim, Finding, claim, every, finding
from pointdep.experiments.words.numbers import Measured

PAR = 0.3  # points within which two objectives are on a par
NOISE = (
    "Numbers are differences of the linear accuracy at the end, in points, paired by seed: runs of "
    "one seed begin with the same weights and see the same batches. One is above another when the "
    "95 % interval of the mean difference (Student's t) lies above zero, and below it when it lies "
    "below; within the interval it cannot be told. Of a single seed the interval is that of two "
    f"runs whose seeds differ by {SEED_SD:g} points (standard deviation), with the error of the "
    "test images: a number of ours, not measured. A run that diverged has the accuracy of chance. "
    "The intervals hold what differs from seed to seed, not from one set of images to another."
)
_FIGURE2, _ALL = ("shallow", "deep"), ("shallow", "deep", "simclr")
Answer = tuple[list[Finding], bool | None]


@dataclass(frozen=True)
class Evidence:
    """The curves and the baseline of one experiment."""

    experiment: Experiment
    curves: Sequence[Curve]
    pixels: Pixels

    def above(self, one: str, other: str, margin: float = 0.0) -> Finding:
        """Is `one` above `other` by more than the margin, in points? Both were run."""
        finals = [finals_of(self.curves, o, 1 / self.pixels.classes) for o in (one, other)]
        about = f"{NAMES[one]} less {NAMES[other]}"
        found = difference(finals[0], finals[1], self.pixels.test)
        if found is None:
            return finding(f"{about}, no seed in common", None)
        return _finding(about, found, margin, self._paper(one, other))

    def above_pixels(self, objective: str) -> Finding:
        finals = finals_of(self.curves, objective, 1 / self.pixels.classes)
        found = above_fixed(finals, self.pixels.accuracy, self.pixels.test)
        return _finding(f"{NAMES[objective]} less pixels", found)

    def missing(self, objectives: Iterable[str]) -> list[str]:
        """Those that were not run."""
        run = {curve.objective for curve in self.curves}
        return [objective for objective in dict.fromkeys(objectives) if objective not in run]

    def _paper(self, one: str, other: str) -> float | None:
        values = self.experiment.paper_values
        return 100 * (values[one] - values[other]) if {one, other} <= values.keys() else None


@dataclass(frozen=True)
class Statement:
    """A sentence, where it stands, of which parts it speaks, and how it is judged.

    rule: when it holds, in words; it does not hold when the numbers clearly say the contrary, and
    otherwise it cannot be told.
    """

    key: str
    source: str
    quote: str
    rule: str
    parts: tuple[str, ...]
    judge: Callable[[Evidence], Answer]


def judge_claims(experiment: Experiment, curves: Sequence[Curve], pixels: Pixels) -> list[Claim]:
    """Every sentence about this part of the paper, whatever was run of it."""
    evidence = Evidence(experiment, curves, pixels)
    claims = []
    for one in STATEMENTS:
        if experiment.part in one.parts:
            findings, answer = one.judge(evidence)
            claims.append(claim(one.key, one.source, one.quote, one.rule, answer, *findings))
    return claims


def _finding(
    about: str, found: Measured, margin: float = 0.0, paper: float | None = None
) -> Finding:
    seeds = "1 seed" if found.n == 1 else f"{found.n} seeds"
    supports = found.above(margin)
    return finding(f"{about}, points, {seeds}", found, paper=paper, supports=supports)


def _all_above(
    pairs: Sequence[tuple[str, str]], margin: float = 0.0
) -> Callable[[Evidence], Answer]:
    def judge(evidence: Evidence) -> Answer:
        missing = evidence.missing(one for pair in pairs for one in pair)
        run = [pair for pair in pairs if not {*pair} & {*missing}]
        return _answer([evidence.above(*pair, margin) for pair in run], missing)

    return judge


def _answer(findings: list[Finding], missing: Sequence[str]) -> Answer:
    """All must support it, and what was not run does not."""
    if missing:
        findings.append(finding(f"not run: {', '.join(NAMES[one] for one in missing)}", None))
    return findings, every([one.supports for one in findings])


def _pcc_and_cpc(evidence: Evidence) -> Answer:
    """PCC above CPC on shallow CIFAR-10, below it elsewhere."""
    experiment = evidence.experiment
    better = (experiment.part, experiment.dataset) == ("shallow", "cifar10")
    return _all_above([("pcc", "cpc") if better else ("cpc", "pcc")])(evidence)


def _above_pixels(evidence: Evidence) -> Answer:
    missing = evidence.missing(MAIN)
    run = [objective for objective in MAIN if objective not in missing]
    return _answer([evidence.above_pixels(objective) for objective in run], missing)


STATEMENTS = (
    Statement(
        "a",
        "main text",
        "D-RFC performs the best (when comparing to CPC and PCC)",
        "D-RFC is above CPC and above PCC.",
        _FIGURE2,
        _all_above([("drfc", "cpc"), ("drfc", "pcc")]),
    ),
    Statement(
        "b",
        "main text",
        "In the Shallow task on CIFAR10, PCC performs better than CPC, while it performs worse on "
        "the other experiments.",
        "PCC is above CPC in the shallow experiment on CIFAR-10, CPC above PCC in every other.",
        _FIGURE2,
        _pcc_and_cpc,
    ),
    Statement(
        "c",
        "main text",
        "our PD estimation objectives [PCC, D-RFC] can be used for self-supervised representation "
        "learning, which is either at par or better than prior approaches [CPC].",
        f"PCC and D-RFC are both less than {PAR:g} points below CPC, with the whole interval. The "
        f"paper does not say what is on a par: the {PAR:g} points are ours.",
        _ALL,
        _all_above([("drfc", "cpc"), ("pcc", "cpc")], margin=-PAR),
    ),
    Statement(
        "d",
        "supplement",
        "our empirical observation finds Density Matching I/II lead to worsened representation as "
        "comparing to other contrastive learning objectives.",
        "CPC, PCC and D-RFC are each above DM I and above DM II.",
        _ALL,
        _all_above([(good, bad) for bad in ("dm1", "dm2") for good in MAIN]),
    ),
    Statement(
        "e",
        "supplement",
        "I_JS [Variational] may encounter a relatively higher training instability [than PCC] "
        "[...] approaches with higher variance may result in a lower down-stream task performance, "
        "which accords with our empirical observation.",
        "PCC is above Variational. Both are the same objective, computed here with the same care "
        "(softplus), so that a difference is not expected.",
        _ALL,
        _all_above([("pcc", "variational")]),
    ),
    Statement(
        "f1",
        "supplement",
        "D-RFC works slightly better than CPC [in the deep experiment and in SimCLR]",
        "D-RFC is above CPC. How much is slightly is not said: the sign is judged.",
        ("deep", "simclr"),
        _all_above([("drfc", "cpc")]),
    ),
    Statement(
        "f2",
        "supplement",
        "PCC works slightly worse than CPC [in the deep experiment and in SimCLR]",
        "CPC is above PCC; again the sign is judged.",
        ("deep", "simclr"),
        _all_above([("cpc", "pcc")]),
    ),
    Statement(
        "g",
        "pointdep",
        "CPC, PCC and D-RFC learn something: each is above the same classifier on raw pixels.",
        "Each of the three is above the pixel baseline.",
        _ALL,
        _above_pixels,
    ),
)
