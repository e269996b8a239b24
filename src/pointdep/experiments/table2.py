"""Table 2: 1:5 matching, the text of a word among those of four others, asked for by its sound."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pointdep.core.methods import METHODS, Method, get_method
from pointdep.core.ratio import RatioModel
from pointdep.data.word_pairs import WordPairs
from pointdep.data.writers import write_table
from pointdep.errors import InputError
from pointdep.experiments import claims, reports, words
from pointdep.experiments.claims import Answer, Claim, Finding, Measured, finding
from pointdep.experiments.reports import Floats, Line
from pointdep.fitting.progress import Progress
from pointdep.fitting.splits import Rows

Scores = NDArray[np.float32]
Candidates = NDArray[np.int64]

PAPER_ACCURACY = {"pc": 0.9624, "drf": 0.9226, "drf_relative": 0.9226}
RELATIVE_ALPHA = 0.001  # of density-ratio fitting, in the notebook that the authors released
EXAMPLES = 5
FEW = 0.01  # of the positive PMI values may belong to others for "only"


@dataclass(frozen=True)
class Table2(words.Training):
    """1:5 matching on the test words.

    Attributes
    ----------
    methods: `drf` as the paper prints it, and `drf_relative` as the released notebook has it.
    draws: how often the four other candidates are drawn at random, in addition to the fixed ones.
    """

    methods: tuple[str, ...] = ("pc", "drf", "drf_relative")
    draws: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        reports.check_settings(self, distinct=("methods",))
        for name in self.methods:
            words_method(name)

    def turns(self, n: int) -> list[list[words.Job]]:
        """Every method as a network of its own, all at once."""
        rows, _ = self.split(n)
        return [[words.Job(words_method(name), rows) for name in self.methods]]


def words_method(name: str) -> Method:
    """The method, with the released notebook's alpha for the relative form."""
    options: dict[str, Any] = {"alpha": RELATIVE_ALPHA} if name == "drf_relative" else {}
    method = get_method(name, options)
    if method.reference != "none" or method.gradient is not None:
        able = ", ".join(k for k, m in METHODS.items() if m.reference == "none" and not m.gradient)
        raise InputError(f"method {name!r} needs more than the pair for PMI: choose from {able}")
    return method


@dataclass(frozen=True, eq=False)
class Matching:
    """What one method makes of the test words.

    Attributes
    ----------
    scores, pmi: (n, 5), of the sound of each test word with its candidates, its own text first.
        Scores beyond a limit of the read-out have the same PMI: it is the score that ranks.
    ranks: (n,), the place of its own text among the five, 1 the highest score.
    drawn: (draws,), share of rank 1 when the four others are drawn at random.
    ranks_of_all: (n,), its place among the texts of all test words.
    positive: share of the mismatched pairs of all test words whose PMI is positive.
    at_floor: share of the candidates at a limit of the method's read-out.
    """

    method: str
    scores: Scores
    pmi: Scores
    ranks: Rows
    drawn: Floats
    ranks_of_all: Rows
    positive: float
    at_floor: float

    @property
    def right(self) -> NDArray[np.bool_]:
        """(n,): whose own text has the highest score."""
        return np.equal(self.ranks, 1)

    @property
    def accuracy(self) -> Measured:
        """Share of the trials, with the fixed candidates, in which the right one is first."""
        return words.share(self.right)

    @property
    def above(self) -> Floats:
        """(n,): share of the other test words' texts that its own is above."""
        n = len(self.ranks_of_all)
        return np.divide(n - self.ranks_of_all, n - 1)

    def as_dict(self) -> Line:
        """For a program; tied: share of the other candidates with the score of the own text."""
        own = self.accuracy
        return {
            "method": self.method,
            **{"accuracy": own.value, "low": own.low, "high": own.high},
            "random_accuracy": float(self.drawn.mean()),
            "random_sd": float(self.drawn.std(ddof=1)),
            "places": np.bincount(self.ranks, minlength=words.CANDIDATES + 1)[1:].tolist(),
            "above": float(self.above.mean()),
            "median_place": float(np.median(self.ranks_of_all)),
            "positive": self.positive,
            "at_limit": self.at_floor,
            "tied": float((self.scores[:, 1:] == self.scores[:, :1]).mean()),
            "mean_pmi": float(self.pmi[:, 0].mean()),
        }


