"""Sounds and texts of words (Application I): the networks of Table 2 and Figure 3.

The networks are those of the notebook that the authors released: two towers and an inner product,
trained on every cell of a batch, and the last weights kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.core.critics.build import replica_generators
from pointdep.core.critics.inner import SeparableCritic
from pointdep.core.methods import Method
from pointdep.core.ratio import RatioModel
from pointdep.core.transforms import Standardizer
from pointdep.data.word_pairs import WordPairs
from pointdep.errors import DivergedError, InputError
from pointdep.experiments import claims, reports
from pointdep.experiments.claims import Answer, Claim, Finding, Measured, finding
from pointdep.experiments.reports import Floats
from pointdep.fitting.batches import RowBatches, TrainingOptions
from pointdep.fitting.progress import Progress
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.sampler import StreamEngine
from pointdep.fitting.splits import Rows

_Any = TypeVar("_Any", bound="Training")

PAPER_WORDS = 37_622
PAPER_TEST_WORDS = 5_000
CANDIDATES = 5
SHIFT = 5  # between the released notebook's candidates, in rows of the test split
FEWEST_TEST_WORDS = SHIFT * (CANDIDATES - 1) + 1  # so that the candidates of a trial differ
_LEAST = {
    **{"batch_size": 2, "epochs": 1, "hidden": 1, "embedding_dim": 1, "seed": 0},
    **{"draws": 2, "folds": 2, "test_words": FEWEST_TEST_WORDS},
}
_OF_THE_PAPER = ("batch_size", "epochs", "hidden", "embedding_dim", "learning_rate")
Z = 1.959964
_ONE_SEED = "Of one seed: another may give other numbers."


class Job(NamedTuple):
    """One network: its method, and the rows it trains on, (n,)."""

    method: Method
    rows: Rows


@dataclass(frozen=True)
class Training:
    """The network and how it learns; the defaults are the paper's.

    Attributes
    ----------
    files: the options that name the word vectors, as ("--data", "words.npz").
    test_words: how many words are kept for the test; None: the paper's 5,000, or a fifth of the
        words if that is less.
    """

    files: tuple[str, ...] = ()
    test_words: int | None = None
    batch_size: int = 512
    epochs: int = 100
    hidden: tuple[int, ...] = (512, 512)
    embedding_dim: int = 128
    learning_rate: float = 1e-3
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        least = {k: fewest for k, fewest in _LEAST.items() if getattr(self, k, None) is not None}
        reports.check_settings(self, least=least, positive=("learning_rate",))

    def quick(self: _Any) -> _Any:
        """Smaller networks on smaller batches, which learn from fewer words per step."""
        return replace(self, epochs=40, batch_size=128, hidden=(128, 128))

    def rows_needed(self) -> int:
        """The fewest training words there can be."""
        return self.batch_size

    def split_sizes(self, words: int) -> tuple[int, int]:
        """How many of so many words train, and how many test."""
        test = self.test_words or min(PAPER_TEST_WORDS, words // 5)
        needed = self.rows_needed()
        enough = words >= FEWEST_TEST_WORDS + needed
        if test < FEWEST_TEST_WORDS:
            smaller = "" if enough else " with a smaller --batch-size"
            least = f"at least {FEWEST_TEST_WORDS}: give --test-words {FEWEST_TEST_WORDS}{smaller}"
            raise InputError(f"{test} of {words} words would test, not {least}, or more words")
        if words - test < needed:
            fewer = " or --test-words" if enough else ""
            size, left = self.batch_size, f"{max(words - test, 0)} of {words} words"
            few = f"{left} would train, where batches of {size} need {needed}"
            raise InputError(f"{few}: give a smaller --batch-size{fewer}, or more words")
        return words - test, test

    def split(self, words: int) -> tuple[Rows, Rows]:
        """Row numbers that train and that test, both in random order."""
        train, _ = self.split_sizes(words)
        order = np.random.default_rng([self.seed, 4]).permutation(words)
        return order[:train], order[train:]

    def turns(self, n: int) -> list[list[Job]]:
        """The networks for n words, in lists that train one after the other, each list at once."""
        raise NotImplementedError

    def steps(self, jobs: Sequence[Job]) -> int:
        """How many steps the epochs have; as in the released notebook, ragged ends are left out."""
        return self.epochs * (len(jobs[0].rows) // self.batch_size)

    def departures(self, words: int) -> list[str]:
        """In what this differs from the paper's experiment, in words."""
        said = []
        if words != PAPER_WORDS:
            said.append(
                f"{words:,} words that are not the paper's {PAPER_WORDS:,} Speech2Vec and Word2Vec "
                "vectors"
            )
        if self.test_words not in (None, PAPER_TEST_WORDS):
            said.append(f"test words {self.test_words}, not {PAPER_TEST_WORDS}")
        return said + reports.departures(self, Training(), _OF_THE_PAPER, ",")

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "files"}
        return reports.command_line("reproduce", type(self).__name__.lower(), *self.files, **given)


