"""Theorem 1: how the error of a plug-in estimate falls with the number of rows.

`Theorem1` holds the settings, `run_theorem1` fits every estimate, `summarise` and `slopes` turn the
estimates into errors and the exponent with which they fall, and `write_report` shows them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from pointdep.core.critics.base import ACTIVATIONS
from pointdep.core.critics.build import build_critic, replica_generators
from pointdep.core.methods import METHODS, Method, get_method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.data.tasks.continuous import Joint, correlated
from pointdep.errors import InputError
from pointdep.estimators.assembly import CriticSettings, batch_shape
from pointdep.experiments import reports
from pointdep.experiments.reports import Floats, Line
from pointdep.fitting.batches import SplitRows, TrainingOptions
from pointdep.fitting.engine import Engine, Trained
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference.scoring import score_replicas

CRITICS = ("concat", "separable")
THEOREM = -0.5
"""The exponent of n in the theorem's bound."""
CONFIDENCE = 0.95
_FEWEST_ROWS = 50  # fewer leave a network nothing to learn from
_EMBEDDING = 32
_TYPICAL_EPOCHS = 30.0
_LEAST_WORK = 1_000  # fewer rows take as long: an epoch has its least number of steps


@dataclass(frozen=True)
class Theorem1:
    """The experiment: every method on every number of rows, `seeds` times.

    Attributes
    ----------
    rows: numbers of rows n; the slope is fitted over them.
    dim, mi: x and y are Gaussian, of `dim` columns each, with `mi` nats between them.
    critic, hidden, activation: the network, one for all methods and all n, so that methods differ
        in learning and inference alone. ReLU is the paper's; log r of these pairs is smooth, which
        a smooth activation may suit better.
    folds: networks per estimate; each row is held out from one of them.
    seeds: estimates of each kind, on rows of their own, with seeds `seed`, `seed` + 1, ...
    """

    methods: tuple[str, ...] = ("pc", "drf")
    rows: tuple[int, ...] = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
    dim: int = 5
    mi: float = 1.0
    critic: str = "concat"
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    folds: int = 2
    seeds: int = 10
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in self.methods:
            # The theorem speaks of the mean of log r over the rows, and of no other inference.
            if not get_method(name).is_mean_of_pmi:
                able = ", ".join(key for key, m in METHODS.items() if m.is_mean_of_pmi)
                raise InputError(f"method {name!r} infers something else than mean PMI: use {able}")
        reports.check_settings(
            self,
            known={"critic": CRITICS, "activation": ACTIVATIONS},
            distinct=("methods", "rows"),
            least={"rows": _FEWEST_ROWS, "dim": 1, "folds": 2, "seeds": 2, "seed": 0, "hidden": 1},
            positive=("mi",),
        )
        if len(self.rows) < 2:
            raise InputError(f"rows={self.rows} must name at least two, to fit a slope over")
        object.__setattr__(self, "rows", tuple(sorted(self.rows)))
        if self.seed + self.seeds > 2**32:
            raise InputError(f"seed={self.seed} must be at most {2**32 - self.seeds}")
        _ = self.joint  # refuses more nats than so few columns can carry

    def quick(self) -> Theorem1:
        """A smaller version of the same figure."""
        return replace(self, rows=(300, 1_000, 3_000, 10_000), hidden=(32, 32), seeds=5)

    @property
    def joint(self) -> Joint:
        """The distribution of the pairs."""
        return correlated(self.dim, self.mi)

    def exact_sd(self, rows: int) -> float:
        """Standard deviation of the mean of the exact PMI over so many rows, in nats.

        PMI is a quadratic form of Gaussians; its variance is rho^2 for each of the `dim` columns.
        """
        return math.sqrt(self.dim * -math.expm1(-2.0 * self.mi / self.dim) / rows)

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return reports.command_line("reproduce", "theorem1", **vars(self))


