"""Figure 3: PMI of the training words, by a network that saw them and by networks that did not."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kurtosis, mannwhitneyu, skew

from pointdep.core.methods import get_method
from pointdep.data.word_pairs import WordPairs
from pointdep.data.writers import write_table
from pointdep.experiments import claims, reports, words
from pointdep.experiments.claims import Answer, Claim, Finding, Measured, finding
from pointdep.experiments.reports import Floats, Line
from pointdep.fitting.progress import Progress, Silent
from pointdep.fitting.splits import Rows
from pointdep.inference.scoring import score_replicas

PAPER_MEAN = 8.37
PAPER_NEGATIVE = 147
PAPER_TRAIN_WORDS = words.PAPER_WORDS - words.PAPER_TEST_WORDS
PAPER_ENDINGS = ("ly", "s")
ENDINGS = (*PAPER_ENDINGS, "ing", "ed", "er", "tion")
MOST_SKEWNESS, MOST_KURTOSIS, MOST_DISTANCE = 0.5, 1.0, 0.05
NEAR = 0.1  # of the larger number: two means that agree
FEWEST = 10  # negative words of which endings can be asked
_IN, _OUT = "in sample", "out of sample"
_RESAMPLES = 200


@dataclass(frozen=True)
class Figure3(words.Training):
    """PMI of the training words, in sample and by `folds` networks that did not see them."""

    folds: int = 5

    def rows_needed(self) -> int:
        """A fold trains on the words of the others."""
        return math.ceil(self.batch_size * self.folds / (self.folds - 1)) + 1

    def fold_of(self, rows: int) -> Rows:
        """(rows,): by which fold's network a training word is scored; rows are in random order."""
        return np.arange(rows) % self.folds

    def turns(self, n: int) -> list[list[words.Job]]:
        """The one network of all training words, then those that leave out a fold each."""
        rows, _ = self.split(n)
        method, held = get_method("pc"), self.fold_of(len(rows))
        folds = [rows[held != fold] for fold in range(self.folds)]
        shortest = min(map(len, folds))
        return [[words.Job(method, rows)], [words.Job(method, own[:shortest]) for own in folds]]


@dataclass(frozen=True, eq=False)
class WordPmi:
    """PMI of the training words.

    Attributes
    ----------
    words: how many there were, with the test words.
    names: (n,), the training words.
    in_sample: (n,), by the network trained on all of them, as in the paper.
    out_of_sample: (n,), each by a network trained on the other folds.
    test: (m,), of the test words by the network of `in_sample`.
    same_sound: how many training words have the audio vector of another one.
    """

    settings: Figure3
    words: int
    names: NDArray[np.str_]
    in_sample: Floats
    out_of_sample: Floats
    test: Floats
    same_sound: int
    seconds: float
    device: str

    @property
    def samples(self) -> dict[str, Floats]:
        """PMI of the training words, by how it was found."""
        return {_IN: self.in_sample, _OUT: self.out_of_sample}

    @cached_property
    def endings(self) -> dict[str, list[Line]]:
        """The endings of the words below zero, by how their PMI was found."""
        return {where: endings(self.names, pmi) for where, pmi in self.samples.items()}


def run_figure3(settings: Figure3, pairs: WordPairs, progress: Progress | None = None) -> WordPmi:
    """One network on all training words, then one for each fold."""
    start = time.perf_counter()
    sides = words.Sides.of(pairs, settings)
    rows, test = settings.split(len(pairs))
    turns = settings.turns(len(pairs))
    work = [len(jobs) * settings.steps(jobs) for jobs in turns]
    shown = progress or Silent()
    parts = (_Part(shown, sum(work[:k]), own, sum(work)) for k, own in enumerate(work))
    seen, unseen = (words.train(settings, sides, *one)[0] for one in zip(turns, parts, strict=True))
    x, y = sides.x[rows], sides.y[rows]
    by_fold = score_replicas(unseen, x, y).double().numpy()
    return WordPmi(
        settings,
        len(pairs),
        pairs.words[rows],
        score_replicas(seen, x, y)[0].double().numpy(),
        by_fold[settings.fold_of(len(rows)), np.arange(len(rows))],
        score_replicas(seen, sides.x[test], sides.y[test])[0].double().numpy(),
        count_shared(pairs.audio[rows]),
        time.perf_counter() - start,
        str(sides.x.device),
    )


