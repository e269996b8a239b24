"""`CalibratedDependency`: PMI by a model that was trained elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pointdep import errors
from pointdep.data import storage
from pointdep.data.sides import RawSide
from pointdep.errors import MEANINGS, Flag, InputError, unknown_name
from pointdep.estimators import calibrated_model, embeddings, persistence
from pointdep.estimators.calibrated_model import BUFFERS, CalibratedCritic
from pointdep.estimators.calibration import calibrate
from pointdep.estimators.embeddings import RowKind, Table, as_table
from pointdep.estimators.fit_rows import FitRows
from pointdep.estimators.pointwise import ANSWER_SEED, Array32, PointwiseDependency, some_rows
from pointdep.fitting.data_flags import duplicate_flags
from pointdep.fitting.progress import Silent, show
from pointdep.fitting.rendezvous import pick_device
from pointdep.inference.bias import FittingBias

# What makes a calibration doubtful.

_FEW, _UNSURE = 200, 0.25  # pairs, and standard error of the slope over the slope
_BLURRED = 0.1  # nats: what a doubtful slope does to log r of mismatched pairs, at least
_SPARE = 10  # candidates that should be like the right one


def pair_flags(slope: float, stderr: float, spread: float, count: int, grouped: bool) -> list[Flag]:
    """Whether the pairs are too few to say how far log r is stretched.

    spread: of the logits of mismatched pairs; count: pairs, or groups of them where grouped.
    """
    # Logits that say nothing have no sure slope either, but then log r is known to be about 0.
    unsure = stderr > _UNSURE * slope and stderr * spread > _BLURRED
    if count >= _FEW and not unsure:
        return []
    by = f"slope {slope:.3g} +- {stderr:.2g}, by {count} {'groups' if grouped else 'pairs'}"
    message = f"{MEANINGS['few_pairs']} ({by}). Give more pairs that the model was not trained on"
    return [Flag("few_pairs", (), message)]


def reference_flags(size: int, pmi: NDArray[np.float32]) -> list[Flag]:
    """Whether the candidates, if any are needed, are too few for the PMI found, (n,)."""
    typical = float(np.median(pmi))
    if not size or typical <= math.log(size / _SPARE):
        return []
    message = (
        f"{MEANINGS['reference_too_small']}: with PMI of {typical:.1f} nats fewer than {_SPARE} of "
        f"the {size} candidates are like the right one. Give more pairs"
    )
    return [Flag("reference_too_small", (), message)]


LOSSES = ("sigmoid", "softmax", "softmax_one_sided")
"""By which the outside model was trained: what its logits lack to be log r."""

_SAMPLE = 1024  # of given rows: by them it is found how far their mean hangs on the calibration


class CalibratedDependency(PointwiseDependency):
    """Answer with a model that was trained elsewhere, its logits turned into log r.

    `fit` trains nothing: on pairs that the model was not trained on it finds the slope and the
    shift by which log r = slope * logit + shift, in `folds` parts, each answered by the others. All
    calls of `PointwiseDependency` follow from it, but for `shuffles`.

    Parameters
    ----------
    critic : "inner", where X and Y are embeddings; a function or module, called with n rows of x
        and m rows of y and giving (n, m) logits; or a matrix of logits, (n, n), with pairs on the
        diagonal, where X and Y are then the numbers of rows and columns.
    loss : "sigmoid" (SigLIP): the logit is log r up to a constant; "softmax" (CLIP, two-sided): so
        too; "softmax_one_sided": up to a function of the query, which is removed over the
        candidates of the calibration pairs.
    queries : with "softmax_one_sided", the side that asks: the softmax ran over the other.
    scale : of the inner product of embeddings; `slope_` refers to it, and nothing else.
    normalize : whether embeddings are brought to length one.
    folds, random_state, device, progress : as of `PointwiseDependency`. On "auto" a module is
        called where its weights are, another function on the CPU.

    Attributes
    ----------
    slope_, slope_stderr_, shift_ : log r = slope_ * logit + shift_; a slope near 1 says that the
        model was right about its own logits. With "softmax_one_sided" the shift is what comes on
        top of the function of the query.
    oof_pmi_ and others : as of `PointwiseDependency`.
    """

    method, method_options, link = "pc", None, "log_ratio"
    cv, stream, checkpoint, distributed = None, False, None, False
    discrete_x = discrete_y = False

    @errors.names_nearest_option
    def __init__(
        self,
        critic: Any = "inner",
        *,
        loss: str = "sigmoid",
        queries: str = "x",
        scale: float = 1.0,
        normalize: bool = True,
        folds: int = 5,
        random_state: Any = 0,
        device: str = "auto",
        progress: bool = True,
    ) -> None:
        self.critic, self.loss, self.queries = critic, loss, queries
        self.scale, self.normalize, self.folds = scale, normalize, folds
        self.random_state, self.device, self.progress = random_state, device, progress

    def fit(self, X: Any, Y: Any = None, groups: Any = None) -> CalibratedDependency:
        """Calibrate on pairs that the outside model was not trained on.

        X, Y: rows as the critic takes them; groups: (n,), as of `PointwiseDependency.fit`.
        """
        self._require_y(Y)
        side = self._query_side()
        self._kinds = RowKind.of(X, callable(self.critic)), RowKind.of(Y, callable(self.critic))
        errors.require_whole("folds", self.folds, least=2)
        how: dict[str, Any] = {"seed": self._seed(), "device": self._device()}
        rows = embeddings.read_rows(X, Y, groups, self._kinds, folds=self.folds, **how)
        widths = rows.x.shape[1], rows.y.shape[1]
        if isinstance(self.critic, str) and widths[0] != widths[1]:
            raise InputError(f"X and Y have {widths} columns: embeddings must be of one space")
        source = self._source().to(rows.x.device)
        if isinstance(source, Table):
            source.name_rows(rows.x, rows.y, rows.codes)
        with show("calibrating", enabled=self.progress):
            found = calibrate(source, rows, side)
            model = calibrated_model.calibrated_model(source, found, rows, side)
            held = FitRows(rows).out_of_fold(model, Silent())
        self._keep(model, FitRows(rows), held)
        self._set_slope()
        # A row also decides, through the calibrations, what the others are found to have.
        self.oof_values_[found.rows] += len(rows.x) * found.reported.numpy()
        count = embeddings.draws(rows.codes, len(rows.x))
        resolution = math.sqrt(found.weights.shape[1] / 2) / count
        self.bias_ = FittingBias(closed_form=max(found.gap, 0.0), resolution=resolution)
        self.history_: list[Any] = []
        copies = groups is None and not isinstance(source, Table)
        slope = self.slope_, self.slope_stderr_
        self.flags_ = (
            *(duplicate_flags(rows.x, rows.y) if copies else ()),
            *pair_flags(*slope, spread=found.spread, count=count, grouped=groups is not None),
            *reference_flags(len(self._critic.reference), held.pmi),
            *held.flags,
        )
        check = self.check()
        if check.conclusive and not check.passed:
            message = f"{MEANINGS['check_fails']}. {check.verdict}"
            self.flags_ = (*self.flags_, Flag("check_fails", (), message))
        self._warn_of_flags()
        return self

    def read_out(self, logits: Any, reference: Any = None) -> Array32:
        """log r of other logits of the same model, of any shape.

        reference: with "softmax_one_sided", where logits are (n, m) of n queries in rows, their
        logits with a sample of candidates, (n, N), as large as that of the calibration.
        """
        check_is_fitted(self, "model_")
        critic = self._critic
        values = _numbers(logits, "logits")
        sample = None if reference is None else _numbers(reference, "reference")
        if (sample is None) != (critic.queries is None):
            kind, verb = ("one-sided", "needs") if sample is None else ("two-sided", "takes no")
            raise InputError(f"read_out of a {kind} model {verb} reference logits")
        if sample is not None and (values.ndim != 2 or sample.shape[:1] != values.shape[:1]):
            shapes = f"logits {tuple(values.shape)} and reference {tuple(sample.shape)}"
            raise InputError(f"{shapes} must have the same queries in their rows")
        return critic.read_out(values, sample).float().numpy()

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder; a function of yours is not in it, `load` takes it again.

        overwrite: also in place of a model that was fitted on other data.
        """
        check_is_fitted(self, "model_")
        if not overwrite:
            persistence.require_same_data(Path(path), persistence.data_of(self))
        critic = self._critic
        about, tensors = persistence.fitted_parts(self)
        params = {name: getattr(self, name) for name in _PARAMS}
        about |= {
            "kind": "calibrated",
            "params": params | {"random_state": persistence.plain_seed(self.random_state)},
            "source": type(critic.source).__name__.lower(),
            "temperature": float(critic.temperature),
            "rows_are": [[list(kind.shape), kind.whole] for kind in self._kinds],
        }
        tensors |= {name: getattr(critic, name) for name in BUFFERS}
        tensors["seen"] = self.model_.seen
        if isinstance(critic.source, Table):
            tensors |= {"logits": critic.source.logits, "named": critic.source.names}
        storage.write_model(Path(path), about, tensors)

    def _found(self) -> list[tuple[str, object]]:
        slope = f"{self.slope_:.3g} +- {self.slope_stderr_:.2g}, shift {self.shift_:.3g}"
        return [*super()._found(), ("slope of the logits", slope)]

    @property
    def _critic(self) -> CalibratedCritic:
        assert isinstance(self.model_.critic, CalibratedCritic)
        return self.model_.critic

    def _query_side(self) -> str | None:
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        if self.queries not in ("x", "y"):
            raise InputError(f"queries={self.queries!r} must be 'x' or 'y'")
        return self.queries if self.loss == "softmax_one_sided" else None

    def _source(self) -> embeddings.Source:
        critic = self.critic
        if isinstance(critic, str):
            if critic != "inner":
                raise unknown_name("critic", critic, ("inner",))
            if not isinstance(self.scale, int | float) or not 0.0 < self.scale < math.inf:
                raise InputError(f"scale={self.scale!r} must be a number above 0")
            return embeddings.Embeddings(float(self.scale), bool(self.normalize))
        if callable(critic):
            return embeddings.Function(critic, self._kinds)
        return Table(torch.from_numpy(as_table(critic)))

    def _set_slope(self) -> None:
        critic = self._critic
        self.slope_, self.shift_ = (float(v) for v in critic.weights.cpu().double().mean(0)[:2])
        self.slope_stderr_ = critic.stderr(critic.influence.mean(0)[:, 0])

    def _doubt(self, X: Any, Y: Any) -> float:
        X, Y, _ = some_rows(X, Y, None)
        x, y, _, _ = self._encode(X, Y)
        some = np.random.default_rng(ANSWER_SEED).permutation(len(x))[:_SAMPLE]
        on_mean = self._critic.influence_on_mean(*self._on_device(x[some], y[some]))
        return math.hypot(super()._doubt(X, Y), self._critic.stderr(on_mean))

    def _null(self, shuffles: int, given: bool) -> float:
        del shuffles, given
        raise InputError("shuffles need fits, and this model was trained elsewhere: leave them out")

    def _device(self) -> torch.device:
        if self.device != "auto" or not callable(self.critic):
            return pick_device(self.device)
        weights = list(self.critic.parameters())[:1] if isinstance(self.critic, nn.Module) else []
        return weights[0].device if weights else torch.device("cpu")

    def _read_side(self, rows: Any, side: str) -> RawSide:
        kind, name = self._kinds["xy".index(side)], side.upper()
        raw = super()._read_side(kind.flat(rows, name), side)
        kind.require_exact(raw, name)
        return raw


