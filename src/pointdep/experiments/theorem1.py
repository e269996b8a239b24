"""Theorem 1: how the error of a plug-in estimate falls with the number of rows.

`Theorem1` holds the settings, `run_theorem1` fits every estimate, `summarise` and `slopes` turn the
estimates into errors and the exponent with which they fall.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics.base import ACTIVATIONS
from pointdep.core.critics.build import build_critic, replica_generators
from pointdep.core.methods import METHODS, Method, get_method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.data.tasks.continuous import Joint, correlated
from pointdep.errors import InputError, require_whole
from pointdep.estimators.assembly import CriticSettings, batch_shape
from pointdep.experiments.reports import command_line, make_distinct, require_known
from pointdep.fitting.batches import SplitRows, TrainingOptions
from pointdep.fitting.engine import Engine, Trained
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference.scoring import score_replicas

Floats = NDArray[np.float64]

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
        make_distinct(self, "methods", "rows")
        for name in self.methods:
            # The theorem speaks of the mean of log r over the rows, and of no other inference.
            if not get_method(name).is_mean_of_pmi:
                able = [key for key, method in METHODS.items() if method.is_mean_of_pmi]
                raise InputError(
                    f"method {name!r} infers something else than the mean of PMI, of which "
                    f"Theorem 1 speaks: choose from {', '.join(able)}"
                )
        for rows in self.rows:
            require_whole("rows", rows, least=_FEWEST_ROWS)
        if len(self.rows) < 2:
            raise InputError(
                f"rows={self.rows} must name at least two, over which a slope is fitted"
            )
        object.__setattr__(self, "rows", tuple(sorted(self.rows)))
        require_known("critic", (self.critic,), CRITICS)
        require_known("activation", (self.activation,), ACTIVATIONS)
        for name, least in (("dim", 1), ("folds", 2), ("seeds", 2), ("seed", 0)):
            require_whole(name, getattr(self, name), least=least)
        if self.seed + self.seeds > 2**32:
            raise InputError(f"seed={self.seed} must be at most {2**32 - self.seeds}")
        if not self.hidden:
            raise InputError("hidden must name at least one layer")
        for width in self.hidden:
            require_whole("hidden", width)
        if not (math.isfinite(self.mi) and self.mi > 0):
            raise InputError(f"mi={self.mi!r} must be a positive number of nats")
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
        return command_line("reproduce", "theorem1", **vars(self))


@dataclass(frozen=True)
class Run:
    """One estimate: a method on `rows` rows of their own. In nats, but for the shares.

    Attributes
    ----------
    held_out: mean of log r over all rows, each by a network that did not see it.
    in_sample: mean of log r by each network over the rows that it trained on: the theorem's
        plug-in, of networks that have 1 - 1 / folds of the rows, less those that stop them.
    exact: mean of the exact PMI over the same rows: the estimate of one who knows r.
    at_limit: share of the held-out rows at a limit of the method's read-out.
    limit_error: how much those alone add to `held_out` beyond their exact PMI.
    epochs: after how many the kept weights were reached, mean over the networks.
    ended_early: how many of its networks the limit on epochs ended, or divergence.
    """

    method: str
    rows: int
    seed: int
    held_out: float
    in_sample: float
    exact: float
    at_limit: float
    limit_error: float
    epochs: float
    ended_early: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """Every run; weights: of one network; seconds: of each number of rows."""

    settings: Theorem1
    runs: tuple[Run, ...]
    weights: int
    seconds: tuple[float, ...]
    device: str


@dataclass(frozen=True, eq=False)
class Fits:
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
    runs: list[Run] = []
    seconds = []
    weights = 0
    for rows, part in progress_parts(settings, progress or Silent()):
        start = time.perf_counter()
        fits = make_fits(settings, rows, device)
        model = make_model(settings, fits)
        trained = train(model, settings, fits, part)
        runs += compare(settings, fits, model, trained)
        seconds.append(time.perf_counter() - start)
        part.finish()
        weights = sum(p.numel() for p in model.critic.parameters()) // model.replicas
    return Outcome(settings, tuple(runs), weights, tuple(seconds), str(device))


def make_fits(settings: Theorem1, rows: int, device: torch.device) -> Fits:
    """Draw the rows of every seed, new ones for each number of rows."""
    names = range(settings.seed, settings.seed + settings.seeds)
    drawn = [settings.joint.sample(rows, np.random.default_rng([seed, rows])) for seed in names]
    x, y, pmi = (np.stack(side) for side in zip(*drawn, strict=True))
    splits, methods = [], []
    for number, seed in enumerate(names):
        own = make_splits(rows, folds=settings.folds, seed=seed)
        for method in settings.methods:
            methods += [get_method(method)] * len(own)
            splits += [
                Split(*(part + number * rows for part in (s.train, s.stop, s.report))) for s in own
            ]
    flat_x, flat_y = (torch.from_numpy(side).float().flatten(0, 1).to(device) for side in (x, y))
    return Fits(flat_x, flat_y, pmi, splits, methods)


def make_model(settings: Theorem1, fits: Fits) -> RatioModel:
    """Untrained networks. The columns of x and y are standard normal: they stay as they are."""
    replicas, dim = len(fits.splits), settings.dim
    critic = build_critic(
        settings.critic,
        replicas,
        dim,
        dim,
        hidden=settings.hidden,
        embedding_dim=_EMBEDDING,
        activation=settings.activation,
    )
    critic.reset(replica_generators(settings.seed, replicas))
    maps = Standardizer(replicas, dim), Standardizer(replicas, dim)
    return RatioModel(critic, *maps, fits.methods).to(fits.x.device)


def train(model: RatioModel, settings: Theorem1, fits: Fits, progress: Progress) -> Trained:
    """Train with the library's defaults, batches and negatives those it chooses for `pc`."""
    smallest = min(len(split.train) for split in fits.splits)
    critic = CriticSettings(
        settings.critic, settings.hidden, _EMBEDDING, settings.activation, "score"
    )
    batch, block = batch_shape(critic, get_method("pc"), smallest, "auto", "auto")
    options = TrainingOptions(batch_size=batch, block=block, seed=settings.seed)
    rows = SplitRows(fits.x, fits.y, fits.splits, seed=settings.seed)
    trained = Engine(model, rows, options, progress=progress).run()
    model.eval()
    model.requires_grad_(False)
    return trained


