"""The table, what was shortened, and the claims as text: for a terminal and for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pointdep.contrastive.pretraining.settings import PROTOCOLS
from pointdep.experiments.representations.claims import NOISE
from pointdep.experiments.representations.pd_model import FLIPPED, Answers
from pointdep.experiments.representations.run import Found
from pointdep.experiments.representations.settings import MAIN, NAMES, PARTS
from pointdep.experiments.representations.summary import summarise
from pointdep.experiments.text import aligned, markdown
from pointdep.experiments.words.claims import Claim
from pointdep.experiments.words.claims_text import count

WIDTH = 100
_IMAGES = {"mnist": 60_000, "cifar10": 50_000}
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
    "C = 0.1, to convergence; the paper's classifiers train beside the encoder.",
    "simclr": "Evaluated on frozen features, before the head, by a logistic regression on "
    "standardised columns, C = 0.1, to convergence.",
}


def departures(found: Found) -> list[str]:
    """In what the runs differ from the paper's, in words."""
    return [*_about_images(found), *_about_runs(found), *_about_settings(found)]


def _about_images(found: Found) -> list[str]:
    experiment, data, said = found.experiment, found.data, []
    name = str(experiment.dataset)
    if name not in PARTS[experiment.part].datasets:
        said.append(f"{data['source']}, not {' or '.join(PARTS[experiment.part].datasets)}")
    elif data["train"] < _IMAGES[name]:
        said.append(f"{data['train']:,} of {_IMAGES[name]:,} training images")
    if data["lossy"]:
        said.append("images that went through a lossy format (JPEG)")
    return said


def _about_runs(found: Found) -> list[str]:
    part, lines = PARTS[found.experiment.part], summarise(found.curves, found.experiment)
    said = []
    main = [line for line in lines if line.objective in MAIN]
    counts = sorted({line.runs for line in main})
    if part.runs is None:
        told = " to ".join(dict.fromkeys(str(n) for n in (counts[:1] + counts[-1:])))
        said.append(f"{told or 'no'} run(s) of each objective; the paper does not say how many")
    elif counts != [part.runs]:
        each = ", ".join(f"{NAMES[line.objective]} {line.runs}" for line in main) or "none"
        said.append(f"runs: {each}, not {part.runs} each")
    lengths = [
        round(length, 1)
        for length in (line.steps if part.unit == "iterations" else line.epochs for line in lines)
        if length is not None
    ]
    if not part.long:
        said.append(f"{_range(lengths)} epochs; the paper prints no number of its long runs")
    elif any(length < part.length - 0.5 for length in lengths):
        said.append(f"{_range(lengths)} {part.unit}, not {part.length:,}")
    return said


def _about_settings(found: Found) -> list[str]:
    experiment, settings = found.experiment, found.runs[0].settings
    protocol = PROTOCOLS[PARTS[experiment.part].model]
    whose = "the public recipe's" if experiment.part == "simclr" else "the paper's"
    said = [
        f"{name.replace('_', ' ')} {settings[name]:g}, not {whose} {getattr(protocol, name):g}"
        for name in ("batch_size", "learning_rate", "width", "depth")
        if settings[name] != getattr(protocol, name)
    ]
    for objective, options in experiment.loss.items():
        told = ", ".join(f"{name} {value}" for name, value in options.items())
        said.append(f"{NAMES[objective]} with {told}")
    return said


def note(found: Found) -> str:
    """One sentence beside the figure, or "" where nothing was shortened."""
    said = departures(found)
    return f"Not as in the paper: {'; '.join(said)}." if said else ""


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
    together = (
        " Minutes are those of all replicas that trained at once."
        if found.experiment.part == "shallow"
        else ""
    )
    return (
        f"Accuracy of a linear classifier on the {found.pixels.test:,} test images at the end of "
        f"the runs: mean and standard deviation over seeds. Pixels: the same classifier on the "
        f"pixels of the {found.pixels.of}.{together} {_EVALUATED[found.experiment.part]} "
        f"{order(found)}"
    )


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
    parts = [aligned(table_rows(found)), *_filled(legend(found))]
    parts += _filled(note(found))
    if found.pd_models:
        parts += ["", aligned(pd_rows(found.pd_models)), *_filled(pd_legend(found.pd_models))]
    parts.append("")
    for one in claims:
        head = f"{one.key:<3} {one.verdict:<14} "
        parts += [
            textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(head))
            for text, first in ((f'"{one.quote}"', head), (one.because, " " * len(head)))
        ]
    parts += ["", *_filled(count(claims) + _ABOUT * bool(note(found)))]
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
    if found.pd_models:
        parts += ["## The encoder as a PD model", markdown(pd_rows(found.pd_models))]
        parts.append(pd_legend(found.pd_models))
    parts += ["## The paper's sentences", count(claims) + _ABOUT * bool(note(found)), NOISE]
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
    precisions = dict.fromkeys(run.where["precision"] for run in found.runs if run.where)
    return (
        f"Trained on {', '.join(machines) or 'an unknown device'} "
        f"({', '.join(precisions) or 'unknown precision'}), {len(found.runs)} job(s); last "
        f"command: `{found.experiment.command}`."
    )


def _filled(text: str) -> list[str]:
    return [textwrap.fill(text, WIDTH)] if text else []


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


def _range(lengths: Sequence[float]) -> str:
    if not lengths:
        return "no"
    low, high = (f"{value:,.10g}" for value in (min(lengths), max(lengths)))
    return low if low == high else f"{low} to {high}"
