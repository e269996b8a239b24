"""Small models of every kind that is saved, their rows, and what they answer.

Run as a script it fits and writes them: ``python tests/golden/models.py FOLDER``. The folders here
were written so by pointdep 0.1.0.
"""

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pointdep import ConditionalDependency, PointwiseDependency, from_embeddings, from_logits

OPTIONS = {"device": "cpu", "progress": False, "random_state": 0}
SMALL = {**OPTIONS, "hidden": (6,), "folds": 2, "max_epochs": 6, "learning_rate": 0.01}
FITS: dict[str, dict[str, Any]] = {
    "auto": {"folds": 3},
    "auto-wide": {"embedding_dim": 3, "hidden": (4,), "max_epochs": 3},
    "concat": {"critic": "concat"},
    "separable": {"critic": "separable", "embedding_dim": 4},
    "bilinear": {"critic": "bilinear"},
    "inner": {"critic": "inner"},
    "cpc": {"method": "cpc", "critic": "concat", "reference_size": 20},
    "dv": {"method": "dv", "critic": "separable", "embedding_dim": 4},
    "drf": {"method": "drf", "critic": "concat", "link": "asinh"},
    "options": {
        "method": "dm2",
        "method_options": {"eta": 2.0},
        "critic": "concat",
        "activation": "tanh",
    },
    "own-encoders": {},
    "labels": {"critic": "concat"},
    "table": {"critic": "separable", "embedding_dim": 3},
    "groups": {"critic": "concat"},
}
CALIBRATED = ("sigmoid", "softmax", "softmax_one_sided")
NAMES = (
    *FITS,
    "conditional",
    *(f"calibrated-{loss}" for loss in CALIBRATED),
    "calibrated-matrix",
    "calibrated-function",
)
ZIPPED = ("auto-wide",)
"""Large for its maps of 28 columns, which say little and pack well."""
INDICES = {
    "index-flat": ("separable", "y", "flat"),
    "index-hnsw": ("separable", "y", "hnsw"),
    "index-auto": ("auto", "x", "flat"),
}
"""Name: the model it was made with, the side of its candidates, and its kind."""


def rows(name: str, seed: int = 0, count: int = 80) -> tuple[Any, ...]:
    """What the model of this name is fitted on (seed 0), or is asked about (others)."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 3))
    y = 0.8 * x[:, :2] + 0.6 * random.normal(size=(count, 2))
    z = random.normal(size=(count, 1))
    if name == "auto-wide":  # more than 25 columns, as categories: these take little room
        return np.array([f"k{row % 26:02}" for row in range(count)]), y
    if name == "inner" or name.startswith("calibrated"):
        y = np.column_stack([y, x[:, 2] + 0.6 * z[:, 0]])
    if name == "calibrated-matrix":
        return np.arange(count), np.arange(count)
    if name == "labels":
        return x, np.array(["no", "perhaps", "yes"])[np.digitize(y[:, 0], [-0.4, 0.4])]
    if name == "table":
        import pandas as pd

        left = {"a": x[:, 0], "b": x[:, 1], "kind": np.where(x[:, 2] > 0, "warm", "cold")}
        return pd.DataFrame(left), pd.DataFrame({"c": y[:, 0], "up": y[:, 1] > 0})
    return (x, y, x[:, :1] + z) if name == "conditional" else (x, y)


def function(x: Any, y: Any) -> torch.Tensor:
    """Logits of a model of the user's own."""
    first, second = (torch.as_tensor(side, dtype=torch.float32) for side in (x, y))
    return 1.5 * first @ second.T - 0.5 * second.square().sum(-1)


