"""``pointdep embed``."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pointdep.cli import options
from pointdep.cli.show import print_json, print_rows
from pointdep.errors import InputError


@options.explained
def embed(
    file: Annotated[Path, Argument(metavar="FILE")],
    *,
    output: Annotated[Path, Option("--output", "-o")],
    column: str | None = None,
    encoder: str | None = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Texts, pictures or sounds as numbers, in a file of one row each.

    For instance:  pointdep embed captions.csv --column caption --encoder all-MiniLM-L6-v2 -o y.npy

    mi, fit and audit do so by themselves, with --x-encoder and --y-encoder. What named encoders
    give is kept: the same content is not embedded again. A row that cannot be read is NaN. Numbers
    of both sides by one two-tower model, such as CLIP, are for pointdep calibrate.

    Options
    -------
    file: Table, folder of pictures or sounds, lines of text (.txt), saved data set or .tar.
    output: The numbers, .npy.
    column: Column of a table; by default its only one.
    encoder: Model or folder of sentence-transformers, open_clip or transformers, or an encoder of
        pointdep pretrain. [built in, learned from these rows]
    """
    import numpy as np

    from pointdep.data.atomic import whole_file
    from pointdep.data.encoders import Front
    from pointdep.data.media import RawRows, telling
    from pointdep.data.readers import read_side
    from pointdep.data.writers import check_writable
    from pointdep.estimators.base import some_reasons
    from pointdep.fitting.progress import show

    check_writable(output, (".npy",))
    rows = read_side(file, columns=column, key=None, name="embed", encoder=encoder)
    if not isinstance(rows, RawRows):
        raise InputError(
            f"{file} holds no column of texts, pictures or sounds: name it by --column"
        )
    with show("encoding", enabled=not quiet, left="about") as progress:
        front, values, reasons = Front.fit(telling(rows, progress.update))
    with whole_file(output) as place:
        np.save(place, values, allow_pickle=False)
    if json:
        left_out = [{"row": row, "reason": reason} for row, reason in reasons.items()]
        told = {"rows": len(values), "width": values.shape[1], "encoder": front.described}
        print_json("embed", {**told, "left_out": left_out, "output": output})
        return
    lost = f"{len(reasons)}: {some_reasons(reasons)}"
    print_rows(
        {
            "rows": f"{len(values)} {front.described}, {values.shape[1]} numbers each",
            **({"not read": lost} if reasons else {}),
            "written": str(output),
        }
    )
