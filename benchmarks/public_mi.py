"""Public benchmarks of mutual information, on data whose exact value is known.

    python benchmarks/public_mi.py A --data MNIST --jobs 4 --output benchmarks/results/public_A.json
    python benchmarks/public_mi.py D --data benchmarks/peers/data/v2 --seeds 0 1 2
    python benchmarks/public_mi.py --table [docs/benchmarks.md]
    python benchmarks/public_mi.py --check

- A: label information of MNIST pairs, digits 0 and 1 (latentmi, Gowri et al. 2024). Bits; a point
  is s, and the first s^2 of the rows are shuffled within x.
- B: ten bits as images (Lee and Rhee, NeurIPS 2024). Bits; a point is the information.
- C: a symmetric channel between the labels of two MNIST images (mutinfo). Nats; a point is the
  information.
- D: the 26 tasks of bmi, version 2. Nats; a point is the name of a task. `--data` is the folder
  that `peers/export_bmi.py --version 2` wrote.

`--data` of A, B and C is the folder of MNIST's four idx.gz files. Every point is one fit of
`PointwiseDependency` with its defaults, on one thread, in a process of its own if `--jobs` is more
than one. In all four the exact PMI of every row is known as well, so the RMSE of the out-of-fold
PMI is reported too, always in nats. With `--resume`, runs that the output file has are not
repeated. `--table` prints the tables of the results that exist, or writes them into a page.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

RESULTS = Path(__file__).resolve().parent / "results"
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
BITS, CLASSES = 10, 10
HALF = 2_500  # images of one digit that x draws from in A and B; y draws from the next as many
LARGE = 0.1  # nats; larger errors stand in bold
# Mean absolute error over s, in bits, as Gowri et al. (2024) publish it.
PUBLISHED_A = {
    "latentmi, InfoNCE": 0.021,
    "latentmi, MINE": 0.021,
    "latentmi": 0.028,
    "MINE": 0.258,
    "KSG": 0.360,
    "InfoNCE": 0.402,
}


@dataclass(frozen=True)
class Sample:
    """x: (n, d), y: (n, e), pmi: (n,) exact, in nats; mi: exact, in nats."""

    x: NDArray[Any]
    y: NDArray[Any]
    pmi: Floats
    mi: float


def pixels(folder: Path) -> tuple[NDArray[np.uint8], Labels]:
    """Images (n, 28, 28) and labels (n,) of the training part."""
    from datasets import mnist

    return mnist(folder, "train")


def plug_in(left: Labels, right: Labels) -> tuple[Floats, float]:
    """PMI of each row and MI of the empirical table of two label columns, in nats."""
    table = np.zeros((left.max() + 1, right.max() + 1))
    np.add.at(table, (left, right), 1 / len(left))
    product = np.outer(table.sum(1), table.sum(0))
    pmi = np.log(table[left, right] / product[left, right])
    return pmi, float(pmi.mean())


def label_pairs(folder: Path, s: float, rows: int, seed: int) -> Sample:
    """A. No image is used twice; x is shuffled within the first s^2 of the rows."""
    images, labels = pixels(folder)
    half = rows // 2
    zero, one = (images[labels == digit].reshape(-1, 784) / np.float32(255) for digit in (0, 1))
    if min(len(zero), len(one)) < rows:
        raise SystemExit(f"A has {min(len(zero), len(one))} rows at most, without using one twice")
    order = np.random.default_rng(seed).permutation(2 * half)
    x = np.concatenate([zero[:half], one[:half]])[order]
    y = np.concatenate([zero[half : 2 * half], one[half : 2 * half]])[order]
    digit = np.repeat([0, 1], half)[order]
    count, place = int(s * s * rows), np.arange(2 * half)
    place[:count] = np.random.default_rng(int(s * 1000) + 10_000 * seed).permutation(count)
    pmi, mi = plug_in(digit[place], digit)
    return Sample(x[place], y, pmi, mi)


def entropy(p: float) -> float:
    """Of a coin, in bits."""
    return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def flip_probability(bits: float) -> float:
    """p of a symmetric channel for ten bits that carries so many."""
    return float(brentq(lambda p: BITS * (1 - entropy(p)) - bits, 0.0, 0.5, xtol=1e-15))


def tiles(bits: Labels, digits: list[Floats], first: int, random: np.random.Generator) -> Any:
    """Each row of bits as ten images of 0 or 1, tiled 2 x 5 and resized to 64 x 64: (n, 4096)."""
    import torch
    from torch.nn.functional import interpolate

    drawn = np.stack([random.integers(0, HALF, len(bits)) + first for _ in range(BITS)], axis=1)
    parts = []
    for start in range(0, len(bits), 1_000):  # the images of all rows at once are large
        some, which = bits[start : start + 1_000], drawn[start : start + 1_000]
        chosen = np.where(some[..., None, None] == 1, digits[1][which], digits[0][which])
        wide = chosen.reshape(-1, 2, 5, 28, 28).transpose(0, 1, 3, 2, 4).reshape(-1, 1, 56, 140)
        small = interpolate(torch.from_numpy(wide), (64, 64), mode="bicubic", antialias=True)
        parts.append(small.clamp(0, 1).reshape(len(some), -1).numpy())
    return np.concatenate(parts)


def ten_bits(folder: Path, bits: float, rows: int, seed: int) -> Sample:
    """B. The images of x and of y come from disjoint halves."""
    images, labels = pixels(folder)
    digits: list[Any] = [images[labels == k][: 2 * HALF] / np.float32(255) for k in (0, 1)]
    p = flip_probability(bits)
    random = np.random.default_rng(int(bits) + 10_000 * seed)
    sent = random.integers(0, 2, (rows, BITS))
    x = tiles(sent, digits, 0, random)
    flipped = random.random((rows, BITS)) < p
    y = tiles(sent ^ flipped, digits, HALF, random)
    pmi = np.where(flipped, math.log(max(2 * p, 1e-300)), math.log(2 * (1 - p))).sum(1)
    return Sample(x, y, pmi, bits * math.log(2))


def channel_information(q: float) -> float:
    """MI in nats of ten equal labels and of their copy, redrawn uniformly with probability q."""
    same = 1 - 0.9 * q
    other = 0.0 if q == 0 else (1 - same) * math.log(q / CLASSES)
    return math.log(CLASSES) + same * math.log(same) + other


def redraw_probability(nats: float) -> float:
    """q of the channel that carries so many nats."""
    if nats == 0:
        return 1.0
    return float(brentq(lambda q: channel_information(q) - nats, 0.0, 1.0, xtol=1e-15))


def label_channel(folder: Path, nats: float, rows: int, seed: int) -> Sample:
    """C. Given its label, each side is any image of it, independent of the other side."""
    images, labels = pixels(folder)
    q = redraw_probability(nats)
    random = np.random.default_rng(int(nats * 1000) + 10_000 * seed)
    left = random.integers(0, CLASSES, rows)
    right = np.where(random.random(rows) < q, random.integers(0, CLASSES, rows), left)
    of_label = [np.flatnonzero(labels == label) for label in range(CLASSES)]

    def draw(wanted: Labels) -> NDArray[np.float32]:
        place = [of_label[label][random.integers(len(of_label[label]))] for label in wanted]
        return np.asarray(images[place].reshape(rows, -1) / np.float32(255))

    same = left == right
    pmi = np.where(same, math.log(CLASSES * (1 - 0.9 * q)), math.log(max(q, 1e-300)))
    return Sample(draw(left), draw(right), pmi, nats)


def bmi_task(folder: Path, task: str, rows: int, seed: int) -> Sample:
    """D, from the arrays that peers/export_bmi.py wrote."""
    with np.load(folder / f"bmi_v2_seed{seed}.npz") as arrays:
        x, y, pmi, mi = (arrays[f"{task}|{key}"] for key in ("x", "y", "pmi", "mi"))
    return Sample(x[:rows], y[:rows], pmi[:rows].astype(np.float64), float(mi))


@dataclass(frozen=True)
class Benchmark:
    """One of the four: what it is called, its unit, its points and what draws one."""

    title: str
    unit: str
    rows: int
    points: tuple[float, ...]
    draw: Callable[[Path, Any, int, int], Sample]

    @property
    def nats(self) -> float:
        """Nats per unit."""
        return math.log(2) if self.unit == "bits" else 1.0


BENCHMARKS = {
    "A": Benchmark(
        "Label information of image pairs", "bits", 5_000, tuple(np.linspace(0, 1, 14)), label_pairs
    ),
    "B": Benchmark("Ten bits as images", "bits", 10_000, (2, 4, 6, 8, 10), ten_bits),
    "C": Benchmark(
        "A label channel over images", "nats", 10_000, (0, 0.5, 1, 1.5, 2, 2.3), label_channel
    ),
    "D": Benchmark("bmi, version 2", "nats", 5_000, (), bmi_task),
}


def measure(job: tuple[str, Path, Any, int, int]) -> dict[str, Any]:
    """One fit with default settings: its estimate in the unit of the benchmark, and how it ran."""
    import torch

    from pointdep import PointwiseDependency

    name, folder, point, rows, seed = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    benchmark = BENCHMARKS[name]
    data = benchmark.draw(folder, point, rows, seed)
    begin, cpu = time.perf_counter(), time.process_time()
    model = PointwiseDependency(random_state=seed, progress=False).fit(data.x, data.y)
    found = model.mutual_information(confidence=0.9)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    low, high = found.ci
    return {
        "point": point,
        "rows": len(data.x),
        "seed": seed,
        "truth": data.mi / benchmark.nats,
        "estimate": found.nats / benchmark.nats,
        "low": low / benchmark.nats,
        "high": high / benchmark.nats,
        "error": (found.nats - data.mi) / benchmark.nats,
        "covered": bool(low <= data.mi <= high),
        "pmi_rmse": float(np.sqrt(np.nanmean((model.oof_pmi_ - data.pmi) ** 2))),
        "check": bool(model.check().passed),
        "flags": [flag.name for flag in model.flags_],
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "device": str(model.model_.constant.device),
    }


def summary(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What is quoted of a benchmark."""
    tasks: dict[Any, list[float]] = {}
    for run in runs:
        tasks.setdefault(run["point"], []).append(run["pmi_rmse"])
    rmse = {point: float(np.mean(values)) for point, values in tasks.items()}
    return {
        "unit": BENCHMARKS[name].unit,
        "runs": len(runs),
        "mean_absolute_error": float(np.mean([abs(run["error"]) for run in runs])),
        "covered": sum(run["covered"] for run in runs),
        "check_passed": sum(run["check"] for run in runs),
        "median_pmi_rmse": float(np.median(list(rmse.values()))),
        "median_cpu_seconds": float(np.median([run["cpu_seconds"] for run in runs])),
    }


