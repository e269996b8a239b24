"""What a process of `cost_model.py` does: jobs, with the time of each of their parts.

    python benchmarks/cost_measure.py cpu < jobs.jsonl

It imports everything, says "ready", reads jobs as lines of JSON and prints what it measured, a line
each.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from large_fit import AnonymousMemory, anonymous_gib

FIT = "rest of the fit"
PARTS = {
    "pointdep.estimators.pointwise.PointwiseDependency.fit": FIT,
    "pointdep.estimators.pointwise.PointwiseDependency._read": "read",
    "pointdep.estimators.streaming.survey": "read",
    "pointdep.estimators.assembly.prepare": "rank maps",
    "pointdep.estimators.streaming.Stream.prepare": "rank maps",
    "pointdep.estimators.assembly.fit_closed_form": "closed form",
    "pointdep.estimators.streaming.canonical_of_replicas": "closed form",
    "pointdep.fitting.active_replicas.Crew.train_epoch": "training",
    "pointdep.fitting.active_replicas.Crew.evaluate": "stopping rows",
    "pointdep.estimators.pointwise.out_of_fold": "out of fold",
    "pointdep.estimators.streaming.streamed_out_of_fold": "out of fold",
    "pointdep.auditing.evidence.HeldRows.mismatched": "mismatched pairs",
    "pointdep.auditing.evidence.StoredRows.mismatched": "mismatched pairs",
    "pointdep.auditing.evidence.HeldRows.stderr": "standard errors",
    "pointdep.auditing.evidence.StoredRows.stderr": "standard errors",
    "pointdep.auditing.evidence.StoredRows.searched": "better partners",
    "pointdep.auditing.audit.find_partners": "better partners",
    "pointdep.auditing.evidence.HeldRows.duplicates": "near copies",
    "pointdep.auditing.evidence.StoredRows.duplicates": "equal copies",
    "pointdep.auditing.audit.decide": "deciding",
    "pointdep.estimators.pointwise.PointwiseDependency.check": "check",
    "pointdep.estimators.pointwise.PairAnswers._encode": "read",
    "pointdep.estimators.pointwise.score_replicas": "networks",
    "pointdep.core.ratio.RatioModel.outside": "outside",
    "pointdep.estimators.pointwise.PointwiseDependency._encode_side": "read",
    "pointdep.retrieval.search.build_index": "index",
    "pointdep.retrieval.search._Search.by_inner_product": "search",
    "pointdep.retrieval.search._Search.by_shortlist": "search",
    "pointdep.retrieval.search.best_of_all": "all pairs",
    "pointdep.retrieval.search._Search.all_pairs": "all pairs",
    "pointdep.retrieval.search._Search.needed_length": "length of the lists",
    "pointdep.retrieval.search._Search.true_best": "recall",
}


class Clock:
    """Seconds by part; what runs inside a part of another name is that one's, not the outer's.

    On one core they are seconds of the processor, which other work beside it does not lengthen.
    """

    def __init__(self, device: str) -> None:
        self.on_gpu = device == "cuda"
        self.on_one_core = not self.on_gpu and torch.get_num_threads() == 1
        self.seconds: dict[str, float] = defaultdict(float)
        self._names, self._since = ["rest"], 0.0
        self.memory: AnonymousMemory | None = None
        self.fit_peak_gib: float | None = None
        self.fit_gpu_peak_gib: float | None = None

    def start(self) -> None:
        """From now on."""
        self.seconds.clear()
        self._since = self._now()

    def stop(self) -> dict[str, float]:
        """The seconds of each part since the start."""
        self._charge()
        return dict(self.seconds)

    def watch(self, path: str, part: str) -> None:
        """Have the seconds of a function or method counted as this part's."""
        owner, name = _owner(path)
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            # Of a part within another, as of an audit's search for partners, the outer is meant.
            self._names.append(part if self._names[-1] in ("rest", FIT) else self._names[-1])
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                if self._names.pop() == FIT and self.memory is not None:
                    self.fit_peak_gib = self.memory.peak
                    self.fit_gpu_peak_gib = gpu_peak_gib(self.on_gpu)

        setattr(owner, name, watched)

    def _charge(self) -> None:
        now = self._now()
        self.seconds[self._names[-1]] += now - self._since
        self._since = now

    def _now(self) -> float:
        if self.on_one_core:
            return time.process_time()
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()


