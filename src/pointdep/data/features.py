"""Built-in encoders: texts, pictures and sounds as numbers, learned from one side alone.

Nothing is downloaded, and the other side is never looked at: pairs cannot leak into the numbers.
Each encoder answers `fit(values)`, `transform(values)`, and keeps its state in `arrays`, plain
arrays that are saved with a model. What transform makes of a row depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array32 = NDArray[np.float32]
Told = Callable[[int, int], None]
"""Called with how many rows are done and how many there are."""

_SEED = 0
_BATCH = 64  # pictures that are encoded at a time


def width_for(rows: int, most: int) -> int:
    """How many numbers to describe each of so many rows by: more than these cannot be learned."""
    return int(np.clip(rows // 8, 16, most))


def _parts(values: Sequence[Any], size: int, told: Told | None) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
        if told is not None:
            told(min(start + size, len(values)), len(values))


def _principal(rows: Array32, width: int, spread: float) -> tuple[Array32, Array32]:
    """The mean of rows (n, d), and (d, k) of its k <= width directions of greatest variance.

    spread: how much is left of the differences between their standard deviations: 1 for all, as in
    plain principal components, 0 for none, as after whitening.
    """
    from sklearn.utils.extmath import randomized_svd

    mean = rows.mean(0, dtype=np.float64).astype(np.float32)
    width = min(width, *rows.shape)
    how = {"n_components": width, "n_iter": 3, "random_state": _SEED}
    _, values, vectors = randomized_svd(rows - mean, **how)
    kept = values > 1e-4 * values[0]
    if not kept.any():  # all rows are the same
        kept[0], values = True, np.ones_like(values)
    deviation = values[kept] / np.sqrt(len(rows))
    scaled = vectors[kept].T * deviation ** (spread - 1)
    return mean, scaled.astype(np.float32)


class Encoder:
    """What all built-in encoders share. arrays: all that was learned."""

    kind: ClassVar[str] = ""
    described: ClassVar[str] = ""
    """How results name it."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.arrays: dict[str, NDArray[Any]] = dict(arrays or {})

    @property
    def width(self) -> int:
        """Numbers per row."""
        return int(self.arrays["components"].shape[1])

    def fit(self, values: Sequence[Any], told: Told | None = None) -> Array32:
        """Learn from the rows of one side, and give their numbers, (n, width)."""
        raise NotImplementedError

    def transform(self, values: Sequence[Any], told: Told | None = None) -> Array32:
        """The numbers of rows, (n, width)."""
        raise NotImplementedError

    def _project(self, rows: Array32) -> Array32:
        found: Array32 = (rows - self.arrays["mean"]) @ self.arrays["components"]
        return found


# Texts.

_MOST_TERMS = 20_000  # words, and as many character n-grams
_TEXT_WIDTH = 128
_MOST_LEARNED = 100_000  # texts from which the terms and their directions are learned


class TextEncoder(Encoder):
    """Words and character n-grams by TF-IDF, then their directions of greatest variance.

    transform(["a dog"]) gives one row: `directions` and `terms` say which terms it comes from.
    """

    kind, described = "text", "word and character TF-IDF with truncated SVD"
    _vectorizers: Any = None

    def fit(self, values: Sequence[str], told: Told | None = None) -> Array32:
        from sklearn.utils.extmath import randomized_svd

        some = values
        if len(values) > _MOST_LEARNED:
            chosen = np.random.default_rng(_SEED).choice(len(values), _MOST_LEARNED, replace=False)
            some = [values[row] for row in np.sort(chosen)]
        least = 1 if len(some) < 1000 else 2
        self._vectorizers = [_vectorizer(name, min_df=least) for name in _ANALYZERS]
        counted = [vectorizer.fit(some) for vectorizer in self._vectorizers]
        for name, vectorizer in zip(_ANALYZERS, counted, strict=True):
            terms = "\n".join(vectorizer.get_feature_names_out()).encode("utf-8", "surrogatepass")
            self.arrays[f"{name}.terms"] = np.frombuffer(terms, np.uint8).copy()
            self.arrays[f"{name}.idf"] = vectorizer.idf_.astype(np.float32)
        weighed = self._weighed(some)
        width = min(width_for(len(some), _TEXT_WIDTH), *(side - 1 for side in weighed.shape))
        how = {"n_components": max(width, 1), "n_iter": 4, "random_state": _SEED}
        components = randomized_svd(weighed, **how)[2].T
        self.arrays["components"] = np.ascontiguousarray(components, np.float32)
        if some is values:
            return self._unit(weighed @ self.arrays["components"])
        return self.transform(values, told)

    def transform(self, values: Sequence[str], told: Told | None = None) -> Array32:
        if self._vectorizers is None:
            self._vectorizers = [self._restored(name) for name in _ANALYZERS]
        found = [
            self._unit(self._weighed(part) @ self.arrays["components"])
            for part in _parts(values, 4096, told)
        ]
        return np.concatenate(found)

    def _weighed(self, values: Sequence[str]) -> Any:
        """(n, terms) sparse, the words before the n-grams."""
        from scipy import sparse

        both = [vectorizer.transform(values) for vectorizer in self._vectorizers]
        return sparse.hstack(both).tocsr().astype(np.float32)

    def _restored(self, name: str) -> Any:
        terms = self.arrays[f"{name}.terms"].tobytes().decode("utf-8", "surrogatepass")
        vectorizer = _vectorizer(name, vocabulary=terms.split("\n"))
        vectorizer.idf_ = self.arrays[f"{name}.idf"].astype(np.float64)
        return vectorizer

    @staticmethod
    def _unit(rows: Array32) -> Array32:
        """Of length 1, whatever the length of the text; 0 if it has no known term."""
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        found: Array32 = (rows / np.maximum(lengths, 1e-6)).astype(np.float32)
        return found


