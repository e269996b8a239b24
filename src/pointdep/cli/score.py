"""``pointdep score``."""

from __future__ import annotations

import warnings
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import DataWarning, InputError

if TYPE_CHECKING:
    from pointdep.auditing.shards import AuditedShards
    from pointdep.estimators.pointwise import PointwiseDependency

ModelFolder = Annotated[str, typer.Argument(help="Folder written by pointdep fit.")]
FilesOrFolders = Annotated[
    list[str],
    typer.Argument(
        metavar="X Y",
        help="Two files of paired rows, or one with both sides: .npy .npz .csv .parquet "
        ".arrow .feather .ipc .vec .safetensors; or folders of shards: for -o FOLDER of .parquet "
        "ones, also by URI (s3://...).",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help=".parquet, .csv (row, pmi, npmi, stderr, outside) or .npy (pmi); without it, CSV on "
        "standard output. For folders of shards a folder, to get a shard for each of x.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="For folders of shards: local, in this process, or ray, by the workers of a Ray "
        "cluster (pip install 'pointdep[ray]').",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="With --engine ray: workers, of a CPU each; else as many as fit.",
    ),
]
GpusPerWorker = Annotated[
    float,
    typer.Option(
        "--gpus-per-worker", min=0, help="With --engine ray: GPUs of each worker, as 1 or 0.5."
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size", min=1, help="For folders of shards: rows at a time; else by their width."
    ),
]
Suspects = Annotated[
    bool,
    typer.Option(
        "--suspects",
        help="For folders of shards: also say which pairs are likely wrong, as audit does.",
    ),
]
Fdr = Annotated[
    float | None,
    typer.Option(
        "--fdr", help="Share of the suspects that may be right pairs.", show_default="0.1, a tenth"
    ),
]

_MANY_OUTSIDE = 0.01


