"""In what the runs are not the paper's: what was shortened, and what was ours to choose."""

from __future__ import annotations

from collections.abc import Sequence

from pointdep.contrastive.pretraining.protocols import PROTOCOLS
from pointdep.experiments.representations.loss_options import told_options
from pointdep.experiments.representations.run import Found
from pointdep.experiments.representations.settings import IMAGES, MAIN, NAMES, PARTS
from pointdep.experiments.representations.summary import summarise

_CHANGED = ("batch_size", "learning_rate", "width", "depth")
# Of SimCLR the paper prints no settings, and the public recipe has another rate.
_SIMCLR_CHANGED = ("batch_size", "width", "depth")
_SIMCLR_OPTIMISER = "SGD (momentum 0.9, weight decay 0.0005)"
_SIMCLR_SCHEDULE = "up over a tenth of the run, then down a cosine"
TUNING = (
    "Left alone, the learning rate is 0.4 for a batch of 512 and CPC's temperature 0.2. Both are "
    "ours, chosen by trials of 15 epochs of CPC alone, on CIFAR-10 from JPEG files, on an H200: "
    "68.9 % with a rate of 0.12 and the public recipe's temperature of 0.5, 72.5 % with 0.4 and "
    "0.5, 73.4 % with 0.4 and 0.2. Every objective has the same but for the scale of its score. "
    "The other scales are the defaults of the losses; D-RFC's 10 was the best of 2, 10 and 30 in "
    "rough trials of 25 epochs."
)


def departures(found: Found) -> list[str]:
    """In what the runs differ from the paper's, in words."""
    return [*_about_images(found), *_about_runs(found), *_about_settings(found)]


def choices(found: Found) -> list[str]:
    """What the paper does not say, and we did, in words."""
    part = found.experiment.part
    if part == "simclr":
        return _simclr_choices(found)
    others = [NAMES[o] for o in _losses(found) if o not in MAIN]
    if part == "deep" and others:
        return [
            f"{', '.join(others)} with the batch norm and the gradient clipping of PCC, which CPC "
            "has not"
        ]
    return []


def note(found: Found) -> str:
    """Beside the figure: what was shortened and what is ours, or "" where there is neither."""
    said = departures(found), choices(found)
    heads = "Not as in the paper: ", "Ours, where the paper says nothing: "
    return " ".join(
        f"{head}{'; '.join(some)}." for head, some in zip(heads, said, strict=True) if some
    )


def _about_images(found: Found) -> list[str]:
    experiment, data, said = found.experiment, found.data, []
    name = str(experiment.dataset)
    if name not in PARTS[experiment.part].datasets:
        said.append(f"{data['source']}, not {' or '.join(PARTS[experiment.part].datasets)}")
    elif data["train"] < IMAGES[name][0]:
        said.append(f"{data['train']:,} of {IMAGES[name][0]:,} training images")
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
    others = [line for line in lines if line.objective not in MAIN]
    if part.runs is not None and any(line.runs < part.runs for line in others):
        each = ", ".join(f"{NAMES[line.objective]} {line.runs}" for line in others)
        said.append(f"runs: {each}; the paper does not say how many of these")
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
    settings, simclr = found.runs[0].settings, found.experiment.part == "simclr"
    protocol = PROTOCOLS[settings["model"]]
    whose = "the public recipe's" if simclr else "the paper's"
    said = [
        f"{name.replace('_', ' ')} {settings[name]:g}, not {whose} {getattr(protocol, name):g}"
        for name in (_SIMCLR_CHANGED if simclr else _CHANGED)
        if settings[name] != getattr(protocol, name)
    ]
    told = {} if simclr else _losses(found)
    return said + [f"{NAMES[o]} with {options}" for o, options in told.items() if options]


def _simclr_choices(found: Found) -> list[str]:
    settings = found.runs[0].settings
    scores = ", ".join(f"{NAMES[o]} {options}" for o, options in _losses(found).items())
    return [
        f"{_SIMCLR_OPTIMISER}, learning rate {settings['learning_rate']:g} "
        f"(batch {settings['batch_size']}), {_SIMCLR_SCHEDULE}",
        f"scores: {scores}",
    ]


def _losses(found: Found) -> dict[str, str]:
    """Of each objective the options that its runs had, in words."""
    run_of = {o: run for run in found.runs for o in run.settings["objectives"]}
    objectives = dict.fromkeys(curve.objective for curve in found.curves)
    return {
        o: told_options(run_of[o].settings["model"], o, run_of[o].loss_of(o)) for o in objectives
    }


def _range(lengths: Sequence[float]) -> str:
    if not lengths:
        return "no"
    low, high = (f"{value:,.10g}" for value in (min(lengths), max(lengths)))
    return low if low == high else f"{low} to {high}"
