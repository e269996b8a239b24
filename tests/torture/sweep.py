"""Ends processes that write, at each of their calls to the file system, and looks at what is left.

    python tests/torture/sweep.py

Each job runs in a child with `shim.c` loaded, which ends it with SIGKILL at one call: at the first,
then in another child at the second, and so on to the end. Then what the job was to replace must be
as it was or as the job makes it, and the next job must succeed and leave nothing else behind.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pointdep import PointwiseDependency, audit
from pointdep.cli.app import run
from pointdep.data import atomic, storage
from pointdep.errors import ModelFileError
from pointdep.fitting.state import Checkpoint, TrainingState, load_state, save_state

HERE = Path(__file__).parent
SMALL: dict[str, Any] = {"critic": "separable", "hidden": (4,), "embedding_dim": 2, "folds": 2}
SMALL |= {"max_epochs": 2, "curve": False, "device": "cpu", "progress": False}


@dataclass
class Job:
    """What a child does in the folder of the job, and what it replaces there.

    read: what is there, by a name: None if nothing is. The job must leave what was there before, or
    what it makes when nothing ends it.
    """

    name: str
    prepare: Callable[[], None]
    work: Callable[[], None]
    read: Callable[[], Any]


class Data:
    """Pairs, two models of them, and an audit."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=(60, 2))
        self.y = self.x + generator.normal(size=(60, 2))
        self.one, self.other = (
            PointwiseDependency(**SMALL, random_state=seed).fit(self.x, self.y) for seed in (0, 1)
        )
        self.audited = [
            audit(self.x, self.y, model=PointwiseDependency(**SMALL, random_state=seed))
            for seed in (0, 1)
        ]

    def files(self) -> None:
        np.save("x.npy", self.x)
        np.save("y.npy", self.y)
        self.one.save("model")

    def shards(self) -> None:
        import pandas as pd

        self.files()
        for side in "xy":
            Path(side).mkdir()
            for part in range(2):
                rows = getattr(self, side)[30 * part : 30 * part + 30]
                pd.DataFrame(rows, columns=["a", "b"]).to_parquet(f"{side}/{part}.parquet")


def model_there() -> Any:
    """Which model the folder holds, by a number of its own."""
    try:
        about, tensors = storage.read_model(Path("model"))
    except ModelFileError:
        if Path("model").exists():
            raise
        return None
    return about["weights_sha256"], float(tensors["oof_pmi"].nansum())


def names_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def content(*names: str) -> Any:
    return [Path(name).read_bytes() if Path(name).exists() else None for name in names]


def command(*words: str) -> Callable[[], None]:
    def work() -> None:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = run([*words, "--quiet"])
        assert code == 0, said.getvalue()

    return work


def state(epoch: int) -> TrainingState:
    import torch

    found = TrainingState.start(torch.full((2, 500), float(epoch)), [[], []])
    found.epoch = epoch
    return found


def epoch_there() -> Any:
    path = Path("state")
    if not path.exists():
        return None
    found = load_state(Checkpoint(path, "fit"), state(0))
    assert bool((found.values == found.epoch).all())
    return found.epoch


def jobs(data: Data) -> list[Job]:
    one, other = data.one, data.other
    index = one.index(data.y, kind="flat")

    def moved() -> None:
        atomic._exchanged = lambda *_: False  # as where two folders cannot be exchanged
        other.save("model")

    def old_page() -> None:
        data.audited[0].to_html("page.html")

    def index_there() -> Any:
        return one.load_index("index").kind if Path("index").exists() else None

    def scores_there() -> Any:
        # The shards that are there are whole; the others are made by the next run.
        import pyarrow.parquet as pq

        found = sorted(Path("out").glob("[0-9]*.parquet")) if Path("out").exists() else []
        assert all(pq.read_table(path).num_rows == 30 for path in found)
        return None if len(found) < 2 else "all"

    def retrieve(*more: str) -> Callable[[], None]:
        return command("retrieve", "model", "x.npy", "y.npy", "-k", "3", *more)

    def with_file(name: str) -> Callable[[], None]:
        return lambda: (data.files(), Path(name).write_text("an older one"))[0]

    score = "score", "model", "x.npy", "y.npy", "-o"
    return [
        Job("save", lambda: one.save("model"), lambda: other.save("model"), model_there),
        Job("save, nothing there", lambda: None, lambda: other.save("model"), model_there),
        Job("save, no exchange", lambda: one.save("model"), moved, model_there),
        Job(
            "checkpoint",
            lambda: save_state(Checkpoint(Path("state"), "fit"), state(1)),
            lambda: save_state(Checkpoint(Path("state"), "fit"), state(2)),
            epoch_there,
        ),
        *(
            Job(f"score {name}", with_file(name), command(*score, name), lambda n=name: content(n))
            for name in ("scores.csv", "scores.parquet", "scores.npy")
        ),
        Job(
            "score shards",
            data.shards,
            command("score", "model", "x", "y", "-o", "out"),
            scores_there,
        ),
        Job(
            "audit",
            old_page,
            lambda: data.audited[1].to_html("page.html"),
            lambda: content("page.html"),
        ),
        Job(
            "retrieve",
            with_file("best.csv"),
            retrieve("-o", "best.csv"),
            lambda: content("best.csv"),
        ),
        Job(
            "retrieve, save index",
            lambda: (data.files(), index.save("index"))[0],
            retrieve("--save-index", "index", "-o", "best.csv", "--index", "hnsw"),
            index_there,
        ),
    ]


