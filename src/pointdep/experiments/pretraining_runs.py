"""The runs of an experiment: what is left of them is trained, and what is there is read and merged.

Each job is one call of `pretrain` in a folder of its own, so that an ended command goes on, and
runs of several commands can be merged.
"""

import itertools
import json
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pointdep.contrastive.pretraining.protocols import OBJECTIVES, Settings
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError, InputError, ModelFileError, PointdepWarning
from pointdep.experiments import encoder_pd
from pointdep.experiments.reports import Line, environment, prepare_folder, records, write_json
from pointdep.experiments.representations import IMAGES, PARTS, Experiment, own_options
from pointdep.fitting.progress import Progress, show
from pointdep.fitting.rendezvous import pick_device

_NAME = re.compile(r"(?P<objectives>[a-z0-9+]+)-(?P<seeds>\d+-\d+|\d+(\+\d+)*)")
RESULTS, PIXELS = "results.json", "pixels.json"
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
    training, those of all replicas if they train at once. run: name of the folder. cut: whether the
    run ended because it diverged, so that these are the evaluations before.
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
        """The accuracy at the end; None for a run that diverged."""
        return self.accuracy[-1] if self.accuracy and not self.cut else None


@dataclass(frozen=True)
class Run:
    """One finished job: a replica per objective and seed, or a single one of these.

    where: device and precision, empty for a run that diverged; machine: its name, "" if that is not
    known. flags: problems noticed in training, name and message. wall_seconds: of it all. versions:
    of the packages, empty if they are not known.
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


@dataclass(frozen=True)
class Pixels:
    """The baseline: the same linear classifier on the pixels that the encoder sees.

    accuracy, train_accuracy: shares of the images. of: which pixels. train, test: how many images.
    origin: the part, the images as runs describe them, and the limit on their number that it was
    measured with; None in files that do not say it.
    """

    accuracy: float
    train_accuracy: float
    converged: bool
    of: str
    scaling: str
    C: float
    train: int
    test: int
    classes: int
    origin: dict[str, Any] | None = None

    def fits(self, experiment: Experiment, data: dict[str, Any]) -> bool:
        """Whether it is this experiment's on these images; without an origin, by their number."""
        if (self.of, self.scaling, self.C) != _classifier(experiment):
            return False
        if self.origin is not None:
            return bool(self.origin["data"] == data)
        return (self.train, self.test) == (data["train"], data["test"])


