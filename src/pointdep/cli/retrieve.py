"""``pointdep retrieve``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.retrieve_input import check_call, options_named, read_both, require_pairs
from pointdep.cli.score import ModelFolder
from pointdep.cli.show import print_json, print_rows

if TYPE_CHECKING:
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.retrieval.metrics import RetrievalMetrics
    from pointdep.retrieval.result import Retrieved

QueryFile = Annotated[Path, typer.Argument(metavar="QUERIES", help="File of the queries' rows.")]
CandidateFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CANDIDATES",
        help="File of the candidates' rows; left out where QUERIES holds both sides, or with "
        "--candidates-index.",
        show_default=False,
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "-k", help="Candidates to find for each query.", show_default="10, or all if fewer"
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help=".csv or .parquet (query, position, candidate, pmi); without it, CSV on standard "
        "output (the answer alone with --paired).",
    ),
]
Queries = Annotated[str, typer.Option("--queries", help="The side that the queries are: x or y.")]
Exact = Annotated[bool, typer.Option("--exact", help="Score every pair, however many they are.")]
Index = Annotated[
    str,
    typer.Option(
        "--index",
        help="flat looks at all vectors; hnsw and ivf at some, which pays where there are so many "
        "that making their index is the lesser part.",
    ),
]
Shortlist = Annotated[
    int | None,
    typer.Option(
        "--shortlist",
        help="Candidates per query that are scored, where the search is by a part of PMI; by "
        "default as many as some queries with a known answer need.",
    ),
]
SaveIndex = Annotated[
    Path | None, typer.Option("--save-index", help="Folder to keep the candidates' index in.")
]
CandidatesIndex = Annotated[
    Path | None,
    typer.Option("--candidates-index", help="Folder of --save-index, instead of CANDIDATES."),
]
Paired = Annotated[
    bool,
    typer.Option(
        "--paired",
        help="Row i of both files is a pair: say how often the right one is found. Of categories, "
        "all of the same value are right.",
    ),
]
QueryColumns = Annotated[
    str | None,
    typer.Option(
        "--query-columns",
        help="Columns of the queries in a table, or a key of .npz; by "
        "default those that the model was fitted on.",
    ),
]
CandidateColumns = Annotated[
    str | None,
    typer.Option(
        "--candidate-columns",
        help="Columns of the candidates in a table, or a key of .npz; by default those that the "
        "model was fitted on.",
    ),
]


def retrieve(
    model: ModelFolder,
    queries_file: QueryFile,
    candidates_file: CandidateFile = None,
    k: K = None,
    output: Output = None,
    queries: Queries = "x",
    exact: Exact = False,
    index: Index = "flat",
    shortlist: Shortlist = None,
    save_index: SaveIndex = None,
    candidates_index: CandidatesIndex = None,
    paired: Paired = False,
    query_columns: QueryColumns = None,
    candidate_columns: CandidateColumns = None,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """The candidates that belong to each query most, by a saved model.

    For instance:  pointdep retrieve model/ x.npy y.npy -k 10 -o best.csv

    Rows count from 0. pmi is above 0 for pairs that come together more often than chance: a query
    whose best candidate has pmi below 0 has no partner among them.
    """
    from pointdep.data.writers import write_table
    from pointdep.estimators.pointwise import PointwiseDependency

    check_call(candidates_file, candidates_index, queries, output, save_index, paired)
    fitted = PointwiseDependency.load(model, device=device)
    fitted.progress = not quiet
    asked, given = read_both(
        fitted, queries, queries_file, candidates_file or candidates_index,
        query_columns, candidate_columns, is_index=candidates_index is not None,
    )  # fmt: skip
    if paired:
        require_pairs(asked, given)
    rows = given
    with options_named():
        if save_index is not None:
            given = fitted.index(rows, side="y" if queries == "x" else "x", kind=index)
            given.save(save_index)
        found = fitted.retrieve(
            asked, given, k, queries=queries, exact=exact, index=index, shortlist=shortlist
        )
    metrics = _metrics(fitted, asked, rows, queries) if paired else None
    columns = _columns(found)
    if output is not None:
        write_table(output, columns)
    if json:
        _print_json(found, metrics, output, save_index)
        return
    summary = _summary(found, metrics, output, save_index)
    if output is not None or paired:
        print_rows(summary)
        return
    _print_table(columns)
    if not quiet:
        for name, value in summary.items():
            print(f"{name}: {value}", file=sys.stderr)


def _metrics(fitted: PointwiseDependency, asked: Any, given: Any, queries: str) -> RetrievalMetrics:
    """With 1:5 matching as in the paper, where there are as many candidates."""
    x, y = (asked, given) if queries == "x" else (given, asked)
    return fitted.retrieval_metrics(x, y, queries=queries)


def _columns(found: Retrieved) -> dict[str, Any]:
    import numpy as np

    queries, k = found.indices.shape
    return {
        "query": np.repeat(np.arange(queries), k),
        "position": np.tile(np.arange(1, k + 1), queries),
        "candidate": found.indices.ravel(),
        "pmi": found.pmi.ravel(),
    }


def _print_table(columns: dict[str, Any]) -> None:
    print(",".join(columns))
    for query, position, candidate, pmi in zip(*columns.values(), strict=True):
        print(f"{query},{position},{candidate},{pmi:.6g}")


def _summary(
    found: Retrieved, metrics: RetrievalMetrics | None, output: Path | None, saved: Path | None
) -> dict[str, str]:
    queries, k = found.indices.shape
    alone = found.without_partner
    rows = {
        "queries": f"{queries}, the best {k} of {found.candidates} candidates for each",
        "searched": f"{found.searched}: {found.quality}",
        "no partner": f"{alone} ({alone / queries:.2%}), whose best has PMI of 0 or less",
    }
    if metrics is not None:
        rows["pairs"] = str(metrics).partition(": ")[2]
    for name, place in (("index", saved), ("written", output)):
        if place is not None:
            rows[name] = str(place)
    return rows


def _print_json(
    found: Retrieved, metrics: RetrievalMetrics | None, output: Path | None, saved: Path | None
) -> None:
    queries, k = found.indices.shape
    content = {
        "queries": queries,
        "candidates": found.candidates,
        "k": k,
        "searched": found.searched,
        "exact": found.exact,
        "recall": found.recall,
        "recall_queries": found.recall_queries,
        "without_partner": found.without_partner,
        "pairs": None if metrics is None else _metrics_as_json(metrics),
        "index": None if saved is None else str(saved),
        "output": None if output is None else str(output),
        "found": _found_as_json(found) if output is None else None,
    }
    print_json("retrieve", content)


def _found_as_json(found: Retrieved) -> list[dict[str, Any]]:
    """What the table holds, a query an object."""
    rows = zip(found.indices.tolist(), found.pmi.tolist(), strict=True)
    return [
        {"query": query, "candidates": numbers, "pmi": pmi}
        for query, (numbers, pmi) in enumerate(rows)
    ]


def _metrics_as_json(metrics: RetrievalMetrics) -> dict[str, Any]:
    return {
        "recall": [{"k": k, "share": value} for k, value in metrics.recall.items()],
        "mrr": metrics.mrr,
        "median_rank": metrics.median_rank,
        "matching": [{"size": m, "share": value} for m, value in metrics.matching.items()],
    }
