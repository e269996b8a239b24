"""Before a fit: whether the rows of an estimator are streamed, and where its checkpoint is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from pointdep import assembly, persistence, streaming
from pointdep.core.ratio import RatioModel
from pointdep.data.groups import group_codes
from pointdep.data.sides import warn_of_other_order
from pointdep.errors import InputError
from pointdep.fitting.engine import Checkpoint
from pointdep.fitting.options import TrainingOptions
from pointdep.fitting.processes import Processes
from pointdep.fitting.progress import show


def streams(estimator: Any, X: Any, Y: Any) -> bool:
    """Whether the rows are read as they are needed."""
    if estimator.stream is not None and not isinstance(estimator.stream, bool | np.bool_):
        raise InputError(f"stream={estimator.stream!r} must be True, False or None")
    if estimator.stream and estimator.cv is not None:
        raise InputError("cv splits rows that are held in memory: use folds with stream=True")
    large = estimator.cv is None and streaming.is_large(X, Y)
    return bool(large if estimator.stream is None else estimator.stream)


def open_stream(
    estimator: Any, X: Any, Y: Any, groups: Any, seed: int, processes: Processes
) -> streaming.Stream | None:
    """The rows where they are stored, where they are not to be held; None otherwise."""
    if not streams(estimator, X, Y):
        return None
    warn_of_other_order(X, Y)
    enabled = estimator.progress and processes.is_first
    with show(f"reading{processes.share}", enabled=enabled, left="about") as progress:
        return streaming.open_stream(
            X,
            Y,
            group_codes(groups),
            discrete=(estimator.discrete_x, estimator.discrete_y),
            folds=estimator.folds,
            stop_fraction=estimator.stop_fraction,
            seed=seed,
            device=assembly.pick_device(estimator.device),
            progress=progress,
            processes=processes,
        )


def open_checkpoint(
    estimator: Any,
    model: RatioModel,
    rows: assembly.PairedRows,
    options: TrainingOptions,
    stream: streaming.Stream | None,
    processes: Processes,
) -> Checkpoint | None:
    """Where the state of training is kept; None where it is not."""
    if estimator.checkpoint is None and not processes.several:
        return None
    said = {**persistence.saved_params(estimator), "options": repr(options)}
    if stream is not None:
        said["stored"] = [stream.rows, int(stream.copies.digest)]
        if stream.plan.codes is not None:
            said["groups"] = hashlib.sha256(stream.plan.codes.tobytes()).hexdigest()
        if processes.several:
            said["processes"] = processes.size  # on which the batches depend
    identity = assembly.fingerprint(model, rows, said)
    if len(set(processes.every(lambda: identity))) > 1:
        raise InputError(
            "the processes were given different rows or settings: all must call fit with the "
            "same ones, which are then shared out"
        )
    path = estimator.checkpoint
    if path is None:
        return None
    return processes.first(lambda: assembly.open_checkpoint(path, identity, said))