@dataclass(frozen=True, eq=False)
class Outcome:
    """Every run, as `compare` gives it; weights: of one network; seconds: per number of rows."""

    settings: Theorem1
    runs: list[Line]
    weights: int
    seconds: tuple[float, ...]
    device: str

    def errors(self, method: str, quantity: str) -> Floats:
        """Estimate minus truth of each run, (numbers of rows, seeds)."""
        own = [
            [r[quantity] for r in self.runs if (r["method"], r["rows"]) == (method, rows)]
            for rows in self.settings.rows
        ]
        return np.array(own, np.float64) - self.settings.mi


class Fits(NamedTuple):
    """The rows of all seeds, one below the other, and what each replica does with them.

    x, y: (seeds * rows, dim); pmi: (seeds, rows), exact. splits, methods: one per replica, in the
    order seed, method, fold: further seeds are further replicas, and leave the earlier as they are.
    """

    x: Tensor
    y: Tensor
    pmi: Floats
    splits: list[Split]
    methods: list[Method]


def run_theorem1(settings: Theorem1, progress: Progress | None = None) -> Outcome:
    """For each number of rows one training run, of all methods, seeds and folds."""
    device = pick_device(settings.device)
    runs: list[Line] = []
    seconds, weights = [], 0
    work = [max(rows, _LEAST_WORK) for rows in settings.rows]
    for position, rows in enumerate(settings.rows):
        start = time.perf_counter()
        part = _Part(progress or Silent(), rows, sum(work[:position]), sum(work))
        fits = make_fits(settings, rows, device)
        model = make_model(settings, fits)
        runs += compare(settings, fits, model, train(model, settings, fits, part))
        seconds.append(time.perf_counter() - start)
        part.tell(1.0, "done")  # whenever the last network stopped
        weights = sum(p.numel() for p in model.critic.parameters()) // model.replicas
    return Outcome(settings, runs, weights, tuple(seconds), str(device))


def make_fits(settings: Theorem1, rows: int, device: torch.device) -> Fits:
    """Draw the rows of every seed, new ones for each number of rows."""
    names = range(settings.seed, settings.seed + settings.seeds)
    drawn = [settings.joint.sample(rows, np.random.default_rng([seed, rows])) for seed in names]
    x, y, pmi = (np.stack(side) for side in zip(*drawn, strict=True))
    splits, methods = [], []
    for first, seed in zip(range(0, rows * len(names), rows), names, strict=True):
        own = make_splits(rows, folds=settings.folds, seed=seed)
        for method in settings.methods:
            methods += [get_method(method)] * len(own)
            splits += [Split(*(part + first for part in (s.train, s.stop, s.report))) for s in own]
    flat_x, flat_y = (torch.from_numpy(side).float().flatten(0, 1).to(device) for side in (x, y))
    return Fits(flat_x, flat_y, pmi, splits, methods)


def make_model(settings: Theorem1, fits: Fits) -> RatioModel:
    """Untrained networks. The columns of x and y are standard normal: they stay as they are."""
    replicas, dim = len(fits.splits), settings.dim
    layers: dict[str, Any] = {"hidden": settings.hidden, "embedding_dim": _EMBEDDING}
    layers["activation"] = settings.activation
    critic = build_critic(settings.critic, replicas, dim, dim, **layers)
    critic.reset(replica_generators(settings.seed, replicas))
    maps = Standardizer(replicas, dim), Standardizer(replicas, dim)
    return RatioModel(critic, *maps, fits.methods).to(fits.x.device)


def train(model: RatioModel, settings: Theorem1, fits: Fits, progress: Progress) -> Trained:
    """Train with the library's defaults, batches and negatives those it chooses for `pc`."""
    smallest = min(len(split.train) for split in fits.splits)
    how = settings.critic, settings.hidden, _EMBEDDING, settings.activation, "score"
    batch, block = batch_shape(CriticSettings(*how), get_method("pc"), smallest, "auto", "auto")
    options = TrainingOptions(batch_size=batch, block=block, seed=settings.seed)
    rows = SplitRows(fits.x, fits.y, fits.splits, seed=settings.seed)
    trained = Engine(model, rows, options, progress=progress).run()
    model.eval()
    model.requires_grad_(False)
    return trained


