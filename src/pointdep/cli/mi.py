"""``pointdep mi``."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pointdep.cli import options, show
from pointdep.cli.options import Settings, refuse_for_classical, takes_settings
from pointdep.core.methods import METHODS, WITHOUT_NETWORKS
from pointdep.errors import InputError, unknown_name

_FIGURES = (".png", ".svg", ".pdf")
_KSG_COLUMNS = 2  # a side (docs/choosing.md)


@takes_settings
@options.explained
def mi(
    files: options.Files,
    *,
    method: options.AnyMethodName = "pc",
    settings: Settings,
    shuffles: Annotated[int, Option(min=0)] = 0,
    check: bool = False,
    check_plot: Path | None = None,
    curve_plot: Path | None = None,
    bits: bool = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Mutual information of paired rows, with an interval.

    For instance:  pointdep mi x.npy y.npy   or   pointdep mi pairs.parquet --x-columns a,b
    --y-columns c

    Are they dependent at all? --shuffles 39. Can the answer be believed? --check.

    Options
    -------
    shuffles: Test independence against so many copies with y shuffled: 39 allow p = 0.025 and take
        one or two times as long as the fit; 0 for no test.
    check: Test the fitted ratio on pairs that it has not seen.
    check_plot: As --check, and draw it: FILE.png, .svg or .pdf.
    curve_plot: Draw the learning curve: FILE.png, .svg or .pdf.
    bits: Print bits first, then nats.
    """
    from pointdep.data.writers import check_writable

    for place in (check_plot, curve_plot):
        if place is not None:
            check_writable(place, _FIGURES)
    x, y, groups = settings.read(files)  # before the slow imports: a mistyped name is told at once
    check_unit(method, bits)
    asked: dict[str, Any] = {"confidence": settings.confidence}
    model: Any
    if method in WITHOUT_NETWORKS:
        given = {"shuffles": shuffles, "check": check, "check_plot": check_plot}
        given["curve_plot"] = curve_plot
        refuse_for_classical(method, [name for name, value in given.items() if value])
        model = settings.classical(method, quiet=quiet)
    else:
        model = settings.networks(method, quiet=quiet)
        asked["shuffles"] = shuffles
        if curve_plot is not None:
            if model.curve is False:
                raise InputError("--curve-plot draws the learning curve: leave out --no-curve")
            model.set_params(curve=True)  # refused, before the fit, where there can be none
    model.fit(x, y, groups=groups)
    found = model.mutual_information(**asked)
    outcome = model.check() if check or check_plot is not None else None
    if outcome is not None and check_plot is not None:
        draw(outcome.plot, check_plot, (5.0, 5.4))
    if curve_plot is not None:
        draw(found.curve.plot, curve_plot, (6.0, 3.8))
    if json:
        checked = None if outcome is None else show.check_as_json(outcome, check_plot)
        show.print_json("mi", {**show.estimate_as_json(model, found), "check": checked})
        return
    more = {} if outcome is None else show.check_rows(outcome, check_plot)
    if curve_plot is not None:
        more["curve figure"] = str(curve_plot)
    if method == "ksg" and max(math.prod(side.shape[1:]) for side in (x, y)) > _KSG_COLUMNS:
        more["note"] = "ksg reads too low with more than two columns a side: compare --method pc"
    show.print_estimate(model, found, bits=bits, more=more)


def draw(plot: Callable[[Any], Any], place: Path, size: tuple[float, float]) -> None:
    """Write what plot(ax) draws as a figure of so many inches."""
    from matplotlib.figure import Figure

    from pointdep.data.atomic import whole_file

    figure = Figure(figsize=size, layout="constrained")
    plot(figure.subplots())
    with whole_file(place) as file:
        figure.savefig(file, dpi=120, format=place.suffix[1:].lower())


def check_unit(method: str, bits: bool) -> None:
    """Refuse before the fit what has no mutual information, or none in bits."""
    known: Any = METHODS.get(method)
    if known is None:
        from pointdep.estimators.classical.catalogue import CLASSICAL

        known = CLASSICAL.get(method)
    if known is None:
        measuring = [name for name, one in CLASSICAL.items() if one.estimates]
        raise unknown_name("method", method, [*METHODS, *measuring])
    if not known.estimates:
        raise InputError(f"--method {method} gives no mutual information: its score ranks pairs")
    if bits and known.estimates != "mutual information":
        raise InputError(f"--bits: --method {method} estimates {known.estimates}, which has none")
