"""How far an answer can be trusted: standard errors, pairs outside the data, and the self-check."""

import math
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.model_selection import ShuffleSplit

from pointdep import PointwiseDependency
from pointdep.data.sides import as_side
from pointdep.data.tasks import correlated_gaussians, make_task
from pointdep.errors import DataWarning, InputError
from pointdep.inference.scoring import score_pairs

from .helpers import fit, new_pairs, pairs

TASK = correlated_gaussians(1000, 3, 1.0, seed=0)
NEW = correlated_gaussians(300, 3, 1.0, seed=1)


@cache
def good(critic="auto"):
    """A fit that nobody changes."""
    return made(critic=critic)


def made(**options):
    settings = {"critic": "auto", "hidden": (16, 8), "max_epochs": 30, "patience": 4, "folds": 4}
    return fit(TASK.x, TASK.y, **{**settings, **options})


def encoded(model, x, y):
    sides = ((model.encoder_x_, x, "X"), (model.encoder_y_, y, "Y"))
    return model.model_.prepare(
        *(torch.from_numpy(encoder.encode(as_side(side, name))) for encoder, side, name in sides)
    )


class TestStandardErrors:
    @pytest.mark.parametrize("critic", ["auto", "concat"])
    @pytest.mark.parametrize("folds", [2, 5])
    def test_the_jackknife_by_hand(self, critic, folds):
        model = fit(critic=critic, folds=folds)
        new = new_pairs()
        x, y = encoded(model, *new)
        each = np.stack([score_pairs(model.model_.select([r]), x, y) for r in range(folds)])
        each = each.astype(np.float64)
        # Tukey: (R - 1)/R times the sum of squares around the mean of the R leave-one-out values.
        squares = np.square(each - each.mean(0)).sum(0)
        wanted = np.sqrt((folds - 1) / folds * squares)
        found = model.pmi_stderr(*new)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)
        assert found.max() > 0.001

    def test_replicas_that_leave_out_more_differ_more(self):
        """Two fifths of the rows left out: 72 fitted for 48 left out."""
        model = fit(cv=ShuffleSplit(6, test_size=0.4, random_state=0))
        x, y = encoded(model, *new_pairs())
        each = np.stack([score_pairs(model.model_.select([r]), x, y) for r in range(6)])
        wanted = np.sqrt(72 / 48 * np.var(each.astype(np.float64), axis=0))
        np.testing.assert_allclose(model.pmi_stderr(*new_pairs()), wanted, rtol=1e-3)

    def test_it_is_about_the_size_of_the_spread_over_samples(self):
        """Ten fits of other rows of the same distribution."""
        x, y = NEW.x[:100], NEW.y[:100]
        told, values = [], []
        for seed in range(10):
            task = correlated_gaussians(200, 3, 1.0, seed=10 + seed)
            model = fit(task.x, task.y, critic="auto", hidden=(4,), folds=5, max_epochs=1)
            told.append(np.square(model.pmi_stderr(x, y)).mean())
            values.append(model.pmi_matrix(x, y).diagonal())
        spread = np.var(np.stack(values), axis=0, ddof=1).mean()
        assert 0.4 < math.sqrt(np.mean(told) / spread) < 2.5

    @pytest.mark.parametrize("ask", ["pmi", "pmi_stderr", "outside", "pmi_matrix"])
    def test_no_rows(self, ask):
        with pytest.raises(InputError, match=r"0 sample\(s\)"):
            getattr(good(), ask)(NEW.x[:0], NEW.y[:0])

    def test_one_fold_has_none(self):
        with pytest.raises(InputError, match="needs at least two replicas: fit with folds=2"):
            fit(folds=1, critic="auto").pmi_stderr(*new_pairs())


