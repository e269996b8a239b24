"""The page itself: one file with its style, its scripts and its data inside."""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pointdep.auditing.report import content as embedding
from pointdep.auditing.report import wording
from pointdep.auditing.report.content import Shown, as_shown, embed
from pointdep.auditing.result import Audit
from pointdep.auditing.saved import summary
from pointdep.data.atomic import whole_file
from pointdep.data.writers import check_writable
from pointdep.errors import InputError, require_whole
from pointdep.fitting.progress import show
from pointdep.inference.mutual_information import decimals

# The rows of an audit as JSON that is short, and safe inside a page.

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


TEXTS = ("why", "decision", "reason")  # columns of text, empty in most rows


def pack_table(table: pd.DataFrame) -> dict[str, Any]:
    """The columns of `Audit.table`: whole ones as numbers, those with gaps as rows and values."""
    numbers = {
        name: pack(table[name].to_numpy(np.float64, na_value=np.nan), "f4")
        for name in ("pmi", "stderr", "posterior", "q_value")
    }
    suspects = np.flatnonzero(table["suspect"].to_numpy(dtype=bool))
    kinds = {"better_partner_pmi": "f4", "better_partner": "i4"}
    kinds |= {"swapped_with": "i4", "duplicate_of": "i4"}
    kinds |= {"out_of_step": "i4"} if "out_of_step" in table else {}
    gaps: dict[str, Any] = {}
    for name, kind in kinds.items():
        found = np.flatnonzero(table[name].notna().to_numpy())
        values = table[name].iloc[found].to_numpy(dtype=np.float64)
        gaps[name] = {"rows": pack(found, "i4"), "values": pack(values, kind)}
    known = table["better_label"].dropna() if "better_label" in table else table["rank"][:0]
    texts = {name: table[name].dropna() for name in TEXTS if name in table}
    return {
        "rows": len(table),
        "columns": {**numbers, "rank": pack(table["rank"], "i4")},
        "suspects": pack(suspects, "i4"),
        "gaps": gaps,
        "better_label": {str(row): str(label) for row, label in known.items()},
        "texts": {
            name: {str(row): str(text) for row, text in column.items()}
            for name, column in texts.items()
        },
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
        cut = [
            side
            and [_cut(text, LONGEST if row in keep else length) for row, text in enumerate(side)]
            for side in sides
        ]
        if _bytes(cut) <= TEXT_BYTES:
            break
    return list(cut), length


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _bytes(sides: Sequence[Sequence[str] | None]) -> int:
    return sum(len(text.encode("utf-8", "replace")) + 3 for side in sides if side for text in side)


SUFFIXES = (".html", ".htm")
_REST_BYTES = 1_000_000  # style, scripts and words
_SCRIPTS = (
    *("data", "rows", "table", "download", "controls", "estimate", "review", "figure", "charts"),
    "start",
)


def write_page(audit: Audit, path: str | Path, **how: Any) -> None:
    """Write the page, all of it or nothing; the arguments are those of `Audit.to_html`."""
    path = Path(path)
    check_writable(path, SUFFIXES)
    content = render(audit, **how)
    with whole_file(path) as file:
        # A lone surrogate, as of a damaged file name, is in no UTF-8.
        file.write(content.encode("utf-8", "replace"))


def render(
    audit: Audit,
    *,
    show_x: Any = None,
    show_y: Any = None,
    title: str | None = None,
    media: int | None = None,
    media_size: int = 96,
    progress: bool = False,
) -> str:
    """The text of the page."""
    if media is not None:
        require_whole("media", media, least=0)
    require_whole("media_size", media_size, least=8)
    if math.isnan(audit.mutual_information.nats):
        raise InputError("a page needs more than a .csv table holds: read the page or the .parquet")
    rows, packed = len(audit.table), pack_table(audit.table)
    shown: dict[str, Any] = {name: audit.page[name] for name in _SHOWN} if audit.page else {}
    if not shown or show_x is not None or show_y is not None:
        named = ("show_x", show_x), ("show_y", show_y)
        sides = [
            as_shown(values, rows, name) or _as_given(given, rows)
            for (name, values), given in zip(named, audit.sides or (None, None), strict=True)
        ]
        used = len(json.dumps(packed))
        shown = _contents(
            audit, sides, used, rows if media is None else media, media_size, progress
        )
    data = {
        **packed,
        **shown,
        "audit": summary(audit),
        "fdr": audit.fdr,
        # Decisions are kept in the browser under this name, those of another rate as well.
        "key": hashlib.sha256(packed["columns"]["pmi"]["base64"].encode()).hexdigest()[:16],
        "title": title or (audit.page or {}).get("title") or f"Audit of {rows:,} pairs",
        "histogram": wording.histogram(audit.table["pmi"]),
        "reliability": [
            {name: getattr(one, name) for name in ("predicted", "observed", "stderr")}
            for one in audit.check.reliability
        ],
    }
    return _fill(audit, data)


_SHOWN = ("x", "y", "media", "has_media", "cut")


def _contents(
    audit: Audit, sides: list[Shown | None], used: int, media: int, pixels: int, progress: bool
) -> dict[str, Any]:
    """What is shown of x and y: texts, and the pictures and sounds for which there is room.

    used: bytes of the page that other things take; media: rows that may have pictures and sounds.
    """
    first = {int(row) for row in audit.suspects["row"].head(LONG_ROWS)}
    texts, length = shorten([side.texts if side else None for side in sides], first)
    room = embedding.PAGE_BYTES - used - _bytes(texts) - _REST_BYTES
    with show("pictures and sounds", enabled=progress) as shown:
        worst = list(_worst(audit, media))
        embedded = embed(sides[0], sides[1], worst, pixels, shown, room)
    cut = {"rows": embedded.rows, "left_out": embedded.left_out, "length": length}
    return {
        "x": texts[0],
        "y": texts[1],
        "media": {"x": embedded.x, "y": embedded.y, "contents": list(embedded.contents)},
        "has_media": {"x": _has_media(sides[0]), "y": _has_media(sides[1])},
        "cut": cut,
    }


def _as_given(values: Any, rows: int) -> Shown | None:
    """A side of the audit where nothing was named; None where it is of a kind unknown here."""
    try:
        return as_shown(values, rows, "the data")
    except InputError:
        return None


def _worst(audit: Audit, count: int) -> Iterable[tuple[int, int | None]]:
    """The rows of lowest rank, each with its better partner, which a better label needs not."""
    table = audit.table.sort_values("rank").head(count)
    has_partner = table["better_partner"].notna() & ("better_label" not in table)
    for row, has, partner in zip(table["row"], has_partner, table["better_partner"], strict=True):
        yield int(row), int(partner) if has else None


def _has_media(side: Shown | None) -> bool:
    return side is not None and (side.pictures is not None or side.files is not None)


def _fill(audit: Audit, data: dict[str, Any]) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    import pointdep

    script = "(() => {\n" + "\n".join(_asset(f"{name}.js") for name in _SCRIPTS) + "\n})();"
    style = _asset("page.css")
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(autoescape=True, undefined=StrictUndefined, **blocks)
    environment.globals.update(percent=wording.percent, decimals=decimals, limits=embedding)
    return environment.from_string(_asset("page.html")).render(
        finding=wording.finding(audit),
        caveat=wording.caveat(audit),
        outer_bars=wording.outer_bars(data["histogram"]),
        chance=wording.share_in_words(audit.contamination) + wording.more_by_chance(audit),
        audit=audit,
        suspects=int(audit.table["suspect"].sum()),
        below=int(audit.table["below_zero"].sum()),
        warnings=dict.fromkeys([str(flag) for flag in audit.flags]),
        version=pointdep.__version__,
        style=Markup(style),
        script=Markup(script),
        hashes={"script": _hash(script), "style": _hash(style)},
        data=data,
        content=Markup(to_script(data)),
        longest=LONGEST,
        long_rows=LONG_ROWS,
        title=data["title"],
        media=data["cut"]["rows"],
        left_out=data["cut"]["left_out"],
        length=data["cut"]["length"],
    )


def _asset(name: str) -> str:
    return (files("pointdep.auditing.report") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    """As a Content-Security-Policy names a script that may run, or a style that counts."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
