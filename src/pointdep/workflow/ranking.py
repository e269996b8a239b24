"""`rank_columns`: how much each column of a table says about one of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pointdep.data.columns import looks_like_id
from pointdep.data.encoder import too_many
from pointdep.data.raw import SparseInputError, group_codes
from pointdep.data.sides import as_side
from pointdep.display.html_repr import card
from pointdep.errors import InputError, unknown_name
from pointdep.estimators.base import plain_copy
from pointdep.estimators.classical.estimator import ClassicalDependency
from pointdep.estimators.classical.ksg import label_values, rank_values
from pointdep.estimators.classical.plug_in import count_values
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.progress import Progress, show
from pointdep.inference.mutual_information import decimals, normal_quantile, standard_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
_COLUMNS = {"column": object, "nats": float, "low": float, "high": float, "stderr": float}
_COLUMNS |= {"share": float, "p_value": float, "p_adjusted": float, "method": object}
_COLUMNS |= {"notes": object, "position": int}
_MOST_LABELS = 20  # different whole numbers: of more the order tells more than the values
_MOST_ROWS = 50_000  # of more a random sample is used: the error is then 0.005 nats
_MOST_IN_PAIRS = 5_000
_DOUBTFUL = 0.05  # adjusted p-value from which on a column may be independent
_FEWEST = 10  # rows with a value: of fewer the values say nothing, only which rows have one
_DEGREE = 3  # of the polynomials of ranks that the test of independence looks at


@dataclass(frozen=True, eq=False)
class _Column:
    """A column as the quick estimators read it.

    gaps: (n,) bool, where it is missing. codes: (n,) of categories, of which a gap is one, or None;
    parts: by name, (n,) numbers, several for dates, none for categories. left_out: why it is.
    """

    name: str
    gaps: NDArray[np.bool_]
    codes: NDArray[np.int64] | None = None
    parts: Mapping[str, Array] = field(default_factory=dict)
    left_out: str = ""

    @property
    def numbers(self) -> Array:
        """(n,) the first part: for dates, the date."""
        return next(iter(self.parts.values()))

    def take(self, rows: NDArray[Any]) -> _Column:
        """The same column at some of its rows."""
        codes = None if self.codes is None else np.unique(self.codes[rows], return_inverse=True)[1]
        parts = {name: values[rows] for name, values in self.parts.items()}
        return replace(self, codes=codes, parts=parts, gaps=self.gaps[rows])

    def key(self) -> bytes:
        """Equal for categories of other names, and for numbers on another scale."""
        if self.codes is None:
            return np.unique(self.numbers, return_inverse=True)[1].tobytes()
        return np.asarray(pd.factorize(self.codes)[0], dtype=np.int64).tobytes()


def _read(name: str, values: Any) -> _Column:
    """One column by what it looks like, or the reason why it is left out."""
    try:
        raw = as_side(pd.DataFrame({name: values}), "X", missing="indicator")
    except InputError as error:
        told = str(error).removeprefix(f"X column {name!r} holds ").split(":")[0]
        return _Column(name, np.zeros(len(values), dtype=bool), left_out=told)
    column, gaps = raw.column(0), raw.gaps()
    given = column[~gaps]
    labels, codes = np.unique(column, return_inverse=True)
    found = _Column(name, gaps, codes)
    if raw.numeric is not None:
        parts = {n: raw.numeric[:, i].astype(np.float64) for i, n in enumerate(raw.names)}
        found = replace(found, codes=None, parts=parts)
    whole = column.dtype.kind in "iu" or (
        column.dtype.kind == "f" and not raw.dates and bool((given == np.rint(given)).all())
    )
    reason = ""
    if len(given) == 0 or len(labels) == 1:
        reason = "constant"
    elif looks_like_id(name, given.astype(np.int64) if whole else given):
        reason = "id: all values are different"
    elif column.dtype.kind == "U" and too_many(len(labels), len(column)):
        reason = f"{len(labels)} categories, of {len(column)} rows"
    elif whole and len(labels) > _MOST_LABELS:
        found = replace(found, codes=None, parts={name: column.astype(np.float64)})
    elif whole:
        found = replace(found, codes=codes, parts={})
    return replace(found, left_out=reason)


# Quick estimates of two columns: values (n,) whose mean is the mutual information.


def _quick(x: _Column, y: _Column, seed: int) -> tuple[Array, str]:
    """The values, and the part of x, if it has several, that says most; y: without gaps."""
    if x.codes is not None:
        return _of_labels(x.codes, y, seed), ""
    kept = np.flatnonzero(~x.gaps)
    if len(kept) < min(_FEWEST, len(x.gaps)):
        return _of_labels(np.unique(x.gaps, return_inverse=True)[1], y, seed), ""
    other = y.take(kept) if len(kept) < len(x.gaps) else y
    found = {name: _of_numbers(values[kept], other, seed) for name, values in x.parts.items()}
    best = max(found, key=lambda name: float(found[name].mean()))
    # A gap is a value of its own: I(x; y) = I(gap; y) + P(no gap) I(x; y | no gap).
    whole = np.zeros(len(x.gaps))
    whole[kept] = found[best]
    if len(kept) < len(whole):
        whole += _of_labels(x.gaps.astype(np.int64), y, seed)
    return whole, best if len(found) > 1 else ""


def _of_labels(codes: NDArray[np.int64], y: _Column, seed: int) -> Array:
    return label_values(codes, y.numbers, seed) if y.codes is None else count_values(codes, y.codes)


def _of_numbers(values: Array, y: _Column, seed: int) -> Array:
    if y.codes is None:
        return rank_values(values, y.numbers, seed)
    return label_values(y.codes, values, seed)


def _basis(column: _Column) -> Array:
    """(n, k) orthonormal columns: polynomials of the ranks, and the indicator of gaps."""
    from scipy.stats import rankdata

    found, kept = [], ~column.gaps
    for values in column.parts.values():
        place = np.zeros(len(values))
        place[kept] = 2 * (rankdata(values[kept]) - 0.5) / kept.sum() - 1
        found += [np.where(kept, place**power, 0.0) for power in range(1, _DEGREE + 1)]
    columns = np.column_stack([*found, column.gaps.astype(np.float64)])
    columns -= columns.mean(0)
    u, size, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(u[:, size > 1e-8 * size[0]])


def _independence(x: _Column, y: _Column) -> float:
    """The p-value of a chi-square test: of the table of two columns of categories (Pearson), or of
    the canonical correlations of categories and of polynomials of ranks (Pillai's trace)."""
    from scipy.stats import chi2

    if x.codes is None and y.codes is not None:
        x, y = y, x
    if x.codes is None:
        a, b = _basis(x), _basis(y)
        trace, freedom, rows = float(np.square(a.T @ b).sum()), a.shape[1] * b.shape[1], len(a)
    else:
        sizes, rows = np.bincount(x.codes), len(x.codes)
        if y.codes is not None:
            others = np.bincount(y.codes)
            cells, counts = np.unique(x.codes * len(others) + y.codes, return_counts=True)
            of_x, of_y = np.divmod(cells, len(others))
            trace = float((counts**2 / (sizes[of_x] * others[of_y])).sum()) - 1
            freedom = (len(sizes) - 1) * (len(others) - 1)
        else:
            b = _basis(y)
            sums = np.stack([np.bincount(x.codes, weights=column) for column in b.T])
            trace, freedom = float((sums**2 / sizes).sum()), (len(sizes) - 1) * b.shape[1]
    return float(chi2.sf(rows * trace, freedom))


def _holm(p_values: Array) -> Array:
    """Adjusted p-values, valid for all columns together (Holm, 1979); NaN stays."""
    order = np.argsort(p_values)  # NaN last
    count = int(np.isfinite(p_values).sum())
    steps = p_values[order] * np.maximum(count - np.arange(len(order)), 1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


@dataclass(frozen=True, eq=False)
class ColumnRanking:
    """What `rank_columns` has found.

    Attributes
    ----------
    table : DataFrame
        A line per column or group, the most dependent first, and those that may be independent
        (`p_adjusted` above 0.05) after them: `column`, `nats`, `low` and `high`
        (the interval), `stderr`, `share` of the entropy of a target that is categories, `p_value`
        of independence, `p_adjusted` for all columns together, `method`, `notes`, and `position`
        among the columns. Columns that are
        left out come last, and have the reason in the notes.
    target : str
    rows : int
        Rows with a target.
    entropy : float or None
        Of the target in nats, if it is categories.
    confidence : float
    pairs : DataFrame or None
        Mutual information of every two columns, if it was asked for.
    """

    table: pd.DataFrame
    target: str
    rows: int
    entropy: float | None = None
    confidence: float = 0.95
    pairs: pd.DataFrame | None = None

    def to_pandas(self) -> pd.DataFrame:
        """The table."""
        return self.table

    def plot(self, ax: Axes | None = None) -> Axes:
        """The mutual information of each column as a bar, grey if it may be independent."""
        from pointdep.display.plots import plot_bars

        shown = self.table.dropna(subset=["nats"])
        ends = shown["low"].to_numpy(), shown["high"].to_numpy()
        title = f"mutual information with {self.target} (nats)"
        faint, values = _doubtful(shown), shown["nats"].to_numpy()
        return plot_bars(list(shown["column"]), values, ends, title, faint=faint, ax=ax)

    def plot_pairs(self, ax: Axes | None = None) -> Axes:
        """The mutual information of every two columns as a heat map."""
        from pointdep.display.plots import plot_heat_map

        if self.pairs is None:
            raise InputError("no pairs were ranked: give pairs=True to rank_columns")
        return plot_heat_map(self.pairs.to_numpy(), list(self.pairs.columns), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON; None where a number is not known."""
        lines = [
            {name: None if pd.isna(value) else value for name, value in line.items()}
            for line in self._records()
        ]
        pairs = None
        if self.pairs is not None:
            names, values = list(self.pairs.columns), self.pairs.to_numpy()
            pairs = [
                {"x": names[i], "y": names[j], "nats": float(values[i, j])}
                for i, j in zip(*np.triu_indices(len(names), 1), strict=True)
            ]
        about = {"target": self.target, "rows": self.rows, "entropy": self.entropy}
        return {**about, "confidence": self.confidence, "columns": lines, "pairs": pairs}

    def _records(self) -> list[dict[str, Any]]:
        return [{str(k): v for k, v in line.items()} for line in self.table.to_dict("records")]

    def _lines(self) -> list[tuple[str, str]]:
        told = []
        for line in (SimpleNamespace(**line) for line in self._records()):
            notes = f"  ({line.notes})" if line.notes else ""
            if math.isnan(line.nats):
                told.append((line.column, f"left out{notes}"))
                continue
            share = "" if math.isnan(line.share) else f", {line.share:.0%} of H({self.target})"
            interval = f"{decimals(line.low)} to {decimals(line.high)}"
            p = "" if math.isnan(line.p_adjusted) else f", p {_p_in_words(line.p_adjusted)}"
            told.append((line.column, f"{decimals(line.nats)}  {interval}{share}{p}{notes}"))
        return told

    def __str__(self) -> str:
        lines = self._lines()
        width = max(len(name) for name, _ in lines)
        head = f"mutual information with {self.target} in nats, {100 * self.confidence:g}% interval"
        return "\n".join([f"{head}, {self.rows} rows", *(f"{n:<{width}}  {t}" for n, t in lines)])

    def _repr_html_(self) -> str:
        return card(f"Mutual information with {self.target}", list(self._lines()))


def _doubtful(table: pd.DataFrame) -> NDArray[np.bool_]:
    """(n,) which columns may be independent of the target."""
    found: NDArray[np.bool_] = (table["p_adjusted"] > _DOUBTFUL).to_numpy()
    return found


def _p_in_words(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def rank_columns(
    table: Any,
    target: Any,
    *,
    columns: Sequence[Any] | Mapping[Any, Any] | None = None,
    estimator: Any = None,
    groups: Any = None,
    pairs: bool = False,
    confidence: float = 0.95,
    random_state: Any = None,
    progress: bool = True,
) -> ColumnRanking:
    """Which columns of a table say most about one of them?

    Columns are read as they are: numbers, categories, dates (by the part that says most: the date,
    the time of day, the weekday or the time of year), with missing values, which are a value of
    their own. Ids, texts and constants are left out. Rows without a target are not used.

    Two columns are judged by a quick estimate: counts of categories, and nearest neighbours of
    ranks (KSG), within categories (Ross) if one of them is categories. Groups of several columns
    are judged by networks.

    Parameters
    ----------
    table : DataFrame or array-like, (n, d)
        Rows; not sparse.
    target : column name, or array-like (n,)
        What the columns are to tell about.
    columns : sequence or mapping, optional
        Which columns: a sequence, or a mapping from names, of column names or numbers, or of lists
        of them; a list is a group, judged as a whole. By default each column but the target.
    estimator : PointwiseDependency or ClassicalDependency, optional
        What is fitted to each column or group instead of the quick estimate; it is cloned. For
        groups by default `PointwiseDependency()`.
    groups : array-like, (n,), optional
        For rows that are not independent draws: quick estimates use one row of each.
    pairs : bool
        Also the mutual information of every two columns.
    confidence : float
        Of the intervals.
    random_state : int, optional
        Seed: for how ties are broken, which rows are sampled, and the fits.
    progress : bool
        Show progress on standard error.

    Returns
    -------
    ColumnRanking
        `table`, a line per column, with `plot()`, `plot_pairs()`, `to_pandas()`, `to_dict()`.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from pointdep import rank_columns
    >>> size, noise = np.random.default_rng(0).normal(size=(2, 500))
    >>> table = pd.DataFrame({"noise": noise, "size": size, "price": np.exp(size + noise / 4)})
    >>> rank_columns(table, "price").table["column"].tolist()
    ['size', 'noise']
    """
    frame = _as_frame(table)
    chosen, name, values = _chosen(frame, columns, target)
    model = _estimator(estimator, random_state)
    how = {"random_state": random_state, "quantile": normal_quantile(confidence)}
    job = _Ranking.of(frame, name, values, groups, model, **how)
    lines: list[dict[str, Any]] = []
    read: list[_Column] = []
    with show("ranking columns", enabled=progress, left="about") as shown:
        for number, (label, group) in enumerate(chosen):
            read.append(job.read(label, group))
            lines.append(job.line(read[-1], group) | {"position": number})
            shown.update(number + 1, len(chosen), "column(s)")
        matrix = job.pairs(read, shown) if pairs else None
    rows = int((~job.y.gaps).sum())
    return ColumnRanking(job.finished(lines, read), name, rows, job.entropy, confidence, matrix)


def _as_frame(table: Any) -> pd.DataFrame:
    """The columns of any table, named by strings."""
    if hasattr(table, "tocsr"):
        raise SparseInputError("X is a sparse matrix: convert it first, as with X.toarray()")
    if not isinstance(table, Mapping) and len(np.shape(table)) != 2:
        raise InputError(f"X must be (n, d), rows and columns, not of shape {np.shape(table)}")
    if hasattr(table, "to_pandas"):
        table = table.to_pandas()
    frame = pd.DataFrame(table)
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _chosen(
    frame: pd.DataFrame, columns: Any, target: Any
) -> tuple[list[tuple[str, list[int]]], str, Any]:
    """Names and positions of the columns of each group, and the target with its name."""
    names, own = list(frame.columns), None
    name, values = str(getattr(target, "name", None) or "the target"), target
    if isinstance(target, str):
        if target not in names:
            raise unknown_name("target", target, names)
        own = names.index(target)
        name, values = target, frame.iloc[:, own]
    if columns is None:
        return [(n, [at]) for at, n in enumerate(names) if at != own], name, values
    entries = columns.values() if isinstance(columns, Mapping) else columns
    if isinstance(entries, str):
        raise InputError(f"columns={columns!r} must be a list of columns, or of lists of them")
    found = []
    for number, entry in enumerate(entries):
        group = [entry] if isinstance(entry, str) or not np.iterable(entry) else list(entry)
        places = [_position(column, names) for column in group]
        if own in places:
            raise InputError(f"columns: {name!r} is the target")
        label = " + ".join(names[at] for at in places)
        found.append(
            (str(list(columns)[number]) if isinstance(columns, Mapping) else label, places)
        )
    if not found or not all(places for _, places in found):
        raise InputError("columns must name at least one column in each group")
    return found, name, values


def _position(column: Any, names: list[str]) -> int:
    whole = isinstance(column, int | np.integer) and not isinstance(column, bool)
    if not isinstance(column, str) and not whole:
        raise InputError(f"columns: {column!r} is neither the number of a column nor a name")
    if not (column in names if isinstance(column, str) else 0 <= column < len(names)):
        if isinstance(column, str):
            raise InputError(f"columns: {unknown_name('column', column, names)}")
        raise InputError(f"columns: {column!r} is not among the {len(names)} columns")
    return names.index(column) if isinstance(column, str) else int(column)


def _estimator(given: Any, random_state: Any) -> Any:
    """A copy of what is fitted to columns; None where quick estimates are."""
    if given is None:
        return None
    if not isinstance(given, PointwiseDependency | ClassicalDependency):
        raise InputError(f"estimator={given!r} must be a PointwiseDependency, or a classical one")
    changed: dict[str, Any] = {"progress": False}
    if random_state is not None:
        changed["random_state"] = random_state
    return plain_copy(given, **changed)


@dataclass(frozen=True, eq=False)
class _Ranking:
    """What all columns are ranked by.

    values: the target as it was given; y: as it was read; used: at the rows `kept`. groups: of all
    rows, or None. model: what is fitted instead of quick estimates, or None.
    """

    frame: pd.DataFrame
    values: Any
    y: _Column
    used: _Column
    kept: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    model: Any
    seed: int
    quantile: float

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        name: str,
        values: Any,
        groups: Any,
        model: Any,
        *,
        random_state: Any,
        quantile: float,
    ) -> _Ranking:
        """Read the target, and choose rows."""
        codes = group_codes(groups, len(frame))
        if len(values) != len(frame):
            raise InputError(f"X has {len(frame)} rows, but the target has {len(values)}")
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        several = np.ndim(values) == 2 and np.shape(values)[1] > 1
        if several:  # which no quick estimate is for
            y = _Column(name, np.zeros(len(frame), dtype=bool))
            model = model or _estimator(PointwiseDependency(), random_state)
        else:
            y = _read(name, np.asarray(values).reshape(-1) if np.ndim(values) == 2 else values)
        if y.left_out:
            raise InputError(f"{name!r} cannot be the target: {y.left_out}")
        kept = np.flatnonzero(~y.gaps)
        random = np.random.default_rng([seed, 17])
        if codes is not None and model is None:
            kept = random.permutation(kept)
            kept = np.sort(kept[np.unique(codes[kept], return_index=True)[1]])
        if len(kept) > _MOST_ROWS and model is None:
            kept = np.sort(random.choice(kept, _MOST_ROWS, replace=False))
        used = y if several else y.take(kept)
        return cls(frame, values, y, used, kept, codes, model, seed, quantile)

    @property
    def entropy(self) -> float | None:
        """Of the target, by Miller and Madow, if it is categories."""
        if self.used.codes is None:
            return None
        share = np.bincount(self.used.codes) / len(self.kept)
        return float(-(share @ np.log(share)) + (len(share) - 1) / (2 * len(self.kept)))

    def read(self, label: str, group: list[int]) -> _Column:
        """A column; a group of several has no gaps and no parts."""
        if len(group) == 1:
            return _read(label, self.frame.iloc[:, group[0]])
        return _Column(label, np.zeros(len(self.frame), dtype=bool))

    def line(self, x: _Column, group: list[int]) -> dict[str, Any]:
        """What the table says of a column or group; without notes that compare it with others."""
        known = {"column": x.name, "notes": []}
        # Numbers that look like an id, or have one value, can be fitted; names and texts cannot.
        if x.left_out and (self.model is None or not x.parts):
            return known | {"notes": [x.left_out]}
        if self.model is not None or len(group) > 1:
            return known | self._fitted(x, group)
        values, part = _quick(x.take(self.kept), self.used, self.seed)
        nats, stderr = float(values.mean()), standard_error(values, None)
        p_value = _independence(x.take(self.kept), self.used)
        method = "counting"
        if x.codes is None or self.used.codes is None:
            method = "ksg" if x.codes is None and self.used.codes is None else "ksg in categories"
            chance = NormalDist().cdf(-nats / stderr) if stderr > 0 else 0.5
            of_neighbours = max(1, len(x.parts)) * chance
            p_value = min(1.0, 2 * min(p_value, of_neighbours))
        reach = self.quantile * stderr
        ends = {"low": max(0.0, nats - reach), "high": max(nats + reach, reach)}
        found = {"nats": max(nats, 0.0), **ends, "stderr": stderr, "p_value": p_value}
        notes = []
        if len(x.parts) > 1 or (x.parts and part):
            notes.append(
                "a date" if part == x.name else f"a date, by its {part[len(x.name) + 2 : -1]}"
            )
        if gaps := int(x.gaps.sum()):
            notes.append(f"{gaps} missing")
        return known | found | {"method": method, "notes": notes}

    def _fitted(self, x: _Column, group: list[int]) -> dict[str, Any]:
        """By a model that is fitted; its warnings name the columns."""
        model = self.model
        if model is None:
            model = _estimator(PointwiseDependency(random_state=self.seed), None)
        rows = self.frame.iloc[self.kept, group]
        if (rows.nunique(dropna=False) <= 1).all():
            return {"nats": 0.0, "notes": ["constant"]}
        values = self.values.iloc[self.kept] if hasattr(self.values, "iloc") else self.values
        if not hasattr(self.values, "iloc"):
            values = np.asarray(self.values)[self.kept]
        groups = None if self.groups is None else self.groups[self.kept]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", ".*are missing, in")  # the notes say so
            fitted = plain_copy(model).fit(rows, values, groups=groups)
            found = fitted.mutual_information(confidence=2 * NormalDist().cdf(self.quantile) - 1)
        told = dict.fromkeys((str(one.message), one.category) for one in caught)
        for message, category in told:
            warnings.warn(f"column(s) {x.name}: {message}", category, stacklevel=4)
        ends = {"low": max(found.ci[0], 0.0), "high": found.ci[1], "stderr": found.stderr}
        gaps = int(rows.isna().any(axis=1).sum())
        notes = [f"{gaps} missing"] if gaps else []
        return {"nats": max(found.nats, 0.0), **ends, "method": found.method, "notes": notes}

    def finished(self, lines: list[dict[str, Any]], read: Sequence[_Column]) -> pd.DataFrame:
        """The lines as a sorted table, with what follows from all of them."""
        keys = {self.y.key(): "the target"} if self.y.parts or self.y.codes is not None else {}
        for line, column in zip(lines, read, strict=True):
            if (column.parts or column.codes is not None) and not column.left_out:
                first = keys.setdefault(column.key(), column.name)
                if first != column.name:
                    line["notes"] = [*line["notes"], f"duplicate of {first}"]
            line["notes"] = ", ".join(line["notes"])
        table = pd.DataFrame(lines, columns=list(_COLUMNS)).astype(_COLUMNS)
        table["p_adjusted"] = _holm(table["p_value"].to_numpy())
        if self.entropy is not None:
            table["share"] = (table["nats"] / self.entropy).clip(0, 1)
        # What neighbours find by chance is more than a weak dependence that the test is sure of.
        nats = table["nats"].to_numpy()
        last = np.where(np.isnan(nats), 2, _doubtful(table))
        return table.iloc[np.lexsort((-nats, last))].reset_index(drop=True)

    def pairs(self, columns: list[_Column], progress: Progress) -> pd.DataFrame:
        """The mutual information of every two columns, the target last; NaN where it has none."""
        ranked = [
            c for c in (*columns, self.y) if not c.left_out and (c.parts or c.codes is not None)
        ]
        kept = self.kept[:: -(-len(self.kept) // _MOST_IN_PAIRS)]
        some = [column.take(kept) for column in ranked]
        found = np.full((len(some), len(some)), np.nan)
        for i, one in enumerate(some):
            for j, two in enumerate(some[:i]):
                x, y = (one, two) if len(one.parts) > len(two.parts) else (two, one)
                rows = np.flatnonzero(~y.gaps)
                values = np.zeros(1)
                if len(rows) >= min(_FEWEST, len(y.gaps)):
                    values = _quick(x.take(rows), y.take(rows), self.seed)[0]
                found[i, j] = found[j, i] = max(0.0, float(values.mean()))
            progress.update(i + 1, len(some), "columns with others")
        names = [column.name for column in ranked]
        return pd.DataFrame(found, index=names, columns=names)
