"""Flags about the data, on the way a user meets them."""

import numpy as np
import pandas as pd
import pytest

from pointdep.data.tasks import make_task
from pointdep.inference.mutual_information import MIEstimate
from pointdep.inference.out_of_fold import wide_flags

from .helpers import fit, pairs


def names(flags):
    return [flag.name for flag in flags]


def auto(x, y, **options):
    return fit(x, y, critic="auto", hidden=(8, 4), **options)


@pytest.mark.parametrize(("rows", "few"), [(99, True), (100, False)])
def test_few_rows(rows, few):
    found = auto(*pairs(rows), max_epochs=1)
    assert ("few_rows" in names(found.flags_)) == few
    notes = [note for note in found.mutual_information().warnings if note.startswith("few_rows:")]
    assert bool(notes) == few
    assert all(f"({rows}, of 100 at least)" in note for note in notes)


@pytest.mark.parametrize(
    ("nats", "ci", "wide"),
    [
        (0.49, (0.0, 1.13), True),
        (2.91, (2.51, 3.31), False),  # narrow beside the estimate
        (0.01, (0.0, 0.4), False),  # no more than 0.4, whatever it is
        (1.5, (1.1, 1.9), True),
        (1.5, (1.2, 1.8), False),
        (float("nan"), (float("nan"),) * 2, False),
    ],
)
def test_wide_intervals(nats, ci, wide):
    found = MIEstimate(nats, stderr=1.0, ci=ci)
    assert names(wide_flags(found)) == ["wide_interval"] * wide


@pytest.mark.parametrize(("rows", "wide"), [(60, True), (1500, False)])
def test_an_interval_that_says_little_is_flagged(rows, wide):
    model = auto(*pairs(rows), max_epochs=20)
    assert ("wide_interval" in names(model.flags_)) == wide
    notes = [note.split(":")[0] for note in model.mutual_information().warnings]
    assert ("wide_interval" in notes) == wide


def test_data_doubled():
    x, y = pairs(120)
    both = np.concatenate([x, x]), np.concatenate([y, y])
    found = auto(*both)
    assert "duplicated_rows" in names(found.flags_)
    assert any("duplicated_rows" in note for note in found.mutual_information().warnings)
    assert "duplicated_rows" in names(fit(*both, critic="concat").flags_)
    grouped = auto(*both, groups=np.arange(240) % 120)
    assert "duplicated_rows" not in names(grouped.flags_)


@pytest.mark.parametrize("name", ["table", "zero-inflated", "label", "gaussian-1"])
def test_data_that_repeat_by_nature(name):
    task = make_task(name, 400)
    assert "duplicated_rows" not in names(auto(task.x, task.y).flags_)


@pytest.mark.parametrize("critic", ["auto", "concat"])
def test_y_is_x(critic):
    x = np.random.default_rng(0).standard_normal((300, 2))
    model = fit(x, x, critic=critic, hidden=(8, 4), max_epochs=5)
    found = model.mutual_information()
    assert np.isfinite([found.nats, found.stderr]).all()
    assert found.nats > 0.3
    assert ("determined" in names(model.flags_)) == (critic == "auto")


def test_a_shared_column_among_others():
    x, y = pairs(300, x_dim=3)
    y[:, 1] = np.exp(x[:, 2])
    found = {flag.name: flag.message for flag in auto(x, y).flags_}
    assert "X column 2 and Y column 1 have the same" in found["determined"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_shared_column_is_named(stream):
    x, y = (pd.DataFrame(side).add_prefix("c") for side in pairs(300))
    x.insert(1, "id", np.arange(300))
    y["id"] = np.arange(300)
    found = {flag.name: flag.message for flag in auto(x, y, stream=stream).flags_}
    assert "X column 'id' and Y column 'id' have the same values" in found["determined"]


def test_labels_that_determine_each_other_are_no_fault():
    labels = np.random.default_rng(0).integers(0, 3, 300)
    model = auto(labels, labels)
    assert "determined" not in names(model.flags_)
    assert np.isfinite(model.mutual_information().nats)
