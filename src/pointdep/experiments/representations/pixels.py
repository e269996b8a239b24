"""The baseline: the same linear classifier on the pixels that the encoder sees."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pointdep.assembly import pick_device
from pointdep.data.images import ImageSet
from pointdep.errors import ModelFileError
from pointdep.experiments.representations.settings import PARTS, Experiment
from pointdep.fitting.progress import Progress

_FILE = "pixels.json"


@dataclass(frozen=True)
class Pixels:
    """Shares of the images classified rightly; of: which pixels; train, test: images."""

    accuracy: float
    train_accuracy: float
    converged: bool
    of: str
    scaling: str
    C: float
    train: int
    test: int
    classes: int


def measure_pixels(
    experiment: Experiment, images: ImageSet, device: str, progress: Progress | None = None
) -> Pixels:
    """Of the upper half for the shallow part, of the whole image for the others."""
    from pointdep.contrastive.evaluation.linear import linear_evaluation
    from pointdep.contrastive.pretraining.recipe import Recipe
    from pointdep.contrastive.pretraining.shallow import Shallow
    from pointdep.contrastive.views import halves

    shallow = PARTS[experiment.part].model == "shallow"
    recipe: type[Recipe] = Shallow if shallow else Recipe
    moved = images.to(pick_device(device))
    train, test = (
        halves(part)[0] if shallow else part.flatten(1).float() / 255.0
        for part in (moved.train, moved.test)
    )
    found = linear_evaluation(
        train,
        moved.train_labels,
        test,
        moved.test_labels,
        scaling=recipe.scaling,
        C=recipe.regularisation,
        progress=progress,
    )
    return Pixels(
        accuracy=float(found.accuracy[0]),
        train_accuracy=float(found.train_accuracy[0]),
        converged=bool(found.converged[0]),
        of="upper half" if shallow else "whole image",
        scaling=recipe.scaling,
        C=recipe.regularisation,
        train=len(images.train),
        test=len(images.test),
        classes=len(images.classes),
    )


def read_pixels(folder: Path) -> Pixels | None:
    """What `write_pixels` wrote, if it did."""
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        return Pixels(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): delete it") from None


def write_pixels(found: Pixels, folder: Path) -> None:
    """Into the folder, for the next command."""
    (folder / _FILE).write_text(json.dumps(asdict(found), indent=1) + "\n", "utf-8")
