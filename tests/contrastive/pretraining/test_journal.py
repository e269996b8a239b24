"""History, table and event files of a run."""

import csv
import math
import time

import pytest

from pointdep.contrastive.pretraining.loop import Journal


def entry(step, **values):
    return {"epoch": step / 4, "step": step, "seconds": 1.0 * step, "rate": 0.1, **values}


def test_the_last_values_of_each_kind_are_found():
    journal = Journal(["a", "b"])
    journal.add(entry(4, loss=[1.0, 2.0], knn=[0.5, 0.6]))
    journal.add(entry(8, loss=[0.5, math.nan]))
    assert journal.last("loss") == [0.5, None]
    assert journal.last("knn") == [0.5, 0.6]
    assert journal.last("linear") == [None, None]


def test_the_table_has_a_line_an_entry_and_replica(tmp_path):
    journal = Journal(["a", "b"])
    journal.add(entry(4, loss=[1.0, 2.0], knn=[0.5, 0.6]))
    journal.add(entry(8, loss=[0.5, math.nan]))
    journal.write_csv(tmp_path / "history.csv")
    with (tmp_path / "history.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["run"], line["step"]) for line in lines] == [
        ("a", "4"), ("b", "4"), ("a", "8"), ("b", "8"),
    ]  # fmt: skip
    assert lines[1]["knn"] == "0.6"
    assert (lines[3]["loss"], lines[3]["knn"]) == ("", "")


def test_tensorboard_reads_what_was_written_without_the_steps_of_a_killed_run(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    killed = Journal(["a"], tmp_path)
    for step in (4, 8, 12):
        killed.add(entry(step, loss=[-1.0]))
    time.sleep(1.1)  # TensorBoard orders the files of two processes by the second in their names
    resumed = Journal(["a"], tmp_path)
    resumed.entries = killed.entries[:1]
    for step in (8, 12):
        resumed.add(entry(step, loss=[2.0], knn=[0.5]))
    resumed.close()
    events = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss/a")]
    assert found == [(4, -1.0), (8, 2.0), (12, 2.0)]
    assert [event.value for event in events.Scalars("knn/a")] == [0.5, 0.5]
