"""The baseline: the same linear classifier on the pixels that the encoder sees."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pointdep.assembly import pick_device
from pointdep.data.images import ImageSet
from pointdep.errors import ModelFileError
from pointdep.experiments.representations.settings import PARTS, Experiment
from pointdep.fitting.progress import Progress

PIXELS = "pixels.json"


@dataclass(frozen=True)
class Origin:
    """Of which part it was measured and on what, as runs say it; limit: of the images, or None."""

    part: str
    data: dict[str, Any]
    limit: int | None


@dataclass(frozen=True)
class Pixels:
    """Shares of the images classified rightly; of: which pixels; train, test: images.

    origin: None in files that do not say it.
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
    origin: Origin | None = None

    def fits(self, experiment: Experiment, data: dict[str, Any]) -> bool:
        """Whether it is this experiment's on these images; without an origin, by their number."""
        if (self.of, self.scaling, self.C) != _classifier(experiment):
            return False
        if self.origin is not None:
            return self.origin.data == data
        return (self.train, self.test) == (data["train"], data["test"])


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
    found = linear_evaluation(
        train,
        moved.train_labels,
        test,
        moved.test_labels,
        scaling=scaling,
        C=C,
        progress=progress,
    )
    return Pixels(
        accuracy=float(found.accuracy[0]),
        train_accuracy=float(found.train_accuracy[0]),
        converged=bool(found.converged[0]),
        of=of,
        scaling=scaling,
        C=C,
        train=len(images.train),
        test=len(images.test),
        classes=len(images.classes),
        origin=Origin(experiment.part, about_images(images), experiment.limit),
    )


def _classifier(experiment: Experiment) -> tuple[str, str, float]:
    """Which pixels, the scaling of their columns, and C."""
    from pointdep.contrastive.pretraining.recipes import Recipe
    from pointdep.contrastive.pretraining.shallow import Shallow

    if PARTS[experiment.part].model == "shallow":
        return "upper half", Shallow.scaling, Shallow.regularisation
    return "whole image", Recipe.scaling, Recipe.regularisation


def read_pixels(folder: Path) -> Pixels | None:
    """What `write_pixels` wrote, if it did."""
    path = folder / PIXELS
    if not path.exists():
        return None
    try:
        about = json.loads(path.read_text("utf-8"))
        origin = about.pop("origin", None)
        return Pixels(**about, origin=None if origin is None else Origin(**origin))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): delete it") from None


def write_pixels(found: Pixels, folder: Path) -> None:
    """Into the folder, for the next command."""
    (folder / PIXELS).write_text(json.dumps(asdict(found), indent=1) + "\n", "utf-8")
