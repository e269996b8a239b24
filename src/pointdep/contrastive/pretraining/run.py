"""Pre-train, evaluate, export: `pretrain`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import pointdep
from pointdep.contrastive.evaluation.features import features
from pointdep.contrastive.evaluation.linear import linear_evaluation
from pointdep.contrastive.evaluation.neighbours import knn_accuracy
from pointdep.contrastive.pretraining.devices import make_fabric, share_statistics
from pointdep.contrastive.pretraining.export import FrozenEncoder, freeze, load_encoder
from pointdep.contrastive.pretraining.journal import Entry, Journal
from pointdep.contrastive.pretraining.loop import Checkpoint, Training
from pointdep.contrastive.pretraining.order import mix
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.data.images import ImageSet
from pointdep.errors import DivergedError, InputError, ModelFileError
from pointdep.fitting.flags import Flag
from pointdep.fitting.progress import show
from pointdep.fitting.state import remove_state
from pointdep.storage import check_target

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_MONITOR_TRAIN, _MONITOR_TEST = 10_000, 2_000  # images that the monitor looks at
_REFERENCE = 2_000  # images that a read-out is normalised over
_COMPILED_STEPS = 5_000  # below, compiling takes longer than it saves
_RUN, _STATE, _ENCODER = "run.json", "checkpoint.safetensors", "encoder"


@dataclass(frozen=True)
class Outcome:
    """One run: its last loss, and accuracies on the test images (shares, None: not evaluated)."""

    objective: str
    seed: int
    epochs: float
    seconds: float
    loss: float | None
    knn: float | None
    linear: float | None


@dataclass(frozen=True, eq=False)
class Pretrained:
    """What `pretrain` returns: the outcome of each run, the history, and the frozen encoder.

    flags: problems noticed in training. where: device and precision, as they were used.
    """

    settings: Settings
    outcomes: tuple[Outcome, ...]
    history: tuple[Entry, ...]
    flags: tuple[Flag, ...]
    where: dict[str, str]
    encoder: FrozenEncoder
    folder: Path | None


def pretrain(
    images: ImageSet,
    settings: Settings,
    *,
    folder: str | Path | None = None,
    device: str = "auto",
    compile_networks: bool | None = None,
    checkpoint_every: float = 120.0,
    progress: bool = False,
) -> Pretrained:
    """Train the encoder that the settings describe, and evaluate its features on the labels.

    With a folder, the state of the run is kept there every `checkpoint_every` seconds and the same
    call goes on from it; at the end ``encoder/``, ``history.csv`` and ``run.json`` are there, and
    TensorBoard's files. compile_networks: None compiles on a GPU where the run is long enough.
    """
    if settings.model != "shallow" and len(settings.runs) > 1:
        raise InputError(
            f"{settings.model} trains one objective and seed a run: call pretrain for each"
        )
    if bool((images.train_labels == images.train_labels[0]).all()):
        raise InputError(f"all training images of {images.name} are of one class: give two or more")
    fabric = make_fabric(device, settings.precision)
    _check_batch(settings, fabric)
    place = None if folder is None else Path(folder)
    fingerprint = _fingerprint(images, settings, fabric.world_size)
    if place is not None and (place / _RUN).exists():
        return _read_run(place, settings, fingerprint, device)
    channels, height, width = images.train.shape[1:]
    recipe = make_recipe(settings, (channels, height, width), len(images.classes))
    share_statistics(recipe, fabric)
    recipe.to(fabric.device)
    if fabric.device.type == "cuda":
        recipe.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    prepared = _prepare(images, recipe, fabric)
    training = Training(
        recipe,
        prepared,
        settings,
        fabric,
        Journal([f"{objective}-{seed}" for objective, seed in settings.runs], _own(place, fabric)),
        checkpoint=Checkpoint(place / _STATE, fingerprint, checkpoint_every) if place else None,
        evaluate=lambda end: fabric.broadcast(_evaluate(recipe, prepared, fabric, end)),
    )
    if place is not None:
        _make_folder(place)
    if _compiles(compile_networks, training):
        recipe.compile_parts()
    title, shows = f"{settings.model} {','.join(settings.objectives)}", fabric.global_rank == 0
    with show(title, enabled=progress and shows) as shown:
        training.run(shown)
    return _conclude(training, images, place, fingerprint)


def _check_batch(settings: Settings, fabric: Fabric) -> None:
    assert settings.batch_size is not None
    if settings.batch_size % fabric.world_size:
        raise InputError(
            f"batch_size={settings.batch_size} is the batch of all processes together: it must be "
            f"a multiple of their number, {fabric.world_size}"
        )


def _make_folder(place: Path) -> None:
    """Once nothing else can be refused, and before anything is trained."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(
            f"{place} is a file, or in one; a run is written as a folder: choose another name"
        ) from None
    check_target(place / _ENCODER)


def _compiles(wanted: bool | None, training: Training) -> bool:
    if wanted is not None:
        return wanted
    return training.fabric.device.type == "cuda" and training.steps >= _COMPILED_STEPS


def _own(place: Path | None, fabric: Fabric) -> Path | None:
    """The folder, for the one process that writes."""
    return place if fabric.global_rank == 0 else None


