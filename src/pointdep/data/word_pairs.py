"""Words with a vector of their sound and one of their text: two .vec files, or one .npz."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointdep.data.files import read_npz, read_vec_pair, reading
from pointdep.errors import InputError

_KEYS = ("words", "audio", "text")


@dataclass(frozen=True, eq=False)
class WordPairs:
    """words: (n,) strings, no two the same; audio: (n, dx) and text: (n, dy), float32, finite."""

    words: NDArray[np.str_]
    audio: NDArray[np.float32]
    text: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.words)


def read_word_pairs(
    *, audio: Path | None = None, text: Path | None = None, data: Path | None = None
) -> WordPairs:
    """The pairs of two .vec files, `audio` and `text`, or of one .npz file, `data`."""
    if data is not None and (audio is not None or text is not None):
        raise InputError("--data stands alone: give either it or --audio and --text")
    if data is not None:
        return read_npz_pairs(data)
    if audio is None or text is None:
        raise InputError("give the word vectors: --audio FILE.vec and --text FILE.vec, or --data")
    words, heard, read = read_vec_pair(audio, text)
    return _checked(f"{audio}", words, {f"{audio}": heard, f"{text}": read})


def read_npz_pairs(path: Path) -> WordPairs:
    """An archive with `words` (strings or bytes), `audio` and `text` (a row a word)."""
    arrays = read_npz(path, _KEYS)
    words = arrays["words"]
    if words.ndim != 1 or words.dtype.kind not in "US":
        raise InputError(f"{path}: words must be one column of strings, not {words.dtype}")
    for key in _KEYS[1:]:
        side = arrays[key]
        if side.ndim != 2 or side.dtype.kind not in "fiu" or len(side) != len(words):
            raise InputError(f"{path}: {key} must be numbers, a row for each word: {side.shape}")
    with reading(path, "not UTF-8 text"):
        text = words if words.dtype.kind == "U" else np.char.decode(words, "utf-8")
    return _checked(f"{path}", text.tolist(), {f"{path}, {key}": arrays[key] for key in _KEYS[1:]})


def _checked(path: str, words: Sequence[str], sides: dict[str, NDArray[Any]]) -> WordPairs:
    """InputError for a word that comes twice, or a number that is none."""
    seen: dict[str, int] = {}
    for row, word in enumerate(words):
        if word in seen:
            raise InputError(f"{path}: {word!r} stands in row {seen[word]} and in row {row}")
        seen[word] = row
    for name, side in sides.items():
        broken = np.flatnonzero(~np.isfinite(side).all(1))
        if len(broken):
            row = broken[0]
            raise InputError(f"{name}: the vector of {words[row]!r} (row {row}) is not finite")
    audio, text = (np.asarray(side, dtype=np.float32) for side in sides.values())
    return WordPairs(np.array(words), audio, text)
