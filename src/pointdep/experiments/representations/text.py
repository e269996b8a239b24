"""The table, how the runs were made, and the claims as text: for a terminal and for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pointdep.experiments.representations.claims import NOISE
from pointdep.experiments.representations.departures import TUNING, departures, note
from pointdep.experiments.representations.pd_model import FLIPPED, Answers
from pointdep.experiments.representations.run import Found
from pointdep.experiments.representations.settings import NAMES, PARTS
from pointdep.experiments.representations.summary import summarise
from pointdep.experiments.text import aligned, markdown
from pointdep.experiments.words.claims import Claim
from pointdep.experiments.words.claims_text import count

WIDTH = 100
_ORDERS = {
    ("shallow", "mnist"): "D-RFC, CPC, PCC",
    ("shallow", "cifar10"): "D-RFC, PCC, CPC",
    ("deep", "cifar10"): "D-RFC, CPC, PCC",
}
_ABOUT = " The verdicts are about these runs, which are not the paper's."
_EVALUATED = {
    "shallow": "Evaluated on the code of the upper half: columns to [0, 1], then a multinomial "
    "logistic regression with C = 10, here to convergence; the paper's (saga, tolerance 0.1) stops "
    "before.",
    "deep": "Evaluated on frozen features by a logistic regression on standardised columns, "
    "C = 0.1, to convergence; the paper's classifiers train beside the encoder. As in the paper, "
    "CPC alone trains without batch norm in its blocks and without gradient clipping.",
    "simclr": "Evaluated on frozen features, before the head, by a logistic regression on "
    "standardised columns, C = 0.1, to convergence.",
}


def order(found: Found) -> str:
    """What the paper prints of this experiment."""
    experiment = found.experiment
    if experiment.paper_values:
        return "Paper: mean of 5 runs."
    known = _ORDERS.get((experiment.part, str(experiment.dataset)))
    if known is None:
        return "The paper has no such experiment."
    return (
        "The paper shows curves without numbers; the order that its text gives, best first: "
        f"{known}."
    )


def table_rows(found: Found) -> list[list[str]]:
    """A header, a line an objective, and the baseline."""
    lines = summarise(found.curves, found.experiment)
    unit = found.experiment.unit
    rows = [["objective", "accuracy, %", "sd", "runs", "diverged", unit, "minutes", "paper, %"]]
    for line in lines:
        length = line.steps if unit == "iterations" else line.epochs
        rows.append(
            [
                NAMES[line.objective],
                _percent(line.mean),
                _percent(line.sd),
                str(line.runs),
                str(line.diverged),
                "-" if length is None else f"{length:,.4g}" if length < 1e4 else f"{length:,.0f}",
                "-" if line.minutes is None else f"{line.minutes:.1f}",
                _percent(line.paper),
            ]
        )
    return [*rows, ["pixels", _percent(found.pixels.accuracy), *["-"] * 6]]


def legend(found: Found) -> str:
    """What the columns are."""
    pixels = found.pixels
    unfinished = "" if pixels.converged else ", which did not converge: its accuracy may be off"
    said = [
        f"Accuracy of a linear classifier on the {pixels.test:,} test images at the end of the "
        "runs: mean and standard deviation over seeds.",
        f"Pixels: the same classifier on the pixels of the {pixels.of}{unfinished}.",
        _about_minutes(found),
    ]
    if any(curve.final is None for curve in found.curves):
        said.append(
            "Runs that diverged are not in mean and standard deviation; in the verdicts they have "
            f"the accuracy of chance, {1 / pixels.classes:.0%}."
        )
    said += [_EVALUATED[found.experiment.part], order(found)]
    return " ".join(said)


def _about_minutes(found: Found) -> str:
    together = ", of all replicas that trained at once" * (found.experiment.part == "shallow")
    said = f"Minutes are of training{together}: evaluations and checkpoints are not in them"
    whole = [run.wall_seconds for run in found.runs]
    known = [seconds for seconds in whole if seconds is not None]
    if not known:
        return f"{said}."
    jobs = "all jobs" if len(known) == len(whole) else f"{len(known)} of {len(whole)} jobs"
    return f"{said}; with these and compiling, {jobs} took {sum(known) / 60:.1f} minutes."


def noticed(found: Found) -> str:
    """The problems that the runs met while they trained, or ""."""
    said = [f"{run.name}: {name}, {text}" for run in found.runs for name, text in run.flags]
    return f"Noticed in training: {'; '.join(said)}." if said else ""


def pd_rows(answers: Sequence[Answers]) -> list[list[str]]:
    """A header and a line an encoder, that of the pixels last."""
    rows = [
        ["", "PMI of two views", "of two images", "recall at 1", "at 10", "median rank",
         "flipped found", "AUROC"]
    ]  # fmt: skip
    for one in answers:
        views, audit, search = one["views"], one["audit"], one["views"]["retrieval"]
        pmi = [
            f"{views[key]:.2f}" if key in views else "-" for key in ("pmi_mean", "mismatched_mean")
        ]
        rows.append(
            [one["of"], *pmi, f"{search['recall_1']:.2%}", f"{search['recall_10']:.2%}",
             f"{search['median_rank']:g}", f"{audit['precision']:.1%}", f"{audit['auroc']:.3f}"]
        )  # fmt: skip
    return rows


def pd_legend(answers: Sequence[Answers]) -> str:
    """What the columns are."""
    rows = answers[0]["views"]["retrieval"]["candidates"]
    audit = answers[0]["audit"]
    return (
        f"On {rows:,} test images: mean PMI, in nats, of two views of one image and of views of "
        "two (-9.2 where r is below 1e-4); the second view of each looked for among all by PMI "
        f"(pixels: by the cosine of centred views); then {FLIPPED:.0%} of the labels are flipped "
        f"({audit['flipped']:,} of {audit['rows']:,}) and `audit` ranks the pairs of features and "
        "label: how many of as many lowest were flipped, and the area under the ROC curve."
    )


def text_report(found: Found, claims: Sequence[Claim]) -> str:
    """For a terminal, at most 100 columns wide."""
    parts = [aligned(table_rows(found))]
    for text in (legend(found), note(found), noticed(found)):
        parts += _filled(text)
    if found.pd_models:
        parts += ["", aligned(pd_rows(found.pd_models)), *_filled(pd_legend(found.pd_models))]
    parts.append("")
    for one in claims:
        head = f"{one.key:<3} {one.verdict:<14} "
        parts += [
            textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(head))
            for text, first in ((f'"{one.quote}"', head), (one.because, " " * len(head)))
        ]
    parts += ["", *_filled(count(claims) + _ABOUT * bool(departures(found)))]
    return "\n".join(parts) + "\n"


def markdown_report(found: Found, claims: Sequence[Claim]) -> str:
    """The page: figure, table, encoders, and every claim with its rule and numbers."""
    part = PARTS[found.experiment.part]
    parts = [
        f"# {part.title}, {found.data['source']}",
        f"![Linear accuracy while the encoders train](figure.png)\n\n{note(found)}".rstrip(),
        markdown(table_rows(found)),
        legend(found),
        _how(found),
    ]
    parts += [noticed(found)] if noticed(found) else []
    parts += [TUNING] if found.experiment.part == "simclr" else []
    if found.pd_models:
        parts += ["## The encoder as a PD model", markdown(pd_rows(found.pd_models))]
        parts.append(pd_legend(found.pd_models))
    parts += ["## The paper's sentences", count(claims) + _ABOUT * bool(departures(found)), NOISE]
    overview = [["", "sentence", "verdict"]]
    overview += [[one.key, one.quote, f"**{one.verdict}**"] for one in claims]
    parts.append(markdown(overview))
    for one in claims:
        rows = [["", "points (95 % interval)", "paper", "supports it"]]
        rows += [
            [
                number.about,
                number.text,
                "" if number.paper is None else number.shown(number.paper),
                {True: "yes", False: "no", None: ""}[number.supports],
            ]
            for number in one.findings
        ]
        parts += [f"### {one.key}: {one.verdict}", f"> {one.quote}\n>\n> ({one.source})"]
        parts += [f"Rule: {one.rule}", markdown(rows)]
    return "\n\n".join(parts) + "\n"


def _how(found: Found) -> str:
    machines = dict.fromkeys(run.machine for run in found.runs if run.machine)
    precisions = dict.fromkeys(_precision(run.where) for run in found.runs if run.where)
    return (
        f"Trained on {', '.join(machines) or 'an unknown device'} "
        f"({', '.join(precisions) or 'unknown precision'}), {len(found.runs)} job(s); last "
        f"asked for by `{found.experiment.command}`."
    )


def _precision(where: Mapping[str, Any]) -> str:
    """In words: on a GPU float32 has products in TF32."""
    told = str(where["precision"]).removesuffix("-true")
    return f"{told} (TF32 products)" if (told, where["device"]) == ("32", "cuda") else told


def _filled(text: str) -> list[str]:
    return [textwrap.fill(text, WIDTH)] if text else []


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
