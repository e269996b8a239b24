"""The trained encoder as a model of point-wise dependency: two views of unseen images.

What is asked of it: PMI of two views of one image and of two images, which second view belongs to a
first, and which labels are wrong, on its features. The last two beside the same on raw pixels.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pointdep.data.images import ImageSet
from pointdep.errors import InputError, ModelFileError, PointdepWarning
from pointdep.experiments.representations.results import RUNS, Run

if TYPE_CHECKING:
    from pointdep.contrastive.pretraining.deep import SimCLR

OBJECTIVES = ("drfc", "cpc")
FLIPPED = 0.05  # of the labels
_FILE, _PIXELS = "pd_model.json", "pd_pixels.json"
_BATCH, _SEED = 500, 0
Answers = dict[str, Any]


def asked_runs(runs: Sequence[Run]) -> list[Run]:
    """Of each objective that has a PMI worth asking for, the run of the lowest seed."""
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.curves[0].seed):
        curve = run.curves[0]
        if curve.objective in OBJECTIVES and curve.final is not None:
            found.setdefault(curve.objective, run)
    return [found[objective] for objective in OBJECTIVES if objective in found]


def needs_images(runs: Sequence[Run], folder: Path, rows: int) -> bool:
    """Whether something of it is still to be asked, and can be."""
    return any(
        read_answers(folder / RUNS / run.name / _FILE, rows) is None
        and (folder / RUNS / run.name / "encoder").is_dir()
        for run in asked_runs(runs)
    )


def read_pd_models(runs: Sequence[Run], folder: Path, rows: int) -> list[Answers]:
    """What is known, that of the pixels last."""
    places = [folder / RUNS / run.name / _FILE for run in asked_runs(runs)]
    known = [read_answers(place, rows) for place in (*places, folder / _PIXELS)]
    found = [answers for answers in known if answers is not None]
    return found if len(found) > 1 else []


def write_pd_models(
    runs: Sequence[Run], images: ImageSet, folder: Path, rows: int, device: str, progress: bool
) -> None:
    """Ask those that were not asked before; rows: test images."""
    from pointdep.contrastive.pretraining.pretrained import load_encoder

    some = images.head(len(images.train), min(rows, len(images.test)))
    for run in asked_runs(runs):
        place = folder / RUNS / run.name
        if read_answers(place / _FILE, rows) is not None or not (place / "encoder").is_dir():
            continue
        encoder = load_encoder(place / "encoder", device)
        recipe = cast("SimCLR", encoder.recipe)
        first, second = two_views(recipe, some.test)
        answers = {
            "of": f"{run.curves[0].objective}-{run.curves[0].seed}",
            "asked_rows": rows,
            "views": ask_views(recipe, first, second),
            "audit": ask_labels(encoder.encode(some.test), some, device, progress),
        }
        _write(place / _FILE, answers)
        if read_answers(folder / _PIXELS, rows) is None:
            answers = {
                "of": "pixels",
                "asked_rows": rows,
                "views": {"retrieval": _metrics(*(_centred(view) for view in (first, second)))},
                "audit": ask_labels(some.test.flatten(1).float(), some, device, progress),
            }
            _write(folder / _PIXELS, answers)


@torch.no_grad()
def two_views(recipe: SimCLR, images: Tensor) -> tuple[Tensor, Tensor]:
    """As in training, (n, 3, h, w) each: what augmentation draws is the same for every run."""
    device = next(recipe.parameters()).device
    prepared = recipe.prepare_images(images.to(device))
    generator = torch.Generator(device).manual_seed(_SEED)
    parts = [
        recipe.two_views(prepared, rows[None], generator)
        for rows in torch.split(torch.arange(len(prepared), device=device), _BATCH)
    ]
    first, second = torch.cat(parts, 1)
    return first, second


@torch.no_grad()
def ask_views(recipe: SimCLR, first: Tensor, second: Tensor) -> Answers:
    """PMI of the views of one image and of two, in nats, and the retrieval by it."""
    z1, z2 = (
        torch.cat([recipe.project(part) for part in torch.split(view, _BATCH)])
        for view in (first, second)
    )
    own = recipe.loss.pmi(z1, z2)
    other = recipe.loss.pmi(z1, z2.roll(1, 0))
    return {
        "pmi_mean": own.mean().item(),
        "pmi_sd": own.std().item(),
        "mismatched_mean": other.mean().item(),
        "mismatched_sd": other.std().item(),
        "retrieval": _retrieve(
            lambda part: recipe.loss.pmi_matrix(z1[part], z2).cpu().numpy(), len(z1)
        ),
    }


def ask_labels(features: Tensor, images: ImageSet, device: str, progress: bool) -> Answers:
    """The audit of features, (n, d), against labels of which some were flipped."""
    from sklearn.metrics import roc_auc_score

    from pointdep.auditing.audit import audit

    given, flipped = flip(images.test_labels.cpu().numpy(), len(images.classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PointdepWarning)  # of pixels that never change, and such
        found = audit(
            features.cpu().numpy(), given, random_state=_SEED, device=device, progress=progress
        )
    rank, suspect = (found.table[name].to_numpy() for name in ("rank", "suspect"))
    count = int(flipped.sum())
    return {
        "rows": len(given),
        "flipped": count,
        "precision": float(flipped[np.argsort(rank, kind="stable")[:count]].mean()),
        "auroc": float(roc_auc_score(flipped, -rank)),
        "suspects": int(suspect.sum()),
        "right_suspects": int((suspect & flipped).sum()),
    }


def flip(labels: np.ndarray[Any, Any], classes: int) -> tuple[Any, Any]:
    """Labels of which `FLIPPED` are another class, each other class alike; and which they are."""
    random = np.random.default_rng(_SEED)
    rows = random.permutation(len(labels))[: max(1, round(FLIPPED * len(labels)))]
    given, flipped = labels.copy(), np.zeros(len(labels), dtype=bool)
    given[rows] = (labels[rows] + random.integers(1, classes, len(rows))) % classes
    flipped[rows] = True
    return given, flipped


def forget_pixels(folder: Path) -> None:
    """What was asked of pixels that are not those of the runs."""
    (folder / _PIXELS).unlink(missing_ok=True)


def read_answers(path: Path, rows: int) -> Answers | None:
    """What was written there, if it was of as many rows."""
    if not path.exists():
        return None
    try:
        answers: Answers = json.loads(path.read_text("utf-8"))
        return answers if answers["asked_rows"] == rows else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error!r}): delete it") from None


def require_rows(rows: int, test: int) -> None:
    """Refuse so few that an audit cannot be made of them."""
    if 0 < min(rows, test) < 50:
        raise InputError(f"{min(rows, test)} test images are too few to ask the encoder: give 50")


def _centred(view: Tensor) -> Tensor:
    flat = view.flatten(1)
    return normalize(flat - flat.mean(0), dim=1)


def _metrics(first: Tensor, second: Tensor) -> Answers:
    """Retrieval by the cosine of rows of unit length."""
    return _retrieve(lambda part: (first[part] @ second.T).cpu().numpy(), len(first))


def _retrieve(scores: Any, rows: int) -> Answers:
    from pointdep.retrieval.metrics import retrieval_metrics

    found = retrieval_metrics(scores, rows, rows, ks=(1, 10), matching=())
    return {
        "candidates": rows,
        "recall_1": found.recall[1],
        "recall_10": found.recall[10],
        "median_rank": found.median_rank,
    }


def _write(path: Path, answers: Answers) -> None:
    path.write_text(json.dumps(answers, indent=1, allow_nan=False) + "\n", "utf-8")
