"""What ``pointdep retrieve`` is given: calls that cannot be, and the rows of both sides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.data.sides import SideEncoder
    from pointdep.estimators.pointwise import PointwiseDependency

# What the library calls an option, and how it is written here.
_WRITTEN = (
    (r"\bexact=True\b", "--exact"),
    (r"\b(index|queries|critic)='(\w+)'", r"--\1 \2"),
    (r"\bshortlist=(\S+)", r"--shortlist \1"),
    (r"\bk=(\S+)", r"-k \1"),
    (r"\bside='x'", "--queries y"),
    (r"\bside='y'", "--queries x"),
    (r"\bunknown index\b", "unknown --index"),
)


@contextmanager
def options_named() -> Iterator[None]:
    """Errors of the library, with its options as they are written on the command line."""
    try:
        yield
    except InputError as error:
        message = str(error)
        for pattern, written in _WRITTEN:
            message = re.sub(pattern, written, message)
        raise InputError(message) from None


def check_call(
    candidates: Path | None,
    index: Path | None,
    queries: str,
    output: Path | None,
    save_index: Path | None,
    paired: bool,
) -> None:
    """Refuse, before any work is done, what cannot be."""
    from pointdep.data.writers import check_writable
    from pointdep.retrieval.saved import check_index_target
    from pointdep.retrieval.search import check_side

    check_side("--queries", queries)
    others = {"CANDIDATES": candidates, "--save-index": save_index, "--paired": paired or None}
    for name, value in others.items():
        if index is not None and value is not None:
            raise InputError(f"--candidates-index and {name} cannot be given together: choose one")
    if output is not None:
        check_writable(output, (".csv", ".parquet"))
    if save_index is not None:
        check_index_target(save_index)


def read_both(
    fitted: PointwiseDependency,
    queries: str,
    asked: Path,
    given: Path | None,
    query_columns: str | None,
    candidate_columns: str | None,
    *,
    is_index: bool,
) -> tuple[Any, Any]:
    """The rows of the queries, and those of the candidates, or their index.

    asked, given: the files, or with is_index the folder of the candidates; None where the file of
    the queries holds both sides.
    """
    x, y = ("x", fitted.encoder_x_), ("y", fitted.encoder_y_)
    (side, encoder), (answer, answering) = (x, y) if queries == "x" else (y, x)
    rows = _read(asked, query_columns, side, "query", encoder, answering)
    if is_index:
        assert given is not None
        return rows, fitted.load_index(given)
    if given is None:
        _require_both(asked, query_columns, candidate_columns, (encoder, answering))
    return rows, _read(given or asked, candidate_columns, answer, "candidate", answering, encoder)


def _read(
    path: Path,
    columns: str | None,
    side: str,
    name: str,
    encoder: SideEncoder,
    other: SideEncoder,
) -> Any:
    """The rows of one side; of a table, unless columns are named, those that the model knows."""
    from pointdep.data.files import is_table, read_table, table_columns
    from pointdep.data.readers import read_side, remembered

    columns = remembered([path, path], (columns, None), (encoder.list_column, None))[0]
    if columns is not None or not encoder.named or not is_table(path):
        return read_side(path, columns=columns, key=side, name=name)
    there = table_columns(path)
    missing = [column for column in encoder.names if column not in there]
    if missing:
        exchanged = name == "query" and other.named and set(other.names) <= set(there)
        hint = f"; did you mean --queries {'y' if side == 'x' else 'x'}?" if exchanged else ""
        raise InputError(
            f"{path} has no column {missing[0]!r}: the model was fitted on the columns "
            f"{', '.join(encoder.names)} of {side}{hint}"
        )
    return read_table(path, encoder.names)


def _require_both(
    path: Path,
    query_columns: str | None,
    candidate_columns: str | None,
    encoders: tuple[SideEncoder, SideEncoder],
) -> None:
    """Refuse a file of the queries that cannot hold the candidates as well."""
    from pointdep.data.files import is_keyed, is_table

    named = query_columns is not None and candidate_columns is not None
    known = is_table(path) and all(encoder.named for encoder in encoders)
    if not is_keyed(path) and not named and not known:
        raise InputError(
            "CANDIDATES is missing: give their file, or --candidates-index, or name the columns "
            "of both sides in one file by --query-columns and --candidate-columns"
        )


def require_pairs(asked: Any, given: Any) -> None:
    """Refuse sides of different length where rows are pairs."""
    if len(asked) != len(given):
        raise InputError(
            f"--paired: {len(asked)} queries and {len(given)} candidates are not pairs: give as "
            "many rows of both, or leave out --paired"
        )