def results(jobs: list[Any], processes: int) -> Iterator[dict[str, Any]]:
    """The runs as they end."""
    if processes == 1:
        yield from map(measure, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for future in as_completed([pool.submit(measure, job) for job in jobs]):
            yield future.result()


def points_of(name: str, folder: Path, seed: int) -> list[Any]:
    """All points of a benchmark; of D, the tasks in the exported file."""
    if name != "D":
        return [float(point) for point in BENCHMARKS[name].points]
    with np.load(folder / f"bmi_v2_seed{seed}.npz") as arrays:
        return [key.removesuffix("|pmi") for key in arrays.files if key.endswith("|pmi")]


def run(args: argparse.Namespace) -> None:
    """Run what was asked for; the output file is written after every run."""
    from report import report

    name, benchmark = args.benchmark, BENCHMARKS[args.benchmark]
    rows = args.rows or benchmark.rows
    points = args.points or points_of(name, args.data, args.seeds[0])
    if name != "D":
        points = [float(point) for point in points]
    output = Path(args.output) if args.output else None
    runs: list[dict[str, Any]] = []
    if args.resume and output is not None and output.exists():
        runs = json.loads(output.read_text("utf-8"))["results"]
    done = {(run["point"], run["rows"], run["seed"]) for run in runs}
    jobs = [
        (name, args.data, point, rows, seed)
        for seed in args.seeds
        for point in points
        if (point, rows, seed) not in done
    ]
    for line in results(jobs, args.jobs):
        runs.append(line)
        print(json.dumps(line), file=sys.stderr, flush=True)
        if output is not None:
            output.write_text(json.dumps({"results": runs}), "utf-8")
    # In the order of the points, however the processes ended.
    order = {point: place for place, point in enumerate(points)}
    runs.sort(key=lambda run: (run["seed"], order.get(run["point"], len(order))))
    report(f"public_{name}", {"summary": summary(name, runs), "results": runs}, args.output)


def our_rows(name: str, runs: list[dict[str, Any]]) -> list[str]:
    """One row per point, the mean over seeds; the interval and flags of the first seed."""
    unit, first = BENCHMARKS[name].unit, runs[0]["seed"]
    head = {"A": "s", "B": "bits sent", "C": "nats sent", "D": "task"}[name]
    lines = [
        f"| {head} | exact, {unit} | pointdep | 90 % interval | RMSE of PMI, nats | flags |",
        "|---|---|---|---|---|---|",
    ]
    for line in (run for run in runs if run["seed"] == first):
        same = [run for run in runs if run["point"] == line["point"]]
        truth, estimate, rmse = (
            np.mean([run[key] for run in same]) for key in ("truth", "estimate", "pmi_rmse")
        )
        point = line["point"] if isinstance(line["point"], str) else f"{line['point']:.3g}"
        flags = ", ".join(f"`{flag}`" for flag in dict.fromkeys(line["flags"]))
        missed = "" if line["covered"] else ", misses"
        lines.append(
            f"| {point} | {truth:.3f} | {estimate:.3f} | {line['low']:.2f} to {line['high']:.2f}"
            f"{missed} | {rmse:.3f} | {flags} |"
        )
    return lines


def cell(line: dict[str, Any] | None) -> str:
    """The error of one run, in bold if it is large; nothing for a run that there is not."""
    if line is None or line["failed"]:
        return "" if line is None else "failed"
    mark = "**" if abs(line["error"]) > LARGE else ""
    return f"{mark}{line['error']:+.2f}{mark}"


def peer_rows(rows: int, seed: int, partial: list[str]) -> list[str]:
    """All estimators on the tasks of bmi, version 1, that the partial ones were run on."""
    files = [RESULTS / f"{part}.jsonl" for part in ("peers", "pointdep")]
    lines = [json.loads(text) for file in files for text in file.read_text().splitlines()]
    lines = [line for line in lines if (line["rows"], line["seed"]) == (rows, seed)]
    tasks = list(dict.fromkeys(line["task"] for line in lines if line["estimator"] in partial))
    exact = {line["task"]: line["mi"] for line in lines}
    found = {(line["estimator"], line["task"]): line for line in lines}
    names = sorted({line["estimator"] for line in lines if line["task"] in tasks})
    names.sort(key=lambda name: not name.startswith("pointdep"))
    if not tasks:
        return []
    table = [
        "| estimator | " + " | ".join(f"{task} ({exact[task]:.2f})" for task in tasks) + " |",
        "|---" * (len(tasks) + 1) + "|",
    ]
    for name in names:
        lines = [found.get((name, task)) for task in tasks]
        table.append(f"| {name} | " + " | ".join(map(cell, lines)) + " |")
    return table


def table() -> str:
    """Markdown of the results that exist; what was not measured is left out."""
    parts: list[str] = []
    for name, benchmark in BENCHMARKS.items():
        file = RESULTS / f"public_{name}.json"
        if not file.exists():
            continue
        found = json.loads(file.read_text("utf-8"))
        total, runs = found["summary"], found["results"]
        text = (
            f"Commit {found['commit']}, {runs[0]['rows']:,} rows: mean absolute error "
            f"{total['mean_absolute_error']:.3f} {total['unit']}; the 90 % interval holds the "
            f"exact value in {total['covered']} of {total['runs']} fits, and the check passes in "
            f"{total['check_passed']}; RMSE of PMI {total['median_pmi_rmse']:.3f} nats in the "
            f"median; {total['median_cpu_seconds']:.0f} s of processor time per fit "
            f"(`public_{name}.json`)."
        )
        parts += [f"### {name}. {benchmark.title}", "", text, "", *our_rows(name, runs), ""]
        if name == "A":
            errors = PUBLISHED_A | {"**pointdep**": total["mean_absolute_error"]}
            parts += ["| estimator | mean absolute error over s, bits |", "|---|---|"]
            ranked = sorted(errors.items(), key=lambda item: item[1])
            parts += [f"| {label} | {error:.3f} |" for label, error in ranked]
            parts += ["", "The other lines are published by Gowri et al. (2024).", ""]
    peers = peer_rows(1_000, 0, ["neuralmi", "latentmi"])
    if peers:
        title = "### Other libraries on a few tasks of bmi"
        text = (
            "NeuralMI and latentmi were run on these tasks only. Errors in nats, those over 0.1 in "
            "bold; 1,000 rows, seed 0, and the exact value after each task "
            "(`python benchmarks/peers/run.py`, `python benchmarks/bmi_tasks.py`)."
        )
        parts += [title, "", text, "", *peers, ""]
    return "\n".join(parts)


def fill(page: Path, text: str) -> None:
    """Write the tables between the marks of a page."""
    begin, end = "<!-- results:public -->", "<!-- /results:public -->"
    head, rest = page.read_text("utf-8").split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n{end}{rest.split(end)[1]}", "utf-8")


def check() -> None:
    """The exact values that the data sets state, each by a second way."""
    left, right = np.repeat([0, 1], 500), np.tile([0, 1], 500)
    assert abs(plug_in(left, right)[1]) < 1e-12  # every pair of labels alike often
    assert abs(plug_in(left, left)[1] - math.log(2)) < 1e-12
    for bits in BENCHMARKS["B"].points:
        p = flip_probability(bits)
        # Of one bit, the table of both sides; ten independent bits add up.
        one = np.array([[1 - p, p], [p, 1 - p]]) / 2
        assert abs(BITS * finite_information(one) / math.log(2) - bits) < 1e-9
    for q in (0.0, 0.3, 0.7, 1.0):
        joint = ((1 - q) * np.eye(CLASSES) + q / CLASSES) / CLASSES
        assert abs(finite_information(joint) - channel_information(q)) < 1e-12
    for nats in BENCHMARKS["C"].points:
        assert abs(channel_information(redraw_probability(nats)) - nats) < 1e-9
    print("the exact values agree with finite tables")


def finite_information(joint: Floats) -> float:
    """MI of a table in nats, by its entropies."""

    def total(p: Floats) -> float:
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    return total(joint.sum(0)) + total(joint.sum(1)) - total(joint.ravel())


def main() -> None:
    """Run a benchmark, print the tables or check the exact values."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark", nargs="?", choices=list(BENCHMARKS))
    parser.add_argument("--data", type=Path, help="folder of MNIST, or of D's exported arrays")
    parser.add_argument("--points", nargs="+", help="s, information or tasks; all when not given")
    parser.add_argument("--rows", type=int, help="5,000 for A and D, 10,000 for B and C")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--output")
    parser.add_argument("--resume", action="store_true", help="keep the runs the output file has")
    parser.add_argument("--table", nargs="?", const="", metavar="PAGE")
    parser.add_argument("--check", action="store_true", help="check the exact values and stop")
    args = parser.parse_args()
    if args.check:
        check()
    elif args.table is not None:
        text = table()
        print(text)
        if args.table:
            fill(Path(args.table), text)
    elif args.benchmark is None or args.data is None:
        parser.error("which benchmark, and --data?")
    else:
        run(args)


if __name__ == "__main__":
    main()