def gpu_peak_gib(on_gpu: bool) -> float | None:
    """The most that was allocated on the GPU since the job began."""
    return torch.cuda.max_memory_allocated() / 2.0**30 if on_gpu else None


def _owner(path: str) -> tuple[Any, str]:
    words = path.split(".")
    lowest = next(k for k, word in enumerate(words) if word[0].isupper() or k == len(words) - 1)
    owner: Any = importlib.import_module(".".join(words[:lowest]))
    for word in words[lowest:-1]:
        owner = getattr(owner, word)
    return owner, words[-1]


def estimator(job: dict[str, Any]) -> Any:
    """The default one, with the options of the job and a fixed number of epochs."""
    from pointdep import PointwiseDependency

    options = {"max_epochs": job["epochs"], "patience": job["epochs"]}
    options |= {name: job[name] for name in ("hidden", "embedding_dim", "stream") if name in job}
    return PointwiseDependency(
        folds=job["folds"], device=job["device"], random_state=0, progress=False, **options
    )


def fit(job: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """A fit alone; also saved, where the job says where."""
    fitted = estimator(job).fit(x, y)
    if "save" in job:
        fitted.save(job["save"])
    return {}


def audit(job: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    from pointdep import audit
    from pointdep.fitting import streamed_rows

    streamed_rows._SHARE = 0.25 if job.get("keeping", True) else 0.0
    found = audit(x, y, model=estimator(job))
    return {"suspects": int(found.table["suspect"].sum()), "answered": found.answered}


def score(job: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    from pointdep import PointwiseDependency
    from pointdep.estimators.pointwise import pair_columns

    fitted = PointwiseDependency.load(job["model"], device=job["device"])
    pair_columns(fitted, x, y)
    return {}


def retrieve(job: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    from pointdep import PointwiseDependency

    fitted = PointwiseDependency.load(job["model"], device=job["device"])
    fitted.progress = False
    return {"searched": fitted.retrieve(x[: job["queries"]], y).searched}


DO = {"fit": fit, "audit": audit, "score": score, "retrieve": retrieve}


def measured(job: dict[str, Any], clock: Clock, empty_gib: float) -> dict[str, Any]:
    """Do it, and say what it took; what earlier jobs left in memory, above `empty_gib`, is not."""
    sides = (np.load(Path(job["files"]) / f"{name}.npy", mmap_mode="r") for name in "xy")
    x, y = (side[: job["rows"]] for side in sides)
    on_gpu = job["device"] == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with AnonymousMemory() as memory:
        started, worked = time.perf_counter(), time.process_time()
        clock.memory, clock.fit_peak_gib = memory, None
        clock.start()
        found = DO[job["what"]](job, x, y)
        parts = clock.stop()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    left = max(0.0, memory.before - empty_gib)
    fit_peak = clock.fit_peak_gib
    return {
        **{name: value for name, value in job.items() if name not in ("files", "model", "save")},
        **found,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "parts": parts,
        "rss_anon_before_gib": memory.before,
        "rss_anon_peak_gib": memory.peak - left,
        "fit_rss_anon_peak_gib": None if fit_peak is None else fit_peak - left,
        "gpu_peak_gib": gpu_peak_gib(on_gpu),
        "fit_gpu_peak_gib": clock.fit_gpu_peak_gib,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    device = sys.argv[1]
    clock = Clock(device)
    for path, part in PARTS.items():
        clock.watch(path, part)
    # What a first call costs once: the device, its libraries, and those of the processor.
    for kind in {device, "cpu"}:
        some = torch.ones(64, 64, device=kind)
        float((some @ some).sum())
    print("ready", flush=True)
    empty_gib = anonymous_gib()
    for line in sys.stdin:
        try:
            found = measured(json.loads(line), clock, empty_gib)
        except Exception as error:  # the other jobs can still be done
            found = {"error": repr(error)}
        print(json.dumps(found), flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    main()
