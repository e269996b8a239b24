"""Numbers of many small runs, recorded once and compared after a change that must not move them.

    python benchmarks/golden.py record FILE.json
    python benchmarks/golden.py compare FILE.json [--tolerance 1e-6] [--only NAME] [--texts]
    python benchmarks/golden.py --list

Only public names and the command line are used, so that the same file runs on any version. Every
run is seeded, on one thread of a CPU. A number moved when it differs by more than the tolerance
times the larger of 1 and its size (within an array: of the size of its largest value). Whole
numbers, truth values and words without a blank must be equal; sentences may change, and `--texts`
shows those that did. `compare` ends with 1 when a number moved or a key is missing or new.
"""

# Unpacked pairs and lambdas with defaults, which mypy does not follow:
# mypy: disable-error-code="misc,call-arg,arg-type,assignment,index,no-untyped-call,attr-defined"

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import re
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import pointdep
from pointdep import (
    CLASSICAL,
    METHODS,
    ClassicalDependency,
    ConditionalDependency,
    PMIFeatures,
    PointwiseDependency,
    audit,
    audit_shards,
    from_embeddings,
    from_logits,
    mi_against_n,
    mi_scorer,
    mutual_information_features,
    objectives,
    open_rows,
    retrieval_metrics,
    score_shards,
)
from pointdep import compare as compare_models

Run = Callable[[Path], Any]
RUNS: dict[str, Run] = {}

# Of these keys only that they are there is recorded: times, versions, places.
KEYS_ONLY = re.compile(
    r"(^|[._])(seconds|images_per_second|minutes|wall_seconds|versions|pointdep|output|model|index|"
    r"page|folder|path|table|oof|plot|machine|device|source|cores|started|command_line|command)$"
)
EXEMPT: tuple[tuple[str, str, str], ...] = (
    ("cli-plan", "*", "plan: the values follow measured constants; the keys must stay"),
    ("calibrated-*", "*stderr*", "error of calibrated models: how it is derived may improve"),
    ("calibrated-*", "*.ci*", "interval of calibrated models: the same"),
    ("calibrated-*", "*slope_stderr*", "error of calibrated models: the same"),
    ("cli-calibrate", "*stderr*", "error of calibrated models: the same"),
    ("cli-calibrate", "*.ci*", "interval of calibrated models: the same"),
)
"""(run, key, reason): the key must be there, its value is not compared. Order among exact ties is
not recorded at all, see `_tie_free`."""

EDGE = 16  # values kept of the beginning and of the end of an array
_TEXT = 60  # letters kept of a sentence


# -- data and models that many runs share ----------------------------------------------------------

QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "random_state": 0}
SMALL: dict[str, Any] = {**QUIET, "hidden": (16,), "folds": 2, "max_epochs": 6}


def pairs(rows: int = 240, dx: int = 3, dy: int = 2, seed: int = 0, curved: bool = False) -> Any:
    """x and y that share coordinates, float64."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, dx))
    shared = x[:, np.arange(dy) % dx]
    return x, 0.8 * (np.square(shared) if curved else shared) + 0.6 * random.normal(size=(rows, dy))


def wide_pairs(rows: int = 300, seed: int = 0) -> Any:
    """30 + 28 columns, enough for the encoders of the default critic."""
    return pairs(rows, 30, 28, seed)


def small(**changed: Any) -> PointwiseDependency:
    return PointwiseDependency(**{**SMALL, **changed})


def run(name: str) -> Callable[[Run], Run]:
    """Add a run under a name."""

    def add(function: Run) -> Run:
        RUNS[name] = function
        return function

    return add


def answers(model: Any, x: Any, y: Any, *, full: bool = True) -> dict[str, Any]:
    """What a fitted model says of its own rows and of the given ones."""
    found: dict[str, Any] = {
        "oof_pmi": model.oof_pmi_,
        "mi": _estimate(model.mutual_information()),
        "flags": [[flag.name, list(flag.replicas)] for flag in model.flags_],
        "pmi": model.pmi(x, y),
        "mi_given": _estimate(model.mutual_information(x, y)),
        "history": Shorter(_numbers(model.history_)),
    }
    if full:
        found |= {
            "pmi_stderr": Shorter(model.pmi_stderr(x, y)),
            "npmi": Shorter(model.npmi(x, y)),
            "pd": Shorter(model.pd(x, y)),
            "outside": Shorter(model.outside(x, y)),
            "matrix": Shorter(model.pmi_matrix(x[:12], y[:9])),
            "score": model.score(x, y),
            "check": _checked(model.check()),
        }
    return found


def _estimate(found: Any) -> dict[str, Any]:
    """The numbers of an estimate; all its keys are in `permutation-p-value`."""
    return {name: getattr(found, name) for name in ("nats", "stderr", "ci", "correction", "rows")}


def _checked(found: Any) -> dict[str, Any]:
    """The outcome of a check and a trace of its numbers; all its keys are in `check-given-rows`."""
    numbers = Shorter(_numbers(found.to_dict()))
    return {"fault": found.fault, "p_value": found.p_value, "numbers": numbers}


def _numbers(value: Any) -> Any:
    """All numbers inside, in their order."""
    flat = (one for _, one in _leaves(value, ""))
    return np.array([float(one) for one in flat if isinstance(one, int | float)])


def fitted(model: Any, data: Any, fresh: Any, *, full: bool = True) -> dict[str, Any]:
    return answers(model.fit(*data), *fresh, full=full)


class Shorter:
    """Marks arrays of which only a trace is kept: shape, size, and a sum over all values."""

    def __init__(self, value: Any) -> None:
        self.value = value


# -- critics, methods and options of PointwiseDependency -------------------------------------------


class PairNet(nn.Module):
    """A critic of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 12), nn.SiLU(), nn.Linear(12, 1))
        for parameter in self.net.parameters():
            parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net(torch.cat([x, y], -1)).squeeze(-1)  # type: ignore[no-any-return]


def encoders() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 6)), nn.Linear(2, 6)


def _add_fits() -> None:
    narrow, wide = lambda seed: pairs(seed=seed), lambda seed: wide_pairs(seed=seed)
    curved = lambda seed: pairs(400, seed=seed, curved=True)  # noqa: E731
    for name, made, data in (
        ("auto-narrow", lambda: small(folds=3, max_epochs=15), narrow),
        ("auto-defaults", lambda: PointwiseDependency(**QUIET, max_epochs=4), narrow),
        ("auto-curved", lambda: small(max_epochs=25, learning_rate=0.01), curved),
        ("auto-wide", lambda: small(max_epochs=5, embedding_dim=8), wide),
        ("concat", lambda: small(critic="concat"), narrow),
        ("separable", lambda: small(critic="separable", embedding_dim=8), narrow),
        ("bilinear", lambda: small(critic="bilinear"), narrow),
        ("inner", lambda: small(critic="inner"), lambda seed: pairs(dx=3, dy=3, seed=seed)),
        ("module", lambda: small(critic=PairNet()), narrow),
        ("encoders", lambda: small(critic=encoders()), narrow),
    ):
        RUNS[f"critic-{name}"] = lambda _, made=made, data=data: fitted(made(), data(0), data(1))
    for key in METHODS:
        for critic in ("concat", "separable"):
            RUNS[f"method-{key}-{critic}"] = lambda _, key=key, critic=critic: fitted(
                small(method=key, critic=critic, max_epochs=4),
                pairs(160),
                pairs(40, seed=1),
                full=False,
            )
    for key in ("drf", "cpc", "dv", "smi"):
        RUNS[f"method-{key}-auto"] = lambda _, key=key: fitted(
            small(method=key), pairs(160), pairs(40, seed=1)
        )
    from sklearn.model_selection import KFold

    for name, changed in {
        "link-log_ratio": {"method": "drf", "critic": "concat", "link": "log_ratio"},
        "link-asinh": {"method": "drf", "critic": "separable", "link": "asinh"},
        "activation-tanh": {"critic": "concat", "activation": "tanh"},
        "activation-gelu": {"critic": "separable", "activation": "gelu"},
        "activation-elu": {"activation": "elu"},
        "eta": {"method": "dm2", "critic": "concat", "method_options": {"eta": 2.0}},
        "lam": {"method": "dm1", "critic": "concat", "method_options": {"lam": 0.5}},
        "alpha": {"method": "drf_relative", "method_options": {"alpha": 0.1}, "critic": "concat"},
        "rpc": {"method": "rpc", "critic": "bilinear", "method_options": {"a": 0.9, "b": 0.01}},
        "reference_size": {"method": "cpc", "critic": "concat", "reference_size": 32},
        "one-fold": {"folds": 1},
        "cv": {"cv": KFold(3, shuffle=True, random_state=3), "critic": "concat"},
        "batches": {"critic": "concat", "batch_size": 32, "negatives": 7, "stop_fraction": 0.3},
        "optimiser": {"critic": "concat", "weight_decay": 0.01, "average": 0.0, "patience": 2},
        "layers": {"critic": "concat", "hidden": (8, 8, 4), "learning_rate": 0.01},
    }.items():
        RUNS[f"option-{name}"] = lambda _, changed=changed: fitted(
            small(**changed), pairs(160), pairs(40, seed=1), full=False
        )


