"""Planted mismatches: does the audit find them, and does it keep to its false-discovery rate?

    python benchmarks/planted.py --words words.npz --mnist mnist/ --multi30k multi30k/ \
        --output benchmarks/results/planted.json

2 % of the rows have their y permuted among themselves, without a fixed point; the audit sees the
contaminated pairs only. Digits of scikit-learn, 12,000 halves of MNIST digits, and words; 3 % of
the first 8,000 English and German captions of Multi30k (--language fr or cs: other ones), by TF-IDF
and 128 singular vectors per side. The constants of the decision were chosen on Multi30k from row
10,000 on, MNIST from row 30,000 on, plantings 100 to 102 of the digits, and Gaussian pairs.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import halves, mnist, plant, words
from numpy.typing import NDArray
from report import report
from sklearn.metrics import roc_auc_score

from pointdep import audit
from pointdep.data.images import digit_halves

SHARE, FDR = 0.02, 0.1
SHARES = {"multi30k": 0.03}
RATES = (0.05, 0.1, 0.2, 0.3)
CAPTIONS, COLUMNS = 8_000, 128


def captions(folder: Path, language: str) -> NDArray[np.float32]:
    """(8,000, 128): TF-IDF of the first captions, and the singular vectors of it."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    with gzip.open(folder / f"train.{language}.gz", "rt", encoding="utf-8") as file:
        lines = list(itertools.islice(file, CAPTIONS))
    words = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(lines)
    found: NDArray[np.float32] = TruncatedSVD(COLUMNS, random_state=0).fit_transform(words)
    return found.astype(np.float32)


def pairs(
    name: str,
    words_file: Path | None,
    mnist_folder: Path | None,
    multi30k: tuple[Path | None, str] = (None, "de"),
) -> tuple[Any, Any]:
    if name == "multi30k":
        folder, language = multi30k
        assert folder is not None
        return captions(folder, "en"), captions(folder, language)
    if name == "digits":
        clean = digit_halves(swapped=0.0)
        return clean.x, clean.y
    if name == "mnist_halves":
        assert mnist_folder is not None
        return halves(mnist(mnist_folder, "train")[0][:12_000])
    assert words_file is not None
    data = words(words_file)
    return data.audio, data.text


def one(seed: int, *, name: str, **files: Any) -> Any:
    warnings.simplefilter("ignore")
    x, y = pairs(name, **files)
    y, planted = plant(y, SHARES.get(name, SHARE), seed)
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
        **at_rates(table["q_value"].to_numpy(), planted),
        "seconds": elapsed,
    }


def at_rates(q_value: NDArray[np.float64], planted: NDArray[np.bool_]) -> dict[str, float]:
    """Realised false-discovery share and recall at each asked rate."""
    found = {}
    for rate in RATES:
        suspect = q_value <= rate
        found[f"realised_at_{rate}"] = float((~planted[suspect]).mean()) if suspect.any() else 0.0
        found[f"recall_at_{rate}"] = float(suspect[planted].mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--multi30k", type=Path)
    parser.add_argument("--language", default="de", help="of the second side: de, fr or cs")
    parser.add_argument("--plantings", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="audits run at a time")
    parser.add_argument("--only", help="digits, mnist_halves, words or multi30k")
    parser.add_argument("--output")
    options = parser.parse_args()
    given = {"digits": True, "mnist_halves": options.mnist, "words": options.words}
    given["multi30k"] = options.multi30k
    files = {"words_file": options.words, "mnist_folder": options.mnist}
    files["multi30k"] = options.multi30k, options.language
    result: dict[str, Any] = {"share": SHARE, "shares": SHARES, "fdr": FDR}
    result["plantings"] = options.plantings
    spawn = multiprocessing.get_context("spawn")  # a GPU cannot be shared with a fork
    for name in (name for name, there in given.items() if there):
        if options.only not in (None, name):
            continue
        task = partial(one, name=name, **files)
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
