"""Figure 2 and SimCLR: the objectives compared, the paper's sentences judged by that, the report.

`judge_claims` asks the sentences, `write_report` fills the folder, `text_report` is for a terminal
and `as_dict` for a program.

Numbers are differences of the linear accuracy at the end, in points, paired by seed. An interval
joins two errors, whose halves are added in squares: that of the seeds, which gets less with their
number, and that of the test images, which does not.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, PROTOCOLS
from pointdep.experiments import claims, encoder_pd, reports
from pointdep.experiments.claims import Answer, Claim, Finding, Measured, every
from pointdep.experiments.pretraining_runs import RESULTS, Curve, Found, Pixels
from pointdep.experiments.reports import Floats, Line
from pointdep.experiments.representations import IMAGES, MAIN, NAMES, PARTS, Experiment, loss_words

PAR = 0.3  # points within which two objectives are on a par
SEED_SD = 0.5  # points: by how much seeds are taken to differ if there is only one
_Z = 1.959964
NOISE: str = reports.TEXTS["figure2 noise"]
Finals = Mapping[int, float]
"""The accuracy at the end, a share, by seed."""


def summarise(curves: Sequence[Curve], experiment: Experiment) -> list[Line]:
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

    def above(self, one: str, other: str, margin: float = 0.0) -> Finding:
        """Is `one` above `other` by more than the margin, in points? Both were run."""
        values, about = self.experiment.paper_values, f"{NAMES[one]} less {NAMES[other]}"
        paper = 100 * (values[one] - values[other]) if {one, other} <= values.keys() else None
        found = difference(self.finals(one), self.finals(other), self.pixels.test)
        return _finding(about, found, margin, paper)

    def above_pixels(self, objective: str) -> Finding:
        """Is it above the baseline, which does not depend on a seed?"""
        finals = self.finals(objective)
        baseline = dict.fromkeys(finals, self.pixels.accuracy)
        found = difference(finals, baseline, self.pixels.test, runs=1)
        return _finding(f"{NAMES[objective]} less pixels", found)


def _finding(
    about: str, found: Measured | None, margin: float = 0.0, paper: float | None = None
) -> Finding:
    if found is None:
        return Finding(f"{about}, no seed in common")
    about = f"{about}, points, {'1 seed' if found.n == 1 else f'{found.n} seeds'}"
    return claims.finding(about, found, paper=paper, supports=found.above(margin))


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
    """PCC above Variational, the same objective: refuted if they are on a par.

    Nothing is said of runs that failed.
    """
    findings, answer = _above(("pcc", "variational"))(evidence)
    if evidence.missing(("pcc", "variational")):
        return findings, answer
    found, learned = findings[0], evidence.above_pixels("pcc")
    if found.low is not None and found.high is not None and -PAR < found.low <= found.high < PAR:
        found = replace(found, supports=False)
    return [found, learned], found.supports if learned.supports else None


JUDGES = {
    "a": _above(("drfc", "cpc"), ("drfc", "pcc")),
    "b": _pcc_and_cpc,
    "c": _on_a_par,
    "d": _above(*((good, bad) for bad in ("dm1", "dm2") for good in MAIN)),
    "e": _like_pcc,
    "f1": _above(("drfc", "cpc")),
    "f2": _above(("cpc", "pcc")),
    "g": _above(pixels=MAIN),
}


def judge_claims(experiment: Experiment, curves: Sequence[Curve], pixels: Pixels) -> list[Claim]:
    """Every sentence about this part of the paper, whatever was run of it.

    "{here}" in a sentence that speaks of several experiments is the one that is judged.
    """
    here = f"[here: {experiment.title}]"
    about = [
        {**one, "quote": one["quote"].replace("{here}", here)}
        for one in reports.PAPER["claims"]["figure2"]
        if experiment.part in one["parts"]
    ]
    return claims.judge_all(about, JUDGES, Evidence(experiment, curves, pixels))


_ABOUT = " The verdicts are about these runs, which are not the paper's."


def write_report(found: Found, folder: Path) -> list[Claim]:
    """curves.csv, summary.csv, figure.png and .svg, report.md and results.json; the verdicts."""
    judged = judge_claims(found.experiment, found.curves, found.pixels)
    of_curve, of_look = ("run", "objective", "seed"), ("iteration", "epoch", "seconds", "accuracy")
    lines = [
        {name: getattr(curve, name) for name in of_curve} | dict(zip(of_look, look, strict=True))
        for curve in found.curves
        for look in zip(curve.steps, curve.epochs, curve.seconds, curve.accuracy, strict=True)
    ]
    reports.write_lines(folder / "curves.csv", lines, of_curve + of_look)
    summary = summarise(found.curves, found.experiment)
    pixels = dict.fromkeys(summary[0]) | {"objective": "pixels", "mean": found.pixels.accuracy}
    reports.write_lines(folder / "summary.csv", [*summary, pixels])
    figure = draw(found.experiment, found.curves, found.pixels, note(found))
    reports.save(figure, folder, "figure", ("png", "svg"))
    (folder / "report.md").write_text(_page(found, judged), "utf-8")
    content = {
        "command": found.experiment.command,
        "experiment": found.experiment.name,
        "machines": sorted({run.machine for run in found.runs if run.machine}),
        "claims_noise": NOISE,
        **as_dict(found, judged),
    }
    # Last and in one move: a file broken off would be taken for the results of something else.
    reports.write_json(folder / RESULTS, content)
    return judged


def as_dict(found: Found, judged: Sequence[Claim]) -> dict[str, Any]:
    """The experiment for a program."""
    return {
        "settings": asdict(found.experiment),
        "data": found.data,
        "runs": [
            {
                "name": run.name,
                "objectives": run.settings["objectives"],
                "seeds": run.settings["seeds"],
                "machine": run.machine,
                "versions": ", ".join(f"{name} {of}" for name, of in run.versions.items()),
                "precision": run.where.get("precision", ""),
                "wall_seconds": run.wall_seconds,
                "flags": [{"name": name, "message": text} for name, text in run.flags],
            }
            for run in found.runs
        ],
        "shortened": departures(found),
        "ours": choices(found),
        "pixels": {k: v for k, v in asdict(found.pixels).items() if k != "origin"},
        "summary": summarise(found.curves, found.experiment),
        "pd_model": list(found.pd_models),
        "claims": claims.claims_as_dicts(judged),
    }


def text_report(found: Found, judged: Sequence[Claim]) -> str:
    """For a terminal, at most 100 columns wide."""
    said = legend(found), note(found), _noticed(found)
    parts = [reports.aligned(_table(found)), *(reports.filled(text) for text in said if text)]
    if found.pd_models:
        parts += ["", reports.aligned(encoder_pd.pd_table(found.pd_models))]
        parts.append(reports.filled(encoder_pd.pd_legend(found.pd_models)))
    notes = [_ABOUT.strip()] if departures(found) else []
    return "\n".join([*parts, "", claims.text_claims(judged, notes)])


def _page(found: Found, judged: Sequence[Claim]) -> str:
    """report.md: figure, table, encoders, and every claim with its rule and numbers."""
    machines = dict.fromkeys(run.machine for run in found.runs if run.machine)
    precisions = dict.fromkeys(_precision(run.where) for run in found.runs if run.where)
    parts = [
        f"# {PARTS[found.experiment.part].title}, {found.data['source']}",
        "![Linear accuracy while the encoders train](figure.png)",
        note(found),
        reports.markdown(_table(found)),
        legend(found),
        f"Trained on {', '.join(machines) or 'an unknown device'} "
        f"({', '.join(precisions) or 'unknown precision'}), {len(found.runs)} job(s); last "
        f"asked for by `{found.experiment.command}`.",
        _noticed(found),
        reports.TEXTS["simclr tuning"] if found.experiment.part == "simclr" else "",
    ]
    if found.pd_models:
        table, said = encoder_pd.pd_table(found.pd_models), encoder_pd.pd_legend(found.pd_models)
        parts += ["## The encoder as a PD model", reports.markdown(table), said]
    parts += [
        "## The paper's sentences",
        claims.count(judged) + _ABOUT * bool(departures(found)),
        NOISE,
        claims.markdown_claims(judged, measured="points", level="###"),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(found: Found) -> list[list[str]]:
    """A header, a line per objective, and the baseline."""

    def shown(share: float | None) -> str:
        return "-" if share is None else f"{100 * share:.2f}"

    unit = found.experiment.unit
    columns = {name: (name, "") for name in ("objective", "accuracy, %", "sd", "runs", "diverged")}
    columns |= {unit: (unit, ""), "minutes": ("minutes", ".1f"), "paper, %": ("paper, %", "")}
    lines = summarise(found.curves, found.experiment)
    for line in lines:
        length = line["steps" if unit == "iterations" else "epochs"]
        line["objective"] = NAMES[line["objective"]]
        line |= {"accuracy, %": shown(line["mean"]), "sd": shown(line["sd"])}
        line["paper, %"] = shown(line["paper"])
        line[unit] = length and (f"{length:,.4g}" if length < 1e4 else f"{length:,.0f}")
    return [*reports.rows_of(lines, columns), ["pixels", shown(found.pixels.accuracy), *["-"] * 6]]


def legend(found: Found) -> str:
    """What the columns are."""
    experiment, pixels = found.experiment, found.pixels
    unfinished = "" if pixels.converged else ", which did not converge: its accuracy may be off"
    together = ", of all replicas that trained at once" * (experiment.part == "shallow")
    minutes = f"Minutes are of training{together}: evaluations and checkpoints are not in them"
    if known := [run.wall_seconds for run in found.runs if run.wall_seconds is not None]:
        whole = len(found.runs)
        jobs = "all jobs" if len(known) == whole else f"{len(known)} of {whole} jobs"
        minutes += f"; with these and compiling, {jobs} took {sum(known) / 60:.1f} minutes"
    said = [
        f"Accuracy of a linear classifier on the {pixels.test:,} test images at the end of the "
        "runs: mean and standard deviation over seeds.",
        f"Pixels: the same classifier on the pixels of the {pixels.of}{unfinished}.",
        f"{minutes}.",
    ]
    if any(curve.final is None for curve in found.curves):
        said.append(
            "Runs that diverged are not in mean and standard deviation; in the verdicts they have "
            f"the accuracy of chance, {1 / pixels.classes:.0%}."
        )
    if experiment.paper_values:
        paper = "Paper: mean of 5 runs."
    elif order := PARTS[experiment.part].orders.get(str(experiment.dataset)):
        paper = f"The paper shows curves without numbers; by its text, best first: {order}."
    else:
        paper = "The paper has no such experiment."
    return " ".join([*said, reports.TEXTS[f"{experiment.part} evaluated"], paper])


def _noticed(found: Found) -> str:
    """The problems that the runs met while they trained, or ""."""
    said = [f"{run.name}: {name}, {text}" for run in found.runs for name, text in run.flags]
    return f"Noticed in training: {'; '.join(said)}." if said else ""


def _precision(where: dict[str, str]) -> str:
    """In words: on a GPU float32 has products in TF32."""
    told = str(where["precision"]).removesuffix("-true")
    return f"{told} (TF32 products)" if (told, where["device"]) == ("32", "cuda") else told


def note(found: Found) -> str:
    """Next to the figure: what was shortened and what is ours, or "" if there is neither."""
    said = {"Not as in the paper": departures(found)}
    said["Ours, where the paper says nothing"] = choices(found)
    return " ".join(f"{head}: {'; '.join(some)}." for head, some in said.items() if some)


def choices(found: Found) -> list[str]:
    """What the paper does not say, and we chose, in words."""
    part, losses, settings = found.experiment.part, _losses(found), found.runs[0].settings
    if part == "simclr":
        scores = ", ".join(f"{NAMES[objective]} {options}" for objective, options in losses.items())
        return [
            "SGD (momentum 0.9, weight decay 0.0005), learning rate "
            f"{settings['learning_rate']:g} (batch {settings['batch_size']}), up over a tenth of "
            "the run, then down a cosine",
            f"scores: {scores}",
        ]
    others = [NAMES[objective] for objective in losses if objective not in MAIN]
    if part == "deep" and others:
        told = "with the batch norm and the gradient clipping of PCC, which CPC has not"
        return [f"{', '.join(others)} {told}"]
    return []


def departures(found: Found) -> list[str]:
    """In what the runs differ from the paper's, in words."""
    experiment, data, said = found.experiment, found.data, []
    part, name = PARTS[experiment.part], str(experiment.dataset)
    if name not in part.datasets:
        said.append(f"{data['source']}, not {' or '.join(part.datasets)}")
    elif data["train"] < IMAGES[name][0]:
        said.append(f"{data['train']:,} of {IMAGES[name][0]:,} training images")
    if data["lossy"]:
        said.append("images that went through a lossy format (JPEG)")
    return [*said, *_shortened_runs(found), *_other_settings(found)]


