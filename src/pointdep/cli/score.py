"""``pointdep score``."""

import sys
import warnings
from math import isnan
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import DataWarning, InputError, printable, unknown_name

_MANY_OUTSIDE = 0.01


@options.explained
def score(
    model: options.ModelFolder,
    files: Annotated[list[str], Argument(metavar="X Y", show_default=False)],
    output: str | None = None,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    engine: str | None = None,
    workers: Annotated[int | None, Option(min=1)] = None,
    gpus_per_worker: Annotated[float, Option(min=0)] = 0.0,
    batch_size: Annotated[int | None, Option(min=1)] = None,
    suspects: bool = False,
    fdr: float | None = None,
    carry: str | None = None,
    strict: bool = False,
    show_columns: bool = False,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """PMI of new pairs by a saved model.

    For instance:  pointdep score model/ x.npy y.npy -o pmi.parquet

    pmi is above 0 for pairs that come together more often than chance; npmi is the same scaled to
    [-1, 1]; stderr is the standard error of pmi; outside says that the pair is unlike any of the
    fit, so that its pmi is an extrapolation. Of a table the columns are those of the fit. A pair
    that cannot be scored, as one of a category that the fit has not seen, has no pmi, and a last
    column has the reason.

    For the rows that the model was fitted on use pointdep fit --oof, which scores each by models
    that did not see it.

    Folders of .parquet shards:  pointdep score model/ x/ y/ -o scores/ --engine ray

    Output shard k has the name and the rows of shard k of x. The same command again does what is
    missing after a crash. --suspects is for pairs that the model was not fitted on.

    Options
    -------
    files: Two files of paired rows, or one with both sides: .npy .npz .csv .tsv .jsonl
        .parquet .arrow .feather .ipc .vec .safetensors; or folders of shards: for -o FOLDER of
        .parquet ones, also by URI (s3://...).
    output: .parquet, .csv (row, pmi, npmi, stderr, outside) or .npy (pmi); by default CSV on
        standard output. For folders of shards a folder, with one shard per shard of x.
    engine: For folders: local, or ray, on a Ray cluster (pip install pointdep[ray]).
    workers: Ray workers, with one CPU each; else as many as fit.
    gpus_per_worker: GPUs of each Ray worker, as 1 or 0.5.
    batch_size: For folders: rows at a time; else by their width.
    suspects: For folders: find likely wrong pairs, as audit does.
    fdr: Share of the suspects that may be right pairs. [0.1, a tenth]
    carry: Columns of the table to copy to the output, comma separated, as id,name.
    strict: End with an error if a pair cannot be scored.
    show_columns: Print on standard error how the model reads each column.
    """
    if fdr is not None and not suspects:
        raise InputError("--fdr is for --suspects: give both")
    fdr = 0.1 if fdr is None else fdr
    named = output is not None and ("://" in output or output.endswith("/"))
    columns = x_columns, y_columns
    of_shards: dict[str, Any] = {"workers": workers, "batch_size": batch_size}
    of_shards["gpus_per_worker"] = gpus_per_worker
    if engine is not None or named or (output is not None and not Path(output).suffix):
        if output is None:
            raise InputError("--engine writes a folder of shards: give -o FOLDER")
        how = {"output": output, "engine": engine or "local", "device": device, **of_shards}
        if carry or strict:
            raise InputError("--carry and --strict are for files, not for folders of shards")
        judge = fdr if suspects else None
        found = _score_folders(model, files, judge, columns, progress=not quiet, **how)
    else:
        given = {"suspects": suspects, **of_shards}
        _refuse_for_files([name for name, value in given.items() if value], files)
        from pointdep.data.writers import check_writable

        if output is not None:
            check_writable(Path(output))
        fitted = _load(model, device)
        fitted.progress = not quiet
        options.print_columns_of(fitted, show_columns)
        more = [] if carry is None else list(options.parse_names("--carry", carry))
        how = {"output": output, "columns": columns, "carry": more, "strict": strict}
        table = _score_files(fitted, [Path(file) for file in files], **how)
        if output is None and not json:
            _print_table(table)
            return
        pmi = table["pmi"][table["reason"] == ""] if "reason" in table else table["pmi"]
        found = {
            "rows": len(table["pmi"]),
            "not_scored": len(table["pmi"]) - len(pmi),
            "mean_pmi": float(pmi.mean()) if len(pmi) else None,
            "below_zero": int((pmi < 0).sum()),
            "outside": int(table["outside"].sum()),
            **dict.fromkeys(("suspects", "contamination", "unlisted", "shards", "found")),
        }
    if json:
        print_json("score", {**found, "output": output})
    else:
        print_rows(_summary(found, output, fdr))


def _refuse_for_files(given: list[str], files: list[str]) -> None:
    """Refuse options that mean nothing with an output file."""
    if not given:
        return
    listed = ", ".join("--" + name.replace("_", "-") for name in given)
    odd = [file for file in files if Path(file).suffix not in ("", ".parquet")]
    if not odd:
        raise InputError(f"{listed} is for an output in shards: give a folder, as -o FOLDER/")
    instead = "; of files, pointdep audit finds the suspects" if "suspects" in given else ""
    raise InputError(
        f"{listed} is for folders of .parquet shards, which {odd[0]} is not: leave it out{instead}"
    )


def _load(model: str, device: str) -> Any:
    """The saved model, with networks or without."""
    from pointdep.data.storage import peek

    if (peek(Path(model)) or {}).get("kind") == "classical":
        from pointdep.estimators.classical.estimator import ClassicalDependency

        return ClassicalDependency.load(model)
    from pointdep.estimators.pointwise import PointwiseDependency

    return PointwiseDependency.load(model, device=device)


def encoders_of(fitted: Any) -> tuple[Any, Any]:
    """How a model reads both sides."""
    return fitted.encoder_x_, fitted.encoder_y_


def _print_table(table: dict[str, Any]) -> None:
    """As CSV on standard output."""
    import csv

    from pointdep.data.writers import has_return

    how: Any = {"quoting": csv.QUOTE_ALL} if has_return(table) else {}
    writer = csv.writer(sys.stdout, lineterminator="\n", **how)
    writer.writerow(map(_printed, table))
    for cells in zip(*(values.tolist() for values in table.values()), strict=True):
        writer.writerow([_printed(cell) for cell in cells])


def _printed(cell: Any) -> Any:
    if isinstance(cell, float):
        return "" if isnan(cell) else f"{cell:.6g}"
    # A terminal would act on what --carry copies; a pipe gets it as it is.
    return printable(cell) if isinstance(cell, str) and sys.stdout.isatty() else cell


def _score_files(
    fitted: Any,
    paths: list[Path],
    *,
    output: str | None,
    columns: tuple[str | None, str | None],
    carry: list[str],
    strict: bool,
) -> dict[str, Any]:
    """Score the pairs, (n,) each, and write the table if a file is wanted.

    stderr is NaN if the model is a single one; "reason" is there if some pairs cannot be scored.
    """
    import numpy as np

    from pointdep.data.readers import columns_of_fit, read_pairs
    from pointdep.data.writers import write_table
    from pointdep.estimators import pointwise
    from pointdep.estimators.classical import estimator as classical
    from pointdep.fitting.progress import show

    if carry and output is not None and output.endswith(".npy"):
        raise InputError(f"--carry: {output} holds pmi alone: write .csv or .parquet")
    x_columns, y_columns = columns_of_fit(paths, columns, encoders_of(fitted))
    x, y = read_pairs(paths, x_columns=x_columns, y_columns=y_columns)
    with show("scoring", enabled=fitted.progress) as progress:
        is_classical = isinstance(fitted, classical.ClassicalDependency)
        answer: Any = classical.pair_columns if is_classical else pointwise.pair_columns
        found = answer(fitted, x, y, progress, strict=strict)
    if not strict and not (found["reason"] != "").any():
        del found["reason"]
    _warn_of_outside(int(found["outside"].sum()), len(found["pmi"]))
    count = len(found["pmi"])
    table = {"row": np.arange(count), **_carried(paths, carry, count, [*found]), **found}
    if output is not None:
        write_table(Path(output), table)
    return table


def _carried(paths: list[Path], names: list[str], count: int, taken: list[str]) -> dict[str, Any]:
    """The columns of the tables to copy, each (n,)."""
    from pointdep.data.files import is_table, table_columns
    from pointdep.data.readers import read_column

    found = {}
    for name in names:
        if name in ("row", *taken):
            raise InputError(f"--carry {name}: the output has a column of that name: rename it")
        places = [path for path in paths if is_table(path) and name in table_columns(path)]
        if not places:
            tables = [path for path in paths if is_table(path)]
            if not tables:
                raise InputError(f"--carry {name}: only a table has columns to carry")
            known = [column for path in tables for column in table_columns(path)]
            raise unknown_name(
                f"column of {' and '.join(map(str, tables))} in --carry:", name, known
            )
        found[name] = read_column(places[0], name)
        if len(found[name]) != count:
            raise InputError(f"--carry {name}: {len(found[name])} rows for {count} pairs")
    return found


def _score_folders(
    model: str, files: list[str], fdr: float | None, columns: tuple[str | None, ...], **how: Any
) -> dict[str, Any]:
    """Score shards into shards; what `--json` says about them. fdr: None without --suspects."""
    from pointdep.auditing.report.wording import unlisted
    from pointdep.auditing.sharded_audit import audit_shards
    from pointdep.cluster.shard_scoring import score_shards
    from pointdep.data.readers import split_columns

    if len(files) > 2:
        raise InputError(f"give one folder with both sides or two folders, not {len(files)}")
    for side, names in zip("xy", columns, strict=True):
        own = None if names is None else split_columns(names, f"--{side}-columns")
        how[f"{side}_columns"] = own
    found: Any
    named = dict.fromkeys(("suspects", "contamination", "unlisted"))
    if fdr is None:
        found = score_shards(model, *files, **how)
    else:
        found = audit_shards(model, *files, fdr=fdr, **how)
        share = found.contamination
        # Pairs that came by chance beyond the suspects, if suspects could be named.
        more = unlisted(share, found.rows, found.suspects) if found.named else 0
        named = {"suspects": found.suspects, "contamination": share.share, "unlisted": more}
    _warn_of_outside(found.outside, found.rows)
    told = ("rows", "mean_pmi", "below_zero", "outside", "shards", "found")
    named["not_scored"] = 0
    return {**{name: getattr(found, name) for name in told}, **named}


def _warn_of_outside(outside: int, rows: int) -> None:
    if outside > _MANY_OUTSIDE * rows:
        said = f"{outside} of {rows} pairs lie outside the data of the fit: their pmi is an "
        said += "extrapolation, and the column outside says which they are"
        warnings.warn(said, DataWarning, stacklevel=2)


def _summary(found: dict[str, Any], output: Any, fdr: float) -> dict[str, str]:
    """The answer in words; fdr: of the suspects, if they were asked for."""
    rows, below, far = (found[name] for name in ("rows", "below_zero", "outside"))
    named = {}
    if found["suspects"] is not None:
        from pointdep.auditing.report.wording import in_round_numbers

        others = ""  # if more pairs came by chance than are suspects
        if found["unlisted"]:
            others = (
                f"; {in_round_numbers(found['unlisted'])} more of them came by chance than are "
                "listed: these rows cannot show which at this --fdr"
            )
        named = {
            "suspects": f"{found['suspects']}, of which about {fdr:.0%} may be right pairs",
            "by chance": f"{found['contamination']:.2%} of all pairs{others}",
        }
    before = ""
    if found["found"]:  # shards that an earlier run made
        before = f": {found['shards'] - found['found']} shards; {found['found']} were there"
        before = ", where nothing was missing" if found["found"] == found["shards"] else before
    lost, mean = found.get("not_scored", 0), found["mean_pmi"]
    more = f", of which {lost} cannot be scored: the column reason says why" if lost else ""
    return {
        "pairs": f"{rows}{more}",
        "mean PMI": "none" if mean is None else f"{mean:.3f} nats",
        "below zero": f"{below} ({below / rows:.2%}), together less often than chance",
        "outside": f"{far} ({far / rows:.2%}), unlike any pair of the fit",
        **named,
        "written": f"{output}{before}",
    }
