"""One experiment: what is left of its runs, then everything that the folder holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pointdep.data.images import ImageSet
from pointdep.errors import InputError
from pointdep.experiments.folders import prepare_folder
from pointdep.experiments.representations import pd_model
from pointdep.experiments.representations.jobs import jobs_left, run_jobs
from pointdep.experiments.representations.pixels import (
    Pixels,
    measure_pixels,
    read_pixels,
    write_pixels,
)
from pointdep.experiments.representations.results import Curve, Run, merged, read_runs
from pointdep.experiments.representations.settings import Experiment
from pointdep.fitting.progress import show

RESULTS = "results.json"


@dataclass(frozen=True)
class Found:
    """All finished runs of an experiment, the baseline, and what was asked of the encoders."""

    experiment: Experiment
    runs: tuple[Run, ...]
    curves: tuple[Curve, ...]
    pixels: Pixels
    pd_models: tuple[pd_model.Answers, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What the runs were trained on."""
        return self.runs[0].data


class _Images:
    """Read when they are first needed, and refused where the folder's runs had others."""

    def __init__(self, load: Callable[[], ImageSet], known: dict[str, Any] | None) -> None:
        self._load, self._known = load, known

    @cached_property
    def _read(self) -> ImageSet:
        from pointdep.contrastive.pretraining.record import about_images

        images = self._load()
        if self._known is not None and self._known != about_images(images):
            raise InputError(
                f"the runs in the output folder are of other images ({self._known['source']}, "
                f"{self._known['train']} to train on): choose another --output, or give the same"
            )
        return images

    def __call__(self) -> ImageSet:
        return self._read


def run_experiment(
    experiment: Experiment,
    folder: Path,
    load: Callable[[], ImageSet],
    *,
    device: str = "auto",
    pd_rows: int = 0,
    progress: bool = False,
    **how: Any,
) -> Found:
    """Train what no finished run in the folder has, and read all that it has then.

    load: reads the images; it is not called where nothing is left to do. pd_rows: test images on
    which encoders of SimCLR are asked as PD models; 0 for none. how: other options of `pretrain`.
    """
    refuse_other_results(folder, experiment)
    before, left = read_runs(folder, experiment), jobs_left(experiment, folder)
    images = _Images(load, before[0].data if before else None)
    pixels = read_pixels(folder)
    if pixels is None:
        images()
        prepare_folder(folder)
        with show("pixels", enabled=progress) as shown:
            pixels = measure_pixels(experiment, images(), device, shown)
        write_pixels(pixels, folder)
    pd_model.require_rows(pd_rows, pixels.test)
    run_jobs(left, images, folder, device=device, progress=progress, **how)
    runs = read_runs(folder, experiment)
    if (pixels.train, pixels.test) != (runs[0].data["train"], runs[0].data["test"]):
        raise InputError(f"{folder}/pixels.json is of other images than the runs: delete it")
    if pd_rows and pd_model.needs_images(runs, folder, pd_rows):
        pd_model.write_pd_models(runs, images(), folder, pd_rows, device, progress)
    answers = pd_model.read_pd_models(runs, folder, pd_rows) if pd_rows else []
    return Found(experiment, tuple(runs), tuple(merged(runs)), pixels, tuple(answers))


def refuse_other_results(folder: Path, experiment: Experiment) -> None:
    """InputError where the folder holds the results of something else."""
    path = folder / RESULTS
    if not path.exists():
        return
    try:
        about = json.loads(path.read_text("utf-8"))
        before = about.get("experiment", about.get("command"))
    except (OSError, ValueError, AttributeError):
        before = "something else"
    if before != experiment.name:
        raise InputError(f"{folder} holds the results of {before}: choose another --output")
