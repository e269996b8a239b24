"""One row lost in a paired text data set: is the place found, and nothing where nothing is wrong?

    python benchmarks/out_of_step.py --multi30k FOLDER --output benchmarks/results/out_of_step.json

Multi30k captions in two languages (FOLDER holds train.en.gz and train.de.gz, a caption on each
line), each side TF-IDF and 128 directions of its singular value decomposition; 10,000 pairs drawn
at random. A row of the second language is lost at a random place, 5 to 95 % of the way, so that
from there on each y belongs to the x after its own. Then the same pairs as they are, in another
order, with 3 % of them mismatched, and with stretches that are reversed or resorted. What is run
is what `audit` runs on the columns of its rows, without the fit that follows.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Array, plant
from report import report

from pointdep.auditing.out_of_step import Stretch, find_by_columns

ROWS, WIDTH, WITHIN = 10_000, 128, 5
LONG = 500  # rows that are reversed or resorted


def captions(folder: Path, language: str) -> Array:
    """(n, 128) of the captions of one language."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    with gzip.open(folder / f"train.{language}.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(lines)
    found: Array = TruncatedSVD(WIDTH, random_state=0).fit_transform(words).astype(np.float32)
    return found


def look(x: Array, y: Array) -> tuple[list[Stretch], float]:
    """The stretches that are found, and the seconds it took."""
    start = time.process_time()
    found = find_by_columns(torch.from_numpy(x), torch.from_numpy(y))[0]
    return found, time.process_time() - start


def one(x: Array, y: Array, seed: int, rows: int, *, all_kinds: bool) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    chosen = random.choice(len(x), rows, replace=False)
    x, y = x[chosen], y[chosen]
    lost = int(random.uniform(0.05, 0.95) * rows)
    found, seconds = look(x[:-1], np.delete(y, lost, 0))
    right = len(found) == 1 and (found[0].kind, found[0].shift) == ("shifted", -1)
    off = abs(found[0].first - lost) if right else None
    right = right and abs(found[0].first - lost) <= WITHIN and found[0].last >= rows - 2 - WITHIN
    told = {"found": right, "off": off, "seconds": seconds, "clean": len(look(x, y)[0])}
    if not all_kinds:
        return told
    order = random.permutation(rows)
    told["other_order"] = len(look(x[order], y[order])[0])
    told["mismatched"] = len(look(x, plant(y, 0.03, seed)[0])[0])
    at = int(random.integers(0, rows - LONG))
    for name in ("reversed", "resorted"):
        changed, part = y.copy(), y[at : at + LONG]
        changed[at : at + LONG] = part[::-1] if name == "reversed" else random.permutation(part)
        stretches = look(x, changed)[0]
        told[name] = [stretch.kind for stretch in stretches] == [name] and (
            abs(stretches[0].first - at) + abs(stretches[0].last - at - LONG + 1) <= 2 * WITHIN
        )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--multi30k", type=Path, required=True)
    parser.add_argument("--languages", default="en,de")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument(
        "--lost-alone", action="store_true", help="a lost row and clean pairs alone"
    )
    parser.add_argument("--output")
    options = parser.parse_args()
    x, y = (captions(options.multi30k, name) for name in options.languages.split(","))
    seeds = range(options.first_seed, options.first_seed + options.draws)
    kinds = not options.lost_alone
    runs = [one(x, y, seed, options.rows, all_kinds=kinds) for seed in seeds]
    told: dict[str, Any] = {"languages": options.languages, "rows": options.rows}
    told |= {"draws": options.draws, "seconds": float(np.median([r["seconds"] for r in runs]))}
    told["places_found"] = sum(run["found"] for run in runs)
    told["most_rows_off"] = max(
        (run["off"] for run in runs if run["off"] is not None), default=None
    )
    for name in ("clean", "other_order", "mismatched")[: None if kinds else 1]:
        told[f"stretches_where_{name}"] = sum(run[name] for run in runs)
    for name in ("reversed", "resorted") if kinds else ():
        told[f"{name}_found"] = sum(run[name] for run in runs)
    report("out_of_step", told, options.output)


if __name__ == "__main__":
    main()
