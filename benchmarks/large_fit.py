"""Fits on more rows than memory should hold: anonymous memory, and time against rows.

    python benchmarks/large_fit.py memory --output benchmarks/results/large_fit_memory.json
    python benchmarks/large_fit.py scaling --output benchmarks/results/large_fit_scaling.json
    python benchmarks/large_fit.py speed --output benchmarks/results/large_fit_speed.json

`memory` fits 1,000,000 pairs of 512 + 512 float16 columns as memory-mapped .npy files and as
Parquet shards, and 10,000,000 of 64 + 64 by memory map; `scaling` 10^5 to 10^7 pairs of 64 + 64
with a small network and a fixed number of epochs; `speed` ten epochs of the default critic on
1,000,000 pairs of 512 + 512, for a GPU. Each fit runs in a process of its own, whose RssAnon a
thread samples. A small fit goes before it, so that importing and compiling are in neither. The
files, at most 2.6 GB at a time, go to --folder and are removed. `figure` draws what `scaling`
wrote:

    python benchmarks/large_fit.py figure --output benchmarks/results/large_fit_scaling.json \\
        --figure docs/figures/large_fit_scaling.png
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import report

WRITTEN, FACTORS, NOISE = 50_000, 20, 1.5
SAMPLED_S = 0.02
WARMING = 2_000
ROW_GROUP = 20_000


def views(rows: int, dim: int, seed: int) -> NDArray[np.float16]:
    """(rows, 2 dim): two noisy views of 20 shared factors; the maps are the same for any seed."""
    maps = np.random.default_rng(12345)
    random = np.random.default_rng([seed, rows])
    factors = random.normal(size=(rows, FACTORS)).astype(np.float32)
    sides = []
    for _ in range(2):
        first, second = (
            maps.normal(size=shape).astype(np.float32) / FACTORS**0.5
            for shape in ((FACTORS, 2 * FACTORS), (2 * FACTORS, dim))
        )
        clean = np.tanh(factors @ first) @ second
        noise = random.standard_normal((rows, dim), dtype=np.float32)
        sides.append((clean + NOISE * noise).astype(np.float16))
    return np.concatenate(sides, 1)


def write(folder: Path, rows: int, dim: int, kind: str) -> None:
    """x and y in the folder, as .npy files or as folders of Parquet shards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    maps: list[Any] = []
    for name in "xy":
        if kind == "npy":
            shape = (rows, dim)
            path = folder / f"{name}.npy"
            maps.append(np.lib.format.open_memmap(path, "w+", np.float16, shape))
        else:
            (folder / name).mkdir()
    for number, first in enumerate(range(0, rows, WRITTEN)):
        both = views(min(WRITTEN, rows - first), dim, seed=number)
        for side, name in enumerate("xy"):
            part = both[:, side * dim : (side + 1) * dim]
            if kind == "npy":
                maps[side][first : first + len(part)] = part
            else:
                _write_shard(folder / name / f"part-{number}.parquet", part)


def _write_shard(path: Path, rows: NDArray[np.float16]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
    pq.write_table(
        pa.table({"embedding": column}), path, row_group_size=ROW_GROUP, use_dictionary=False
    )


class AnonymousMemory:
    """The peak of RssAnon of this process while it is entered, in GiB."""

    def __enter__(self) -> AnonymousMemory:
        self.peak = self.before = anonymous_gib()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLED_S):
            self.peak = max(self.peak, anonymous_gib())


def anonymous_gib() -> float:
    """RssAnon now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**20


def fit_here(folder: Path, options: dict[str, Any], rows: int | None) -> dict[str, Any]:
    """Fit what the folder holds, or the first rows of it, in this process."""
    from pointdep import PointwiseDependency, open_rows

    warnings.simplefilter("ignore")
    if (folder / "x.npy").exists():
        x, y = (np.load(folder / f"{name}.npy", mmap_mode="r")[:rows] for name in "xy")
    else:
        x, y = (open_rows(folder / name) for name in "xy")
    few = slice(0, WARMING)  # so that what is imported at the first fit is not timed
    PointwiseDependency(random_state=0, **options).fit(np.asarray(x[few]), np.asarray(y[few]))
    with AnonymousMemory() as memory:
        started, worked = time.perf_counter(), time.process_time()
        model = PointwiseDependency(random_state=0, stream=True, **options).fit(x, y)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    found = model.mutual_information()
    return {
        "rows": len(x),
        "columns": [x.shape[1], y.shape[1]],
        "options": options,
        "epochs": len(model.history_),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rss_anon_before_gib": memory.before,
        "rss_anon_peak_gib": memory.peak,
        "nats": found.nats,
        "ci": list(found.ci),
        "held_out": [entry["stop"] for entry in model.history_][-1],
        "fitted_on": str(model.model_.constant.device),
    }


def fit_apart(folder: Path, rows: int | None = None, **options: Any) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "one", "--folder", str(folder)]
    command += ["--fit", json.dumps(options), *([] if rows is None else ["--rows", str(rows)])]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    print(json.dumps(found), file=sys.stderr)
    return found


def memory(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Anonymous memory of fits that could not hold their rows."""
    found = {}
    plans = {
        "npy_512": (args.wide_rows, 512, "npy", 5),
        "parquet_512": (args.wide_rows, 512, "parquet", 2),
        "npy_64": (args.long_rows, 64, "npy", 2),
    }
    for name, (rows, dim, kind, folds) in plans.items():
        if args.only and name not in args.only.split(","):
            continue
        write(folder, rows, dim, kind)
        found[name] = fit_apart(folder, folds=folds, max_epochs=1, patience=1)
        shutil.rmtree(folder)
    return found


