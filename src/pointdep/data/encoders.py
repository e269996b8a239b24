"""The encoder of one side, built in or named by the user, and the cache of what named ones gave.

A name is a model of sentence-transformers, open_clip or transformers, or a folder with one, or an
encoder of ``pointdep pretrain``. ``library:name`` says which library is meant.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pointdep.data.features import BUILT_IN, SIDE, Array32, Encoder, Told
from pointdep.data.files import reading
from pointdep.data.media import RawRows, is_missing, telling
from pointdep.data.raw import Array
from pointdep.errors import InputError


class Tower(Protocol):
    """Embeds rows of one or both kinds; takes: kind -> contents of rows to (n, width)."""

    takes: Mapping[str, Callable[[Sequence[Any]], Any]]


def split_name(name: str) -> tuple[str, str]:
    """The library of an encoder, and what it calls it."""
    library, colon, own = name.partition(":")
    if colon and library in _LOADERS:
        return library, own
    folder = Path(name).expanduser()
    if folder.is_dir():
        for file, found in _MARKS.items():
            if (folder / file).exists():
                return found, str(folder)
        raise InputError(f"encoder {name!r} is a folder without any of {', '.join(_MARKS)}")
    low = name.lower()
    if low.startswith(("hf-hub:", "vit-", "rn50", "rn101", "convnext", "coca", "eva0")):
        return "open_clip", name
    of_towers = "clip" in low or "siglip" in low
    return ("transformers" if of_towers else "sentence-transformers"), name


_MARKS = {
    "modules.json": "sentence-transformers",
    "model.json": "pretrain",
    "open_clip_config.json": "open_clip",
    "config.json": "transformers",
}
"""Files by which a folder shows whose model it holds."""


@functools.lru_cache(maxsize=2)
def load_tower(name: str, device: str) -> Tower:
    """The named encoder, ready on a device."""
    library, own = split_name(name)
    loader = _LOADERS[library]
    with reading(f"encoder {name!r}", f"no model of {library}"):
        try:
            if isinstance(loader, str):
                module, function = loader.split(":")
                loader = getattr(importlib.import_module(module), function)
            made: Tower = loader(own, device)
        except ImportError as error:
            extra = "images" if library == "open_clip" else "text"
            needed = f'needs {library}: pip install "pointdep[{extra}]"'
            raise InputError(f"encoder {name!r} {needed} ({error})") from None
    return made


class _Sentences:
    """A model of sentence-transformers, for texts, or for pictures if it is a CLIP model."""

    def __init__(self, name: str, device: str) -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(name, device=device)
        self.takes = {"text": self._encode, "picture": self._pictures}

    def _encode(self, values: Sequence[Any]) -> Any:
        how: dict[str, Any] = {"convert_to_numpy": True, "show_progress_bar": False}
        return self._model.encode(list(values), batch_size=len(values), **how)

    def _pictures(self, values: Sequence[Any]) -> Any:
        from PIL import Image

        return self._encode([Image.fromarray(value) for value in values])


class _OpenClip:
    """Both towers of a model of open_clip: NAME, NAME/PRETRAINED, hf-hub:NAME or a folder."""

    def __init__(self, name: str, device: str) -> None:
        import open_clip

        given, tag = name, None
        if Path(name).is_dir():
            given = f"local-dir:{name}"
        elif not name.startswith("hf-hub:"):
            given, _, tag = name.partition("/")
        made = open_clip.create_model_and_transforms(given, pretrained=tag or None, device=device)
        self._model, self._prepare = made[0].eval(), made[2]
        self._tokenize, self._device = open_clip.get_tokenizer(given), device
        self.takes = {"text": self._texts, "picture": self._pictures}

    def _texts(self, values: Sequence[Any]) -> Any:
        return self._model.encode_text(self._tokenize(list(values)).to(self._device))

    def _pictures(self, values: Sequence[Any]) -> Any:
        import torch
        from PIL import Image

        pixels = torch.stack([self._prepare(Image.fromarray(value)) for value in values])
        return self._model.encode_image(pixels.to(self._device))


class _Transformers:
    """CLIP, SigLIP and their kin: both towers. Other models: the mean of what they say of tokens,
    or for pictures their pooled output."""

    def __init__(self, name: str, device: str) -> None:
        from transformers import AutoConfig, AutoModel

        config = AutoConfig.from_pretrained(name)
        self._name, self._device, self._config = name, device, config
        self._model = AutoModel.from_pretrained(name).to(device).eval()
        self.takes = {"text": self._texts, "picture": self._pictures}

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._name)

    @functools.cached_property
    def _processor(self) -> Any:
        from transformers import AutoImageProcessor

        return AutoImageProcessor.from_pretrained(self._name)

    def _texts(self, values: Sequence[Any]) -> Any:
        # SigLIP was trained on texts that are all of one length.
        padding = "max_length" if "siglip" in self._config.model_type else True
        own = getattr(self._config, "text_config", self._config)
        longest = getattr(own, "max_position_embeddings", None) or 512
        how: dict[str, Any] = {"padding": padding, "truncation": True, "max_length": longest}
        tokens = self._tokenizer(list(values), return_tensors="pt", **how).to(self._device)
        if hasattr(self._model, "get_text_features"):
            return _pooled(self._model.get_text_features(**tokens))
        found = self._model(**tokens).last_hidden_state
        weights = tokens["attention_mask"].unsqueeze(-1).to(found.dtype)
        return (found * weights).sum(1) / weights.sum(1).clamp(min=1)

    def _pictures(self, values: Sequence[Any]) -> Any:
        pixels = self._processor(images=list(values), return_tensors="pt").to(self._device)
        if hasattr(self._model, "get_image_features"):
            return _pooled(self._model.get_image_features(**pixels))
        return _pooled(self._model(**pixels))


def _pooled(found: Any) -> Any:
    """A tensor (n, width) of what a tower gives, which is another thing in each version."""
    pooled = getattr(found, "pooler_output", None)
    if pooled is not None:
        return pooled.flatten(1)
    hidden = getattr(found, "last_hidden_state", None)
    return found if hidden is None else hidden.mean(1)


_LOADERS: dict[str, Any] = {
    "sentence-transformers": _Sentences,
    "open_clip": _OpenClip,
    "transformers": _Transformers,
    # By name, as its room is below this one.
    "pretrain": "pointdep.contrastive.pretraining.pretrained:as_tower",
}


# Embeddings that were made before.


def cache_folder() -> Path:
    """Where embeddings of named encoders are kept; the variable POINTDEP_CACHE chooses it."""
    given = os.environ.get("POINTDEP_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(given) if given else Path(home) / "pointdep"


class _Cache:
    """Rows by the digest of their content, in one folder per encoder and kind."""

    def __init__(self, name: str, kind: str) -> None:
        library, own = split_name(name)
        said = [library, own, kind]
        if Path(own).is_dir():  # another model may take its place
            said += [f"{p.name} {p.stat().st_mtime_ns}" for p in sorted(Path(own).iterdir())]
            said[1] = str(Path(own).resolve())
        digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
        self.folder = cache_folder() / "embeddings" / digest

    def read(self) -> dict[bytes, Array32]:
        """All that is there; damaged files count as absent."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        found: dict[bytes, Array32] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                part = load_file(path)
                found |= zip((k.tobytes() for k in part["keys"]), part["values"], strict=True)
            except (SafetensorError, OSError, KeyError, ValueError):
                continue
        return found

    def write(self, keys: Sequence[bytes], values: Array32) -> None:
        """Keep further rows; where that is not possible they are made again next time."""
        from safetensors.numpy import save

        packed = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
        name = hashlib.sha256(packed.tobytes()).hexdigest()[:16]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            scratch = self.folder / f".{name}.{os.getpid()}"
            scratch.write_bytes(save({"keys": packed.copy(), "values": values}))
            scratch.replace(self.folder / f"{name}.safetensors")
        except OSError:
            return


