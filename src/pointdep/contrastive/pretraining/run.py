"""Pre-train, evaluate, export: `pretrain`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pointdep.contrastive.pretraining.devices import make_fabric, share_statistics
from pointdep.contrastive.pretraining.evaluate import evaluate
from pointdep.contrastive.pretraining.journal import Journal
from pointdep.contrastive.pretraining.loop import Checkpoint, Training
from pointdep.contrastive.pretraining.recipe import Recipe
from pointdep.contrastive.pretraining.recipes import make_recipe
from pointdep.contrastive.pretraining.record import (
    ENCODER,
    RUN,
    STATE,
    Pretrained,
    conclude,
    read_run,
)
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.data.images import ImageSet
from pointdep.data.storage import check_target
from pointdep.errors import InputError
from pointdep.fitting.progress import show
from pointdep.fitting.rendezvous import process_count

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_COMPILED_STEPS = 5_000  # below, compiling takes longer than it saves


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
    if not isinstance(images, ImageSet):
        raise InputError(f"images must be an ImageSet, as load_images gives it, not {images!r:.60}")
    if settings.model != "shallow" and len(settings.runs) > 1:
        raise InputError(
            f"{settings.model} trains one objective and seed a run: call pretrain for each"
        )
    if not checkpoint_every >= 0:
        raise InputError(f"checkpoint_every={checkpoint_every!r} must be seconds, 0 or more")
    if bool((images.train_labels == images.train_labels[0]).all()):
        raise InputError(f"all training images of {images.name} are of one class: give two or more")
    place = None if folder is None else Path(folder)
    fingerprint = _fingerprint(images, settings, process_count())
    title = f"{settings.model} {','.join(settings.objectives)}"
    if place is not None and (place / RUN).exists():
        with show(title, enabled=progress) as shown:
            shown.note(f"already finished, read from {place}")
        return read_run(place, settings, fingerprint, device)
    fabric = make_fabric(device, settings.precision)
    _check_batch(settings, fabric)
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
        checkpoint=Checkpoint(place / STATE, fingerprint, checkpoint_every) if place else None,
        evaluate=lambda end: fabric.broadcast(
            evaluate(recipe, prepared, fabric, settings.monitor, end)
        ),
    )
    if place is not None:
        _make_folder(place)
    if _compiles(compile_networks, training):
        recipe.compile_parts()
    with show(title, enabled=progress and fabric.global_rank == 0) as shown:
        training.run(shown)
    return conclude(training, images, place, fingerprint)


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
    check_target(place / ENCODER)


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


def _fingerprint(images: ImageSet, settings: Settings, ranks: int) -> str:
    """Of all that decides how a run goes on and what it is evaluated on."""
    digest = hashlib.sha256(json.dumps([settings.as_dict(), ranks, images.name]).encode())
    for part in (images.train, images.train_labels, images.test, images.test_labels):
        digest.update(repr(tuple(part.shape)).encode())
        digest.update(part[:: max(1, len(part) // 1000)].cpu().numpy().tobytes())
    return digest.hexdigest()