def scaling(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Time and memory against rows, and the slope of their logarithms."""
    options: dict[str, Any] = {"hidden": [32], "embedding_dim": 16, "folds": 2}
    options |= {"max_epochs": args.epochs, "patience": args.epochs}
    sizes = [int(float(text)) for text in args.sizes.split(",")]
    write(folder, max(sizes), 64, "npy")
    fits = []
    for rows in sizes:
        fits.append(fit_apart(folder, rows, **options))
    shutil.rmtree(folder)
    sizes_found = [fit["rows"] for fit in fits]
    found: dict[str, Any] = {"fits": fits}
    for clock in ("seconds", "cpu_seconds"):  # beside other work only the second is of the fit
        times = [fit[clock] for fit in fits]
        per_row, fixed = np.polyfit(sizes_found, times, 1, w=1 / np.array(times))
        line = fixed + per_row * np.array(sizes_found)
        found[clock] = {
            "log_log_slope": float(np.polyfit(np.log(sizes_found), np.log(times), 1)[0]),
            "per_row": float(per_row),
            "at_no_rows": float(fixed),
            "largest_error_of_the_line": float(np.abs(line / times - 1).max()),
        }
    return found


def speed(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Ten epochs of the default critic, five folds."""
    write(folder, args.wide_rows, 512, "npy")
    found = fit_apart(folder, max_epochs=10, patience=10)
    shutil.rmtree(folder)
    return found


def draw(found: dict[str, Any], path: Path) -> None:
    """Time and anonymous memory against rows, with the line a + b n, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = np.array([fit["rows"] for fit in found["fits"]])
    line = found["cpu_seconds"]
    fine = np.geomspace(rows.min(), rows.max(), 100)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    seconds = [fit["cpu_seconds"] for fit in found["fits"]]
    left.loglog(rows, seconds, "o", color="#0072b2", label="measured")
    left.loglog(
        fine,
        line["at_no_rows"] + line["per_row"] * fine,
        color="#d55e00",
        label=f"{line['at_no_rows']:.1f} s + {1e6 * line['per_row']:.0f} s for 10$^6$ rows",
    )
    left.set_title(f"slope of the logarithms {line['log_log_slope']:.2f}", fontsize=10)
    left.set(xlabel="rows", ylabel="processor seconds of a fit")
    left.legend(frameon=False)
    right.semilogx(rows, [fit["rss_anon_peak_gib"] for fit in found["fits"]], "o-", color="#009e73")
    right.set(xlabel="rows", ylabel="peak anonymous memory, GiB", ylim=(0, None))
    right.set_title("the files would be up to 2.4 GiB", fontsize=10)
    for axis in (left, right):
        axis.grid(alpha=0.2)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("memory", "scaling", "speed", "figure", "one"))
    parser.add_argument("--folder", type=Path, default=Path("large_fit_files"))
    parser.add_argument("--rows", type=int, help="of `one`: the first so many")
    parser.add_argument("--wide-rows", type=int, default=1_000_000)
    parser.add_argument("--long-rows", type=int, default=10_000_000)
    parser.add_argument("--sizes", default="1e5,3e5,1e6,3e6,1e7")
    parser.add_argument("--epochs", type=int, default=3, help="of `scaling`")
    parser.add_argument("--only", help="fits of `memory`, comma separated")
    parser.add_argument("--fit", default="{}", help="options of the fit, as JSON")
    parser.add_argument("--output")
    parser.add_argument("--figure", type=Path, help="of `figure`: the picture")
    args = parser.parse_args()
    if args.what == "one":
        print(json.dumps(fit_here(args.folder, json.loads(args.fit), args.rows)))
        return
    if args.what == "figure":
        draw(json.loads(Path(args.output).read_text("utf-8")), args.figure)
        return
    result = {"memory": memory, "scaling": scaling, "speed": speed}[args.what](args.folder, args)
    report(f"large_fit_{args.what}", result, args.output)


if __name__ == "__main__":
    main()
