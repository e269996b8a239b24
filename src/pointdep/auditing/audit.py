"""`audit`: every pair of a data set, scored by models that did not see it."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pointdep.auditing.decision import Decision, check_shares, decide, ranks
from pointdep.auditing.evidence import HeldRows, StoredRows
from pointdep.auditing.labels import FEWEST_ROWS, MOST_CELLS, LabelDecision, decide_labels
from pointdep.auditing.mended import Pairs, read_decisions
from pointdep.auditing.partners import find_partners
from pointdep.auditing.result import Audit
from pointdep.auditing.why import explain
from pointdep.data.sides import SideEncoder, as_side
from pointdep.data.stored_pairs import sampled
from pointdep.errors import InputError, require_whole
from pointdep.estimators.base import plain_copy, read_pairs
from pointdep.estimators.fit_rows import StreamedFitRows, streams
from pointdep.estimators.pointwise import PointwiseDependency
from pointdep.fitting.progress import show
from pointdep.fitting.splits import make_splits

_Given = ParamSpec("_Given")

_FOLDS = 5
# Rows whose better partner is looked for: the lowest beside the suspects, and in all.
_OTHERS_DOUBTFUL, _MOST_DOUBTFUL = 100, 5_000
_MISMATCHED_KEPT = 10_000


def _names_options_of_the_model(function: Callable[_Given, Audit]) -> Callable[_Given, Audit]:
    """Make it answer an option that it has not by saying where options of the model go."""
    known = inspect.signature(function).parameters
    of_model = inspect.signature(PointwiseDependency).parameters

    @functools.wraps(function)
    def checked(*args: _Given.args, **options: _Given.kwargs) -> Audit:
        for name, value in options.items():
            if name not in known:
                hint = f": give model=PointwiseDependency({name}={value!r})"
                raise TypeError(f"audit has no option {name!r}{hint if name in of_model else ''}")
        return function(*args, **options)

    return checked


@_names_options_of_the_model
def audit(
    X: Any,
    Y: Any,
    groups: Any = None,
    folds: int = _FOLDS,
    fdr: float = 0.1,
    contamination: float | None = None,
    *,
    model: PointwiseDependency | None = None,
    random_state: Any = None,
    device: str = "auto",
    progress: bool = True,
    decisions: Any = None,
) -> Audit:
    """Which pairs are wrong? PMI of every row by models that did not see it, worst first.

    X, Y, groups: as `PointwiseDependency.fit` takes them; one column of categories as Y is the case
    of wrong labels.
    folds: models trained, each of which scores the rows it did not see.
    fdr: the share of good pairs that is accepted among the suspects.
    contamination: the share of pairs that came together by chance, where it is known; otherwise it
        is estimated.
    model: an estimator to be used instead of the default one (a copy of it is fitted), with its own
        folds, random state, device and progress.
    decisions: what a person has found: a mapping from rows to "right", "wrong" or "unsure", or a
        table with the columns row and decision, as the report page gives it. Rows that are right or
        wrong are taken as such, and the model is fitted without the wrong ones.

    Rows whose y belongs to the x a few rows earlier or later, or that are reversed or resorted, are
    found first (`Audit.out_of_step`), and the model is fitted on them in their right order.
    """
    check_shares(fdr, contamination)
    fitted = _estimator(model, folds, random_state, device, progress)
    pairs = Pairs.without_wrong(len(Y), read_decisions(decisions, len(Y)))
    fixed = fitted.cv is not None and not hasattr(fitted.cv, "split")
    if fixed and not pairs.as_given:
        raise InputError("decisions leave out wrong rows, whose numbers a cv of given parts needs")
    if not pairs.as_given and streams(fitted.stream, fitted.cv, X, Y):
        raise InputError(
            "decisions leave out wrong rows, which needs all rows in memory: drop them"
        )
    x, y, own = pairs.of(X, Y, groups)
    _require_each_once(fitted, x, y, own)
    fitted.fit(x, y, groups=own)
    mended = pairs if fixed else pairs.in_step(fitted)
    if mended.stretches:
        fitted = plain_copy(fitted)
        x, y, own = mended.of(X, Y, groups)
        fitted.fit(x, y, groups=own)
    found = judged(fitted, x, y, fdr, contamination)
    plain = mended.as_given and not mended.decisions
    return found if plain else mended.of_all_rows(found, fitted, X, Y)


def judged(
    fitted: PointwiseDependency, X: Any, Y: Any, fdr: float, contamination: float | None = None
) -> Audit:
    """The audit of the rows that a model was fitted on."""
    rows: Any = fitted.training_rows_
    stored = isinstance(rows, StreamedFitRows)
    kept = None if stored else rows.paired.numbers  # rows of the data, if some were left out
    evidence = StoredRows(fitted.model_, rows) if stored else HeldRows(fitted.model_, rows.paired)
    with show("comparing", enabled=fitted.progress, left="about") as shown:
        beside = evidence.mismatched(shown)
    information = fitted.mutual_information()
    least, groups = information.ci[0], fitted.groups_
    pmi = fitted.oof_pmi_ if kept is None else fitted.oof_pmi_[kept]
    labels = _labels(Y, fitted)
    labels = labels if labels is None or kept is None else labels[kept]
    judged_labels = _judged_labels(evidence, pmi, labels, contamination)
    of_labels = judged_labels is not None
    decision = decide(pmi, beside, contamination, least, groups, of_labels)
    if judged_labels is not None:
        decision = judged_labels.within(decision)
    # At most 10,000 of the mismatched pairs, evenly from the lowest to the highest.
    ordered = np.sort(beside.pmi)
    some = np.linspace(0, len(ordered) - 1, min(len(ordered), _MISMATCHED_KEPT)).round()
    own = (X, Y) if kept is None else (sampled(X, kept), sampled(Y, kept))
    table = _table(fitted, evidence, decision, fdr, (labels, judged_labels), own, pmi)
    if kept is not None:
        table = _with_left_out(table, kept, len(fitted.oof_pmi_), fitted.left_out_)
    return Audit(
        table=table,
        mutual_information=information,
        check=fitted.check(),
        contamination=decision.contamination,
        fdr=fdr,
        folds=fitted.n_replicas_,
        method=fitted.method,
        flags=fitted.flags_,
        answered=fitted.model_.answered,
        mismatched=ordered[some.astype(np.int64)],
        sides=(X, Y),
        encoders=(_described(fitted.encoder_x_), _described(fitted.encoder_y_)),
        named=decision.named,
        confusion=None if judged_labels is None else judged_labels.confusion,
    )


def _judged_labels(
    evidence: HeldRows | StoredRows,
    pmi: NDArray[np.float32],
    labels: NDArray[Any] | None,
    contamination: float | None,
) -> LabelDecision | None:
    """What each row's label should be; None if y is no label, or there are few rows per label."""
    if labels is None or np.isnan(pmi).any():
        return None
    names, first, given = np.unique(labels, return_index=True, return_inverse=True)
    rows, count = len(labels), len(names)
    if count < 2 or rows < FEWEST_ROWS * count or rows * count > MOST_CELLS:
        return None
    log_ratio = evidence.of_labels(first.astype(np.int64))
    return decide_labels(log_ratio, given.reshape(-1), pmi, contamination, names)


