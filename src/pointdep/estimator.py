"""`PointwiseDependency`: learn r(x,y) from pairs, and answer with it."""

from __future__ import annotations

import math
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

from pointdep import assembly, storage
from pointdep.core.methods import get_method
from pointdep.core.ratio import RatioModel
from pointdep.data.sides import RawSide, SideEncoder, as_side, require_same_length
from pointdep.errors import (
    DataWarning,
    FitWarning,
    InputError,
    ModelFileError,
    names_nearest_option,
    require_whole,
)
from pointdep.fitting.flags import Flag
from pointdep.fitting.options import TrainingOptions
from pointdep.fitting.progress import show
from pointdep.fitting.reference import reference_flags, store_reference
from pointdep.fitting.splits import make_splits, require_product_rows
from pointdep.inference.classifier import balanced_log_likelihood
from pointdep.inference.mutual_information import MIEstimate, estimate
from pointdep.inference.out_of_fold import inference_values, out_of_fold
from pointdep.inference.scoring import score_matrix, score_pairs

if TYPE_CHECKING:
    from sklearn.utils import Tags

Array32 = NDArray[np.float32]

_SHUFFLES = 8  # product samples per row in `score`
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
    progress : show progress on standard error when fitting takes more than two seconds.
    checkpoint : a file that keeps the state of training; a fit of the same data and settings that
        finds it goes on from there, and removes it at the end.

    Attributes
    ----------
    oof_pmi_ : (n,) float32, PMI of each training row by the replicas that did not see it.
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
        method = get_method(self.method, self.method_options)
        require_whole("reference_size", self.reference_size)
        settings = self._critic_settings()
        raw_x = as_side(X, "X", discrete=self.discrete_x)
        raw_y = as_side(Y, "Y", discrete=self.discrete_y)
        codes = _group_codes(groups, raw_x.rows)
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
        if method.uses_product:
            require_product_rows(splits, codes, method.key)
        device = assembly.pick_device(self.device)
        encoder_x, encoder_y = SideEncoder.fit(raw_x, "X"), SideEncoder.fit(raw_y, "Y")
        x = torch.from_numpy(encoder_x.encode(raw_x)).to(device)
        y = torch.from_numpy(encoder_y.encode(raw_y)).to(device)
        group_ids = None if codes is None else torch.from_numpy(codes).to(device)
        options = self._training_options(settings, min(len(s.train) for s in splits), seed)
        model = assembly.make_model(settings, method, len(splits), x.shape[1], y.shape[1])
        checkpoint = None
        if self.checkpoint is not None:
            said = {**self._saved_params(), "seed": seed, "options": repr(options)}
            identity = assembly.fingerprint(model, x, y, group_ids, splits, said)
            checkpoint = assembly.open_checkpoint(self.checkpoint, identity)
        title = f"fitting {len(splits)} replica(s) of {method.key}"
        with show(title, enabled=self.progress) as progress:
            trained = assembly.train_model(
                model,
                x,
                y,
                (encoder_x.numeric_mask, encoder_y.numeric_mask),
                splits,
                options,
                groups=group_ids,
                progress=progress,
                checkpoint=checkpoint,
            )
            common: dict[str, Any] = {"seed": seed, "groups": group_ids}
            found = store_reference(model, x, y, splits, size=self.reference_size, **common)
            held = out_of_fold(model, x, y, splits, **common)
        known = torch.from_numpy(held.pmi[~np.isnan(held.pmi)])
        flags = [*trained.flags, *found, *held.flags, *reference_flags(model, known)]

        self.model_, self.encoder_x_, self.encoder_y_ = model, encoder_x, encoder_y
        self._set_columns()
        self.n_rows_, self.n_replicas_ = raw_x.rows, len(splits)
        self.oof_pmi_ = held.pmi
        self.oof_values_ = held.pseudo_values
        self.flags_: tuple[Flag, ...] = tuple(flags)
        self.history_ = trained.history
        for flag in self.flags_:
            warnings.warn(str(flag), FitWarning, stacklevel=2)
        return self

    def mutual_information(
        self, X: Any = None, Y: Any = None, *, confidence: float = 0.95
    ) -> MIEstimate:
        """The mutual information: of the training rows out of fold, or of the given rows."""
        check_is_fitted(self, "model_")
        notes = tuple(str(flag) for flag in self.flags_)
        method = self.model_.methods[0]
        if X is None and Y is None:
            values = self.oof_values_[~np.isnan(self.oof_values_)]
        else:
            x, y, _, _ = self._encode(X, Y)
            values = inference_values(self.model_, x, y, np.arange(len(x)), seed=_ANSWER_SEED)
        return estimate(values, method, confidence=confidence, warnings=notes)

    def pmi(self, X: Any, Y: Any) -> Array32:
        """log r of each pair, (n,): a function of that pair alone, in nats."""
        x, y, _, _ = self._encode(X, Y)
        values: Array32 = score_pairs(self.model_, x, y).numpy()
        return values

    def pd(self, X: Any, Y: Any) -> Array32:
        """r of each pair, (n,)."""
        values: Array32 = np.exp(self.pmi(X, Y))
        return values

    def npmi(self, X: Any, Y: Any) -> Array32:
        """Normalised PMI of each pair, (n,) in [-1, 1]: PMI / -log p(x,y).

        The probability of an outcome is its frequency where a side is one column of categories, and
        1/n of the training rows where it is continuous, each row being its own outcome: 1 says that
        x and y only occur together, 0 that they are independent, -1 that they never meet.
        """
        x, y, raw_x, raw_y = self._encode(X, Y)
        pmi = score_pairs(self.model_, x, y).double().numpy()
        rare = np.zeros(len(pmi))
        for encoder, raw in ((self.encoder_x_, raw_x), (self.encoder_y_, raw_y)):
            frequency = encoder.log_frequency(raw)
            rare += math.log(self.n_rows_) if frequency is None else -frequency
        surprise = rare - pmi
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(surprise > 0, pmi / surprise, 1.0)
        return np.clip(values, -1.0, 1.0).astype(np.float32)

    def pmi_matrix(self, X: Any, Y: Any) -> Array32:
        """log r of every x with every y, (n, m), computed in blocks."""
        x, y, _, _ = self._encode(X, Y, paired=False)
        return score_matrix(self.model_, x, y)

    def score(self, X: Any, Y: Any) -> float:
        """Minus the log-loss of the balanced classifier sigmoid(log r) on the rows and shuffles.

        The one number by which methods and critics can be compared: higher is better, -log 2 is no
        better than calling everything independent.
        """
        x, y, _, _ = self._encode(X, Y)
        if len(x) < 2:
            raise InputError("score needs at least two rows, to shuffle them against each other")
        order = torch.from_numpy(np.random.default_rng(_ANSWER_SEED).permutation(len(x)))
        x, y = x[order], y[order]
        shifts = range(1, min(_SHUFFLES, len(x) - 1) + 1)
        joint = score_pairs(self.model_, x, y).numpy()
        product = [score_pairs(self.model_, x, y.roll(k, 0)).numpy() for k in shifts]
        return balanced_log_likelihood(joint, np.concatenate(product))

    def save(self, path: str | Path) -> None:
        """Write the model as a folder of safetensors and JSON."""
        check_is_fitted(self, "model_")
        about = {
            "params": self._saved_params(),
            "encoder_x": self.encoder_x_.to_dict(),
            "encoder_y": self.encoder_y_.to_dict(),
            "rows": self.n_rows_,
            "replicas": self.n_replicas_,
            "flags": [[f.name, list(f.replicas), f.message] for f in self.flags_],
            "history": self.history_,
        }
        tensors = {f"model.{name}": t for name, t in self.model_.state_dict().items()}
        tensors["oof_pmi"] = torch.from_numpy(self.oof_pmi_)
        tensors["oof_values"] = torch.from_numpy(self.oof_values_)
        storage.write_model(Path(path), about, tensors)

    @classmethod
    def load(
        cls, path: str | Path, *, critic: Any = None, device: str = "auto"
    ) -> PointwiseDependency:
        """Read a saved model; one with your own critic needs that module (or encoders) again."""
        about, tensors = storage.read_model(Path(path))
        params = dict(about["params"])
        own = isinstance(params["critic"], dict)
        if own and critic is None:
            what = params["critic"]["own"]
            raise InputError(
                f"{path} was fitted with your own {what}: give it again as load(path, critic=...)"
            )
        if critic is not None and not own:
            raise InputError(f"{path} has a {params['critic']!r} critic: leave `critic` out")
        params["critic"] = critic if own else params["critic"]
        params["hidden"] = tuple(params["hidden"])
        made = cls(**{**params, "device": device})
        try:
            made.encoder_x_ = SideEncoder.from_dict(about["encoder_x"])
            made.encoder_y_ = SideEncoder.from_dict(about["encoder_y"])
            made.n_rows_, made.n_replicas_ = int(about["rows"]), int(about["replicas"])
            made.history_ = about["history"]
            made.flags_ = tuple(Flag(n, tuple(r), m) for n, r, m in about["flags"])
            made.oof_pmi_ = tensors["oof_pmi"].numpy()
            made.oof_values_ = tensors["oof_values"].numpy()
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} lacks a part or holds a wrong one: {error}") from None
        made._set_columns()
        made.model_ = assembly.make_model(
            made._critic_settings(),
            get_method(made.method, made.method_options),
            made.n_replicas_,
            made.encoder_x_.dim,
            made.encoder_y_.dim,
        )
        assembly.load_weights(made.model_, tensors, Path(path))
        made.model_.to(assembly.pick_device(device))
        return made

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _set_columns(self) -> None:
        """scikit-learn's attributes of X: the number of columns, and their names if it had any."""
        self.n_features_in_ = len(self.encoder_x_.names)
        if self.encoder_x_.named:
            self.feature_names_in_ = np.asarray(self.encoder_x_.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit

    def _critic_settings(self) -> assembly.CriticSettings:
        return assembly.CriticSettings(
            self.critic, self.hidden, self.embedding_dim, self.activation, self.link
        )

    def _training_options(
        self, settings: assembly.CriticSettings, smallest: int, seed: int
    ) -> TrainingOptions:
        method = get_method(self.method, self.method_options)
        batch, block = assembly.batch_shape(
            settings, method, smallest, self.batch_size, self.negatives
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

    def _saved_params(self) -> dict[str, Any]:
        """The options that can be written as JSON; what cannot is left at its default."""
        kept = dict(self.get_params(deep=False))
        kept["critic"] = assembly.describe_critic(self.critic)
        kept["hidden"] = [int(width) for width in self.hidden]
        kept["method_options"] = dict(self.method_options) if self.method_options else None
        seed = self.random_state
        kept["random_state"] = int(seed) if isinstance(seed, int | np.integer) else None
        for name in ("cv", "checkpoint", "device", "progress"):
            kept.pop(name)
        return kept


def _group_codes(groups: Any, rows: int) -> NDArray[np.int64] | None:
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.ndim != 1:
        raise InputError(f"groups has shape {values.shape}: give one value per row, (n,)")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError("groups holds NaN: give every row a group")
    codes = np.unique(values, return_inverse=True)[1].astype(np.int64)
    if len(codes) == rows and len(np.unique(codes)) == rows:
        warnings.warn(
            "every row is its own group, which is the same as no groups", DataWarning, stacklevel=3
        )
    return codes


__all__ = ["PointwiseDependency", "RatioModel"]
