"""What an audit found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointdep.display.html_repr import card, columns

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from pointdep.auditing.out_of_step import Stretch
    from pointdep.errors import Flag
    from pointdep.inference.checks import RatioCheck
    from pointdep.inference.mutual_information import MIEstimate

_SHOWN = 10  # rows in a notebook, and their columns
_SHOWN_COLUMNS = (
    *("row", "pmi", "stderr", "q_value", "suspect"),
    *("better_partner", "better_label", "swapped_with", "duplicate_of"),
)


@dataclass(frozen=True)
class Contamination:
    """The share of pairs that came together by chance.

    given: the user said it. Otherwise it is estimated, with the standard error `stderr`, from the
    lowest PMI: too high where even the least likely pairs are sometimes right.
    """

    share: float
    given: bool
    stderr: float | None = None


@dataclass(frozen=True, eq=False)
class Audit:
    """Every pair of a data set, and how much it belongs together.

    table: one line a row of the data, in the order of the data, with the columns
        row: its number, from 0;
        pmi, stderr: out of fold, and how much it changes with the rows of the fit;
        posterior: the probability that the pair came together by chance;
        q_value: the expected share of good pairs among this one and all that are as likely wrong;
        suspect: q_value <= fdr; below_zero: pmi < 0; rank: 1 has the lowest PMI;
        better_partner, better_partner_pmi: the row whose y belongs to this x more, and its PMI,
            missing where it was not looked for or there is none;
        better_label: the likely right label of rows that have another one, where y is one column
            of categories, else missing from the table;
        swapped_with: the row with which this one may have exchanged y, or missing;
        duplicate_of: the first row that is nearly the same pair, or missing;
        why: of doubtful rows the columns, or the words of texts, that speak most against the pair,
            and how much PMI falls by each; missing from the table where there is nothing to tell;
        decision: what a person has said of it, missing from the table where nobody has;
        reason: of rows that were left out, which have no PMI; only if there are any.
    answered: what gave PMI, such as "closed form and network", or "".
    mismatched: (m,) PMI of mismatched pairs, in order, at most 10,000 that stand for all; or None.
    sides: X and Y as they were given, for the page to show, or None.
    named: whether suspects could be named; not where pairs cannot be told from chance pairs.
    out_of_step: stretches of rows whose y belongs to the x of other rows. Their PMI is of the pairs
        as they stand. They are not judged one by one, so that posterior and q_value are missing;
        the column out_of_step has the row whose y belongs to each of them, -1 if it is not known.
    page: what the page that it was read from shows of x and y, or None.
    encoders: what made the numbers of x and of y, if they are texts, pictures or sounds.
    confusion: of labels, the share of the rows by given label (lines) and likely right one
        (columns); None where y is no label.
    """

    table: pd.DataFrame
    mutual_information: MIEstimate
    check: RatioCheck
    contamination: Contamination
    fdr: float
    folds: int
    method: str
    flags: tuple[Flag, ...]
    answered: str = ""
    mismatched: NDArray[np.float32] | None = None
    sides: tuple[Any, Any] | None = field(default=None, repr=False)
    named: bool = True
    out_of_step: tuple[Stretch, ...] = ()
    page: dict[str, Any] | None = field(default=None, repr=False)
    encoders: tuple[str | None, str | None] = (None, None)
    confusion: pd.DataFrame | None = field(default=None, repr=False)

    @property
    def left_out(self) -> dict[int, str]:
        """Rows that were left out, and why."""
        if "reason" not in self.table:
            return {}
        known = self.table[self.table["reason"].notna()]
        return dict(zip(known["row"].tolist(), known["reason"].tolist(), strict=True))

    @property
    def suspects(self) -> pd.DataFrame:
        """The lines of the table that are suspects, worst first."""
        return self.table[self.table["suspect"]].sort_values("rank")

    @property
    def kept(self) -> NDArray[np.int64]:
        """Numbers of the rows but for suspects, rows out of step and rows that were left out."""
        dropped = self.table["suspect"].to_numpy(bool)
        for name in {"out_of_step", "reason"} & set(self.table):
            dropped = dropped | self.table[name].notna().to_numpy(bool)
        return (~dropped).nonzero()[0]

    def at(self, fdr: float) -> Audit:
        """The same audit decided at another false-discovery rate; nothing is fitted.

        Parameters
        ----------
        fdr : float
            The share of good pairs that is accepted among the suspects.

        Returns
        -------
        Audit
            With the column `suspect` of its table decided anew.

        Examples
        --------
        >>> import numpy as np
        >>> from pointdep import audit
        >>> x = np.random.default_rng(0).normal(size=(200, 1))
        >>> found = audit(x, x + 0.1 * np.random.default_rng(1).normal(size=x.shape))
        >>> found.at(fdr=0.2).fdr
        0.2
        """
        from pointdep.auditing.decision import check_shares

        check_shares(fdr, None)
        suspect = (self.table["q_value"] <= fdr).to_numpy(bool)
        return replace(self, fdr=fdr, table=self.table.assign(suspect=suspect))

    def to_html(
        self,
        path: str | Path,
        show_x: Any = None,
        show_y: Any = None,
        title: str | None = None,
        media: int | None = None,
        media_size: int = 96,
        progress: bool = True,
    ) -> None:
        """Write the report page: one file that works without a network.

        show_x, show_y: what a person knows the rows by, one value a row: texts, numbers (n,) or
        (n, d), pictures (n, h, w) or (n, h, w, 3), or names of picture and sound files; the first
        columns of X and Y where nothing is given. media: how many rows, worst first, have their
        pictures and sounds in the page, all that fit into its 30 MB if it is None; media_size: the
        most pixels a picture is wide or high there.
        """
        from pointdep.auditing.report.page import write_page

        how = {"media": media, "media_size": media_size, "progress": progress}
        write_page(self, path, show_x=show_x, show_y=show_y, title=title, **how)

    def plot_pmi(self, ax: Axes | None = None) -> Axes:
        """Histogram of PMI: of pairs, with the suspects marked, and of mismatched pairs."""
        from pointdep.display.plots import plot_pmi

        pmi, suspect = (self.table[name].to_numpy() for name in ("pmi", "suspect"))
        return plot_pmi(pmi, self.mismatched, suspect.astype(bool), ax)

    def plot_pairs(
        self, *, k: int = 10, labels: Sequence[Any] | None = None, ax: Axes | None = None
    ) -> Axes:
        """The k pairs of highest and the k of lowest PMI, as bars with standard errors.

        labels: what to call the rows, one a row; their numbers where it is None.
        """
        from pointdep.display.plots import plot_pairs

        pmi, stderr = (self.table[name].to_numpy() for name in ("pmi", "stderr"))
        return plot_pairs(pmi, k=k, labels=labels, stderr=stderr, ax=ax)

    def to_csv(self, path: str | Path) -> None:
        """Write the table as .csv."""
        self._write(Path(path), ".csv")

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as .parquet."""
        self._write(Path(path), ".parquet")

    def __str__(self) -> str:
        from pointdep.auditing.report.wording import finding

        information = self.mutual_information.headline
        return f"{finding(self)}\nMutual information: {information}\n{self.check}"

    def _repr_html_(self) -> str:
        """What a notebook shows: the finding and the worst rows, numbers short."""
        import pandas as pd

        from pointdep.auditing.report.wording import finding

        worst = self.table.sort_values("rank").head(_SHOWN)
        names = [name for name in _SHOWN_COLUMNS if name in worst and worst[name].notna().any()]
        rows = [
            ("mutual information", self.mutual_information),
            ("check", self.check),
            ("lowest PMI", f"{len(worst)} of {len(self.table):,} rows"),
        ]
        lines = [
            ["" if pd.isna(v) else f"{v:.3g}" if isinstance(v, float) else str(v) for v in line]
            for line in worst[names].to_numpy(object)
        ]
        notes = [str(flag) for flag in self.flags]
        return card(finding(self), rows, notes=notes, table=columns(names, lines))

    def _write(self, path: Path, suffix: str) -> None:
        from pointdep.data.writers import check_writable, write_table

        check_writable(path, (suffix,))
        from pointdep.auditing.saved import KEY, summary

        columns: dict[str, Any] = {str(name): self.table[name] for name in self.table}
        write_table(path, columns, {KEY: json.dumps(summary(self))})
