"""A calibrated model answers as a fitted one does, from embeddings, functions and matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from pointdep import CalibratedDependency, PointwiseDependency, audit, from_embeddings, from_logits
from pointdep.errors import InputError

from .helpers import embeddings, towers

LOSSES = ["sigmoid", "softmax", "softmax_one_sided"]


@pytest.fixture(scope="module", params=[*LOSSES, "softmax_one_sided-y"])
def fitted(request):
    loss, _, queries = request.param.partition("-")
    x, y, _ = towers()
    made = from_embeddings(
        x, y, loss=loss, queries=queries or "x", normalize=False, scale=1.0, progress=False
    )
    return made, towers(200, seed=1)


def test_new_pairs(fitted):
    model, (x, y, truth) = fitted
    pmi = model.pmi(x, y)
    assert pmi.dtype == np.float32
    assert np.sqrt(np.mean(np.square(pmi - truth))) < 0.25
    assert model.pmi(x[:3], y[:3]) == pytest.approx(pmi[:3], abs=1e-4)  # whoever sits beside it
    matrix = model.pmi_matrix(x[:50], y[:60])
    assert matrix.shape == (50, 60)
    assert matrix.diagonal() == pytest.approx(pmi[:50], abs=1e-3)
    assert (model.pmi_stderr(x, y) > 0).all()
    assert model.pd(x, y) == pytest.approx(np.exp(pmi), rel=1e-4)
    assert np.abs(model.npmi(x, y)).max() <= 1
    assert model.score(x, y) > -np.log(2)
    assert model.check(x, y).conclusive
    assert model.mutual_information(x, y).nats == pytest.approx(float(pmi.mean()), abs=1e-4)


def test_retrieval_is_the_order_of_the_matrix(fitted):
    model, (x, y, _) = fitted
    matrix = model.pmi_matrix(x, y)
    found = model.retrieve(x, y, k=3)
    assert found.exact
    assert np.array_equal(found.indices[:, 0], matrix.argmax(1))
    assert found.pmi == pytest.approx(np.sort(matrix, 1)[:, :-4:-1], abs=1e-3)
    back = model.retrieve(y, x, k=1, queries="y")
    assert np.array_equal(back.indices[:, 0], matrix.argmax(0))
    assert back.pmi[:, 0] == pytest.approx(matrix.max(0), abs=1e-3)
    assert model.retrieval_metrics(x, y).recall[10] > 0.3
    kept = model.index(y)
    assert np.array_equal(model.retrieve(x, kept, k=3).indices, found.indices)
    assert kept.vectors.block(0, 2).shape[1] <= x.shape[1] + 1  # one vector, not one a replica


def test_saved_and_loaded(fitted, tmp_path):
    model, (x, y, _) = fitted
    model.save(tmp_path / "model")
    for again in (
        PointwiseDependency.load(tmp_path / "model"),
        CalibratedDependency.load(tmp_path / "model"),
    ):
        assert isinstance(again, CalibratedDependency)
        assert np.array_equal(again.pmi(x, y), model.pmi(x, y))
        assert again.mutual_information() == model.mutual_information()
        assert again.slope_ == pytest.approx(model.slope_, rel=1e-5)
        assert again.get_params()["loss"] == model.loss
        assert np.array_equal(again.pmi_stderr(x, y), model.pmi_stderr(x, y))


def test_out_of_fold_pmi_by_hand(fitted):
    """A row's query is levelled by the candidates of the other folds, and nothing else."""
    model, _ = fitted
    x, y, _ = towers()
    logits = y @ x.T if model.queries == "y" else x @ y.T
    critic = model.model_.critic
    weights, heat = critic.weights.double().numpy(), float(critic.temperature)
    expected = np.empty(len(x))
    for (slope, shift, *mix), split in zip(
        weights, model.training_rows_.paired.splits, strict=True
    ):
        of_others = logits[split.report][:, split.train]
        levels = [
            np.log(np.mean(np.exp(t * heat * of_others), 1)) / (t * heat) for t in (1, 0.5, 0.25)
        ]
        levels.append(of_others.mean(1))
        own = logits[split.report, split.report]
        if not mix:
            expected[split.report] = slope * own + shift
            continue
        rest = sum(w * (levels[0] - level) for w, level in zip(mix, levels[1:], strict=True))
        expected[split.report] = slope * (own - levels[0]) + shift + rest
    assert model.oof_pmi_ == pytest.approx(expected, abs=2e-3)


def test_scale_is_a_unit_of_the_slope():
    x, y, _ = towers()
    options = {"normalize": False, "progress": False}
    one, ten = (from_embeddings(x, y, scale=scale, **options) for scale in (1.0, 10.0))
    assert ten.slope_ == pytest.approx(one.slope_ / 10, rel=1e-4)
    assert ten.pmi(x, y) == pytest.approx(one.pmi(x, y), abs=1e-3)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_normalised_embeddings_have_no_length():
    x, y = embeddings(400, dim=6)
    length = np.random.default_rng(1).uniform(0.5, 2.0, size=(400, 1))
    one, other = (from_embeddings(side, y, progress=False) for side in (x, length * x))
    assert other.oof_pmi_ == pytest.approx(one.oof_pmi_, abs=1e-4)
    cosine = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert one.pmi(x, y) == pytest.approx(one.slope_ * cosine + one.shift_, abs=1e-3)


