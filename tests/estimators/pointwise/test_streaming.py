"""A fit that reads its rows as it needs them, against one that holds them, and its answers."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import made
from pointdep import PointwiseDependency, audit, open_rows
from pointdep.data import stored_pairs
from pointdep.errors import DataWarning, FitWarning
from pointdep.estimators import fit_rows, pointwise
from pointdep.estimators.fit_rows import FitRows, StreamedFitRows
from pointdep.fitting import engine
from refusals import quietly, refused

ROWS, correlated = 3000, partial(made.correlated, dtype=np.float16)
TRUTH = 0.5 * np.log(1 / (1 - 1 / 1.25)) * 2  # two factors, each seen with a noise of 0.5


def fitted(x, y, groups=None, **options):
    given = {"stream": True, "folds": 3, "max_epochs": 4, "hidden": (16,), "random_state": 0}
    given |= {"learning_rate": 0.01, "progress": False}
    with quietly(FitWarning):
        return PointwiseDependency(**{**given, **options}).fit(x, y, groups)


def parquet(folder, x, y, sizes=(1200, 1800), group=500):
    """Both sides from shards of so many rows."""
    for name, values in (("x", x), ("y", y)):
        yield open_rows(made.write_shards(folder / name, {"e": values}, sizes, group))


@pytest.fixture(scope="module")
def model():
    return fitted(*correlated())


@pytest.mark.parametrize(
    ("dims", "options"),
    [((3, 2), {}), ((30, 30), {"embedding_dim": 8}), ((3, 2), {"critic": "concat"})],
)
def test_the_same_answer_as_with_rows_in_memory(dims, options):
    x, y = correlated(ROWS, *dims)
    ours, theirs = (fitted(x, y, stream=s, max_epochs=8, **options) for s in (True, False))
    one, other = ours.mutual_information(), theirs.mutual_information()
    assert abs(one.nats - TRUTH) < 0.1
    assert abs(one.nats - other.nats) < other.ci[1] - other.nats
    assert np.corrcoef(ours.oof_pmi_, theirs.oof_pmi_)[0, 1] > 0.95
    assert ours.check().passed


@pytest.mark.parametrize("method", ["cpc", "dv", "smi"])
def test_other_methods(method):
    x, y = correlated(2000)
    ours, theirs = (fitted(x, y, method=method, stream=s) for s in (True, False))
    one, other = (each.mutual_information().nats for each in (ours, theirs))
    assert one == pytest.approx(other, abs=0.15)
    assert not np.isnan(ours.oof_values_).any()


def test_every_source_of_the_same_rows_gives_the_same_model(tmp_path, model):
    x, y = correlated()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    mapped = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    for source in (mapped, parquet(tmp_path, x, y, (ROWS,), 16)):
        np.testing.assert_array_equal(fitted(*source).oof_pmi_, model.oof_pmi_)


def test_rows_sorted_on_disk_and_a_sample_of_them(monkeypatch, tmp_path, model):
    """In chunks of a sixth of the rows, of 32 blocks each."""
    x, y = correlated()
    order = np.argsort(y[:, 0])
    rows = x[order], y[order]
    monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 5 * ROWS // 6)
    stored = parquet(tmp_path, *rows, group=100)
    for source, critic in ((rows, "auto"), (rows, "concat"), (stored, "concat")):
        found = fitted(*source, critic=critic, max_epochs=8).mutual_information()
        assert abs(found.nats - TRUTH) < 0.15
    monkeypatch.setattr(fit_rows, "_KEPT_ROWS", 600)
    ours = fitted(*correlated())
    assert len(ours.training_rows_.paired.x) == 600
    assert not np.isnan(ours.oof_pmi_).any()
    assert ours.mutual_information().nats == pytest.approx(model.mutual_information().nats, abs=0.1)
    assert ours.check().passed
    assert not ours.outside(*correlated()).any()


def test_large_rows_are_streamed_and_small_ones_are_not(monkeypatch, model):
    x, y = correlated()
    monkeypatch.setattr(fit_rows, "IN_MEMORY", ROWS * 5)

    def kind(x, y, stream=None):
        return type(fitted(x, y, stream=stream, max_epochs=1).training_rows_)

    assert kind(x, y) is FitRows
    monkeypatch.setattr(fit_rows, "IN_MEMORY", ROWS * 5 - 1)
    assert kind(x, y) is StreamedFitRows
    assert kind(x, y, stream=False) is kind(x.tolist(), y.tolist()) is FitRows


def test_labels_groups_and_a_single_model():
    x, _ = correlated()
    labels = np.where(x[:, 0] > 0, "left", "right")
    ours = fitted(x, labels, np.repeat(np.arange(ROWS // 3), 3), max_epochs=10)
    assert 0.55 < ours.mutual_information().nats < 0.70
    assert ours.mutual_information().stderr > fitted(x, labels).mutual_information().stderr / 2
    assert ours.pmi(x[:4], labels[:4]).shape == (4,)
    ours = fitted(*correlated(), folds=1, max_epochs=8)
    assert np.isnan(ours.oof_pmi_).sum() == ROWS - ROWS // 5
    assert abs(ours.mutual_information().nats - TRUTH) < 0.25


def test_a_checkpoint_goes_on_to_the_same_model(tmp_path, model):
    class StopError(Exception):
        pass

    report = engine.Engine._report

    def stop(self, state):
        report(self, state)
        if state.epoch == 3:
            raise StopError

    (x, y), path = correlated(), tmp_path / "fit.ckpt"
    options, whole = {"checkpoint": path, "critic": "concat"}, fitted(x, y, critic="concat")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_CHECKPOINT_EVERY_S", 0.0)
        patch.setattr(engine.Engine, "_report", stop)
        with pytest.raises(StopError):
            fitted(x, y, **options)
    assert path.exists()
    refused("other data", fitted, x[::-1].copy(), y, **options)
    np.testing.assert_array_equal(fitted(x, y, **options).oof_pmi_, whole.oof_pmi_)
    assert not path.exists()


class TestAnswers:
    @pytest.fixture
    def in_parts(self, monkeypatch):
        monkeypatch.setattr(fit_rows, "IN_MEMORY", 0)
        monkeypatch.setattr(pointwise, "_PART", 5 * 190)

    def test_parts_answer_as_the_whole(self, tmp_path, model, in_parts):
        x, y = correlated(700, seed=1)
        calls = ("pmi", "pmi_stderr", "outside", "npmi", "pd")
        parts = [getattr(model, call)(x, y) for call in calls]
        information = model.mutual_information(x, y).nats
        sources = list(parquet(tmp_path, x, y, (700,)))
        np.testing.assert_array_equal(model.pmi(*sources), parts[0])
        np.testing.assert_array_equal(model.npmi(*sources, pmi=parts[0]), parts[3])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fit_rows, "IN_MEMORY", 1 << 27)
            for call, found in zip(calls, parts, strict=True):
                np.testing.assert_allclose(found, getattr(model, call)(x, y), rtol=1e-5, atol=1e-6)
            assert information == pytest.approx(model.mutual_information(x, y).nats, rel=1e-6)

    def test_a_bad_row_is_named_and_checks_take_some_rows(self, model, in_parts, monkeypatch):
        x, y = correlated(700, seed=1)
        x[500, 1] = np.nan
        refused(r"from row 380 to 569: X column 1 holds 1 NaN.*row 120", model.pmi, x, y)
        x, y = correlated(2000, seed=1)
        monkeypatch.setattr(pointwise, "_MOST_COMPARED", 500)
        assert model.check(x, y).rows <= 500
        assert model.score(x, y) == pytest.approx(model.score(x[:400], y[:400]), abs=0.05)


@pytest.mark.parametrize("kept", [10**6, 500])
def test_an_audit_finds_wrong_pairs(monkeypatch, kept):
    monkeypatch.setattr(fit_rows, "_KEPT_ROWS", kept)
    monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 6 * 1000)
    random = np.random.default_rng(0)
    z = random.normal(size=(ROWS, 3))
    x, y = (z + 0.1 * random.normal(size=z.shape) for _ in "xy")
    y[[10, 20]] = y[[20, 10]]
    x[2000], y[2000] = x[700], y[700]
    quick = {"max_epochs": 4, "folds": 3, "random_state": 0, "progress": False}
    with quietly(FitWarning):
        table = audit(x, y, model=PointwiseDependency(stream=True, **quick)).table
    assert table["suspect"][[10, 20]].all()
    assert table["suspect"].sum() < 20
    assert table["swapped_with"][10] == 20
    assert (np.abs(y[table["better_partner"][[10, 20]]] - x[[10, 20]]).max(1) < 0.6).all()
    assert (table["duplicate_of"][2000], table["duplicate_of"].notna().sum()) == (700, 1)
    assert (table["stderr"] > 0).all()
    refused("at least 2", audit, *correlated(), model=PointwiseDependency(stream=True, folds=1))


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (100, {"stream": "yes"}, "stream='yes' must be True, False or None"),
        (100, {"cv": object()}, "use folds with stream=True"),
        (100, {"groups": [1, 2, 3]}, "groups has 3 rows"),
        (99, {}, "X has 100 rows, Y has 99 rows"),
    ],
)
def test_options_and_lengths(rows, options, said):
    x, y = correlated(100)
    refused(said, fitted, x, y[:rows], **options)


def test_bad_numbers_constant_columns_and_another_order_are_told(tmp_path):
    x, y = correlated()
    x[1500, 1] = np.inf
    stored = parquet(tmp_path, x, y)
    refused(r"X column 1 holds infinity in row 300 of .*x/part-1.parquet", fitted, *stored)
    x, y = correlated(300)
    x[:, 2] = 1
    with pytest.warns(match="dropped 1 column"):
        assert fitted(x, y).encoder_x_.dim == 2
    refused("every column of X is constant", fitted, np.ones_like(x), y)
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 2)))
    with pytest.warns(DataWarning, match="order"):
        fitted(x, (x + 1.0).sample(frac=1.0, random_state=0), max_epochs=1)


def test_chunks_of_one_group(monkeypatch):
    """What a method that infers from product samples does where a chunk has none of them."""
    monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 4 * 200)
    x, noise = np.random.default_rng(0).normal(size=(2, 2400, 2))

    def grouped(of, block):
        monkeypatch.setattr(stored_pairs, "_LEAST_BLOCK", block)
        options = {"method": "dv", "max_epochs": 1, "batch_size": 32, "negatives": 8}
        return fitted(x, x + noise, np.arange(2400) // of, **options)

    model = grouped(of=200, block=50)
    left = np.isnan(model.oof_values_)
    assert 0 < left.sum() < 2400
    assert not np.isnan(model.oof_pmi_).any()
    found = model.mutual_information()
    assert found.rows == 2400 - left.sum()
    assert found.nats == pytest.approx(model.oof_values_[~left].mean())
    refused("no chunk of the rows reports two", grouped, of=200, block=200)
    refused("groups has 4 distinct values, of which split 0 has", grouped, of=600, block=16)