@dataclass(frozen=True, eq=False)
class Matched:
    """words: how many in all; test: (n,) the test words, in the order of the trials.

    curve: (epochs, methods), what each infers from the batches of an epoch while it learns.
    """

    settings: Table2
    words: int
    test: NDArray[np.str_]
    matchings: tuple[Matching, ...]
    curve: Floats
    seconds: float
    device: str

    def of(self, *methods: str) -> list[Matching]:
        """Those of the methods that were run."""
        return [found for found in self.matchings if found.method in methods]

    def examples(self, found: Matching, *, right: bool) -> list[Line]:
        """The first trials, in the random order of the test words, that went right, or wrong.

        heard: the word; candidates, pmi: its five candidates, the highest score first.
        """
        candidates, told = fixed_candidates(len(self.test)), []
        for trial in np.flatnonzero(found.right == right)[:EXAMPLES]:
            # From the last column on, as what ties with the word's own text is before it.
            order = words.CANDIDATES - 1 - np.argsort(-found.scores[trial][::-1], kind="stable")
            among, pmi = self.test[candidates[trial][order]], found.pmi[trial][order]
            heard = str(self.test[trial])
            told.append({"heard": heard, "candidates": among.tolist(), "pmi": pmi.tolist()})
        return told


def run_table2(settings: Table2, pairs: WordPairs, progress: Progress | None = None) -> Matched:
    """Train every method, and match the test words by each."""
    start = time.perf_counter()
    sides = words.Sides.of(pairs, settings)
    _, test = settings.split(len(pairs))
    model, curve = words.train(settings, sides, settings.turns(len(pairs))[0], progress)
    matchings = [
        match(model, replica, sides, test, settings.draws, settings.seed)
        for replica in range(len(settings.methods))
    ]
    seconds, device = time.perf_counter() - start, str(sides.x.device)
    found = pairs.words[test], tuple(matchings), curve
    return Matched(settings, len(pairs), *found, seconds, device)


def fixed_candidates(n: int) -> Candidates:
    """(n, 5): the row itself, and those 5, 10, 15 and 20 after it, as the released notebook has."""
    return (np.arange(n)[:, None] + words.SHIFT * np.arange(words.CANDIDATES)) % n


def random_candidates(n: int, random: np.random.Generator) -> Candidates:
    """(n, 5): the row itself, and four different others."""
    steps = random.integers(1, n, size=(n, words.CANDIDATES - 1))
    while True:
        ordered = np.sort(steps, 1)
        again = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not again.any():
            return (np.arange(n)[:, None] + np.pad(steps, ((0, 0), (1, 0)))) % n
        steps[again] = random.integers(1, n, size=(int(again.sum()), words.CANDIDATES - 1))


def ranks_of_first(scores: Scores) -> Rows:
    """(n, m) -> (n,): the place of column 0, 1 the highest; what it ties with is before it.

    A network whose scores are all the same has then found nothing, where the first of the highest
    would find everything. A score that is not a number is last.
    """
    ranks: Rows = scores.shape[1] - (scores[:, 1:] < scores[:, :1]).sum(1)
    return ranks


@torch.no_grad()
def match(
    model: RatioModel, replica: int, sides: words.Sides, test: Rows, draws: int, seed: int
) -> Matching:
    """Match the test rows, in their order, by one replica."""
    one = model.select([replica])
    method, n = one.methods[0], len(test)
    index = torch.from_numpy(test).to(sides.x.device)
    # Every sound with every text, (n, n).
    matrix = one.critic.matrix_in_blocks(sides.x[index][None], sides.y[index][None])[0].cpu()
    scores, pmi = matrix.numpy(), method.read_out(matrix).numpy()
    rows, fixed = np.arange(n)[:, None], fixed_candidates(n)
    random = np.random.default_rng([seed, 6])
    draw = (ranks_of_first(scores[rows, random_candidates(n, random)]) for _ in range(draws))
    among = pmi[rows, fixed]
    mismatched = int((pmi > 0).sum()) - int((among[:, 0] > 0).sum())
    return Matching(
        method=method.key,
        scores=scores[rows, fixed],
        pmi=among,
        ranks=ranks_of_first(scores[rows, fixed]),
        drawn=np.array([float((ranks == 1).mean()) for ranks in draw]),
        ranks_of_all=n - (scores < scores.diagonal()[:, None]).sum(1),
        positive=mismatched / (n * (n - 1)),
        at_floor=float(one.at_limit(torch.from_numpy(among)[None]).float().mean()),
    )


def _of_pc(judge: Callable[[Matching], Answer]) -> Callable[[Matched], Answer | None]:
    """A sentence about pc, which is left out if that was not run."""

    def ask(matched: Matched) -> Answer | None:
        found = matched.of("pc")
        return judge(found[0]) if found else None

    return ask


