"""What speaks against a pair: the columns, or the words of a text, without which its PMI rises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pointdep.auditing.partners import Searched
from pointdep.core.ratio import RatioModel
from pointdep.data.encoder import SideEncoder
from pointdep.data.stored_pairs import sampled
from pointdep.estimators.pointwise import PointwiseDependency, encode_side
from pointdep.fitting.progress import Progress
from pointdep.inference.scoring import score_pairs

Rows = NDArray[np.int64]

_DRAWS = 8  # other rows whose values a column is replaced by
_PAIRS = 1 << 20  # that are scored in all: with many columns fewer rows are explained
_UNNAMED = 64  # columns of an array: the numbers of more, as of an embedding, say nothing
_WORDS = 60  # of a text that are left out in turn
_TOGETHER = 64  # texts
_SHOWN, _LEAST = 3, 0.05  # parts that are told, and nats that one must weigh


def explain(
    fitted: PointwiseDependency, among: Searched, X: Any, Y: Any, progress: Progress
) -> NDArray[Any] | None:
    """For each of all rows (n,) what speaks most against it, as "price of y -2.1, age of x -0.8".

    Of the doubtful rows alone, worst first, as many as there is time for; None for the others.

    The number is how much PMI, by the model that did not see the row, falls by the part: its change
    if a column has the values of other rows instead, or if a word is left out. None where no side
    has several parts that can be named.
    """
    encoders = fitted.encoder_x_, fitted.encoder_y_
    if fitted.model_.critic.is_table:  # one column each, which is the pair
        return None
    texts = [_is_text(encoder) for encoder in encoders]
    # The features that stand for very many columns have no names.
    as_read = [
        side.shape[1] == one.dim for side, one in zip((among.x, among.y), encoders, strict=True)
    ]
    columns = [
        _columns(one) if own and not text else []
        for one, text, own in zip(encoders, texts, as_read, strict=True)
    ]
    widths = [
        _WORDS if text else len(own) * _DRAWS for text, own in zip(texts, columns, strict=True)
    ]
    if not any(widths):
        return None
    found = np.full(among.rows, None, dtype=object)
    rows = among.doubtful[: max(1, _PAIRS // sum(widths))]
    against: dict[int, list[tuple[float, str]]] = {int(row): [] for row in rows}
    random = np.random.default_rng(0)
    for replica in np.unique(among.owner[rows]):
        own = rows[among.owner[rows] == replica]
        one = fitted.model_.select([int(replica)])
        for place, (side, given) in enumerate((("x", X), ("y", Y))):
            if texts[place]:
                values = sampled(given, among.numbers[own])
                _by_words(fitted, one, among, own, values, side, against)
            elif columns[place]:
                _by_columns(one, among, own, columns[place], side, random, against)
        progress.update(sum(map(bool, against.values())), len(rows), "doubtful rows explained")
    for row, parts in against.items():
        worst = sorted(part for part in parts if part[0] <= -_LEAST)[:_SHOWN]
        told = [f"{name} {weight:.1f}" for weight, name in worst if weight <= 0.1 * worst[0][0]]
        found[among.numbers[row]] = ", ".join(told) or None
    return found if any(one is not None for one in found) else None


def _is_text(encoder: SideEncoder) -> bool:
    """Whether a side is texts, which an encoder of the model turns into numbers."""
    front = getattr(encoder, "front", None)
    return front is not None and getattr(front, "kind", "") == "text"


def _columns(encoder: SideEncoder) -> list[tuple[str, slice]]:
    """The columns of a side as the user knows them, and where they stand encoded; none of a single
    one, which is the side itself."""
    count = len(encoder.numeric_at) + len(encoder.category_at)
    if count < 2 or getattr(encoder, "front", None) or not (encoder.named or count <= _UNNAMED):
        return []
    widths = [1] * len(encoder.numeric_at) + [len(one.values) for one in encoder.categories]
    ends = np.cumsum(widths).tolist()
    places = (*encoder.numeric_at, *encoder.category_at)
    side = encoder.side.lower()
    names = [
        f"{encoder.names[at]} of {side}" if encoder.named else f"{side}[{at}]" for at in places
    ]
    parts = zip(names, widths, ends, strict=True)
    return [(name, slice(end - width, end)) for name, width, end in parts]


def _by_columns(
    model: RatioModel,
    among: Searched,
    rows: Rows,
    columns: Sequence[tuple[str, slice]],
    side: str,
    random: np.random.Generator,
    against: dict[int, list[tuple[float, str]]],
) -> None:
    """Each column of some rows with the values of other rows in its place."""
    x, y = among.x_of(rows), among.y_of(rows)
    own = score_pairs(model, x, y).cpu().numpy()
    others = random.integers(0, len(among.x), _DRAWS * len(rows))
    source = among.x_of(others) if side == "x" else among.y_of(others)
    for name, at in columns:
        changed = (x if side == "x" else y).repeat(_DRAWS, 1)
        changed[:, at] = source[:, at]
        sides = (changed, y.repeat(_DRAWS, 1)) if side == "x" else (x.repeat(_DRAWS, 1), changed)
        mean = score_pairs(model, *sides).cpu().numpy().reshape(_DRAWS, -1).mean(0)
        for row, weight in zip(rows, own - mean, strict=True):
            against[int(row)].append((float(weight), name))


def _by_words(
    fitted: PointwiseDependency,
    model: RatioModel,
    among: Searched,
    rows: Rows,
    texts: Any,
    side: str,
    against: dict[int, list[tuple[float, str]]],
) -> None:
    """The texts of some rows with one word left out, as the model's encoder reads them."""
    words = [str(text).split()[:_WORDS] for text in np.asarray(texts, dtype=object).reshape(-1)]
    several = [place for place, own in enumerate(words) if len(set(own)) > 1]
    # Together, as an encoder that the user named reads its cache in each call.
    for first in range(0, len(several), _TOGETHER):
        places = several[first : first + _TOGETHER]
        kept = [list(dict.fromkeys(words[place])) for place in places]
        variants = [
            [" ".join(word for word in words[place] if word != left_out) for left_out in ("", *own)]
            for place, own in zip(places, kept, strict=True)
        ]
        encoded = encode_side(fitted, [text for own in variants for text in own], side)
        parts = torch.split(encoded, [len(own) for own in variants])
        for place, own, part in zip(places, kept, parts, strict=True):
            row = int(rows[place])
            scores = _against_one(model, among, row, part, side)
            for word, score in zip(own, scores[1:], strict=True):
                against[row].append((float(scores[0] - score), f'"{word}" of {side}'))


def _against_one(
    model: RatioModel, among: Searched, row: int, variants: Tensor, side: str
) -> NDArray[np.float32]:
    """PMI of variants of one side of a row, (k, d), with the other side as it is."""
    at = np.full(len(variants), row)
    variants = variants.to(among.x.device)
    x, y = (variants, among.y_of(at)) if side == "x" else (among.x_of(at), variants)
    with torch.no_grad():
        found: NDArray[np.float32] = score_pairs(model, x, y).cpu().numpy()
    return found