_add_fits()


# -- rows as users have them -----------------------------------------------------------------------


def _write_shards(folder: Path, rows: Any, kind: str, parts: int = 3) -> Path:
    folder.mkdir()
    for number, part in enumerate(np.array_split(rows, parts)):
        if kind == "npy":
            np.save(folder / f"part-{number}.npy", part)
            continue
        import pyarrow as pa
        import pyarrow.parquet as pq

        lists = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), part.shape[1])
        pq.write_table(pa.table({"embedding": lists}), folder / f"part-{number}.parquet")
    return folder


def _stored_pairs(tmp: Path, kind: str) -> Any:
    x, y = (side.astype(np.float16) for side in pairs(600, 4, 4))
    sides = (
        _write_shards(tmp / f"{name}-{kind}", side, kind) for name, side in (("x", x), ("y", y))
    )
    columns = None if kind == "npy" else "embedding"
    return tuple(open_rows(side, columns=columns) for side in sides)


@run("stream-memory")
def _stream_memory(_: Path) -> Any:
    return fitted(small(stream=True), pairs(600, 4, 4), pairs(60, 4, 4, 1))


@run("stream-npy-shards")
def _stream_npy(tmp: Path) -> Any:
    model = small(stream=True, critic="concat").fit(*_stored_pairs(tmp, "npy"))
    return answers(model, *pairs(60, 4, 4, 1))


@run("stream-parquet-shards")
def _stream_parquet(tmp: Path) -> Any:
    x, y = _stored_pairs(tmp, "parquet")
    model = small(stream=True).fit(x, y)
    return {**answers(model, *pairs(60, 4, 4, 1)), "stored_pmi": model.pmi(x, y)}


@run("stream-mapped-wide-grouped")
def _stream_wide(tmp: Path) -> Any:
    x, y = (side.astype(np.float32) for side in wide_pairs(600))
    np.save(tmp / "x.npy", x)
    np.save(tmp / "y.npy", y)
    mapped = (np.load(tmp / f"{name}.npy", mmap_mode="r") for name in "xy")
    model = small(stream=True, max_epochs=3).fit(*mapped, groups=np.repeat(np.arange(200), 3))
    return answers(model, *wide_pairs(60, seed=1))


@run("rows-sharded-in-memory")
def _sharded(tmp: Path) -> Any:
    x, y = _stored_pairs(tmp, "parquet")
    return answers(small(critic="separable").fit(x, y), *pairs(60, 4, 4, 1), full=False)


@run("rows-grouped")
def _grouped(_: Path) -> Any:
    x, y = pairs(300)
    groups = np.repeat(np.arange(75), 4)
    model = small(critic="concat").fit(x, y, groups=groups)
    given = model.mutual_information(*pairs(80, seed=1), groups=np.repeat(np.arange(20), 4))
    return {**answers(model, *pairs(60, seed=1)), "mi_groups": _estimate(given)}


@run("rows-containers")
def _containers(_: Path) -> Any:
    """torch, lists, one-dimensional and integer columns, a constant column."""
    x, y = pairs(160)
    held = np.column_stack([x, np.full(160, 3.0)]).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = small(critic="concat").fit(torch.tensor(held), y[:, 0].tolist())
    second = small(critic="concat").fit((10 * x).round().astype(int), torch.tensor(y))
    return {"torch": first.oof_pmi_, "integers": second.oof_pmi_}


def _labels(x: Any, seed: int = 5) -> Any:
    noise = 0.5 * np.random.default_rng(seed).normal(size=len(x))
    return np.array(["low", "mid", "high"])[np.digitize(x[:, 0] + noise, [-0.5, 0.5])]


@run("categorical-y-strings")
def _strings(_: Path) -> Any:
    x, fresh = pairs(200)[0], pairs(60, seed=1)[0]
    model = small().fit(x, _labels(x))
    every = ["high", "low", "mid"]
    found = answers(model, fresh, _labels(fresh))
    return {**found, "each": model.pmi_matrix(fresh[:10], every)}


@run("categorical-pandas")
def _pandas(_: Path) -> Any:
    def table(rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        x, y = pairs(rows, seed=seed)
        colour = pd.Categorical(_labels(x, seed + 7))
        left = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "colour": colour})
        return left, pd.DataFrame({"c": y[:, 0], "sign": y[:, 1] > 0})

    return fitted(small(critic="concat"), table(200, 0), table(60, 1))


@run("categorical-both")
def _categories(_: Path) -> Any:
    random = np.random.default_rng(0)
    x = random.integers(0, 4, 240)
    y = np.where(random.random(240) < 0.6, x, random.integers(0, 4, 240))
    model = small(critic="separable", discrete_x=True, discrete_y=True).fit(x, y)
    return answers(model, x[:60], y[:60])


# -- the other estimators --------------------------------------------------------------------------


def _classical(key: str, x: Any, y: Any, fresh: Any) -> dict[str, Any]:
    model = ClassicalDependency(key, folds=3, random_state=0, progress=False).fit(x, y)
    found: dict[str, Any] = {"flags": [flag.name for flag in model.flags_]}
    for name, answer in {
        "oof_pmi": lambda: model.oof_pmi_,
        "mi_values": lambda: model.mi_values_,
        "mi": lambda: _estimate(model.mutual_information()),
        "mi_given": lambda: _estimate(model.mutual_information(*fresh)),
        "pmi": lambda: model.pmi(*fresh),
        "matrix": lambda: model.pmi_matrix(fresh[0][:8], fresh[1][:6]),
        "score": lambda: model.score(*fresh),
    }.items():
        try:
            found[name] = answer()
        except pointdep.InputError as error:  # what the method does not give
            found[name] = type(error).__name__
    return found


def _add_classical() -> None:
    for key in CLASSICAL:
        if key != "counting":
            RUNS[f"classical-{key}"] = lambda _, key=key: _classical(
                key, *pairs(200), pairs(50, seed=1)
            )

    def counting(_: Path) -> Any:
        x, y = (np.digitize(side[:, 0], [-0.7, 0.7]) for side in pairs(300))
        return _classical("counting", x, y, (x[:50], y[:50]))

    def labelled(_: Path) -> Any:
        x, fresh = pairs(200)[0], pairs(50, seed=1)[0]
        held = fresh, _labels(fresh)
        return {key: _classical(key, x, _labels(x), held) for key in ("ksg", "likelihood", "cca")}

    def configured(_: Path) -> Any:
        x, y = pairs(200)
        options: dict[str, dict[str, Any]] = {
            "ksg": {"k": 3},
            "cca": {"correction": "out_of_fold"},
            "ulsif": {"centres": 40, "bandwidth": 1.0, "ridge": 0.1},
            "likelihood": {"components": 2},
        }
        return {
            key: _estimate(
                ClassicalDependency(key, method_options=chosen, random_state=0, progress=False)
                .fit(x, y, groups=None if key == "ksg" else np.repeat(np.arange(50), 4))
                .mutual_information()
            )
            for key, chosen in options.items()
        }

    RUNS["classical-counting"] = counting
    RUNS["classical-labels"] = labelled
    RUNS["classical-options"] = configured