@dataclass(frozen=True)
class _Part:
    """Shows one training as a part of all the work, counted in steps of a network."""

    progress: Progress
    before: int
    work: int
    all_work: int

    def update(self, done: int, total: int, detail: str = "") -> None:
        share = self.work * done // total
        self.progress.update(self.before + share, self.all_work, f"{detail} of a network")


def count_shared(vectors: NDArray[np.float32]) -> int:
    """How many rows have another that is equal."""
    _, counts = np.unique(vectors, axis=0, return_counts=True)
    return int(counts[counts > 1].sum())


def endings(names: Sequence[str] | NDArray[np.str_], pmi: Floats) -> list[Line]:
    """How many words have an ending: `negative` of `all_negative`, `words` of `all_words`.

    times: how many times more often it is negative words than others that end so.
    """
    negative, found = pmi < 0, []
    for ending in ENDINGS:
        has = np.char.endswith(np.asarray(names), ending)
        counts = int((has & negative).sum()), int(negative.sum()), int(has.sum()), len(names)
        told = zip(("negative", "all_negative", "words", "all_words"), counts, strict=True)
        found.append({"ending": ending, **dict(told), "times": ratio_of_shares(*counts)})
    return found


def lowest_words(found: WordPmi, ending: str, count: int) -> list[str]:
    """The words of this ending with the lowest PMI in sample, if that is negative."""
    order = np.argsort(found.in_sample, kind="stable")
    negative = found.names[order[: int((found.in_sample < 0).sum())]]
    lowest: list[str] = negative[np.char.endswith(negative, ending)][:count].tolist()
    return lowest


def distance_from_gaussian(values: Floats) -> float:
    """Kolmogorov and Smirnov's: how far the distribution is from the Gaussian fitted to it."""
    from scipy.special import ndtr

    model = ndtr((np.sort(values) - values.mean()) / values.std())
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - model).max(), (model - steps[:-1]).max()))


def bootstrapped(statistic: Callable[[Floats], float], values: Floats, seed: int) -> Measured:
    """The statistic, with the percentile interval over resampled values."""
    random, n = np.random.default_rng([seed, 5]), len(values)
    found = [float(statistic(values[random.integers(0, n, n)])) for _ in range(_RESAMPLES)]
    low, high = np.percentile(found, [2.5, 97.5])
    # The distance of a resample is biased up: its ties are steps that the sample does not have.
    value = float(statistic(values))
    return Measured(value, min(value, float(low)), max(value, float(high)), n)


def ratio_of_shares(part: int, n_part: int, whole: int, n_whole: int) -> Measured | None:
    """How many times more often something is in a part than in the rest, in both counted alike.

    `part` of n_part in the part, `whole` of n_whole in all. Half a case is added to each count, so
    that none is zero; the interval is Katz's, of the logarithm.
    """
    rest, n_rest = whole - part, n_whole - n_part
    if n_part == 0 or n_rest == 0:
        return None
    a, b = part + 0.5, rest + 0.5
    log = math.log(a / (n_part + 1)) - math.log(b / (n_rest + 1))
    error = words.Z * math.sqrt(1 / a - 1 / (n_part + 1) + 1 / b - 1 / (n_rest + 1))
    return Measured(math.exp(log), math.exp(log - error), math.exp(log + error), n_part)