def _prepare(images: ImageSet, recipe: Recipe, fabric: Fabric) -> ImageSet:
    """On the device, as the recipe takes them."""
    moved = images.to(fabric.device)
    return replace(
        moved,
        train=recipe.prepare_images(moved.train),
        test=recipe.prepare_images(moved.test),
    )


def _evaluate(
    recipe: Recipe, images: ImageSet, fabric: Fabric, end: bool
) -> dict[str, list[float]]:
    """k-nearest neighbours on some of the images; at the end on all, and a linear classifier."""
    if fabric.global_rank:
        return {}
    whole = len(images.train) if end else _MONITOR_TRAIN, len(images.test) if end else _MONITOR_TEST
    recipe.eval()
    try:
        with fabric.autocast():
            train, test = (
                features(recipe.encode, part[:count])
                for part, count in zip((images.train, images.test), whole, strict=True)
            )
    finally:
        recipe.train()
    labels = images.train_labels[: whole[0]], images.test_labels[: whole[1]]
    train, test = (part.reshape(recipe.replicas, -1, part.shape[-1]) for part in (train, test))
    sound = train.isfinite().all((1, 2)) & test.isfinite().all((1, 2))
    if not sound.any():
        raise DivergedError("the features are not finite: lower the learning rate")
    if not sound.all():
        train, test = train[sound], test[sound]
    accuracy = knn_accuracy(train, labels[0], test, labels[1], k=min(20, train.shape[1]))
    found = {"knn": _spread_out(accuracy, sound)}
    if end:
        linear = linear_evaluation(
            train, labels[0], test, labels[1], scaling=recipe.scaling, C=recipe.regularisation
        )
        found["linear"] = _spread_out(linear.accuracy, sound)
    return found


def _spread_out(values: NDArray[np.float64], sound: Tensor) -> list[float]:
    """One value a replica, NaN for those that diverged; values: of the sound ones."""
    whole = np.full(len(sound), np.nan)
    whole[sound.cpu().numpy()] = values
    return [float(value) for value in whole]


def _conclude(
    training: Training, images: ImageSet, place: Path | None, fingerprint: str
) -> Pretrained:
    """Freeze the encoder, and write everything down."""
    recipe, settings, journal = training.recipe, training.settings, training.journal
    journal.close()
    recipe.eval()
    generator = torch.Generator(training.fabric.device).manual_seed(
        mix("reference", settings.seeds[0])
    )
    recipe.remember(training.images.train[:_REFERENCE], generator)
    encoder = freeze(recipe, settings, images)
    last = journal.entries[-1]
    outcomes = tuple(
        Outcome(objective, seed, last["epoch"], last["seconds"], *values)
        for (objective, seed), *values in zip(
            settings.runs, *(journal.last(kind) for kind in ("loss", "knn", "linear")), strict=True
        )
    )
    fabric = training.fabric
    where = {"device": fabric.device.type, "precision": str(fabric._precision.precision)}
    flags = tuple(training.flags)
    done = Pretrained(settings, outcomes, tuple(journal.entries), flags, where, encoder, place)
    if place is not None and training.fabric.global_rank == 0:
        encoder.save(place / _ENCODER)
        journal.write_csv(place / "history.csv")
        about = {
            "pointdep": pointdep.__version__,
            "fingerprint": fingerprint,
            "data": {"name": images.name, "source": images.source, "lossy": images.lossy},
            "settings": settings.as_dict(),
            "where": where,
            "outcomes": [asdict(outcome) for outcome in outcomes],
            "flags": [asdict(flag) for flag in flags],
            "history": journal.entries,
        }
        (place / _RUN).write_text(json.dumps(about, indent=1), "utf-8")
        remove_state(place / _STATE)
    training.fabric.barrier()
    return done


def _read_run(place: Path, settings: Settings, fingerprint: str, device: str) -> Pretrained:
    """A run that was finished before."""
    try:
        about = json.loads((place / _RUN).read_text("utf-8"))
        known, outcomes = about["fingerprint"], [Outcome(**part) for part in about["outcomes"]]
        history, where = tuple(about["history"]), about["where"]
        flags = tuple(Flag(f["name"], tuple(f["replicas"]), f["message"]) for f in about["flags"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{place / _RUN} cannot be read ({error}): delete it") from None
    if known != fingerprint:
        raise InputError(
            f"{place} holds a finished run with other data or other settings, or of another number "
            "of processes: choose another output folder"
        )
    encoder = load_encoder(place / _ENCODER, device)
    return Pretrained(settings, tuple(outcomes), history, flags, where, encoder, place)


def _fingerprint(images: ImageSet, settings: Settings, ranks: int) -> str:
    """Of all that decides how a run goes on and what it is evaluated on."""
    digest = hashlib.sha256(json.dumps([settings.as_dict(), ranks, images.name]).encode())
    for part in (images.train, images.train_labels, images.test, images.test_labels):
        digest.update(repr(tuple(part.shape)).encode())
        digest.update(part[:: max(1, len(part) // 1000)].cpu().numpy().tobytes())
    return digest.hexdigest()