# A newline separates the terms where they are saved, and is in none of them: words have none, and
# the n-grams are of words between single spaces.
_ANALYZERS: dict[str, dict[str, Any]] = {
    "word": {"token_pattern": r"(?u)\b\w+\b"},
    "character": {"analyzer": "char_wb", "ngram_range": (2, 4)},
}


def _vectorizer(name: str, **how: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        sublinear_tf=True, max_features=_MOST_TERMS, dtype=np.float32, **_ANALYZERS[name], **how
    )


# Pictures.

SIDE = 32
"""Pixels that a picture is made wide and high before it is encoded."""
_PATCH, _STRIDE, _FILTERS = 6, 2, 320
_PATCHES = 30_000  # from which the filters are learned
_STEPS = 5  # of k-means
_THRESHOLD = 0.5  # below which a filter's response counts as none
_PICTURE_WIDTH = 256
_MOST_PICTURES = 20_000  # by which the principal directions are learned


class PictureEncoder(Encoder):
    """Responses of learned filters, summed in four quarters, plus colours on a coarse grid.

    The filters are means of whitened patches (Coates and Ng, 2011: "The importance of encoding
    versus training with sparse coding and vector quantization"), the responses soft-thresholded on
    both sides. Values are (n, 32, 32, 3) uint8. Constants were chosen on CIFAR-10's training
    images 10,000 to 18,000 and 30,000 to 33,000 (benchmarks/raw_inputs.py measures on others).
    """

    kind, described = "picture", "filters learned from patches, and colours, with PCA"

    def fit(self, values: Sequence[Any], told: Told | None = None) -> Array32:
        rng = np.random.default_rng(_SEED)
        self._learn_filters(values, rng)
        responses = self._responses(values, told)
        rows = responses
        if len(values) > _MOST_PICTURES:
            rows = rows[np.sort(rng.choice(len(values), _MOST_PICTURES, replace=False))]
        width = width_for(len(values), _PICTURE_WIDTH)
        scale = rows.std(0) + 1e-6
        mean, components = _principal(rows / scale, width, spread=0.5)
        self.arrays |= {"mean": mean * scale, "components": components / scale[:, None]}
        return self._project(responses)

    def transform(self, values: Sequence[Any], told: Told | None = None) -> Array32:
        return self._project(self._responses(values, told))

    def _learn_filters(self, values: Sequence[Any], rng: np.random.Generator) -> None:
        """Whitening and directions of random patches: spherical k-means, with signs."""
        at = rng.integers(len(values), size=_PATCHES)
        corners = rng.integers(SIDE - _PATCH + 1, size=(_PATCHES, 2))
        patches = np.stack(
            [
                values[n][i : i + _PATCH, j : j + _PATCH].transpose(2, 0, 1)
                for n, (i, j) in zip(at, corners, strict=True)
            ]
        )
        rows = _contrast(patches.reshape(_PATCHES, -1).astype(np.float32))
        mean = rows.mean(0)
        variance, vectors = np.linalg.eigh(np.cov(rows.T))
        whitening = ((vectors * (variance + 0.1) ** -0.5) @ vectors.T).astype(np.float32)
        white = (rows - mean) @ whitening
        filters = _unit_rows(white[rng.choice(_PATCHES, _FILTERS, replace=False)])
        for _ in range(_STEPS):
            similar = white @ filters.T
            nearest = np.abs(similar).argmax(1)
            weights = np.take_along_axis(similar, nearest[:, None], 1)
            sums = np.zeros_like(filters)
            np.add.at(sums, nearest, white * weights)
            unused = np.linalg.norm(sums, axis=1) < 1e-6
            filters = np.where(unused[:, None], filters, _unit_rows(sums))
        self.arrays["filters"] = whitening @ filters.T
        self.arrays["offsets"] = mean @ self.arrays["filters"]

    def _responses(self, values: Sequence[Any], told: Told | None) -> Array32:
        """(n, 8 * filters + 48): the positive and the negative parts by quarter, and colours."""
        import torch
        from torch.nn.functional import adaptive_avg_pool2d, unfold

        filters, offsets = (torch.from_numpy(self.arrays[n]) for n in ("filters", "offsets"))
        found = []
        cells = (SIDE - _PATCH) // _STRIDE + 1
        for part in _parts(values, _BATCH, told):
            pixels = torch.from_numpy(np.stack(list(part))).permute(0, 3, 1, 2).float()
            patches = unfold(pixels, _PATCH, stride=_STRIDE).transpose(1, 2)
            scores = _contrast(patches) @ filters - offsets
            maps = scores.transpose(1, 2).unflatten(2, (cells, cells))
            both = ((sign * maps - _THRESHOLD).clamp_(min=0) for sign in (1, -1))
            pooled = [adaptive_avg_pool2d(one, 2).flatten(1) for one in both]
            colours = adaptive_avg_pool2d(pixels / 255, 4).flatten(1)
            # The square root keeps the few strongest responses from deciding alone.
            found.append(torch.cat([*(one.sqrt() for one in pooled), colours], 1).numpy())
        return np.concatenate(found)