def _digest(kind: str, value: Any) -> bytes:
    """Of the content of one row, as it is given to its encoder."""
    if kind == "text":
        content = value.encode("utf-8", "surrogatepass")
    else:
        content = f"{value.shape} {value.dtype}".encode() + value.tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


_BATCH, _KEPT_TOGETHER = 64, 1024  # rows given to an encoder, and read and kept, at a time


def embed_rows(rows: RawRows, size: int | None = None) -> tuple[Array32, dict[int, str]]:
    """(n, width) of rows that name an encoder, NaN for those with a reason, and the reasons.

    Content that was embedded before comes from the cache.
    """
    name = str(rows.encoder)
    cache, count = _Cache(name, rows.kind), len(rows)
    known, found, reasons = cache.read(), dict[int, Array32](), dict[int, str]()
    for start in range(0, count, _KEPT_TOGETHER):
        contents, own = rows[start : start + _KEPT_TOGETHER].contents(size)
        reasons |= {start + row: reason for row, reason in own.items()}
        keys = {row: _digest(rows.kind, c) for row, c in enumerate(contents) if c is not None}
        fresh = {key: contents[row] for row, key in keys.items() if key not in known}
        if fresh:
            made = _embedded(name, rows.kind, list(fresh.values()))
            cache.write(list(fresh), made)
            known |= zip(fresh, made, strict=True)
        found |= {start + row: known[key] for row, key in keys.items()}
        if rows.told is not None:
            rows.told(min(start + _KEPT_TOGETHER, count), count)
    if not found:
        raise nothing_readable(rows.kind, reasons)
    values = np.full((count, len(next(iter(found.values())))), np.nan, np.float32)
    for row, numbers in found.items():
        values[row] = numbers
    return values, reasons