def compare(settings: Theorem1, fits: Fits, model: RatioModel, trained: Trained) -> Iterator[Line]:
    """The estimates of every seed and method, in nats but for the shares.

    held_out: mean of log r over all rows, each by a network that did not see it. in_sample: by each
    network over the rows that it trained on: the theorem's plug-in, of networks that have
    1 - 1 / folds of the rows, less those that stop them. exact: mean of the exact PMI over the same
    rows: the estimate of one who knows r. at_limit: share of the held-out rows at a limit of the
    method's read-out. limit_error: how much those alone add to `held_out` beyond their exact PMI.
    epochs: after how many the kept weights were reached, mean over the networks. ended_early: how
    many of its networks the limit on epochs ended, or divergence.
    """
    rows, folds = fits.pmi.shape[1], settings.folds
    ended = {replica for flag in trained.flags for replica in flag.replicas}
    for number, exact in enumerate(fits.pmi):
        own = slice(number * rows, (number + 1) * rows)
        for position, method in enumerate(settings.methods):
            first = (number * len(settings.methods) + position) * folds
            replicas = range(first, first + folds)
            one = model.select(replicas)
            log_ratio = score_replicas(one, fits.x[own], fits.y[own])
            trained_on, unseen = np.zeros((2, folds, rows), dtype=bool)
            for fold, replica in enumerate(replicas):
                trained_on[fold, fits.splits[replica].train - number * rows] = True
                unseen[fold, fits.splits[replica].report - number * rows] = True
            values = log_ratio.double().numpy()
            limited = one.at_limit(log_ratio).numpy() & unseen
            yield {
                "method": method,
                "rows": rows,
                "seed": settings.seed + number,
                "held_out": float(values[unseen].mean()),
                "in_sample": float(values[trained_on].mean()),
                "exact": float(exact.mean()),
                "at_limit": float(limited.sum() / rows),
                "limit_error": float((values - exact)[limited].sum() / rows),
                "epochs": float(np.mean([trained.best_epochs[r] for r in replicas])),
                "ended_early": len(ended.intersection(replicas)),
            }


@dataclass(frozen=True)
class _Part:
    """Shows the epochs of one number of rows as a part of the whole, which is counted in rows.

    Networks stop one after the other: the share of the work that is done nears 1 like
    1 - exp(-epochs / 30), whatever the number of rows.
    """

    progress: Progress
    rows: int
    start: int
    total: int

    def update(self, done: int, total: int, detail: str = "") -> None:
        del total  # a limit that few networks come to
        self.tell(-math.expm1(-done / _TYPICAL_EPOCHS), f"{done} {detail}")

    def tell(self, share: float, detail: str) -> None:
        """How much of this part is done, from 0 to 1."""
        done = self.start + math.floor(share * max(self.rows, _LEAST_WORK))
        self.progress.update(done, self.total, f"of the work, {self.rows:,} rows: {detail}")


