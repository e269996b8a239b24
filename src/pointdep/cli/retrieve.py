"""``pointdep retrieve``."""

from __future__ import annotations

import csv
import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import DataWarning, InputError, printable, require_known

if TYPE_CHECKING:
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.retrieval.metrics import RetrievalMetrics
    from pointdep.retrieval.search import Retrieved

# What the library calls an option, and what it is called on the command line.
_WRITTEN = (
    (r"\bexact=True\b", "--exact"),
    (r"\b(index|queries|critic)='(\w+)'", r"--\1 \2"),
    (r"\bshortlist=(\S+)", r"--shortlist \1"),
    (r"\bk=(\S+)", r"-k \1"),
    (r"\bside='x'", "--queries y"),
    (r"\bside='y'", "--queries x"),
    (r"\bmin_pmi(=| )", r"--min-pmi\1"),
    (r"\bheld_out\b", "--held-out"),
    (r"\bunknown index\b", "unknown --index"),
)


@options.explained
def retrieve(
    model: options.ModelFolder,
    queries_file: Annotated[Path, Argument(metavar="QUERIES")],
    candidates_file: Annotated[
        Path | None, Argument(metavar="CANDIDATES", show_default=False)
    ] = None,
    k: int | None = None,
    query: str | None = None,
    output: Path | None = None,
    queries: str = "x",
    exact: bool = False,
    index: str = "flat",
    shortlist: int | None = None,
    save_index: Path | None = None,
    candidates_index: Path | None = None,
    paired: bool = False,
    min_pmi: float | None = None,
    held_out: Path | None = None,
    held_out_y: Path | None = None,
    query_columns: str | None = None,
    candidate_columns: str | None = None,
    show_columns: bool = False,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the candidates with the highest PMI for each query, by a saved model.

    For instance:  pointdep retrieve model/ x.npy y.npy -k 10 -o best.csv

    Rows count from 0. pmi is above 0 for pairs that come together more often than chance: a query
    whose best candidate has pmi below 0 has no partner among them (--min-pmi 0 leaves such out).
    With --paired and candidates that are categories, all candidates of the same value are right.

    Options
    -------
    queries_file: File of the queries' rows.
    candidates_file: File of the candidates' rows, unless QUERIES holds both sides.
    query: A text, or the name of a picture or sound file, instead of QUERIES: the one file is that
        of the candidates.
    k: Candidates per query. [10, or all if fewer]
    output: .csv or .parquet (query, position, candidate, pmi); by default CSV on standard output
        (with --paired only the answer).
    queries: The side of the queries: x or y.
    exact: Score every pair, however many there are.
    index: flat looks at all vectors; hnsw and ivf at some: faster for very many.
    shortlist: Candidates per query to score if the search is by a part of PMI; by default as many
        as a sample of the queries needs.
    save_index: Folder to keep the candidates' index in.
    candidates_index: Folder of --save-index, instead of CANDIDATES.
    paired: Row i of both files is a pair: report how often it is found.
    min_pmi: PMI that a candidate must exceed, as 0: queries to which nothing belongs get -1.
    held_out: File of pairs that the model was not fitted on, or of their x: they measure how often
        --min-pmi gives a query a candidate although nothing belongs to it. [with --paired, QUERIES]
    held_out_y: The y of --held-out.
    query_columns: Columns of the queries in a table, or a key of .npz; by default those of the fit.
    candidate_columns: Columns of the candidates in a table, or a key of .npz; by default those of
        the fit.
    show_columns: Print on standard error how the model reads each column.
    """
    import numpy as np

    from pointdep.data.writers import write_table
    from pointdep.estimators.pointwise import PointwiseDependency

    others = {"CANDIDATES": candidates_file, "--save-index": save_index, "--paired": paired or None}
    _check_call(queries, candidates_index, others, output)
    fitted = PointwiseDependency.load(model, device=device)
    fitted.progress = not quiet
    options.print_columns_of(fitted, show_columns)
    if query is not None and candidates_file is not None:
        raise InputError("--query asks by itself: give one file, that of the candidates")
    places = _Places(
        queries_file, candidates_file, candidates_index, query_columns, candidate_columns
    )
    refuse = paired or save_index is not None
    queries, asked, given, numbers, texts = _read_rows(fitted, queries, query, places, refuse)
    if paired and len(asked) != len(given):
        fault = f"--paired: {len(asked)} queries and {len(given)} candidates are not pairs"
        raise InputError(f"{fault}: give as many rows of both, or leave out --paired")
    rows, metrics = given, None
    how: dict[str, Any] = {"queries": queries, "exact": exact, "index": index}
    try:
        if save_index is not None:
            given = fitted.index(rows, side=_other(queries), kind=index)
            given.save(save_index)
        if (min_pmi, held_out, held_out_y) != (None, None, None):
            own = ((asked, rows) if queries == "x" else (rows, asked)) if paired else None
            measured = _held_out(fitted, held_out, held_out_y) or own
            how |= {"min_pmi": min_pmi, "held_out": measured}
        found = fitted.retrieve(asked, given, k, shortlist=shortlist, **how)
    except InputError as error:
        raise InputError(options.as_written(str(error), _WRITTEN)) from None
    if paired:  # with 1:5 matching as in the paper, if there are enough candidates
        x, y = (asked, rows) if queries == "x" else (rows, asked)
        metrics = fitted.retrieval_metrics(x, y, queries=queries)
    if numbers is not None:  # as they are counted in the file
        there = found.indices >= 0
        found = replace(found, indices=np.where(there, numbers[found.indices], -1))
    table = _table(found, texts)
    if output is not None:
        write_table(output, table)
    summary = _summary(found, metrics, {"index": save_index, "written": output})
    if json:
        written = {"index": save_index, "output": output}
        told = _as_json(found, metrics, texts, whole=output is None)
        print_json("retrieve", {**told, **written})
    elif output is not None or paired:
        print_rows(summary)
    else:
        _print_table(table, {} if quiet else summary)


def _check_call(queries: str, index: Path | None, more: options.Given, output: Path | None) -> None:
    """Refuse impossible combinations before any work is done; more: what an index excludes."""
    from pointdep.data.writers import check_writable
    from pointdep.retrieval.candidate_index import check_index_target
    from pointdep.retrieval.search import SIDES

    require_known("--queries", queries, SIDES)
    for name, value in more.items():
        if index is not None and value is not None:
            raise InputError(f"--candidates-index and {name} cannot be given together: choose one")
    if output is not None:
        check_writable(output, (".csv", ".parquet"))
    if more["--save-index"] is not None:
        check_index_target(more["--save-index"])


def _held_out(fitted: PointwiseDependency, x: Path | None, y: Path | None) -> Any:
    """Pairs to measure false matches by, in columns that the model was fitted on, or None."""
    from pointdep.data.readers import read_pairs

    if x is None:
        if y is not None:
            raise InputError("--held-out-y has no x: give --held-out as well")
        return None
    names: dict[str, Any] = {}
    for side in ("x", "y"):
        encoder = fitted.encoder_x_ if side == "x" else fitted.encoder_y_
        names[f"{side}_columns"] = ",".join(encoder.given_names) if encoder.named else None
    return read_pairs([x] if y is None else [x, y], **names)


def _require_both(fitted: PointwiseDependency, path: Path, named: tuple[Any, ...]) -> None:
    """Refuse one file for both sides if nothing tells which of its columns are whose.

    named: the file of the candidates, and the columns of both sides, if they are given.
    """
    from pointdep.data.files import is_keyed, is_table

    known = is_table(path) and fitted.encoder_x_.knows_names and fitted.encoder_y_.knows_names
    if not (any(named) or is_keyed(path) or known):
        raise InputError(
            "CANDIDATES is missing: give their file, or --candidates-index, or name the columns "
            "of both sides in one file by --query-columns and --candidate-columns"
        )


def _read_side(fitted: Any, side: str, name: str, path: Path, columns: str | None) -> Any:
    """The rows of one side; from a table, unless columns are named, those the model knows."""
    from pointdep.data.files import is_table, read_table, table_columns
    from pointdep.data.readers import read_side, remembered

    encoder, other = fitted.encoder_x_, fitted.encoder_y_
    if side == "y":
        encoder, other = other, encoder
    columns = remembered([path, path], (columns, None), (encoder.list_column, None))[0]
    if columns is not None or not encoder.knows_names or not is_table(path):
        return read_side(path, columns=columns, key=side, name=name)
    if encoder.front is not None and encoder.front.column in table_columns(path):
        return read_side(path, columns=encoder.front.column, key=side, name=name)
    there = table_columns(path)
    if missing := [column for column in encoder.given_names if column not in there]:
        exchanged = name == "query" and other.named and set(other.given_names) <= set(there)
        hint = f"; did you mean --queries {_other(side)}?" if exchanged else ""
        raise InputError(
            f"{path} has no column {missing[0]!r}: the model was fitted on the columns "
            f"{', '.join(encoder.given_names)} of {side}{hint}"
        )
    return read_table(path, encoder.given_names)


def _table(found: Retrieved, texts: list[str] | None) -> dict[str, Any]:
    """A line for each query and candidate; texts: what a person reads of the candidates."""
    import numpy as np

    count, k = found.indices.shape
    table: dict[str, Any] = {
        "query": np.repeat(np.arange(count), k),
        "position": np.tile(np.arange(1, k + 1), count),
        "candidate": found.indices.ravel(),
        "pmi": found.pmi.ravel(),
    }
    if texts is not None:
        rows = found.indices.ravel()
        table["found"] = np.array([texts[row] if row >= 0 else "" for row in rows])
    return table


def _print_table(table: dict[str, Any], summary: dict[str, str]) -> None:
    """The table as CSV, and what is told of it on standard error."""
    printed = csv.writer(sys.stdout, lineterminator="\n")
    printed.writerow(table)
    for query, position, candidate, pmi, *more in zip(*table.values(), strict=True):
        shown = "" if math.isnan(pmi) else f"{pmi:.6g}"
        printed.writerow([query, position, candidate, shown, *map(printable, more)])
    for name, value in summary.items():
        print(f"{name}: {value}", file=sys.stderr)


class _Places(NamedTuple):
    """Where the rows are."""

    queries: Path
    candidates: Path | None
    saved_index: Path | None
    query_columns: str | None
    candidate_columns: str | None


def _read_rows(
    fitted: Any, side: str, query: str | None, places: _Places, refuse: bool
) -> tuple[str, Any, Any, Any, list[str] | None]:
    """The side of the queries, their rows and the candidates; which rows of the file these are, or
    None for all; and what a person reads of them.

    query: one that was typed. refuse: candidates that cannot be read are an error.
    """
    path = places.candidates or places.queries
    if query is not None:
        side, asked = _typed(fitted, query, side)
    else:
        asked = _read_side(fitted, side, "query", places.queries, places.query_columns)
    asked, _ = _readable(fitted, side, asked, refuse=True)
    if places.saved_index is not None:
        return side, asked, fitted.load_index(places.saved_index), None, None
    if query is None:
        named = (places.candidates, places.query_columns and places.candidate_columns)
        _require_both(fitted, places.queries, named)
    given = _read_side(fitted, _other(side), "candidate", path, places.candidate_columns)
    texts = getattr(given, "texts", None)
    given, numbers = _readable(fitted, _other(side), given, refuse=refuse)
    return side, asked, given, numbers, texts


def _typed(fitted: Any, query: str, side: str) -> tuple[str, Any]:
    """The side of a query that was typed, and its rows; side: what --queries says."""
    from pointdep.data.media import kind_of, raw_rows

    fronts = {name: getattr(fitted, f"encoder_{name}_").front for name in "xy"}
    kinds = {name: front.kind for name, front in fronts.items() if front is not None}
    wanted = kind_of([query]) or "text"
    sides = [name for name, kind in kinds.items() if kind == wanted]
    if not sides:
        held = " and ".join(f"{name} is {kind}s" for name, kind in kinds.items())
        held = held or "x and y are numbers or categories: give a file of queries"
        raise InputError(f"--query is a {wanted}, but in the model {held}")
    found = sides[0] if len(sides) == 1 else side
    return found, raw_rows([query], wanted, [Path()], None, None)


def _readable(fitted: Any, side: str, rows: Any, *, refuse: bool = False) -> tuple[Any, Any]:
    """Texts, pictures and sounds as numbers, and which rows these are; others as they are.

    Those that cannot be read are left out with a warning; refuse: or refused.
    """
    import numpy as np

    from pointdep.data.media import telling
    from pointdep.estimators.base import some_reasons
    from pointdep.fitting.progress import show as progress_of

    front = getattr(fitted, f"encoder_{side}_").front
    wrapped = rows if front is None or hasattr(rows, "kind") else front.wrap(rows)
    if front is None or wrapped is None:
        return rows, None
    with progress_of("encoding", enabled=fitted.progress) as progress:
        found, reasons = front.transform(telling(wrapped, progress.update))
    if not reasons:
        return found, None
    count, why = f"{len(reasons)} row(s) of {side}", some_reasons(reasons)
    if refuse:
        raise InputError(f"{count} cannot be read: {why}: drop these rows")
    warnings.warn(f"left out {count} that cannot be read: {why}", DataWarning, stacklevel=2)
    kept = np.setdiff1d(np.arange(len(found)), list(reasons))
    return found[kept], kept


def _other(side: str) -> str:
    return "y" if side == "x" else "x"


def _summary(found: Retrieved, metrics: RetrievalMetrics | None, places: Any) -> dict[str, str]:
    queries, k = found.indices.shape
    alone, least = found.without_partner, found.min_pmi or 0.0
    rows = {
        "queries": f"{queries}, the best {k} of {found.candidates} candidates for each",
        "searched": f"{found.searched}: {found.quality}",
        "no partner": f"{alone} ({alone / queries:.2%}), whose best has PMI of {least:g} or less",
        "false matches": None if found.min_pmi is None else found.false_match_rate,
        "pairs": None if metrics is None else str(metrics).partition(": ")[2],
        **places,
    }
    return {name: str(value) for name, value in rows.items() if value is not None}


def _as_json(
    found: Retrieved, metrics: RetrievalMetrics | None, texts: list[str] | None, *, whole: bool
) -> dict[str, Any]:
    """metrics: None without --paired; whole: with the table, which did not go to a file."""
    pairs = None
    if metrics is not None:
        pairs = {
            "recall": [{"k": k, "share": value} for k, value in metrics.recall.items()],
            "mrr": metrics.mrr,
            "median_rank": metrics.median_rank,
            "matching": [{"size": m, "share": value} for m, value in metrics.matching.items()],
        }
    there = [int((row >= 0).sum()) for row in found.indices]
    rows = [
        (best[:count].tolist(), pmi[:count].tolist())
        for best, pmi, count in zip(found.indices, found.pmi, there, strict=True)
    ]
    table = [
        {
            "query": n,
            "candidates": best,
            "pmi": pmi,
            "texts": texts and [texts[row] for row in best],
        }
        for n, (best, pmi) in enumerate(rows)
    ]
    names: tuple[str, ...] = ("candidates", "searched", "exact", "recall", "recall_queries")
    names += ("without_partner", "min_pmi", "false_matches", "false_match_stderr", "held_out")
    return {
        "queries": found.indices.shape[0],
        "k": found.indices.shape[1],
        **{name: getattr(found, name) for name in names},
        "pairs": pairs,
        "found": table if whole else None,
    }