@dataclass(frozen=True)
class Found:
    """All finished runs of an experiment, the baseline, and what was asked of the encoders."""

    experiment: Experiment
    runs: tuple[Run, ...]
    curves: tuple[Curve, ...]
    pixels: Pixels
    pd_models: tuple[encoder_pd.Answers, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What the runs were trained on."""
        return self.runs[0].data


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

    load: reads the images; it is not called if nothing is left to do. pd_rows: test images on which
    encoders of SimCLR are asked as PD models; 0 for none. after_each: told all there is, before the
    first job and after each. how: other options of `pretrain`. A job that diverges is written down
    as such, and the others go on.
    """
    from pointdep.contrastive.pretraining.pretrained import about_images, pretrain

    before = _runs_before(experiment, folder)
    left = jobs_left(experiment, folder)
    for said in stray_checkpoints(experiment, folder, left):
        warnings.warn(said, PointdepWarning, stacklevel=2)

    @cache
    def images() -> ImageSet:
        loaded = load()
        data = before[0].data if before else about_images(loaded)
        if data != about_images(loaded):
            raise InputError(
                f"the runs in the output folder are of other images ({data['source']}, "
                f"{data['train']} to train on): choose another --output, or give the same"
            )
        return loaded

    if (pixels := read_pixels(folder)) is not None:
        data = before[0].data if before else about_images(images())
        if not pixels.fits(experiment, data):
            pixels = None
            (folder / encoder_pd.OF_PIXELS).unlink(missing_ok=True)
    if pixels is None:
        images()
        prepare_folder(folder)
        with show("pixels", enabled=progress) as shown:
            pixels = measure_pixels(experiment, images(), device, shown)
        write_json(folder / PIXELS, asdict(pixels))
    if 0 < (few := min(pd_rows, pixels.test)) < 50:  # an audit cannot be made of so few
        raise InputError(f"{few} test images are too few to ask the encoder: give 50")

    def tell() -> None:
        if after_each is not None:
            after_each(_all_there_is(experiment, folder, pixels, pd_rows))

    if before and left:
        tell()
    for name, settings in left.items():
        place = folder / RUNS / name
        try:
            options = {"folder": place, "device": device, "progress": progress, **how}
            where = pretrain(images(), settings, **options).where
            write_json(place / SURROUNDINGS, environment(where["device"]))
        except DivergedError as error:
            about = {"data": about_images(images()), "settings": settings.as_dict(), "where": {}}
            history = _history_so_far(place / "history.csv", len(settings.runs))
            place.mkdir(parents=True, exist_ok=True)
            write_json(place / DIVERGED, {**about, "reason": str(error), "history": history})
        tell()
    to_ask = encoder_pd.encoders_to_ask(_asked(read_runs(folder, experiment), folder), pd_rows)
    if pd_rows and to_ask:
        encoder_pd.ask_encoders(to_ask, images(), folder, pd_rows, device, progress)
    return _all_there_is(experiment, folder, pixels, pd_rows)


def merge_experiment(experiment: Experiment, folder: Path, *, pd_rows: int = 0) -> Found:
    """All that the folder holds, without training and without images."""
    runs = _runs_before(experiment, folder)
    if not runs:
        raise InputError(f"{folder / RUNS} has no finished run to merge")
    pixels = read_pixels(folder)
    if pixels is None or not pixels.fits(experiment, runs[0].data):
        lacks = "is not there" if pixels is None else "is of other images or another part"
        raise InputError(f"{folder / PIXELS} {lacks}: copy that of the runs, or leave out --merge")
    return _all_there_is(experiment, folder, pixels, pd_rows)


def _all_there_is(experiment: Experiment, folder: Path, pixels: Pixels, pd_rows: int) -> Found:
    runs = read_runs(folder, experiment)
    answers = encoder_pd.read_pd_models(_asked(runs, folder), folder, pd_rows) if pd_rows else []
    return Found(experiment, tuple(runs), tuple(merged(runs)), pixels, tuple(answers))


def _asked(runs: Sequence[Run], folder: Path) -> dict[str, Path]:
    """The runs that are asked as PD models, those of the lowest seeds, with their folders."""
    found: dict[str, Curve] = {}
    for curve in sorted((run.curves[0] for run in runs), key=lambda curve: curve.seed):
        if curve.final is not None:
            found.setdefault(curve.objective, curve)
    curves = [found[objective] for objective in encoder_pd.ASKED if objective in found]
    return {f"{one.objective}-{one.seed}": folder / RUNS / one.run for one in curves}


def _runs_before(experiment: Experiment, folder: Path) -> list[Run]:
    """The runs that are there, if they and the folder are of this experiment."""
    path = folder / RESULTS
    if path.exists():
        try:
            about = json.loads(path.read_text("utf-8"))
            before = about.get("experiment", about.get("command"))
        except (OSError, ValueError, AttributeError):
            before = "something else"
        if before != experiment.name:
            raise InputError(f"{folder} holds the results of {before}: choose another --output")
    runs = read_runs(folder, experiment)
    if runs and not _fits_limit(experiment.limit, runs[0].data, read_pixels(folder)):
        train, test = runs[0].data["train"], runs[0].data["test"]
        told = "all" if experiment.limit is None else f"those of --limit {experiment.limit}"
        there = f"runs of {train} training and {test} test images"
        raise InputError(f"{folder / RUNS} has {there}, not of {told}: give the same --limit")
    return runs


def _fits_limit(limit: int | None, data: dict[str, Any], pixels: Pixels | None) -> bool:
    """Whether the runs would have had the same images with this limit."""
    there, known = (data["train"], data["test"]), IMAGES.get(data["name"])
    origin = pixels.origin if pixels is not None else None
    if origin is not None and origin["data"] != data:
        origin = None
    if origin is not None and origin["limit"] in there and there != known:
        return bool(limit == origin["limit"])
    whole = there if origin is not None or known is None else known
    return limit is None or tuple(min(limit, count) for count in whole) == there


def read_runs(folder: Path, experiment: Experiment) -> list[Run]:
    """Those of this experiment, in the order of their names; others are refused."""
    places = sorted((folder / RUNS).glob(f"*/{FINISHED}"))
    places += sorted((folder / RUNS).glob(f"*/{DIVERGED}"))
    runs = [_read(place) for place in places]
    for run in runs:
        _require_same(run, experiment, folder)
    if len({json.dumps(run.data, sort_keys=True) for run in runs}) > 1:
        raise InputError(f"the runs in {folder / RUNS} are of different images: remove some")
    # Runs of an objective with different options are not runs of one thing.
    known: dict[str, Run] = {}
    for run in runs:
        for objective in run.settings["objectives"]:
            first = known.setdefault(objective, run)
            if first.loss_of(objective) != run.loss_of(objective):
                raise InputError(
                    f"{first.name} and {run.name} in {folder / RUNS} have other loss options for "
                    f"{objective}: remove one"
                )
    return runs


def _read(path: Path) -> Run:
    try:
        about = json.loads(path.read_text("utf-8"))
        settings, name = about["settings"], path.parent.name
        looks = [entry for entry in about["history"] if "linear" in entry]
        steps, epochs, seconds = (tuple(e[k] for e in looks) for k in ("step", "epoch", "seconds"))
        pairs = itertools.product(settings["objectives"], settings["seeds"])
        curves = []
        for replica, (objective, seed) in enumerate(pairs):
            accuracy = tuple(entry["linear"][replica] for entry in looks)
            cut = path.name == DIVERGED
            curves.append(Curve(name, objective, seed, steps, epochs, seconds, accuracy, cut))
        beside = path.parent / SURROUNDINGS
        around = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
        return Run(
            name=name,
            settings=settings,
            data=about["data"],
            where=about["where"],
            machine=around.get("device", ""),
            curves=tuple(curves),
            flags=tuple((flag["name"], flag["message"]) for flag in about.get("flags", ())),
            wall_seconds=about.get("wall_seconds"),
            versions=around.get("versions", {}),
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelFileError(f"{path} cannot be read ({error!r}): delete its folder") from None


def _require_same(run: Run, experiment: Experiment, folder: Path) -> None:
    objectives = tuple(run.settings["objectives"])
    asked = experiment.pretraining(objectives, tuple(run.settings["seeds"])).as_dict()
    other = [name for name in _SHARED if run.settings.get(name) != asked[name]]
    # An objective that is not asked for may have had any options.
    both = [objective for objective in objectives if objective in experiment.objectives]
    if any(run.loss_of(objective) != experiment.loss_of(objective) for objective in both):
        other.append("loss options")
    if run.data["name"] != experiment.dataset:
        other.append("images")
    if other:
        fault = f"{folder / RUNS / run.name} was run with other {', '.join(other)}"
        raise InputError(f"{fault}: choose another --output, or give the same options")


def merged(runs: Sequence[Run]) -> list[Curve]:
    """One curve for each objective and seed, in the order of the objectives."""
    found: dict[tuple[str, int], Curve] = {}
    for run in runs:
        for curve in run.curves:
            found.setdefault((curve.objective, curve.seed), curve)
    return sorted(found.values(), key=lambda curve: (OBJECTIVES.index(curve.objective), curve.seed))


def jobs_left(experiment: Experiment, folder: Path) -> dict[str, Settings]:
    """The runs that no finished one in the folder has, as settings by the name of their folder.

    What is asked for in another order has the same names, so that it goes on.
    """
    done, jobs = _done(experiment, folder), {}
    for some, seeds in _groups(experiment):
        # Seeds of which the same objectives are left train together.
        seeds_of: dict[tuple[str, ...], list[int]] = {}
        for seed in seeds:
            objectives = tuple(one for one in some if (one, seed) not in done)
            seeds_of.setdefault(objectives, []).append(seed)
        seeds_of.pop((), None)
        for objectives, own in seeds_of.items():
            jobs[_name(objectives, own)] = experiment.pretraining(objectives, tuple(own))
    return jobs


def _done(experiment: Experiment, folder: Path) -> set[tuple[str, int]]:
    return {(curve.objective, curve.seed) for curve in merged(read_runs(folder, experiment))}


def _groups(experiment: Experiment) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """What one job trains: replicas of the shallow model, a single run of others."""
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


def _name(objectives: Sequence[str], seeds: Sequence[int]) -> str:
    """ "cpc+drfc-0-9": seeds 0 to 9."""
    inner = list(range(seeds[0], seeds[-1] + 1)) == list(seeds) and len(seeds) > 1
    told = f"{seeds[0]}-{seeds[-1]}" if inner else "+".join(map(str, seeds))
    return f"{'+'.join(objectives)}-{told}"


def stray_checkpoints(experiment: Experiment, folder: Path, jobs: Collection[str]) -> list[str]:
    """For each unfinished run that these jobs do not go on with, a sentence on what would."""
    from pointdep.contrastive.pretraining.loop import STATE

    done, said = _done(experiment, folder), []
    for path in sorted((folder / RUNS).glob(f"*/{STATE}")):
        place = path.parent
        ended = any((place / name).exists() for name in (FINISHED, DIVERGED))
        if not ended and place.name not in jobs:
            then = _goes_on(place.name, done)
            said.append(f"{place} is unfinished, and not of this command: {then}")
    return said


def _goes_on(name: str, done: set[tuple[str, int]]) -> str:
    """What would go on with the checkpoint in the folder of this name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return "no command goes on with it"
    objectives = found["objectives"].split("+")
    seeds = [int(seed) for seed in re.split(r"[-+]", found["seeds"])]
    if "-" in found["seeds"]:
        seeds = list(range(seeds[0], seeds[-1] + 1))
    pairs = {*itertools.product(objectives, seeds)}
    if pairs <= done:
        return "its runs are finished elsewhere, so delete it"
    if pairs & done or objectives != [one for one in OBJECTIVES if one in objectives]:
        return "what is left of it would begin anew, so delete it"
    told = f"--objectives {','.join(objectives)} --seed {seeds[0]}"
    told += f" --seeds {seeds[-1] - seeds[0] + 1}"
    return f"{told}, and else as it began, would go on with it"


def _history_so_far(path: Path, replicas: int) -> list[Line]:
    """The evaluations that the run wrote down before it diverged, as run.json has them."""
    import pandas as pd

    if not path.exists():
        return []
    table = pd.read_csv(path).astype({"epoch": float, "seconds": float, "linear": float})
    return [
        {name: look[0][name] for name in ("epoch", "step", "seconds")}
        | {"linear": [line["linear"] for line in look]}
        for look in [records(look) for _, look in table.groupby(table.index // replicas)]
        if any(line["linear"] is not None for line in look)
    ]


def _classifier(experiment: Experiment) -> tuple[str, str, float]:
    """Which pixels, the scaling of their columns, and C."""
    from pointdep.contrastive.pretraining.recipes import Recipe, Shallow

    if PARTS[experiment.part].model == "shallow":
        return "upper half", Shallow.scaling, Shallow.regularisation
    return "whole image", Recipe.scaling, Recipe.regularisation


def measure_pixels(
    experiment: Experiment, images: ImageSet, device: str, progress: Progress | None = None
) -> Pixels:
    """Of the upper half for the shallow part, of the whole image for the others."""
    from pointdep.contrastive.evaluation import linear_evaluation
    from pointdep.contrastive.pretraining.pretrained import about_images
    from pointdep.contrastive.views import halves

    of, scaling, C = _classifier(experiment)
    moved = images.to(pick_device(device))
    train, test = (
        halves(part)[0] if of == "upper half" else part.flatten(1).float() / 255.0
        for part in (moved.train, moved.test)
    )
    sides = train, moved.train_labels, test, moved.test_labels
    found = linear_evaluation(*sides, scaling=scaling, C=C, progress=progress)
    counts = len(images.train), len(images.test), len(images.classes)
    measured = float(found.accuracy[0]), float(found.train_accuracy[0]), bool(found.converged[0])
    origin = {"part": experiment.part, "data": about_images(images), "limit": experiment.limit}
    return Pixels(*measured, of, scaling, C, *counts, origin)


def read_pixels(folder: Path) -> Pixels | None:
    """The baseline that is there, if one is."""
    path = folder / PIXELS
    if not path.exists():
        return None
    try:
        return Pixels(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): delete it") from None