def _shortened_runs(found: Found) -> list[str]:
    part, lines = PARTS[found.experiment.part], summarise(found.curves, found.experiment)
    runs = {line["objective"]: line["runs"] for line in lines}
    main = {NAMES[o]: count for o, count in runs.items() if o in MAIN}
    others = {NAMES[o]: count for o, count in runs.items() if o not in MAIN}
    told = [", ".join(f"{name} {count}" for name, count in some.items()) for some in (main, others)]
    said = []
    if part.runs is None:
        counts = _range(list(main.values()))
        said.append(f"{counts} run(s) of each objective; the paper does not say how many")
    elif {*main.values()} != {part.runs}:
        said.append(f"runs: {told[0] or 'none'}, not {part.runs} each")
    if part.runs is not None and any(count < part.runs for count in others.values()):
        said.append(f"runs: {told[1]}; the paper does not say how many of these")
    lengths = [line["steps" if part.unit == "iterations" else "epochs"] for line in lines]
    known = [round(length, 1) for length in lengths if length is not None]
    if not part.long:
        said.append(f"{_range(known)} epochs; the paper prints no number of its long runs")
    elif any(length < part.length - 0.5 for length in known):
        said.append(f"{_range(known)} {part.unit}, not {part.length:,}")
    return said


def _other_settings(found: Found) -> list[str]:
    settings, simclr = found.runs[0].settings, found.experiment.part == "simclr"
    # The paper prints no settings of SimCLR, and the public recipe has another rate.
    names = ["batch_size", *([] if simclr else ["learning_rate"]), "width", "depth"]
    whose = "the public recipe's" if simclr else "the paper's"
    said = [
        f"{name.replace('_', ' ')} {settings[name]:g}, not {whose} {own:g}"
        for name in names
        if settings[name] != (own := getattr(PROTOCOLS[settings["model"]], name))
    ]
    told = {} if simclr else _losses(found)
    return said + [f"{NAMES[o]} with {options}" for o, options in told.items() if options]


