"""Columns of a messy table ranked as they are, against the truth; and the time of nine columns.

    python benchmarks/rank_table.py [--seeds 20] [--first 100]

Each table has 5,000 rows: an id, a date, 40 categories, booleans, numbers of other shapes, a fifth
of them with 3 % missing, a constant, a duplicate, and a target whose mutual information with each
column is known. The result is benchmarks/results/rank_table.json.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pointdep import rank_columns

ROWS = 5_000
GAPS = 0.03
RESULT = Path(__file__).parent / "results" / "rank_table.json"


def gaussian(share: float) -> float:
    """Of the target with a Gaussian part that has this share of its variance."""
    return float(-0.5 * np.log(1 - share))


def table(seed: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """The table, and the mutual information of each column that has some to know.

    The target is a sum of independent standard normals z with weights, so that what z determines
    and is determined by has that of z; what is a function of z less, from a fine grid.
    """
    rng = np.random.default_rng([seed, 5])
    z = rng.standard_normal((ROWS, 6))
    weights = np.array([1.0, 0.7, 0.7, 0.5, 0.4, 0.3])
    y = z @ weights + 0.8 * rng.standard_normal(ROWS)
    shares = weights**2 / (np.square(weights).sum() + 0.64)
    days = np.floor(2000 * uniform(z[:, 1]))
    cities = np.floor(40 * uniform(z[:, 2])).astype(int)
    when = pd.Timestamp("2015-01-01") + pd.to_timedelta(days, unit="D")
    gone = rng.random((ROWS, 3)) < GAPS
    columns = {
        "id": [f"k{n:05d}" for n in range(ROWS)],
        "when": pd.Series(when.strftime("%Y-%m-%d")).where(~gone[:, 0]),
        "city": pd.Series([f"city {c}" for c in cities]).where(~gone[:, 1]),
        "size": z[:, 0],
        "size_cm": 100 * z[:, 0] + 3,
        "income": pd.Series(np.exp(z[:, 3])).astype(object).where(~gone[:, 2], "?"),
        "garden": z[:, 4] > 0.5,
        "rooms": np.clip(np.rint(2 * z[:, 5] + 4), 1, 9).astype(int),
        "noise": rng.standard_normal(ROWS),
        "colour": rng.choice(list("rgbcmyk"), ROWS),
        "checked": rng.choice([True, False], ROWS),
        "country": "NL",
        "price": np.exp(y / 2),
    }
    left = 1 - GAPS  # what is missing is so at random
    truth = {
        "size": gaussian(shares[0]),
        "size_cm": gaussian(shares[0]),
        "when": left * gaussian(shares[1]),  # 2,000 days tell as much as the number
        "city": left * stepped(shares[2], np.linspace(0, 1, 41)[1:-1]),
        "income": left * gaussian(shares[3]),
        "garden": stepped(shares[4], [probability(0.5)]),
        "rooms": stepped(shares[5], probability((np.arange(1, 9) + 0.5 - 4) / 2)),
        **dict.fromkeys(("noise", "colour", "checked"), 0.0),
    }
    return pd.DataFrame(columns), truth


def probability(z: Any) -> Any:
    """The normal distribution function."""
    from scipy.stats import norm

    return norm.cdf(z)


def uniform(z: Any) -> Any:
    """Standard normals as numbers from 0 to 1."""
    return np.clip(probability(z), 0, 1 - 1e-12)


def stepped(share: float, cuts: Any) -> float:
    """I(step of z; y) of unit normals with correlation sqrt(share), z cut at these quantiles."""
    from scipy.stats import norm

    edges = np.concatenate([[-np.inf], norm.ppf(np.atleast_1d(cuts)), [np.inf]])
    y = np.linspace(-9, 9, 4001)
    inside = norm.cdf((edges[:, None] - np.sqrt(share) * y) / np.sqrt(1 - share))
    given = np.diff(inside, axis=0)  # P(step | y)
    before = np.diff(norm.cdf(edges))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(given > 0, given * np.log(given / before), 0.0)
    return float(np.trapezoid(terms.sum(0) * norm.pdf(y), y))


def of_one(seed: int) -> dict[str, Any]:
    """What a ranking of one table has got right."""
    frame, truth = table(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        found = rank_columns(frame, "price", random_state=seed, progress=False).table
        seconds = time.perf_counter() - start
    lines = found.set_index("column")
    expected = pd.Series(truth)
    nats = lines.loc[expected.index, "nats"]
    ends = lines.loc[expected.index, ["low", "high"]]
    order = list(found["column"])
    apart = 0.0  # the largest true difference of two columns that are in the wrong order
    for one in truth:
        for other in truth:
            if truth[one] > truth[other] and order.index(one) > order.index(other):
                apart = max(apart, truth[one] - truth[other])
    return {
        "errors": (nats - expected).round(4).to_dict(),
        "inside": ((ends["low"] <= expected + 1e-9) & (expected <= ends["high"])).to_dict(),
        "wrong_order_by": round(apart, 4),
        "left_out": sorted(lines.index[lines["nats"].isna()]),
        "notes": lines["notes"].to_dict(),
        "independent_p": lines.loc[["noise", "colour", "checked"], "p_adjusted"].to_dict(),
        "dependent_p": float(lines.loc[expected.index[expected > 0], "p_adjusted"].max()),
        "seconds": round(seconds, 2),
    }


def nine_columns() -> dict[str, float]:
    """Seconds for nine columns of numbers, here and by scikit-learn, in the same run."""
    from sklearn.feature_selection import mutual_info_regression

    x = np.random.default_rng(1).standard_normal((ROWS, 9))
    y = x @ np.linspace(0, 1, 9) + np.random.default_rng(2).standard_normal(ROWS)
    seconds = {}
    for name, call in (
        ("pointdep", lambda: rank_columns(x, y, random_state=0, progress=False)),
        ("scikit-learn", lambda: mutual_info_regression(x, y, random_state=0)),
    ):
        call()
        start = time.perf_counter()
        call()
        seconds[name] = round(time.perf_counter() - start, 2)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100)
    given = parser.parse_args()
    runs = [of_one(seed) for seed in range(given.first, given.first + given.seeds)]
    errors = pd.DataFrame([run["errors"] for run in runs])
    inside = pd.DataFrame([run["inside"] for run in runs])
    found = {
        "tables": len(runs),
        "truth": {name: round(value, 4) for name, value in table(0)[1].items()},
        "mean_error": errors.mean().round(4).to_dict(),
        "largest_error": errors.abs().max().round(4).to_dict(),
        "inside": inside.mean().round(3).to_dict(),
        "inside_all": round(float(inside.to_numpy().mean()), 3),
        "wrong_order_by": sorted(run["wrong_order_by"] for run in runs),
        "left_out": sorted({" ".join(run["left_out"]) for run in runs}),
        "independent_called_dependent": sum(
            p < 0.05 for run in runs for p in run["independent_p"].values()
        ),
        "dependent_p_at_most": max(run["dependent_p"] for run in runs),
        "seconds_per_table": round(float(np.median([run["seconds"] for run in runs])), 2),
        "nine_columns_seconds": nine_columns(),
        "notes": {name: note for name, note in runs[0]["notes"].items() if note},
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
