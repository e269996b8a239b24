"""`PointwiseDependency`: learn r(x,y) from pairs, and answer with it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pointdep import assembly, persistence
from pointdep.core.methods import get_method
from pointdep.core.ratio import RatioModel
from pointdep.data.groups import group_codes
from pointdep.data.sides import (
    RawSide,
    SideEncoder,
    as_side,
    require_same_length,
    warn_of_other_order,
)
from pointdep.errors import FitWarning, InputError, names_nearest_option, require_whole
from pointdep.fitting.options import TrainingOptions
from pointdep.fitting.progress import show
from pointdep.fitting.reference import reference_flags, store_reference
from pointdep.fitting.splits import make_splits, require_product_rows
from pointdep.fitting.state import remove_state
from pointdep.inference.classifier import shuffled_log_likelihood
from pointdep.inference.mutual_information import MIEstimate, estimate
from pointdep.inference.normalised import normalised_pmi
from pointdep.inference.out_of_fold import inference_values, out_of_fold
from pointdep.inference.scoring import score_matrix, score_pairs

if TYPE_CHECKING:
    from sklearn.utils import Tags

Array32 = NDArray[np.float32]

_ANSWER_SEED = 0  # answers about given rows do not depend on the state of any generator


class PointwiseDependency(BaseEstimator):  # type: ignore[misc]
    """Learn r(x,y) = p(x,y) / (p(x) p(y)) from paired rows.

    Parameters
    ----------
    method : key of `pointdep.METHODS`: how r is learned and MI inferred.
    critic : "concat", "separable", "bilinear" or "inner"; or your own module, called as
        ``module(x, y)`` on paired rows and giving (n,) scores; or a pair of your own encoders
        ``(encoder_x, encoder_y)``, whose inner product is the score.
    hidden, embedding_dim, activation : layers of the named critics; `embedding_dim` is for
        "separable"; "auto" is ReLU for methods whose score is r, such as `drf`, and SiLU otherwise.
    link : what the critic's output stands for: the method's "score"; "log_ratio", which keeps r
        positive; or "asinh", r - 1/r, which does so too and suits `drf` better.
    method_options : options of the method, such as ``{"eta": 2.0}`` for `dm2`.
    discrete_x, discrete_y : whether a side is categories; None decides by its type.
    folds : replicas trained, each on all but one part of the rows; 1 trains a single model with a
        part of the rows to train, one to stop and one to report.
    cv : a scikit-learn splitter instead of `folds`.
    stop_fraction : share of each replica's rows that decides when to stop.
    batch_size, negatives : rows per step, and product samples per row, or "auto".
    learning_rate, weight_decay, max_epochs, patience, average : of the optimiser, of early
        stopping, and of the running average of the weights (0 for none).
    reference_size : rows of y kept by `cpc` to normalise its read-out.
    device : "auto", "cpu", "cuda", "mps", ...
    random_state : int for the same numbers on the same machine.
    progress : show progress on standard error when fitting or scoring takes over two seconds.
    checkpoint : a file that keeps the state of training; a fit of the same data and settings that
        finds it goes on from there, and removes it at the end.

    Attributes
    ----------
    oof_pmi_ : (n,) float32, PMI of each training row by the replicas that did not see it; NaN for
        rows that none reports, as with ``folds=1`` or a `cv` that leaves rows out.
    flags_ : the training problems found, each also raised as a `FitWarning`.
    history_ : per epoch and replica, the objective on training batches and on held-out rows.
    n_features_in_, feature_names_in_ : columns of X, and their names where X is a table.
    n_rows_, n_replicas_ : what was fitted.
    """

    @names_nearest_option
    def __init__(
        self,
        *,
        method: str = "pc",
        critic: Any = "concat",
        hidden: Sequence[int] = (256, 256),
        embedding_dim: int = 64,
        activation: str = "auto",
        link: str = "score",
        method_options: Mapping[str, Any] | None = None,
        discrete_x: bool | None = None,
        discrete_y: bool | None = None,
        folds: int = 5,
        cv: Any = None,
        stop_fraction: float = 0.15,
        batch_size: int | str = "auto",
        negatives: int | str = "auto",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        max_epochs: int = 200,
        patience: int = 8,
        average: float = 0.99,
        reference_size: int = 1024,
        device: str = "auto",
        random_state: Any = None,
        progress: bool = True,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.method = method
        self.critic = critic
        self.hidden = hidden
        self.embedding_dim = embedding_dim
        self.activation = activation
        self.link = link
        self.method_options = method_options
        self.discrete_x = discrete_x
        self.discrete_y = discrete_y
        self.folds = folds
        self.cv = cv
        self.stop_fraction = stop_fraction
        self.batch_size = batch_size
        self.negatives = negatives
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.patience = patience
        self.average = average
        self.reference_size = reference_size
        self.device = device
        self.random_state = random_state
        self.progress = progress
        self.checkpoint = checkpoint

    def fit(self, X: Any, Y: Any = None, groups: Any = None) -> PointwiseDependency:
        """Fit on paired rows.

        X, Y: numpy, torch, pandas, polars or lists, (n,) or (n, d), numbers or categories.
        groups: (n,), for rows that are not independent draws (several captions of one image): rows
        of one group stay on one side of every split and are never each other's product samples.
        """
        if Y is None:
            raise InputError(
                "PointwiseDependency requires y to be passed, but the target y is None: call "
                "fit(X, Y) with two arrays of paired rows"
            )
        require_whole("reference_size", self.reference_size)
        if self.checkpoint is not None and self.random_state is None:
            raise InputError(
                "checkpoint needs a fixed random_state: another seed has nothing to resume"
            )
        method = get_method(self.method, self.method_options)
        rows = self._read(X, Y, groups)
        if method.uses_product:
            require_product_rows(rows.splits, rows.codes, method.key)
        model = assembly.make_model(
            self._critic_settings(), method, len(rows.splits), rows.x.shape[1], rows.y.shape[1]
        )
        options = self._training_options(min(len(s.train) for s in rows.splits), rows.seed)
        checkpoint = None
        if self.checkpoint is not None:
            said = {**persistence.saved_params(self), "options": repr(options)}
            identity = assembly.fingerprint(model, rows, said)
            checkpoint = assembly.open_checkpoint(self.checkpoint, identity)
        title = f"fitting {len(rows.splits)} model(s) of {method.key}"
        with show(title, enabled=self.progress) as progress:
            trained = assembly.train_model(
                model, rows, options, progress=progress, checkpoint=checkpoint
            )
            common: dict[str, Any] = {"seed": rows.seed, "groups": rows.groups}
            x, y, splits = rows.x, rows.y, rows.splits
            found = store_reference(model, x, y, splits, size=self.reference_size, **common)
            held = out_of_fold(model, x, y, splits, **common)
        known = torch.from_numpy(held.pmi[~np.isnan(held.pmi)])
        flags = (*trained.flags, *found, *held.flags, *reference_flags(model, known))
        self._set_fitted(model, rows.encoder_x, rows.encoder_y, len(rows.x))
        self.oof_pmi_, self.oof_values_ = held.pmi, held.pseudo_values
        self.flags_, self.history_, self.groups_ = flags, trained.history, rows.codes
        self.fit_params_ = persistence.saved_params(self)
        if checkpoint is not None:
            remove_state(checkpoint.path)
        for flag in self.flags_:
            warnings.warn(str(flag), FitWarning, stacklevel=2)
        return self

    def mutual_information(
        self, X: Any = None, Y: Any = None, *, groups: Any = None, confidence: float = 0.95
    ) -> MIEstimate:
        """The mutual information: of the training rows out of fold, or of the given rows.

        Give rows that the model was not fitted on: on its own training rows it reads too high.
        """
        check_is_fitted(self, "model_")
        notes = tuple(str(flag) for flag in self.flags_)
        method = self.model_.methods[0]
        if X is None and Y is None:
            known = ~np.isnan(self.oof_values_)
            values = self.oof_values_[known]
            codes = None if self.groups_ is None else self.groups_[known]
        else:
            x, y, _, _ = self._encode(X, Y)
            codes, ids = _ids(groups, len(x))
            rows = np.arange(len(x))
            values = inference_values(self.model_, x, y, rows, seed=_ANSWER_SEED, groups=ids)
        return estimate(values, method, confidence=confidence, warnings=notes, groups=codes)

    def pmi(self, X: Any, Y: Any) -> Array32:
        """log r of each pair, (n,): a function of that pair alone, in nats."""
        x, y, _, _ = self._encode(X, Y)
        with show("scoring", enabled=self.progress) as progress:
            values: Array32 = score_pairs(self.model_, x, y, progress).numpy()
        return values

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
        x, y, raw_x, raw_y = self._encode(X, Y)
        rarity = [
            encoder.log_frequency(raw)
            for encoder, raw in ((self.encoder_x_, raw_x), (self.encoder_y_, raw_y))
        ]
        if pmi is None:
            with show("scoring", enabled=self.progress) as progress:
                pmi = score_pairs(self.model_, x, y, progress).numpy()
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
        better than calling everything independent.
        """
        x, y, _, _ = self._encode(X, Y)
        _, ids = _ids(groups, len(x))
        return shuffled_log_likelihood(self.model_, x, y, seed=_ANSWER_SEED, groups=ids)

    def save(self, path: str | Path) -> None:
        """Write the model as a folder of safetensors and JSON."""
        check_is_fitted(self, "model_")
        persistence.save(self, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, *, critic: Any = None, device: str = "auto"
    ) -> PointwiseDependency:
        """Read a saved model; one with your own critic needs that module (or encoders) again."""
        made: PointwiseDependency = persistence.load(cls, Path(path), critic=critic, device=device)
        return made

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _set_fitted(
        self, model: RatioModel, encoder_x: SideEncoder, encoder_y: SideEncoder, rows: int
    ) -> None:
        """The model, what reads its input, and scikit-learn's attributes of X."""
        self.model_, self.encoder_x_, self.encoder_y_ = model, encoder_x, encoder_y
        self.n_rows_, self.n_replicas_ = rows, model.replicas
        self.n_features_in_ = len(encoder_x.names)
        if encoder_x.named:
            self.feature_names_in_ = np.asarray(encoder_x.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    def _read(self, X: Any, Y: Any, groups: Any) -> assembly.PairedRows:
        """Check, split and encode what the user gave."""
        raw_x = as_side(X, "X", discrete=self.discrete_x)
        raw_y = as_side(Y, "Y", discrete=self.discrete_y)
        warn_of_other_order(X, Y)
        codes = group_codes(groups)
        require_same_length(raw_x, raw_y, codes)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        splits = make_splits(
            raw_x.rows,
            folds=self.folds,
            cv=self.cv,
            groups=codes,
            stop_fraction=self.stop_fraction,
            seed=seed,
        )
        encoder_x, encoder_y = SideEncoder.fit(raw_x, "X"), SideEncoder.fit(raw_y, "Y")
        device = assembly.pick_device(self.device)
        return assembly.PairedRows(
            x=torch.from_numpy(encoder_x.encode(raw_x)).to(device),
            y=torch.from_numpy(encoder_y.encode(raw_y)).to(device),
            encoder_x=encoder_x,
            encoder_y=encoder_y,
            splits=splits,
            codes=codes,
            seed=seed,
        )

    def _critic_settings(self) -> assembly.CriticSettings:
        return assembly.CriticSettings(
            self.critic, self.hidden, self.embedding_dim, self.activation, self.link
        )

    def _training_options(self, smallest: int, seed: int) -> TrainingOptions:
        batch, block = assembly.batch_shape(
            self._critic_settings(),
            get_method(self.method, self.method_options),
            smallest,
            self.batch_size,
            self.negatives,
        )
        return TrainingOptions(
            batch_size=batch,
            block=block,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            max_epochs=self.max_epochs,
            patience=self.patience,
            average=self.average,
            seed=seed,
        )

    def _encode(
        self, X: Any, Y: Any, *, paired: bool = True
    ) -> tuple[Tensor, Tensor, RawSide, RawSide]:
        """Both sides as float32 rows on the CPU, and as they were given."""
        check_is_fitted(self, "model_")
        if X is None or Y is None:
            raise InputError("both X and Y are needed: a pair has two sides")
        raw_x = as_side(X, "X", discrete=self.encoder_x_.discrete)
        raw_y = as_side(Y, "Y", discrete=self.encoder_y_.discrete)
        if paired:
            require_same_length(raw_x, raw_y)
        x = torch.from_numpy(self.encoder_x_.encode(raw_x))
        y = torch.from_numpy(self.encoder_y_.encode(raw_y))
        return x, y, raw_x, raw_y


def _ids(groups: Any, rows: int) -> tuple[NDArray[np.int64] | None, Tensor | None]:
    """The groups of given rows, as numbers, for numpy and for torch."""
    codes = group_codes(groups)
    if codes is None:
        return None, None
    if len(codes) != rows:
        raise InputError(f"groups has {len(codes)} rows but X and Y have {rows}")
    return codes, torch.from_numpy(codes)
