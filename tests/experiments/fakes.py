"""Estimators whose answers are known, in place of those that take seconds."""

import numpy as np

from pointdep.data.tasks import make_task
from pointdep.errors import Flag, InputError
from pointdep.experiments import bench
from pointdep.inference.mutual_information import MIEstimate


class Oracle:
    """Knows the task; every answer is off by `bias`."""

    flags_ = (Flag("not_converged", (0,), "it did not"), Flag("saturated", (0,), "it is"))

    def __init__(self, task, bias, seed):
        self.task, self.bias, self.seed = make_task(task, 10), bias, seed

    def fit(self, x, y):
        assert len(x) == len(y)
        self.fitted = x
        return self

    def mutual_information(self, *, confidence):
        nats = self.task.mutual_information + self.bias
        return MIEstimate(nats, 0.05, (nats - 0.1, nats + 0.1), confidence)

    def pmi(self, x, y):
        assert x.ndim == 1 or not np.isin(x, self.fitted).any()  # fresh rows
        return self.task.log_ratio(x, y) + self.bias


class Rankless(Oracle):
    """No PMI, as nearest neighbours."""

    def pmi(self, x, y):
        raise InputError("ksg gives no PMI\nof new pairs")


class Broken(Oracle):
    """Fails in a way that nobody foresaw."""

    def fit(self, x, y):
        raise ZeroDivisionError("division by zero")


def install(monkeypatch, calls=None):
    """`pc` is right, `dv` is off by 0.5, `ksg` has no PMI, and `cca` is broken."""
    kinds = {"pc": (Oracle, 0.0), "dv": (Oracle, 0.5), "ksg": (Rankless, 0.0), "cca": (Broken, 0.0)}
    original = bench.measure

    def on_task(run):
        def make(name, *, seed, device):
            assert (name, seed, device) == (run.estimator, run.seed, "cpu")
            if calls is not None:
                calls.append((run.task, run.estimator, run.rows, run.seed))
            kind, bias = kinds[name]
            return kind(run.task, bias, seed)

        monkeypatch.setattr(bench, "make_estimator", make)
        return original(run)

    monkeypatch.setattr("pointdep.experiments.bench.measure", on_task)
