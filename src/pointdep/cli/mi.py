"""``pointdep mi``."""

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pointdep.cli import options, show
from pointdep.cli.options import Settings, parse_sides, refuse_for_classical, takes_settings
from pointdep.core.methods import METHODS, WITHOUT_NETWORKS
from pointdep.errors import InputError, PointdepError, unknown_name

FIGURES = (".png", ".svg", ".pdf")
_LINE_AWAY = "\x1b[1A\x1b[2K"  # of a terminal: up, and clear what stands there
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
    quick: bool = False,
    bits: bool = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Mutual information of paired rows, with an interval.

    For instance:  pointdep mi x.npy y.npy   or   pointdep mi pairs.parquet --x-columns a,b
    --y-columns c

    Are they dependent at all? --shuffles 39. Can the answer be believed? --check.

    On a terminal a first estimate stands there while the networks train; --quick ends with it.

    Options
    -------
    shuffles: Test independence against so many copies with y shuffled: 39 allow p = 0.025 and take
        one or two times as long as the fit; 0 for no test.
    check: Test the fitted ratio on pairs that it has not seen.
    check_plot: As --check, and draw it: FILE.png, .svg or .pdf.
    curve_plot: Draw the learning curve: FILE.png, .svg or .pdf.
    quick: Train no networks: an estimate within seconds, from counts, nearest neighbours or the
        Gaussian closed form, as the columns allow.
    bits: Print bits first, then nats.
    """
    from pointdep.data.writers import check_writable

    places = {"check_plot": check_plot, "curve_plot": curve_plot}
    for place in filter(None, places.values()):
        check_writable(place, FIGURES)
    x, y, groups = settings.read(files)  # before the slow imports: a mistyped name is told at once
    if quick:
        asked = {"method": method != "pc", "shuffles": shuffles > 0, "check": check}
        asked |= {name: place is not None for name, place in places.items()}
        asked["groups"] = groups is not None
        _refuse_with_quick(asked)
        _print_quick(settings, x, y, bits=bits, json=json)
        return
    options_of: dict[str, Any] = {"confidence": settings.confidence}
    model: Any
    wanted = method not in WITHOUT_NETWORKS and not (json or quiet) and sys.stderr.isatty()
    with _first_line(settings, x, y) if wanted else nullcontext():  # then the slow imports
        check_unit(method, bits)
        if method in WITHOUT_NETWORKS:
            given = {"shuffles": shuffles, "check": check, **places}
            refuse_for_classical(method, [name for name, value in given.items() if value])
            model = settings.classical(method, quiet=quiet)
        else:
            model = settings.networks(method, quiet=quiet)
            options_of["shuffles"] = shuffles
            if curve_plot is not None:
                if model.curve is False:
                    raise InputError("--curve-plot draws the learning curve: leave out --no-curve")
                model.set_params(curve=True)  # refused, before the fit, where there can be none
        model.fit(x, y, groups=groups)
    found = model.mutual_information(**options_of)
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
    widths = (len(model.encoder_x_.names), len(model.encoder_y_.names))
    if method == "ksg" and max(widths) > _KSG_COLUMNS:
        more["note"] = "ksg reads too low with more than two columns a side: compare --method pc"
    show.print_estimate(model, found, bits=bits, more=more)


def _refuse_with_quick(given: dict[str, bool]) -> None:
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if names:
        raise InputError(f"--quick looks at independent rows once: leave out {', '.join(names)}")


def _print_quick(settings: Settings, x: Any, y: Any, *, bits: bool, json: bool) -> None:
    """The first estimate as the answer."""
    from pointdep.estimators.first_estimate import first_estimate

    discrete = parse_sides(settings.discrete)
    first = first_estimate(x, y, discrete=discrete, seed=settings.seed, missing=settings.missing)
    ends = first.interval(settings.confidence)
    if json:
        told = {"estimates": "mutual information", "nats": first.nats}
        told |= {"bits": first.nats / math.log(2), "stderr": first.stderr, "ci": list(ends)}
        told |= {"confidence": settings.confidence, "correction": 0.0, "rows": first.rows}
        told |= {"null_p": None, "shuffles": 0, "lower": None, "curve": None}
        rest = {"method": first.method, "folds": 0, "flags": [], "check": None}
        rest |= show.encoders_as_json((None, None), {})
        show.print_json("mi", {"estimate": told, **rest})
        return
    scale, unit = (math.log(2), "bits") if bits else (1.0, "nats")
    low, high = (f"{end / scale:.2f}" for end in ends)
    rows = {"mutual information": f"{first.nats / scale:.2f} {unit}"}
    rows[f"{100 * settings.confidence:g}% interval"] = f"{low} to {high} {unit}"
    rows["rows"] = f"{first.of}"
    rows["method"] = f"{first.source}, no networks: without --quick they find more"
    show.print_rows(rows)


@contextmanager
def _first_line(settings: Settings, x: Any, y: Any) -> Iterator[None]:
    """The first estimate in a line of a terminal, which is taken away when the work is done.

    Warnings of the work wait until then: they would stand below the line.
    """
    from pointdep.estimators.first_estimate import first_estimate, is_quick

    discrete = parse_sides(settings.discrete)
    line = ""
    with warnings.catch_warnings(), suppress(PointdepError):  # the fit says what is wrong
        warnings.simplefilter("ignore")
        if is_quick(x, y):
            how: dict[str, Any] = {"seed": settings.seed, "missing": settings.missing}
            first = first_estimate(x, y, discrete=discrete, **how)
            low, high = first.interval(settings.confidence)
            line = f"first estimate: {first.nats:.2f} nats, {low:.2f} to {high:.2f}"
            line += f" ({first.source}); networks look closer"
    if line:
        print(line, file=sys.stderr, flush=True)
    waiting: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as waiting:
            yield
    finally:
        if line:
            print(_LINE_AWAY, end="", file=sys.stderr, flush=True)
        for one in waiting:
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)


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
