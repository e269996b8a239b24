"""``pointdep calibrate``."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pointdep.cli import options, show
from pointdep.cli.fit import check_places, save

_EACH = "scored by a calibration that did not see it ({count} made, none trained)"


@options.explained
def calibrate(
    files: options.Files,
    *,
    output: options.SavedModel,
    oof: Path | None = None,
    loss: str = "sigmoid",
    queries: str = "x",
    scale: float = 1.0,
    normalize: Annotated[bool, Option("--normalize/--as-they-are")] = True,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    groups: options.Groups = None,
    group_column: options.GroupColumn = None,
    folds: int = 5,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """PMI from the embeddings of a model you already have, such as CLIP.

    For instance:  pointdep calibrate images.npy captions.npy --loss softmax -o model/

    Row i of both files are embeddings of a pair that the model was not trained on. The folder is
    for pointdep score and pointdep retrieve, with embeddings in their files; --oof tells which of
    these pairs belong together least.

    Options
    -------
    oof: File for the PMI of these pairs, each by a calibration that did not see it.
    loss: How the model was trained: sigmoid, softmax or softmax_one_sided.
    queries: With softmax_one_sided, the side that asks: x or y.
    scale: Of the inner product: the slope is told in its unit.
    normalize: Bring embeddings to length one, or not.
    folds: Calibrations made; each scores the rows it did not see.
    """
    from pointdep.data.readers import read_pairs

    check_places(output, oof)
    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    names = options.read_groups(groups, group_column, files)
    from pointdep.estimators.calibrated import from_embeddings

    trained: Any = {"loss": loss, "queries": queries, "scale": scale, "normalize": normalize}
    how: Any = {"groups": names, "folds": folds, "random_state": seed, "device": device}
    model = from_embeddings(x, y, **trained, **how, progress=not quiet)
    save(model, output, oof)
    found, check = model.mutual_information(confidence=confidence), model.check()
    if json:
        told = {name: getattr(model, f"{name}_") for name in ("slope", "slope_stderr", "shift")}
        told |= {"loss": loss, "output": output, "check": show.check_as_json(check, None)}
        show.print_json("calibrate", {**show.estimate_as_json(model, found), **told})
        return
    calibration = f"log r = {model.slope_:.4g} * logit {model.shift_:+.4g}"
    more = {"calibration": calibration, **show.check_rows(check, None)}
    show.print_estimate(model, found, each=_EACH, more=more)
    print(f"model saved in {output}; score other pairs with: pointdep score {output} ...")
