"""Rows that the tests of several rooms draw and write."""

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def correlated(rows=3000, dx=3, dy=2, seed=0, dtype=np.float32):
    """x: (rows, dx) and y: (rows, dy) of two factors, of which x sees each with a noise of 0.5."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(rows, 2))
    noisy = z + 0.5 * random.normal(size=z.shape)
    x = np.concatenate([noisy, random.normal(size=(rows, dx - 2))], 1)
    y = np.concatenate([z, random.normal(size=(rows, dy - 2))], 1)
    return x.astype(dtype), y.astype(dtype)


def lists(values):
    """(rows, width) as an Arrow column of lists of one length."""
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def write_shards(folder, columns, sizes, group=7):
    """Tables of these columns, cut into files part-0, part-1, ... of so many rows."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    for number, (a, b) in enumerate(itertools.pairwise(np.cumsum([0, *sizes]).tolist())):
        cut = {name: values[a:b] for name, values in columns.items()}
        table = pa.table({k: lists(v) if v.ndim == 2 else pa.array(v) for k, v in cut.items()})
        # As many bytes whatever the numbers are.
        plain = {"compression": "none", "use_dictionary": False, "row_group_size": group}
        pq.write_table(table, folder / f"part-{number}.parquet", **plain)
    return folder
