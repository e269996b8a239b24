"""The runs of an experiment, each in a folder of its own, so that an ended command goes on."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError
from pointdep.experiments.environment import environment
from pointdep.experiments.representations.results import (
    DIVERGED,
    FINISHED,
    RUNS,
    SURROUNDINGS,
    merged,
    read_runs,
)
from pointdep.experiments.representations.settings import PARTS, Experiment

_NAME = re.compile(r"(?P<objectives>[a-z0-9+]+)-(?P<seeds>\d+-\d+|\d+(\+\d+)*)")
Rectangle = tuple[tuple[str, ...], tuple[int, ...]]
"""Objectives and seeds, each of the ones with each of the others."""


@dataclass(frozen=True)
class Job:
    """One call of `pretrain`."""

    name: str
    settings: Settings


def jobs_left(experiment: Experiment, folder: Path) -> list[Job]:
    """Of the objectives and seeds that no finished run in the folder has.

    What is asked for in another order has the same names, so that it goes on.
    """
    done = _done(experiment, folder)
    return [
        Job(_name(objectives, seeds), experiment.pretraining(objectives, seeds))
        for group in _groups(experiment)
        for objectives, seeds in _rectangles(group, done)
    ]


def run_jobs(
    jobs: Sequence[Job],
    images: Callable[[], ImageSet],
    folder: Path,
    after_each: Callable[[], None],
    **how: Any,
) -> None:
    """Train what is left, one job after another.

    images: called when they are needed; how: the other options of `pretrain`. A job that diverges
    is written down as such, and the others go on.
    """
    from pointdep.contrastive.pretraining.pretrained import pretrain

    for job in jobs:
        place = folder / RUNS / job.name
        try:
            where = pretrain(images(), job.settings, folder=place, **how).where
            _write_json(place / SURROUNDINGS, environment(where["device"]))
        except DivergedError as error:
            _write_diverged(place, job.settings, images(), str(error))
        after_each()


def stray_checkpoints(experiment: Experiment, folder: Path, jobs: Iterable[Job]) -> list[str]:
    """For each unfinished run that these jobs do not go on with, a sentence on what would."""
    from pointdep.contrastive.pretraining.pretrained import STATE

    names, done = {job.name for job in jobs}, _done(experiment, folder)
    said = []
    for path in sorted((folder / RUNS).glob(f"*/{STATE}")):
        place = path.parent
        ended = (place / FINISHED).exists() or (place / DIVERGED).exists()
        if not ended and place.name not in names:
            said.append(f"{place} is unfinished, and not of this command: {_goes_on(place, done)}")
    return said


def _goes_on(place: Path, done: set[tuple[str, int]]) -> str:
    """What would go on with the checkpoint there."""
    found = _NAME.fullmatch(place.name)
    if found is None:
        return "no command goes on with it"
    objectives = tuple(found["objectives"].split("+"))
    ends = [int(seed) for seed in re.split(r"[-+]", found["seeds"])]
    seeds = tuple(range(ends[0], ends[-1] + 1)) if "-" in found["seeds"] else tuple(ends)
    pairs = {(objective, seed) for objective in objectives for seed in seeds}
    if pairs <= done:
        return "its runs are finished elsewhere, so delete it"
    if pairs & done or objectives != tuple(o for o in OBJECTIVES if o in objectives):
        return "what is left of it would begin anew, so delete it"
    told = f"--objectives {','.join(objectives)} --seed {ends[0]} --seeds {ends[-1] - ends[0] + 1}"
    return f"{told}, and else as it began, would go on with it"


def _done(experiment: Experiment, folder: Path) -> set[tuple[str, int]]:
    return {(curve.objective, curve.seed) for curve in merged(read_runs(folder, experiment))}


def _groups(experiment: Experiment) -> list[Rectangle]:
    """Those of a job each: replicas of the shallow model, single runs of others."""
    objectives = tuple(one for one in OBJECTIVES if one in experiment.objectives)
    seeds = experiment.all_seeds
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


def _rectangles(group: Rectangle, done: set[tuple[str, int]]) -> list[Rectangle]:
    """What is left of it: seeds of which the same objectives are left, together."""
    seeds_of: dict[tuple[str, ...], list[int]] = {}
    for seed in group[1]:
        objectives = tuple(one for one in group[0] if (one, seed) not in done)
        if objectives:
            seeds_of.setdefault(objectives, []).append(seed)
    return [(objectives, tuple(seeds)) for objectives, seeds in seeds_of.items()]


def _name(objectives: Sequence[str], seeds: Sequence[int]) -> str:
    """ "cpc+drfc-0-9": seeds 0 to 9."""
    inner = list(range(seeds[0], seeds[-1] + 1)) == list(seeds) and len(seeds) > 1
    told = f"{seeds[0]}-{seeds[-1]}" if inner else "+".join(map(str, seeds))
    return f"{'+'.join(objectives)}-{told}"


def _write_diverged(place: Path, settings: Settings, images: ImageSet, reason: str) -> None:
    from pointdep.contrastive.pretraining.pretrained import about_images

    about = {
        "data": about_images(images),
        "settings": settings.as_dict(),
        "where": {},
        "reason": reason,
        "history": _history_so_far(place / "history.csv", len(settings.runs)),
    }
    place.mkdir(parents=True, exist_ok=True)
    _write_json(place / DIVERGED, about)


def _history_so_far(path: Path, replicas: int) -> list[dict[str, Any]]:
    """The evaluations that the run wrote down before it diverged, as run.json has them."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    looks = [lines[start : start + replicas] for start in range(0, len(lines), replicas)]
    return [
        {
            "epoch": float(look[0]["epoch"]),
            "step": int(look[0]["step"]),
            "seconds": float(look[0]["seconds"]),
            "linear": [float(line["linear"]) if line["linear"] else None for line in look],
        }
        for look in looks
        if any(line["linear"] for line in look)
    ]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
