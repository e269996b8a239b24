"""A million pairs scored by two Ray workers, one of which is killed midway, against one process.

    python benchmarks/ray_score.py --output benchmarks/results/ray_score.json

64 + 64 dimensions of float16 in 40 Parquet shards. The command is run as a user runs it; when half
of the output is there, one of its two workers gets SIGKILL.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from report import report

from pointdep import PointwiseDependency

DIM, NOISE = 64, 2.0


def pairs(rows: int, seed: int) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, DIM), np.float32)
    y = x + NOISE * random.standard_normal((rows, DIM), np.float32)
    return x.astype(np.float16), y.astype(np.float16)


def write_data(place: Path, rows: int, shards: int) -> None:
    for number in range(shards):
        for name, side in zip("xy", pairs(rows // shards, seed=1 + number), strict=True):
            column = pa.FixedSizeListArray.from_arrays(pa.array(side.reshape(-1)), DIM)
            (place / name).mkdir(exist_ok=True)
            pq.write_table(pa.table({"e": column}), place / name / f"part-{number:03d}.parquet")


def command(output: str, *options: str) -> list[str]:
    score = [sys.executable, "-m", "pointdep", "score", "model", "x", "y", "-o", output]
    return [*score, "--quiet", *options]


def run_and_kill(place: Path, shards: int) -> dict[str, Any]:
    """The run by Ray, and when which of its workers was killed."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command("ray", "--engine", "ray", "--workers", "2"),
        cwd=place,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and len(list((place / "ray").glob("*.parquet"))) < shards // 2:
        time.sleep(0.02)
    there = list(workers_of(process.pid))
    done = len(list((place / "ray").glob("*.parquet")))
    os.kill(there[0], signal.SIGKILL)
    killed = time.perf_counter() - started
    code = process.wait()
    return {
        "exit_code": code,
        "seconds": time.perf_counter() - started,
        "workers": len(there),
        "killed_after_seconds": killed,
        "killed_after_shards": done,
    }


def workers_of(owner: int) -> Iterator[int]:
    """The scoring processes below a process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        if b"MapWorker(MapBatches(_Actor))" in read(entry / "cmdline"):
            process = int(entry.name)
            while process > 1 and process != owner:
                process = int(read(Path(f"/proc/{process}/stat")).rpartition(b")")[2].split()[1])
            if process == owner:
                yield int(entry.name)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def table(folder: Path) -> Any:
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file).replace_schema_metadata() for file in files])


def compare(place: Path, rows: int) -> dict[str, Any]:
    """Every row once, and the same numbers as by one process."""
    by_ray, local = (table(place / name) for name in ("ray", "local"))
    row = by_ray["row"].to_numpy()
    pmi, other = (one["pmi"].to_numpy() for one in (by_ray, local))
    files = {path.name for path in (place / "ray").iterdir()}
    return {
        "rows_out": len(row),
        "every_row_once_in_order": bool((row == np.arange(rows)).all()),
        "same_table_bit_for_bit": bool(by_ray.equals(local)),
        "largest_difference_of_pmi": float(np.abs(pmi - other).max()),
        "files_left_over": sorted(files - {path.name for path in (place / "local").iterdir()}),
        "mean_pmi": float(pmi.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--output")
    options = parser.parse_args()
    # The worker that Ray gives one CPU has one thread; for the same bits so has this engine.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        write_data(place, options.rows, options.shards)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quick = PointwiseDependency(max_epochs=5, random_state=0, progress=False)
            quick.fit(*pairs(10_000, seed=0)).save(place / "model")
        by_ray = run_and_kill(place, options.shards)
        started = time.perf_counter()
        subprocess.run(command("local", "--engine", "local"), cwd=place, check=True)
        local = {"seconds": time.perf_counter() - started}
        started = time.perf_counter()
        subprocess.run(command("ray", "--engine", "local"), cwd=place, check=True)
        again = {"seconds": time.perf_counter() - started}
        result = {
            "rows": options.rows,
            "columns": [DIM, DIM],
            "shards": options.shards,
            "ray": by_ray,
            "local": local,
            "again_with_nothing_missing": again,
            **compare(place, options.rows),
        }
    report("ray_score", result, options.output)


if __name__ == "__main__":
    main()