def _numbers(values: Any, name: str) -> Tensor:
    """A user's array or tensor, in float64 on the CPU."""
    if not isinstance(values, Tensor):
        values = np.asarray(values, np.float64)
    numbers = torch.as_tensor(values).detach().cpu().double()
    if bool(numbers.isnan().any()):
        raise InputError(f"{name} holds NaN: give numbers")
    return numbers


# A calibrated model as a folder; a function of the user's is brought again.

_PARAMS = ("loss", "queries", "scale", "normalize", "folds")


def load(
    about: dict[str, Any], tensors: dict[str, Tensor], path: Path, *, critic: Any, device: str
) -> CalibratedDependency:
    """The estimator that `save` wrote, with the user's function where it had one."""
    if about.get("source") == "function" and not callable(critic):
        raise InputError(f"{path} was calibrated with your own function: load(path, critic=...)")
    if about.get("source") != "function" and critic is not None:
        raise InputError(f"{path} needs no function: leave `critic` out")
    with persistence.reading(path):
        own = critic
        if about["source"] != "function":
            own = tensors["logits"].numpy() if about["source"] == "table" else "inner"
        params = {name: about["params"][name] for name in about["params"]}
        if not set(params) <= {*_PARAMS, "random_state"}:
            raise TypeError(f"params={params!r:.60}")
        made = CalibratedDependency(own, **params, device=device)
        of_x, of_y = (RowKind(tuple(shape), whole) for shape, whole in about["rows_are"])
        made._kinds = of_x, of_y
        persistence.set_fitted_parts(made, about, tensors)
        source = made._source()
        if isinstance(source, Table):
            source.names.copy_(tensors["named"])
        temperature, side = float(about["temperature"]), made._query_side()
        buffers = (tensors[name] for name in BUFFERS)
        calibrated = CalibratedCritic(source, *buffers, queries=side, temperature=temperature)
        model = calibrated_model.assembled(calibrated, made.encoder_x_.dim, made.encoder_y_.dim)
        model.seen.copy_(tensors["seen"])
    made._set_model(model.to(made._device()))
    made._set_slope()
    made.history_ = []
    return made


