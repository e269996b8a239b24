"""``pointdep calibrate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from pointdep.cli import options, show
from pointdep.cli.fit import check_places, save
from pointdep.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pointdep.auditing.result import Audit
    from pointdep.estimators.calibrated import CalibratedDependency

_EACH = "scored by a calibration that did not see it ({count} made, none trained)"


@options.explained
def calibrate(
    files: options.Files,
    *,
    output: options.SavedModel,
    oof: Path | None = None,
    kept: Path | None = None,
    fdr: float = 0.1,
    loss: str = "sigmoid",
    queries: str = "x",
    scale: float = 1.0,
    normalize: Annotated[bool, Option("--normalize/--as-they-are")] = True,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    x_encoder: str | None = None,
    y_encoder: str | None = None,
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
    these pairs belong together least. It prints what a score means: its PMI, how likely a pair of
    this score is right, and which share of the pairs is kept at each rate. A single folder that
    clip-retrieval has written (img_emb, text_emb, metadata) is read as it is.

    Options
    -------
    kept: The cleaned list, .csv or .parquet: score, PMI and probability of being right of the pairs
        kept at --fdr, with the columns of clip-retrieval's metadata, or of files that are tables.
    fdr: Share of the pairs left out that may be right ones.
    oof: File for the PMI of these pairs, each by a calibration that did not see it.
    loss: How the model was trained: sigmoid, softmax or softmax_one_sided.
    queries: With softmax_one_sided, the side that asks: x or y.
    scale: Of the inner product: the slope is told in its unit.
    normalize: Bring embeddings to length one, or not.
    x_encoder: The tower that embeds texts or pictures of x, as for pointdep audit.
    y_encoder: The same for y.
    folds: Calibrations made; each scores the rows it did not see.
    """
    from pointdep.auditing.decision import check_shares
    from pointdep.data.readers import read_pairs
    from pointdep.data.writers import check_writable

    check_places(output, oof)
    check_shares(fdr, None)
    if kept is not None:
        check_writable(kept, (".csv", ".parquet"))
    files, listed = _embeddings(files)
    named: Any = {"x_columns": x_columns, "y_columns": y_columns}
    x, y = read_pairs(files, **named, encoders=(x_encoder, y_encoder))
    names = options.read_groups(groups, group_column, files)
    from pointdep.estimators.calibrated import from_embeddings

    trained: Any = {"loss": loss, "queries": queries, "scale": scale, "normalize": normalize}
    how: Any = {"groups": names, "folds": folds, "random_state": seed, "device": device}
    model = from_embeddings(x, y, **trained, **how, progress=not quiet)
    save(model, output, oof)
    meaning = Meaning.of(model, x, y, fdr)
    if kept is not None:
        _write_kept(meaning, listed, kept)
    found, check = model.mutual_information(confidence=confidence), model.check()
    if json:
        told = {name: getattr(model, f"{name}_") for name in ("slope", "slope_stderr", "shift")}
        told |= {"loss": loss, "output": output, "check": show.check_as_json(check, None)}
        told |= {"scores": meaning.scores, "rates": meaning.rates, "fdr": fdr, "kept": kept}
        show.print_json("calibrate", {**show.estimate_as_json(model, found), **told})
        return
    calibration = f"log r = {model.slope_:.4g} * logit {model.shift_:+.4g}"
    more = {"calibration": calibration, **show.check_rows(check, None)}
    show.print_estimate(model, found, each=_EACH, more=more)
    print(meaning)
    if kept is not None:
        print(f"\n{len(meaning.found.kept):,} pairs kept in {kept}")
    print(f"model saved in {output}; score other pairs with: pointdep score {output} ...")


# What a score means, and which pairs are kept.

_PERCENTILES = (0, 1, 2, 5, 10, 25, 50, 75, 90, 100)
_RATES = (0.05, 0.1, 0.2, 0.3, 0.5)
_NEAR = 0.01  # of the pairs: so many around a score are averaged, 20 at least


