"""The rows of an audit as JSON that is short, and safe inside a page."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TEXT_BYTES = 14_000_000  # of both sides together
LONG_ROWS = 5000  # whose texts are cut at the greatest length only
LONGEST = 1000
_LENGTHS = (LONGEST, 500, 200, 100, 60, 30, 15)  # to which texts are cut, the first that fits
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def to_script(content: Any) -> str:
    """JSON that no markup can end and no line separator can break."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def pack(values: Any, kind: str) -> dict[str, str]:
    """Numbers as base64 of little-endian "f4" or "i4"."""
    content = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return {"type": kind, "base64": base64.b64encode(content).decode("ascii")}


def pack_table(table: pd.DataFrame) -> dict[str, Any]:
    """The columns of `Audit.table`: whole ones as numbers, those with gaps as rows and values."""
    numbers = {
        name: pack(table[name].to_numpy(np.float64, na_value=np.nan), "f4")
        for name in ("pmi", "stderr", "posterior", "q_value")
    }
    columns: dict[str, Any] = {**numbers, "rank": pack(table["rank"], "i4")}
    suspects = np.flatnonzero(table["suspect"].to_numpy(dtype=bool))
    kinds = {"better_partner_pmi": "f4", "better_partner": "i4"}
    kinds |= {"swapped_with": "i4", "duplicate_of": "i4"}
    gaps: dict[str, Any] = {}
    for name, kind in kinds.items():
        found = np.flatnonzero(table[name].notna().to_numpy())
        values = table[name].iloc[found].to_numpy(dtype=np.float64)
        gaps[name] = {"rows": pack(found, "i4"), "values": pack(values, kind)}
    labels: dict[str, str] = {}
    if "better_label" in table:
        known = table["better_label"].dropna()
        labels = {str(row): str(label) for row, label in zip(known.index, known, strict=True)}
    return {
        "rows": len(table),
        "columns": columns,
        "suspects": pack(suspects, "i4"),
        "gaps": gaps,
        "better_label": labels,
    }


def shorten(
    sides: Sequence[Sequence[str] | None], keep: set[int]
) -> tuple[list[Sequence[str] | None], int | None]:
    """Texts of the sides cut so that all fit the page, and the length of a cut text or None.

    keep: rows whose texts are cut at the greatest length only, LONG_ROWS at the most.
    """
    longest = max((len(text) for side in sides if side for text in side), default=0)
    if longest <= LONGEST and _bytes(sides) <= TEXT_BYTES:
        return list(sides), None
    for length in _LENGTHS:
        cut = [None if side is None else _cut_side(side, length, keep) for side in sides]
        if _bytes(cut) <= TEXT_BYTES:
            break
    return list(cut), length


def _cut_side(side: Sequence[str], length: int, keep: set[int]) -> list[str]:
    lengths = (LONGEST if row in keep else length for row in range(len(side)))
    return [
        text if len(text) <= most else text[: most - 1] + "…"
        for text, most in zip(side, lengths, strict=True)
    ]


def _bytes(sides: Sequence[Sequence[str] | None]) -> int:
    return sum(len(text.encode("utf-8", "replace")) + 3 for side in sides if side for text in side)
