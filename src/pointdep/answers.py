"""What a fitted model says of pairs: the calls that need no training rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pointdep.core.ratio import RatioModel
from pointdep.data.groups import group_codes
from pointdep.data.sides import RawSide, SideEncoder, as_side, require_same_length
from pointdep.data.stored.parts import paired_parts, sampled
from pointdep.errors import DataWarning, InputError, warn_caller
from pointdep.fitting.progress import Progress, Silent, show
from pointdep.inference.classifier import shuffled_log_likelihood
from pointdep.inference.normalised import normalised_pmi
from pointdep.inference.scoring import score_matrix, score_pairs, score_replicas
from pointdep.retrieval.estimator_mixin import Retrieval
from pointdep.streaming import is_large

Array32 = NDArray[np.float32]

ANSWER_SEED = 0  # answers about given rows do not depend on the state of any generator
_MANY_OUTSIDE = 0.01
_PART = 1 << 24  # numbers that are answered about at a time, where the rows are many
_MOST_COMPARED = 1 << 17  # rows by which `score` and `check` judge, where they are given more


class PairAnswers(Retrieval):
    """PMI and what follows from it, for an estimator with a fitted model and its encoders."""

    model_: RatioModel
    encoder_x_: SideEncoder
    encoder_y_: SideEncoder
    n_rows_: int
    jackknife_: float
    progress: bool

    def pmi(self, X: Any, Y: Any) -> Array32:
        """log r of each pair, (n,): a function of that pair alone, in nats.

        Warns where more than 1 % of the pairs are unlike any of the fit; `outside` says which.
        """
        found: Array32
        found, far = self._by_parts(X, Y, self._pmi_and_outside)
        if float(far.mean()) > _MANY_OUTSIDE:
            warn_caller(
                f"{int(far.sum())} of {len(far)} pair(s) lie outside the data of the fit: their "
                "PMI is an extrapolation (outside(X, Y) says which)",
                DataWarning,
            )
        return found

    def _pmi_and_outside(self, X: Any, Y: Any) -> tuple[Array32, NDArray[np.bool_]]:
        x, y, _, _ = self._encode(X, Y)
        values = self._score(x, y)
        far = self.model_.outside(*self._on_device(x, y), values.to(self.model_.seen.device))
        return values.numpy(), far.cpu().numpy()

    def _by_parts(self, X: Any, Y: Any, answer: Callable[[Any, Any], Any]) -> Any:
        """answer(X, Y), an array a row or several, in parts where the rows are many."""
        if X is None or Y is None or not is_large(X, Y):
            return answer(X, Y)
        check_is_fitted(self, "model_")
        found = []
        step = max(1, _PART // max(1, sum(int(np.prod(side.shape[1:])) for side in (X, Y))))
        for first, x, y in paired_parts(X, Y, step):
            try:
                found.append(answer(x, y))
            except InputError as error:
                last = first + len(x) - 1
                raise InputError(f"in the part from row {first} to {last}: {error}") from error
        if isinstance(found[0], tuple):
            return tuple(np.concatenate(side) for side in zip(*found, strict=True))
        return np.concatenate(found)

    def pmi_stderr(self, X: Any, Y: Any) -> Array32:
        """The standard error of `pmi`, (n,): how much it changes with the rows of the fit.

        From the replicas, each of which was fitted without one part of the rows (the jackknife by
        parts). What differs between replicas by their initial weights is in it too, so that it errs
        on the high side.
        """
        found: Array32 = self._by_parts(X, Y, self._stderr)
        return found

    def _stderr(self, X: Any, Y: Any) -> Array32:
        x, y, _, _ = self._encode(X, Y)
        count = self.model_.replicas
        if count < 2:
            raise InputError("pmi_stderr needs at least two replicas: fit with folds=2 or more")
        with show("scoring", enabled=self.progress) as progress:
            spread = score_replicas(self.model_, x, y, progress).double().var(0, correction=0)
        found: Array32 = (self.jackknife_ * spread).sqrt().float().numpy()
        return found

    def outside(self, X: Any, Y: Any) -> NDArray[np.bool_]:
        """Which pairs are unlike any of the fit, (n,): their PMI is an extrapolation.

        A value lies well beyond all values its column had, or PMI beyond that of all pairs and
        mismatched pairs.
        """
        found: NDArray[np.bool_] = self._by_parts(X, Y, self._pmi_and_outside)[1]
        return found

    def pd(self, X: Any, Y: Any) -> Array32:
        """r of each pair, (n,)."""
        values: Array32 = np.exp(self.pmi(X, Y))
        return values

    def npmi(self, X: Any, Y: Any, *, pmi: Array32 | None = None) -> Array32:
        """Normalised PMI of each pair, (n,) in [-1, 1]: PMI / -log p(x,y).

        The probability of an outcome is its frequency where a side is one column of categories, and
        1/n of the training rows where it is continuous, each row being its own outcome: 1 says that
        x and y only occur together, 0 that they are independent, -1 that they never meet. Give
        `pmi`, the PMI of the same pairs, where it is at hand already.
        """
        if pmi is None and is_large(X, Y):
            pmi = self.pmi(X, Y)
        done = 0

        def part(x: Any, y: Any) -> Array32:
            nonlocal done
            own = pmi if pmi is None or not is_large(X, Y) else pmi[done : done + len(x)]
            done += len(x) if pmi is not None else 0
            return self._npmi(x, y, own)

        found: Array32 = self._by_parts(X, Y, part)
        return found

    def _npmi(self, X: Any, Y: Any, pmi: Array32 | None) -> Array32:
        x, y, raw_x, raw_y = self._encode(X, Y)
        rarity = [
            encoder.log_frequency(raw)
            for encoder, raw in ((self.encoder_x_, raw_x), (self.encoder_y_, raw_y))
        ]
        if pmi is None:
            pmi = self._score(x, y).numpy()
        elif np.shape(pmi) != (len(x),):
            raise InputError(f"pmi has shape {np.shape(pmi)} for {len(x)} pairs")
        return normalised_pmi(np.asarray(pmi, np.float64), rarity, self.n_rows_)

    def pmi_matrix(self, X: Any, Y: Any) -> Array32:
        """log r of every x with every y, (n, m), computed in blocks."""
        x, y, _, _ = self._encode(X, Y, paired=False)
        with show("scoring", enabled=self.progress) as progress:
            return score_matrix(self.model_, x, y, progress)

    def score(self, X: Any, Y: Any, groups: Any = None) -> float:
        """Minus the log-loss of the balanced classifier sigmoid(log r) on the rows and shuffles.

        The one number by which methods and critics can be compared: higher is better, -log 2 is no
        better than calling everything independent. Of very many rows, 131,072 at random decide.
        """
        X, Y, groups = some_rows(X, Y, groups)
        x, y, _, _ = self._encode(X, Y)
        _, ids = group_ids(groups, len(x))
        return shuffled_log_likelihood(self.model_, x, y, seed=ANSWER_SEED, groups=ids)

    def _score(self, x: Tensor, y: Tensor) -> Tensor:
        with show("scoring", enabled=self.progress) as progress:
            return score_pairs(self.model_, x, y, progress)

    def _on_device(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        device = self.model_.seen.device
        return x.to(device), y.to(device)

    def _encode(
        self, X: Any, Y: Any, *, paired: bool = True
    ) -> tuple[Tensor, Tensor, RawSide, RawSide]:
        """Both sides as float32 rows on the CPU, and as they were given."""
        check_is_fitted(self, "model_")
        if X is None or Y is None:
            raise InputError("both X and Y are needed: a pair has two sides")
        raw_x = as_side(X, "X", discrete=self.encoder_x_.discrete)
        raw_y = as_side(Y, "Y", discrete=self.encoder_y_.discrete)
        self.encoder_x_.check(raw_x)
        self.encoder_y_.check(raw_y)
        if paired:
            require_same_length(raw_x, raw_y)
        x = torch.from_numpy(self.encoder_x_.encode(raw_x))
        y = torch.from_numpy(self.encoder_y_.encode(raw_y))
        return (*self.model_.prepare(x, y), raw_x, raw_y)


def pair_columns(
    fitted: PairAnswers, X: Any, Y: Any, progress: Progress | None = None
) -> dict[str, NDArray[Any]]:
    """All that is said of each pair, (n,) each, with one pass through the networks.

    pmi, npmi, stderr (NaN where the model is a single one and has none), outside.
    """
    told = progress or Silent()
    large = is_large(X, Y)
    done = 0

    def part(x: Any, y: Any) -> tuple[NDArray[Any], ...]:
        nonlocal done
        found = _all_of_pairs(fitted, x, y, Silent() if large else told)
        done += len(found[0])
        if large:
            told.update(done, len(X), "pairs")
        return found

    found = fitted._by_parts(X, Y, part)
    return dict(zip(("pmi", "npmi", "stderr", "outside"), found, strict=True))


def _all_of_pairs(
    fitted: PairAnswers, X: Any, Y: Any, progress: Progress
) -> tuple[NDArray[Any], ...]:
    x, y, raw_x, raw_y = fitted._encode(X, Y)
    replicas = score_replicas(fitted.model_, x, y, progress)
    values = replicas.mean(0)
    rarity = [
        encoder.log_frequency(raw)
        for encoder, raw in ((fitted.encoder_x_, raw_x), (fitted.encoder_y_, raw_y))
    ]
    pmi: Array32 = values.numpy()
    stderr = np.full_like(pmi, np.nan)
    if len(replicas) > 1:
        variance = replicas.double().var(0, correction=0)
        stderr = (fitted.jackknife_ * variance).sqrt().float().numpy()
    device = fitted.model_.seen.device
    outside = fitted.model_.outside(x.to(device), y.to(device), values.to(device))
    npmi = normalised_pmi(pmi.astype(np.float64), rarity, fitted.n_rows_)
    return pmi, npmi, stderr, outside.cpu().numpy()


def group_ids(groups: Any, rows: int) -> tuple[NDArray[np.int64] | None, Tensor | None]:
    """The groups of given rows, as numbers, for numpy and for torch."""
    codes = group_codes(groups)
    if codes is None:
        return None, None
    if len(codes) != rows:
        raise InputError(f"groups has {len(codes)} rows but X and Y have {rows}")
    return codes, torch.from_numpy(codes)


def some_rows(X: Any, Y: Any, groups: Any) -> tuple[Any, Any, Any]:
    """The same rows, or as many of them at random as are enough to judge by."""
    if not is_large(X, Y) or len(X) != len(Y) or len(X) <= _MOST_COMPARED:
        return X, Y, groups
    random = np.random.default_rng(ANSWER_SEED)
    rows = np.sort(random.choice(len(X), _MOST_COMPARED, replace=False, shuffle=False))
    own = None if groups is None else np.asarray(groups)[rows]
    return sampled(X, rows), sampled(Y, rows), own