_add_classical()


@run("conditional-numbers")
def _conditional(_: Path) -> Any:
    z = np.random.default_rng(3).normal(size=(200, 1))
    x, y = (side + z for side in pairs(200, 2, 1))
    model = ConditionalDependency(small(critic="concat"), random_state=0, progress=False)
    model.fit(x, y, z)
    return {
        "oof_pmi": model.oof_pmi_,
        "mi": _estimate(model.mutual_information()),
        "mi_given": _estimate(model.mutual_information(x[:50], y[:50], z[:50])),
        "pmi": model.pmi(x[:50], y[:50], z[:50]),
        "outside": model.outside(x[:50], y[:50], z[:50]),
        "flags": [flag.name for flag in model.flags_],
        "joint": model.joint_.oof_pmi_,
        "marginal": model.marginal_.oof_pmi_,
    }


@run("conditional-categories")
def _conditional_categories(_: Path) -> Any:
    x, y = pairs(200)
    model = ConditionalDependency(small(), random_state=1, progress=False)
    model.fit(x, _labels(x), np.where(y[:, 0] > 0, "up", "down"))
    return {"oof_pmi": model.oof_pmi_, "mi": _estimate(model.mutual_information())}


def _embeddings(rows: int = 300, seed: int = 0) -> Any:
    x, y = pairs(rows, 4, 4, seed)
    return x.astype(np.float32), y.astype(np.float32)


def _calibrated(model: Any, x: Any, y: Any) -> dict[str, Any]:
    return {
        **answers(model, x, y),
        "slope": model.slope_,
        "slope_stderr": model.slope_stderr_,
        "shift": model.shift_,
    }


def _logit(x: Any, y: Any) -> Tensor:
    first, second = (torch.as_tensor(side, dtype=torch.float32) for side in (x, y))
    return 1.5 * first @ second.T - 0.3 * second.square().sum(-1) - 2.0