def summarise(outcome: Outcome) -> list[Line]:
    """One line per method and number of rows, over the seeds, in nats.

    rmse, bias, sd: of the held-out estimate, rmse^2 = bias^2 + sd^2; low, high: 95% interval of
    rmse, made as that of a slope: 93 to 95% for normal errors, less for skewed ones.
    in_sample_rmse, in_sample_bias: of the estimate over the rows that each network trained on.
    exact_rmse: of the mean of the exact PMI over the same rows; exact_sd: theory's value for it.
    at_limit, limit_error: mean over the runs (see `compare`). ended_early: networks in all.
    """
    settings, lines = outcome.settings, []
    runs = pd.DataFrame(outcome.runs).groupby(["method", "rows"])
    for method in settings.methods:
        of = (outcome.errors(method, name) for name in ("held_out", "in_sample", "exact"))
        for rows, held, seen, exact in zip(settings.rows, *of, strict=True):
            low, high = np.exp(combine(np.ones(1), held[None])[1:])
            own = runs.get_group((method, rows))
            lines.append(
                {
                    "method": method,
                    "rows": rows,
                    "seeds": len(held),
                    "rmse": rmse(held),
                    "low": float(low),
                    "high": float(high),
                    "bias": float(held.mean()),
                    "sd": float(held.std()),
                    "in_sample_rmse": rmse(seen),
                    "in_sample_bias": float(seen.mean()),
                    "exact_rmse": rmse(exact),
                    "exact_sd": settings.exact_sd(rows),
                    "at_limit": float(own["at_limit"].mean()),
                    "limit_error": float(own["limit_error"].mean()),
                    "ended_early": int(own["ended_early"].sum()),
                }
            )
    return lines


def bias_share(line: Line) -> float:
    """How much of the squared error is bias, from 0 to 1.

    The mean of so many seeds is off by chance, which is taken away: sd^2 / (seeds - 1) is the
    square of its standard error. An unbiased estimate is at 0 more often than not.
    """
    squared = max(0.0, line["bias"] ** 2 - line["sd"] ** 2 / (line["seeds"] - 1))
    return float(squared / line["rmse"] ** 2) if line["rmse"] else 0.0


def slopes(outcome: Outcome) -> list[Line]:
    """How log RMSE falls with log n, for each method, held out and in sample.

    value: least squares over the numbers of rows, each counting alike. low, high: 95% interval.
    Each log RMSE has its variance from leaving out one seed after the other (the jackknife); the
    slope weights and adds them, with Student's t of Welch's degrees of freedom. On simulated errors
    at six n, with 5 or 10 seeds and bias none, half or nine tenths of their square, it held the
    truth in 94 to 96% of 10,000 runs, and in 93 to 95% where the errors are skewed (exponential).
    last, last_low, last_high: between the last two numbers of rows alone, where an error that does
    not go away shows first. verdict: "agrees" with the theorem, "steeper" or "shallower".
    """
    found, rows = [], outcome.settings.rows
    names = "value", "low", "high", "last", "last_low", "last_high"
    for method in outcome.settings.methods:
        for quantity in ("held_out", "in_sample"):
            errors = outcome.errors(method, quantity)
            fitted = *fit_slope(rows, errors), *fit_slope(rows[-2:], errors[-2:])
            line: Line = {"method": method, "quantity": quantity}
            line |= zip(names, fitted, strict=True)
            found.append({**line, "verdict": verdict(line["low"], line["high"])})
    return found


def verdict(low: float, high: float) -> str:
    """The interval of a slope against the theorem's exponent."""
    if low <= THEOREM <= high:
        return "agrees"
    return "steeper" if high < THEOREM else "shallower"


def fit_slope(rows: Sequence[int], errors: Floats) -> tuple[float, float, float]:
    """Slope of log RMSE against log rows with its interval; errors: (numbers of rows, seeds)."""
    centred = np.log(rows) - np.log(rows).mean()
    return combine(centred / np.square(centred).sum(), errors)


def combine(weights: Floats, errors: Floats) -> tuple[float, float, float]:
    """Weighted sum of log RMSEs with its interval; weights: (k,), errors: (k, seeds)."""
    from scipy.special import stdtrit

    squares, seeds = np.square(errors), errors.shape[1]
    value = float(weights @ (0.5 * np.log(squares.mean(1))))
    # (k, seeds): each log RMSE without one of the seeds.
    without = 0.5 * np.log(squares @ ((1.0 - np.eye(seeds)) / (seeds - 1)))
    parts = np.square(weights) * (seeds - 1) * without.var(1)
    variance = parts.sum()
    if variance == 0:
        return value, value, value
    freedom = (seeds - 1) * variance**2 / np.square(parts).sum()
    reach = float(stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0) * np.sqrt(variance))
    return value, value - reach, value + reach


