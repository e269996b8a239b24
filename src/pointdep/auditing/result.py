"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from pointdep.fitting.flags import Flag
    from pointdep.inference.checks import RatioCheck
    from pointdep.inference.mutual_information import MIEstimate


@dataclass(frozen=True)
class Contamination:
    """The share of chance pairs: `share` is used; it is an upper bound unless some pairs cannot be.

    given: the user said it. stderr: of an estimated share, None where it was given.
    """

    share: float
    given: bool
    stderr: float | None = None


@dataclass(frozen=True, eq=False)
class Audit:
    """Every pair of a data set, and how much it belongs together.

    table: one line a row of the data, in the order of the data, with the columns
        row: its number, from 0;
        pmi, stderr: out of fold, and its standard error (NaN where there is none);
        posterior: the probability that the pair came together by chance;
        q_value: the expected share of good pairs among this one and all worse ones;
        suspect: q_value <= fdr; below_zero: pmi < 0; rank: 1 is the worst;
        better_partner, better_partner_pmi: the row whose y belongs to this x more, and its PMI,
            missing where it was not looked for or there is none;
        better_label: the same where y is one column of categories, else missing from the table;
        swapped_with: the row with which this one seems to have exchanged y, or missing;
        duplicate_of: the first row that is nearly the same pair, or missing.
    """

    table: pd.DataFrame
    mutual_information: MIEstimate
    check: RatioCheck
    contamination: Contamination
    fdr: float
    folds: int
    method: str
    flags: tuple[Flag, ...]