class _Logits(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return _logit(x, y) + 0.5 * x[:, :1]


def _add_calibrated() -> None:
    for loss in ("sigmoid", "softmax", "softmax_one_sided"):
        for queries in ("x", "y") if loss == "softmax_one_sided" else ("x",):
            options = {"loss": loss, "queries": queries, "device": "cpu", "progress": False}

            def embedded(_: Path, options: Any = options) -> Any:
                model = from_embeddings(*_embeddings(), scale=2.0, normalize=False, **options)
                return _calibrated(model, *_embeddings(50, 1))

            def logits(_: Path, options: Any = options) -> Any:
                model = from_logits(_logit, *_embeddings(), folds=3, **options)
                return _calibrated(model, *_embeddings(50, 1))

            def matrix(_: Path, options: Any = options) -> Any:
                model = from_logits(_logit(*_embeddings(200)).numpy(), **options)
                found = _calibrated(model, np.arange(50), np.arange(50))
                other, sample = _embeddings(40, 1), _embeddings(40, 2)
                if options["loss"] != "softmax_one_sided":
                    found["read_out"] = model.read_out(_logit(*other))
                elif options["queries"] == "x":
                    reference = _logit(other[0], sample[1])
                    found["read_out"] = model.read_out(_logit(*other), reference)
                return found

            name = loss if queries == "x" else f"{loss}-{queries}"
            RUNS[f"calibrated-embeddings-{name}"] = embedded
            RUNS[f"calibrated-function-{name}"] = logits
            RUNS[f"calibrated-matrix-{name}"] = matrix

    def module(_: Path) -> Any:
        groups = np.repeat(np.arange(100), 3)
        quiet = {"device": "cpu", "progress": False}
        model = from_logits(
            _Logits(), *_embeddings(), loss="softmax_one_sided", groups=groups, **quiet
        )
        return _calibrated(model, *_embeddings(50, 1))

    def unit(_: Path) -> Any:
        model = from_embeddings(*_embeddings(), loss="softmax", device="cpu", progress=False)
        found = model.retrieve(*_embeddings(50, 1), k=4)
        return {**_calibrated(model, *_embeddings(50, 1)), "retrieved": _tie_free(found)}

    RUNS["calibrated-module-groups"] = module
    RUNS["calibrated-unit-length"] = unit


_add_calibrated()


# -- checkpoints, saved models, retrieval ----------------------------------------------------------


class _Interrupted(PairNet):
    """Stops the fit, as Ctrl-C does, once it was called so many times."""

    left = math.inf

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        _Interrupted.left -= 1
        if _Interrupted.left < 0:
            raise KeyboardInterrupt
        return super().forward(x, y)


@run("checkpoint-resumed")
def _resumed(tmp: Path) -> Any:
    def model() -> PointwiseDependency:
        return small(critic=_Interrupted(), checkpoint=tmp / "fit.ckpt", max_epochs=8)

    _Interrupted.left = 30
    try:
        with contextlib.suppress(KeyboardInterrupt):
            model().fit(*pairs(160))
    finally:
        _Interrupted.left = math.inf
    left = (tmp / "fit.ckpt").exists()
    found = fitted(model(), pairs(160), pairs(40, seed=1), full=False)
    return {**found, "was_left": left, "is_left": (tmp / "fit.ckpt").exists()}


def _add_saved() -> None:
    for critic in ("auto", "concat", "separable", "bilinear"):

        def saved(tmp: Path, critic: str = critic) -> Any:
            small(critic=critic).fit(*pairs(160)).save(tmp / "model")
            model = PointwiseDependency.load(tmp / "model", device="cpu")
            x, y = pairs(40, seed=1)
            about = json.loads((tmp / "model" / "model.json").read_text("utf-8"))
            return {
                "oof_pmi": model.oof_pmi_,
                "pmi": model.pmi(x, y),
                "stderr": model.pmi_stderr(x, y),
                "mi": _estimate(model.mutual_information()),
                "check": _checked(model.check(*pairs(100, seed=2))),
                "keys": sorted(about),
                "format": [about["format"], about["format_version"]],
                "files": sorted(p.name for p in (tmp / "model").iterdir()),
            }

        RUNS[f"saved-{critic}"] = saved

    def conditional(tmp: Path) -> Any:
        z = np.random.default_rng(3).normal(size=(160, 1))
        x, y = pairs(160)
        ConditionalDependency(small(critic="concat"), progress=False).fit(x, y, z).save(tmp / "m")
        model = ConditionalDependency.load(tmp / "m", device="cpu")
        files = sorted(p.relative_to(tmp).as_posix() for p in (tmp / "m").rglob("*"))
        return {"pmi": model.pmi(x, y, z), "files": files}

    def calibrated(tmp: Path) -> Any:
        quiet = {"device": "cpu", "progress": False}
        from_embeddings(*_embeddings(), loss="softmax_one_sided", **quiet).save(tmp / "m")
        model = PointwiseDependency.load(tmp / "m", device="cpu")
        return {"pmi": model.pmi(*_embeddings(40, 1)), "kind": type(model).__name__}

    RUNS["saved-conditional"] = conditional
    RUNS["saved-calibrated"] = calibrated


_add_saved()


def _tie_free(found: Any) -> dict[str, Any]:
    """What was retrieved, with candidates of exactly equal PMI in the order of their numbers."""
    indices = found.indices.copy()
    for row, values in zip(indices, found.pmi, strict=True):
        for value in np.unique(values):
            row[values == value] = np.sort(row[values == value])
    return {
        "indices": indices,
        "pmi": found.pmi,
        "exact": found.exact,
        "recall": found.recall,
        "recall_queries": found.recall_queries,
        "candidates": found.candidates,
        "without_partner": found.without_partner,
    }


def _add_retrieval() -> None:
    for critic in ("auto", "concat", "separable", "inner"):

        def searched(tmp: Path, critic: str = critic) -> Any:
            model = small(critic=critic).fit(*pairs(200, 3, 3))
            x, y = pairs(150, 3, 3, 1)
            found = {
                "of_x": _tie_free(model.retrieve(x[:40], y, k=5)),
                "of_y": _tie_free(model.retrieve(y[:40], x, k=5, queries="y")),
                "exact": _tie_free(model.retrieve(x[:40], y, exact=True)),
                "metrics": model.retrieval_metrics(x, y).to_dict(),
                "shifted": model.retrieval_metrics(
                    x, y, queries="y", matching=(5, 9), distractors="shifted"
                ).to_dict(),
            }
            if critic in ("auto", "separable"):
                for kind in ("flat", "hnsw", "ivf"):
                    index = model.index(y, kind=kind)
                    index.save(tmp / f"index-{kind}")
                    again = model.load_index(tmp / f"index-{kind}")
                    found[f"index_{kind}"] = _tie_free(model.retrieve(x[:40], again, k=4))
            return found

        RUNS[f"retrieval-{critic}"] = searched

    def shortlist(_: Path) -> Any:
        model = small(max_epochs=25, learning_rate=0.01).fit(*pairs(400, curved=True))
        x, y = pairs(300, seed=1, curved=True)
        found = {"asked": _tie_free(model.retrieve(x[:60], y, k=5, shortlist=20))}
        model = small(method="drf", critic="separable").fit(*pairs(200))
        return found | {"drf": _tie_free(model.retrieve(x[:60], y, k=5))}

    def of_scores(_: Path) -> Any:
        scores = np.random.default_rng(0).normal(size=(60, 120)).round(1)
        relevant = np.arange(60), np.repeat(np.arange(60), 2)
        found = retrieval_metrics(lambda rows: scores[rows], 60, 120, relevant=relevant, ks=(1, 7))
        return found.to_dict()

    def of_labels(_: Path) -> Any:
        x = pairs(200)[0]
        model = small(critic="concat").fit(x, _labels(x))
        return model.retrieval_metrics(x[:60], _labels(x)[:60], ks=(1, 3)).to_dict()

    RUNS["retrieval-shortlist"] = shortlist
    RUNS["retrieval-of-scores"] = of_scores
    RUNS["retrieval-of-labels"] = of_labels


_add_retrieval()


# -- audit, shards, workflow -----------------------------------------------------------------------


def _planted(rows: int = 300) -> Any:
    x, _ = pairs(rows, 4, 4)
    noise = np.random.default_rng(9).normal(size=(rows, 4))
    y = x + 0.2 * noise
    y[[10, 20, 30]] = y[[20, 10, 77]]
    x[5], y[5] = x[4], y[4]
    return x, y


def _table(table: pd.DataFrame) -> dict[str, Any]:
    """Every column; rows of exactly equal PMI share the lower rank."""
    table = table.copy()
    if "rank" in table:
        table["rank"] = table.groupby("pmi")["rank"].transform("min")
    return {str(name): table[name].to_numpy() for name in table}


def _audited(found: Any) -> dict[str, Any]:
    return {
        "table": _table(found.table),
        "suspects": found.suspects["row"].sort_values().to_numpy(),
        "mi": _estimate(found.mutual_information),
        "check": _checked(found.check),
        "contamination": found.contamination,
        "fdr": found.fdr,
        "folds": found.folds,
        "method": found.method,
        "named": found.named,
        "flags": [flag.name for flag in found.flags],
        "mismatched": found.mismatched,
    }


@run("audit-pairs")
def _audit(_: Path) -> Any:
    return _audited(audit(*_planted(), model=small(max_epochs=10, folds=3)))


@run("audit-labels-given-share")
def _audit_labels(_: Path) -> Any:
    x, _ = pairs(240)
    names = np.where(x[:, 0] > 0, "cat", "dog").astype(object)
    names[:12] = np.where(names[:12] == "cat", "dog", "cat")
    return _audited(audit(x, names, contamination=0.05, fdr=0.2, model=small(critic="concat")))


@run("audit-groups-defaults")
def _audit_groups(_: Path) -> Any:
    x, y = _planted(200)
    model = small(max_epochs=4)
    return _audited(audit(x, y, groups=np.repeat(np.arange(50), 4), model=model))


@run("audit-streamed")
def _audit_streamed(tmp: Path) -> Any:
    return _audited(audit(*_stored_pairs(tmp, "parquet"), model=small(stream=True)))


@run("audit-calibrated")
def _audit_calibrated(_: Path) -> Any:
    quiet = {"device": "cpu", "progress": False}
    model = from_embeddings(*_embeddings(), loss="softmax", normalize=False, **quiet)
    found = _audited(audit(*_planted(), model=model))
    for name in ("stderr", "ci"):  # see EXEMPT
        del found["mi"][name]
    del found["table"]["stderr"]
    return found


def _read_shards(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    table = pd.concat([pq.read_table(p).to_pandas() for p in sorted(folder.glob("*.parquet"))])
    return _table(table.sort_values("row"))


def _scored_shards(tmp: Path) -> tuple[Path, Path, Path]:
    x, y = (side.astype(np.float32) for side in _planted(1200))
    sides = (_write_shards(tmp / name, s, "parquet", 4) for name, s in (("x", x), ("y", y)))
    small(max_epochs=8).fit(*_planted()).save(tmp / "model")
    return (tmp / "model", *sides)  # type: ignore[return-value]


@run("shards-scored")
def _score_shards(tmp: Path) -> Any:
    model, x, y = _scored_shards(tmp)
    quiet: dict[str, Any] = {"device": "cpu", "progress": False, "output": tmp / "out"}
    first = score_shards(model, x, y, batch_size=150, **quiet)
    again = score_shards(model, x, y, batch_size=150, **quiet)
    return {"first": first, "again": again, "table": _read_shards(tmp / "out")}


@run("shards-audited")
def _audit_shards(tmp: Path) -> Any:
    model, x, y = _scored_shards(tmp)
    found = audit_shards(model, x, y, output=tmp / "out", device="cpu", progress=False)
    return {"found": found, "table": _read_shards(tmp / "out")}


@run("workflow-pmi-features")
def _pmi_features(_: Path) -> Any:
    x, y = pairs(160)
    labelled = PMIFeatures(small(), progress=False)
    anchored = PMIFeatures(small(critic="separable"), anchors=5, append=False, progress=False)
    return {
        "out_of_fold": labelled.fit_transform(x, _labels(x)),
        "names": labelled.get_feature_names_out(),
        "transform": labelled.transform(pairs(30, seed=1)[0]),
        "anchored": anchored.fit_transform(x, y),
        "of_fresh": anchored.transform(pairs(30, seed=1)[0]),
    }


@run("workflow-compare")
def _compare(_: Path) -> Any:
    x, y = pairs(200)
    first, second = small().fit(x[:, :1], y), small(critic="concat").fit(x[:, 1:], y)
    third = ClassicalDependency("cca", random_state=0, progress=False).fit(x[:, :1], y)
    fresh, other = pairs(80, seed=1)
    return {
        "fits": compare_models(first, second).to_dict(),
        "classical": compare_models(first, third).to_dict(),
        "rows": compare_models(
            first, second, fresh[:, :1], other, X_b=fresh[:, 1:], Y_b=other
        ).to_dict(),
    }


@run("workflow-mi-against-n")
def _against_n(_: Path) -> Any:
    found = mi_against_n(small(critic="concat"), *pairs(240), sizes=(80, 240), progress=False)
    classical = ClassicalDependency("ksg", random_state=0)
    grouped = mi_against_n(classical, *pairs(400), random_state=2, progress=False)
    return {"networks": found.to_dict(), "ksg": grouped.to_dict()}


@run("workflow-ranking-and-scorer")
def _ranking(_: Path) -> Any:
    from sklearn.model_selection import cross_val_score

    x, y = pairs(160)
    quiet: dict[str, Any] = {"random_state": 0, "progress": False}
    classical = ClassicalDependency("ksg")
    return {
        "ksg": mutual_information_features(x, y[:, 0], estimator=classical, **quiet),
        "groups": mutual_information_features(
            x, y, columns=[[0, 1], [2]], estimator=small(critic="concat"), **quiet
        ),
        "score": cross_val_score(small(critic="concat"), x, y, cv=2),
        "scorer": cross_val_score(small(critic="concat"), x, y, cv=2, scoring=mi_scorer),
    }


@run("check-given-rows")
def _check(_: Path) -> Any:
    model = small(max_epochs=15).fit(*pairs(300))
    x, _ = pairs(400, seed=1)
    weak = 0.3 * x[:, :2] + np.random.default_rng(4).normal(size=(400, 2))
    groups = np.repeat(np.arange(100), 4)
    return {
        "own": model.check().to_dict(),
        "right": model.check(*pairs(400, seed=2), level=0.1, tolerance=0.02).to_dict(),
        "stretched": model.check(x, weak).to_dict(),
        "grouped": model.check(x, weak, groups=groups).to_dict(),
        "few": model.check(*pairs(20, seed=3)).to_dict(),
    }


@run("permutation-p-value")
def _permutation(_: Path) -> Any:
    x, y = pairs(120)
    dependent = small(critic="concat", max_epochs=4).fit(x, y)
    independent = small(max_epochs=4).fit(x, y[::-1].copy())
    return {
        "dependent": dependent.mutual_information(shuffles=9).to_dict(),
        "independent": independent.mutual_information(shuffles=9).to_dict(),
    }


# -- objectives and contrastive losses -------------------------------------------------------------


def _gradients(value: Tensor, *inputs: Tensor) -> list[Any]:
    wanted = torch.autograd.grad(value.sum(), inputs, allow_unused=True)
    return [None if one is None else Shorter(one) for one in wanted]


def _objective(name: str, scores: Any, **weights: Any) -> Tensor:
    found = getattr(objectives, name)(scores, **weights)
    return torch.stack(found) if isinstance(found, tuple) else found


def _add_objectives() -> None:
    for name in objectives.__all__:
        if name == "InnerScores":
            continue

        def computed(_: Path, name: str = name) -> Any:
            found: dict[str, Any] = {}
            for dtype in (torch.float64, torch.float32):
                random = torch.Generator().manual_seed(0)
                draw = lambda *shape: torch.randn(*shape, generator=random).to(dtype)  # noqa: B023, E731
                scores = draw(2, 9, 9).requires_grad_()
                joint, product = draw(9, 9).abs(), draw(9, 9).relu()
                x, y = (draw(2, 9, 3).requires_grad_() for _ in range(2))
                own_x, own_y = (draw(2, 9).requires_grad_() for _ in range(2))
                kind = str(dtype).removeprefix("torch.")
                for about, given, inputs, weights in (
                    ("matrix", scores, (scores,), {}),
                    ("weighted", scores, (scores,), {"joint": joint, "product": product}),
                    ("joint_only", scores, (scores,), {"joint": joint}),
                    ("inner", objectives.InnerScores(x, y), (x, y), {}),
                    (
                        "inner_blocks",
                        objectives.InnerScores(x, y, own_x, own_y, cells=20),
                        (x, y, own_x, own_y),
                        {},
                    ),
                    ("inner_product", objectives.InnerScores(x, y), (x, y), {"product": product}),
                ):
                    value = _objective(name, given, **weights)
                    found[f"{kind}.{about}"] = [Shorter(value), *_gradients(value, *inputs)]
            return found

        RUNS[f"objective-{name}"] = computed


_add_objectives()

LOSSES = ("CPC", "PCC", "Variational", "DM1", "DM2", "DRFC", "RPC")


def _loss_outcome(loss: Any, z1: Tensor, z2: Tensor, groups: Tensor | None) -> dict[str, Any]:
    value = loss(z1, z2, groups=groups)
    weights = [one for one in loss.parameters() if one.requires_grad]
    if hasattr(loss, "set_reference"):
        loss.set_reference(z2)
    return {
        "value": value,
        "gradients": _gradients(value, z1, z2, *weights),
        "pmi": Shorter(loss.pmi(z1, z2)),
        "matrix": Shorter(loss.pmi_matrix(z1[:6], z2[:5])),
        "flags": [flag.name for flag in loss.flags],
    }


def _add_losses() -> None:
    variants: dict[str, dict[str, Any]] = {
        "default": {},
        "blocks": {"block_size": 5},
        "all": {"negatives": "all"},
        "all_blocks_one_way": {"negatives": "all", "symmetric": False, "block_size": 7},
        "one_way": {"symmetric": False},
        "lengths_clip": {"normalize": False, "clip": 4.0},
        "learned": {"learn_scale": True, "groups": True},
        "groups_blocks": {"groups": True, "block_size": 4},
        "bilinear": {"critic": "bilinear", "dims": (6, 6)},
        "concat_blocks": {"critic": "concat", "dims": (6, 6), "block_size": 5},
        "separable": {"critic": "separable", "dims": (6, 6)},
    }
    for name in LOSSES:

        def computed(_: Path, name: str = name) -> Any:
            from pointdep import contrastive

            found = {}
            for about, chosen in variants.items():
                for dtype in (torch.float64, torch.float32):
                    options = dict(chosen)
                    grouped = options.pop("groups", False)
                    torch.manual_seed(0)
                    loss = getattr(contrastive, f"{name}Loss")(**options).to(dtype)
                    random = torch.Generator().manual_seed(1)
                    z1 = torch.randn(16, 6, generator=random)
                    z2 = z1 + 0.7 * torch.randn(16, 6, generator=random)
                    sides = (side.to(dtype).requires_grad_() for side in (z1, z2))
                    groups = torch.arange(16) // 2 if grouped else None
                    if about.startswith("concat") and dtype == torch.float32:
                        continue  # the two say the same, and its weights are many
                    kind = str(dtype).removeprefix("torch.")
                    found[f"{about}.{kind}"] = _loss_outcome(loss, *sides, groups)
            return found

        RUNS[f"loss-{name.lower()}"] = computed


_add_losses()


# -- encoders, views, pre-training -----------------------------------------------------------------


def _image_set(side: int = 32, rows: int = 48) -> Any:
    from pointdep.data.images import ImageSet

    random = np.random.default_rng(0)
    labels = np.arange(2 * rows) % 4
    colours = random.integers(60, 200, (4, 3, 1, 1))
    noise = random.integers(-40, 40, (2 * rows, 3, side, side))
    pixels = torch.from_numpy((colours[labels] + noise).clip(0, 255).astype(np.uint8))
    labels = torch.from_numpy(labels)
    parts = pixels[:rows], labels[:rows], pixels[rows:], labels[rows:]
    return ImageSet("colours", *parts, classes=("a", "b", "c", "d"), source="four colours")


def _add_pretraining() -> None:
    for model, side, options in (
        ("shallow", 8, {"width": 16, "depth": 3, "objectives": ("cpc", "drfc"), "seeds": (0, 3)}),
        ("amdim", 32, {"width": 4, "depth": 1, "objectives": ("pcc",)}),
        ("amdim", 32, {"width": 4, "depth": 1, "objectives": ("cpc",)}),
        ("simclr", 32, {"width": 4, "objectives": ("drfc",)}),
        ("simclr", 32, {"width": 4, "objectives": ("cpc",), "loss": {"temperature": 0.3}}),
    ):

        def trained(tmp: Path, model: str = model, side: int = side, options: Any = options) -> Any:
            from pointdep.contrastive import Settings, load_encoder, pretrain

            images = _image_set(side, 32)
            settings = Settings(model, epochs=2, batch_size=16, precision="32", **options)
            folder = tmp / "run"
            done = pretrain(images, settings, folder=folder, device="cpu")
            encoder = load_encoder(folder / "encoder", device="cpu")
            found = {
                "outcomes": done.outcomes,
                "history": done.history,
                "flags": [flag.name for flag in done.flags],
                "features": done.encoder.encode(images.test),
                "loaded": encoder.encode(images.test[:5]),
                "files": sorted(p.name for p in folder.iterdir()),
            }
            if model == "simclr":
                found["pmi"] = encoder.pmi(images.test[:16], images.train[:16])
            return found

        RUNS[f"pretrain-{model}-{options['objectives'][0]}"] = trained

    def iterations(_: Path) -> Any:
        from pointdep.contrastive import Settings, pretrain

        every = ("cpc", "pcc", "drfc", "variational", "dm1", "dm2", "rpc")
        settings = Settings(
            "shallow", objectives=every, iterations=6, evaluate_every=3, monitor="linear",
            width=8, depth=2, batch_size=16, precision="32", learning_rate=1e-3,
        )  # fmt: skip
        done = pretrain(_image_set(8, 32), settings, device="cpu")
        return {"outcomes": done.outcomes, "history": done.history}

    RUNS["pretrain-shallow-every-objective"] = iterations


_add_pretraining()


@run("views")
def _views(_: Path) -> Any:
    from pointdep.contrastive import views

    images = _image_set(rows=6).train
    found: dict[str, Any] = {
        "halves": views.halves(images),
        "as_rgb": views.as_rgb(images[:, :1, :8, :8]),
        "evaluation": views.evaluation_view()(images, torch.Generator().manual_seed(0)),
    }
    for name, two in {
        "simclr": views.simclr_views(),
        "simclr_blur": views.simclr_views(blur=True, strength=1.0, normalise=None),
        "amdim": views.amdim_views(),
    }.items():
        generator = torch.Generator().manual_seed(7)
        found[name] = [two(images, generator) for _ in range(2)]
    for operation in (
        views.Blur(p=1.0),
        views.ColourJitter(0.4, 0.4, 0.4, 0.2),
        views.Flip(),
        views.Grey(p=0.5),
        views.ReflectTranslate(3),
        views.ResizedCrop(),
        views.NORMALISE_MNIST,
    ):
        generator = torch.Generator().manual_seed(3)
        found[type(operation).__name__] = views.Views(operation)(images, generator)
    return found


@run("encoder-resnet")
def _resnet(_: Path) -> Any:
    from pointdep.contrastive.encoders.resnet import ProjectionHead, ResNet

    found = {}
    for depth in (18, 50):
        torch.manual_seed(depth)
        network = ResNet(depth, width=4)
        head = ProjectionHead(network.feature_dim, out=8)
        views = _image_set(rows=4).train[:4].float() / 255
        made = head(network(views))
        made.square().sum().backward()
        first = next(network.parameters())
        found[str(depth)] = {
            "made": made,
            "gradient": first.grad,
            "weights": [[name, list(p.shape)] for name, p in network.named_parameters()][-2:],
            "count": sum(p.numel() for p in network.parameters()),
        }
    return found


@run("linear-evaluation-and-knn")
def _evaluation(_: Path) -> Any:
    from pointdep.contrastive import knn_accuracy, linear_evaluation

    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 240)
    features = random.normal(size=(2, 240, 6)) + 0.8 * np.eye(6)[labels]
    parts = features[:, :160].astype(np.float32), labels[:160]
    parts += features[:, 160:].astype(np.float32), labels[160:]
    found: dict[str, Any] = {
        f"{solver}.{scaling}": linear_evaluation(*parts, solver=solver, scaling=scaling, C=c)
        for solver, scaling, c in (
            ("device", "minmax", 10.0),
            ("device", "standard", 0.1),
            ("device", "none", 1.0),
            ("sklearn", "minmax", 10.0),
            ("saga", "standard", 1.0),
        )
    }
    found["knn"] = knn_accuracy(*parts, k=9)
    found["knn_blocks"] = knn_accuracy(*parts, k=20, temperature=0.5, block=7)
    return found


# -- tasks of known answer -------------------------------------------------------------------------


@run("tasks")
def _tasks(_: Path) -> Any:
    from pointdep.data.tasks import TASKS, make_task

    found = {}
    for name in TASKS:
        task = make_task(name, 40, seed=3)
        found[name] = {
            "mi": task.mutual_information,
            "x": Shorter(task.x),
            "y": Shorter(task.y),
            "pmi": Shorter(task.pmi),
            "log_ratio": Shorter(task.log_ratio(task.x, np.roll(task.y, 1, 0))),
        }
    return found


# -- the command line ------------------------------------------------------------------------------


def cli(*arguments: Any, json_too: bool = True) -> Any:
    """Run ``pointdep ...`` in this process; its JSON, or the lines that it printed."""
    words = [str(argument) for argument in arguments] + (["--json"] if json_too else [])
    printed, complained, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["pointdep", *words]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
            runpy.run_module("pointdep", run_name="__main__", alter_sys=False)
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    if code:
        raise RuntimeError(f"pointdep {' '.join(words)}: {code}\n{complained.getvalue()}")
    return json.loads(printed.getvalue()) if json_too else printed.getvalue().splitlines()


FAST = ("--device", "cpu", "--quiet", "--hidden", 16, "--folds", 2, "--max-epochs", 6)


def _files(tmp: Path, rows: int = 240, **options: Any) -> tuple[Path, Path]:
    x, y = pairs(rows, **options)
    np.save(tmp / "x.npy", x)
    np.save(tmp / "y.npy", y)
    return tmp / "x.npy", tmp / "y.npy"


@run("cli-mi")
def _cli_mi(tmp: Path) -> Any:
    x, y = _files(tmp)
    table = pd.DataFrame(np.hstack(pairs(160)), columns=list("abcde"))
    table["group"] = np.arange(160) // 2
    table.to_csv(tmp / "both.csv", index=False)
    options = "--x-columns", "a,b", "--y-columns", "d,e", "--group-column", "group"
    return {
        "checked": cli("mi", x, y, *FAST, "--check", "--confidence", 0.9),
        "shuffled": cli("mi", x, y, *FAST, "--critic", "concat", "--shuffles", 9),
        "ksg": cli("mi", x, y, "-m", "ksg", "--method-option", "k=3", "--quiet"),
        "table": cli("mi", tmp / "both.csv", *options, *FAST, "-m", "dm2", "--seed", 4),
        "stream": cli("mi", x, y, *FAST, "--stream"),
        "lines": len(cli("mi", x, y, "-m", "cca", "--bits", "--quiet", json_too=False)),
    }


@run("cli-fit-score-retrieve")
def _cli_fit(tmp: Path) -> Any:
    x, y = _files(tmp, dx=3, dy=3)
    model = tmp / "model"
    found = {"fit": cli("fit", x, y, "-o", model, "--oof", tmp / "oof.csv", *FAST)}
    quiet = "--device", "cpu", "--quiet"
    found["score"] = cli("score", model, x, y, "-o", tmp / "pmi.csv", *quiet)
    found["retrieve"] = cli("retrieve", model, x, y, "-k", 3, "-o", tmp / "best.csv", *quiet)
    np.save(tmp / "few.npy", np.load(x)[:8])
    found["json"] = cli("retrieve", model, tmp / "few.npy", y, "-k", 2, *quiet)
    found["paired"] = cli("retrieve", model, y, x, "--queries", "y", "--paired", *quiet)
    found["saved"] = cli(
        *("retrieve", model, x, y, "--save-index", tmp / "index", "-o", tmp / "i.csv", *quiet)
    )
    found["index"] = cli(
        *("retrieve", model, x, "--candidates-index", tmp / "index", "-o", tmp / "j.csv", *quiet)
    )
    for name in ("oof", "pmi", "best", "i", "j"):
        found[f"{name}_csv"] = _table(pd.read_csv(tmp / f"{name}.csv"))
    return found


@run("cli-score-shards")
def _cli_shards(tmp: Path) -> Any:
    model, x, y = _scored_shards(tmp)
    quiet = "--device", "cpu", "--quiet"
    return {
        "score": cli("score", model, x, y, "-o", tmp / "scores", *quiet),
        "suspects": cli("score", model, x, y, "-o", tmp / "audit", "--suspects", *quiet),
        "scores_table": _read_shards(tmp / "scores"),
        "audit_table": _read_shards(tmp / "audit"),
    }


@run("cli-audit")
def _cli_audit(tmp: Path) -> Any:
    x, y = _planted()
    np.savez(tmp / "pairs.npz", x=x, y=y)
    written = "-o", tmp / "page.html", "--table", tmp / "rows.csv"
    found = {"json": cli("audit", tmp / "pairs.npz", *written, *FAST)}
    found["rows"] = _table(pd.read_csv(tmp / "rows.csv"))
    found["page"] = (tmp / "page.html").stat().st_size > 10_000
    return found


@run("cli-calibrate")
def _cli_calibrate(tmp: Path) -> Any:
    x, y = _embeddings()
    np.save(tmp / "x.npy", x)
    np.save(tmp / "y.npy", y)
    quiet = "--device", "cpu", "--quiet"
    found = {}
    for loss in ("sigmoid", "softmax_one_sided"):
        options = "--loss", loss, "--as-they-are", "--oof", tmp / f"{loss}.csv"
        found[loss] = cli(
            *("calibrate", tmp / "x.npy", tmp / "y.npy", *options, "-o", tmp / loss, *quiet)
        )
        found[f"{loss}_csv"] = _table(pd.read_csv(tmp / f"{loss}.csv"))
    return found


@run("cli-pretrain")
def _cli_pretrain(tmp: Path) -> Any:
    common = "--device", "cpu", "--quiet", "--limit", 64, "--batch-size", 32, "--precision", 32
    sizes = "--width", 8, "--depth", 2, "--epochs", 1
    simclr = "--model", "simclr", "--width", 4, "--epochs", 1, "--objective", "drfc"
    found = {
        "shallow": cli(
            *("pretrain", "digits", *common, *sizes, "--objective", "cpc,pcc", "--seeds", 2),
            *("--evaluate-every", 1, "-o", tmp / "a"),
        ),
        "simclr": cli("pretrain", "digits", *common, *simclr, "-o", tmp / "b"),
    }
    for name in "ab":
        table = pd.read_csv(tmp / name / "history.csv").drop(columns="seconds")
        found[f"history_{name}"] = _table(table)
    return found


@run("cli-bench")
def _cli_bench(tmp: Path) -> Any:
    tasks = "gaussian-1,label,spiral-3"
    chosen = "--tasks", tasks, "--estimators", "cca,ksg,likelihood,ulsif,phsic", "--rows", 80
    found = {"json": cli("bench", *chosen, "--seeds", 1, "-o", tmp / "bench", "--quiet")}
    found["files"] = sorted(path.name for path in (tmp / "bench").iterdir())
    found["list"] = cli("bench", "--list", json_too=False)
    return found


@run("cli-bench-network")
def _cli_bench_network(_: Path) -> Any:
    chosen = "--tasks", "label", "--estimators", "pc:bilinear", "--rows", 40, "--seeds", 1
    return cli("bench", *chosen, "--device", "cpu", "--quiet")


@run("cli-plan")
def _cli_plan(_: Path) -> Any:
    return {
        "cpu": cli("plan", 1e6, 512, "--cores", 2),
        "gpu": cli("plan", 10_000, 8, "--gpu"),
    }


def _words(tmp: Path) -> Path:
    random = np.random.default_rng(0)
    sound = random.normal(size=(160, 6))
    text = sound[:, :5] + 0.3 * random.normal(size=(160, 5))
    ends = ("ly", "s", "ing", "a")
    words = [f"word{row}{ends[row % 4]}" for row in range(160)]
    np.savez(tmp / "words.npz", words=words, audio=sound, text=text)
    return tmp / "words.npz"


def _reproduced(tmp: Path, part: str, *options: Any) -> dict[str, Any]:
    folder = tmp / part
    found = cli("reproduce", part, *options, "--device", "cpu", "-o", folder, "--quiet")
    return {"json": found, "files": sorted(path.name for path in folder.iterdir())}


def _add_reproduced() -> None:
    digits = (
        "--dataset", "digits", "--limit", 64, "--seeds", 1, "--precision", 32,
    )  # fmt: skip
    words = "--batch-size", 16, "--epochs", 3, "--hidden", 8, "--embedding-dim", 4
    words += "--test-words", 40
    for name, part, options in (
        (
            "figure1", "figure1",
            ("--dim", 2, "--batch-size", 6, "--iterations", 20, "--hidden", 6, "--precision",
             "float32"),
        ),
        (
            "figure1-separable", "figure1",
            ("--methods", "cpc,pc,drf", "--critic", "separable", "--dim", 2, "--batch-size", 6,
             "--iterations", 20, "--hidden", 6, "--seeds", 2, "--tasks", "cubic"),
        ),
        (
            "theorem1", "theorem1",
            ("--rows", "50,60", "--dim", 2, "--hidden", 4, "--seeds", 2, "--methods", "pc"),
        ),
        (
            "figure2-shallow", "figure2",
            (*digits, "--iterations", 6, "--evaluate-every", 3, "--width", 8, "--depth", 2,
             "--batch-size", 16),
        ),
        (
            "figure2-deep", "figure2",
            (*digits, "--part", "deep", "--epochs", 1, "--width", 4, "--depth", 1, "--batch-size",
             32, "--objectives", "pcc,drfc"),
        ),
        (
            "simclr", "simclr",
            (*digits, "--epochs", 1, "--evaluate-every", 1, "--width", 4, "--batch-size", 32,
             "--objectives", "cpc,drfc", "--pd-rows", 0),
        ),
    ):  # fmt: skip
        RUNS[f"cli-reproduce-{name}"] = lambda tmp, part=part, options=options: _reproduced(
            tmp, part, *options
        )
    RUNS["cli-reproduce-table1"] = lambda _: cli("reproduce", "table1")
    RUNS["cli-reproduce-table2"] = lambda tmp: _reproduced(
        tmp, "table2", "--data", _words(tmp), *words, "--draws", 3
    )
    RUNS["cli-reproduce-figure3"] = lambda tmp: _reproduced(
        tmp, "figure3", "--data", _words(tmp), *words, "--folds", 2
    )


_add_reproduced()


# -- recording -------------------------------------------------------------------------------------


def _leaves(value: Any, path: str, edge: int = EDGE) -> Iterator[tuple[str, Any]]:
    """(key, plain value) of everything inside; arrays become a summary."""
    if isinstance(value, Shorter):
        yield from _leaves(value.value, path, 0)
    elif isinstance(value, Tensor):
        yield from _leaves(value.detach().cpu().numpy(), path, edge)
    elif isinstance(value, np.ndarray) and value.ndim:
        yield path, _summary(value, edge)
    elif isinstance(value, np.ndarray | np.generic):
        yield from _leaves(value.item(), path, edge)
    elif isinstance(value, pd.DataFrame):
        yield from _leaves(_table(value), path, edge)
    elif is_dataclass(value) and not isinstance(value, type):
        inside = {field.name: getattr(value, field.name) for field in fields(value)}
        yield from _leaves(inside, path, edge)
    elif isinstance(value, Mapping):
        if not value:
            yield path, "{}"
        for name, one in value.items():
            yield from _leaves(one, f"{path}.{name}" if path else str(name), edge)
    elif isinstance(value, list | tuple):
        yield from _flatten_list(value, path, edge)
    elif isinstance(value, float):
        yield path, value if math.isfinite(value) else str(value)
    else:
        yield path, value if isinstance(value, bool | int | None) else str(value)[:_TEXT]


def _flatten_list(value: Sequence[Any], path: str, edge: int) -> Iterator[tuple[str, Any]]:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
    if not value:
        yield path, "[]"
    elif numbers and len(value) > 8:
        yield path, _summary(np.asarray(value), edge)
    elif len(value) > 8 and all(isinstance(one, Mapping) for one in value):
        # A table: column by column, so that long ones stay short.
        names = list(dict.fromkeys(name for one in value for name in one))
        yield f"{path}.length", len(value)
        for name in names:
            yield from _leaves(_column([one.get(name) for one in value]), f"{path}[].{name}", edge)
    else:
        for number, one in enumerate(value):
            yield from _leaves(one, f"{path}[{number}]", edge)


def _column(values: Sequence[Any]) -> Any:
    """An array, where the values are numbers, words, or lists of them that are equally long."""
    lists = [list(one) if isinstance(one, list | tuple) else [one] for one in values]
    plain = all(isinstance(one, int | float | str) for row in lists for one in row)
    if not plain or len({len(row) for row in lists}) > 1:
        return dict(enumerate(values))
    words = any(isinstance(one, str) for row in lists for one in row)
    return np.array(lists, dtype=object if words else None)


def _summary(array: Any, edge: int) -> Any:
    """Shape, type, moments and both ends of an array; without an edge a trace of it."""
    if array.dtype.kind not in "biufc":
        missing = pd.isna(array)
        if missing.all() or all(isinstance(one, int | float) for one in array[~missing]):
            numbers = np.where(missing, np.nan, np.where(missing, 0, array)).astype(np.float64)
            return _summary(numbers, edge)
        words = [str(one)[:_TEXT] for one in array.reshape(-1)]
        return {"shape": list(array.shape), "first": words[:edge], "last": words[-edge:]}
    flat = array.reshape(-1).astype(np.float64)
    known = flat[np.isfinite(flat)]
    digits = 9 if array.dtype == np.float32 else 17  # as many as tell its values apart
    wave = np.cos(np.arange(len(flat)))  # a sum that another order of the values changes
    found = {
        "shape": list(array.shape),
        "peak": _rounded(np.abs(known).max() if len(known) else 0.0),
        "wave": _rounded((wave * np.where(np.isfinite(flat), flat, 0.0)).sum()),
    }
    if not edge:
        return found
    found |= {
        "type": str(array.dtype),
        "not_finite": int(len(flat) - len(known)),
        "mean": _rounded(known.mean() if len(known) else 0.0),
        "std": _rounded(known.std() if len(known) else 0.0),
        "first": _values(flat[:edge], digits),
    }
    if len(flat) > edge:
        found["last"] = _values(flat[max(edge, len(flat) - edge) :], digits)
    return found


def _rounded(value: Any) -> float:
    return float(f"{value:.12g}")


def _values(values: Any, digits: int) -> list[Any]:
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else str(v) for v in values]


