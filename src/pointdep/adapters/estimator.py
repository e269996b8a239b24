"""`CalibratedDependency`: PMI by a model that was trained elsewhere."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pointdep import assembly
from pointdep.adapters import persistence
from pointdep.adapters.calibrating import calibrate
from pointdep.adapters.flags import check_flags, pair_flags, reference_flags
from pointdep.adapters.models import bias_of, calibrated_model, critic_of, stderr_of
from pointdep.adapters.rows import draws, flat, read_rows, require_exact, row_kind
from pointdep.adapters.sources import Embeddings, Function, Source, Table, as_table
from pointdep.answers import ANSWER_SEED, Array32, some_rows
from pointdep.data.sides import RawSide
from pointdep.errors import (
    FitWarning,
    InputError,
    names_nearest_option,
    require_whole,
    unknown_name,
)
from pointdep.estimator import PointwiseDependency
from pointdep.fitting.data_flags import duplicate_flags
from pointdep.fitting.progress import show
from pointdep.inference.out_of_fold import out_of_fold
from pointdep.permutation import PermutationNull

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

    @names_nearest_option
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
        self.critic = critic
        self.loss = loss
        self.queries = queries
        self.scale = scale
        self.normalize = normalize
        self.folds = folds
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def fit(self, X: Any, Y: Any = None, groups: Any = None) -> CalibratedDependency:
        """Calibrate on pairs that the outside model was not trained on.

        X, Y: rows as the critic takes them; groups: (n,), as of `PointwiseDependency.fit`.
        """
        return self._fitted(X, Y, groups)

    def _fitted(self, X: Any, Y: Any, groups: Any) -> CalibratedDependency:
        """The same, with warnings on behalf of the function that called the caller."""
        self._calibrate(X, Y, groups)
        for flag in self.flags_:
            warnings.warn(str(flag), FitWarning, stacklevel=3)
        return self

    def _calibrate(self, X: Any, Y: Any, groups: Any) -> None:
        side = self._query_side()
        if Y is None:
            raise InputError("Y is missing: call fit(X, Y) with two arrays of paired rows")
        for_function = callable(self.critic)
        self._kinds = row_kind(X, for_function), row_kind(Y, for_function)
        rows = self._read(X, Y, groups)
        source = self._source().to(rows.x.device)
        if isinstance(source, Table):
            source.name_rows(rows.x, rows.y, rows.codes)
        with show("calibrating", enabled=self.progress):
            found = calibrate(
                source,
                rows.x,
                rows.y,
                rows.splits,
                queries=side,
                codes=rows.codes,
                seed=rows.seed,
            )
            model = calibrated_model(source, found, rows, side)
            held = out_of_fold(
                model, rows.x, rows.y, rows.splits, seed=rows.seed, groups=rows.groups
            )
        model.seen.copy_(torch.tensor([held.lowest, held.highest]))
        self._set_fitted(model, rows.encoder_x, rows.encoder_y, len(rows.x))
        self._set_slope()
        self.oof_pmi_, self.oof_values_ = held.pmi, held.pseudo_values
        # A row also decides, through the calibrations, what the others are found to have.
        self.oof_values_[found.rows] += len(rows.x) * found.influence.reported.numpy()
        self.groups_, self._mapped = rows.codes, None
        self._rows = assembly.on_cpu(rows)
        count = draws(rows.codes, len(rows.x))
        self.bias_, self.jackknife_ = bias_of(found, count), assembly.jackknife_factor(rows)
        self.history_: list[Any] = []
        reference = critic_of(model).reference
        copies = groups is None and not isinstance(source, Table)
        self.flags_ = (
            *(duplicate_flags(rows.x, rows.y) if copies else ()),
            *pair_flags(
                self.slope_,
                self.slope_stderr_,
                spread=found.spread,
                count=count,
                grouped=groups is not None,
            ),
            *reference_flags(len(reference), held.pmi),
            *held.flags,
            *check_flags(self.check()),
        )

    def read_out(self, logits: Any, reference: Any = None) -> Array32:
        """log r of other logits of the same model, of any shape.

        reference: with "softmax_one_sided", where logits are (n, m) of n queries in rows, their
        logits with a sample of candidates, (n, N), as large as that of the calibration.
        """
        check_is_fitted(self, "model_")
        critic = critic_of(self.model_)
        values = _numbers(logits, "logits")
        sample = None if reference is None else _numbers(reference, "reference")
        if (sample is None) != (critic.queries is None):
            kind, verb = ("one-sided", "needs") if sample is None else ("two-sided", "takes no")
            raise InputError(
                f"read_out of a {kind} model {verb} reference, the logits of the queries with a "
                "sample of candidates"
            )
        if sample is not None and (values.ndim != 2 or sample.shape[:1] != values.shape[:1]):
            raise InputError(
                f"logits {tuple(values.shape)} and reference {tuple(sample.shape)} must have the "
                "same queries in their rows"
            )
        found: Array32 = critic.read_out(values, sample).float().numpy()
        return found

    def save(self, path: str | Path) -> None:
        """Write the model as a folder; a function of yours is not in it, `load` takes it again."""
        check_is_fitted(self, "model_")
        persistence.save(self, Path(path))

    def _found(self) -> list[tuple[str, object]]:
        slope = f"{self.slope_:.3g} +- {self.slope_stderr_:.2g}, shift {self.shift_:.3g}"
        return [*super()._found(), ("slope of the logits", slope)]

    def _query_side(self) -> str | None:
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        if self.queries not in ("x", "y"):
            raise InputError(f"queries={self.queries!r} must be 'x' or 'y'")
        return self.queries if self.loss == "softmax_one_sided" else None

    def _source(self) -> Source:
        critic = self.critic
        if isinstance(critic, str):
            if critic != "inner":
                raise unknown_name("critic", critic, ("inner",))
            if not isinstance(self.scale, int | float) or not 0.0 < self.scale < math.inf:
                raise InputError(f"scale={self.scale!r} must be a number above 0")
            return Embeddings(float(self.scale), bool(self.normalize))
        if callable(critic):
            return Function(critic, self._kinds)
        return Table(torch.from_numpy(as_table(critic)))

    def _set_slope(self) -> None:
        critic = critic_of(self.model_)
        self.slope_, self.shift_ = (float(v) for v in critic.weights.cpu().double().mean(0)[:2])
        self.slope_stderr_ = stderr_of(critic.influence.mean(0)[:, 0], critic)

    def _doubt(self, X: Any, Y: Any) -> float:
        X, Y, _ = some_rows(X, Y, None)
        x, y, _, _ = self._encode(X, Y)
        some = np.random.default_rng(ANSWER_SEED).permutation(len(x))[:_SAMPLE]
        x, y = self._on_device(x[some], y[some])
        critic = critic_of(self.model_)
        error = stderr_of(critic.influence_on_mean(x, y), critic)
        return math.hypot(super()._doubt(X, Y), error)

    def _null(self, shuffles: int, given: bool) -> PermutationNull:
        del shuffles, given
        raise InputError(
            "shuffles fit the model again, and this one was trained elsewhere: leave them out"
        )

    def _read(self, X: Any, Y: Any, groups: Any, seed: int | None = None) -> assembly.PairedRows:
        require_whole("folds", self.folds, least=2)
        seed = self._seed() if seed is None else seed
        device = self._device()
        rows = read_rows(X, Y, groups, self._kinds, folds=self.folds, seed=seed, device=device)
        if isinstance(self.critic, str) and rows.x.shape[1] != rows.y.shape[1]:
            raise InputError(
                f"X has {rows.x.shape[1]} columns and Y {rows.y.shape[1]}: embeddings must be of "
                "one space"
            )
        return rows

    def _device(self) -> torch.device:
        if self.device != "auto" or not callable(self.critic):
            return assembly.pick_device(self.device)
        weights = list(self.critic.parameters())[:1] if isinstance(self.critic, nn.Module) else []
        return weights[0].device if weights else torch.device("cpu")

    def _encode(
        self, X: Any, Y: Any, *, paired: bool = True
    ) -> tuple[Tensor, Tensor, RawSide, RawSide]:
        check_is_fitted(self, "model_")
        x, y = (
            flat(v, kind, name) for v, kind, name in zip((X, Y), self._kinds, "XY", strict=True)
        )
        found = super()._encode(x, y, paired=paired)
        for raw, kind, name in zip(found[2:], self._kinds, "XY", strict=True):
            require_exact(raw, kind, name)
        return found

    def _read_side(self, rows: Any, side: str) -> RawSide:
        kind, name = self._kinds["xy".index(side)], side.upper()
        raw = super()._read_side(flat(rows, kind, name), side)
        require_exact(raw, kind, name)
        return raw


def _numbers(values: Any, name: str) -> Tensor:
    """A user's array or tensor, in float64 on the CPU."""
    if isinstance(values, Tensor):
        numbers = values.detach().cpu().double()
    else:
        numbers = torch.from_numpy(np.asarray(values, np.float64))
    if bool(numbers.isnan().any()):
        raise InputError(f"{name} holds NaN: give numbers")
    return numbers
