"""What a finished run is: in memory, and in its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import pointdep
from pointdep.contrastive.pretraining.export import FrozenEncoder, freeze, load_encoder
from pointdep.contrastive.pretraining.journal import Entry
from pointdep.contrastive.pretraining.loop import Training
from pointdep.contrastive.pretraining.order import mix
from pointdep.contrastive.pretraining.settings import Settings
from pointdep.data.images import ImageSet
from pointdep.errors import Flag, InputError, ModelFileError
from pointdep.fitting.state import remove_state, unfinished

_REFERENCE = 2_000  # images that a read-out is normalised over
RUN, STATE, ENCODER = "run.json", "checkpoint.safetensors", "encoder"


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
    wall_seconds: of all of it, with compiling, evaluating and writing; training time is in history.
    """

    settings: Settings
    outcomes: tuple[Outcome, ...]
    history: tuple[Entry, ...]
    flags: tuple[Flag, ...]
    where: dict[str, str]
    wall_seconds: float
    encoder: FrozenEncoder
    folder: Path | None


def conclude(
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
    flags, wall = tuple(training.flags), training.wall_seconds
    history = tuple(journal.entries)
    done = Pretrained(settings, outcomes, history, flags, where, wall, encoder, place)
    if place is not None and training.fabric.global_rank == 0:
        encoder.save(place / ENCODER)
        about = {
            "pointdep": pointdep.__version__,
            "fingerprint": fingerprint,
            "data": about_images(images),
            "settings": settings.as_dict(),
            "where": where,
            "wall_seconds": wall,
            "outcomes": [asdict(outcome) for outcome in outcomes],
            "flags": [asdict(flag) for flag in flags],
            "history": journal.entries,
        }
        # In one move, and the checkpoint goes last: a kill leaves a run to go on from, or this.
        unfinished(place / RUN).write_text(json.dumps(about, indent=1), "utf-8")
        unfinished(place / RUN).replace(place / RUN)
        remove_state(place / STATE)
    training.fabric.barrier()
    return done


def read_run(place: Path, settings: Settings, fingerprint: str, device: str) -> Pretrained:
    """A run that was finished before."""
    try:
        about = json.loads((place / RUN).read_text("utf-8"))
        known, outcomes = about["fingerprint"], [Outcome(**part) for part in about["outcomes"]]
        history, where, wall = tuple(about["history"]), about["where"], about["wall_seconds"]
        flags = tuple(Flag(f["name"], tuple(f["replicas"]), f["message"]) for f in about["flags"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{place / RUN} cannot be read ({error}): delete it") from None
    if known != fingerprint:
        raise InputError(
            f"{place} holds a finished run {_difference(about.get('settings'), settings)}: choose "
            "another output folder"
        )
    remove_state(place / STATE)
    encoder = load_encoder(place / ENCODER, device)
    return Pretrained(settings, tuple(outcomes), history, flags, where, wall, encoder, place)


def about_images(images: ImageSet) -> dict[str, Any]:
    """What a run was trained and evaluated on."""
    return {
        "name": images.name,
        "source": images.source,
        "lossy": images.lossy,
        "train": len(images.train),
        "test": len(images.test),
    }


def _difference(known: Any, settings: Settings) -> str:
    """Between the settings of a run and those asked for, in words."""
    asked = json.loads(json.dumps(settings.as_dict()))
    known = known if isinstance(known, dict) else {}
    other = [f"{name} {known.get(name)}" for name in asked if known.get(name) != asked[name]]
    return f"with {', '.join(other)}" if other else "with other data or another number of processes"
