"""One experiment: what is left of its runs, then everything that the folder holds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pointdep.data.images import ImageSet
from pointdep.errors import InputError, PointdepWarning
from pointdep.experiments.folders import prepare_folder
from pointdep.experiments.representations import pd_model
from pointdep.experiments.representations.jobs import jobs_left, run_jobs, stray_checkpoints
from pointdep.experiments.representations.pixels import (
    PIXELS,
    Pixels,
    measure_pixels,
    read_pixels,
    write_pixels,
)
from pointdep.experiments.representations.results import RUNS, Curve, Run, merged, read_runs
from pointdep.experiments.representations.settings import IMAGES, Experiment
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
        images = self._load()
        if self._known is not None and self._known != _about(images):
            raise InputError(
                f"the runs in the output folder are of other images ({self._known['source']}, "
                f"{self._known['train']} to train on): choose another --output, or give the same"
            )
        return images

    def __call__(self) -> ImageSet:
        return self._read

    @property
    def about(self) -> dict[str, Any]:
        """As runs say it."""
        return _about(self._read) if self._known is None else self._known


def run_experiment(
    experiment: Experiment,
    folder: Path,
    load: Callable[[], ImageSet],
    *,
    device: str = "auto",
    pd_rows: int = 0,
    progress: bool = False,
    after_each: Callable[[Found], object] | None = None,
    **how: Any,
) -> Found:
    """Train what no finished run in the folder has, and read all that it has then.

    load: reads the images; it is not called where nothing is left to do. pd_rows: test images on
    which encoders of SimCLR are asked as PD models; 0 for none. after_each: told all there is,
    before the first job and after each. how: other options of `pretrain`.
    """
    before = _runs_before(experiment, folder)
    left = jobs_left(experiment, folder)
    for said in stray_checkpoints(experiment, folder, left):
        warnings.warn(said, PointdepWarning, stacklevel=2)
    images = _Images(load, before[0].data if before else None)
    pixels = _baseline(experiment, folder, images, device, progress)
    pd_model.require_rows(pd_rows, pixels.test)

    def tell() -> None:
        if after_each is not None:
            after_each(_all_there_is(experiment, folder, pixels, pd_rows))

    if before and left:
        tell()
    run_jobs(left, images, folder, tell, device=device, progress=progress, **how)
    runs = read_runs(folder, experiment)
    if pd_rows and pd_model.needs_images(runs, folder, pd_rows):
        pd_model.write_pd_models(runs, images(), folder, pd_rows, device, progress)
    return _all_there_is(experiment, folder, pixels, pd_rows)


def merge_experiment(experiment: Experiment, folder: Path, *, pd_rows: int = 0) -> Found:
    """All that the folder holds, without training and without images."""
    runs = _runs_before(experiment, folder)
    if not runs:
        raise InputError(f"{folder / RUNS} has no finished run to merge")
    pixels = read_pixels(folder)
    if pixels is None or not pixels.fits(experiment, runs[0].data):
        lacks = "is not there" if pixels is None else "is of other images or another part"
        raise InputError(
            f"{folder / PIXELS} {lacks}: copy that of the runs, or leave --merge out to measure it"
        )
    return _all_there_is(experiment, folder, pixels, pd_rows)


def _runs_before(experiment: Experiment, folder: Path) -> list[Run]:
    """Those that are there, if they and the folder are of this experiment."""
    refuse_other_results(folder, experiment)
    runs = read_runs(folder, experiment)
    if runs:
        _require_limit(experiment, runs, folder)
    return runs


def _all_there_is(experiment: Experiment, folder: Path, pixels: Pixels, pd_rows: int) -> Found:
    runs = read_runs(folder, experiment)
    answers = pd_model.read_pd_models(runs, folder, pd_rows) if pd_rows else []
    return Found(experiment, tuple(runs), tuple(merged(runs)), pixels, tuple(answers))


def _baseline(
    experiment: Experiment, folder: Path, images: _Images, device: str, progress: bool
) -> Pixels:
    """What was measured before on the same images by the same classifier, or measured now."""
    pixels = read_pixels(folder)
    if pixels is not None:
        if pixels.fits(experiment, images.about):
            return pixels
        pd_model.forget_pixels(folder)
    images()
    prepare_folder(folder)
    with show("pixels", enabled=progress) as shown:
        pixels = measure_pixels(experiment, images(), device, shown)
    write_pixels(pixels, folder)
    return pixels


def _require_limit(experiment: Experiment, runs: Sequence[Run], folder: Path) -> None:
    """Refuse a limit with which the runs would have had other images."""
    data, asked, pixels = runs[0].data, experiment.limit, read_pixels(folder)
    there, known = (data["train"], data["test"]), IMAGES.get(data["name"])
    origin = None if pixels is None else pixels.origin
    if origin is not None and origin.data != data:
        origin = None
    if origin is not None and origin.limit in there and there != known:
        fits = asked == origin.limit
    elif asked is None:
        fits = True
    else:
        whole = there if origin is not None or known is None else known
        fits = tuple(min(asked, count) for count in whole) == there
    if not fits:
        told = "all there are" if asked is None else f"those of --limit {asked}"
        raise InputError(
            f"the runs in {folder / RUNS} are of {there[0]} training and {there[1]} test images, "
            f"not of {told}: give the same --limit, or choose another --output"
        )


def _about(images: ImageSet) -> dict[str, Any]:
    from pointdep.contrastive.pretraining.pretrained import about_images

    return about_images(images)


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