def perform(name: str) -> dict[str, Any]:
    """The flat record of one run."""
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        np.random.seed(0)
        torch.set_num_threads(1)
        before = Path.cwd()
        os.chdir(scratch)
        try:
            found = dict(_leaves(RUNS[name](Path(scratch)), ""))
        finally:
            os.chdir(before)
    return {
        key: "*" if KEYS_ONLY.search(key) or scratch in str(value) else value
        for key, value in found.items()
    }


def record(path: Path, only: str | None) -> int:
    runs = {}
    for name in _chosen(only):
        started = time.perf_counter()
        runs[name] = perform(name)
        print(f"{name:44} {time.perf_counter() - started:6.1f} s", flush=True)
    about = {
        "about": "written by benchmarks/golden.py record",
        "pointdep": pointdep.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "exemptions": [dict(zip(("run", "key", "reason"), one, strict=True)) for one in EXEMPT],
    }
    lines = [f" {json.dumps(n)}: {json.dumps(r, separators=(',', ':'))}" for n, r in runs.items()]
    head = json.dumps(about, indent=1)[:-2]
    path.write_text(f'{head},\n "runs": {{\n' + ",\n".join(lines) + "\n }\n}\n", "utf-8")
    print(f"{len(runs)} runs, {path.stat().st_size / 1e3:.0f} kB: {path}")
    return 0


