"""How results are printed."""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pointdep
from pointdep.errors import printable

if TYPE_CHECKING:
    from pointdep.errors import Flag
    from pointdep.estimators.classical.estimator import ClassicalDependency
    from pointdep.estimators.pointwise import PointwiseDependency
    from pointdep.inference.checks import RatioCheck
    from pointdep.inference.mutual_information import MIEstimate

    Model = PointwiseDependency | ClassicalDependency

SCHEMA_VERSION = 1
_WIDTH = 100


def print_json(command: str, content: dict[str, Any]) -> None:
    """One JSON object: what command, what version, and its content."""
    head = {"command": command, "schema": SCHEMA_VERSION, "pointdep": pointdep.__version__}
    print(json.dumps({**head, **content}, allow_nan=False, default=os.fspath))


def estimate_as_json(model: Model, found: MIEstimate) -> dict[str, Any]:
    """The part that `mi`, `fit` and `demo` share."""
    folds = int(getattr(model, "n_replicas_", 0))  # none are trained by a classical method
    told = {**found_as_json(found), "folds": folds, "flags": flags_as_json(model.flags_)}
    return told | encoders_as_json(encoders_of(model), getattr(model, "left_out_", {}))


def encoders_of(model: Any) -> tuple[str | None, str | None]:
    """What made the numbers of texts, pictures and sounds, in words, for x and y."""
    fronts = (
        getattr(getattr(model, f"encoder_{side}_", None), "front", None) for side in ("x", "y")
    )
    x, y = (None if front is None else str(front.described) for front in fronts)
    return x, y


def encoders_as_json(
    encoders: tuple[str | None, str | None], left_out: Mapping[int, str]
) -> dict[str, Any]:
    """The same, and rows that could not be read."""
    reasons = [{"row": row, "reason": reason} for row, reason in left_out.items()]
    return {"encoders": dict(zip("xy", encoders, strict=True)), "left_out": reasons}


def encoder_rows(
    encoders: tuple[str | None, str | None], left_out: Mapping[int, str]
) -> dict[str, str]:
    """The same for a person."""
    from pointdep.estimators.base import some_reasons

    rows = {side: told for side, told in zip("xy", encoders, strict=True) if told}
    lost = f"{len(left_out)} row(s) that cannot be read: {some_reasons(left_out)}"
    return rows | ({"left out": lost} if left_out else {})


def found_as_json(found: MIEstimate) -> dict[str, Any]:
    """An estimate and its method."""
    names = "estimates", "nats", "bits", "stderr", "confidence", "correction", "null_p"
    told = {name: getattr(found, name) for name in (*names, "shuffles", "rows", "lower")}
    told |= {"ci": list(found.ci), "curve": found.to_dict()["curve"]}
    return {"estimate": told, "method": found.method}


def flags_as_json(flags: Sequence[Flag]) -> list[dict[str, str]]:
    """Names and messages."""
    return [{"name": flag.name, "message": flag.message} for flag in flags]


def check_as_json(check: RatioCheck, plot: Path | None) -> dict[str, Any]:
    """What a check found, and where its figure is."""
    names = "passed", "conclusive", "fault", "verdict", "p_value", "rows", "at_limit", "outside"
    told = {name: getattr(check, name) for name in names}
    return {**told, "missed": flags_as_json(check.missed), "plot": plot}


def print_estimate(
    model: Model,
    found: MIEstimate,
    *,
    bits: bool = False,
    each: str = "scored by a model that did not see it ({count} trained)",
    more: dict[str, str] | None = None,
) -> None:
    """The estimate for a person, how each row was scored by `count` models, and more rows below."""
    from pointdep.inference.mutual_information import decimals

    low, high = found.ci_bits if bits else found.ci
    scale = 1 / math.log(2) if bits else 1.0
    unit = "bits" if bits else "nats"
    if found.estimates != "mutual information":
        value, unit = decimals(found.nats), ""
    elif bits:
        value = f"{decimals(found.bits)} bits ({decimals(found.nats)} nats)"
    else:
        value = f"{decimals(found.nats)} nats ({decimals(found.bits)} bits)"
    interval = f"{decimals(low)} to {decimals(high)} {unit}".rstrip()
    rows = {found.estimates: value, f"{100 * found.confidence:g}% interval": interval}
    if found.lower is not None:
        rows["at least"] = found.at_least(unit)
    if found.null_p is not None:
        rows["independence"] = found.independence
    if found.correction:
        amount = f"{scale * found.correction:+.3f} {unit}".rstrip()
        rows["correction"] = f"{amount} for the bias of fitting, included above"
    if found.curve is not None:
        rows["held-out mean"] = found.curve.in_words(unit)
    count = getattr(model, "n_replicas_", 0)
    rows["rows"] = f"{found.rows}" + (f", each {each.format(count=count)}" if count else "")
    critic = getattr(model, "critic", None)
    # Whether the default critic's network was left in.
    answered = getattr(getattr(model, "model_", None), "answered", "")
    rows["method"] = found.method + (f", critic {critic}" if critic else "")
    rows["method"] += f": {answered}" if critic and answered else ""
    rows |= encoder_rows(encoders_of(model), getattr(model, "left_out_", {}))
    print_rows({**rows, **(more or {})})


def check_rows(check: RatioCheck, plot: Path | None) -> dict[str, str]:
    """The verdict for a person."""
    return {"check": check.verdict} | ({} if plot is None else {"figure": str(plot)})


def print_rows(rows: dict[str, str]) -> None:
    """Name and value, aligned; a long value goes on below its beginning."""
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        head = f"{name:<{width}}  "
        print(
            textwrap.fill(
                printable(value), _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
            )
        )