def _losses(found: Found) -> dict[str, str]:
    """The options that the runs of each objective had, in words."""
    run_of = {o: run for run in found.runs for o in run.settings["objectives"]}
    objectives = dict.fromkeys(curve.objective for curve in found.curves)
    return {o: loss_words(run_of[o].settings["model"], o, run_of[o].loss_of(o)) for o in objectives}


def _range(lengths: Sequence[float]) -> str:
    if not lengths:
        return "no"
    low, high = (f"{value:,.10g}" for value in (min(lengths), max(lengths)))
    return low if low == high else f"{low} to {high}"


_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))


@reports.style()
def draw(experiment: Experiment, curves: Sequence[Curve], pixels: Pixels, note: str) -> Figure:
    """Accuracy against the iterations, or against the epochs and next to it against the minutes.

    note: what was shortened against the paper.
    """
    names = {"epochs": "epoch", "seconds": "minutes of training"}
    if experiment.unit == "iterations":
        names = {"steps": "iteration"}
    wide = len(names) > 1
    figure = Figure(figsize=(9.6 if wide else 6.4, 4.0), layout="constrained")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axis, (quantity, name) in zip(panels, names.items(), strict=True):
        _draw_panel(axis, experiment, curves, pixels, quantity)
        axis.set_xlabel(name)
    panels[0].set_ylabel("linear accuracy on test images, %")
    figure.suptitle(experiment.title, fontsize="medium")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    if note:
        figure.supxlabel(textwrap.fill(note, 160 if wide else 105), fontsize="x-small", color="0.3")
    return figure