def compare(settings: Theorem1, fits: Fits, model: RatioModel, trained: Trained) -> Iterator[Run]:
    """The estimates of every seed and method."""
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
            yield Run(
                method=method,
                rows=rows,
                seed=settings.seed + number,
                held_out=float(values[unseen].mean()),
                in_sample=float(values[trained_on].mean()),
                exact=float(exact.mean()),
                at_limit=float(limited.sum() / rows),
                limit_error=float((values - exact)[limited].sum() / rows),
                epochs=float(np.mean([trained.best_epochs[r] for r in replicas])),
                ended_early=len(ended.intersection(replicas)),
            )


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
        self._tell(-math.expm1(-done / _TYPICAL_EPOCHS), f"{done} {detail}")

    def finish(self) -> None:
        """Whenever the last network stopped: this part is done."""
        self._tell(1.0, "done")

    def _tell(self, share: float, detail: str) -> None:
        done = self.start + math.floor(share * max(self.rows, _LEAST_WORK))
        self.progress.update(done, self.total, f"of the work, {self.rows:,} rows: {detail}")


def progress_parts(settings: Theorem1, progress: Progress) -> Iterator[tuple[int, _Part]]:
    """Each number of rows with its share of the work, few rows first."""
    work = [max(rows, _LEAST_WORK) for rows in settings.rows]
    for position, rows in enumerate(settings.rows):
        yield rows, _Part(progress, rows, sum(work[:position]), sum(work))


