"""Linear evaluation and nearest neighbours against scikit-learn's, on halves of digits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pointdep.contrastive import multinomial
from pointdep.contrastive.evaluation import features, knn_accuracy, linear_evaluation
from pointdep.contrastive.multinomial import _MeanLoss, minimise
from pointdep.fitting.progress import Silent
from refusals import refused

DIGITS = load_digits()
LABELS = DIGITS.target[:1200], DIGITS.target[1200:]


def noisy_halves(replicas, noise=2.0):
    """Upper halves with noise of their own in each replica: (R, 1200, 32) and (R, 597, 32)."""
    clean = DIGITS.data[None, :, :32]
    drawn = np.random.default_rng(0).normal(size=(replicas, *clean.shape[1:]))
    found = (clean + noise * drawn).astype(np.float32)
    return found[:, :1200], found[:, 1200:]


def evaluate(train, test, **options):
    return linear_evaluation(train, LABELS[0], test, LABELS[1], **options)


def logistic_regression(rows, labels, C=1.0, max_iter=1000, tolerance=1e-4):
    rows = torch.as_tensor(rows).reshape(-1, *rows.shape[-2:])
    how = {"C": C, "max_iter": max_iter, "tolerance": tolerance, "progress": Silent()}
    scale = torch.ones(rows.shape[0], rows.shape[2])
    return multinomial.logistic_regression(rows, torch.as_tensor(labels), scale, **how)


def sklearn_model(x, y, C):
    """In float64 and converged."""
    return LogisticRegression(C=C, tol=1e-9, max_iter=10_000).fit(x.astype(np.float64), y)


def few_rows(n, d, classes, apart):
    """Separable rows of Gaussian classes, and 3,000 more of them to test on."""
    generator = torch.Generator().manual_seed(1)
    centres = apart * torch.randn(classes, d, generator=generator)
    labels, unseen = torch.arange(n) % classes, torch.arange(3000) % classes
    train = torch.randn(n, d, generator=generator) + centres[labels]
    return train, labels, torch.randn(3000, d, generator=generator) + centres[unseen], unseen


class OnApple(torch.Tensor):
    """Features on a device without float64, as far as this machine can tell."""

    @property
    def device(self):
        return torch.device("mps")

    def double(self):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


class TestRegression:
    @pytest.mark.parametrize("C", [0.01, 1.0])
    def test_finds_the_model_of_sklearn(self, C):
        train = noisy_halves(3)[0] / 16
        fit = logistic_regression(train, LABELS[0], C=C, tolerance=1e-6)
        assert bool(fit.converged.all())
        logits = torch.from_numpy(train).double() @ fit.weights + fit.bias[:, None]
        for replica, found in zip(train, logits.softmax(-1).numpy(), strict=True):
            expected = sklearn_model(replica, LABELS[0], C).predict_proba(replica)
            assert np.abs(found - expected).max() < 1e-4

    def test_two_classes_replicas_apart_and_expanded_views(self):
        train, odd = noisy_halves(1)[0] / 16, LABELS[0] % 2
        fit = logistic_regression(train, odd, C=0.1, tolerance=1e-7)
        found = fit.weights[0, :, 1] - fit.weights[0, :, 0]
        assert np.allclose(found.numpy(), sklearn_model(train[0], odd, 0.1).coef_[0], atol=1e-5)
        train = noisy_halves(3)[0].astype(np.float64) / 16
        train[1] *= 40  # needs many more iterations than its neighbours
        together = logistic_regression(train, LABELS[0], C=0.1, tolerance=1e-7)
        assert len(set(together.iterations.tolist())) > 1
        for replica in range(3):
            alone = logistic_regression(train[replica], LABELS[0], C=0.1, tolerance=1e-7)
            assert torch.allclose(alone.weights[0], together.weights[replica], atol=1e-4)
        train = torch.from_numpy(noisy_halves(1)[0]).expand(2, -1, -1)
        alone = logistic_regression(train[0], LABELS[0], C=0.1)
        for rows in (train, train[:1].double().expand(2, -1, -1)):
            fit = logistic_regression(rows, LABELS[0], C=0.1)
            assert torch.allclose(fit.weights[0], fit.weights[1])
            assert torch.allclose(fit.weights[0], alone.weights[0], atol=1e-3)

    def test_the_gradient_is_that_of_the_loss_as_written(self):
        labels, rows = torch.from_numpy(LABELS[0]), torch.tensor(noisy_halves(2)[0]).double()
        scale = torch.rand(2, 32, dtype=torch.float64) + 0.5
        point = 0.1 * torch.randn(2, 33, 10, dtype=torch.float64)
        value, gradient, _ = _MeanLoss(rows, labels, scale, 0.3)(point)
        free = point.clone().requires_grad_()
        columns = (rows - rows.mean(1, keepdim=True)) * scale[:, None]
        logits = columns @ free[:, :-1] + free[:, -1:]
        for replica in range(2):
            entropies = torch.nn.functional.cross_entropy(logits[replica], labels, reduction="sum")
            written = (0.3 * entropies + free[replica, :-1].square().sum() / 2) / (0.3 * 1200)
            assert float(written.detach()) == pytest.approx(float(value[replica]), rel=1e-12)
            (expected,) = torch.autograd.grad(written, free, retain_graph=True)
            assert torch.allclose(expected[replica], gradient[replica], atol=1e-12)

    def test_what_float32_cannot_reach(self):
        """Is mended in float64; and what nothing can reach is not called converged."""
        train, labels, _, _ = few_rows(100, 200, 5, 0.25)
        far = train + 50  # digits of float32 that the products lose
        found = logistic_regression(far, labels, C=1e3, tolerance=1e-9, max_iter=3000)
        exact = logistic_regression(far.double(), labels, C=1e3, tolerance=1e-12, max_iter=3000)
        assert bool((found.converged & exact.converged).all())
        largest = float(exact.weights.abs().max())
        assert torch.allclose(found.weights, exact.weights, atol=1e-4 * largest)
        train, labels, _, _ = few_rows(60, 100, 3, 0.25)
        found = logistic_regression(train, labels, C=100.0, tolerance=1e-40, max_iter=400)
        assert not bool(found.converged.any())
        assert int(found.iterations.max()) <= 400


ROWS, ROW_LABELS = few_rows(40, 60, 3, 0.25)[:2]
LOSS = _MeanLoss(ROWS.double()[None], ROW_LABELS, torch.ones(1, 60), 100.0)
HOW = {"max_iter": 5000, "progress": Silent()}
BEST = minimise(LOSS, LOSS.start(), LOSS.newton_at_zero(), tolerance=1e-12, **HOW)[0]


class TestMinimise:
    def test_each_quadratic_is_solved_and_a_higher_value_is_no_minimum(self):
        curvature = torch.tensor([[1.0, 1.0], [1.0, 1e4], [3.0, 0.01]]).double()[..., None]
        bottom = torch.randn(3, 2, 1, dtype=torch.float64)
        start = torch.stack([bottom[0], bottom[1] + 5, bottom[2] - 7])

        def quadratic(point):
            gradient = curvature * (point - bottom)
            value = (gradient * (point - bottom)).sum((1, 2)) / 2
            return value, gradient, gradient.abs().amax((1, 2))

        how = {"tolerance": 1e-8, **HOW}
        point, converged, iterations = minimise(quadratic, start, lambda slope: slope, **how)
        assert bool(converged.all())
        assert torch.equal(point[0], start[0])
        assert int(iterations[0]) == 1
        assert torch.allclose(point, bottom, atol=1e-6)

        def parabola(point):
            """With an excess that is wrong on the other side of its bottom."""
            side = point[:, 0, 0]
            return side**2 / 2, point, torch.where(side < 0, 0.0, 1.0)

        start = torch.full((2, 1, 1), 3.0, dtype=torch.float64)
        point, _, _ = minimise(parabola, start, lambda g: 2.5 * g, tolerance=1e-6, **HOW)
        assert bool((point.abs() < 3.0).all())

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 10_000), st.floats(-6, 1), st.floats(0, 1))
    def test_the_excess_bounds_the_distance_from_the_minimum(self, seed, exponent, bias):
        least, generator = LOSS(BEST)[0], torch.Generator().manual_seed(seed)
        away = torch.randn(BEST.shape, generator=generator, dtype=torch.float64) * 10**exponent
        away[:, -1] *= bias / away[:, -1].norm()
        value, _, excess = LOSS(BEST + away)
        assert bool((value - least <= excess * value + 1e-12).all())
        scaled, _, other = LOSS(BEST * (1 + bias))  # a step along which rows stay separated
        if BEST[:, -1].norm() * bias <= 1:
            assert bool((scaled - least <= other * scaled + 1e-12).all())


class TestLinear:
    @pytest.mark.parametrize("scaling", ["minmax", "standard"])
    def test_accuracies_agree_with_sklearn_and_its_scalers(self, scaling):
        train, test = noisy_halves(2)
        ours = evaluate(train, test, scaling=scaling)
        theirs = evaluate(train, test, scaling=scaling, solver="sklearn", max_iter=5000)
        assert (ours.converged & theirs.converged).all()
        assert np.abs(ours.accuracy - theirs.accuracy).max() <= 0.003
        assert np.abs(ours.train_accuracy - theirs.train_accuracy).max() <= 0.003
        scaler = (MinMaxScaler if scaling == "minmax" else StandardScaler)().fit(train[1])
        model = sklearn_model(scaler.transform(train[1]), LABELS[0], 10.0)
        assert abs(ours.accuracy[1] - model.score(scaler.transform(test[1]), LABELS[1])) <= 0.003

    @pytest.mark.parametrize(
        ("shape", "scaling", "C"),
        [
            ((100, 512, 10, 0.25), "standard", 100.0),
            ((100, 512, 10, 0.25), "standard", 1e4),
            ((100, 512, 10, 0.25), "minmax", 1e3),
            ((60, 300, 4, 0.12), "minmax", 1e5),
            ((60, 300, 2, 0.12), "none", 1e4),
        ],
    )
    def test_separable_rows_agree_with_sklearn(self, shape, scaling, C):
        data, how = few_rows(*shape), {"tolerance": 1e-11, "max_iter": 20_000}
        ours = linear_evaluation(*data, scaling=scaling, C=C)
        theirs = linear_evaluation(*data, scaling=scaling, C=C, solver="sklearn", **how)
        assert (ours.converged & theirs.converged).all()
        assert 0.4 < theirs.accuracy[0] < 0.99
        assert abs(ours.accuracy[0] - theirs.accuracy[0]) <= 0.003
        assert ours.train_accuracy[0] == theirs.train_accuracy[0] == 1.0

    def test_the_papers_protocol_and_separated_classes(self):
        train, test = noisy_halves(1)
        found, scaler = evaluate(train, test, solver="saga"), MinMaxScaler().fit(train[0])
        model = LogisticRegression(solver="saga", C=10, tol=0.1, random_state=0)
        model.fit(scaler.transform(train[0]), LABELS[0])
        assert found.accuracy[0] == pytest.approx(model.score(scaler.transform(test[0]), LABELS[1]))
        assert found.iterations[0] == model.n_iter_[0] < 50
        labels, rows = np.repeat([0, 1, 2], 20), np.zeros((60, 4), dtype=np.float32)
        rows[np.arange(60), labels] = 10.0
        for scaling in ("minmax", "standard", "none"):
            found = linear_evaluation(rows, labels, rows, labels, scaling=scaling)
            assert found.converged.all()
            assert found.accuracy[0] == 1.0

    @pytest.mark.parametrize("solver", ["device", "sklearn"])
    def test_a_class_without_training_rows_and_a_device_without_float64(self, solver):
        (train,), (test,) = noisy_halves(1, noise=0.0)
        how = {"solver": solver, "max_iter": 300}
        found, whole = (
            linear_evaluation(train[rows], LABELS[0][rows], test, LABELS[1], **how)
            for rows in (LABELS[0] != 3, slice(None))
        )
        assert found.accuracy[0] < whole.accuracy[0] - 0.05
        assert found.train_accuracy[0] > 0.9
        found = evaluate(*noisy_halves(2), solver=solver, max_iter=5)
        assert not found.converged.any()
        assert found.iterations.tolist() == [5, 5]
        train, labels, test, unseen = few_rows(60, 20, 3, 0.5)
        plain = linear_evaluation(train, labels, test, unseen, solver=solver)
        there = train.as_subclass(OnApple), labels, test.as_subclass(OnApple), unseen
        assert np.array_equal(linear_evaluation(*there, solver=solver).accuracy, plain.accuracy)
        assert np.array_equal(knn_accuracy(*there), knn_accuracy(train, labels, test, unseen))

    @pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_types(self, kind):
        halves = [torch.from_numpy(part).to(kind) for part in noisy_halves(1)]
        found, expected = evaluate(*halves), evaluate(*(half.float() for half in halves))
        assert abs(found.accuracy - expected.accuracy) < 0.003

    @pytest.mark.parametrize(("limit", "value"), [("_BUDGET", 2 * 10 * 170), ("_WIDEST", 8)])
    def test_blocks_of_rows_and_wide_features_give_the_same(self, limit, value, monkeypatch):
        whole = evaluate(*noisy_halves(2))
        monkeypatch.setattr(f"pointdep.contrastive.multinomial.{limit}", value)
        parts = evaluate(*noisy_halves(2))
        assert parts.converged.all()
        assert np.abs(whole.accuracy - parts.accuracy).max() <= 0.003

    def test_mistakes_are_named(self):
        train, test = noisy_halves(2)
        broken = train.copy()
        broken[1, 5, 3] = np.nan
        good = {"train": train, "train_labels": LABELS[0], "test": test, "test_labels": LABELS[1]}
        for message, changed in (
            ("train features of replica 1 are not finite", {"train": broken}),
            ("train labels have shape", {"train_labels": LABELS[0][:-1]}),
            ("train labels .* from 0", {"train_labels": LABELS[0] - 1}),
            ("train labels .* whole numbers", {"train_labels": LABELS[0] / 2}),
            ("train labels are <U", {"train_labels": LABELS[0].astype(str)}),
            ("same encoders", {"test": test[:1]}),
            ("two classes", {"train_labels": LABELS[0] * 0}),
            (r"train features have shape \(32,\)", {"train": train[0, 0]}),
            ("did you mean 'minmax'", {"scaling": "min-max"}),
            ("did you mean 'sklearn'", {"solver": "skleran"}),
            (r"C=0\.0", {"C": 0.0}),
            ("max_iter=0", {"max_iter": 0}),
        ):
            refused(message, linear_evaluation, **{**good, **changed})


@pytest.mark.parametrize("replicas", [None, 3])
def test_features_come_in_batches_without_gradients(replicas):
    images = torch.randint(0, 256, (25, 1, 4, 4), dtype=torch.uint8)
    weights = torch.randn(*([replicas] if replicas else []), 16, 5, requires_grad=True)
    expected, seen = ((images.flatten(1).float() / 255) @ weights).detach(), []

    def encode(batch):
        seen.append(len(batch))
        return ((batch.flatten(1).float() / 255) @ weights).to(torch.float64)

    found = features(encode, images, batch_size=10)
    assert seen == [10, 10, 5]
    assert (found.dtype, found.requires_grad) == (torch.float32, False)
    assert torch.allclose(found, expected, atol=1e-6)


class TestNeighbours:
    TRAIN, TEST = (part.astype(np.float64) for part in noisy_halves(3, noise=3.0))

    def share(self, train=TRAIN, test=TEST, **options):
        return knn_accuracy(train, LABELS[0], test, LABELS[1], **options)

    @pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (20, 0.1), (200, 0.02), (1200, 0.05)])
    def test_agrees_with_sklearn(self, k, temperature):
        found = self.share(k=k, temperature=temperature)
        assert found.shape == (3,)
        how = {"metric": "cosine", "weights": lambda away: np.exp((1 - away) / temperature)}
        for replica in range(3):
            model = KNeighborsClassifier(k, **how).fit(self.TRAIN[replica], LABELS[0])
            expected = model.score(self.TEST[replica], LABELS[1])
            assert 0.2 < expected < 0.98
            assert found[replica] == pytest.approx(expected, abs=1e-12)

    def test_blocks_lengths_and_kinds_change_nothing_and_mistakes(self):
        whole = self.share()
        assert np.array_equal(self.share(block=7), whole)
        longer = self.TEST * np.random.default_rng(1).uniform(0.1, 10, size=(3, 597, 1))
        assert np.allclose(self.share(3 * self.TRAIN, longer), whole, atol=1e-3)
        labels = torch.from_numpy(LABELS[0])
        one = torch.from_numpy(self.TRAIN[1]), labels, self.TEST[1], LABELS[1].tolist()
        assert knn_accuracy(*one).tolist() == [whole[1]]

        # A low temperature does not overflow; a class without training rows counts as wrong.
        assert np.allclose(self.share(temperature=1e-6), self.share(k=1))
        found = knn_accuracy(self.TRAIN[0], LABELS[0] * 0 + 7, self.TEST[0], LABELS[1])
        assert found[0] == pytest.approx((LABELS[1] == 7).mean())
        refused("give at most 1200", self.share, k=1201)
        refused("k=0", self.share, k=0)
        refused(r"temperature=0\.0", self.share, temperature=0.0)
        refused("block=0", self.share, block=0)
        infinite = self.TEST * np.inf
        refused("test features of replica 0 are not finite", self.share, test=infinite)
