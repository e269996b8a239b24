"""What the real code takes on a few synthetic rows: the process behind `pointdep plan`.

    python -m pointdep.workflow.dry_run '{"asked": {"rows": 1000000, ...}, "gpu": false, ...}'

A fit of few rows and one epoch, and a longer fit of the same rows, tell what an epoch takes. A fit
of more rows follows, and both are audited; then scores and searches of few and of more rows. The
last line it prints is the JSON of a `Measured`.
"""

import ctypes
import faulthandler
import gc
import json
import math
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pointdep.auditing.audit import judged
from pointdep.core.methods import get_method
from pointdep.errors import PointdepWarning
from pointdep.estimators import assembly, fit_rows
from pointdep.estimators.pointwise import PointwiseDependency, pair_columns
from pointdep.fitting.batches import TrainingOptions
from pointdep.workflow.plan import LESS_SURE, NARROW, SEARCHED, Measured, Shape

_END_S = 300.0  # on a machine that does other work it may take minutes; then it is given up
_GROWTH, _GROWTH_GPU = 3, 27  # times the rows of the first fit; a GPU has many soon done
_STEPS, _WARM_COLUMNS = 10, 64
_FEW_ROWS, _MORE_ROWS, _FEW_NUMBERS = 500, 2_000, 2**18  # at first, by the numbers in a row
_PAIRS = 20, 2_000  # queries and candidates of which all pairs are scored
_CPU_BATCH = 256  # a larger one is no faster per row on a CPU, and needs more rows

# Beyond these the closed form alone takes minutes: they are measured, and scaled by powers of the
# columns, (fixed, each). Eigenvectors are cubic, most of a network is linear.
_MOST_COLUMNS, _MOST_FOLDS = 512, 5
_POWERS = {"start": (0, 0), "preparation": (3, 1.5), "training": (0, 1), "gib": (0.5, 1)}
_OF_EACH_FOLD = ("preparation", "score", "retrieve", "search", "pair")

# The memory of a few rows is that of the libraries. These are the bytes that each number of larger
# jobs added, each row of a fit and fold (of wide data, of narrow data), and each row of an audit:
# benchmarks/results/cost_model_cpu.json.
_NUMBER_BYTES = {"fit gib": 14, "score gib": 27, "retrieve gib": 27}
_FOLD_BYTES, _FOLD_BYTES_NARROW, _CHECKED_BYTES = 1_700, 110, 18_700
# Factors of time and of memory within which plans were: benchmarks/results/plan.json.
_WITHIN = {"fit": (1.5, 1.5), "score": (1.5, 1.5), "audit": (2.0, 1.5), "retrieve": (2.0, 1.5)}


