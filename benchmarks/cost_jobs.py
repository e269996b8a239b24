"""The jobs that `cost_model.py` measures: commands, rows, columns and networks."""

from __future__ import annotations

from typing import Any

Job = dict[str, Any]

TWICE = {  # what, rows and columns of the jobs that are also measured with two threads
    ("audit", 20_000, 64),
    ("audit", 20_000, 256),
    ("score", 100_000, 64),
    ("score", 30_000, 512),
    ("retrieve", 50_000, 64),
    ("retrieve", 30_000, 512),
}
SMALL = {"hidden": [32], "embedding_dim": 16, "folds": 2}


def jobs(device: str, threads: int, scale: float = 1.0) -> list[Job]:
    """The grid; scale: of all rows, for a trial."""
    made = _gpu_jobs() if device == "cuda" else _cpu_jobs()
    if threads > 1:
        made = [job for job in made if (job["what"], job["rows"], job["dims"][0]) in TWICE]
    for job in made:
        job["rows"] = max(2000, int(job["rows"] * scale))
    return made


def _cpu_jobs() -> list[Job]:
    fits = [
        _audit(5e3, 8, 3),
        _audit(2e4, 8, 2),
        _audit(6e4, 8, 1),
        _audit(5e3, 32, 3),
        _audit(6e4, 32, 1),
        _audit(2e4, 64, 2),
        _audit(2e4, 256, 1),
        _audit(1e4, (512, 64), 1),
        _audit(4e3, 512, 2),
        _audit(5e4, 64, 2, stream=True),
        _audit(5e4, 64, 3, stream=True, **SMALL),
        _audit(2e4, 512, 1, stream=True, folds=2),
        _audit(3e5, 64, 1, stream=True, **SMALL),
        _audit(1e5, 8, 1, stream=True, folds=2),
        _audit(1.5e5, 8, 1, held_out=True),
        _audit(1.2e5, 64, 1, held_out=True),
        _audit(3e4, 512, 1, held_out=True),
        _audit(6e4, 512, 1, stream=True, folds=2, held_out=True),
        _audit(8e5, 64, 2, stream=True, held_out=True, **SMALL),
    ]
    scores = [
        *(_score(rows, 8) for rows in (1e4, 1e5)),
        *(_score(rows, 64) for rows in (1e4, 1e5)),
        *(_score(rows, 512) for rows in (5e3, 3e4)),
        _score(2e5, 64, **SMALL),
        _score(4e5, 8, held_out=True),
        _score(8e4, 512, held_out=True),
        _score(1.1e6, 64, held_out=True, **SMALL),
    ]
    searches = [
        *(_retrieve(rows, 8, queries) for rows, queries in ((1e4, 1e3), (3e4, 1e3), (2e4, 3e3))),
        *(_retrieve(rows, 64, queries) for rows, queries in ((1e4, 1e3), (1e5, 1e3), (5e4, 5e3))),
        *(_retrieve(rows, 512, queries) for rows, queries in ((5e3, 500), (3e4, 1e3))),
        _retrieve(2e5, 64, 3e3, held_out=True),
        _retrieve(1e5, 8, 1e3, held_out=True),
    ]
    return fits + scores + searches


def _gpu_jobs() -> list[Job]:
    fits = [
        _audit(5e3, 8, 3),
        _audit(1e4, 8, 2),
        _audit(6e4, 8, 2),
        _audit(2e4, 64, 2),
        _audit(1e5, 64, 3),
        _audit(4e3, 512, 2),
        _audit(1e4, 512, 2),
        _audit(6e4, 512, 2),
        _audit(2e4, (512, 64), 2),
        _audit(1e5, 8, 2, stream=True),
        _audit(1e5, 64, 2, stream=True),
        _audit(4e5, 64, 4, stream=True),
        _audit(5e4, 512, 2, stream=True),
        _audit(1.5e5, 512, 3, stream=True),
        _audit(2e5, 64, 2, stream=True, keeping=False),
        _audit(1.2e5, 512, 2, stream=True, keeping=False),
        _audit(2e5, 8, 2, held_out=True),
        _audit(3e5, 64, 3, held_out=True),
        _audit(1.5e6, 64, 4, stream=True, held_out=True),
        _audit(6e5, 512, 4, stream=True, held_out=True),
        _audit(6e5, 512, 4, stream=True, keeping=False, held_out=True),
    ]
    scores = [
        *(_score(rows, 8) for rows in (1e5, 1e6)),
        *(_score(rows, 64) for rows in (1e5, 5e5)),
        *(_score(rows, 512) for rows in (3e4, 1e5, 2e5)),
        _score(1.5e6, 64, held_out=True),
        _score(6e5, 512, held_out=True),
    ]
    searches = [
        *(_retrieve(rows, 8, queries) for rows, queries in ((2e4, 1e3), (6e4, 2e3))),
        *(_retrieve(rows, 64, queries) for rows, queries in ((1e4, 1e3), (1e5, 2e3), (3e5, 5e3))),
        *(_retrieve(rows, 512, queries) for rows, queries in ((3e4, 2e3), (1e5, 5e3))),
        _retrieve(2e5, 8, 2e3, held_out=True),
        _retrieve(1e6, 64, 1e4, held_out=True),
        _retrieve(3e5, 512, 5e3, held_out=True),
    ]
    return fits + scores + searches


def make_job(what: str, rows: float, dims: int | tuple[int, int], more: Job) -> Job:
    both = list(dims) if isinstance(dims, tuple) else [dims, dims]
    return {"what": what, "rows": int(rows), "dims": both, "folds": 5, "held_out": False, **more}


def _audit(rows: float, dims: int | tuple[int, int], epochs: int, **more: Any) -> Job:
    return make_job("audit", rows, dims, {"epochs": epochs, **more})


def _score(rows: float, dims: int, **more: Any) -> Job:
    return make_job("score", rows, dims, {**_layers(dims), **more})


def _retrieve(rows: float, dims: int, queries: float, **more: Any) -> Job:
    return make_job("retrieve", rows, dims, {"queries": int(queries), **_layers(dims), **more})


def _layers(dims: int) -> Job:
    """Of a model of fewer rows than it is asked about, where it would else have more units."""
    return {"hidden": [128, 64]} if dims <= 25 else {}