def mean_curve(curves: Sequence[Curve], quantity: str) -> tuple[Floats, Floats, Floats]:
    """Where, mean and standard deviation over the seeds, each (evaluations,), accuracies in %.

    Evaluations are matched by their number, the last with the last: runs that end by the clock have
    them at slightly different steps. Those that are not finite are left out of the mean, and so are
    runs that ended because they diverged, if others did not.
    """
    import pandas as pd

    started = [curve for curve in curves if curve.steps]
    whole = [curve for curve in started if not curve.cut] or started
    if not whole:
        return np.empty(0), np.empty(0), np.empty(0)
    kept = [*range(min(len(curve.steps) for curve in whole) - 1), -1]
    where = np.array([[getattr(c, quantity)[k] for k in kept] for c in whole], np.float64)
    # pandas leaves out what is not known; a single value has no spread.
    values = 100 * pd.DataFrame([[c.accuracy[k] for k in kept] for c in whole], dtype=float)
    mean, sd = values.mean().to_numpy(), values.std().fillna(0.0).to_numpy()
    return where.mean(0) / (60 if quantity == "seconds" else 1), mean, sd


def _draw_panel(
    axis: Axes, experiment: Experiment, curves: Sequence[Curve], pixels: Pixels, quantity: str
) -> None:
    values = experiment.paper_values
    for objective in dict.fromkeys(curve.objective for curve in curves):
        own = [curve for curve in curves if curve.objective == objective]
        place = OBJECTIVES.index(objective)
        colour = reports.COLOURS[place]
        where, mean, sd = mean_curve(own, quantity)
        runs = "1 run" if len(own) == 1 else f"{len(own)} runs"
        diverged = sum(curve.final is None for curve in own)
        runs += f", {diverged} diverged" if diverged else ""
        look: dict[str, Any] = {"color": colour, "linestyle": _LINES[place], "linewidth": 1.3}
        look |= {"marker": "o", "markersize": 2.5} if len(where) < 40 else {}
        axis.plot(where, mean, label=f"{NAMES[objective]} ({runs})", **look)
        if len(own) > 1:
            axis.fill_between(where, mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)
        if objective in values:
            # The paper's value, on the right edge.
            height, across = [100 * values[objective]] * 2, axis.get_yaxis_transform()
            axis.plot([0.94, 1.0], height, color=colour, linewidth=1.6, transform=across, zorder=5)
    if values:
        axis.plot([], [], color="0.5", linewidth=2, label="right edge: the paper")
    axis.axhline(
        100 * pixels.accuracy, color="0.3", linewidth=0.9, linestyle="--", zorder=1,
        label=f"pixels, {pixels.of}" + "\n(not converged)" * (not pixels.converged),
    )  # fmt: skip
    axis.set_xlim(left=0)
    axis.margins(y=0.08)
    axis.grid(alpha=0.25, linewidth=0.5)