# `from_embeddings` and `from_logits`: PMI by the model you already have.


def from_embeddings(
    X: Any,
    Y: Any,
    *,
    loss: str = "sigmoid",
    queries: str = "x",
    scale: float = 1.0,
    normalize: bool = True,
    groups: Any = None,
    folds: int = 5,
    random_state: Any = 0,
    device: str = "auto",
    progress: bool = True,
) -> CalibratedDependency:
    """PMI by a two-tower model, from its embeddings of pairs that it was not trained on.

    X, Y: (n, d), row i of both a pair; `pmi`, `retrieve` and all other calls then take embeddings.
    loss, queries, scale, normalize: how the model was trained, as of `CalibratedDependency`.
    groups: (n,), for rows that are not independent draws.
    """
    how: dict[str, Any] = {"loss": loss, "queries": queries, "scale": scale, "folds": folds}
    how |= {"random_state": random_state, "device": device, "progress": progress}
    return CalibratedDependency("inner", normalize=normalize, **how).fit(X, Y, groups)


def from_logits(
    logits: Any,
    X: Any = None,
    Y: Any = None,
    *,
    loss: str = "sigmoid",
    queries: str = "x",
    groups: Any = None,
    folds: int = 5,
    random_state: Any = 0,
    device: str = "auto",
    progress: bool = True,
) -> CalibratedDependency:
    """PMI by any model that scores pairs, from its logits of pairs that it was not trained on.

    logits: a function or module, called with n rows of x and m rows of y and giving (n, m) logits,
        which is calibrated on the pairs X and Y; or the logits of held-out pairs themselves,
        (n, n), row i with column i a pair. Then X and Y of `pmi` and other calls are the numbers of
        rows and columns, and `read_out` takes other logits.
    loss, queries: how the model was trained, as of `CalibratedDependency`. groups: (n,), for rows
    that are not independent draws.
    """
    if callable(logits):
        if X is None or Y is None:
            raise InputError("X and Y are missing: a function of logits needs held-out pairs")
    elif X is not None or Y is not None:
        raise InputError("X and Y are for a function of logits: a matrix holds its pairs already")
    else:
        logits = as_table(logits)
        X = Y = np.arange(len(logits))
    how = {"folds": folds, "random_state": random_state, "device": device, "progress": progress}
    return CalibratedDependency(logits, loss=loss, queries=queries, **how).fit(X, Y, groups)
