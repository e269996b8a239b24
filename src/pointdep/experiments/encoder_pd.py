"""The trained encoder as a model of point-wise dependency: two views of unseen images.

Each encoder is asked for the PMI of two views of one image and of two images, which second view
belongs to a first, and which labels are wrong, judged by its features. Retrieval and audit are
repeated on raw pixels. The answers are kept in JSON files, so that none is asked twice.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pointdep.contrastive.pretraining.deep import SimCLR
from pointdep.data.images import ImageSet
from pointdep.errors import ModelFileError, PointdepWarning
from pointdep.experiments.reports import TEXTS, write_json

ASKED = ("drfc", "cpc")
"""The objectives that have a PMI worth asking for."""
FLIPPED = 0.05  # of the labels
OF_PIXELS = "pd_pixels.json"
_FILE = "pd_model.json"
_BATCH, _SEED = 500, 0
Answers = dict[str, Any]


def encoders_to_ask(places: Mapping[str, Path], rows: int) -> dict[str, Path]:
    """Those without answers on so many rows; places: the folder of each run, by its name."""
    return {
        name: place
        for name, place in places.items()
        if read_answers(place / _FILE, rows) is None and (place / "encoder").is_dir()
    }


def read_pd_models(places: Mapping[str, Path], folder: Path, rows: int) -> list[Answers]:
    """The answers that are there, those of the pixels last."""
    paths = [*(place / _FILE for place in places.values()), folder / OF_PIXELS]
    found = [answers for path in paths if (answers := read_answers(path, rows)) is not None]
    return found if len(found) > 1 else []


def read_answers(path: Path, rows: int) -> Answers | None:
    """What was written there, if it was of as many rows."""
    if not path.exists():
        return None
    try:
        answers: Answers = json.loads(path.read_text("utf-8"))
        return answers if answers["asked_rows"] == rows else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error!r}): delete it") from None


def ask_encoders(
    places: dict[str, Path], images: ImageSet, folder: Path, rows: int, device: str, progress: bool
) -> None:
    """Ask the encoders in these places, and once the pixels; rows: test images."""
    from pointdep.contrastive.pretraining.pretrained import load_encoder

    some = images.head(len(images.train), min(rows, len(images.test)))

    def write(path: Path, of: str, views: Answers, features: Tensor) -> None:
        audit = ask_labels(features, some, device, progress)
        write_json(path, {"of": of, "asked_rows": rows, "views": views, "audit": audit})

    for name, place in places.items():
        encoder = load_encoder(place / "encoder", device)
        recipe = cast(SimCLR, encoder.recipe)
        views = two_views(recipe, some.test)
        write(place / _FILE, name, ask_views(recipe, *views), encoder.encode(some.test))
        if read_answers(folder / OF_PIXELS, rows) is None:
            found = {"retrieval": _by_pixels(*views)}
            write(folder / OF_PIXELS, "pixels", found, some.test.flatten(1).float())


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
    parts = (torch.split(view, _BATCH) for view in (first, second))
    z1, z2 = (torch.cat([recipe.project(part) for part in view]) for view in parts)
    own, other = recipe.loss.pmi(z1, z2), recipe.loss.pmi(z1, z2.roll(1, 0))
    return {
        "pmi_mean": own.mean().item(),
        "pmi_sd": own.std().item(),
        "mismatched_mean": other.mean().item(),
        "mismatched_sd": other.std().item(),
        "retrieval": _retrieval(lambda part: recipe.loss.pmi_matrix(z1[part], z2), len(z1)),
    }


def _by_pixels(*views: Tensor) -> Answers:
    """Retrieval by the cosine of centred views."""
    flat = [view.flatten(1) for view in views]
    first, second = (normalize(view - view.mean(0), dim=1) for view in flat)
    return _retrieval(lambda part: first[part] @ second.T, len(first))


def _retrieval(scores: Callable[[Any], Tensor], rows: int) -> Answers:
    """Of the second views by the first; scores: of some of the first with every second."""
    from pointdep.retrieval.metrics import retrieval_metrics

    found = retrieval_metrics(
        lambda part: scores(part).cpu().numpy(), rows, rows, ks=(1, 10), matching=()
    )
    recall = {"recall_1": found.recall[1], "recall_10": found.recall[10]}
    return {"candidates": rows, **recall, "median_rank": found.median_rank}


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


def pd_table(answers: Sequence[Answers]) -> list[list[str]]:
    """A header, and a line per encoder, that of the pixels last."""
    rows = [
        ["", "PMI of two views", "of two images", "recall at 1", "at 10", "median rank",
         "flipped found", "AUROC"]
    ]  # fmt: skip
    for one in answers:
        views, audit, found = one["views"], one["audit"], one["views"]["retrieval"]
        pmi = [f"{views[k]:.2f}" if k in views else "-" for k in ("pmi_mean", "mismatched_mean")]
        rows.append(
            [one["of"], *pmi, f"{found['recall_1']:.2%}", f"{found['recall_10']:.2%}",
             f"{found['median_rank']:g}", f"{audit['precision']:.1%}", f"{audit['auroc']:.3f}"]
        )  # fmt: skip
    return rows


def pd_legend(answers: Sequence[Answers]) -> str:
    """What the columns are."""
    rows = answers[0]["views"]["retrieval"]["candidates"]
    audit = answers[0]["audit"]
    counts = {"flipped": audit["flipped"], "audited": audit["rows"]}
    return str(TEXTS["encoder legend"].format(rows=rows, **counts))
