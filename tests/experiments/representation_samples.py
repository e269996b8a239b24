"""Folders with runs that were never trained, and small sets of images."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import torch

from pointdep.data.images import ImageSet
from pointdep.experiments.pretraining_runs import Curve, Pixels
from pointdep.experiments.reports import write_json
from pointdep.experiments.representations import Experiment

DATA = {"name": "mnist", "source": "MNIST", "lossy": False, "train": 60_000, "test": 10_000}
PIXELS = Pixels(0.8, 0.81, True, "upper half", "minmax", 10.0, 60_000, 10_000, 10)
WHOLE = {"of": "whole image", "scaling": "standard", "C": 0.1}
TINY = {
    "dataset": "digits", "seeds": 2, "length": 12, "evaluate_every": 4, "width": 8, "depth": 2,
    "batch_size": 16, "learning_rate": 0.01,
}  # fmt: skip


def curve(objective, seed, *accuracy, every=1000):
    """Evaluated every so many steps, of which an epoch has 100 and a minute 60."""
    steps = tuple(every * (k + 1) for k in range(len(accuracy)))
    epochs, seconds = tuple(s / 100 for s in steps), tuple(float(s) for s in steps)
    return Curve("run", objective, seed, steps, epochs, seconds, tuple(accuracy))


def write_run(folder: Path, experiment: Experiment, accuracy, data=None, **more):
    """accuracy: {(objective, seed): shares at the evaluations}, a rectangle of both.

    more: other entries of run.json.
    """
    objectives = tuple(dict.fromkeys(objective for objective, _ in accuracy))
    seeds = tuple(dict.fromkeys(seed for _, seed in accuracy))
    settings = experiment.pretraining(objectives, seeds)
    looks = zip(*(accuracy[pair] for pair in settings.runs), strict=True)
    history = [
        {"step": 1000 * k, "epoch": 2.0 * k, "seconds": 30.0 * k, "linear": list(values)}
        for k, values in enumerate(looks, 1)
    ]
    about = {
        "data": {**DATA, **(data or {})},
        "settings": settings.as_dict(),
        "where": {"device": "cuda", "precision": "32-true"},
        "history": [{"step": 1, "epoch": 0.0, "seconds": 0.0, "loss": [1.0]}, *history],
        **more,
    }
    place = folder / "runs" / f"{'+'.join(objectives)}-{'+'.join(map(str, seeds))}"
    place.mkdir(parents=True)
    (place / "run.json").write_text(json.dumps(about))
    # The baseline, as measured for the experiment on these images.
    whole = {} if experiment.part == "shallow" else WHOLE
    counts = {name: about["data"][name] for name in ("train", "test")}
    origin = {"part": experiment.part, "data": about["data"], "limit": experiment.limit}
    write_json(folder / "pixels.json", asdict(replace(PIXELS, **whole, **counts, origin=origin)))
    return place


def no_images():
    raise AssertionError("the images are not needed")


def some_images(rows: int = 64, side: int = 8, noise: int = 40) -> ImageSet:
    """Four classes, each with a pattern of its own under noise; named digits for its settings."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(60, 200, (4, 1, side, side), generator=generator)
    labels = torch.arange(2 * rows) % 4
    grain = torch.randint(-noise, noise, (2 * rows, 1, side, side), generator=generator)
    pixels = (patterns[labels] + grain).clamp(0, 255).to(torch.uint8)
    parts = pixels[:rows], labels[:rows], pixels[rows:], labels[rows:]
    return ImageSet("digits", *parts, ("a", "b", "c", "d"), "four patterns")