def _accuracies(*methods: str) -> Callable[[Matched], Answer | None]:
    """One of the methods has the paper's accuracy."""

    def judge(matched: Matched) -> Answer | None:
        told, drawn = [], []
        for one in matched.of(*methods):
            paper, draws = PAPER_ACCURACY[one.method], one.drawn
            answer = words.agrees(one.accuracy, paper, words.PAPER_TEST_WORDS)
            told.append(_accuracy(one, answer))
            about = f"{one.method}, mean (lowest to highest) of {len(draws)} draws of the others"
            spread = Measured(draws.mean(), draws.min(), draws.max())
            drawn.append(finding(about, spread, percent=True))
        return ([*told, *drawn], any(one.supports for one in told)) if told else None

    return judge


def _accuracy(found: Matching, supports: bool | None) -> Finding:
    paper = PAPER_ACCURACY[found.method]
    return finding(found.method, found.accuracy, paper=paper, supports=supports, percent=True)


def _pc_above_drf(matched: Matched) -> Answer | None:
    told = []
    for pc in matched.of("pc"):
        for other in matched.of("drf", "drf_relative"):
            less = words.mean(pc.right.astype(float) - other.right.astype(float))
            paper = PAPER_ACCURACY["pc"] - PAPER_ACCURACY[other.method]
            about, above = f"pc less {other.method}, paired by trial", less.above(0.0)
            told.append(finding(about, less, paper=paper, supports=above, percent=True))
    return (told, claims.every([one.supports for one in told])) if told else None


@_of_pc
def _above_others(pc: Matching) -> Answer:
    above, among = words.mean(pc.above), f"median place of its own text among all {len(pc.ranks):,}"
    median = Finding(f"pc, {among}", float(np.median(pc.ranks_of_all)))
    return words.decided(above.above(0.5), "pc", above, median, percent=True)


@_of_pc
def _highest(pc: Matching) -> Answer:
    about = "so by the meaning of a success; trials that are one"
    return words.decided(None, about, pc.accuracy, percent=True)


@_of_pc
def _failures_second(pc: Matching) -> Answer:
    failures = pc.ranks[pc.ranks > 1]
    second = words.share(failures == 2) if len(failures) else None
    answer = None if second is None else second.value == 1.0
    places = [
        Finding(f"failures whose own text has place {place}", float((failures == place).sum()))
        for place in range(2, words.CANDIDATES + 1)
    ]
    about = "failures in second place"
    return words.decided(answer, about, second, *places, paper=1.0, percent=True)


@_of_pc
def _only_right_positive(pc: Matching) -> Answer:
    positive, own = pc.pmi > 0, pc.pmi[:, 0] > 0
    right = pc.right[:, None] & (np.arange(words.CANDIDATES) == 0)
    others = words.share(~right[positive]) if positive.any() else None
    above = None if others is None else others.above(FEW)
    matched = words.share(own[pc.right]) if pc.right.any() else None
    shares = {
        "trials in which the right one alone is positive": words.share(
            own & ~positive[:, 1:].any(1)
        ),
        "trials matched rightly whose PMI is positive": matched,
    }
    told = [finding(about, measured, percent=True) for about, measured in shares.items()]
    about = "mismatched pairs of all test words with positive PMI"
    told.append(Finding(about, pc.positive, percent=True))
    answer, about = None if above is None else not above, "positive PMI that is something else"
    return words.decided(answer, about, others, *told, paper=0.0, percent=True)


@_of_pc
def _measures(pc: Matching) -> Answer:
    own = pc.pmi[:, 0].astype(float)
    pmi, median = words.mean(own), Finding("median", float(np.median(own)))
    return words.decided(pmi.above(0.0), "mean PMI of the test pairs, nats", pmi, median)


@_of_pc
def _generalises(pc: Matching) -> Answer:
    answer = pc.accuracy.above(1.0 / words.CANDIDATES)
    return [_accuracy(pc, answer)], answer


JUDGES = {
    "a": _accuracies("pc"),
    "b": _accuracies("drf", "drf_relative"),
    "ab": _pc_above_drf,
    "c": _above_others,
    "d": _highest,
    "e": _failures_second,
    "f": _only_right_positive,
    "g": _measures,
    "h": _generalises,
}


def judge_table2(matched: Matched) -> list[Claim]:
    """Every sentence on the methods of this run."""
    return claims.judge_all(reports.PAPER["claims"]["table2"], JUDGES, matched)