def in_child(work: Callable[[], None], shim: Any = None, call: int = 0) -> tuple[int, int]:
    """The signal that ended it, 0 if it ended well, and how many calls the shim has counted."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            if shim is not None:
                shim.shim_arm(os.fsencode(Path.cwd()), call)
            work()
            counted = shim.shim_counted() if shim is not None else 0
            os.write(writing, str(counted).encode())
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status), 0
    assert os.WEXITSTATUS(status) == 0, "the child failed"
    return 0, int(told)


def seen(job: Job) -> Any:
    """What is there, as a fresh process finds it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return job.read()


def sweep(job: Job, template: Path, place: Path, shim: Any, every: int) -> dict[str, int]:
    """Calls of a job, and how often it left what was there, what it makes, or something else."""

    def afresh() -> None:
        os.chdir("/")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place, symlinks=True)
        os.chdir(place)

    template.mkdir()
    os.chdir(template)
    job.prepare()
    afresh()
    before = seen(job)
    ended, calls = in_child(job.work, shim, 0)
    after, names = seen(job), names_here()
    assert (ended, before != after) == (0, True), job.name
    found = {"calls": calls, "killed": 0, "old": 0, "new": 0, "lost": 0, "left behind": 0}
    for call in range(1, calls + 1, every):
        afresh()
        ended, _ = in_child(job.work, shim, call)
        found["killed"] += ended == signal.SIGKILL
        try:
            there = seen(job)
            kind = "new" if there == after else "old" if there == before else "lost"
        except Exception as error:
            print(f"{job.name}, call {call}: {type(error).__name__}: {error}", file=sys.stderr)
            kind = "lost"
        found[kind] += 1
        in_child(job.work)
        odd = seen(job) != after or names_here() != names
        if odd:
            print(job.name, call, seen(job), names_here(), names, file=sys.stderr)
        found["left behind"] += odd
    os.chdir("/")
    shutil.rmtree(template)
    return found


def at_random(data: Data, place: Path, kills: int) -> dict[str, int]:
    """Ends saves at random moments, one after another in one folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    os.chdir(place)
    known = []
    for model in (data.one, data.other):
        model.save("model")
        known.append(model_there())

    def saving() -> None:
        while True:
            data.one.save("model")
            data.other.save("model")

    found, draw = {"killed": 0, "old or new": 0, "lost": 0}, random.Random(0)
    for _ in range(kills):
        child = os.fork()
        if not child:
            saving()
        time.sleep(draw.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found["killed"] += 1
        found["old or new" if model_there() in known else "lost"] += 1
    data.one.save("model")
    assert names_here() == ["model"], names_here()
    os.chdir("/")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="of saves, at random moments")
    parser.add_argument("--every", type=int, default=1, help="call to be tried")
    parser.add_argument("--only", default="", help="jobs whose names begin so")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if "LD_PRELOAD" not in os.environ:
            library = str(Path(scratch, "shim.so"))
            compile_ = [
                "cc",
                "-shared",
                "-fPIC",
                "-O1",
                "-o",
                library,
                str(HERE / "shim.c"),
                "-ldl",
            ]
            subprocess.run(compile_, check=True)
            again = [sys.executable, *sys.argv]
            one_thread = {"OMP_NUM_THREADS": "1", "LD_PRELOAD": library}
            sys.exit(
                subprocess.run(again, env={**os.environ, **one_thread}, check=False).returncode
            )
        warnings.simplefilter("ignore")
        shim, data, bad = ctypes.CDLL(os.environ["LD_PRELOAD"]), Data(), 0
        # What is imported late, once for all children.
        for job in jobs(data):
            if not job.name.startswith(options.only):
                continue
            place = Path(scratch, "place").resolve()
            found = sweep(job, Path(scratch, "template").resolve(), place, shim, options.every)
            bad += found["lost"] + found["left behind"]
            print(
                f"{job.name:24}", ", ".join(f"{n} {kind}" for kind, n in found.items()), flush=True
            )
        if options.kills:
            random_kills = at_random(data, Path(scratch, "random").resolve(), options.kills)
            bad += random_kills["lost"]
            print(f"{'save, at random':24}", random_kills)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