def rmse(errors: Floats) -> float:
    """Root of the mean square of (seeds,)."""
    return float(np.sqrt(np.square(errors).mean()))


_COLUMNS = {
    "method": ("method", ""),
    "rows": ("rows", ","),
    "rmse": ("RMSE", ".4f"),
    "bias": ("bias", "+.4f"),
    "sd": ("sd", ".4f"),
    "in_sample_rmse": ("in-sample RMSE", ".4f"),
    "in_sample_bias": ("its bias", "+.4f"),
    "exact_rmse": ("exact RMSE", ".4f"),
    "exact_sd": ("exact sd", ".4f"),
    "at_limit": ("at limit", ".2%"),
}
_VERDICTS = {
    "agrees": "-1/2 lies in it",
    "steeper": "steeper than -1/2, which is no contradiction: the theorem bounds from above",
    "shallower": "shallower than -1/2",
}
_FEW_AT_LIMIT = 5e-4
_MARGIN = 10.0


def write_report(outcome: Outcome, folder: Path) -> None:
    """runs.csv, summary.csv, results.json and the figure."""
    lines, found = summarise(outcome), slopes(outcome)
    reports.write_lines(folder / "runs.csv", outcome.runs)
    reports.write_lines(folder / "summary.csv", lines)
    content = {
        "weights": outcome.weights,
        "seconds": dict(zip(map(str, outcome.settings.rows), outcome.seconds, strict=True)),
        "slopes": found,
        "reading": reading(lines, found),
        "summary": lines,
        "runs": outcome.runs,
    }
    reports.write_results(folder, outcome.settings, outcome.device, content)
    reports.save(draw(outcome), folder, "figure")


def text_table(lines: Sequence[Line]) -> str:
    """The summary as aligned columns."""
    return reports.aligned(reports.rows_of(lines, _COLUMNS))


def reading(lines: Sequence[Line], found: Sequence[Line]) -> list[str]:
    """What the numbers say, a paragraph per method."""
    pairs = zip(found[::2], found[1::2], strict=True)  # held out and in sample, as `slopes` has it
    return [
        _read(held, seen, [line for line in lines if line["method"] == held["method"]])
        for held, seen in pairs
    ]


def _read(held: Line, seen: Line, lines: Sequence[Line]) -> str:
    first, before, last = lines[0], lines[-2], lines[-1]
    said = [
        f"{held['method']}: the held-out RMSE falls like n^{held['value']:.2f}, 95% interval "
        f"{held['low']:.2f} to {held['high']:.2f}: {_VERDICTS[held['verdict']]}.",
        f"From {before['rows']:,} to {last['rows']:,} rows alone the exponent is "
        f"{held['last']:.2f} ({held['last_low']:.2f} to {held['last_high']:.2f}).",
        f"In sample it is {seen['value']:.2f} ({seen['low']:.2f} to {seen['high']:.2f}): "
        f"{_VERDICTS[seen['verdict']]}.",
        f"Bias makes up {bias_share(first):.0%} of the squared held-out error at "
        f"{first['rows']:,} rows and {bias_share(last):.0%} at {last['rows']:,}.",
    ]
    if last["at_limit"] > _FEW_AT_LIMIT:
        said.append(
            f"At {last['rows']:,} rows {last['at_limit']:.1%} of the held-out pairs are at a limit "
            f"of the read-out; they alone make {last['limit_error']:+.4f} nats of the bias of "
            f"{last['bias']:+.4f}."
        )
    if ended := sum(line["ended_early"] for line in lines):
        said.append(f"{ended} network(s) did not train to their end.")
    return " ".join(said)


