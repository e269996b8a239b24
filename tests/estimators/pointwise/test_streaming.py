"""A fit that reads its rows as it needs them, against one that holds them, and its answers."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pointdep import PointwiseDependency, audit, open_rows
from pointdep.data import stored_pairs
from pointdep.errors import DataWarning, FitWarning, InputError
from pointdep.estimators import fit_rows
from pointdep.estimators.fit_rows import FitRows, StreamedFitRows

ROWS = 3000
TRUTH = 0.5 * np.log(1 / (1 - 1 / 1.25)) * 2  # two factors, each seen with a noise of 0.5


def correlated(rows=ROWS, dx=3, dy=2, seed=0, dtype=np.float16):
    random = np.random.default_rng(seed)
    z = random.normal(size=(rows, 2))
    noisy = z + 0.5 * random.normal(size=z.shape)
    x = np.concatenate([noisy, random.normal(size=(rows, dx - 2))], 1)
    y = np.concatenate([z, random.normal(size=(rows, dy - 2))], 1)
    return x.astype(dtype), y.astype(dtype)


def fitted(x, y, groups=None, **options):
    given = {"stream": True, "folds": 3, "max_epochs": 4, "hidden": (16,), "random_state": 0}
    given["learning_rate"] = 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return PointwiseDependency(progress=False, **{**given, **options}).fit(x, y, groups)


def parquet(folder, values, sizes=(1200, 1800), group=500):
    folder.mkdir()
    ends = np.cumsum([0, *sizes])
    for number in range(len(sizes)):
        part = values[ends[number] : ends[number + 1]]
        column = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        pq.write_table(pa.table({"e": column}), folder / f"{number}.parquet", row_group_size=group)
    return folder


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
    assert ours.mutual_information().nats == pytest.approx(
        theirs.mutual_information().nats, abs=0.15
    )
    assert not np.isnan(ours.oof_values_).any()


def test_every_source_of_the_same_rows_gives_the_same_model(tmp_path, model):
    x, y = correlated()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy"]
    np.testing.assert_array_equal(fitted(*mapped).oof_pmi_, model.oof_pmi_)
    shards = [open_rows(parquet(tmp_path / n, s, (ROWS,), 16)) for n, s in (("x", x), ("y", y))]
    np.testing.assert_array_equal(fitted(*shards).oof_pmi_, model.oof_pmi_)


def test_rows_sorted_on_disk(monkeypatch, tmp_path):
    """In chunks of a sixth of the rows, of 32 blocks each."""
    x, y = correlated()
    order = np.argsort(y[:, 0])
    x, y = x[order], y[order]
    monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 5 * ROWS // 6)
    for critic in ("auto", "concat"):
        found = fitted(x, y, critic=critic, max_epochs=8).mutual_information()
        assert abs(found.nats - TRUTH) < 0.15
    x, y = (open_rows(parquet(tmp_path / n, s, group=100)) for n, s in (("x", x), ("y", y)))
    found = fitted(x, y, critic="concat", max_epochs=8).mutual_information()
    assert abs(found.nats - TRUTH) < 0.15


def test_a_sample_of_the_rows_is_enough(monkeypatch, model):
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


def test_labels_and_groups():
    x, _ = correlated()
    labels = np.where(x[:, 0] > 0, "left", "right")
    groups = np.repeat(np.arange(ROWS // 3), 3)
    ours = fitted(x, labels, groups, max_epochs=10)
    assert 0.55 < ours.mutual_information().nats < 0.70
    assert ours.mutual_information().stderr > fitted(x, labels).mutual_information().stderr / 2
    found = ours.pmi(x[:4], labels[:4])
    assert found.shape == (4,)


def test_a_single_model_reports_a_fifth():
    ours = fitted(*correlated(), folds=1, max_epochs=8)
    assert np.isnan(ours.oof_pmi_).sum() == ROWS - ROWS // 5
    assert abs(ours.mutual_information().nats - TRUTH) < 0.25


def test_a_checkpoint_goes_on_to_the_same_model(tmp_path, model):
    from pointdep.fitting import engine

    class StopError(Exception):
        pass

    x, y = correlated()
    path = tmp_path / "fit.ckpt"
    options = {"checkpoint": path, "critic": "concat"}
    whole = fitted(x, y, critic="concat")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_CHECKPOINT_EVERY_S", 0.0)
        report = engine.Engine._report

        def stop(self, state):
            report(self, state)
            if state.epoch == 3:
                raise StopError

        patch.setattr(engine.Engine, "_report", stop)
        with pytest.raises(StopError):
            fitted(x, y, **options)
    assert path.exists()
    with pytest.raises(InputError, match="other data"):
        fitted(x[::-1].copy(), y, **options)
    again = fitted(x, y, **options)
    np.testing.assert_array_equal(again.oof_pmi_, whole.oof_pmi_)
    assert not path.exists()


class TestAnswers:
    @pytest.fixture
    def in_parts(self, monkeypatch):
        from pointdep.estimators import pointwise

        monkeypatch.setattr(fit_rows, "IN_MEMORY", 0)
        monkeypatch.setattr(pointwise, "_PART", 5 * 190)

    def test_parts_answer_as_the_whole(self, tmp_path, model, in_parts):
        x, y = correlated(700, seed=1)
        calls = ("pmi", "pmi_stderr", "outside", "npmi", "pd")
        parts = [getattr(model, call)(x, y) for call in calls]
        information = model.mutual_information(x, y).nats
        sources = [open_rows(parquet(tmp_path / n, s, (700,))) for n, s in (("x", x), ("y", y))]
        np.testing.assert_array_equal(model.pmi(*sources), parts[0])
        np.testing.assert_array_equal(model.npmi(*sources, pmi=parts[0]), parts[3])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fit_rows, "IN_MEMORY", 1 << 27)
            for call, found in zip(calls, parts, strict=True):
                np.testing.assert_allclose(found, getattr(model, call)(x, y), rtol=1e-5, atol=1e-6)
            assert information == pytest.approx(model.mutual_information(x, y).nats, rel=1e-6)

    def test_a_bad_row_is_named_with_its_part(self, model, in_parts):
        x, y = correlated(700, seed=1)
        x[500, 1] = np.nan
        with pytest.raises(
            InputError, match=r"from row 380 to 569: X column 1 holds 1 NaN.*row 120"
        ):
            model.pmi(x, y)

    def test_checks_of_very_many_rows_take_some(self, monkeypatch, model, in_parts):
        from pointdep.estimators import pointwise

        x, y = correlated(2000, seed=1)
        monkeypatch.setattr(pointwise, "_MOST_COMPARED", 500)
        assert model.check(x, y).rows <= 500
        assert model.score(x, y) == pytest.approx(model.score(x[:400], y[:400]), abs=0.05)


class TestAudit:
    @pytest.mark.parametrize("kept", [10**6, 500])
    def test_wrong_pairs_are_found(self, monkeypatch, kept):
        monkeypatch.setattr(fit_rows, "_KEPT_ROWS", kept)
        monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 6 * 1000)
        random = np.random.default_rng(0)
        z = random.normal(size=(ROWS, 3))
        x, y = (z + 0.1 * random.normal(size=z.shape) for _ in "xy")
        y[[10, 20]] = y[[20, 10]]
        x[2000], y[2000] = x[700], y[700]
        given = PointwiseDependency(
            stream=True, random_state=0, max_epochs=4, folds=3, progress=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            table = audit(x, y, model=given).table
        assert table["suspect"][[10, 20]].all()
        assert table["suspect"].sum() < 20
        assert table["swapped_with"][10] == 20
        better = table["better_partner"][[10, 20]]
        assert (np.abs(y[better] - x[[10, 20]]).max(1) < 0.6).all()
        assert table["duplicate_of"][2000] == 700
        assert table["duplicate_of"].notna().sum() == 1
        assert (table["stderr"] > 0).all()

    def test_one_fold_is_refused(self):
        with pytest.raises(InputError, match="at least 2"):
            audit(*correlated(), model=PointwiseDependency(stream=True, folds=1))


class TestMistakes:
    def test_a_bad_number_is_named_with_its_shard(self, tmp_path):
        x, y = correlated()
        x[1500, 1] = np.inf
        sources = [open_rows(parquet(tmp_path / n, s)) for n, s in (("x", x), ("y", y))]
        with pytest.raises(
            InputError, match=r"X column 1 holds infinity in row 300 of .*x/1.parquet"
        ):
            fitted(*sources)

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"stream": "yes"}, "stream='yes' must be True, False or None"),
            ({"cv": object()}, "use folds with stream=True"),
        ],
    )
    def test_options(self, options, match):
        with pytest.raises(InputError, match=match):
            fitted(*correlated(100), **options)

    def test_lengths(self):
        x, y = correlated(100)
        with pytest.raises(InputError, match="X has 100 rows, Y has 99 rows"):
            fitted(x, y[:-1])
        with pytest.raises(InputError, match="groups has 3 rows"):
            fitted(x, y, [1, 2, 3])

    def test_constant_columns(self):
        x, y = correlated(300)
        x[:, 2] = 1
        with pytest.warns(match="dropped 1 column"):
            assert fitted(x, y).encoder_x_.dim == 2
        with pytest.raises(InputError, match="every column of X is constant"):
            fitted(np.ones_like(x), y)


class TestChunksOfOneGroup:
    """What a method that infers from product samples does where a chunk has none of them."""

    @staticmethod
    def fit(monkeypatch, *, groups, of, block=16):
        monkeypatch.setattr(stored_pairs, "_CHUNK_NUMBERS", 4 * 200)
        monkeypatch.setattr(stored_pairs, "_LEAST_BLOCK", block)
        random = np.random.default_rng(0)
        x = random.normal(size=(2400, 2))
        y = x + random.normal(size=x.shape)
        codes = np.repeat(np.arange(groups), of)[:2400]
        return fitted(x, y, codes, method="dv", max_epochs=1, batch_size=32, negatives=8)

    def test_such_rows_are_left_out(self, monkeypatch):
        model = self.fit(monkeypatch, groups=12, of=200, block=50)
        left = np.isnan(model.oof_values_)
        assert 0 < left.sum() < 2400
        assert not np.isnan(model.oof_pmi_).any()
        found = model.mutual_information()
        assert found.rows == 2400 - left.sum()
        assert found.nats == pytest.approx(model.oof_values_[~left].mean())

    def test_all_of_them_are_refused(self, monkeypatch):
        with pytest.raises(InputError, match="no chunk of the rows reports two"):
            self.fit(monkeypatch, groups=12, of=200, block=200)

    def test_too_few_to_train_on(self, monkeypatch):
        with pytest.raises(InputError, match="groups has 4 distinct values, of which split 0 has"):
            self.fit(monkeypatch, groups=4, of=600)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_an_index_in_another_order_is_told():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 2)))
    y = (x + 1.0).sample(frac=1.0, random_state=0)
    model = PointwiseDependency(
        folds=2, stream=True, hidden=(8,), max_epochs=1, random_state=0, progress=False
    )
    with pytest.warns(DataWarning, match="order"):
        model.fit(x, y)
