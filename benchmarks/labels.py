"""Wrong labels: MNIST with 5 % of its labels flipped, beside cleanlab.

    pip install cleanlab
    python benchmarks/labels.py --mnist mnist/ --output benchmarks/results/labels.json
    python benchmarks/labels.py --features F.npy --labels cifar10n.npz --regression \\
        --output benchmarks/results/labels_people.json

cleanlab is given out-of-fold probabilities, by the same five folds, of a logistic regression and of
a network with as many layers and units as a tower of our default critic. Precision is at as many
rows as were flipped, by each library's own order.

The second command is of labels that people gave: features, (n, columns), of the first n rows of
CIFAR-10-N, whose arrays are `clean_label` and the labels by people. With `--regression` the
probabilities are those of a logistic regression, which takes seconds, and not of an audit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from datasets import mnist
from numpy.typing import NDArray
from report import report
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from pointdep import audit

FLIPPED, CLASSES, FOLDS = 0.05, 10, 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def flip(labels: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels of which some are another class, each other class alike; and which they are."""
    random = np.random.default_rng(seed)
    rows = random.permutation(len(labels))[: round(FLIPPED * len(labels))]
    given, flipped = labels.copy(), np.zeros(len(labels), dtype=bool)
    given[rows] = (labels[rows] + random.integers(1, CLASSES, len(rows))) % CLASSES
    flipped[rows] = True
    return given, flipped


def logistic_regression(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """Multinomial, with an L2 penalty chosen as scikit-learn's default (C = 1)."""
    del seed
    model = nn.Linear(x.shape[1], CLASSES, device=x.device)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(model(x), y) + 0.5 * model.weight.square().sum() / len(x)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return model


def network(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    """Two hidden layers of 512, stopped early by 15 % of the rows."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    order = torch.randperm(len(x), generator=generator).to(x.device)
    held, rows = order[: int(0.15 * len(x))], order[int(0.15 * len(x)) :]
    model = nn.Sequential(
        nn.Linear(x.shape[1], 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    ).to(x.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    best, kept, bad = torch.inf, {k: v.clone() for k, v in model.state_dict().items()}, 0
    while bad < 8:
        shuffled = rows[torch.randperm(len(rows), generator=generator).to(x.device)]
        for batch in torch.split(shuffled, 256):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            value = F.cross_entropy(model(x[held]), y[held]).item()
        bad = 0 if value < best else bad + 1
        if not bad:
            best, kept = value, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(kept)
    return model


def probabilities(
    fit: Callable[[Tensor, Tensor, int], nn.Module], x: NDArray[Any], y: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(n, classes), each row by a model that did not see it."""
    found = np.empty((len(x), CLASSES))
    rows, labels = torch.from_numpy(x).float().div(255).to(DEVICE), torch.from_numpy(y).to(DEVICE)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for number, (train, test) in enumerate(folds.split(x, y)):
        model = fit(rows[torch.from_numpy(train)], labels[torch.from_numpy(train)], number)
        with torch.no_grad():
            found[test] = model(rows[torch.from_numpy(test)]).softmax(1).cpu().numpy()
    return found


def cleanlab_order(labels: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows, most suspect first."""
    from cleanlab.rank import get_label_quality_scores

    return np.argsort(get_label_quality_scores(labels, found), kind="stable")


def found_by(wrong: NDArray[np.bool_], suspect: NDArray[np.bool_]) -> dict[str, Any]:
    """Precision and recall of suspects."""
    precision = float(wrong[suspect].mean()) if suspect.any() else None
    return {
        "suspects": int(suspect.sum()),
        "precision": precision,
        "recall": float(suspect[wrong].mean()),
    }


def of_people(options: argparse.Namespace) -> dict[str, Any]:
    """How many of the labels that people got wrong are found, at several rates."""
    from pointdep.auditing.labels import decide_labels

    x = np.load(options.features).astype(np.float32)[: options.rows]
    x = (x - x.mean(0)) / (x.std(0) + 1e-6)
    stored = np.load(options.labels)
    right, result = stored["clean_label"][: len(x)], {"rows": len(x), "columns": x.shape[1]}
    for kind in ("aggre_label", "random_label1", "worse_label"):
        given = stored[kind][: len(x)].astype(np.int64)
        wrong = given != right
        if options.regression:
            # `probabilities` divides by 255, as of pixels.
            known = probabilities(logistic_regression, 255.0 * x, given)
            shares = np.bincount(given, minlength=CLASSES) / len(given)
            log_ratio = np.log(np.maximum(known, 1e-30)) - np.log(shares)
            pmi = log_ratio[np.arange(len(given)), given]
            decision = decide_labels(log_ratio, given, pmi, None, np.arange(CLASSES))
            q_value, share = decision.q_value, decision.contamination.share
        else:
            found = audit(x, given, random_state=0)
            q_value = found.table["q_value"].to_numpy()
            share, pmi = found.contamination.share, found.table["pmi"].to_numpy()
        above = np.cumsum(wrong[np.argsort(pmi, kind="stable")]) / np.arange(1, len(wrong) + 1)
        possible = np.flatnonzero(above >= 0.9)
        count = int(possible.max()) + 1 if len(possible) else 0
        result[kind] = {
            "wrong": float(wrong.mean()),
            "estimated": share,
            "possible_by_pmi_at_0.9": count * float(above[count - 1]) / int(wrong.sum())
            if count
            else 0.0,
            "at": {str(fdr): found_by(wrong, q_value <= fdr) for fdr in (0.05, 0.1, 0.2, 0.3)},
        }
        if options.regression:
            from cleanlab.filter import find_label_issues

            issues = find_label_issues(given, known, filter_by="both")
            result[kind]["cleanlab_both"] = found_by(wrong, issues)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--regression", action="store_true")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--output")
    options = parser.parse_args()
    if options.features:
        report("labels", of_people(options), options.output)
        return
    images, true = mnist(options.mnist, "train")
    x, true = images[: options.rows].reshape(options.rows, -1), true[: options.rows]
    given, flipped = flip(true, seed=0)
    result: dict[str, Any] = {"rows": len(x), "flipped": int(flipped.sum())}

    def precision(order: NDArray[np.int64]) -> float:
        return float(flipped[order[: flipped.sum()]].mean())

    started = time.perf_counter()
    found = audit(x, given, random_state=0)
    table = found.table
    suspect = table["suspect"].to_numpy()
    known = table["better_label"].notna().to_numpy() & flipped
    result["audit"] = {
        "precision_at_flipped": precision(table["rank"].to_numpy().argsort()),
        "suspects": int(suspect.sum()),
        "false_discovery_proportion": float((~flipped[suspect]).mean()),
        "recall": float(suspect[flipped].mean()),
        "right_label_proposed": float((table["better_label"][known] == true[known]).mean()),
        "contamination": found.contamination.share,
        "seconds": time.perf_counter() - started,
    }
    for name, fit in (("logistic_regression", logistic_regression), ("network", network)):
        started = time.perf_counter()
        order = cleanlab_order(given, probabilities(fit, x, given))
        result[f"cleanlab_{name}"] = {
            "precision_at_flipped": precision(order),
            "seconds": time.perf_counter() - started,
        }
    report("labels", result, options.output)


if __name__ == "__main__":
    main()