def separation(low: Floats, high: Floats) -> Measured | None:
    """How often one of `low` is below one of `high`, ties half: the area under the ROC curve.

    The interval is Hanley and McNeil's; None if either is empty.
    """
    n, m = len(low), len(high)
    if not n or not m:
        return None
    area = float(mannwhitneyu(high, low, method="asymptotic").statistic) / (n * m)
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (n - 1) * (q1 - area**2) + (m - 1) * (q2 - area**2)
    error = words.Z * math.sqrt(max(variance, 0.0) / (n * m))
    return Measured(area, area - error, area + error, n)


def _gaussian(found: WordPmi) -> Answer:
    shapes = (
        ("skewness", skew, MOST_SKEWNESS),
        ("excess kurtosis", kurtosis, MOST_KURTOSIS),
        ("largest difference of the distribution functions", distance_from_gaussian, MOST_DISTANCE),
    )
    told = []
    for where, values in found.samples.items():
        for name, statistic, most in shapes:
            measured = bootstrapped(statistic, values, found.settings.seed)
            supports = measured.within(-most, most)
            told.append(finding(f"{where}, {name}", measured, supports=supports))
    return told, claims.every([one.supports for one in told[: len(shapes)]])


def _mean_is_mi(found: WordPmi) -> Answer:
    seen, unseen = words.mean(found.in_sample), words.mean(found.out_of_sample)
    near = abs(seen.value - unseen.value) <= NEAR * max(abs(seen.value), abs(unseen.value))
    told = [
        finding(f"{_IN}, nats", seen, paper=PAPER_MEAN),
        finding(f"{_OUT}, nats", unseen, supports=near),
        finding("test words, by the network of the paper, nats", words.mean(found.test)),
    ]
    return told, near


def _mean_is_theirs(found: WordPmi) -> Answer:
    seen = words.mean(found.in_sample)
    near = abs(seen.value - PAPER_MEAN) <= NEAR * PAPER_MEAN
    return words.decided(near, f"{_IN}, nats", seen, paper=PAPER_MEAN)


def _share_negative(found: WordPmi) -> Answer:
    seen, paper = words.share(found.in_sample < 0), PAPER_NEGATIVE / PAPER_TRAIN_WORDS
    unseen = finding(_OUT, words.share(found.out_of_sample < 0), percent=True)
    answer = words.agrees(seen, paper, PAPER_TRAIN_WORDS)
    return words.decided(answer, _IN, seen, unseen, paper=paper, percent=True)


def _endings(found: WordPmi) -> Answer:
    told = []
    for where, lines in found.endings.items():
        for line in lines[: len(PAPER_ENDINGS)]:
            times, enough = line["times"], line["all_negative"] >= FEWEST
            supports = times.above(1.0) if times is not None and enough else None
            told.append(finding(f'"{line["ending"]}", {where}, times', times, supports=supports))
    return told, claims.every([one.supports for one in told[: len(PAPER_ENDINGS)]])


def _detects(found: WordPmi) -> Answer:
    flagged, unseen = found.in_sample < 0, found.out_of_sample
    area = separation(unseen[flagged], unseen[~flagged])
    parts = {
        "of the flagged, negative out of sample too": unseen[flagged],
        "of the others, negative out of sample": unseen[~flagged],
    }
    shares = {k: words.share(pmi < 0) if len(pmi) else None for k, pmi in parts.items()}
    told = [finding(about, share, percent=True) for about, share in shares.items()]
    told.append(Finding("training words with the audio vector of another", float(found.same_sound)))
    answer = None if area is None or int(flagged.sum()) < FEWEST else area.above(0.5)
    return words.decided(answer, "flagged below another, out of sample", area, *told, percent=True)


JUDGES = {
    "i": _gaussian,
    "j": _mean_is_mi,
    "k": _mean_is_theirs,
    "l": _share_negative,
    "m": _endings,
    "n": _detects,
}


def judge_figure3(found: WordPmi) -> list[Claim]:
    """Every sentence on the PMI of this run."""
    return claims.judge_all(reports.PAPER["claims"]["figure3"], JUDGES, found)


