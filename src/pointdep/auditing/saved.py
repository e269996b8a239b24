"""Audits from the pages and tables they were written to: another decision needs no other fit."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pointdep.auditing.out_of_step import Stretch
from pointdep.auditing.report.content import Shown
from pointdep.auditing.result import Audit, Contamination
from pointdep.data import files, shards
from pointdep.errors import Flag, InputError
from pointdep.inference.checks import RatioCheck
from pointdep.inference.moment_tests import ReliabilityBin
from pointdep.inference.mutual_information import MIEstimate

KEY = "pointdep_audit"  # of the metadata of a .parquet table
_OPENS, _ENDS = '<script type="application/json" id="data">', "</script>"
_ESTIMATE = ("nats", "stderr", "confidence", "rows", "method", "estimates", "lower")
_CHECK = ("passed", "conclusive", "p_value", "verdict", "fault", "rows", "at_limit", "outside")
_PLAIN = ("fdr", "folds", "method", "answered", "named")
_NEEDED = ("row", "pmi", "q_value", "rank")
_TEXTS = ("shown_x", "shown_y")
_UNKNOWN: dict[str, Any] = {
    "estimate": {"nats": float("nan"), "stderr": float("nan"), "ci": [float("nan")] * 2},
    "check": {
        **dict.fromkeys(("passed", "conclusive"), False),
        **{"p_value": 1.0, "verdict": "", "fault": "cannot_tell", "rows": 0, "reliability": []},
    },
    "contamination": {"share": float("nan"), "given": False, "stderr": None},
    **{
        "fdr": 0.1,
        "folds": 0,
        "method": "",
        "flags": [],
        "out_of_step": [],
        "answered": "",
        "named": True,
    },
}


def summary(found: Audit) -> dict[str, Any]:
    """What a table does not say of an audit, as JSON has it."""
    information, check = found.mutual_information, found.check
    bins = [asdict(one) for one in check.reliability]
    return {
        "estimate": {name: getattr(information, name) for name in _ESTIMATE}
        | {"ci": list(information.ci)},
        "check": {name: getattr(check, name) for name in _CHECK} | {"reliability": bins},
        "contamination": asdict(found.contamination),
        "out_of_step": [asdict(one) for one in found.out_of_step],
        "flags": [{"name": flag.name, "message": flag.message} for flag in found.flags],
        "encoders": found.encoders,
        **{name: getattr(found, name) for name in _PLAIN},
    }


def read_audit(path: str | Path) -> Audit:
    """An audit from its page (.html) or table (.csv, .parquet), without its models.

    A .csv table holds the rows alone: such an audit can be decided again, and writes no page.
    """
    path = Path(path)
    if path.suffix.lower() in (".html", ".htm"):
        data = page_data(path)
        return _restored(_page_table(data), data["audit"], page=data)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{path} is no audit: give the page (.html) or table (.csv, .parquet)")
    table, told = files.read_table(path, None), _UNKNOWN
    if missing := [name for name in _NEEDED if name not in table]:
        raise InputError(f"{path} has no column {missing[0]!r}: give a table that audit wrote")
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        told = json.loads((pq.read_schema(path).metadata or {}).get(KEY.encode(), "null")) or told
    for name in set(_WHOLE) & set(table):
        table[name] = table[name].astype("Int64")
    shown = (list(map(str, table[name].fillna(""))) if name in table else None for name in _TEXTS)
    x, y = (None if texts is None else Shown(texts) for texts in shown)
    return _restored(table, told, sides=(x, y))


_WHOLE = ("out_of_step", "better_partner", "swapped_with", "duplicate_of")


def page_data(path: Path) -> dict[str, Any]:
    """The data inside a page."""
    with files.loading(path):
        _, found, rest = path.read_text("utf-8", "replace").partition(_OPENS)
        data = json.loads(rest.partition(_ENDS)[0]) if found else {}
    if "audit" not in data:
        raise InputError(f"{path} holds no audit that can be decided again: audit the pairs anew")
    known: dict[str, Any] = data
    return known


def _restored(table: pd.DataFrame, told: dict[str, Any], **more: Any) -> Audit:
    estimate = {**told["estimate"], "ci": tuple(told["estimate"]["ci"])}
    bins = tuple(ReliabilityBin(**one) for one in told["check"]["reliability"])
    check = {**told["check"], "reliability": bins, "balances": (), "recalibration": None}
    return Audit(
        table=table.assign(suspect=table["q_value"] <= told["fdr"], below_zero=table["pmi"] < 0),
        mutual_information=MIEstimate(**estimate),
        check=RatioCheck(**check),
        contamination=Contamination(**told["contamination"]),
        flags=tuple(Flag(one["name"], (), one["message"]) for one in told["flags"]),
        out_of_step=tuple(Stretch(**one) for one in told["out_of_step"]),
        encoders=tuple(told.get("encoders", (None, None))),  # 0.1.0 did not write them
        **{name: told[name] for name in _PLAIN},
        **more,
    )


def _page_table(data: dict[str, Any]) -> pd.DataFrame:
    """The table of an audit from the columns that a page packs."""
    rows = data["rows"]
    table = pd.DataFrame({"row": np.arange(rows)})
    for name, packed in data["columns"].items():
        table[name] = _unpack(packed)
    for name, packed in data["gaps"].items():
        at, values = _unpack(packed["rows"]), _unpack(packed["values"])
        whole = values.dtype.kind == "i"
        column = pd.Series(pd.NA, range(rows), "Int64") if whole else pd.Series(np.nan, range(rows))
        column.iloc[at] = values
        table[name] = column
    for name, values in {**data["texts"], "better_label": data["better_label"]}.items():
        if not values:
            continue
        column = pd.Series(None, range(rows), object)
        column.loc[[int(row) for row in values]] = list(values.values())
        table[name] = column
    return table


def _unpack(packed: dict[str, str]) -> NDArray[Any]:
    kind = np.dtype(packed["type"]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(packed["base64"]), kind).astype(packed["type"])


def kept_table(found: Audit, paths: Sequence[Path], as_text: bool) -> pd.DataFrame:
    """The kept rows: those of the tables with all of their columns, or their numbers.

    The numbers stand there too if one of the files is no table. as_text: as a .csv file has them.
    """
    kept, parts = found.kept, []
    for path in dict.fromkeys(paths):
        table = _table_of(path, as_text)
        if table is not None and len(table) != len(found.table):
            count = f"{path} has {len(table)} rows"
            raise InputError(f"{count} where the audit has {len(found.table)}: give its own files")
        parts.append(table)
    tables = [table.iloc[kept].reset_index(drop=True) for table in parts if table is not None]
    if len(tables) < max(len(parts), 1):
        tables.insert(0, pd.DataFrame({"row": kept}))
    joined = tables[0]
    for more in tables[1:]:
        joined = joined.join(more, lsuffix="_x", rsuffix="_y")
    return joined


def _table_of(path: Path, as_text: bool) -> pd.DataFrame | None:
    """All columns of a table, None for other files."""
    suffix = path.suffix.lower()
    table: pd.DataFrame
    if suffix == ".csv" and as_text:
        with files.loading(path):
            # Numbers as they stand there, 1.0 not as 1, and empty cells empty.
            how: Any = {
                "encoding": files.encoding_of(path, told=False),
                "encoding_errors": "replace",
            }
            table = pd.read_csv(path, dtype=str, keep_default_na=False, **how)
            return table
    if files.is_table(path):
        table = files.read_table(path, None)
        return table
    stored = path.is_dir() or suffix in shards.TABLE_SHARDS
    if not stored or shards.first_schema(path) is None:
        return None
    table = shards.read_tables(path, None)
    return table
