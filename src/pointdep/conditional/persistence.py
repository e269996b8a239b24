"""A folder with the two models in it, and how Y and Z are read."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from pointdep import storage
from pointdep.conditional.parts import FIT_OF, JOINT, MARGINAL
from pointdep.conditional.sides import Conditions
from pointdep.errors import InputError, ModelFileError
from pointdep.estimator import PointwiseDependency

_KIND = "conditional"  # the key under which model.json says what is only found here
_ABOUT, _WEIGHTS = "model.json", "weights.safetensors"


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator beside its place and move it there, as one folder."""
    _check_target(path)
    path = path.resolve()
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
            parts = {part: Path(scratch, part) for part in FIT_OF}
            for part, place in parts.items():
                getattr(estimator, f"{part}_").save(place)
            new, old = Path(scratch, "new"), Path(scratch, "old")
            about = {
                "params": _params(estimator),
                "sides": estimator.conditions_.to_dict(),
                "sha256": {part: _digest(place) for part, place in parts.items()},
            }
            storage.write_model(new, {_KIND: about}, {})
            for part, place in parts.items():
                place.replace(new / part)
            storage.put_in_place(new, path, aside=old)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None


def load(
    path: Path, *, device: str
) -> tuple[dict[str, Any], PointwiseDependency, PointwiseDependency, Conditions]:
    """The constructor's options, the joint and the marginal model, and how Y and Z are read."""
    about, _ = storage.read_model(path)
    if _KIND not in about:
        raise ModelFileError(f"{path} is a model of pairs: read it with PointwiseDependency.load")
    try:
        saved = about[_KIND]
        params, discrete_y = dict(saved["params"]), saved["params"]["discrete_y"]
        conditions = Conditions.from_dict(saved["sides"])
        digests = {part: saved["sha256"][part] for part in FIT_OF}
    except (KeyError, TypeError, InputError) as error:
        raise ModelFileError(f"{path} lacks a part or holds a wrong one: {error}") from None
    models = {part: PointwiseDependency.load(path / part, device=device) for part in FIT_OF}
    for part, digest in digests.items():
        if _digest(path / part) != digest:
            raise ModelFileError(f"{path / part} belongs to another model than {path / _ABOUT}")
    del params["discrete_y"]
    prototype = clone(models[JOINT]).set_params(discrete_y=discrete_y, random_state=None)
    return {"estimator": prototype, **params}, models[JOINT], models[MARGINAL], conditions


def _params(estimator: Any) -> dict[str, Any]:
    """The options that the two models do not hold, as JSON."""
    given, seed = estimator.estimator, estimator.random_state
    if seed is None and given is not None:
        seed = given.random_state
    return {
        "discrete_y": None if given is None else given.discrete_y,
        "discrete_z": estimator.discrete_z,
        "random_state": int(seed) if isinstance(seed, int | np.integer) else None,
    }


def _digest(part: Path) -> str:
    """Of the file that holds the digests of all else of a model."""
    return hashlib.sha256((part / _ABOUT).read_bytes()).hexdigest()


def _check_target(path: Path) -> None:
    """As for any model, but a folder that holds one of these, and no more, may be replaced."""
    if path.is_dir() and {e.name for e in path.iterdir()} == {_ABOUT, _WEIGHTS, *FIT_OF}:
        try:
            about, _ = storage.read_model(path)
        except ModelFileError:
            about = {}
        if _KIND in about:
            return
    storage.check_target(path)
