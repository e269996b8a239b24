"""Retrieval across modalities: words by sound and by text, and halves of MNIST digits.

    python benchmarks/retrieval.py --words words.npz --mnist mnist/ \
        --output benchmarks/results/retrieval.json

Words: 16,000 to fit and 4,000 to ask, audio to text and back, with homophones (words of exactly the
same sound) and without. `pc` and `drf` have the paper's separable critic. MNIST: the 60,000
training images to fit, the 10,000 test images to ask.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from datasets import halves, mnist, words
from report import report

from pointdep import PointwiseDependency

PAPERS: dict[str, Any] = {
    "critic": "separable",
    "hidden": (512, 512),
    "embedding_dim": 128,
    "activation": "relu",
    "batch_size": 512,
}


def of_words(path: Path, seed: int) -> dict[str, Any]:
    data = words(path)
    order = np.random.default_rng(seed).permutation(len(data.audio))
    fit, ask = order[:16_000], order[16_000:20_000]
    unlike = ask[~data.homophone[ask]]
    found: dict[str, Any] = {"homophones_asked": len(ask) - len(unlike)}
    for name, settings in (
        ("pc", {**PAPERS, "method": "pc"}),
        ("drf", {**PAPERS, "method": "drf"}),
        ("default", {}),
    ):
        started = time.perf_counter()
        model = PointwiseDependency(random_state=seed, **settings)
        model.fit(data.audio[fit], data.text[fit])
        found[name] = {"fit_s": round(time.perf_counter() - started, 1)}
        for kind, rows in (("all", ask), ("without_homophones", unlike)):
            found[name][kind] = asked(model, data.audio[rows], data.text[rows])
    return found


def of_mnist(folder: Path) -> dict[str, Any]:
    upper, lower = halves(mnist(folder, "train")[0])
    started = time.perf_counter()
    model = PointwiseDependency(random_state=0).fit(upper, lower)
    elapsed = round(time.perf_counter() - started, 1)
    return {"fit_s": elapsed, **asked(model, *halves(mnist(folder, "t10k")[0]))}


def asked(model: PointwiseDependency, x: Any, y: Any) -> dict[str, Any]:
    return {
        f"{queries}_asks": model.retrieval_metrics(x, y, queries=queries).to_dict()
        for queries in ("x", "y")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--output")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    if options.words:
        result["words"] = of_words(options.words, seed=0)
    if options.mnist:
        result["mnist_halves"] = of_mnist(options.mnist)
    report("retrieval", result, options.output)


if __name__ == "__main__":
    main()