class TestFunctions:
    """Three ways to the same logits."""

    @pytest.mark.parametrize("loss", LOSSES)
    def test_function_matrix_and_embeddings_agree(self, loss):
        x, y, _ = towers(300)
        options = {"loss": loss, "progress": False}
        logits = (x @ y.T).astype(np.float32)
        models = [
            from_embeddings(x, y, normalize=False, **options),
            from_logits(lambda a, b: a @ b.T, x, y, **options),
            from_logits(logits, **options),
        ]
        for model in models[1:]:
            assert model.oof_pmi_ == pytest.approx(models[0].oof_pmi_, abs=1e-3)
        assert models[1].pmi_matrix(x[:9], y[:7]) == pytest.approx(
            models[0].pmi_matrix(x[:9], y[:7]), abs=1e-3
        )
        if loss != "softmax_one_sided":
            assert models[2].pmi([1, 2], [1, 5]) == pytest.approx(
                models[0].pmi(x[[1, 2]], y[[1, 5]]), abs=1e-3
            )

    def test_read_out_is_pmi_of_logits(self):
        x, y, _ = towers(300)
        queries, candidates, _ = towers(40, seed=2)
        model = from_embeddings(x, y, normalize=False, loss="softmax_one_sided", progress=False)
        found = model.read_out(queries @ candidates.T, queries @ y.T)
        # A replica leaves its own fold out of the reference, and here none is left out.
        assert found == pytest.approx(model.pmi_matrix(queries, candidates), abs=0.1)

    def test_read_out_is_of_what_was_fitted(self):
        x, y, _ = towers(300)
        model = from_embeddings(x, y, normalize=False, progress=False)
        found = model.read_out(x @ y.T)
        model.set_params(loss="softmax_one_sided")
        assert np.array_equal(model.read_out(x @ y.T), found)

    def test_whole_numbers_arrive_exactly_or_not_at_all(self):
        vectors = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
        seen = set()

        def logits(a, b):
            assert a.dtype == torch.int64
            seen.update(a.flatten().tolist())
            return 2 * vectors[a.flatten() % 300] @ b.T

        last = 2**24
        ids = torch.arange(last - 299, last + 1)
        rows = vectors[ids % 300] + torch.randn(300, 4, generator=torch.Generator().manual_seed(1))
        model = from_logits(logits, ids, rows, progress=False)
        assert seen == set(ids.tolist())
        for call in (
            lambda: from_logits(logits, ids + 1, rows),
            lambda: from_logits(logits, -ids - 1, rows),
            lambda: model.pmi(ids + 1, rows),
            lambda: model.retrieve(ids + 1, rows, k=1),
        ):
            with pytest.raises(InputError, match="X holds 16777217, and whole numbers above"):
                call()

    def test_a_module_on_images_and_tokens(self, tmp_path):
        class Scores(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(7, 4)
                self.calls = []

            def forward(self, images, tokens):
                self.calls.append((tuple(images.shape[1:]), tokens.dtype))
                return images.flatten(1) @ self.words(tokens).mean(1).T

        torch.manual_seed(0)
        scores = Scores()
        tokens = torch.randint(7, (300, 5))
        with torch.no_grad():
            images = scores.words(tokens).mean(1) + 0.3 * torch.randn(300, 4)
        images = images.view(300, 1, 2, 2)
        with pytest.warns(match="check_fails"):
            model = from_logits(scores, images, tokens, loss="softmax", progress=False)
        assert set(scores.calls) == {((1, 2, 2), torch.int64)}
        with torch.no_grad():
            logits = scores(images, tokens).diagonal().numpy()
        assert model.pmi(images, tokens) == pytest.approx(
            model.slope_ * logits + model.shift_, abs=1e-3
        )
        assert model.retrieve(images[:3], tokens, k=2).pmi.shape == (3, 2)
        with pytest.raises(InputError, match=r"rows of shape \(4, 1, 1\), calibrated were"):
            model.pmi(images.view(300, 4, 1, 1), tokens)
        model.save(tmp_path / "model")
        assert not any("words" in name for name in model.model_.state_dict())
        with pytest.raises(InputError, match="your own function"):
            PointwiseDependency.load(tmp_path / "model")
        again = PointwiseDependency.load(tmp_path / "model", critic=scores)
        assert np.array_equal(again.pmi(images, tokens), model.pmi(images, tokens))

    def test_a_function_with_pairs_of_its_own(self):
        class Scores:
            asked = 0

            def __call__(self, x, y):
                return x @ y.T

            def pairs(self, x, y):
                Scores.asked += 1
                return (x * y).sum(1)

        x, y, _ = towers(300)
        model = from_logits(Scores(), x, y, progress=False)
        assert Scores.asked > 0
        plain = from_logits(lambda a, b: a @ b.T, x, y, progress=False)
        assert model.oof_pmi_ == pytest.approx(plain.oof_pmi_, abs=1e-4)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_audit_finds_swapped_pairs():
    x, y, _ = towers(500, dim=4, correlation=0.95)
    y[[10, 20]] = y[[20, 10]]
    model = from_embeddings(x, y, normalize=False, progress=False)
    found = audit(x, y, model=model)
    assert {10, 20} <= set(found.suspects["row"])
    assert found.method == "pc"


def test_clone_and_recalibrate():
    x, y, _ = towers(300)
    model = from_embeddings(x, y, normalize=False, folds=3, progress=False)
    assert model.n_replicas_ == 3
    again = clone(model).fit(x, y)
    assert np.array_equal(again.oof_pmi_, model.oof_pmi_)


def test_float64_torch_and_half_precision():
    x, y, _ = towers(300)
    model = from_embeddings(x, y, normalize=False, progress=False)
    other = from_embeddings(torch.tensor(x), torch.tensor(y), normalize=False, progress=False)
    assert np.array_equal(other.oof_pmi_, model.oof_pmi_)
    half = from_logits(torch.tensor(x @ y.T).bfloat16(), progress=False)
    assert np.abs(half.oof_pmi_ - model.oof_pmi_).max() < 0.5