def as_dict(found: WordPmi, judged: Sequence[Claim]) -> Line:
    """The run for a program."""

    def numbers(measured: Measured | None, value: str, prefix: str = "") -> Line:
        ends = ("value", value), ("low", f"{prefix}low"), ("high", f"{prefix}high")
        return {told: getattr(measured, name, None) for name, told in ends}

    pmi = [
        {
            "of": name.replace(" ", "_"),
            **numbers(words.mean(values), "mean"),
            "sd": float(values.std()),
            "negative": int((values < 0).sum()),
            **numbers(words.share(values < 0), "negative_share", "negative_"),
        }
        for name, values in {**found.samples, "test": found.test}.items()
    ]
    ends = [
        {
            **{"ending": line["ending"], "words": line["words"]},
            **{"where": where.replace(" ", "_"), "negative": line["negative"]},
            **numbers(line["times"], "times"),
        }
        for where, lines in found.endings.items()
        for line in lines
    ]
    return {
        "words": found.words,
        "train": len(found.names),
        "same_sound": found.same_sound,
        "seconds": found.seconds,
        "pmi": pmi,
        "endings": ends,
        "claims": claims.claims_as_dicts(judged),
    }


def write_report(found: WordPmi, folder: Path) -> list[Claim]:
    """figure3.png, .svg, .pdf, table.md, pmi.csv (every word), claims.md, results.json."""
    judged = judge_figure3(found)
    page = ["# Figure 3 in numbers", words.about_run(found)]
    page += _tables(found, reports.markdown, str)
    (folder / "table.md").write_text("\n\n".join(page) + "\n", "utf-8")
    order = np.argsort(found.in_sample, kind="stable")
    columns = {"word": found.names, "in_sample": found.in_sample}
    columns |= {"out_of_sample": found.out_of_sample}
    write_table(folder / "pmi.csv", {name: column[order] for name, column in columns.items()})
    reports.save(draw(found), folder, "figure3")
    words.write_run(folder, found, judged, as_dict(found, judged))
    return judged


def text_report(found: WordPmi, judged: Sequence[Claim]) -> str:
    """For a terminal: PMI, endings and the claims."""
    return words.text_run(found, _tables(found, reports.aligned, reports.filled), judged)


