"""Audits of pairs that are not fitted as they stand: out of step, or decided by a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pointdep.auditing import out_of_step
from pointdep.auditing.decision import ranks
from pointdep.auditing.evidence import HeldRows
from pointdep.auditing.out_of_step import FittedScorer, Stretch
from pointdep.auditing.result import Audit
from pointdep.data.media import is_missing
from pointdep.data.stored_pairs import sampled
from pointdep.errors import InputError
from pointdep.estimators.fit_rows import StreamedFitRows
from pointdep.estimators.pointwise import PointwiseDependency, pair_columns
from pointdep.fitting.progress import show

Rows = NDArray[np.int64]

VERDICTS = ("right", "wrong", "unsure")
_ENOUGH = 0.5  # of the mutual information: less, and columns related otherwise are looked at


def read_decisions(given: Any, rows: int) -> dict[int, str]:
    """Row -> verdict, from a mapping or a table with the columns row and decision."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        try:
            given = dict(zip(given["row"], given["decision"], strict=True))
        except (KeyError, TypeError, IndexError):
            raise InputError("decisions needs the columns row and decision") from None
        # A table of the audit has a line for each row, most of them without a decision.
        given = {row: verdict for row, verdict in given.items() if not is_missing(verdict)}
    found = {}
    for row, verdict in given.items():
        if verdict not in VERDICTS:
            known = ", ".join(VERDICTS)
            raise InputError(f"decisions: row {row} is {verdict!r}, which is none of {known}")
        if not 0 <= int(row) < rows:
            raise InputError(f"decisions: row {row} is none of the {rows} rows, which count from 0")
        found[int(row)] = str(verdict)
    return found


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs that are fitted, those of x[rows] with y[others], both (m,), out of `count` given ones.

    stretches: rows that are out of step; decisions: those of a person.
    """

    count: int
    rows: Rows
    others: Rows
    stretches: tuple[Stretch, ...]
    decisions: Mapping[int, str]

    @classmethod
    def without_wrong(cls, count: int, decisions: Mapping[int, str]) -> Pairs:
        """All that a person did not call wrong."""
        kept = np.ones(count, bool)
        kept[[row for row, verdict in decisions.items() if verdict == "wrong"]] = False
        rows = np.flatnonzero(kept)
        return cls(count, rows, rows, (), decisions)

    @property
    def as_given(self) -> bool:
        return len(self.rows) == self.count and not self.stretches

    def of(self, X: Any, Y: Any, groups: Any) -> tuple[Any, Any, Any]:
        """The pairs of the data."""
        if self.as_given:
            return X, Y, groups
        own = None if groups is None else np.asarray(groups)[self.rows]
        return sampled(X, self.rows), sampled(Y, self.others), own

    def in_step(self, fitted: PointwiseDependency) -> Pairs:
        """With the y that belong to the x, where the rows of the fit are out of step."""
        given: Any = fitted.training_rows_
        if isinstance(given, StreamedFitRows):  # which are not looked at in their order
            return self
        held = given.paired
        rows = self.rows if held.numbers is None else self.rows[held.numbers]
        with show("looking for rows out of step", enabled=fitted.progress):
            found, partner, mean = out_of_step.find_by_columns(held.x, held.y)
            if not found and mean < _ENOUGH * fitted.mutual_information().nats:
                fold = HeldRows(fitted.model_, held).fold
                scorer = FittedScorer(fitted.model_, held.x, held.y, fold)
                found, partner, _ = out_of_step.find(scorer, len(rows))
        stretches = tuple(
            replace(one, first=int(rows[one.first]), last=int(rows[one.last])) for one in found
        )
        if not stretches:
            return self
        # A y that two x claim stays with the one whose row it stands in, or else the first.
        order = np.argsort(partner != np.arange(len(partner)), kind="stable")
        order = order[partner[order] >= 0]
        _, first = np.unique(partner[order], return_index=True)
        kept = np.sort(order[first])
        return Pairs(self.count, rows[kept], rows[partner[kept]], stretches, self.decisions)

    def of_all_rows(self, found: Audit, fitted: PointwiseDependency, X: Any, Y: Any) -> Audit:
        """The audit of these pairs as one of all rows that were given."""
        table = found.table.assign(row=self.rows)
        if not self.as_given:
            table = self._spread(table, fitted, X, Y)
        for row, verdict in self.decisions.items():
            if verdict != "unsure":
                q, chance = (0.0, 1.0) if verdict == "wrong" else (1.0, 0.0)
                table.loc[row, ["posterior", "q_value"]] = chance, q
        table["suspect"] = (table["q_value"] <= found.fdr).to_numpy(bool)
        if self.decisions:
            verdicts = pd.Series(self.decisions, dtype=object).reindex(range(self.count))
            table["decision"] = verdicts.where(verdicts.notna(), None)
        return replace(found, table=table, sides=(X, Y), out_of_step=self.stretches)

    def _spread(
        self, table: pd.DataFrame, fitted: PointwiseDependency, X: Any, Y: Any
    ) -> pd.DataFrame:
        """One line for each row; rows out of step and left out have their PMI as they stand."""
        for name, of in (("better_partner", self.others), ("swapped_with", self.rows),
                         ("duplicate_of", self.rows)):  # fmt: skip
            known = table[name].notna()
            table.loc[known, name] = of[table.loc[known, name].to_numpy(np.int64)]
        outside = np.zeros(self.count, bool)
        for one in self.stretches:
            outside[one.first : one.last + 1] = True
        partner = np.full(self.count, -1)
        partner[self.rows] = self.others
        whole = table.set_index("row").reindex(range(self.count)).rename_axis("row").reset_index()
        alone = outside | (partner < 0)
        better = whole["pmi"].where(outside & (partner >= 0))
        pmi = whole["pmi"].to_numpy(np.float32, copy=True)
        pmi[alone], reasons = _as_they_stand(fitted, X, Y, np.flatnonzero(alone))
        whole["pmi"] = pmi
        for name in ("stderr", "posterior", "q_value"):
            whole.loc[alone, name] = np.nan
        for name in ("swapped_with", "duplicate_of"):
            whole.loc[outside, name] = pd.NA
        if "why" in whole:
            whole["why"] = whole["why"].where(whole["why"].notna() & ~outside, None)
        whole.loc[outside, "better_partner"] = pd.array(partner, "Int64")[outside]
        whole.loc[outside & (partner < 0), "better_partner"] = pd.NA
        whole.loc[outside, "better_partner_pmi"] = better[outside]
        # Rows out of step come last: they are one finding, not many.
        rank = np.empty(self.count, np.int64)
        rank[~outside] = ranks(pmi[~outside])
        rank[outside] = int((~outside).sum()) + ranks(pmi[outside])
        whole = whole.assign(rank=rank, below_zero=pmi < 0)
        if (reasons != "").any():
            told = np.full(self.count, None, dtype=object)
            told[alone] = [reason or None for reason in reasons]
            column = pd.Series(told)
            whole["reason"] = column if "reason" not in whole else whole["reason"].fillna(column)
        if self.stretches:
            whole["out_of_step"] = pd.Series(pd.array(partner, "Int64")).where(outside)
        return whole


def _as_they_stand(
    fitted: PointwiseDependency, X: Any, Y: Any, rows: Rows
) -> tuple[NDArray[np.float32], NDArray[np.object_]]:
    """PMI of pairs that no model was fitted on, NaN of those with a reason, and the reasons."""
    if not len(rows):
        return np.zeros(0, np.float32), np.zeros(0, object)
    found = pair_columns(fitted, sampled(X, rows), sampled(Y, rows), strict=False)
    return found["pmi"], found["reason"]
