"""The runs of an experiment, each in a folder of its own, so that an ended command goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointdep.contrastive.pretraining.settings import Settings
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError
from pointdep.experiments.environment import environment
from pointdep.experiments.representations.results import (
    DIVERGED,
    RUNS,
    SURROUNDINGS,
    merged,
    read_runs,
)
from pointdep.experiments.representations.settings import PARTS, Experiment


@dataclass(frozen=True)
class Job:
    """One call of `pretrain`."""

    name: str
    settings: Settings


def jobs_left(experiment: Experiment, folder: Path) -> list[Job]:
    """Those whose objectives and seeds no finished run in the folder has."""
    from pointdep.contrastive.pretraining.recipes import check_loss_options

    done = {(curve.objective, curve.seed) for curve in merged(read_runs(folder, experiment))}
    left = []
    for all_objectives, all_seeds in _groups(experiment):
        # What another command ran with the same settings is not run again.
        objectives = tuple(o for o in all_objectives if any((o, s) not in done for s in all_seeds))
        seeds = tuple(s for s in all_seeds if any((o, s) not in done for o in objectives))
        if objectives:
            settings = experiment.pretraining(objectives, seeds)
            check_loss_options(settings)
            left.append(Job(_name(objectives, seeds), settings))
    return left


def run_jobs(jobs: Sequence[Job], images: Callable[[], ImageSet], folder: Path, **how: Any) -> None:
    """Train what is left, one job after another.

    images: called when they are needed; how: the other options of `pretrain`. A job that diverges
    is written down as such, and the others go on.
    """
    from pointdep.contrastive.pretraining.run import pretrain

    for job in jobs:
        place = folder / RUNS / job.name
        try:
            where = pretrain(images(), job.settings, folder=place, **how).where
            _write_json(place / SURROUNDINGS, environment(where["device"]))
        except DivergedError as error:
            _write_diverged(place, job.settings, images(), str(error))


def _groups(experiment: Experiment) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Objectives and seeds of each job: replicas of the shallow model, single runs of others."""
    objectives, seeds = experiment.objectives, experiment.all_seeds
    if PARTS[experiment.part].model != "shallow":
        return [((objective,), (seed,)) for seed in seeds for objective in objectives]
    most = experiment.together or len(objectives) * len(seeds)
    wide = min(most, len(objectives))
    long = max(1, most // wide)
    return [
        (objectives[first : first + wide], seeds[start : start + long])
        for start in range(0, len(seeds), long)
        for first in range(0, len(objectives), wide)
    ]


def _name(objectives: Sequence[str], seeds: Sequence[int]) -> str:
    """ "cpc+drfc-0-9": seeds 0 to 9."""
    inner = list(range(seeds[0], seeds[-1] + 1)) == list(seeds) and len(seeds) > 1
    told = f"{seeds[0]}-{seeds[-1]}" if inner else "+".join(map(str, seeds))
    return f"{'+'.join(objectives)}-{told}"


def _write_diverged(place: Path, settings: Settings, images: ImageSet, reason: str) -> None:
    from pointdep.contrastive.pretraining.record import about_images

    about = {
        "data": about_images(images),
        "settings": settings.as_dict(),
        "where": {},
        "reason": reason,
        "history": [],
    }
    place.mkdir(parents=True, exist_ok=True)
    _write_json(place / DIVERGED, about)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