def score(
    model: ModelFolder,
    files: FilesOrFolders,
    output: Output = None,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    engine: Engine = None,
    workers: Workers = None,
    gpus_per_worker: GpusPerWorker = 0.0,
    batch_size: BatchSize = None,
    suspects: Suspects = False,
    fdr: Fdr = None,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """PMI of new pairs by a saved model.

    For instance:  pointdep score model/ x.npy y.npy -o pmi.parquet

    pmi is above 0 for pairs that come together more often than chance; npmi is the same scaled to
    [-1, 1]; stderr is the standard error of pmi; outside says that the pair is unlike any of the
    fit, so that its pmi is an extrapolation.

    For the rows that the model was fitted on use pointdep fit --oof, which scores each by models
    that did not see it.

    Folders of .parquet shards:  pointdep score model/ x/ y/ -o scores/ --engine ray

    Output shard k has the name and the rows of shard k of x. The same command again does what is
    missing after a crash. --suspects is for pairs that the model was not fitted on.
    """
    if fdr is not None and not suspects:
        raise InputError("--fdr is for --suspects: give both")
    fdr = 0.1 if fdr is None else fdr
    if engine is not None or names_folder(output):
        if output is None:
            raise InputError("--engine writes a folder of shards: give -o FOLDER")
        found = score_folders(
            model,
            files,
            output,
            (x_columns, y_columns),
            fdr if suspects else None,
            engine=engine or "local",
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            batch_size=batch_size,
            device=device,
            progress=not quiet,
        )
    else:
        of_shards = {
            "--suspects": suspects,
            "--workers": workers,
            "--gpus-per-worker": gpus_per_worker,
            "--batch-size": batch_size,
        }
        refuse_for_files([name for name, value in of_shards.items() if value], files)
        columns = score_files(Path(model), files, output, (x_columns, y_columns), device, quiet)
        if output is None and not json:
            print_table(columns)
            return
        found = about_files(columns)
    if json:
        print_json("score", {**found, "output": output})
        return
    print_found(found, output, fdr)


def about_files(columns: dict[str, Any]) -> dict[str, Any]:
    """What is told of scored files, under the names it has of folders of shards."""
    pmi = columns["pmi"]
    return {
        "rows": len(pmi),
        "mean_pmi": float(pmi.mean()),
        "below_zero": int((pmi < 0).sum()),
        "outside": int(columns["outside"].sum()),
        **dict.fromkeys(("suspects", "contamination", "unlisted", "shards", "found")),
    }


def print_found(found: dict[str, Any], output: Any, fdr: float) -> None:
    """The answer in words; fdr: of the suspects, where they were asked for."""
    rows, below, far = (found[name] for name in ("rows", "below_zero", "outside"))
    named = {}
    if found["suspects"] is not None:
        named = {
            "suspects": f"{found['suspects']}, of which about {fdr:.0%} may be right pairs",
            "by chance": f"{found['contamination']:.2%} of all pairs{more_by_chance(found)}",
        }
    print_rows(
        {
            "pairs": str(rows),
            "mean PMI": f"{found['mean_pmi']:.3f} nats",
            "below zero": f"{below} ({below / rows:.2%}), together less often than chance",
            "outside": f"{far} ({far / rows:.2%}), unlike any pair of the fit",
            **named,
            "written": f"{output}{what_was_there(found)}",
        }
    )


def more_by_chance(found: dict[str, Any]) -> str:
    """Why those that came by chance are more than the suspects, where they are."""
    if not found["unlisted"]:
        return ""
    from pointdep.auditing.report.words import in_round_numbers

    return (
        f"; {in_round_numbers(found['unlisted'])} more of them came by chance than are listed: "
        "these rows cannot show which at this --fdr"
    )


def what_was_there(found: dict[str, Any]) -> str:
    """Of an output in shards: that earlier runs had made some or all of them."""
    if not found["found"]:
        return ""
    if found["found"] == found["shards"]:
        return ", where nothing was missing"
    return f": {found['shards'] - found['found']} shards; {found['found']} were there"


def refuse_for_files(options: list[str], files: list[str]) -> None:
    """InputError where there are options, which mean nothing with an output file."""
    if not options:
        return
    listed = ", ".join(options)
    odd = [file for file in files if Path(file).suffix not in ("", ".parquet")]
    instead = "; of files, pointdep audit finds the suspects" if "--suspects" in options else ""
    if odd:
        raise InputError(
            f"{listed} is for folders of .parquet shards, which {odd[0]} is not: leave it out"
            f"{instead}"
        )
    raise InputError(f"{listed} is for an output in shards: give a folder, as -o FOLDER/")


def names_folder(output: str | None) -> bool:
    """Whether the output is a folder of shards rather than a file."""
    if output is None:
        return False
    return "://" in output or output.endswith("/") or not Path(output).suffix


def score_files(
    model: Path,
    files: list[str],
    output: str | None,
    columns: tuple[str | None, str | None],
    device: str,
    quiet: bool,
) -> dict[str, Any]:
    """Read the pairs, score them and write the table where it is wanted."""
    from pointdep.data.readers import read_pairs, remembered
    from pointdep.data.writers import check_writable, write_table
    from pointdep.estimators.pointwise import PointwiseDependency

    if output is not None:
        check_writable(Path(output))
    fitted = PointwiseDependency.load(model, device=device)
    paths = [Path(file) for file in files]
    known = fitted.encoder_x_.list_column, fitted.encoder_y_.list_column
    x_columns, y_columns = remembered(paths, columns, known)
    x, y = read_pairs(paths, x_columns=x_columns, y_columns=y_columns)
    fitted.progress = not quiet
    table = score_columns(fitted, x, y)
    if output is not None:
        write_table(Path(output), table)
    return table


def score_folders(
    model: str,
    files: list[str],
    output: str,
    columns: tuple[str | None, str | None],
    fdr: float | None,
    **how: Any,
) -> dict[str, Any]:
    """Score shards into shards; what `--json` says of them. fdr: None where none are suspected."""
    from pointdep.auditing.shards import audit_shards
    from pointdep.cluster.scoring import score_shards
    from pointdep.data.readers import split_columns

    if len(files) > 2:
        raise InputError(f"give one folder with both sides or two folders, not {len(files)}")
    x_columns, y_columns = (
        None if names is None else split_columns(names, option)
        for names, option in zip(columns, ("--x-columns", "--y-columns"), strict=True)
    )
    how |= {"output": output, "x_columns": x_columns, "y_columns": y_columns}
    judged = None if fdr is None else audit_shards(model, *files, fdr=fdr, **how)
    found = judged or score_shards(model, *files, **how)
    warn_of_outside(found.outside, found.rows)
    return {
        **{name: getattr(found, name) for name in ("rows", "mean_pmi", "below_zero", "outside")},
        "suspects": None if judged is None else judged.suspects,
        "contamination": None if judged is None else judged.contamination.share,
        "unlisted": None if judged is None else count_unlisted(judged),
        "shards": found.shards,
        "found": found.found,
    }


def count_unlisted(judged: AuditedShards) -> int:
    """Pairs that came by chance beyond the suspects, where these could be named."""
    from pointdep.auditing.report.words import unlisted

    if not judged.named:
        return 0
    return unlisted(judged.contamination, judged.rows, judged.suspects)


def score_columns(fitted: PointwiseDependency, x: Any, y: Any) -> dict[str, Any]:
    """The table, (n,) each; stderr is NaN where the model is a single one and has none."""
    import numpy as np

    from pointdep.estimators.pointwise import pair_columns
    from pointdep.fitting.progress import show

    with show("scoring", enabled=fitted.progress) as progress:
        columns = pair_columns(fitted, x, y, progress)
    warn_of_outside(int(columns["outside"].sum()), len(columns["pmi"]))
    return {"row": np.arange(len(columns["pmi"])), **columns}


def warn_of_outside(outside: int, rows: int) -> None:
    """In the words of the command, where they are many."""
    if outside > _MANY_OUTSIDE * rows:
        warnings.warn(
            f"{outside} of {rows} pairs lie outside the data of the fit: their pmi is an "
            "extrapolation, and the column outside says which they are",
            DataWarning,
            stacklevel=2,
        )


def print_table(columns: dict[str, Any]) -> None:
    """CSV on standard output; an empty field where there is no number."""
    print(",".join(columns))
    for row, pmi, npmi, stderr, outside in zip(*columns.values(), strict=True):
        error = "" if isnan(stderr) else f"{stderr:.6g}"
        print(f"{row},{pmi:.6g},{npmi:.6g},{error},{outside}")
