"""How results are printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pointdep

if TYPE_CHECKING:
    from pointdep.estimator import PointwiseDependency
    from pointdep.inference.mutual_information import MIEstimate

SCHEMA_VERSION = 1


def print_json(command: str, content: dict[str, Any]) -> None:
    """One JSON object: what command, what version, and its content."""
    head = {"command": command, "schema": SCHEMA_VERSION, "pointdep": pointdep.__version__}
    print(json.dumps({**head, **content}, allow_nan=False))


def estimate_as_json(model: PointwiseDependency, found: MIEstimate) -> dict[str, Any]:
    """The part that `mi` and `fit` share."""
    return {
        "estimate": {
            "estimates": found.estimates,
            "nats": found.nats,
            "bits": found.bits,
            "stderr": found.stderr,
            "ci": list(found.ci),
            "confidence": found.confidence,
            "rows": found.rows,
        },
        "method": found.method,
        "folds": model.n_replicas_,
        "flags": [{"name": f.name, "message": f.message} for f in model.flags_],
    }


def print_estimate(model: PointwiseDependency, found: MIEstimate) -> None:
    """The estimate for a person."""
    low, high = found.ci
    if found.estimates == "mutual information":
        value = f"{found.nats:.3f} nats ({found.bits:.3f} bits)"
    else:
        value = f"{found.nats:.3f}"
    print_rows(
        {
            found.estimates: value,
            f"{100 * found.confidence:g}% interval": f"{low:.3f} to {high:.3f}",
            "rows": f"{found.rows}, each scored by a model that did not see it "
            f"({model.n_replicas_} trained)",
            "method": found.method,
        }
    )


def print_rows(rows: dict[str, str]) -> None:
    """Name and value, aligned."""
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")