def _tables(found: WordPmi, table: Callable[..., str], prose: Callable[[str], str]) -> list[str]:
    """PMI and endings, each with what its columns are."""
    pmi = [["PMI, nats", "words", "mean", "sd", "lowest", "median", "highest", "below zero"]]
    for name, values in {**found.samples, "test words": found.test}.items():
        median, negative = sorted(values)[len(values) // 2], (values < 0).sum()
        numbers = values.mean(), values.std(), values.min(), median, values.max()
        below = f"{negative:,} ({negative / len(values):.2%})"
        pmi.append([name, f"{len(values):,}", *(f"{number:.2f}" for number in numbers), below])
    ends = [["ending", "all words", _IN, "times", _OUT, "times"]]
    for lines in zip(*found.endings.values(), strict=True):
        ending, count, whole = (lines[0][name] for name in ("ending", "words", "all_words"))
        cells = [f'"{ending}"', f"{count:,} ({count / whole:.1%})"]
        for line in lines:
            times, part = line["times"], line["negative"] / max(line["all_negative"], 1)
            ratio = f"{times.value:.2f} ({times.low:.2f} to {times.high:.2f})" if times else "-"
            cells += [f"{line['negative']:,} ({part:.1%})", ratio]
        ends.append(cells)
    about_pmi = reports.TEXTS["figure3 pmi"].format(folds=found.settings.folds)
    return [table(pmi), prose(about_pmi), table(ends), prose(reports.TEXTS["figure3 endings"])]


_BLUE, _RED, _AMBER = reports.COLOURS[0], reports.COLOURS[1], reports.COLOURS[4]
_BINS = 60
_TAIL = 0.5  # percent of the words that may lie beyond each end of an axis
_NAMED = 8
_HEADROOM = 1.5  # for the words above the bars


@reports.style()
def draw(found: WordPmi) -> Figure:
    """Left in sample, as the paper; middle the same words out of sample; right their endings."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.9))
    _histogram(left, found.in_sample, "in sample, as in the paper")
    _histogram(middle, found.out_of_sample, "out of sample: by networks that did not see the word")
    _draw_endings(right, found)
    named = [
        f'below zero in sample, "-{ending}", lowest first: {", ".join(lowest)}'
        for ending in PAPER_ENDINGS
        if (lowest := lowest_words(found, ending, _NAMED))
    ]
    if named:
        figure.supxlabel("\n".join(named), fontsize=8, x=0.01, ha="left")
    settings = found.settings
    other = "" if found.words == words.PAPER_WORDS else "; not the paper's vectors"
    title = f"PMI of {len(found.names):,} training words, pc, {settings.epochs} epochs"
    figure.suptitle(f"{title}, batches of {settings.batch_size}{other}", fontsize=10)
    return figure


def _histogram(axis: Axes, values: Floats, title: str) -> None:
    """The negative part in another colour, and the Gaussian of the same mean and spread."""
    low, high = np.percentile(values, [_TAIL, 100 - _TAIL])
    margin = 0.05 * (high - low) or 1.0
    # Edges at multiples of the width, so that no bin holds zero inside.
    width = (high - low + 2 * margin) / _BINS
    first, last = np.floor((low - margin) / width), np.ceil((high + margin) / width)
    edges = width * np.arange(first, last + 1)
    counts, _ = np.histogram(values, edges)
    colours = [_RED if right <= 0 else _BLUE for right in edges[1:]]
    axis.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colours, linewidth=0)
    grid = np.linspace(edges[0], edges[-1], 400)
    middle, spread = values.mean(), values.std() or 1.0
    gaussian = np.exp(-0.5 * ((grid - middle) / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    look: dict[str, Any] = {"color": "black", "linewidth": 1, "linestyle": "--"}
    axis.plot(grid, len(values) * width * gaussian, label="Gaussian of this mean and sd", **look)
    axis.axvline(0.0, ymax=1 / _HEADROOM, color="0.3", linewidth=0.8)
    axis.set(xlim=(edges[0], edges[-1]), ylim=(0, _HEADROOM * max(counts.max(), 1)))
    negative = int((values < 0).sum())
    outside = int(((values < edges[0]) | (values > edges[-1])).sum())
    said = f"mean {middle:.2f}, sd {spread:.2f}\n"
    said += f"below zero: {negative:,} ({negative / len(values):.2%})"
    if outside:
        ends = f"lowest {values.min():.1f}, highest {values.max():.1f}"
        said += f"\n{outside:,} beyond the axis, {ends}"
    axis.text(0.03, 0.97, said, transform=axis.transAxes, va="top")
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, 0.83), frameon=False)
    axis.set_title(title, fontsize=9)
    axis.set(xlabel="PMI (nats)", ylabel="words")


def _draw_endings(axis: Axes, found: WordPmi) -> None:
    """Share of each ending among all words, and among the words below zero."""
    base, places = found.endings[_IN], np.arange(len(ENDINGS))
    shares = {"all training words": [line["words"] / line["all_words"] for line in base]}
    for where, lines in found.endings.items():
        own = [line["negative"] / max(line["all_negative"], 1) for line in lines]
        shares[f"below zero {where}"] = own
    for position, (name, own) in enumerate(shares.items()):
        colour = ("0.6", _RED, _AMBER)[position]
        percent = [100 * one for one in own]
        axis.barh(places + 0.27 * (position - 1), percent, 0.26, color=colour, label=name)
    axis.set_yticks(places, [f"-{ending}" for ending in ENDINGS])
    axis.invert_yaxis()
    axis.set_xlabel("words that end so (%)")
    axis.set_title("endings", fontsize=9)
    axis.legend(loc="lower right", frameon=False)