def _estimator(
    model: PointwiseDependency | None, folds: int, random_state: Any, device: str, progress: bool
) -> PointwiseDependency:
    if model is None:
        require_whole("folds", folds, least=2)  # every row needs a model that did not see it
        how: dict[str, Any] = {"random_state": random_state, "device": device}
        return PointwiseDependency(folds=folds, progress=progress, curve=False, **how)
    if not isinstance(model, PointwiseDependency):
        raise InputError("model must be a PointwiseDependency, such as PointwiseDependency()")
    if folds != _FOLDS or random_state is not None or device != "auto":
        raise InputError("folds, random_state and device are those of model: set them there")
    fresh: PointwiseDependency = plain_copy(model)
    return fresh


def _require_each_once(fitted: PointwiseDependency, X: Any, Y: Any, groups: Any) -> None:
    """Refuse, before the fit, folds or a cv that do not score each row once."""
    if fitted.cv is None and fitted.folds != 1:
        return
    if streams(fitted.stream, fitted.cv, X, Y):
        raise InputError(f"folds={fitted.folds}: an audit needs at least 2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit says the same again
        x, _, codes = read_pairs(
            X, Y, groups, (fitted.discrete_x, fitted.discrete_y), fitted.missing
        )
        how = {"cv": fitted.cv, "groups": codes, "stop_fraction": fitted.stop_fraction}
        # Which rows report does not depend on the seed.
        splits = make_splits(x.rows, folds=fitted.folds, seed=0, **how)
    times = np.bincount(np.concatenate([split.report for split in splits]), minlength=x.rows)
    if (times != 1).any():
        raise InputError(
            f"row {int((times != 1).argmax())} is scored by {int(times[times != 1][0])} models "
            "that did not see it, and each row needs one: use folds of at least 2, or a cv whose "
            "test parts hold every row once, such as KFold"
        )


def _table(
    fitted: PointwiseDependency,
    evidence: HeldRows | StoredRows,
    decision: Decision,
    fdr: float,
    label_sides: tuple[NDArray[Any] | None, LabelDecision | None],
    sides: tuple[Any, Any],
    pmi: NDArray[np.float32],
) -> pd.DataFrame:
    labels, judged_labels = label_sides
    order = np.argsort(pmi, kind="stable")
    suspect = decision.q_value <= fdr
    first = order[np.argsort(~suspect[order], kind="stable")]  # suspects, then the lowest PMI
    doubtful = first[: min(int(suspect.sum()) + _OTHERS_DOUBTFUL, _MOST_DOUBTFUL)]
    with show("looking for better partners", enabled=fitted.progress, left="about") as progress:
        among = evidence.searched(pmi, doubtful)
        partners = find_partners(fitted.model_, among, progress)
    with show("looking for what speaks against them", enabled=fitted.progress) as progress:
        why = explain(fitted, among, *sides, progress)
    with show("scoring", enabled=fitted.progress) as progress:
        stderr = evidence.stderr(fitted.jackknife_, progress)
    columns: dict[str, Any] = {
        "row": np.arange(len(pmi)),
        "pmi": pmi,
        "stderr": stderr,
        "posterior": decision.posterior,
        "q_value": decision.q_value,
        "suspect": suspect,
        "below_zero": pmi < 0,
        "rank": ranks(pmi),
        "better_partner": _whole(partners.row),
        "better_partner_pmi": partners.pmi,
    }
    if labels is not None:
        better = pd.Series(labels[partners.row], dtype=object)
        columns["better_label"] = better.where(partners.row >= 0, None)
        if judged_labels is not None:
            columns["better_label"] = judged_labels.better_label(partners.row >= 0)
    columns["swapped_with"] = _whole(partners.swapped)
    with show("looking for duplicates", enabled=fitted.progress):
        columns["duplicate_of"] = _whole(evidence.duplicates())
    if why is not None:
        columns["why"] = pd.Series(why, dtype=object)
    return pd.DataFrame(columns)


def _described(encoder: SideEncoder) -> str | None:
    """What made the numbers of a side of texts, pictures or sounds."""
    return None if encoder.front is None else str(encoder.front.described)


def _with_left_out(
    table: pd.DataFrame, kept: NDArray[np.int64], rows: int, reasons: Mapping[int, str]
) -> pd.DataFrame:
    """The table of all rows of the data, with a reason in those that were left out.

    kept: the rows of the data that the lines of the table are.
    """
    for name in ("better_partner", "swapped_with", "duplicate_of"):
        known = table[name].notna()
        table.loc[known, name] = kept[table.loc[known, name].to_numpy(np.int64)]
    whole = table.set_index(pd.Index(kept)).reindex(range(rows)).reset_index(drop=True)
    whole["row"] = np.arange(rows)
    out = whole["rank"].isna()
    whole.loc[out, "rank"] = np.arange(len(kept) + 1, rows + 1)
    kinds = {"rank": np.int64} | dict.fromkeys(("suspect", "below_zero"), bool)
    flags = {name: whole[name].where(~out, False) for name in ("suspect", "below_zero")}
    whole = whole.assign(**flags).astype(kinds)
    why = [reasons.get(row, "missing value") if left else None for row, left in enumerate(out)]
    return whole.assign(reason=pd.Series(why, dtype=object))


def _whole(rows: NDArray[np.int64]) -> Any:
    """Row numbers as pandas keeps whole numbers of which some are missing."""
    return pd.Series(rows, dtype="Int64").where(rows >= 0)


def _labels(Y: Any, fitted: PointwiseDependency) -> NDArray[Any] | None:
    """The labels (n,) where y is one column of categories."""
    if fitted.encoder_y_.numeric_at:
        return None
    raw = as_side(Y, "Y", known=fitted.encoder_y_)
    if raw.numeric is not None or len(raw.categorical) != 1:
        return None
    return raw.categorical[0][1]