class Sides(NamedTuple):
    """x: the sounds, (n, dx), y: the texts, (n, dy), as they are in the files, on the device."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, pairs: WordPairs, settings: Training) -> Sides:
        device = pick_device(settings.device)
        return cls(*(torch.from_numpy(side).to(device) for side in (pairs.audio, pairs.text)))


def train(
    settings: Training, sides: Sides, jobs: Sequence[Job], progress: Progress | None = None
) -> tuple[RatioModel, Floats]:
    """Train all networks from start to end; all jobs have the same number of rows.

    Returns the model, one replica per job with the last weights, and (epochs, jobs): the mutual
    information that each method infers from a batch before it learns from it, mean over the epoch.
    """
    steps = settings.steps(jobs)
    model, engine = make_engine(settings, sides, jobs, steps)
    values = engine.run(steps, progress).values.double().numpy()
    model.requires_grad_(False)
    model.eval()
    for replica, job in enumerate(jobs):
        if not all(bool(torch.isfinite(p[replica]).all()) for p in model.critic.parameters()):
            fault = f"method {job.method.key!r} gave weights that are not finite"
            raise DivergedError(f"{fault}: try a smaller --learning-rate")
    return model, values.reshape(settings.epochs, -1, len(jobs)).mean(1)


def expected_seconds(settings: Training, pairs: WordPairs) -> float:
    """How long the training will take here, read off a few steps."""
    sides, total = Sides.of(pairs, settings), 0.0
    for jobs in settings.turns(len(pairs)):
        _, engine = make_engine(settings, sides, jobs, 1)
        total += reports.seconds_per_step(engine) * settings.steps(jobs)
    return total


def make_engine(
    settings: Training, sides: Sides, jobs: Sequence[Job], steps: int
) -> tuple[RatioModel, StreamEngine]:
    """The networks at their first step, and what trains them."""
    device, replicas = sides.x.device, len(jobs)
    methods = [job.method for job in jobs]
    shape = replicas, sides.x.shape[1], sides.y.shape[1]
    layers: dict[str, Any] = {"hidden": settings.hidden, "embedding_dim": settings.embedding_dim}
    critic = SeparableCritic(*shape, activation="relu", **layers)
    critic.reset(replica_generators(settings.seed, replicas))
    # The paper's classifier gives the logit g(x) . h(y), and log r is that plus log(n - 1), n the
    # batch it was trained on. Ours gives log r: the same network, and the same steps.
    offset = math.log(settings.batch_size - 1)
    critic.raise_scores(torch.tensor([offset if m.key == "pc" else 0.0 for m in methods]))
    critic.bias.requires_grad_(False)
    size, rows = settings.batch_size, [job.rows for job in jobs]
    batches = RowBatches(*sides, rows, TrainingOptions(size, size, seed=settings.seed))
    index = batches.indices(0, steps, range(replicas))

    def draw(step: Tensor) -> tuple[Tensor, Tensor]:
        drawn = index.index_select(0, step)[0]
        return sides.x[drawn], sides.y[drawn]

    engine = StreamEngine(
        critic, methods, draw, learning_rate=settings.learning_rate, device=device
    )
    # Inputs as they are: a standardiser that was not fitted changes nothing.
    x_map, y_map = (Standardizer(replicas, side.shape[1]) for side in sides)
    return RatioModel(critic, x_map, y_map, methods).to(device), engine


def share(of: NDArray[np.bool_]) -> Measured:
    """How many of (n,) are true, with Wilson's interval."""
    from scipy.stats import binomtest

    count, n = int(of.sum()), len(of)
    ends = binomtest(count, n).proportion_ci(method="wilson")
    return Measured(count / n, float(ends.low), float(ends.high), n)


def mean(values: Floats) -> Measured:
    """The mean, with the normal interval."""
    n, middle = len(values), float(values.mean())
    error = Z * float(values.std(ddof=1)) / math.sqrt(n)
    return Measured(middle, middle - error, middle + error, n)


def agrees(own: Measured, paper: float, n: int) -> bool:
    """Whether the paper's share of n differs from ours by no more than chance explains."""
    pooled = (own.value * own.n + paper * n) / (own.n + n)
    spread = math.sqrt(pooled * (1.0 - pooled) * (1.0 / own.n + 1.0 / n))
    return abs(own.value - paper) <= Z * spread


def decided(
    answer: bool | None, about: str, measured: Measured | None, *beside: Finding, **details: Any
) -> Answer:
    """The answer of a claim that one number decides; beside: what is only told with it."""
    return [finding(about, measured, supports=answer, **details), *beside], answer


def about_run(found: Any) -> str:
    """What keeps the verdicts from being about the paper's experiment."""
    said = "; ".join(found.settings.departures(found.words))
    head = "This is not the paper's experiment, and the verdicts are about this run alone: "
    return f"{head}{said}. {_ONE_SEED}" if said else _ONE_SEED


def text_run(found: Any, parts: Sequence[str], judged: Sequence[Claim]) -> str:
    """A run for a terminal, at most 100 columns wide: its tables, and the claims."""
    note = about_run(found)
    head = [] if note == _ONE_SEED else [reports.filled(note)]
    where = "The rule of each verdict and all its figures: claims.md."
    return "\n\n".join([*head, *parts, claims.text_claims(judged, [_ONE_SEED, where])])


def write_run(folder: Path, found: Any, judged: Sequence[Claim], content: dict[str, Any]) -> None:
    """claims.md and results.json; content: what the run found, for a program."""
    (folder / "claims.md").write_text(claims.claims_page(judged, [about_run(found)]), "utf-8")
    reports.write_results(folder, found.settings, found.device, content)