def as_dict(matched: Matched, judged: Sequence[Claim]) -> Line:
    """The run for a program."""
    return {
        "words": matched.words,
        "test": len(matched.test),
        "seconds": matched.seconds,
        "matching": [found.as_dict() for found in matched.matchings],
        "examples": [
            {"method": found.method, "right": right, **example}
            for found in matched.matchings
            for right in (True, False)
            for example in matched.examples(found, right=right)
        ],
        "claims": claims.claims_as_dicts(judged),
    }


def write_report(matched: Matched, folder: Path) -> list[Claim]:
    """table2.md, trials.csv (every candidate), training.csv, claims.md, results.json."""
    judged, settings = judge_table2(matched), matched.settings
    (folder / "table2.md").write_text(_page(matched), "utf-8")
    candidates, methods = fixed_candidates(len(matched.test)), len(settings.methods)
    trials = {
        "method": np.repeat(settings.methods, candidates.size),
        "heard": np.tile(np.repeat(matched.test, words.CANDIDATES), methods),
        "read": np.tile(matched.test[candidates].ravel(), methods),
        "pmi": np.concatenate([found.pmi.ravel() for found in matched.matchings]),
    }
    write_table(folder / "trials.csv", trials)
    epochs = {"epoch": np.arange(1, len(matched.curve) + 1)}
    training = epochs | dict(zip(settings.methods, matched.curve.T, strict=True))
    write_table(folder / "training.csv", training)
    words.write_run(folder, matched, judged, as_dict(matched, judged))
    return judged


def text_report(matched: Matched, judged: Sequence[Claim]) -> str:
    """For a terminal: the matching, examples of its first method, and the claims."""
    parts = [reports.aligned(_matching_rows(matched)), reports.filled(_legend(matched))]
    found = matched.matchings[0]
    for kind, _, rows in _examples(matched, found, "*"):
        parts.append(f"{found.method}, {kind}: text ranked by PMI, its own between *")
        told = (f"{heard}: {', '.join(cells)}" for heard, *cells in rows[1:])
        parts.append("\n".join(reports.filled(text, "  ", "    ") for text in told))
    return words.text_run(matched, parts, judged)


def _page(matched: Matched) -> str:
    """table2.md."""
    parts = [
        "# Table 2: whose text is it, by the sound?",
        words.about_run(matched),
        reports.markdown(_matching_rows(matched)),
        _legend(matched),
    ]
    for found in matched.matchings:
        for kind, part, rows in _examples(matched, found, "**"):
            parts += [
                f"## {found.method}, matched {kind} ({part:.2%} of the trials)",
                "Texts ranked by PMI, in nats; the word's own in bold. The first "
                f"{len(rows) - 1} trials of each kind, in the random order of the test words.",
                reports.markdown(rows),
            ]
    return "\n\n".join(parts) + "\n"


def _examples(
    matched: Matched, found: Matching, bold: str
) -> Iterator[tuple[str, float, list[list[str]]]]:
    """Trials that went right, then wrong: their share of all, a header, and a line per trial.

    The word's own text is between `bold`.
    """
    right = found.accuracy.value
    for kind, part in (("right", right), ("wrong", 1 - right)):
        rows = [["heard", *(f"{place}." for place in range(1, words.CANDIDATES + 1))]]
        for example in matched.examples(found, right=kind == "right"):
            heard, cells = example["heard"], [example["heard"]]
            for word, pmi in zip(example["candidates"], example["pmi"], strict=True):
                mark = bold if word == heard else ""
                cells.append(f"{mark}{word} ({pmi:.2f}){mark}")
            rows.append(cells)
        if len(rows) > 1:
            yield kind, part, rows


def _matching_rows(matched: Matched) -> list[list[str]]:
    """A header, and a line per method."""
    columns = {
        "method": ("method", ""),
        "accuracy": ("fixed", ".2%"),
        "interval": ("95 % interval", ""),
        "random": ("random", ""),
        "paper": ("paper", ""),
        "place": ("median place", ","),
        "at_limit": ("at limit", ".1%"),
        "tied": ("tied", ".1%"),
    }
    lines = [found.as_dict() for found in matched.matchings]
    for line, found in zip(lines, matched.matchings, strict=True):
        paper = PAPER_ACCURACY.get(found.method)
        line["interval"] = f"{line['low']:.2%} to {line['high']:.2%}"
        line["random"] = f"{line['random_accuracy']:.2%} ({line['random_sd']:.2%})"
        line["paper"] = "" if paper is None else f"{paper:.2%}"
        line["place"] = int(np.sort(found.ranks_of_all)[len(found.ranks) // 2])
    return reports.rows_of(lines, columns)


def _legend(matched: Matched) -> str:
    said = reports.TEXTS["table2 legend"]
    return str(said.format(draws=matched.settings.draws, test=len(matched.test)))