def own_encoders() -> tuple[torch.nn.Module, torch.nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Linear(3, 4), torch.nn.Linear(2, 4)


def own_critic(name: str) -> Any:
    """What must be given again to read the model of this name."""
    return {"own-encoders": own_encoders(), "calibrated-function": function}.get(name)


def images() -> Any:
    """4 x 4 images of four classes, to pre-train on."""
    from pointdep.data.images import ImageSet

    random, labels = np.random.default_rng(0), np.arange(64) % 4
    colours = random.integers(60, 200, (4, 3, 1, 1))
    noise = random.integers(-40, 40, (64, 3, 4, 4))
    pixels = torch.from_numpy((colours[labels] + noise).clip(0, 255).astype(np.uint8))
    kinds = torch.from_numpy(labels)
    parts = pixels[:32], kinds[:32], pixels[32:], kinds[32:]
    return ImageSet("colours", *parts, classes=("a", "b", "c", "d"), source="four colours")


def fit(name: str) -> Any:
    data = rows(name)
    if name == "conditional":
        return ConditionalDependency(
            PointwiseDependency(**SMALL, critic="concat"), random_state=0, progress=False
        ).fit(*data)
    if name == "calibrated-matrix":
        x, y = rows("calibrated-sigmoid")
        return from_logits(function(x, y).numpy(), **OPTIONS)
    if name == "calibrated-function":
        return from_logits(function, *data, loss="softmax_one_sided", **OPTIONS)
    if name.startswith("calibrated"):
        loss = name.removeprefix("calibrated-")
        return from_embeddings(*data, loss=loss, normalize=False, **OPTIONS)
    critic = {"critic": own_encoders()} if name == "own-encoders" else {}
    groups = np.repeat(np.arange(20), 4) if name == "groups" else None
    return PointwiseDependency(**{**SMALL, **FITS[name], **critic}).fit(*data, groups=groups)


def answers(name: str, model: Any) -> dict[str, Any]:
    """What a model says, as JSON."""
    fresh = rows(name, seed=1, count=12)
    found = {
        "oof_pmi": model.oof_pmi_[:12].tolist(),
        "pmi": model.pmi(*fresh).tolist(),
        "nats": model.mutual_information().nats,
        "nats_given": model.mutual_information(*fresh).nats,
        "flags": [flag.name for flag in model.flags_],
    }
    if not name.startswith(("conditional", "calibrated")):
        found["stderr"] = model.mutual_information().stderr
        found["pmi_stderr"] = model.pmi_stderr(*fresh).tolist()
        found["outside"] = model.outside(*fresh).tolist()
    if name.startswith("calibrated"):
        found |= {"slope": model.slope_, "shift": model.shift_}
    return found


def retrieved(model: Any, side: str, candidates: Any) -> dict[str, Any]:
    """The best candidates of an index; side: theirs."""
    asked = rows("separable", seed=1, count=12)[1 if side == "x" else 0]
    queries = "y" if side == "x" else "x"
    found = model.retrieve(asked, candidates, k=3, queries=queries)
    return {"indices": found.indices.tolist(), "pmi": found.pmi.tolist()}


def write(folder: Path) -> None:
    """Every model in a folder of its own, and what they answer in ``answers.json``."""
    from pointdep.contrastive import Settings, pretrain

    models, said = {name: fit(name) for name in NAMES}, {}
    for name, model in models.items():
        model.save(folder / name)
        said[name] = answers(name, model)
        if name in ZIPPED:
            shutil.make_archive(str(folder / name), "zip", folder / name)
            shutil.rmtree(folder / name)
    for name, (of, side, kind) in INDICES.items():
        index = models[of].index(rows(of)[0 if side == "x" else 1], side=side, kind=kind)
        index.save(folder / name)
        said[name] = retrieved(models[of], side, index)
    settings = Settings(
        "shallow", ("cpc", "drfc"), epochs=1, batch_size=16, width=3, depth=1, precision="32"
    )
    done = pretrain(images(), settings, device="cpu")
    done.encoder.save(folder / "encoder")
    features = done.encoder.encode(images().test[:4])
    said["encoder"] = {"shape": list(features.shape), "first": features[..., :6].tolist()}
    (folder / "answers.json").write_text(json.dumps(said, indent=1), "utf-8")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    write(place)