def _embedded(name: str, kind: str, contents: Sequence[Any]) -> Array32:
    import torch

    tower = load_tower(name, "cuda" if torch.cuda.is_available() else "cpu")
    if kind not in tower.takes:
        raise InputError(f"encoder {name!r} takes no {kind}s: name another, or leave it out")
    made = []
    for start in range(0, len(contents), _BATCH):
        with torch.inference_mode():
            values = tower.takes[kind](contents[start : start + _BATCH])
        values = values.float().cpu().numpy() if isinstance(values, torch.Tensor) else values
        made.append(np.asarray(values, np.float32))
    return np.concatenate(made)


def nothing_readable(kind: str, reasons: Mapping[int, str]) -> InputError:
    """The error where all rows have a reason."""
    row, reason = next(iter(reasons.items()))
    return InputError(f"none of the {kind}s can be read; row {row}: {reason}")


# One side's encoder.


class Front:
    """How a side of texts, pictures or sounds becomes numbers, the same in the fit and after.

    kind, column: as in RawRows. name: of an encoder that the user named, or None for a built-in
    one, which is `encoder`.
    """

    def __init__(
        self, kind: str, column: str | None, name: str | None, encoder: Encoder | None
    ) -> None:
        self.kind, self.column, self.name, self.encoder = kind, column, name, encoder

    @property
    def described(self) -> str:
        """What results say about it."""
        return f"{self.kind}s by {self.name or (self.encoder and self.encoder.described)}"

    @classmethod
    def fit(cls, rows: RawRows) -> tuple[Front, Array32, dict[int, str]]:
        """Learn from all rows; their numbers (n, width), NaN for those with a reason."""
        encoder = None if rows.encoder else BUILT_IN[rows.kind]()
        front = cls(rows.kind, rows.column, rows.encoder, encoder)
        if encoder is None:
            return front, *embed_rows(rows)
        return front, *_encoded(rows, encoder.fit)

    def transform(self, rows: RawRows) -> tuple[Array32, dict[int, str]]:
        """The numbers of other rows, in the same way."""
        if rows.kind != self.kind:
            raise InputError(f"the model was fitted on {self.kind}s, not on {rows.kind}s")
        if self.encoder is None:
            return embed_rows(replace(rows, encoder=self.name))
        values, reasons = _encoded(rows, self.encoder.transform)
        return values, reasons

    def require_width(self, width: int) -> None:
        """ValueError unless a built-in encoder gives so many numbers per row."""
        if self.encoder is not None and self.encoder.width != width:
            raise ValueError(f"its encoder gives {self.encoder.width} numbers, not {width}")

    def wrap(self, values: Any) -> RawRows | None:
        """Values as rows of this kind, if they are no numbers."""
        from pointdep.data.media import as_images, as_sounds, as_text

        if hasattr(values, "columns"):
            names = list(values.columns)
            if len(names) > 1 and self.column not in names:
                return None  # which the encoder refuses
            values = values[self.column if len(names) > 1 else names[0]]
        first = values
        if not isinstance(values, str | Path):
            first = next((one for one in values if not is_missing(one)), None)
        if not isinstance(first, str | bytes | Path):
            return None
        made = {"text": as_text, "picture": as_images, "sound": as_sounds}[self.kind]
        rows: RawRows = made(values)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """What JSON holds of it; `arrays` are the rest."""
        return {"kind": self.kind, "column": self.column, "encoder": self.name}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {} if self.encoder is None else self.encoder.arrays

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], arrays: Mapping[str, Array]) -> Front:
        """What to_dict and arrays described."""
        kind, name = saved["kind"], saved["encoder"]
        encoder = None if name is not None else BUILT_IN[kind](arrays)
        return cls(kind, saved["column"], name, encoder)


def _encoded(rows: RawRows, encode: Callable[..., Array32]) -> tuple[Array32, dict[int, str]]:
    """(n, width) by a built-in encoder, NaN for rows with a reason, and the reasons."""
    contents, reasons = rows.contents(SIDE if rows.kind == "picture" else None)
    kept = [row for row in range(len(rows)) if row not in reasons]
    if not kept:
        raise nothing_readable(rows.kind, reasons)
    values = encode([contents[row] for row in kept], rows.told)
    found = np.full((len(rows), values.shape[1]), np.nan, np.float32)
    found[kept] = values
    return found, reasons


def embed(rows: RawRows, told: Told | None = None) -> Array32:
    """The numbers (n, width) of texts, pictures or sounds; NaN for those that cannot be read.

    By the encoder that `rows` names, or by the built-in one, which is learned from these rows.
    """
    if not isinstance(rows, RawRows):
        raise InputError("embed takes what as_text, as_images and as_sounds give")
    return Front.fit(rows if told is None else telling(rows, told))[1]
