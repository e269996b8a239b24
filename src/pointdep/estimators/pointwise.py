"""`PointwiseDependency`: learn r(x,y) from pairs, and answer with it."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pointdep import errors
from pointdep.core.methods import Method, get_method
from pointdep.core.precision import own_threads, paying_threads
from pointdep.core.ratio import RatioModel
from pointdep.data.encoder import part_of
from pointdep.data.media import telling
from pointdep.data.raw import group_codes
from pointdep.data.sides import (
    RawSide,
    SideEncoder,
    as_side,
    as_source,
    require_same_length,
    side_digest,
)
from pointdep.data.stored_pairs import paired_parts, sampled
from pointdep.errors import DataWarning, Flag, InputError, require_known
from pointdep.estimators import assembly, fit_rows, persistence
from pointdep.estimators.base import (
    NO_BETTER,
    DependencyEstimator,
    can_be_scored,
    read_pairs,
    reasons_of,
    without_gaps,
)
from pointdep.estimators.classical.ksg import ksg_alarm
from pointdep.estimators.fit_rows import FitRows, PairedRows, is_large
from pointdep.fitting.batches import TrainingOptions
from pointdep.fitting.data_flags import determined_flags, few_rows_flags, outlier_flags
from pointdep.fitting.engine import Trained
from pointdep.fitting.processes import ALONE, Processes, processes_of_group
from pointdep.fitting.progress import Progress, Silent, show
from pointdep.fitting.reference import reference_flags, store_reference
from pointdep.fitting.rendezvous import pick_device
from pointdep.fitting.splits import Rows, Split, part_splits, random_of, require_product_rows
from pointdep.fitting.state import Checkpoint, remove_state
from pointdep.inference import out_of_fold, scoring
from pointdep.inference.checks import FEWEST_ROWS, RatioCheck, check_log_ratio
from pointdep.inference.learning_curve import rise_flags
from pointdep.inference.mutual_information import HeldOutBound, MIEstimate, RowValues
from pointdep.inference.out_of_fold import (
    HeldOut,
    OutOfFold,
    astray_flags,
    inference_values,
    wide_flags,
)
from pointdep.inference.verdicts import MISSED, Origin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pointdep.retrieval.candidate_index import CandidateIndex
    from pointdep.retrieval.metrics import Relevant, RetrievalMetrics
    from pointdep.retrieval.search import Retrieved


Array32 = NDArray[np.float32]

EFFORTS = ("quick", "default", "high")
ANSWER_SEED = 0  # answers about given rows do not depend on the state of any generator
MANY_OUTSIDE = 0.01  # share of pairs from which a warning is due
_OF_TRAINING = ("weight_decay", "max_epochs", "average")
_PART = 1 << 24  # numbers that are answered about at a time, where the rows are many
_HELD_OUT = 2_000  # rows that are set against each other to measure false matches
_MOST_COMPARED = 1 << 17  # rows by which `score` and `check` judge, where they are given more


@errors.names_options
@dataclass(kw_only=True, eq=False, repr=False)
class PointwiseDependency(DependencyEstimator):
    """Learn r(x,y) = p(x,y) / (p(x) p(y)) from paired rows.

    Parameters
    ----------
    method : key of `pointdep.METHODS`: how r is learned and MI inferred.
    critic : "auto", the Gaussian closed form on rank-Gaussianised columns and a network for what
        it misses (two encoders with more than 25 columns on a side, unless few of these depend on
        the other side, and not by correlation alone; 1,000 columns or more that go
        together are first brought to 104 features; of two columns of categories, with more than
        25 in one, a low-rank table and counts), together a softmax classifier if
        one side is a single column of categories and the other has numbers; "concat", "separable",
        "bilinear" or "inner"; or your own module, called as ``module(x, y)`` on paired rows and
        giving (n,) scores; or a pair of your own encoders ``(encoder_x, encoder_y)``, whose inner
        product is the score.
    hidden, embedding_dim, activation : layers of the named critics, "auto" for (256, 256), and
        with the critic "auto" (256, 64), (128, 64) below 50,000 rows, or (128, 32) below 5,000;
        its encoders of wide data have (256, 256), or (512, 512) above 128 columns.
        `embedding_dim` is for "separable" and those encoders; activation "auto" is ReLU for them
        and for methods whose score is r, such as `drf`, and SiLU otherwise.
    link : what the critic's output stands for: the method's "score"; "log_ratio", which keeps r
        positive; or "asinh", r - 1/r, which does so too and suits `drf` better. "auto" is the
        score, and log r with the critic "auto", which takes no other.
    method_options : options of the method, such as ``{"eta": 2.0}`` for `dm2`.
    discrete_x, discrete_y : whether a side is categories; None decides by its type.
    missing : what missing values are: "indicator", a state of their own, which a further column
        tells for numbers, and a category for categories; "drop" leaves such pairs out of the fit;
        "error" refuses them.
    folds : replicas trained, each on all but one part of the rows; 1 trains a single model with a
        part of the rows to train, one to stop and one to report.
    cv : a scikit-learn splitter instead of `folds`.
    stop_fraction : share of each replica's rows that decides when to stop.
    batch_size, negatives : rows per step, and product samples per row, or "auto".
    learning_rate, patience : of Adam, and the epochs without a better held-out score after which
        a replica stops. "auto" is 4e-3 that falls with the epochs, and 5, for networks that start
        from the closed form, as the critic "auto" does below 26 columns; 1e-3 and 8 for others.
    weight_decay, max_epochs, average : of the optimiser, the limit on the epochs, and of the
        running average of the weights (0 for none).
    reference_size : rows of y kept by `cpc` to normalise its read-out.
    stream : read the rows as they are needed instead of holding them; None does so with more than
        2^27 numbers in all. Then part of the answers comes from a sample of the rows
        (docs/large.md), and there is no `cv`.
    device : "auto", "cpu", "cuda", "mps", ...
    distributed : share the work among the processes of `torch.distributed`, each of which calls
        `fit` with the same rows and ends with the same model (docs/distributed.md).
    random_state : int for the same numbers on the same machine.
    progress : show progress on standard error when fitting or scoring takes over two seconds.
    curve : also fit models on a quarter and on half of the rows, in the same run, so that the
        estimate says whether more rows would find more; None does so where the rows are held in
        memory. It takes about half as much time again, and with one fold nearly as much again.
    effort : "quick" trains no networks: the closed form alone answers, or the table of two columns
        of categories. "high" trains twice as many networks (`folds`), with three times the
        patience. "default" is in between.
    threads : how many threads torch works with in `fit`. None is one, or more where the matrices
        are large and a short trial says that they help. It is as before after the call.
    checkpoint : a file that keeps the state of training; a fit of the same data and settings that
        finds it goes on from there, and removes it at the end.

    Attributes
    ----------
    oof_pmi_ : (n,) float32, PMI of each training row by the replicas that did not see it; NaN for
        rows that none reports, as with ``folds=1`` or a `cv` that leaves rows out.
    left_out_ : rows of the fit whose text, picture or sound could not be read, and why.
    flags_ : the training problems found, each also raised as a `FitWarning`.
    bias_ : the bias of fitting, which `mutual_information()` takes off, so that it is not the mean
        of `oof_pmi_`.
    hidden_ : the layers that were used.
    history_ : per epoch and replica, the objective on training batches and on held-out rows.
    n_features_in_, feature_names_in_ : columns of X, and their names where X is a table.
    n_rows_, n_replicas_ : what was fitted.
    """

    method: str = "pc"
    critic: Any = "auto"
    hidden: Sequence[int] | str = "auto"
    embedding_dim: int = 64
    activation: str = "auto"
    link: str = "auto"
    method_options: Mapping[str, Any] | None = None
    discrete_x: bool | None = None
    discrete_y: bool | None = None
    missing: str = "indicator"
    folds: int = 5
    cv: Any = None
    stop_fraction: float = 0.15
    batch_size: int | str = "auto"
    negatives: int | str = "auto"
    learning_rate: float | str = "auto"
    weight_decay: float = 0.0
    max_epochs: int = 200
    patience: int | str = "auto"
    average: float = 0.99
    reference_size: int = 1024
    stream: bool | None = None
    device: str = "auto"
    distributed: bool = False
    random_state: Any = None
    progress: bool = True
    checkpoint: str | Path | None = None
    curve: bool | None = None
    effort: str = "default"
    threads: int | None = None

    _parts: ClassVar[Sequence[Rows]] = ()  # rows of models to fit in the same run: `fit_parts`

    def fit(self, X: Any, Y: Any = None, groups: Any = None) -> PointwiseDependency:
        """Fit on paired rows.

        X, Y: numpy, torch, pandas, polars or lists, (n,) or (n, d), numbers or categories; or what
        `pointdep.open_rows` opens.
        groups: (n,), for rows that are not independent draws (several captions of one image): rows
        of one group stay on one side of every split and are never each other's product samples.
        """
        with own_threads(self.threads) as most_threads:
            return self._fit(X, Y, groups, most_threads)

    def _fit(self, X: Any, Y: Any, groups: Any, most_threads: int) -> PointwiseDependency:
        self._require_y(Y)
        errors.require_whole("reference_size", self.reference_size)
        if self.checkpoint is not None and self.random_state is None:
            raise InputError("checkpoint needs a fixed random_state, to find what to resume")
        method = get_method(self.method, self.method_options)
        require_known("effort", self.effort, EFFORTS)
        if not isinstance(self.distributed, bool | np.bool_):
            raise InputError(f"distributed={self.distributed!r} must be True or False")
        processes = processes_of_group() if self.distributed else ALONE
        rows = self._read(X, Y, groups, processes.first(self._seed), processes)
        paired = rows.paired
        widths = paired.x.shape[1], paired.y.shape[1]
        settings = self._settings_for(rows, method)
        options = self._training_options(settings, rows)
        curve = self._curve_splits(rows, options, method)
        for splits in (paired.splits, *curve) if method.uses_product else ():
            require_product_rows(splits, paired.codes, method.key)
        replicas = len(paired.splits) + sum(map(len, curve))
        model = assembly.make_model(settings, method, replicas, *widths)
        rows = rows.prepare(model)
        paired = rows.paired
        checkpoint = self._open_checkpoint(model, rows, options)
        share = processes.share if isinstance(rows, fit_rows.StreamedFitRows) else ""
        smaller = f" and {replicas - len(paired.splits)} on parts of the rows" if any(curve) else ""
        title = f"fitting {len(paired.splits)} model(s){smaller} of {method.key}{share}"
        with show(title, enabled=self.progress and processes.is_first) as progress:
            how: dict[str, Any] = {"checkpoint": checkpoint, "processes": processes, "curve": curve}
            how |= {"whole_parts": bool(self._parts), "quick": self.effort == "quick"}
            if self.threads is None:
                products = options.batch_size * sum(p.numel() for p in model.critic.parameters())
                torch.set_num_threads(paying_threads(most_threads, products))
            how |= rows.training_sources(model, options, progress)
            whole = assembly.train_model(model, paired, options, progress=progress, **how)
            points = () if self._parts else whole.curve
            self._conclude(rows, whole.model, whole.trained, progress, points)
        self._settings, self.hidden_ = settings, persistence.plain_hidden(settings.hidden)
        self.fit_params_ = persistence.saved_params(self)
        self._points = self._of_parts(paired, curve, whole)
        if not processes.is_first:
            return self
        if checkpoint is not None:
            remove_state(checkpoint.path)
        self._warn_of_flags()
        return self

    def mutual_information(
        self,
        X: Any = None,
        Y: Any = None,
        *,
        groups: Any = None,
        confidence: float = 0.95,
        shuffles: int = 0,
    ) -> MIEstimate:
        """The mutual information: of the training rows out of fold, or of the given rows.

        Of the training rows it is corrected for the bias of fitting (`pointdep.inference.bias`).
        Give rows that the model was not fitted on: on its own training rows it reads too high, and
        `lower` does not hold. Of given rows it is the plain mean, with the bias in the interval.
        `shuffles` asks for the p-value of independence, from so many shuffled copies of the
        training rows.
        """
        check_is_fitted(self, "model_")
        errors.require_whole("shuffles", shuffles, least=0)
        given = X is not None or Y is not None
        rows = row_values(self, X, Y, groups)
        if given and self.model_.methods[0].estimates == "mutual information":
            rows = replace(rows, bound=self._bound(X, Y, groups))
        how: dict[str, Any] = {"confidence": confidence, "warnings": self._notes}
        null_p = self._null(shuffles, given) if shuffles else None
        return rows.estimate(self.model_.methods[0], null_p=null_p, shuffles=shuffles, **how)

    def check(
        self,
        X: Any = None,
        Y: Any = None,
        *,
        groups: Any = None,
        level: float = 0.05,
        tolerance: float = 0.05,
    ) -> RatioCheck:
        """Is the fitted ratio right? Tests that need no truth, on rows the model did not see.

        Without arguments on the training rows out of fold, otherwise on the given rows. The result
        has `passed`, a `verdict` in words, `to_dict()` and `plot()`.
        """
        check_is_fitted(self, "model_")
        held = self._held_out(X, Y, groups, "check")
        if X is None and Y is None:
            pmi = torch.from_numpy(self.training_rows_.paired.values(self.oof_pmi_))
        else:
            with show("scoring", enabled=self.progress) as progress:
                pmi = scoring.score_pairs(self.model_, held.x, held.y, progress)
        known = ~pmi.isnan()
        pmi = pmi[known].to(self.model_.seen.device)
        pairs = held.x[known.to(held.x.device)], held.y[known.to(held.y.device)]
        outside = self.model_.outside(*self._on_device(*pairs), pmi)
        blocks = held.blocks()
        return check_log_ratio(
            *blocks[:3],
            groups=blocks[3],
            at_limit=float(self.model_.at_limit(pmi.unsqueeze(0)).double().mean()),
            outside=float(outside.double().mean()),
            level=level,
            tolerance=tolerance,
            origin=self._origin(given=X is not None or Y is not None),
            missed=[flag for flag in self.flags_ if flag.name in MISSED],
        )

    def pmi(self, X: Any, Y: Any) -> Array32:
        """log r of each pair, (n,): a function of that pair alone, in nats.

        Warns where more than 1 % of the pairs are unlike any of the fit; `outside` says which.
        """
        found = self._answers(X, Y)
        far = found["outside"]
        if float(far.mean()) > MANY_OUTSIDE:
            errors.warn_caller(
                f"{int(far.sum())} of {len(far)} pair(s) lie outside the data of the fit: their "
                "PMI is an extrapolation (outside(X, Y) says which)",
                DataWarning,
            )
        return found["pmi"]

    def _answers(self, X: Any, Y: Any) -> dict[str, NDArray[Any]]:
        with show("scoring", enabled=self.progress) as progress:
            return pair_columns(self, X, Y, progress)

    def _by_parts(self, X: Any, Y: Any, answer: Callable[[Any, Any, slice], Any]) -> Any:
        """answer(X, Y, rows), an array or several of one entry per row, in parts of many rows."""
        check_is_fitted(self, "model_")
        if X is None or Y is None or not is_large(X, Y):
            return answer(X, Y, slice(None))
        found = []
        step = max(1, _PART // max(1, sum(int(np.prod(side.shape[1:])) for side in (X, Y))))
        for first, x, y in paired_parts(X, Y, step):
            last = first + len(x)
            try:
                found.append(answer(x, y, slice(first, last)))
            except InputError as error:
                raise InputError(f"in the part from row {first} to {last - 1}: {error}") from error
        if isinstance(found[0], tuple):
            return tuple(np.concatenate(side) for side in zip(*found, strict=True))
        return np.concatenate(found)

    def pmi_stderr(self, X: Any, Y: Any) -> Array32:
        """The standard error of `pmi`, (n,): how much it changes with the rows of the fit.

        From the replicas, each of which was fitted without one part of the rows (the jackknife by
        parts). What differs between replicas by their initial weights is in it too, so that it errs
        on the high side.
        """
        check_is_fitted(self, "model_")
        if self.model_.replicas < 2:
            raise InputError("pmi_stderr needs at least two replicas: fit with folds=2 or more")
        return self._answers(X, Y)["stderr"]

    def outside(self, X: Any, Y: Any) -> NDArray[np.bool_]:
        """Which pairs are unlike any of the fit, (n,): their PMI is an extrapolation.

        A value lies well beyond all values its column had, or PMI beyond that of all pairs and
        mismatched pairs.
        """
        return self._answers(X, Y)["outside"]

    def pd(self, X: Any, Y: Any) -> Array32:
        """r of each pair, (n,)."""
        return np.exp(self.pmi(X, Y))

    def npmi(self, X: Any, Y: Any, *, pmi: Array32 | None = None) -> Array32:
        """Normalised PMI of each pair, (n,) in [-1, 1]: PMI / -log p(x,y).

        The probability of an outcome is its frequency where a side is one column of categories, and
        1/n of the training rows where it is continuous, each row being its own outcome: 1 says that
        x and y only occur together, 0 that they are independent, -1 that they never meet. Give
        `pmi`, the PMI of the same pairs, where it is at hand already.
        """
        if pmi is None:
            return self._answers(X, Y)["npmi"]

        values = np.asarray(pmi, np.float64)

        def part(x: Any, y: Any, rows: slice) -> Array32:
            raw = self._read_sides(x, y)
            own = values[rows]
            if own.shape != (raw[0].rows,):
                raise InputError(f"pmi has shape {np.shape(pmi)} for {raw[0].rows} pairs")
            return scoring.normalised_pmi(own, self._rarity(*raw), self.n_rows_)

        found: Array32 = self._by_parts(X, Y, part)
        return found

    def _rarity(self, raw_x: RawSide, raw_y: RawSide) -> list[NDArray[np.float64] | None]:
        return [self.encoder_x_.log_frequency(raw_x), self.encoder_y_.log_frequency(raw_y)]

    def pmi_matrix(self, X: Any, Y: Any) -> Array32:
        """log r of every x with every y, (n, m), computed in blocks."""
        x, y, _, _ = self._encode(X, Y, paired=False)
        with show("scoring", enabled=self.progress) as progress:
            return scoring.score_matrix(self.model_, x, y, progress)

    def retrieve(
        self,
        X: Any,
        candidates: Any,
        k: int | None = None,
        *,
        queries: str = "x",
        exact: bool = False,
        index: str = "flat",
        shortlist: int | None = None,
        measure_recall: bool = True,
        min_pmi: float | None = None,
        held_out: tuple[Any, Any] | None = None,
    ) -> Retrieved:
        """The k candidates of highest PMI for each row of X, best first.

        Critics that are an inner product are searched exactly, unless `index` says otherwise. With
        the default critic the closed form is searched, and PMI itself is computed for the best of
        that search. Up to some millions of pairs, all are scored.

        Parameters
        ----------
        X : array-like, (n, d)
            The queries.
        candidates : array-like, (m, e), or CandidateIndex
            Rows of the other side, or what `index` made of them.
        k : int, optional
            How many to find. By default 10, or all candidates if there are fewer.
        queries : {"x", "y"}
            The side of the queries. The candidates are the other side.
        exact : bool
            Score every pair.
        index : {"flat", "hnsw", "ivf"}
            "flat" looks at all vectors, "hnsw" and "ivf" at some: faster and less certain.
        shortlist : int, optional
            How many candidates per query are scored by PMI itself. By default as many as a sample
            of the queries needs, 5,000 at most; 1,000 without `measure_recall`.
        measure_recall : bool
            If the search is not exact, compare it with the true answer of a sample of the queries.
            The result has the share found, and the number of these queries.
        min_pmi : float, optional
            PMI that a candidate must exceed: 0.0 leaves out those that come together with the query
            no more often than by chance. Queries to which nothing belongs get -1.
        held_out : (X, Y), optional
            Pairs that the model was not fitted on, to measure with `min_pmi` how often a query gets
            a candidate although nothing belongs to it. By default rows of the fit, by models that
            did not see them, if this model was fitted rather than loaded.

        Returns
        -------
        Retrieved
            `indices` and `pmi`, (n, k) each, and how good the search was.

        Examples
        --------
        >>> import numpy as np
        >>> from pointdep import PointwiseDependency
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> model = PointwiseDependency(random_state=0, progress=False).fit(x, 3 * x + 1)
        >>> model.retrieve(x[:5], 3 * x + 1, k=2).indices.shape
        (5, 2)
        """
        check_is_fitted(self, "model_")
        from pointdep.retrieval import search

        how: dict[str, Any] = {"queries": queries, "exact": exact, "index": index}
        how |= {"shortlist": shortlist, "measure_recall": measure_recall, "progress": self.progress}
        found = search.retrieve(self.model_, self._encode_side, X, candidates, k, **how)
        if min_pmi is None:
            if held_out is not None:
                raise InputError("held_out measures what min_pmi lets through: give min_pmi too")
            return found
        if not isinstance(min_pmi, int | float | np.floating) or not math.isfinite(min_pmi):
            raise InputError(f"min_pmi={min_pmi!r} must be a number, such as 0.0")
        return found.at_least(float(min_pmi), self._mismatched(held_out, queries))

    def _mismatched(
        self, held_out: tuple[Any, Any] | None, queries: str
    ) -> tuple[Array32, NDArray[np.bool_]] | None:
        """PMI of held-out rows, (n, n), queries first, and which of these pairs are mismatched."""
        model, codes = self.model_, None
        if held_out is not None:
            x, y, _, _ = self._encode(*some_rows(*held_out, None)[:2])
            chosen = np.random.default_rng(ANSWER_SEED).permutation(len(x))[:_HELD_OUT]
        elif getattr(self, "training_rows_", None) is not None:
            held = self.training_rows_.paired
            part = max(range(len(held.splits)), key=lambda one: len(held.splits[one].report))
            rows = held.splits[part].report
            chosen = np.random.default_rng(ANSWER_SEED).permutation(rows)[:_HELD_OUT]
            x, y, codes = held.x, held.y, held.codes
            model = self.model_.select([part])
        else:
            return None
        x, y = x[chosen], y[chosen]
        pmi = scoring.score_matrix(model, x, y)
        asked, sides = (pmi, (x, y)) if queries == "x" else (pmi.T, (y, x))
        # A copy of what belongs to the query belongs to it, too.
        kinds = np.unique(sides[1].cpu().numpy(), axis=0, return_inverse=True)[1].reshape(-1)
        mismatched = kinds[:, None] != kinds
        if codes is not None:
            mismatched &= codes[chosen][:, None] != codes[chosen]
        return asked, mismatched

    def index(self, candidates: Any, *, side: str = "y", kind: str = "flat") -> CandidateIndex:
        """Prepare candidates of one side for `retrieve`.

        Parameters
        ----------
        candidates : array-like, (m, d)
            Their rows.
        side : {"y", "x"}
            The side that they are of.
        kind : {"flat", "hnsw", "ivf"}
            How the index searches; see `retrieve`.

        Returns
        -------
        CandidateIndex
            To be given to `retrieve`, or saved with `save(path)`.
        """
        check_is_fitted(self, "model_")
        from pointdep.retrieval import search

        return search.index_candidates(
            self.model_, self._encode_side, candidates, side=side, kind=kind, progress=self.progress
        )

    def load_index(self, path: str | Path) -> CandidateIndex:
        """Read a saved index, which must have been made with this model.

        Parameters
        ----------
        path : str or Path
            The folder that `CandidateIndex.save` wrote.

        Returns
        -------
        CandidateIndex
            As `index` made it.
        """
        check_is_fitted(self, "model_")
        from pointdep.retrieval.candidate_index import read_index

        return read_index(Path(path), self.model_)

    def retrieval_metrics(
        self,
        X: Any,
        Y: Any,
        *,
        queries: str = "x",
        relevant: Relevant | None = None,
        ks: Sequence[int] = (1, 10, 100),
        matching: Sequence[int] | None = None,
        draws: int = 20,
        distractors: str = "random",
        random_state: int = 0,
    ) -> RetrievalMetrics:
        """How well the right candidates are found: recall at k, mean reciprocal rank, 1:m matching.

        Every pair of X and Y is scored.

        Parameters
        ----------
        X, Y : array-like, (n, d) and (m, e)
            Rows of both sides.
        queries : {"x", "y"}
            The side of the queries. The candidates are the other side.
        relevant : tuple of two arrays, optional
            As in `pointdep.retrieval_metrics`. By default candidate i is right for query i, and if
            the candidates are categories, all that have the value of candidate i.
        ks, matching, draws, distractors, random_state
            As in `pointdep.retrieval_metrics`.

        Returns
        -------
        RetrievalMetrics
            The metrics, with `to_dict()` for JSON.
        """
        check_is_fitted(self, "model_")
        from pointdep.retrieval import search

        how: dict[str, Any] = {"queries": queries, "relevant": relevant, "ks": ks}
        how |= {"matching": matching, "draws": draws, "distractors": distractors}
        how |= {"random_state": random_state, "category_ids": self._category_ids}
        how |= {"progress": self.progress}
        return search.model_metrics(self.model_, self._encode_side, X, Y, **how)

    def score(self, X: Any, Y: Any, groups: Any = None) -> float:
        """Minus the log-loss of the balanced classifier sigmoid(log r) on the rows and shuffles.

        The one number by which methods and critics can be compared: higher is better, -log 2 is no
        better than calling everything independent. Of very many rows, 131,072 at random decide.
        Rows that cannot be scored, as of a category that the fit has not seen, are left out, with a
        warning; -log 2 if fewer than two can.
        """
        X, Y, groups = some_rows(X, Y, groups)
        x, y, _, reasons = self._encode_some(X, Y)
        if not can_be_scored(reasons):
            return NO_BETTER
        codes = group_codes(groups, len(reasons))
        return scoring.shuffled_log_likelihood(
            lambda a, b: scoring.score_pairs(self.model_, x[a], y[b]).numpy(),
            len(x),
            seed=ANSWER_SEED,
            groups=None if codes is None else codes[reasons == ""],
        )

    def _on_device(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        device = self.model_.seen.device
        return x.to(device), y.to(device)

    def _encode(
        self, X: Any, Y: Any, *, paired: bool = True
    ) -> tuple[Tensor, Tensor, RawSide, RawSide]:
        """Both sides as float32 rows on the CPU, and as they were given."""
        raw_x, raw_y = self._read_sides(X, Y, paired=paired)
        x = torch.from_numpy(self.encoder_x_.encode(raw_x))
        y = torch.from_numpy(self.encoder_y_.encode(raw_y))
        return (*self.model_.prepare(x, y), raw_x, raw_y)

    def _encode_some(
        self, X: Any, Y: Any
    ) -> tuple[Tensor, Tensor, list[RawSide], NDArray[np.object_]]:
        """The same of the pairs that can be encoded, and of all, (n,), why not: "" if they can."""
        raws = list(self._read_sides(X, Y))
        both = [
            encoder.encode_some(raw)
            for encoder, raw in zip((self.encoder_x_, self.encoder_y_), raws, strict=True)
        ]
        encoded = [values for values, _ in both]
        reasons = reasons_of([fault for _, own in both for fault in own], raws[0].rows)
        fine = np.flatnonzero(reasons == "")
        if len(fine) < len(reasons):
            raws, encoded = [part_of(raw, fine) for raw in raws], [e[fine] for e in encoded]
        x, y = self.model_.prepare(*map(torch.from_numpy, encoded))
        return x, y, raws, reasons

    def _read_sides(self, X: Any, Y: Any, *, paired: bool = True) -> tuple[RawSide, RawSide]:
        check_is_fitted(self, "model_")
        if X is None or Y is None:
            raise InputError("both X and Y are needed: a pair has two sides")
        raw_x, raw_y = self._read_side(X, "x"), self._read_side(Y, "y")
        self.encoder_x_.check(raw_x)
        self.encoder_y_.check(raw_y)
        if paired:
            require_same_length(raw_x, raw_y)
        return raw_x, raw_y

    def _encode_side(self, rows: Any, side: str) -> Tensor:
        """Rows of one side, as the model takes them, on the CPU."""
        if rows is None:
            raise InputError(f"{side.upper()} is missing: give rows of {side}")
        encoded = self._encoder(side).encode(self._read_side(rows, side))
        return self.model_.prepare_side(torch.from_numpy(encoded), side)

    def _read_side(self, rows: Any, side: str) -> RawSide:
        with show("encoding", enabled=self.progress) as progress:
            rows = telling(rows, progress.update)
            return as_side(rows, side.upper(), known=self._encoder(side))

    def _encoder(self, side: str) -> SideEncoder:
        return self.encoder_x_ if side == "x" else self.encoder_y_

    def _category_ids(self, rows: Any, side: str) -> NDArray[np.int64] | None:
        """One number for all rows of the same categories, (n,); None for a side of numbers."""
        if not self._encoder(side).discrete:
            return None
        columns = self._read_side(rows, side).categorical
        codes = [np.unique(values, return_inverse=True)[1] for _, values in columns]
        ids: NDArray[np.int64] = np.unique(np.column_stack(codes), axis=0, return_inverse=True)[1]
        return ids.reshape(-1)  # NumPy 2.0 gives (rows, 1)

    def plot_pmi(
        self, X: Any = None, Y: Any = None, *, groups: Any = None, ax: Axes | None = None
    ) -> Axes:
        """Histogram of PMI: of pairs, and of mismatched pairs, which should lie below.

        Without X and Y of the training rows out of fold, otherwise of the given rows.
        """
        from pointdep.display.plots import plot_pmi

        check_is_fitted(self, "model_")
        log_ratio, joint, product, _ = self._held_out(X, Y, groups, "plot_pmi").blocks()
        return plot_pmi(log_ratio[joint > 0].numpy(), log_ratio[product > 0].numpy(), ax=ax)

    def plot_training(self, ax: Axes | None = None) -> Axes:
        """The objective on training batches and on held-out rows, by epoch and replica."""
        from pointdep.display.plots import plot_training

        check_is_fitted(self, "model_")
        return plot_training(self.history_, ax)

    def plot_pairs(
        self,
        X: Any = None,
        Y: Any = None,
        *,
        k: int = 10,
        labels: Sequence[Any] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """The k pairs of highest and the k of lowest PMI, as bars.

        Without X and Y of the training rows out of fold, otherwise of the given rows. labels: what
        to call the rows, one a row; their numbers where it is None.
        """
        from pointdep.display.plots import plot_pairs

        check_is_fitted(self, "model_")
        pmi = self.oof_pmi_ if X is None and Y is None else self.pmi(X, Y)
        return plot_pairs(pmi, k=k, labels=labels, ax=ax)

    def _origin(self, *, given: bool) -> Origin:
        """Where log r comes from, for the advice of a check."""
        learned_by = "network" if self.history_ else "calibrated"  # nothing was trained here
        if self.model_.answered in {"closed form alone", "low-rank table"}:
            learned_by = "table" if self.model_.critic.is_table else "closed form"
        return Origin(self.model_.methods[0].key, learned_by, given)

    def _held_out(self, X: Any, Y: Any, groups: Any, call: str) -> HeldOut:
        """The rows of the fit, each with the models that did not see it, or the given rows."""
        if X is None and Y is None:
            fitted = fitted_rows(self, f"{call}()", f"{call}(X, Y)")
            parts = [(self.model_.select([r]), s.report) for r, s in enumerate(fitted.splits)]
            return HeldOut(parts, fitted.x, fitted.y, fitted.codes, fitted.seed)
        X, Y, groups = some_rows(X, Y, groups)
        x, y, _, _ = self._encode(X, Y)
        codes = group_codes(groups, len(x))
        return HeldOut([(self.model_, np.arange(len(x)))], x, y, codes, ANSWER_SEED)

    def _bound(self, X: Any, Y: Any, groups: Any) -> HeldOutBound | None:
        """What the mutual information of given rows exceeds on average, each row by one replica."""
        held = self._held_out(X, Y, groups, "")
        rows = np.random.default_rng(ANSWER_SEED).permutation(len(held.x))
        count = min(self.model_.replicas, max(1, len(rows) // FEWEST_ROWS))
        parts = [(self.model_.select([r]), rows[r::count]) for r in range(count)]
        codes = None if held.codes is None else torch.from_numpy(held.codes)
        return out_of_fold.held_out_bound(parts, held.x, held.y, seed=held.seed, groups=codes)

    def _inferred(self, X: Any, Y: Any, groups: Any) -> NDArray[np.float64]:
        """The method's inference on given rows as pseudo-values, (n,)."""
        x, y, _, _ = self._encode(X, Y)
        codes = group_codes(groups, len(x))
        ids = None if codes is None else torch.from_numpy(codes)
        return inference_values(self.model_, x, y, np.arange(len(x)), seed=ANSWER_SEED, groups=ids)

    def _doubt(self, X: Any, Y: Any) -> float:
        """What the fit adds to the standard error of the mean log r of given rows."""
        del X, Y
        return math.hypot(self.bias_.correction, self.bias_.stderr)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder of safetensors and JSON.

        overwrite: also in place of a model that was fitted on other data.
        """
        check_is_fitted(self, "model_")
        if not overwrite:
            persistence.require_same_data(Path(path), persistence.data_of(self))
        persistence.save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, *, critic: Any = None, device: str = "auto"
    ) -> PointwiseDependency:
        """Read a saved model; one with your own critic needs that module (or encoders) again."""
        made: PointwiseDependency = persistence.load(cls, Path(path), critic=critic, device=device)
        return made

    def _found(self) -> list[tuple[str, object]]:
        answered = self.model_.answered
        models = f"{self.n_replicas_}, method {self.method}"
        return [
            ("mutual information", self.mutual_information().headline),
            ("models", f"{models}, {answered}" if answered else models),
        ]

    def _conclude(
        self, rows: FitRows, model: RatioModel, trained: Trained, progress: Progress, smaller: Any
    ) -> None:
        """Answer the rows of a trained model, keep that, and flag it; smaller: of a curve."""
        paired = rows.paired
        found = store_reference(model, paired, self.reference_size)
        held = rows.out_of_fold(model, progress, smaller)
        self._keep(model, rows, held)
        self.history_, self.digests_ = trained.history, paired.digests
        known = paired.values(held.pmi)
        numeric = paired.encoder_x.numeric_mask.any() and paired.encoder_y.numeric_mask.any()
        self.flags_ = (
            *few_rows_flags(rows.count),
            *outlier_flags((paired.encoder_x, paired.encoder_y)),
            *(rows.copies() if rows.codes is None else []),
            *(determined_flags(model, paired.shared_column) if numeric else []),
            *trained.flags,
            *found,
            *held.flags,
            *reference_flags(model, torch.from_numpy(known[~np.isnan(known)])),
        )
        self.flags_ = (*self.flags_, *self._answer_flags())

    def _keep(self, model: RatioModel, rows: FitRows, held: OutOfFold) -> None:
        """What a fit has found, and the rows that it was found from."""
        model.seen = torch.tensor([held.lowest, held.highest], device=model.seen.device)
        self.encoder_x_, self.encoder_y_ = rows.paired.encoder_x, rows.paired.encoder_y
        self.n_rows_, self.groups_ = rows.count, rows.codes
        self.left_out_ = dict(rows.left_out)
        self.oof_pmi_, self.oof_values_, self.bias_ = held.pmi, held.pseudo_values, held.bias
        self.curve_, self.bound_ = held.curve, held.bound
        self.jackknife_, self.training_rows_ = rows.paired.jackknife_factor(), rows.kept()
        self._set_model(model)

    def _set_model(self, model: RatioModel) -> None:
        self.model_, self.n_replicas_ = model, model.replicas
        self._set_features(self.encoder_x_)

    def _seed(self) -> int:
        return int(random_of(self.random_state).randint(2**31 - 1))

    def _read(
        self, X: Any, Y: Any, groups: Any, seed: int, processes: Processes = ALONE
    ) -> FitRows:
        """Check, split and encode what the user gave."""
        errors.require_missing(self.missing)
        how: dict[str, Any] = {"discrete": (self.discrete_x, self.discrete_y), "seed": seed}
        how["missing"] = self.missing
        how |= {"folds": self._fold_count(), "stop_fraction": self.stop_fraction}
        how |= {"device": pick_device(self.device), "processes": processes}
        if not fit_rows.streams(self.stream, self.cv, X, Y):
            enabled = self.progress and processes.is_first
            with show("encoding", enabled=enabled, left="about") as progress:
                X, Y = (telling(side, progress.update) for side in (X, Y))
                rows = processes.together(
                    lambda: fit_rows.hold_rows(X, Y, groups, cv=self.cv, **how)
                )
            if self._parts and rows.paired.numbers is not None:
                raise InputError("missing='drop' changes which rows the parts are: drop them first")
            return rows
        enabled = self.progress and processes.is_first
        with show(f"reading{processes.share}", enabled=enabled, left="about") as progress:
            return fit_rows.stream_rows(X, Y, groups, progress=progress, **how)

    def _fold_count(self) -> int:
        """`folds`, or twice as many where more effort is asked for."""
        errors.require_whole("folds", self.folds)
        return 2 * self.folds if self.effort == "high" and self.folds > 1 else self.folds

    def _open_checkpoint(
        self, model: RatioModel, rows: FitRows, options: TrainingOptions
    ) -> Checkpoint | None:
        """Where the state of training is kept; None where it is not."""
        processes, path = rows.processes, self.checkpoint
        if path is None and not processes.several:
            return None
        said = {**persistence.saved_params(self), "options": repr(options), **rows.identity()}
        identity = fit_rows.fingerprint(model, rows.paired, said)
        if len(set(processes.every(lambda: identity))) > 1:
            raise InputError("the processes were given different rows or settings: give the same")
        if path is None:
            return None
        return processes.first(lambda: assembly.open_checkpoint(path, identity, said))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "training_rows_" in state:
            state["training_rows_"] = None  # the rows of the fit do not travel with a pickle
        return state

    def _null(self, shuffles: int, given: bool) -> float:
        """The p-value of independence."""
        from pointdep.estimators.permutation import p_value, permutation_null

        if given:
            raise InputError("shuffles are of the rows of the fit: leave X and Y out")
        rows = fitted_rows(self, "mutual_information(shuffles=...)", "it before saving")
        device = self.model_.constant.device
        with show(f"fitting {shuffles} shuffled copies", enabled=self.progress) as progress:
            return p_value(permutation_null(self._settings, rows.to(device), shuffles, progress))

    def _settings_for(self, rows: FitRows, method: Method) -> assembly.CriticSettings:
        """Which critic these rows call for."""
        paired = rows.paired
        sides = paired.encoder_x, paired.encoder_y
        settings = self._critic_settings(rows.count, max(paired.x.shape[1], paired.y.shape[1]))
        settings = replace(settings, label=assembly.label_side(*sides))
        if isinstance(rows, fit_rows.StreamedFitRows):
            return settings
        if table := assembly.is_table(self.critic, self.hidden, method, sides):
            settings = replace(settings, table=table, hidden="auto")
        settings = assembly.for_few_pairs(settings, self.hidden, paired)
        settings = assembly.for_many_columns(settings, self.hidden, paired)
        return assembly.for_many_categories(settings, self.hidden, sides)

    def _critic_settings(self, rows: int, columns: int) -> assembly.CriticSettings:
        """Of so many rows, with so many columns on the wider side."""
        wide = assembly.is_wide(get_method(self.method, self.method_options), columns)
        hidden = assembly.choose_hidden(self.critic, self.hidden, rows, wide=columns if wide else 0)
        return assembly.CriticSettings(
            self.critic, hidden, self.embedding_dim, self.activation, self.link, wide
        )

    def _answer_flags(self) -> list[Flag]:
        """What speaks against the estimate: its width, its rise with the rows, and neighbours."""
        alarm = self._alarm()
        estimate = self.mutual_information()
        # The closed form's estimate from all rows is unbiased, however its held-out mean may rise,
        # and so, nearly, is that of a table, which has a flag of its own.
        nearly_exact = self.bias_.known is not None or self.model_.critic.is_table
        rising = [] if nearly_exact else rise_flags(estimate)
        astray: list[Flag] = []
        if not any(flag.name == "diverged" for flag in self.flags_):
            astray = astray_flags(estimate, float(self.model_.seen[0]))
        return [*astray, *wide_flags(estimate), *rising, *alarm]

    def _alarm(self) -> list[Flag]:
        """The flag of an estimate clearly below that of nearest neighbours, of few columns."""
        rows = self.training_rows_.paired
        numbers = all(e.numeric_mask.all() for e in (rows.encoder_x, rows.encoder_y))
        streamed = isinstance(self.training_rows_, fit_rows.StreamedFitRows)
        if streamed or self.groups_ is not None or not numbers:
            return []  # rows that are streamed, or not independent draws, or categories
        estimate = self.mutual_information(confidence=0.9)
        pmi = rows.values(self.oof_pmi_).astype(np.float64)
        found = ksg_alarm(rows.x.numpy(), rows.y.numpy(), pmi, estimate, rows.seed)
        if found is None:
            return []
        flag, nats, stderr = found
        self.bias_ = replace(self.bias_, neighbours=(nats, stderr))
        return [flag]

    def _curve_splits(
        self, rows: FitRows, options: TrainingOptions, method: Method
    ) -> list[list[Split]]:
        """Splits of the models of a learning curve, if one is wanted and possible."""
        if self._parts:
            how: dict[str, Any] = {"stop_fraction": self.stop_fraction, "seed": rows.paired.seed}
            how |= {"folds": self._fold_count(), "cv": self.cv, "least": options.batch_size}
            return part_splits(self._parts, rows.codes, **how)
        if self.curve is not None and not isinstance(self.curve, bool | np.bool_):
            raise InputError(f"curve={self.curve!r} must be True, False or None")
        if self.curve is False:
            return []
        found, reason = [], f"method {method.key!r} does not average log r"
        if method.is_mean_of_pmi:
            found = rows.curve_splits(options.batch_size)
            reason = f"{rows.count} rows are too few (with five folds about 120 do)"
            if isinstance(rows, fit_rows.StreamedFitRows):
                reason = "the rows are streamed"
        if self.curve and not any(found):
            asked = "a learning curve is asked for (curve=True, --curve, --curve-plot)"
            raise InputError(f"{asked}, but {reason}: leave that out")
        return found

    def _of_parts(
        self, rows: PairedRows, splits: Sequence[Sequence[Split]], whole: assembly.TrainedModel
    ) -> list[PointwiseDependency | None]:
        """For each of the parts a model of it alone; None if it was too small to be fitted."""
        found: list[PointwiseDependency | None] = []
        fitted = zip(whole.curve, whole.of_curve, strict=True)
        for part, own in zip(self._parts, splits, strict=False):
            if not own:
                found.append(None)
                continue
            local = [
                Split(*(np.searchsorted(part, p) for p in (s.train, s.stop, s.report))) for s in own
            ]
            codes = None if rows.codes is None else rows.codes[part]
            kept = replace(rows, x=rows.x[part], y=rows.y[part], splits=local, codes=codes)
            (model, _), trained = next(fitted)
            one = copy.copy(self)
            one.__dict__.pop("_parts")
            one._conclude(FitRows(replace(kept, digests=None)), model, trained, Silent(), ())
            found.append(one)
        return found

    def _training_options(
        self, settings: assembly.CriticSettings, rows: FitRows
    ) -> TrainingOptions:
        method, smallest = get_method(self.method, self.method_options), rows.smallest_training()
        asked = self.batch_size, self.negatives, rows.largest_batch
        batch, block = assembly.batch_shape(settings, method, smallest, *asked)
        own = {name: getattr(self, name) for name in _OF_TRAINING}
        own |= assembly.pace(settings, self.learning_rate, self.patience, self.effort)
        return TrainingOptions(batch_size=batch, block=block, seed=rows.paired.seed, **own)


def pair_columns(
    fitted: PointwiseDependency,
    X: Any,
    Y: Any,
    progress: Progress | None = None,
    *,
    strict: bool = True,
) -> dict[str, NDArray[Any]]:
    """All that is said of each pair, (n,) each, with one pass through the networks.

    pmi, npmi, stderr (NaN where the model is a single one and has none), outside. If not strict,
    pairs that cannot be scored have NaN, and a last column has the reason, "" for the others.
    """
    told = progress or Silent()
    large = is_large(X, Y)

    def part(x: Any, y: Any, rows: slice) -> tuple[NDArray[Any], ...]:
        if strict:
            x, y, *raw = fitted._encode(x, y)
            found = scored(x, y, raw)
        else:
            x, y, raw, reasons = fitted._encode_some(x, y)
            answers = scored(x, y, raw) if len(x) else ()
            kinds = np.float32, np.float32, np.float32, np.bool_
            empty = [np.zeros(len(reasons), kind) for kind in kinds]
            for column in empty[:3]:
                column[:] = np.nan
            found = (*empty, reasons)
            for column, values in zip(empty, answers, strict=False):
                column[reasons == ""] = values
        if large:
            told.update(rows.stop, len(X), "pairs")
        return found

    def scored(x: Tensor, y: Tensor, raw: Sequence[RawSide]) -> tuple[NDArray[Any], ...]:
        replicas = scoring.score_replicas(fitted.model_, x, y, Silent() if large else told)
        values = replicas.mean(0)
        pmi: Array32 = values.numpy()
        stderr = np.full_like(pmi, np.nan)
        if len(replicas) > 1:
            variance = replicas.double().var(0, correction=0)
            stderr = (fitted.jackknife_ * variance).sqrt().float().numpy()
        seen = fitted.model_.seen
        outside = fitted.model_.outside(*fitted._on_device(x, y), values.to(seen.device))
        rarity = fitted._rarity(*raw)
        npmi = scoring.normalised_pmi(pmi.astype(np.float64), rarity, fitted.n_rows_)
        odd = fitted.encoder_x_.outlying(raw[0]) | fitted.encoder_y_.outlying(raw[1])
        return pmi, npmi, stderr, outside.cpu().numpy() | odd

    found = fitted._by_parts(X, Y, part)
    names = ("pmi", "npmi", "stderr", "outside", *(() if strict else ("reason",)))
    return dict(zip(names, found, strict=True))


def data_of_rows(model: Any, X: Any, Y: Any) -> dict[str, Any]:
    """What `persistence.data_of` would say of an unfitted model after a fit of these rows."""
    streamed = isinstance(model, PointwiseDependency) and fit_rows.streams(
        model.stream, model.cv, X, Y
    )
    discrete = model.discrete_x, model.discrete_y
    found: list[Any]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit says the same again
        if streamed:
            named = zip((X, Y), "XY", discrete, strict=True)
            found = [as_source(v, name, discrete=d, missing=model.missing) for v, name, d in named]
            digests = None
        else:
            raw_x, raw_y, _ = read_pairs(X, Y, None, discrete, model.missing)
            found = [*without_gaps(raw_x, raw_y, None, model.missing)[:2]]
            digests = [side_digest(side) for side in found]
    names = [list(side.names) for side in found]
    return {"digests": digests, "rows": found[0].rows, "names": names}


def some_rows(X: Any, Y: Any, groups: Any) -> tuple[Any, Any, Any]:
    """The same rows, or as many of them at random as are enough to judge by."""
    if not is_large(X, Y) or len(X) != len(Y) or len(X) <= _MOST_COMPARED:
        return X, Y, groups
    random = np.random.default_rng(ANSWER_SEED)
    rows = np.sort(random.choice(len(X), _MOST_COMPARED, replace=False, shuffle=False))
    codes = group_codes(groups, len(X))
    own = None if codes is None else codes[rows]
    return sampled(X, rows), sampled(Y, rows), own


# What other rooms ask about a fitted model beyond its public calls.


def fitted_rows(model: PointwiseDependency, call: str, instead: str) -> PairedRows:
    """The rows of the fit; InputError if the model was loaded. call, instead: for its message."""
    rows: FitRows | None = getattr(model, "training_rows_", None)
    if rows is None:
        raise InputError(
            f"{call} needs the rows of the fit, which a saved model does not hold: use {instead}"
        )
    return rows.paired


def encode_side(model: PointwiseDependency, rows: Any, side: str) -> Tensor:
    """Rows of one side, "x" or "y", as `model.model_` takes them, on the CPU."""
    return model._encode_side(rows, side)


def fit_parts(
    model: PointwiseDependency, X: Any, Y: Any, groups: Any, parts: Sequence[Rows]
) -> list[PointwiseDependency | None]:
    """Fit an unfitted model, and in the same run one of each part of the rows.

    parts: numbers of the rows, ascending. A part that has too few rows to be fitted so has None.
    """
    model.__dict__["_parts"] = parts
    try:
        return model.fit(X, Y, groups=groups)._points
    finally:
        del model.__dict__["_parts"]


def row_values(
    model: PointwiseDependency, X: Any = None, Y: Any = None, groups: Any = None
) -> RowValues:
    """What the mutual information of the rows of the fit, or of given rows, is the mean of."""
    if X is None and Y is None:
        bias, digests = model.bias_, getattr(model, "digests_", None)
        how: dict[str, Any] = {"digests": digests, "bound": model.bound_, "curve": model.curve_}
        how |= {"doubt_above": bias.stderr_above, "inflation": bias.inflation}
        how |= {"neighbours": bias.neighbours, "ceiling": _entropy_limit(model)}
        return RowValues(model.oof_values_, model.groups_, bias.correction, bias.stderr, **how)
    if groups is not None:  # whose rows may lie in any part
        values = model._inferred(X, Y, groups)
    else:
        values = model._by_parts(X, Y, lambda x, y, _: model._inferred(x, y, None))
    return RowValues(values, group_codes(groups), doubt=model._doubt(X, Y))


def _entropy_limit(model: PointwiseDependency) -> float:
    """What the MI cannot exceed: the entropy of a side of categories, by its upper estimate."""
    draws = None if model.groups_ is None else len(np.unique(model.groups_))
    return min(side.entropy_limit(draws) for side in (model.encoder_x_, model.encoder_y_))