class DryRun:
    """Measurements for one shape; `points` holds seconds or GiB by name and rows."""

    def __init__(self, asked: Mapping[str, Any], gpu: bool, cores: int, spawned: float) -> None:
        self.asked, self.gpu, self.cores, self.spawned = Shape(**asked), gpu, cores, spawned
        self.columns = max(self.asked.x_dim, self.asked.y_dim)
        self.dims = [min(dim, _MOST_COLUMNS) for dim in (self.asked.x_dim, self.asked.y_dim)]
        self.dry = replace(self.asked, folds=min(max(self.asked.folds, 2), _MOST_FOLDS))
        self.streamed = self.asked.streamed(fit_rows.IN_MEMORY)
        # For one core, seconds of the processor, which other work on the machine does not lengthen.
        self.clock = time.process_time if cores == 1 and not gpu else time.time
        self.points: dict[str, dict[int, float]] = defaultdict(dict)
        self.empty_gib = _anonymous_gib()
        # The layers and batches that the estimator chooses for the rows that were asked about.
        method, here = get_method("pc", None), gpu and torch.cuda.is_available()
        wide = assembly.is_wide(method, self.columns)
        self.hidden = self.asked.hidden or assembly.choose_hidden(
            "auto", "auto", self.asked.rows, wide=self.columns if wide else 0
        )
        settings = assembly.CriticSettings("auto", self.hidden, 64, "auto", "auto", wide)
        limit = {"largest": fit_rows.LARGEST_BATCH} if self.streamed else {}
        trained = max(2, round(self.asked.train_share * self.asked.rows))
        self.facts: dict[str, Any] = {
            "in_memory": fit_rows.IN_MEMORY,
            "batch": assembly.batch_shape(settings, method, trained, "auto", "auto", **limit)[0],
            "least_steps": 1 if self.streamed else TrainingOptions(2, 2).min_steps,
            "gpu": torch.cuda.get_device_name() if here else None,
        }

    def run(self) -> Measured:
        """Measure, and make laws of what was measured."""
        warnings.simplefilter("ignore", PointdepWarning)  # of few rows
        if self.gpu and self.facts["gpu"] is None:
            return Measured("", {}, self.facts, {})
        dims, self.dims = self.dims, [min(dim, _WARM_COLUMNS) for dim in self.dims]
        self._fit("fit", 100, batch=8)  # what a process pays once belongs to its start
        self.dims, self.empty_gib = dims, _anonymous_gib()
        self.points.clear()
        gc.freeze()  # what is there by now stays: collecting goes through the rest alone
        spawned = 0.0 if self.clock is time.process_time else self.spawned
        self.points["start"][0] = self.clock() - spawned
        least = min(max(_FEW_NUMBERS // sum(dims), _FEW_ROWS), _MORE_ROWS)
        self._answer(self._train(least), least)
        doubt = LESS_SURE ** ((self.columns > _MOST_COLUMNS) + (self.asked.folds > _MOST_FOLDS))
        within = {name: (doubt * a, doubt * b) for name, (a, b) in _WITHIN.items()}
        cores = "one core" if self.cores == 1 else f"{self.cores} cores"
        laws = {name: self._law(name) for name in self.points}
        return Measured(self.facts["gpu"] or f"{cores} of this machine", laws, self.facts, within)

    def _train(self, least: int) -> Any:
        """Fits and what an audit adds to them; the last model."""
        dry, points, steps = self.dry, self.points, self.facts["least_steps"]
        batch = self.facts["batch"] if self.gpu else min(self.facts["batch"], _CPU_BATCH)
        rows = max(least, math.ceil(1.1 * batch / dry.train_share))
        many = rows * (_GROWTH_GPU if self.gpu else _GROWTH)
        # Small batches, so that the epoch that is subtracted below is little of the fit.
        few = max(8, int(min(batch, dry.train_share * many / _STEPS)) // 8 * 8)
        visits = {n: replace(dry, rows=n).visits(b, steps) for n, b in ((rows, batch), (many, few))}
        trained = _STEPS * (1 if max(self.dims) > _WARM_COLUMNS else 3)  # they take little
        more = max(1, round(trained * batch * dry.folds / visits[rows]))
        self._fit("fit", rows, batch)
        self._fit("longer fit", rows, batch, epochs=1 + more)
        fitted = self._fit("fit", many, few)
        seen = round(more * visits[rows])
        points["training"][seen] = max(points["longer fit"][rows] - points["fit"][rows], 1e-6)
        for n, count in visits.items():
            epoch_s = points["training"][seen] * count / seen
            points["preparation"][n] = max(0.0, points["fit"][n] - epoch_s)
        return fitted

    def _fit(self, name: str, rows: int, batch: int, epochs: int = 1) -> Any:
        """The model of a fit that is measured by its name; one of a single epoch is audited too."""
        critic: Any = {"hidden": self.hidden, "embedding_dim": self.dry.embedding_dim}
        length: Any = {"batch_size": batch, "max_epochs": epochs, "patience": epochs}
        how: Any = {"folds": self.dry.folds, "stream": self.streamed, "random_state": 0}
        device = "cuda" if self.gpu else "cpu"
        model = PointwiseDependency(**critic, **length, **how, device=device, progress=False)
        x, y = self._pairs(rows)
        self._timed(name, rows, partial(model.fit, x, y))
        if epochs == 1:
            self._timed("audit", rows, partial(judged, model, x, y, fdr=0.1))
        return model

    def _answer(self, fitted: Any, least: int) -> None:
        """Scores and searches, of few rows and of more."""
        how = {"k": 10, "shortlist": 10, "measure_recall": False}
        for rows in (max(least, SEARCHED), 2 * _GROWTH * least):
            x, y = self._pairs(rows)
            self._timed("score", rows, partial(pair_columns, fitted, x, y))
            index = self._timed("retrieve", rows, partial(fitted.index, y))
            self._timed("search", rows, partial(fitted.retrieve, x[:SEARCHED], index, **how))
        queries, candidates = _PAIRS
        pairs = partial(fitted.pmi_matrix, x[:queries], y[:candidates])
        self._timed("pair", queries * candidates, pairs if self.columns <= NARROW else int)

    def _pairs(self, rows: int) -> tuple[Any, Any]:
        """Four factors, two of which have lost their sign on the other side.

        A network soon knows more of them than the closed form, which is not useless either: so
        every part of the critic is used.
        """
        random = np.random.default_rng(rows)
        z = random.standard_normal((rows, 4), np.float32)
        x, y = (
            side[:, np.arange(dim) % 4] + 0.3 * random.standard_normal((rows, dim), np.float32)
            for dim, side in zip(self.dims, (z, np.hstack([z[:, :2], abs(z[:, 2:])])), strict=True)
        )
        return x.astype(np.float16), y.astype(np.float16)

    def _timed(self, name: str, rows: int, work: Callable[[], Any]) -> Any:
        """What the work returns; its seconds and its peak memory are points at `rows`."""
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        peaks, ended = [_anonymous_gib()], threading.Event()

        def watch() -> None:
            while not ended.wait(0.01):
                peaks.append(_anonymous_gib())

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        began = self.clock()
        found = work()
        self.points[name][rows] = self.clock() - began
        ended.set()
        watching.join()
        # What earlier work left behind is not this work's.
        self.points[f"{name} gib"][rows] = max(peaks) - max(0.0, peaks[0] - self.empty_gib)
        if self.gpu:
            self.points[f"{name} gpu gib"][rows] = torch.cuda.max_memory_allocated() / 2**30
        print("measured", flush=True)
        return found

    def _law(self, name: str) -> tuple[float, float]:
        """Through the points of fewest and of most rows, for the asked columns and folds."""
        points = sorted(self.points[name].items())
        (few, low), (many, high) = points[0], points[-1]
        each = max(0.0, (high - low) / (many - few)) if many > few else high / max(few, 1)
        if name in _NUMBER_BYTES:
            each = _NUMBER_BYTES[name] * sum(self.dims) / 2**30
        if name == "fit gib":
            narrow = self.columns <= NARROW
            each += self.dry.folds * (_FOLD_BYTES_NARROW if narrow else _FOLD_BYTES) / 2**30
        elif name == "audit gib":
            each = _CHECKED_BYTES / 2**30
        fixed = max(0.0, low - each * few)
        wider = max(1.0, self.columns / _MOST_COLUMNS)
        by_fixed, by_each = _POWERS.get(name.rsplit(maxsplit=1)[-1], (1, 1.5))
        folds = self.asked.folds / self.dry.folds if name in _OF_EACH_FOLD else 1.0
        return folds * fixed * wider**by_fixed, folds * each * wider**by_each


def _anonymous_gib() -> float:
    """Memory of this process without mapped files; if that is unknown, the peak of all of it."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 2**20
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


if __name__ == "__main__":
    faulthandler.dump_traceback_later(_END_S, exit=True)
    print(json.dumps(asdict(DryRun(**json.loads(sys.argv[1])).run())))
