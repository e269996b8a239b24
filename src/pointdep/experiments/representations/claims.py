"""What the paper says of its representations, sentence by sentence, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pointdep.experiments.representations.evidence import PAR, Evidence
from pointdep.experiments.representations.pixels import Pixels
from pointdep.experiments.representations.results import Curve
from pointdep.experiments.representations.settings import MAIN, NAMES, PARTS, SETS, Experiment
from pointdep.experiments.representations.summary import SEED_SD
from pointdep.experiments.words.claims import Claim, Finding, claim, every, finding

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
_FIGURE2, _ALL = ("shallow", "deep"), ("shallow", "deep", "simclr")
_HERE = "{here}"
Answer = tuple[list[Finding], bool | None]


@dataclass(frozen=True)
class Statement:
    """A sentence, where it stands, of which parts it speaks, and how it is judged.

    quote: "{here}" in it is the experiment that is judged, where the sentence speaks of several.
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
    here = f"[here: {PARTS[experiment.part].title}, {SETS[str(experiment.dataset)]}]"
    claims = []
    for one in STATEMENTS:
        if experiment.part in one.parts:
            findings, answer = one.judge(evidence)
            quote = one.quote.replace(_HERE, here)
            claims.append(claim(one.key, one.source, quote, one.rule, answer, *findings))
    return claims


def _all_above(pairs: Sequence[tuple[str, str]]) -> Callable[[Evidence], Answer]:
    def judge(evidence: Evidence) -> Answer:
        missing = evidence.missing(one for pair in pairs for one in pair)
        run = [pair for pair in pairs if not {*pair} & {*missing}]
        return _answer([evidence.above(*pair) for pair in run], missing)

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


def _on_a_par(evidence: Evidence) -> Answer:
    """PCC and D-RFC no worse than CPC, and all three better than pixels."""
    missing = evidence.missing(MAIN)
    learned = {one: evidence.above_pixels(one) for one in MAIN if one not in missing}
    others = [one for one in ("drfc", "pcc") if one in learned and "cpc" in learned]
    findings = [evidence.above(one, "cpc", -PAR) for one in others]
    findings, answer = _answer([*findings, *learned.values()], missing)
    compared = "cpc" in learned and learned["cpc"].supports is True
    return findings, answer if compared else None


def _like_pcc(evidence: Evidence) -> Answer:
    """PCC above Variational, which is the same objective; nothing is said of runs that failed."""
    missing = evidence.missing(("pcc", "variational"))
    if missing:
        return _answer([], missing)
    learned = evidence.above_pixels("pcc")
    findings = [evidence.above_its_like("pcc", "variational"), learned]
    return findings, findings[0].supports if learned.supports is True else None


_DM = (
    "our empirical observation finds Density Matching I/II lead to worsened representation as "
    "comparing to other contrastive learning objectives."
)
_DM_RULE = "CPC, PCC and D-RFC are each above DM I and above DM II."
_DM_JUDGE = _all_above([(good, bad) for bad in ("dm1", "dm2") for good in MAIN])
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
        f"the other experiments. {_HERE}",
        "PCC is above CPC in the shallow experiment on CIFAR-10, CPC above PCC in every other; of "
        "these the one that is here.",
        _FIGURE2,
        _pcc_and_cpc,
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
        _ALL,
        _on_a_par,
    ),
    Statement("d", "supplement", _DM, _DM_RULE, ("shallow", "simclr"), _DM_JUDGE),
    Statement(
        "d",
        "supplement",
        _DM,
        f"{_DM_RULE} As in the paper, CPC alone trains without batch norm in its blocks and "
        "without gradient clipping; DM I and DM II, of whose settings the paper says nothing, have "
        "those of PCC. What CPC differs by is not the objective's alone.",
        ("deep",),
        _DM_JUDGE,
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
        _ALL,
        _like_pcc,
    ),
    Statement(
        "f1",
        "supplement",
        f"D-RFC works slightly better than CPC [in the deep experiment and in SimCLR] {_HERE}",
        "D-RFC is above CPC. How much is slightly is not said: the sign is judged.",
        ("deep", "simclr"),
        _all_above([("drfc", "cpc")]),
    ),
    Statement(
        "f2",
        "supplement",
        f"PCC works slightly worse than CPC [in the deep experiment and in SimCLR] {_HERE}",
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
