"""Audits made by hand, as an audit would give them, without the time of a fit."""

import numpy as np
import pandas as pd
import torch

from pointdep.auditing.result import Audit, Contamination
from pointdep.errors import Flag
from pointdep.inference.checks import check_log_ratio
from pointdep.inference.mutual_information import MIEstimate


def gaussian_check(rows=200, correlation=0.8, wrong=1.0):
    """A real check: of the log r of Gaussian pairs, exact, or wrong by a factor."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 1))
    y = correlation * x + np.sqrt(1 - correlation**2) * random.normal(size=(rows, 1))
    rest = 1 - correlation**2
    exponent = correlation**2 * (x**2 + y.T**2) - 2 * correlation * x * y.T
    log_ratio = torch.from_numpy(wrong * (-0.5 * np.log(rest) - exponent / (2 * rest)))
    pairs = torch.eye(rows)[None]
    return check_log_ratio(log_ratio[None], pairs, 1 - pairs)


def make_audit(pmi, *, suspects=None, flags=(), labels=None, check=None, **columns):
    """pmi: (n,); suspects: how many of the lowest are; columns: others of the table."""
    pmi = np.asarray(pmi, dtype=np.float32)
    rows = len(pmi)
    order = np.argsort(pmi, kind="stable")
    rank = np.empty(rows, dtype=np.int64)
    rank[order] = np.arange(1, rows + 1)
    count = int((pmi < -1).sum()) if suspects is None else suspects
    posterior = 1 / (1 + np.exp(pmi + 3))
    q_value = np.empty(rows)
    q_value[order] = np.cumsum(1 - posterior[order]) / np.arange(1, rows + 1)
    missing = pd.array([pd.NA] * rows, dtype="Int64")
    numbers = {"row": np.arange(rows), "pmi": pmi, "stderr": np.full(rows, 0.25, dtype=np.float32)}
    judged = {"posterior": posterior, "q_value": q_value, "suspect": rank <= count}
    found = {"better_partner": missing, "better_partner_pmi": np.full(rows, np.nan)}
    found |= {"swapped_with": missing, "duplicate_of": missing}
    table = pd.DataFrame({**numbers, **judged, "below_zero": pmi < 0, "rank": rank, **found})
    if labels is not None:
        table["better_label"] = pd.Series(labels, dtype=object)
    for name, values in columns.items():
        for row, value in values.items():
            table.loc[row, name] = value
    return Audit(
        table=table,
        mutual_information=MIEstimate(1.5, 0.02, (1.46, 1.54), rows=rows, method="pc"),
        check=check or gaussian_check(),
        contamination=Contamination(share=0.032, given=False, stderr=0.004),
        fdr=0.1,
        folds=5,
        method="pc",
        flags=tuple(Flag("not_converged", (0,), message) for message in flags),
    )


def some_pmi(rows, seed=0):
    """(rows,): mostly right pairs, a twentieth far below zero."""
    random = np.random.default_rng(seed)
    pmi = random.normal(3, 1, rows)
    pmi[: rows // 20] -= 6
    return random.permutation(pmi)