class TestOutside:
    @pytest.mark.parametrize("critic", ["auto", "concat"])
    def test_rows_of_the_fit_are_inside(self, critic):
        model = good(critic)
        assert not model.outside(TASK.x, TASK.y).any()
        assert model.outside(NEW.x, NEW.y).mean() < 0.01
        model.pmi(NEW.x, NEW.y)  # without a warning

    @pytest.mark.parametrize(("rows", "dim"), [(200, 3), (500, 20)])
    def test_new_rows_of_few_and_wide_data_are_inside(self, rows, dim):
        """Of many columns one or other is always a little past what was seen."""
        seen, new = (correlated_gaussians(n, dim, 1.0, seed=n) for n in (rows, 1000))
        model = fit(seen.x, seen.y, critic="auto", hidden=(4,), max_epochs=1)
        past = (new.x > seen.x.max(0)) | (new.x < seen.x.min(0))
        assert past.any(1).mean() > 0.01
        assert model.outside(new.x, new.y).mean() < 0.01

    @pytest.mark.parametrize("critic", ["auto", "concat"])
    @pytest.mark.parametrize("side", ["x", "y"])
    def test_values_far_out(self, critic, side):
        x = 30 * TASK.x if side == "x" else TASK.x
        y = 30 * TASK.y if side == "y" else TASK.y
        far = (np.abs(x if side == "x" else y) > 40).any(1)
        assert far.mean() > 0.3
        found = good(critic).outside(x, y)
        assert found[far].all()
        with pytest.warns(DataWarning, match=rf"{found.sum()} of 1000 pair\(s\) lie outside"):
            good(critic).pmi(x, y)

    def test_few_of_them_are_no_warning(self):
        x = TASK.x.copy()
        x[:5] *= 100
        assert good().outside(x, TASK.y).sum() in range(4, 7)
        good().pmi(x, TASK.y)

    def test_pairs_that_never_meet(self):
        """Each value was there, but never so low an x with so high a y: log r says so."""
        low, high = TASK.x.min(0, keepdims=True), TASK.y.max(0, keepdims=True)
        assert good().outside(low, high).all()
        lowest = float(good().model_.seen[0])
        with pytest.warns(DataWarning, match="1 of 1 pair"):
            assert good().pmi(low, high).item() < lowest - 1

    def test_what_was_seen(self):
        """The lowest and highest log r of pairs and of mismatched pairs."""
        model = good()
        low, high = model.model_.seen.tolist()
        assert low <= model.oof_pmi_.min()
        assert high >= model.oof_pmi_.max()
        assert low < np.quantile(model.pmi_matrix(NEW.x[:50], NEW.y[:50]), 0.05)
        assert math.isfinite(low)
        assert math.isfinite(high)

    def test_labels_are_never_far_out(self):
        task = make_task("table", 400)
        model = fit(task.x, task.y, critic="auto")
        assert not model.outside(np.arange(3), np.arange(3)).any()


class TestCheck:
    def test_a_good_fit_passes(self):
        for found in (good().check(), good().check(NEW.x, NEW.y)):
            assert found.passed
            assert found.conclusive
            assert found.fault == "none"
        assert good().check().rows == 1000
        assert good().check(NEW.x, NEW.y).rows == 300

    @pytest.mark.parametrize("shift", [0.5, -0.5])
    def test_a_shifted_constant_is_found(self, shift):
        model = made()
        model.model_.constant += shift  # log r is less by it
        for found in (model.check(), model.check(NEW.x, NEW.y)):
            assert not found.passed
            assert found.verdict.startswith("Fails")
            assert found.recalibration.shift == pytest.approx(shift, abs=0.25)

    def test_without_arguments_the_rows_are_out_of_fold(self):
        """A network that knows its rows by heart passes on them, and not on rows left out."""
        random = np.random.default_rng(0)
        x, y = random.standard_normal((2, 300, 5))
        settings = {"hidden": (128,), "max_epochs": 60, "patience": 60, "stop_fraction": 0.05}
        model = fit(x, y, critic="concat", **settings)
        model.model_.critic.rest.layers[-1].weight *= 8
        assert not model.check().passed

    def test_pairs_outside_are_mentioned(self):
        found = good().check(30 * NEW.x, NEW.y)
        assert found.outside == pytest.approx(good().outside(30 * NEW.x, NEW.y).mean())
        assert "unlike the training rows" in found.verdict

    def test_a_loaded_model_needs_rows(self, tmp_path):
        model = good()
        model.save(tmp_path / "model")
        loaded = PointwiseDependency.load(tmp_path / "model")
        with pytest.raises(InputError, match=r"check\(\) needs the rows of the fit.*check\(X, Y\)"):
            loaded.check()
        assert loaded.check(NEW.x, NEW.y) == model.check(NEW.x, NEW.y)

    def test_a_pickle_does_not_carry_the_rows(self):
        copied = pickle.loads(pickle.dumps(good()))
        assert copied.mutual_information() == good().mutual_information()
        assert copied.check(NEW.x, NEW.y) == good().check(NEW.x, NEW.y)
        with pytest.raises(InputError, match="needs the rows of the fit"):
            copied.check()
        assert good().check().rows == 1000  # the one that was copied has them still

    def test_groups_are_the_independent_draws(self):
        x, y = pairs(400)
        groups = np.arange(400) // 4
        model = fit(x, y, groups=groups, critic="auto")
        assert model.check().rows == 100
        assert model.check(x, y, groups=groups).rows == 100
        assert model.check(x, y).rows == 400

    def test_few_rows_cannot_tell(self):
        found = good().check(NEW.x[:20], NEW.y[:20])
        assert not found.passed
        assert not found.conclusive
        assert found.fault == "cannot_tell"

    def test_one_fold(self):
        assert made(folds=1).check().rows == 200

    def test_options(self):
        with pytest.raises(InputError, match="level=2"):
            good().check(level=2)
        strict = good().check(tolerance=1e-3)
        assert strict.tolerance == 1e-3
        assert strict.p_value < good().check(tolerance=0.5).p_value
