"""Planted mismatches: does the audit find them, and does it keep to its false-discovery rate?

    python benchmarks/planted.py --words words.npz --mnist mnist/ \
        --output benchmarks/results/planted.json

2 % of the rows have their y permuted among themselves, without a fixed point; the audit sees the
contaminated pairs only. Digits of scikit-learn, 12,000 halves of MNIST digits, and words.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import halves, mnist, plant, words
from report import report
from sklearn.metrics import roc_auc_score

from pointdep import audit
from pointdep.data.images import digit_halves

SHARE, FDR = 0.02, 0.1


def pairs(name: str, words_file: Path | None, mnist_folder: Path | None) -> tuple[Any, Any]:
    if name == "digits":
        clean = digit_halves(swapped=0.0)
        return clean.x, clean.y
    if name == "mnist_halves":
        assert mnist_folder is not None
        return halves(mnist(mnist_folder, "train")[0][:12_000])
    assert words_file is not None
    data = words(words_file)
    return data.audio, data.text


def one(seed: int, *, name: str, words_file: Path | None, mnist_folder: Path | None) -> Any:
    warnings.simplefilter("ignore")
    x, y = pairs(name, words_file, mnist_folder)
    y, planted = plant(y, SHARE, seed)
    started = time.perf_counter()
    table = audit(x, y, fdr=FDR, random_state=seed, progress=False).table
    elapsed = time.perf_counter() - started
    suspect = table["suspect"].to_numpy()
    worst = table["rank"].to_numpy() <= planted.sum()
    return {
        "auroc": float(roc_auc_score(planted, -table["pmi"])),
        "false_discovery_proportion": float((~planted[suspect]).mean()) if suspect.any() else 0.0,
        "recall": float(suspect[planted].mean()),
        "precision_at_planted": float(planted[worst].mean()),
        "suspects": int(suspect.sum()),
        "seconds": elapsed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--plantings", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="audits run at a time")
    parser.add_argument("--only", help="digits, mnist_halves or words")
    parser.add_argument("--output")
    options = parser.parse_args()
    given = {"digits": True, "mnist_halves": options.mnist, "words": options.words}
    result: dict[str, Any] = {"share": SHARE, "fdr": FDR, "plantings": options.plantings}
    spawn = multiprocessing.get_context("spawn")  # a GPU cannot be shared with a fork
    for name in (name for name, there in given.items() if there):
        if options.only not in (None, name):
            continue
        task = partial(one, name=name, words_file=options.words, mnist_folder=options.mnist)
        with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
            runs = list(pool.map(task, range(options.plantings)))
        result[name] = {
            key: {
                "mean": float(np.mean([run[key] for run in runs])),
                "least": float(min(run[key] for run in runs)),
                "most": float(max(run[key] for run in runs)),
            }
            for key in runs[0]
        }
    report("planted", result, options.output)


if __name__ == "__main__":
    main()