@dataclass(frozen=True)
class Summary:
    """One method at one number of rows, over the seeds; in nats.

    Attributes
    ----------
    rmse, bias, sd: of the held-out estimate, rmse^2 = bias^2 + sd^2; low, high: 95% interval of
        rmse, made as that of `Slope`: 93 to 95% for normal errors, less for skewed ones.
    in_sample_rmse, in_sample_bias: of the estimate over the rows that each network trained on.
    exact_rmse: of the mean of the exact PMI over the same rows; exact_sd: theory's value for it.
    at_limit, limit_error: mean over the runs (see `Run`). ended_early: networks in all.
    """

    method: str
    rows: int
    seeds: int
    rmse: float
    low: float
    high: float
    bias: float
    sd: float
    in_sample_rmse: float
    in_sample_bias: float
    exact_rmse: float
    exact_sd: float
    at_limit: float
    limit_error: float
    ended_early: int

    @property
    def bias_share(self) -> float:
        """How much of the squared error is bias, from 0 to 1.

        The mean of so many seeds is off by chance, which is taken away: sd^2 / (seeds - 1) is the
        square of its standard error. An unbiased estimate is at 0 more often than not.
        """
        squared = max(0.0, self.bias**2 - self.sd**2 / (self.seeds - 1))
        return squared / self.rmse**2 if self.rmse else 0.0


@dataclass(frozen=True)
class Slope:
    """How log RMSE falls with log n: least squares over the numbers of rows, each counting alike.

    low, high: 95% interval. Each log RMSE has its variance from leaving out one seed after the
        other (the jackknife); the slope weights and adds them, with Student's t of Welch's degrees
        of freedom. On simulated errors at six n, with 5 or 10 seeds and bias none, half or nine
        tenths of their square, it held the truth in 94 to 96% of 10,000 runs, and in 93 to 95%
        where the errors are skewed (exponential).
    last, last_low, last_high: between the last two numbers of rows alone, where an error that does
        not go away shows first.
    """

    method: str
    quantity: str
    value: float
    low: float
    high: float
    last: float
    last_low: float
    last_high: float

    @property
    def verdict(self) -> str:
        """Beside the theorem's exponent: "agrees", "steeper" or "shallower"."""
        if self.low <= THEOREM <= self.high:
            return "agrees"
        return "steeper" if self.high < THEOREM else "shallower"


def summarise(outcome: Outcome) -> list[Summary]:
    """One line per method and number of rows, in the order of the settings."""
    lines = []
    for method in outcome.settings.methods:
        for rows in outcome.settings.rows:
            runs = [run for run in outcome.runs if (run.method, run.rows) == (method, rows)]
            held, seen, exact = (
                _errors(outcome, method, quantity, rows)
                for quantity in ("held_out", "in_sample", "exact")
            )
            low, high = np.exp(combine(np.ones(1), held[None])[1:])
            lines.append(
                Summary(
                    method=method,
                    rows=rows,
                    seeds=len(runs),
                    rmse=rmse(held),
                    low=float(low),
                    high=float(high),
                    bias=float(held.mean()),
                    sd=float(held.std()),
                    in_sample_rmse=rmse(seen),
                    in_sample_bias=float(seen.mean()),
                    exact_rmse=rmse(exact),
                    exact_sd=outcome.settings.exact_sd(rows),
                    at_limit=fmean(run.at_limit for run in runs),
                    limit_error=fmean(run.limit_error for run in runs),
                    ended_early=sum(run.ended_early for run in runs),
                )
            )
    return lines


def slopes(outcome: Outcome) -> list[Slope]:
    """One for each method, held out and in sample."""
    found, rows = [], outcome.settings.rows
    for method in outcome.settings.methods:
        for quantity in ("held_out", "in_sample"):
            errors = np.stack([_errors(outcome, method, quantity, count) for count in rows])
            last = fit_slope(rows[-2:], errors[-2:])
            found.append(Slope(method, quantity, *fit_slope(rows, errors), *last))
    return found


def _errors(outcome: Outcome, method: str, quantity: str, rows: int) -> Floats:
    """Estimate minus truth of each run, (runs,)."""
    runs = [run for run in outcome.runs if (run.method, run.rows) == (method, rows)]
    return np.array([getattr(run, quantity) for run in runs]) - outcome.settings.mi


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
