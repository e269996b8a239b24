"""``pointdep fit``."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pointdep.cli import options
from pointdep.cli.options import (
    SAVED_WITHOUT_NETWORKS,
    Settings,
    refuse_for_classical,
    takes_settings,
)
from pointdep.cli.show import estimate_as_json, print_estimate, print_json
from pointdep.core.methods import WITHOUT_NETWORKS
from pointdep.errors import InputError


@takes_settings
@options.explained
def fit(
    files: options.Files,
    *,
    output: options.SavedModel,
    oof: Path | None = None,
    method: options.SavedMethodName = "pc",
    settings: Settings,
    checkpoint: Path | None = None,
    overwrite: bool = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a model on paired rows and save it.

    For instance:  pointdep fit x.parquet y.parquet -o model/ --oof pmi.csv

    On several GPUs:  torchrun --nproc-per-node 4 -m pointdep fit x.npy y.npy -o model/

    --oof tells which of these pairs belong together least. To score other pairs with the model:
    pointdep score.

    Options
    -------
    oof: File for the PMI of the training rows, each by models that did not see it.
    checkpoint: File that keeps the training state; go on from it.
    overwrite: Also replace a model that was fitted on other data.
    """
    from pointdep.fitting.rendezvous import join_processes

    processes, device = join_processes(settings.device)
    processes.first(partial(check_places, output, oof))
    x, y, groups = processes.together(lambda: settings.read(files))
    if method in WITHOUT_NETWORKS:
        model = _classical(
            method, settings, quiet=quiet, checkpoint=checkpoint, processes=processes
        )
    else:
        how: dict[str, Any] = {"quiet": quiet, "checkpoint": checkpoint}
        model = replace(settings, device=device).networks(method, **how)
        model.set_params(distributed=processes.several)
    if not overwrite:
        processes.first(partial(refuse_other_data, output, model, x, y))
    model.fit(x, y, groups=groups)
    if not processes.is_first:
        return
    save(model, output, oof, overwrite=True)
    found = model.mutual_information(confidence=settings.confidence)
    if json:
        print_json("fit", {**estimate_as_json(model, found), "output": str(output)})
    else:
        print_estimate(model, found)
        print(f"model saved in {output}; score other pairs with: pointdep score {output} ...")


def _classical(
    method: str, settings: Settings, *, quiet: bool, checkpoint: Path | None, processes: Any
) -> Any:
    """The estimator without networks, if it has something to save."""
    if method not in SAVED_WITHOUT_NETWORKS:
        raise InputError(f"--method {method} makes no model to save: use pointdep mi -m {method}")
    if checkpoint is not None:
        refuse_for_classical(method, ["checkpoint"])
    if processes.several:
        raise InputError(f"--method {method} does not share its work: start it without torchrun")
    return settings.classical(method, quiet=quiet)


def check_places(output: Path, oof: Path | None) -> None:
    """Refuse before the fit what could not be written after it."""
    from pointdep.data.storage import check_target
    from pointdep.data.writers import check_writable

    check_target(output)
    if oof is not None:
        check_writable(oof)


def refuse_other_data(output: Path, model: Any, x: Any, y: Any) -> None:
    """Refuse before the fit to replace a model of other data."""
    from pointdep.data.storage import peek
    from pointdep.estimators.persistence import require_same_data
    from pointdep.estimators.pointwise import data_of_rows

    if peek(output) is not None:
        require_same_data(output, data_of_rows(model, x, y))


def save(model: Any, output: Path, oof: Path | None, **how: Any) -> None:
    """The model, and the out-of-fold PMI of its rows if a file is named for it."""
    import numpy as np

    from pointdep.data.writers import write_table

    model.save(output, **how)
    if oof is not None:
        write_table(oof, {"row": np.arange(len(model.oof_pmi_)), "pmi": model.oof_pmi_})
