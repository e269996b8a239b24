"""The runs that a folder holds, read again and merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointdep.errors import InputError, ModelFileError
from pointdep.experiments.representations.loss_options import own_options
from pointdep.experiments.representations.settings import Experiment

RUNS, FINISHED, DIVERGED = "runs", "run.json", "diverged.json"
SURROUNDINGS = "environment.json"
# What runs have in common that are compared; objectives, seeds and options of the loss differ.
_SHARED = (
    *("model", "epochs", "iterations", "minutes", "batch_size", "learning_rate", "width", "depth"),
    *("precision", "evaluate_every", "monitor"),
)


@dataclass(frozen=True)
class Curve:
    """The linear accuracy of one objective and seed at each evaluation.

    accuracy: shares of the test images, None where the features were not finite. seconds: of
    training, those of all replicas where they train at once. run: name of the folder. cut: whether
    the run ended because it diverged, so that these are the evaluations before.
    """

    run: str
    objective: str
    seed: int
    steps: tuple[int, ...]
    epochs: tuple[float, ...]
    seconds: tuple[float, ...]
    accuracy: tuple[float | None, ...]
    cut: bool = False

    @property
    def final(self) -> float | None:
        """The accuracy at the end; None of a run that diverged."""
        return self.accuracy[-1] if self.accuracy and not self.cut else None


@dataclass(frozen=True)
class Run:
    """One finished job: a replica an objective and seed, or a single one of these.

    where: device and precision, empty of a run that diverged; machine: its name, "" where that is
    not known. flags: problems noticed in training, name and message. wall_seconds: of it all.
    versions: of the packages, empty where they are not known.
    """

    name: str
    settings: dict[str, Any]
    data: dict[str, Any]
    where: dict[str, str]
    machine: str
    curves: tuple[Curve, ...]
    flags: tuple[tuple[str, str], ...] = ()
    wall_seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def loss_of(self, objective: str) -> dict[str, Any]:
        """The options that its loss was given."""
        return own_options(self.settings["model"], objective, self.settings["loss"])


def read_runs(folder: Path, experiment: Experiment) -> list[Run]:
    """Those of this experiment, in the order of their names; others are refused."""
    places = sorted((folder / RUNS).glob(f"*/{FINISHED}"))
    places += sorted((folder / RUNS).glob(f"*/{DIVERGED}"))
    runs = [_read(place) for place in places]
    for run in runs:
        _require_same(run, experiment, folder)
    if len({json.dumps(run.data, sort_keys=True) for run in runs}) > 1:
        raise InputError(f"the runs in {folder / RUNS} are of different images: remove some")
    _require_one_loss(runs, folder)
    return runs


def merged(runs: Sequence[Run]) -> list[Curve]:
    """One curve for each objective and seed, in the order of the objectives' first runs."""
    found: dict[tuple[str, int], Curve] = {}
    for run in runs:
        for curve in run.curves:
            found.setdefault((curve.objective, curve.seed), curve)
    return sorted(found.values(), key=lambda curve: (_place(curve.objective), curve.seed))


def _place(objective: str) -> int:
    from pointdep.contrastive.pretraining.protocols import OBJECTIVES

    return OBJECTIVES.index(objective)


def _read(path: Path) -> Run:
    try:
        about = json.loads(path.read_text("utf-8"))
        settings = about["settings"]
        looks = [entry for entry in about["history"] if "linear" in entry]
        pairs = [(o, s) for o in settings["objectives"] for s in settings["seeds"]]
        curves = [
            Curve(
                path.parent.name,
                objective,
                seed,
                tuple(entry["step"] for entry in looks),
                tuple(entry["epoch"] for entry in looks),
                tuple(entry["seconds"] for entry in looks),
                tuple(entry["linear"][replica] for entry in looks),
                cut=path.name == DIVERGED,
            )
            for replica, (objective, seed) in enumerate(pairs)
        ]
        beside = path.parent / SURROUNDINGS
        around = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
        flags = tuple((flag["name"], flag["message"]) for flag in about.get("flags", ()))
        return Run(
            path.parent.name,
            settings,
            about["data"],
            about["where"],
            around.get("device", ""),
            tuple(curves),
            flags,
            about.get("wall_seconds"),
            around.get("versions", {}),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelFileError(f"{path} cannot be read ({error!r}): delete its folder") from None


def _require_same(run: Run, experiment: Experiment, folder: Path) -> None:
    objectives = tuple(run.settings["objectives"])
    asked = experiment.pretraining(objectives, tuple(run.settings["seeds"])).as_dict()
    other = [name for name in _SHARED if run.settings.get(name) != asked[name]]
    # Of an objective that is not asked for, the options are what they were.
    both = [objective for objective in objectives if objective in experiment.objectives]
    if any(run.loss_of(objective) != experiment.loss_of(objective) for objective in both):
        other.append("loss options")
    if run.data["name"] != experiment.dataset:
        other.append("images")
    if other:
        raise InputError(
            f"{folder / RUNS / run.name} was run with other {', '.join(other)}: choose another "
            "--output, or give the same options"
        )


def _require_one_loss(runs: Sequence[Run], folder: Path) -> None:
    """Runs of an objective with different options are not runs of one thing."""
    known: dict[str, Run] = {}
    for run in runs:
        for objective in run.settings["objectives"]:
            first = known.setdefault(objective, run)
            if first.loss_of(objective) != run.loss_of(objective):
                raise InputError(
                    f"{first.name} and {run.name} in {folder / RUNS} have other loss options for "
                    f"{objective}: remove one"
                )
