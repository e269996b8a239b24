"""How results are printed."""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pointdep

if TYPE_CHECKING:
    from pointdep.classical.estimator import ClassicalDependency
    from pointdep.estimator import PointwiseDependency
    from pointdep.inference.checks import RatioCheck
    from pointdep.inference.mutual_information import MIEstimate

SCHEMA_VERSION = 1
_WIDTH = 100


def print_json(command: str, content: dict[str, Any]) -> None:
    """One JSON object: what command, what version, and its content."""
    head = {"command": command, "schema": SCHEMA_VERSION, "pointdep": pointdep.__version__}
    print(json.dumps({**head, **content}, allow_nan=False))


def estimate_as_json(
    model: PointwiseDependency | ClassicalDependency, found: MIEstimate
) -> dict[str, Any]:
    """The part that `mi`, `fit` and `demo` share."""
    return {
        "estimate": {
            "estimates": found.estimates,
            "nats": found.nats,
            "bits": found.bits,
            "stderr": found.stderr,
            "ci": list(found.ci),
            "confidence": found.confidence,
            "correction": found.correction,
            "null_p": found.null_p,
            "shuffles": found.shuffles,
            "rows": found.rows,
        },
        "method": found.method,
        "folds": _networks(model),
        "flags": [{"name": f.name, "message": f.message} for f in model.flags_],
    }


def check_as_json(check: RatioCheck, plot: Path | None) -> dict[str, Any]:
    """What a check found, and where its figure is."""
    names = "passed", "conclusive", "fault", "verdict", "p_value", "rows", "at_limit", "outside"
    return {name: getattr(check, name) for name in names} | {
        "plot": None if plot is None else str(plot)
    }


def print_estimate(
    model: PointwiseDependency | ClassicalDependency,
    found: MIEstimate,
    *,
    bits: bool = False,
    more: dict[str, str] | None = None,
) -> None:
    """The estimate for a person, and more rows below it."""
    low, high = found.ci_bits if bits else found.ci
    scale = 1 / math.log(2) if bits else 1.0
    unit = "bits" if bits else "nats"
    if found.estimates != "mutual information":
        value, unit = f"{found.nats:.3f}", ""
    elif bits:
        value = f"{found.bits:.3f} bits ({found.nats:.3f} nats)"
    else:
        value = f"{found.nats:.3f} nats ({found.bits:.3f} bits)"
    rows = {
        found.estimates: value,
        f"{100 * found.confidence:g}% interval": f"{low:.3f} to {high:.3f} {unit}".rstrip(),
    }
    if found.null_p is not None:
        rows["independence"] = f"p = {found.null_p:.3g}, from {found.shuffles} shuffled copies"
    if found.correction:
        amount = f"{scale * found.correction:+.3f} {unit}".rstrip()
        rows["correction"] = f"{amount} for the bias of fitting, included above"
    count = _networks(model)
    trained = f", each scored by a model that did not see it ({count} trained)" if count else ""
    rows["rows"] = f"{found.rows}{trained}"
    critic = getattr(model, "critic", None)
    rows["method"] = found.method + (f", critic {critic}" if critic else "")
    print_rows({**rows, **(more or {})})


def check_rows(check: RatioCheck, plot: Path | None) -> dict[str, str]:
    """The verdict for a person."""
    return {"check": check.verdict} | ({} if plot is None else {"figure": str(plot)})


def print_rows(rows: dict[str, str]) -> None:
    """Name and value, aligned; a long value goes on below its beginning."""
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        head = f"{name:<{width}}  "
        print(textwrap.fill(value, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))


def _networks(model: PointwiseDependency | ClassicalDependency) -> int:
    """How many were trained: none by a classical method."""
    return int(getattr(model, "n_replicas_", 0))