def _contrast(patches: Any) -> Any:
    """Patches (..., pixels), arrays or tensors, with mean 0 and about the same variance."""
    centred = patches - patches.mean(-1)[..., None]
    return centred / ((centred**2).mean(-1)[..., None] + 10) ** 0.5


def _unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-8)
    return found


# Sounds.

RATE = 16_000
"""Samples per second that a sound is brought to before it is encoded."""
_FRAME, _HOP, _BANDS = 400, 160, 40  # 25 and 10 ms
_SECTIONS = 3
_SOUND_WIDTH = 128


class SoundEncoder(Encoder):
    """Log-mel energies: mean, spread and change of each band, and their mean in three sections.

    Values are (samples,) float32 at 16,000 per second.
    """

    kind, described = "sound", "log-mel statistics with PCA"

    def fit(self, values: Sequence[Any], told: Told | None = None) -> Array32:
        rows = self._statistics(values, told)
        scale = rows.std(0) + 1e-3
        mean, components = _principal(rows / scale, width_for(len(rows), _SOUND_WIDTH), spread=0.5)
        self.arrays = {"mean": mean * scale, "components": components / scale[:, None]}
        return self._project(rows)

    def transform(self, values: Sequence[Any], told: Told | None = None) -> Array32:
        return self._project(self._statistics(values, told))

    def _statistics(self, values: Sequence[Any], told: Told | None) -> Array32:
        found = [_log_mel_statistics(one) for part in _parts(values, 16, told) for one in part]
        return np.stack(found).astype(np.float32)


def _log_mel_statistics(samples: Array32) -> NDArray[np.float64]:
    """(bands * (3 + sections),) of one sound."""
    from scipy.signal import stft

    padded = np.pad(samples, (0, max(0, _FRAME + _SECTIONS * _HOP - len(samples))))
    how: dict[str, Any] = {"nperseg": _FRAME, "noverlap": _FRAME - _HOP, "boundary": None}
    spectrum = np.abs(stft(padded, RATE, padded=False, **how)[2]) ** 2
    bands = np.log(_mel_filters() @ spectrum + 1e-8)
    change = np.abs(np.diff(bands, axis=1)).mean(1)
    sections = [part.mean(1) for part in np.array_split(bands, _SECTIONS, axis=1)]
    return np.concatenate([bands.mean(1), bands.std(1), change, *sections])


def _mel_filters() -> NDArray[np.float64]:
    """(bands, frequencies) triangles that are equally wide on the mel scale."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, _BANDS + 2) / 2595) - 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    frequencies = np.linspace(0, RATE / 2, _FRAME // 2 + 1)
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    found: NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling))
    return found


BUILT_IN: dict[str, type[Encoder]] = {
    one.kind: one for one in (TextEncoder, PictureEncoder, SoundEncoder)
}
