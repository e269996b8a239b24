"""A saved model as bytes, which go to the workers: they need no folder that all machines share."""

from __future__ import annotations

import hashlib
import importlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pointdep.cluster.places import Place
from pointdep.core.registry import is_path
from pointdep.data.storage import MODEL_FILES
from pointdep.errors import ModelFileError
from pointdep.estimators.pointwise import PointwiseDependency


@dataclass(frozen=True)
class SavedModel:
    """The files of a model's folder.

    fingerprint: of all that the model is. imports: modules of the user's own method and critic,
    which the process that read the model had imported.
    """

    files: dict[str, bytes]
    fingerprint: str
    imports: tuple[str, ...] = ()

    @property
    def list_columns(self) -> tuple[str | None, str | None]:
        """Of x and of y: the column of lists that the model was fitted on, where it was one."""
        about = json.loads(self.files[MODEL_FILES[0]])
        x, y = (about[f"encoder_{side}"].get("list_column") for side in "xy")
        return x, y

    def load(self, device: str) -> PointwiseDependency:
        for module in self.imports:
            importlib.import_module(module)
        with tempfile.TemporaryDirectory(prefix="pointdep-") as scratch:
            return _load(self.files, Path(scratch), device)


def read_model(place: Place) -> SavedModel:
    """Read it and make sure that it is whole; ModelFileError otherwise."""
    if place.kind() != "folder":
        raise ModelFileError(f"no model at {place}: there is no such folder")
    there = place.files()
    files = {name: (place / name).read_bytes() for name in MODEL_FILES if name in there}
    with tempfile.TemporaryDirectory(prefix="pointdep-") as scratch:
        try:
            params = _load(files, Path(scratch), "cpu").fit_params_
        except ModelFileError as error:
            raise ModelFileError(str(error).replace(scratch, str(place))) from None
    chosen = (params.get("method"), params.get("critic"))
    imports = tuple(name.partition(":")[0] for name in chosen if is_path(name))
    # model.json names the digest of the weights.
    return SavedModel(files, hashlib.sha256(files[MODEL_FILES[0]]).hexdigest(), imports)


def _load(files: dict[str, bytes], scratch: Path, device: str) -> PointwiseDependency:
    for name, content in files.items():
        (scratch / name).write_bytes(content)
    found: PointwiseDependency = PointwiseDependency.load(scratch, device=device)
    found.progress = False
    return found
