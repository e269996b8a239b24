"""Models on disk: a folder with ``model.json`` and ``weights.safetensors``. Nothing is executed."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from pointdep.data.atomic import replaced_folder, steady, try_folder
from pointdep.errors import InputError, ModelFileError

FORMAT, FORMAT_VERSION = "pointdep-model", 2
MODEL_FILES = _ABOUT, _WEIGHTS = "model.json", "weights.safetensors"
_OF_ROWS = ("oof_pmi", "oof_values", "oof", "mi_values")  # NaN for rows that none reports
_UNLIMITED = ("values", "far", "seen")


def write_model(path: Path, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write the folder next to its place and move it there: a half-written one never shows."""
    check_target(path)
    weights = save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})
    digest = hashlib.sha256(weights).hexdigest()
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "weights_sha256": digest}
    about = head | about | head  # first in the file, and not to be overruled
    about["about_sha256"] = digest_of(about)
    with replaced_folder(path) as new:
        (new / _WEIGHTS).write_bytes(weights)
        (new / _ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False), "utf-8")


def check_target(path: Path, parts: Collection[str] = ()) -> None:
    """Refuse, before any work is done, a place where a model cannot be written.

    parts: models that it holds as folders.
    """
    require_target(path, {_ABOUT, _WEIGHTS, *parts}, _read_about, "a model")


def require_target(path: Path, own: set[str], read: Callable[[Path], object], what: str) -> None:
    """Saving replaces the whole folder, so it may hold such a thing and nothing else.

    own: names of its files; read: raises ModelFileError where it is none; what: "a model".
    """
    if path.is_file():
        raise InputError(f"{path} is a file; {what} is saved as a folder: choose another name")
    found = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    foreign = found - own
    if not foreign and found:
        try:
            read(path)
        except ModelFileError:
            foreign = found
    if foreign:
        wanted = f"choose an empty or new folder, or one with nothing but {what}"
        raise InputError(f"{path} holds other files, such as {min(foreign)}: {wanted}")
    parent = path.resolve().parent
    if not parent.is_dir():
        what = "is a file, not a folder" if parent.exists() else "does not exist: make it first"
        raise InputError(f"cannot write {path}: {parent} {what}")
    try:
        # Trying is surer than asking: permission bits do not bind every user or file system.
        try_folder(path)
    except OSError as error:
        reason = f"nothing can be written in {parent} ({error.strerror or error})"
        raise InputError(f"{reason}: choose another place") from None


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the folder back; anything that is not what `write_model` wrote is one clear error."""
    return steady(path, lambda: _read_model(path))


def _read_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    about = _read_about(path)
    version = about.get("format_version")
    if not isinstance(version, int):
        raise ModelFileError(f"{path / _ABOUT} names no format version: it is damaged")
    if version != FORMAT_VERSION:
        newer = version > FORMAT_VERSION
        age, remedy = ("a newer", "upgrade pointdep") if newer else ("an earlier", "fit again")
        reads = f"format {version}, this version reads {FORMAT_VERSION}"
        raise ModelFileError(f"{path} was written by {age} pointdep ({reads}): {remedy}")
    if about.pop("about_sha256", None) != digest_of(about):
        raise ModelFileError(f"{path / _ABOUT} was edited or damaged after it was saved")
    weights = checked_part(path, _WEIGHTS, about.get("weights_sha256"), "model")
    return about, read_tensors(weights, _OF_ROWS)


def peek(path: Path) -> dict[str, Any] | None:
    """What is said about a saved model, unchecked; None where there is none."""
    try:
        return _read_about(path)
    except ModelFileError:
        return None


def _read_about(path: Path) -> dict[str, Any]:
    return read_description(path, _ABOUT, FORMAT, "a model")


def read_description(path: Path, name: str, kind: str, what: str) -> dict[str, Any]:
    """The JSON file that describes a saved folder; ModelFileError if it is not of this kind.

    name: of the file; kind: its "format"; what: "a model".
    """
    noun = what.rsplit(maxsplit=1)[-1]
    if not path.exists():
        raise ModelFileError(f"no {noun} at {path}: there is no such folder")
    if not path.is_dir():
        raise ModelFileError(f"{path} is a file; {what} is a folder with {name} in it")
    try:
        about = json.loads((path / name).read_text("utf-8"))
    except FileNotFoundError:
        raise ModelFileError(f"{path} is not {what}: it has no {name}") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path / name}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path / name} is truncated or not JSON") from None
    if not isinstance(about, dict) or about.get("format") != kind:
        raise ModelFileError(f"{path / name} is not a pointdep {noun}")
    return about


def read_tensors(path: Path, may_be_nan: Collection[str] = ()) -> dict[str, Tensor]:
    """The tensors of a file that `checked_part` let pass; may_be_nan: those that may hold NaN."""
    try:
        found = load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from None
    for name, tensor in found.items():
        # Infinity stands for "no limit" in the maps of a column, and is nowhere else.
        odd = tensor.isnan() if name.rpartition(".")[2] in _UNLIMITED else ~tensor.isfinite()
        if name not in may_be_nan and bool(odd.any()):
            raise ModelFileError(f"{path} holds numbers that are not finite in {name}: fit again")
    return found


def require_kinds(told: Mapping[str, Any], kind: Any, refused: Collection[str] = ()) -> None:
    """TypeError unless the entries are what the annotations of a class say of its fields.

    refused: fields that are never saved, such as the place of a checkpoint.
    """
    hints = get_type_hints(kind)
    for name, value in told.items():
        if name in refused or not _conforms(value, hints.get(name, Any)):
            raise TypeError(f"{name}={value!r:.60}")


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value that was read from JSON is of a type, as far as JSON knows it."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_conforms(value, part) for part in parts)
    if origin is tuple and Ellipsis not in parts:
        told = value if isinstance(value, list) and len(value) == len(parts) else None
        return told is not None and all(map(_conforms, told, parts))
    if origin in (list, tuple, Sequence):
        return isinstance(value, list) and all(_conforms(part, parts[0]) for part in value)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else origin or hint)


def require_shapes(like: Callable[[], nn.Module], tensors: Mapping[str, Tensor]) -> None:
    """ValueError unless these tensors fill the module, which is made without its memory.

    A file may ask for layers of any size: this is known before any is allocated.
    """
    with torch.device("meta"):
        module = like()
    with suppress(RuntimeError):  # of other shapes, which are told below
        # Tables take the shapes that the rows of their fit have decided.
        module.load_state_dict({n: t.to("meta") for n, t in tensors.items()}, strict=False)
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    for name, shape in wanted.items():
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        if found != shape and 0 not in shape:  # which would be filled as long as the file's
            raise ValueError(f"{name} needs the shape {shape}, but there is {found}")


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def checked_part(path: Path, name: str, claimed: object, noun: str) -> Path:
    """The file of this name in the folder, if it has the SHA-256 that was written with it."""
    try:
        found = file_digest(path / name)
    except OSError:
        raise ModelFileError(f"{path} has no readable {name}: copy the whole folder") from None
    if found != claimed:
        raise ModelFileError(f"{path / name} is truncated, edited or of another {noun}")
    return path / name


def digest_of(about: dict[str, Any]) -> str:
    """The SHA-256 of a description, whatever the order and the layout of its entries."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