def _chosen(only: str | None) -> list[str]:
    chosen = [name for name in RUNS if only is None or fnmatch(name, only) or only in name]
    if not chosen:
        raise SystemExit(f"no run is called {only}: see --list")
    return chosen


# -- comparing -------------------------------------------------------------------------------------


class Difference:
    """Between two records of a run: how far numbers moved, and what is not the same."""

    def __init__(self, run_name: str, tolerance: float) -> None:
        self.run, self.tolerance = run_name, tolerance
        self.absolute = self.relative = 0.0
        self.faults: list[str] = []
        self.texts: list[str] = []

    def records(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
        places = [{self._place(key): key for key in part} for part in (old, new)]
        for name, own, other in (("missing", *places), ("new", *reversed(places))):
            self.faults += [
                f"{name}: {key}" for place, key in own.items() if place and place not in other
            ]
        for key in (key for key in old if key in new and not self._is_exempt(key)):
            self._values(key, old[key], new[key])
        return self

    def _place(self, key: str) -> str:
        """The key itself; of what is exempt, without the number or the count of entries."""
        if not self._is_exempt(key):
            return key
        return "" if key.endswith(".length") else re.sub(r"\[\d+\]", "[]", key)

    def _is_exempt(self, key: str) -> bool:
        return any(fnmatch(self.run, run) and fnmatch(key, name) for run, name, _ in EXEMPT)

    def _values(self, key: str, old: Any, new: Any, scale: float = 1.0) -> None:
        if isinstance(old, dict) and isinstance(new, dict):
            self._arrays(key, old, new)
        elif isinstance(old, float) and isinstance(new, float):
            self._number(key, old, new, scale)
        elif isinstance(old, str) and isinstance(new, str) and " " in old:
            if old != new:
                self.texts.append(f"{key}: {old!r} -> {new!r}")
        elif isinstance(old, bool) != isinstance(new, bool) or old != new:
            self.faults.append(f"{key}: {old!r} -> {new!r}")

    def _arrays(self, key: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        for part in ("shape", "type"):
            if old.get(part) != new.get(part):
                self.faults.append(f"{key}.{part}: {old.get(part)} -> {new.get(part)}")
                return
        size = max(old.get("peak", 0.0), 1e-30)
        rows = math.sqrt(max(1, math.prod(old["shape"])))
        for part, value in old.items():
            if part in ("first", "last"):
                for number, values in enumerate(zip(value, new[part], strict=True)):
                    self._values(f"{key}.{part}[{number}]", *values, scale=size)
            elif part not in ("shape", "type"):
                scale = size * rows if part == "wave" else size
                self._values(f"{key}.{part}", value, new[part], scale=scale)

    def _number(self, key: str, old: float, new: float, scale: float) -> None:
        absolute = abs(new - old)
        relative = absolute / max(scale, abs(old))
        self.absolute, self.relative = (
            max(self.absolute, absolute),
            max(self.relative, relative),
        )
        if relative > self.tolerance:
            self.faults.append(f"{key}: {old!r} -> {new!r} ({relative:.1e})")


def compare(path: Path, tolerance: float, only: str | None, texts: bool) -> int:
    recorded = json.loads(path.read_text("utf-8"))["runs"]
    wanted = [n for n in recorded if only is None or fnmatch(n, only) or only in n]
    names = list(dict.fromkeys([*wanted, *(n for n in RUNS if n in _chosen(only))]))
    print(f"{'run':44} {'relative':>9} {'absolute':>9}  {'seconds':>7}")
    bad = changed = 0
    for name in names:
        started = time.perf_counter()
        found = Difference(name, tolerance)
        if name not in RUNS or name not in recorded:
            found.faults.append("not recorded" if name in RUNS else "there is no such run now")
        else:
            try:
                found.records(recorded[name], perform(name))
            except Exception as error:
                found.faults.append(f"failed: {type(error).__name__}: {error}")
        took = time.perf_counter() - started
        noted = f"  {len(found.texts)} sentences differ" if found.texts else ""
        verdict = f"  {len(found.faults)} DIFFER" if found.faults else ""
        numbers = f"{found.relative:9.1e} {found.absolute:9.1e}"
        print(f"{name:44} {numbers}  {took:7.1f}{verdict}{noted}", flush=True)
        for line in found.faults[:12] + (found.texts if texts else []):
            print(f"    {line[:300]}")
        bad, changed = bad + bool(found.faults), changed + len(found.texts)
    for run_name, key, reason in EXEMPT:
        print(f"not compared: {run_name} {key} ({reason})")
    print(f"{len(names) - bad} of {len(names)} runs as recorded, {changed} sentences differ")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--list", action="store_true", help="print the names of the runs")
    commands = parser.add_subparsers(dest="command")
    for name in ("record", "compare"):
        command = commands.add_parser(name)
        command.add_argument("file", type=Path)
        command.add_argument("--only", help="a run, a part of its name, or a pattern")
        if name == "compare":
            command.add_argument("--tolerance", type=float, default=1e-6)
            command.add_argument("--texts", action="store_true", help="show changed sentences")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(RUNS))
        return 0
    if asked.command is None:
        parser.error("record FILE or compare FILE")
    path = asked.file.resolve()
    if asked.command == "record":
        return record(path, asked.only)
    return compare(path, asked.tolerance, asked.only, asked.texts)


if __name__ == "__main__":
    sys.exit(main())
