"""Our search against FAISS itself on the same vectors: time and peak memory.

    OMP_NUM_THREADS=2 python benchmarks/faiss_search.py \
        --output benchmarks/results/faiss_search.json

All put 1,000,000 candidates of 128 numbers into a flat index and find the 10 best for each of
10,000 queries: FAISS alone; `ours`, from the same vectors to ranked PMI; and `with_model`, `top_k`
of a model whose score is the inner product of what it is given, which standardises and embeds all
rows first. Each run is a process of its own, which reads its rows from a file; they take turns.
`cpu_seconds`, those of all cores, tell more where other work runs on the machine. Memory is the
largest resident size of the process, libraries and rows included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

DIM, K = 128, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output")
    parser.add_argument("--run", choices=list(RUNS), help="one run, in this process")
    parser.add_argument("--folder", help="where its vectors are")
    arguments = parser.parse_args()
    if arguments.run:
        one_run(arguments.run, Path(arguments.folder))
        return
    from report import report  # not above: it loads torch, which FAISS's own runs do without

    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        for name in ("queries", "candidates"):
            rows = random.standard_normal((getattr(arguments, name), DIM), dtype=np.float32)
            np.save(Path(folder, f"{name}.npy"), rows)
        del rows
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
        answers: dict[str, Any] = {}
        for _ in range(arguments.rounds):
            for name in RUNS:
                runs[name].append(in_a_process(name, folder))
                answers[name] = np.load(Path(folder, f"{name}.npz"))
        theirs = answers.pop("faiss")
        same = min(np.mean(found["numbers"] == theirs["numbers"]) for found in answers.values())
        apart = max(np.abs(found["values"] - theirs["values"]).max() for found in answers.values())
    result: dict[str, Any] = {
        "queries": arguments.queries,
        "candidates": arguments.candidates,
        "dim": DIM,
        "k": K,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0],
        "same_numbers": float(same),
        "largest_difference": float(apart),
        "runs": runs,
    }
    for quantity, target in (("seconds", 1.1), ("cpu_seconds", 1.1), ("peak_mb", 1.3)):
        middle = {
            name: statistics.median(run[quantity] for run in made) for name, made in runs.items()
        }
        for name in answers:
            result[f"{name}_{quantity}_ratio"] = round(middle[name] / middle["faiss"], 3)
        result[f"{quantity}_target"] = target
    report("faiss search", result, arguments.output)


def in_a_process(name: str, folder: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--run", name, "--folder", folder]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def one_run(name: str, folder: Path) -> None:
    queries, candidates = (np.load(folder / f"{side}.npy") for side in ("queries", "candidates"))
    search = RUNS[name]()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    values, numbers = search(queries, candidates)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(folder / f"{name}.npz", values=values, numbers=numbers)
    measured = {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak}
    print(json.dumps({quantity: round(value, 3) for quantity, value in measured.items()}))


def by_faiss() -> Any:
    import faiss

    def search(queries: Any, candidates: Any) -> Any:
        index = faiss.IndexFlatIP(DIM)
        index.add(candidates)
        return index.search(queries, K)

    return search


def by_vectors() -> Any:
    import faiss  # noqa: F401, so that no run is timed with loading it
    import torch

    from pointdep.retrieval.pairwise import MARGIN, empty_vectors, nearest

    def search(queries: Any, candidates: Any) -> Any:
        rows = torch.from_numpy(candidates)
        made = empty_vectors("flat", len(rows), rows[:1], torch.device("cpu"))
        for part in torch.split(rows, 1 << 13):
            made.add(part)
        found = [
            nearest(made, part, torch.zeros(len(part)), K, K + MARGIN)
            for part in torch.split(torch.from_numpy(queries), 1 << 12)
        ]
        return tuple(torch.cat(side).numpy() for side in zip(*found, strict=True))

    return search


def by_model() -> Any:
    import faiss  # noqa: F401
    import torch

    from pointdep.core.critics import InnerProductCritic
    from pointdep.core.methods import METHODS
    from pointdep.core.ratio import RatioModel
    from pointdep.core.transforms import Standardizer
    from pointdep.retrieval.search import top_k

    critic = InnerProductCritic(1, DIM).requires_grad_(False)
    critic.scale.fill_(1.0)
    model = RatioModel(critic, Standardizer(1, DIM), Standardizer(1, DIM), [METHODS["pc"]]).eval()

    def search(queries: Any, candidates: Any) -> Any:
        found = top_k(model, torch.from_numpy(queries), torch.from_numpy(candidates), K)
        return found.pmi, found.indices

    return search


RUNS = {"faiss": by_faiss, "ours": by_vectors, "with_model": by_model}

if __name__ == "__main__":
    main()
