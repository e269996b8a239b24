"""Results to files: all of a table or nothing."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pointdep.data.atomic import whole_file
from pointdep.data.raw import Array
from pointdep.errors import InputError

SUFFIXES = (".csv", ".npy", ".parquet")


def check_writable(path: Path, suffixes: Sequence[str] = SUFFIXES) -> None:
    """InputError when path could not be written; call it before a long computation."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        known = ", ".join(suffixes)
        raise InputError(f"{path} has the unknown suffix {path.suffix!r}: choose from {known}")
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: the folder {path.parent} is read-only")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path} cannot be written: the file is read-only")


def write_table(
    path: Path, columns: Mapping[str, Array], about: Mapping[str, str] | None = None
) -> None:
    """Write equally long columns: (rows,) each; a .npy file takes the column "pmi" alone.

    about: texts that a .parquet file keeps as its metadata.

    The file appears whole or not at all, and an interrupted run leaves an older one as it was.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    check_writable(path)
    shapes = {name: np.shape(values) for name, values in columns.items()}
    if len(set(shapes.values())) != 1 or len(next(iter(shapes.values()))) != 1:
        raise InputError(f"{path}: a table needs columns (rows,) of one length, not {shapes}")
    if suffix == ".npy" and "pmi" not in columns:
        raise InputError(f"{path}: there is no column 'pmi' for .npy: write .csv or .parquet")
    with whole_file(path) as file:
        if suffix == ".npy":
            np.save(file, np.asarray(columns["pmi"]), allow_pickle=False)
        elif suffix == ".csv":
            import csv

            import pandas as pd

            table = pd.DataFrame(dict(columns))
            if has_return(columns):
                table.to_csv(file, index=False, mode="wb", quoting=csv.QUOTE_NONNUMERIC)
            else:
                table.to_csv(file, index=False, mode="wb")
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.table({name: pa.array(v) for name, v in columns.items()})
            pq.write_table(table.replace_schema_metadata(about), file)


def has_return(columns: Mapping[str, Array]) -> bool:
    """Whether a name or a text among equally long columns has a carriage return in it.

    Before Python 3.13 it is not quoted in CSV when it is alone, and reads as a new row.
    """
    texts = (values for values in columns.values() if np.asarray(values).dtype.kind in "OUT")
    cells = (cell for values in texts for cell in values if isinstance(cell, str))
    return any("\r" in cell for cell in (*columns, *cells))