@dataclass(frozen=True, eq=False)
class Meaning:
    """Of pairs with scores (n,): the audit of them, and what is read off it.

    scores: at percentiles, the score, mean PMI and probability of being right of the pairs near it,
    and the share of pairs with a lower score. rates: at each rate the share of pairs kept, and the
    highest score of one that is not.
    """

    found: Audit
    score: NDArray[np.float64]
    scores: list[dict[str, float]]
    rates: list[dict[str, float | None]]

    @classmethod
    def of(cls, model: CalibratedDependency, x: Any, y: Any, fdr: float) -> Meaning:
        import numpy as np

        from pointdep.auditing.audit import judged

        found = judged(model, x, y, fdr)
        fronts = (encoder.front for encoder in (model.encoder_x_, model.encoder_y_))
        x, y = (
            side if front is None else front.transform(side)[0]
            for side, front in zip((x, y), fronts, strict=True)
        )
        score = _score(x, y, model.scale, model.normalize)
        # Rows that could not be read have no score, and come last.
        order, rows = np.argsort(score, kind="stable"), int(np.isfinite(score).sum())
        near = min(rows, max(20, int(_NEAR * rows)))
        table, scores = found.table, []
        for percentile in _PERCENTILES:
            place = round(percentile / 100 * (rows - 1))
            first = min(max(place - near // 2, 0), rows - near)
            part = table.iloc[order[first : first + near]]
            told = {"score": score[order[place]], "pmi": part["pmi"].mean()}
            told |= {"right": 1.0 - part["posterior"].mean(), "below": place / rows}
            scores.append({name: float(value) for name, value in told.items()})
        rates: list[dict[str, float | None]] = []
        for rate in sorted({*_RATES, fdr}):
            suspect = found.at(rate).table["suspect"].to_numpy(bool)
            cut = float(score[suspect].max()) if suspect.any() else None
            rates.append({"fdr": rate, "kept": 1.0 - float(suspect.mean()), "cut": cut})
        return cls(found, score, scores, rates)

    def __str__(self) -> str:
        lines = ["", f"{'score':>9} {'PMI':>8} {'right':>7}  pairs below"]
        for one in self.scores:
            head = f"{one['score']:>9.4g} {one['pmi']:>8.2f} {one['right']:>7.1%}"
            lines.append(f"{head}  {one['below']:.1%}")
        lines += ["", f"{'rate':>9} {'kept':>8}  left out up to the score"]
        for rate in self.rates:
            cut = "-" if rate["cut"] is None else f"{rate['cut']:.4g}"
            lines.append(f"{rate['fdr']:>9.0%} {rate['kept']:>8.2%}  {cut}")
        share = self.found.contamination
        doubt = "" if share.stderr is None else f" +- {share.stderr:.1%}"
        return "\n".join(
            [*lines, "", f"pairs that are wrong, by estimate: {share.share:.1%}{doubt}"]
        )


def _score(x: Any, y: Any, scale: float, normalize: bool) -> NDArray[np.float64]:
    """scale times the inner product of each pair, (n,), of length one if they are normalized."""
    import numpy as np

    found = np.empty(len(x))
    for first in range(0, len(x), 1 << 14):
        a, b = (np.asarray(side[first : first + (1 << 14)], np.float64) for side in (x, y))
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) if normalize else 1.0
        found[first : first + len(a)] = scale * (a * b).sum(1) / norms
    return found


def _embeddings(files: list[Path]) -> tuple[list[Path], list[Path]]:
    """The two sides, and what lists the pairs: of a folder of clip-retrieval its parts."""
    if len(files) != 1 or not files[0].is_dir():
        return files, files
    folder, sides = files[0], [files[0] / name for name in ("img_emb", "text_emb")]
    for side in sides:
        if not side.is_dir():
            raise InputError(f"{folder} has no folder {side.name}, which clip-retrieval writes")
    return sides, [path for path in [folder / "metadata"] if path.is_dir()]


def _write_kept(meaning: Meaning, listed: list[Path], path: Path) -> None:
    from pointdep.auditing.saved import kept_table
    from pointdep.data.writers import write_table

    rows = meaning.found.kept
    table = kept_table(meaning.found, listed, as_text=path.suffix.lower() == ".csv")
    told = meaning.found.table.iloc[rows]
    columns: dict[str, Any] = {"row": rows, "score": meaning.score[rows]}
    columns |= {"pmi": told["pmi"].to_numpy(), "right": 1.0 - told["posterior"].to_numpy()}
    columns |= {str(name): table[name] for name in table if str(name) not in columns}
    write_table(path, columns)