@reports.style()
def draw(outcome: Outcome) -> Figure:
    """Left the RMSE with the fitted slopes, right the bias and the standard deviation in it."""
    settings, lines, found = outcome.settings, summarise(outcome), slopes(outcome)
    figure = Figure(figsize=(10.0, 5.2 + 0.4 * len(settings.methods)), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for k, (method, look) in enumerate(reports.looks(settings.methods).items()):
        own = [line for line in lines if line["method"] == method]
        look |= {"markersize": 5.0, "linewidth": 1.2}
        _draw_method(left, right, own, found[2 * k : 2 * k + 2], look)
    rows = np.array(settings.rows, float)
    exact = [settings.exact_sd(count) for count in settings.rows]
    for axis in (left, right):
        axis.plot(
            rows, exact, color="black", linestyle="--", linewidth=1,
            label=r"exact $\log r$: sd(PMI) / $\sqrt{n}$",
        )  # fmt: skip
    # The theorem's slope, through the middle of the first method's errors.
    first = [line["rmse"] for line in lines if line["method"] == settings.methods[0]]
    middle = np.log(first).mean() - THEOREM * np.log(rows).mean()
    left.plot(
        rows, np.exp(middle) * rows**THEOREM, color="0.6", linewidth=4, alpha=0.5, zorder=0,
        label="slope -0.50, for comparison",
    )  # fmt: skip
    left.set_title("RMSE of the mutual information")
    right.set_title("held out: bias and standard deviation over seeds")
    for axis in (left, right):
        _dress(axis, settings.rows)
    # A bias that is zero by chance, or an interval from two seeds, would squeeze all else.
    levels = [line[name] for line in lines for name in ("rmse", "in_sample_rmse", "exact_sd")]
    low, high = left.get_ylim()
    left.set_ylim(max(low, min(levels) / _MARGIN), min(high, max(levels) * _MARGIN))
    left.set_ylabel("nats")
    title = f"Theorem 1: {settings.dim} + {settings.dim} Gaussians, MI = {settings.mi:g}"
    network = f"{settings.critic} critic of {outcome.weights:,} weights, {settings.folds} folds"
    figure.suptitle(f"{title}; {network}, {settings.seeds} seeds", fontsize=10)
    return figure


def _draw_method(
    left: Axes, right: Axes, lines: Sequence[Line], found: Sequence[Line], look: dict[str, Any]
) -> None:
    """Left: held out with intervals and solid, in sample dotted. Right: the parts of the error."""
    names = "rows", "low", "rmse", "high", "in_sample_rmse", "bias", "sd"
    rows, low, middle, high, in_sample, bias, sd = pd.DataFrame(lines)[[*names]].to_numpy().T
    held, seen = (f"slope {s['value']:.2f} ({s['low']:.2f} to {s['high']:.2f})" for s in found)
    method, reach = lines[0]["method"], np.stack([middle - low, high - middle]).clip(min=0.0)
    label = f"{method}, held out: {held}"
    left.errorbar(rows, middle, yerr=reach, label=label, capsize=2, **look)
    label = f"{method}, in sample: {seen}"
    left.plot(rows, in_sample, linestyle=":", fillstyle="none", label=label, **look)
    right.plot(rows, np.abs(bias), label=f"{method}: |bias|", **look)
    label = f"{method}: standard deviation"
    right.plot(rows, sd, linestyle="-.", fillstyle="none", label=label, **look)


def _dress(axis: Axes, rows: Sequence[int]) -> None:
    from matplotlib.container import ErrorbarContainer

    reports.log_log(axis)
    axis.set_xticks(rows, [f"{count:,}" for count in rows])
    axis.minorticks_off()
    axis.set_xlabel("rows n")
    handles, labels = axis.get_legend_handles_labels()
    # Matplotlib puts lines with error bars last; here they are what the figure is about.
    order = sorted(range(len(labels)), key=lambda k: not isinstance(handles[k], ErrorbarContainer))
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12)}
    shown = [handles[k] for k in order], [labels[k] for k in order]
    axis.legend(*shown, **below, frameon=False)
