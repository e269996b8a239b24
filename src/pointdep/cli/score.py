"""``pointdep score``."""

import warnings
from math import isnan
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import DataWarning, InputError

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

    Options
    -------
    files: Two files of paired rows, or one with both sides: .npy .npz .csv .tsv .parquet .arrow
        .feather .ipc .vec .safetensors; or folders of shards: for -o FOLDER of .parquet ones, also
        by URI (s3://...).
    output: .parquet, .csv (row, pmi, npmi, stderr, outside) or .npy (pmi); by default CSV on
        standard output. For folders of shards a folder, with one shard per shard of x.
    engine: For folders: local, or ray, on a Ray cluster (pip install pointdep[ray]).
    workers: Ray workers, with one CPU each; else as many as fit.
    gpus_per_worker: GPUs of each Ray worker, as 1 or 0.5.
    batch_size: For folders: rows at a time; else by their width.
    suspects: For folders: find likely wrong pairs, as audit does.
    fdr: Share of the suspects that may be right pairs. [0.1, a tenth]
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
        judge = fdr if suspects else None
        found = _score_folders(model, files, judge, columns, progress=not quiet, **how)
    else:
        given = {"suspects": suspects, **of_shards}
        _refuse_for_files([name for name, value in given.items() if value], files)
        from pointdep.data.writers import check_writable
        from pointdep.estimators.pointwise import PointwiseDependency

        if output is not None:
            check_writable(Path(output))
        fitted = PointwiseDependency.load(model, device=device)
        fitted.progress = not quiet
        table = _score_files(fitted, [Path(file) for file in files], output, columns)
        if output is None and not json:
            print(",".join(table))
            for row, pmi, npmi, stderr, outside in zip(*table.values(), strict=True):
                error = "" if isnan(stderr) else f"{stderr:.6g}"
                print(f"{row},{pmi:.6g},{npmi:.6g},{error},{outside}")
            return
        pmi = table["pmi"]
        found = {
            "rows": len(pmi),
            "mean_pmi": float(pmi.mean()),
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


def _score_files(
    fitted: Any, paths: list[Path], output: str | None, columns: tuple[str | None, str | None]
) -> dict[str, Any]:
    """Score the pairs, (n,) each, and write the table if a file is wanted.

    stderr is NaN if the model is a single one.
    """
    import numpy as np

    from pointdep.data.readers import read_pairs, remembered
    from pointdep.data.writers import write_table
    from pointdep.estimators.pointwise import pair_columns
    from pointdep.fitting.progress import show

    known = fitted.encoder_x_.list_column, fitted.encoder_y_.list_column
    x_columns, y_columns = remembered(paths, columns, known)
    x, y = read_pairs(paths, x_columns=x_columns, y_columns=y_columns)
    with show("scoring", enabled=fitted.progress) as progress:
        found = pair_columns(fitted, x, y, progress)
    _warn_of_outside(int(found["outside"].sum()), len(found["pmi"]))
    table = {"row": np.arange(len(found["pmi"])), **found}
    if output is not None:
        write_table(Path(output), table)
    return table


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

        more = ""  # if more pairs came by chance than are suspects
        if found["unlisted"]:
            more = (
                f"; {in_round_numbers(found['unlisted'])} more of them came by chance than are "
                "listed: these rows cannot show which at this --fdr"
            )
        named = {
            "suspects": f"{found['suspects']}, of which about {fdr:.0%} may be right pairs",
            "by chance": f"{found['contamination']:.2%} of all pairs{more}",
        }
    before = ""
    if found["found"]:  # shards that an earlier run made
        before = f": {found['shards'] - found['found']} shards; {found['found']} were there"
        before = ", where nothing was missing" if found["found"] == found["shards"] else before
    return {
        "pairs": str(rows),
        "mean PMI": f"{found['mean_pmi']:.3f} nats",
        "below zero": f"{below} ({below / rows:.2%}), together less often than chance",
        "outside": f"{far} ({far / rows:.2%}), unlike any pair of the fit",
        **named,
        "written": f"{output}{before}",
    }
