"""Fitting on stored rows: the same batches, numbers and flags as on rows in memory."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from made import correlated
from pointdep import PointwiseDependency
from pointdep.core.methods import get_method
from pointdep.core.transforms import RankMap
from pointdep.data import stored_pairs
from pointdep.data.encoder import SideEncoder
from pointdep.data.row_source import ArrayRows
from pointdep.data.sides import as_side
from pointdep.errors import FitWarning
from pointdep.estimators import assembly, fit_rows
from pointdep.fitting import data_flags, streamed_rows
from pointdep.fitting.batches import RowBatches, TrainingOptions
from pointdep.fitting.data_flags import CopyCount, duplicate_flags
from pointdep.fitting.fold_plan import make_plan
from pointdep.fitting.progress import Silent
from pointdep.fitting.streamed_rows import StreamedSide
from refusals import quietly, refused

CPU = torch.device("cpu")


def plan(rows=1000, **changed):
    given = {"folds": 5, "stop_fraction": 0.15, "most_stop": 100, "most_kept": 400, "codes": None}
    return make_plan(rows, **{"seed": 0, **given, **changed})


def opened(x, y, codes=None, **changed):
    given = {"discrete": (None, None), "folds": 3, "stop_fraction": 0.15, "seed": 4, "device": CPU}
    given["missing"] = "error"
    return fit_rows.stream_rows(x, y, codes, progress=Silent(), **{**given, **changed})


def small_model(critic="concat"):
    settings = assembly.CriticSettings(critic, (8,), 8, "auto", "auto")
    return assembly.make_model(settings, get_method("pc"), 3, 3, 2)


class TestPlan:
    @settings(max_examples=40, deadline=None)
    @given(st.integers(40, 500), st.integers(1, 6), st.booleans())
    def test_each_row_has_its_place(self, rows, folds, grouped):
        drawn = np.random.default_rng(rows).integers(0, 30, rows)
        codes = np.unique(drawn, return_inverse=True)[1] if grouped else None
        made = plan(rows, folds=folds, codes=codes, most_kept=150)
        everything, reported = np.arange(rows), np.zeros(rows, int)
        for r in range(folds):
            trains = made.trains(r, everything)
            reported += made.fold == r
            assert not (trains & (made.fold == r)).any()
            assert not (trains & made.held).any()
            assert trains.sum() == made.training_rows()[r]
        assert (reported == (1 if folds > 1 else made.fold == 0)).all()
        assert np.isin(np.flatnonzero(made.held), made.kept).all()
        if codes is not None:
            for values in (made.fold, made.held):
                pairs = np.unique(np.stack([codes, values]), axis=1)
                assert pairs.shape[1] == len(np.unique(codes))

    def test_splits_of_the_kept_rows(self):
        made = plan()
        assert (len(made.kept), made.held.sum()) == (400, 100)
        for r, split in enumerate(made.splits()):
            kept = made.kept
            assert (made.fold[kept[split.report]] == r).all()
            assert made.held[kept[split.stop]].all()
            assert made.trains(r, kept[split.train]).all()
            assert len(split.train) + len(split.stop) + len(split.report) == 400

    def test_every_replica_has_stopping_rows_of_two_groups_and_mistakes(self):
        codes = np.repeat(np.arange(10), 100)
        for seed, folds in itertools.product(range(20), (1, 2, 5)):
            made = plan(folds=folds, codes=codes, seed=seed)
            for split in made.splits():
                assert len(np.unique(codes[made.kept[split.stop]])) >= 2
        for seed in range(50):
            made = plan(20, folds=2, seed=seed)
            assert min(len(split.stop) for split in made.splits()) >= 2
        refused("at most 127", plan, folds=500)
        refused("stop_fraction", plan, stop_fraction=2)
        refused("groups has 1 distinct", plan, codes=np.zeros(1000, np.int64))


class TestRows:
    @pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "u2", "i8"])
    @pytest.mark.parametrize("table", [True, False])
    def test_the_same_numbers_as_in_memory(self, dtype, table, monkeypatch):
        monkeypatch.setattr(streamed_rows, "_TABLE_ROWS", 0 if table else 10**9)
        values = (50 + 12 * np.random.default_rng(0).normal(size=(700, 6))).astype(dtype)
        values[:, 2] = 7  # constant: dropped
        raw = as_side(values, "X", discrete=False)
        with pytest.warns(match="dropped 1 column"):
            encoder = SideEncoder.fit(raw, "X")
        encoded = torch.from_numpy(encoder.encode(raw))
        front = RankMap(5).fit(encoded, torch.ones(5, dtype=torch.bool))
        side = StreamedSide(ArrayRows(values), encoder, front, CPU)
        assert torch.equal(side.tensor(values[100:400]), front(encoded)[100:400])

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.05, 0.5])  # 0.01 of all rows is said
    @pytest.mark.parametrize("most", [10**9, 500])
    def test_as_of_rows_in_memory(self, share, most, monkeypatch):
        monkeypatch.setattr(data_flags, "_MOST", most)
        x, y = (torch.from_numpy(side).double() for side in correlated(4000))
        drawn = torch.randperm(4000, generator=torch.Generator().manual_seed(1))
        again = drawn[: int(4000 * share)]
        x, y = torch.cat([x, x[again]]), torch.cat([y, y[again]])
        count = CopyCount()
        for a, b in zip(x.split(300), y.split(300), strict=True):
            count.add(a, b)
        assert [f.name for f in count.flags()] == [f.name for f in duplicate_flags(x, y)]
        if most > len(x):
            assert count.flags() == duplicate_flags(x, y)


def test_one_chunk_gives_the_batches_of_rows_in_memory():
    model = small_model()
    mapped = opened(*correlated(400)).prepare(model)
    kept = mapped.paired
    assert len(kept.x) == 400
    options = TrainingOptions(batch_size=24, block=4, seed=9)
    streamed = mapped.batches(model, options, Silent())
    held = RowBatches(kept.x, kept.y, [s.train for s in kept.splits], options)
    for epoch in range(2):
        (steps,) = {len(split.train) // 24 for split in kept.splits}
        ours = list(streamed.draw(epoch, 0, steps, [0, 2]))
        theirs = list(held.draw(epoch, epoch * steps, steps, [0, 2]))
        assert len(ours) == len(theirs) == streamed.steps(1)
        for a, b in zip(ours, theirs, strict=True):
            for name in ("x", "y", "joint", "product"):
                assert torch.equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("critic", ["auto", "concat"])
def test_one_chunk_trains_the_model_of_rows_in_memory(critic):
    stream = opened(*correlated(360))
    rows = stream.plan.training_rows()
    # One for which both ways of reading have as many steps in an epoch.
    size = next(s for s in range(8, 40, 2) if {n // s for n in rows} == {round(max(rows) / s)})
    options = TrainingOptions(batch_size=size, block=2, max_epochs=3, min_steps=1, seed=1)
    trained = []
    for streamed in (True, False):
        model = small_model(critic)
        mapped = stream.prepare(model)
        batches = mapped.batches(model, options, Silent()) if streamed else None
        assembly.train_model(model, mapped.paired, options, batches=batches, keep_unproven=True)
        trained.append(model.state_dict())
    for name, values in trained[0].items():
        assert torch.equal(values, trained[1][name]), name


def test_every_training_row_comes_once_an_epoch_but_for_the_rest(monkeypatch):
    monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 5 * 1000)
    x, y = correlated(4000)
    x[:, 0] = np.arange(4000)  # names the row
    stream, model = opened(x, y), small_model()
    mapped = stream.prepare(model)
    batches = mapped.batches(model, TrainingOptions(batch_size=32, block=4), Silent())
    kept = mapped.paired.encoder_x
    for replica in range(3):
        parts = [cells.x[..., 0].flatten() for cells in batches.draw(0, 0, 0, [replica])]
        drawn = torch.cat(parts).double().numpy()
        rows = np.rint(drawn * kept.scale[0] + kept.center[0]).astype(int)
        assert len(np.unique(rows)) == len(rows)
        assert stream.plan.trains(replica, rows).all()
        assert len(rows) > 0.85 * stream.plan.training_rows()[replica]
        assert len(np.unique(rows[:400] // 1000)) >= 2  # from several places


@pytest.mark.parametrize("method", ["pc", "cpc"])
def test_rows_kept_on_the_device_are_those_that_are_read(monkeypatch, method):
    """Here the device is the CPU, which keeps none unless it is told that it has room."""
    x, y = correlated(1500, dtype=np.float16)
    monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 1 << 12)
    options = {"hidden": (8,), "folds": 2, "max_epochs": 2, "progress": False, "random_state": 0}
    asked = []

    def fitted(free):
        monkeypatch.setattr(streamed_rows, "_free_bytes", lambda device: asked.append(free) or free)
        return PointwiseDependency(method=method, stream=True, **options).fit(x, y)

    with quietly(FitWarning):
        read, kept = fitted(0), fitted(4 * 1500 * 5 * 4)
    assert set(asked) == {0, 4 * 1500 * 5 * 4}
    np.testing.assert_array_equal(kept.oof_pmi_, read.oof_pmi_)
    assert kept.mutual_information().nats == read.mutual_information().nats


def test_the_digest_of_rows_knows_their_order_and_copies():
    x, y = (torch.from_numpy(side.astype(np.float64)) for side in correlated(50))

    def digest(order, cuts=(0,)):
        found = CopyCount()
        for start, stop in zip(cuts, [*cuts[1:], len(order)], strict=True):
            found.add(x[order[start:stop]], y[order[start:stop]], start)
        return found.digest

    order = list(range(50))
    assert digest(order) == digest(order, (0, 7, 30))
    assert digest(order) != digest([1, 0, *order[2:]])
    assert digest([*order, 3, 3]) != digest([*order, 4, 4])
