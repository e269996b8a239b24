"""The difference of two models on the same rows: its value, its interval, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pointdep
from estimators.pointwise.helpers import fit, pairs, small
from pointdep import ClassicalDependency, DataWarning, PointwiseDependency, compare
from refusals import refused

ROWS = 300
NOISE = (0.6, 0.8)
TRUE_DIFFERENCE = 0.5 * (np.log1p(1 / NOISE[0] ** 2) - np.log1p(1 / NOISE[1] ** 2))


def views(seed, rows=ROWS):
    """Two noisy views of the same y: MI is log(1 + 1/noise^2) / 2 each."""
    random = np.random.default_rng(seed)
    y = random.standard_normal((rows, 1))
    a, b = (y + noise * random.standard_normal((rows, 1)) for noise in NOISE)
    return a, b, y


def cca(x, y, method="cca"):
    return ClassicalDependency(method, random_state=0, progress=False).fit(x, y)


class TestCoverage:
    def test_of_closed_forms(self):
        """95 % intervals hold the true difference in 95 of 100 draws, or so."""
        hits = 0
        for seed in range(240):
            a, b, y = views(seed)
            low, high = compare(cca(a, y), cca(b, y)).ci
            hits += low <= TRUE_DIFFERENCE <= high
        assert 0.905 <= hits / 240 <= 0.995  # three standard errors of such a share

    def test_of_networks(self):
        """The doubt about the bias of fitting makes them wide; no difference would be 0.19 off."""
        options, found = {"critic": "auto", "hidden": (4,), "max_epochs": 1}, []
        for seed in range(5):
            a, b, y = views(seed)
            found.append(compare(fit(a, y, **options), fit(b, y, **options)))
        assert all(low <= TRUE_DIFFERENCE <= high for low, high in (one.ci for one in found))
        assert np.mean([one.nats for one in found]) == pytest.approx(TRUE_DIFFERENCE, abs=0.1)
        assert max(one.stderr for one in found) < 0.2


class TestPairing:
    def test_the_error_is_that_of_the_differences(self):
        a, b, y = views(0)
        first, second = cca(a, y), cca(b, y)
        found, differences = compare(first, second), first.mi_values_ - second.mi_values_
        assert found.nats == pytest.approx(differences.mean())
        assert found.stderr == pytest.approx(differences.std(ddof=1) / np.sqrt(ROWS))
        assert found.first == pytest.approx(first.mutual_information().nats)
        assert found.second == pytest.approx(second.mutual_information().nats)
        assert found.rows == ROWS
        assert str(found).endswith(f"95% interval {found.ci[0]:.3f} to {found.ci[1]:.3f}")
        assert found.to_dict()["ci"] == list(found.ci)
        itself = compare(first, cca(a, y))
        assert (itself.nats, itself.stderr, itself.p_value) == (0.0, 0.0, 1.0)
        # It is smaller than that of two estimates: rows of extreme y are informative in both views.
        random = np.random.default_rng(0)
        a = random.standard_normal((ROWS, 1))
        y = a + 0.5 * random.standard_normal((ROWS, 1))
        first, second = cca(a, y), cca(a + 0.1 * random.standard_normal((ROWS, 1)), y)
        apart = np.hypot(first.mutual_information().stderr, second.mutual_information().stderr)
        assert compare(first, second).stderr < 0.7 * apart

    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 10_000), st.floats(0.5, 0.99))
    def test_the_other_way_round(self, seed, confidence):
        a, b, y = views(seed, rows=60)
        first, second = cca(a, y), cca(b, y)
        there = compare(first, second, confidence=confidence)
        back = compare(second, first, confidence=confidence)
        assert there.nats == pytest.approx(-back.nats, abs=1e-12)
        assert there.ci == pytest.approx((-back.ci[1], -back.ci[0]))
        assert there.p_value == pytest.approx(back.p_value)
        assert (there.p_value < 1 - confidence) == (there.ci[0] > 0 or there.ci[1] < 0)

    def test_bias_and_groups_enter(self):
        x, y = pairs(120)
        groups = np.arange(120) // 2
        first, second = (fit(x, y, groups=groups, hidden=(width,)) for width in (4, 16))
        found, values = compare(first, second), first.oof_values_ - second.oof_values_
        sums = np.bincount(groups, weights=values - values.mean())
        of_rows = np.sqrt(60 / 59 * np.square(sums).sum()) / 120
        of_rows *= max(first.bias_.inflation, second.bias_.inflation)
        expected = np.sqrt(of_rows**2 + first.bias_.stderr**2 + second.bias_.stderr**2)
        assert found.stderr == pytest.approx(expected)
        nats = [model.mutual_information().nats for model in (first, second)]
        assert found.nats == pytest.approx(nats[0] - nats[1])


class TestOtherRows:
    def test_of_the_same_and_of_other_columns(self):
        x, y = pairs(120)
        new = pairs(40, seed=5)
        first, second = fit(x, y, hidden=(4,)), fit(x, y, hidden=(16,))
        found = compare(first, second, *new)
        values = first.pmi(*new).astype(float) - second.pmi(*new)
        assert found.nats == pytest.approx(values.mean(), abs=1e-6)
        assert found.stderr > values.std(ddof=1) / np.sqrt(40)
        assert found.rows == 40
        a, b, y = views(0)
        first, second = cca(np.hstack([a, b]), y), cca(b, y)
        new = views(1)
        found = compare(first, second, np.hstack(new[:2]), new[2], X_b=new[1])
        expected = first.pmi(np.hstack(new[:2]), new[2]).mean() - second.pmi(new[1], new[2]).mean()
        assert found.nats == pytest.approx(expected, abs=1e-6)

    @pytest.mark.filterwarnings("ignore:check_fails")  # inner products of Gaussians are not log r
    def test_of_calibrated_models(self):
        """What a calibration does not know of itself is in the error of the difference."""
        random = np.random.default_rng(0)
        x = random.normal(size=(500, 3))
        noisy, noisier = (x + size * random.normal(size=x.shape) for size in (0.5, 1.0))
        known = {"normalize": False, "progress": False}
        models = [pointdep.from_embeddings(x[:200], y[:200], **known) for y in (noisy, noisier)]
        new = x[200:], noisy[200:]
        pmi = [model.pmi(*new) for model in models]
        alone, found = np.subtract(*pmi).std(ddof=1) / np.sqrt(300), compare(*models, *new)
        own = [model.mutual_information(*new).stderr ** 2 for model in models]
        own = sum(own) - sum(values.var(ddof=1) / 300 for values in pmi)
        assert found.stderr == pytest.approx(np.sqrt(alone**2 + own), rel=1e-2)
        assert found.stderr > 1.05 * alone

    def test_with_groups(self):
        """Four copies of each pair are one draw: the error is that of a quarter of the rows."""
        x, y = pairs(60)
        rows = np.repeat(np.arange(30), 4)
        new = [side[rows] for side in pairs(30, seed=5)]
        for models in ((cca(x, y), cca(x[:, :1], y)), (fit(x, y), fit(x, y, hidden=(16,)))):
            narrow = models[1].n_features_in_ == 1
            given = {"X_b": new[0][:, :1]} if narrow else {}
            plain = compare(*models, *new, **given)
            found = compare(*models, *new, **given, groups=rows.astype(str))
            assert found.nats == pytest.approx(plain.nats)
            values = models[0].pmi(*new).astype(float)
            values -= models[1].pmi(given.get("X_b", new[0]), new[1])
            of_draws, doubt = values[::4].std(ddof=1) / np.sqrt(30), 0.0
            if not narrow:
                doubt = np.hypot(*(np.hypot(m.bias_.correction, m.bias_.stderr) for m in models))
            assert found.stderr == pytest.approx(np.hypot(of_draws, doubt), rel=1e-4)
            assert found.stderr > plain.stderr


class TestSameRows:
    """Without rows the models are compared by the position of those they were fitted on."""

    X, Y = pairs(60)
    ORDER = np.random.default_rng(0).permutation(60)

    def test_one_side_in_common_is_enough(self, tmp_path):
        """In whatever type it came; PointdepWarning is an error in these tests."""
        text = np.where(self.Y[:, 0] > 0, "up", "down")
        compare(cca(self.X, self.Y), cca(self.X[:, :1].astype(float), self.Y.tolist()))
        compare(cca(self.X, self.Y), fit(self.X.astype(float), self.Y[:, :1]))
        compare(fit(self.X, text), fit(self.X[self.ORDER], text.astype(object)))
        fit(self.X, self.Y).save(tmp_path / "model")
        saved = PointwiseDependency.load(tmp_path / "model", device="cpu")
        compare(cca(self.X, self.Y), saved)
        with pytest.warns(DataWarning, match="other X and on other Y"):
            compare(cca(self.X[::-1], self.Y[::-1]), saved)
        streamed = fit(self.X, self.Y, stream=True)  # which does not know its rows
        compare(cca(self.X[::-1], self.Y[::-1]), streamed)
        # Groups may have other names.
        groups = np.arange(60) // 2
        names = np.array([f"g{code}" for code in (7 * groups) % 30])
        first, second = (fit(self.X, self.Y, groups=g) for g in (groups, names))
        assert not np.array_equal(first.groups_, second.groups_)
        assert compare(first, second).rows == 60
        refused("different groups", compare, first, fit(self.X, self.Y, groups=np.arange(60) // 3))
        # Rows in another order are told.
        for second in (fit, cca):
            first = cca(self.X, self.Y)
            with pytest.warns(DataWarning, match="other X and on other Y"):
                compare(first, second(self.X[self.ORDER], self.Y[self.ORDER]))


def test_mistakes():
    a, b, y = views(0)
    x, z = pairs(60)
    halves = np.arange(300) // 2
    model, network = cca(a, y), fit(a, y, max_epochs=1)
    ksg, ranks = (cca(a, y, method=method) for method in ("ksg", "phsic"))
    for message, arguments, options in (
        ("answer 300 and 200 rows", (model, cca(b[:200], y[:200])), {}),
        ("answer 300 and 200 rows", (model, model, a, y), {"X_b": a[:200], "Y_b": y[:200]}),
        ("different groups", (fit(x, z), fit(x, z, groups=np.arange(60) // 2)), {}),
        ("neighbours .* group", (ksg, ksg, a, y), {"groups": halves}),
        ("groups has 10 rows", (model, model, a, y), {"groups": np.arange(10)}),
        ("groups has 10 rows", (network, network, a, y), {"groups": np.arange(10)}),
        ("float cannot be compared", (model, 0.5), {}),
        ("not fitted", (model, small()), {}),
        ("do not compare", (model, ranks), {}),
        ("both X and Y", (model, model, a), {}),
        ("X_b, Y_b and groups", (model, model), {"X_b": a}),
        ("confidence=2", (model, model), {"confidence": 2}),
    ):
        with pytest.raises(ValueError, match=message):  # InputError, and scikit-learn's
            compare(*arguments, **options)
