"""A calibrated model answers as a fitted one does; what a user gets wrong, and is told."""

from functools import partial

import numpy as np
import pytest
import torch

from pointdep import CalibratedDependency, PointwiseDependency, from_embeddings, from_logits
from pointdep.errors import FitWarning
from pointdep.estimators.calibrated import pair_flags
from refusals import refused

from .helpers import draw, embeddings, levels_by_hand, towers

LOSSES = ["sigmoid", "softmax", "softmax_one_sided"]
PAIRS = embeddings(100)
calibrate = partial(from_embeddings, normalize=False, progress=False)


@pytest.fixture(scope="module", params=[*LOSSES, "softmax_one_sided-y"])
def fitted(request):
    loss, _, queries = request.param.partition("-")
    x, y, _ = towers()
    return calibrate(x, y, loss=loss, queries=queries or "x"), towers(200, seed=1)


def test_new_pairs_and_their_retrieval(fitted):
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
    matrix = model.pmi_matrix(x, y)  # whose order that of retrieval is
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
    for kind in (PointwiseDependency, CalibratedDependency):
        again = kind.load(tmp_path / "model")
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
    expected, splits = np.empty(len(x)), model.training_rows_.paired.splits
    for (slope, shift, *mix), split in zip(weights, splits, strict=True):
        expected[split.report] = slope * logits[split.report, split.report] + shift
        if mix:
            first, *others = levels_by_hand(logits[split.report][:, split.train], heat)
            rest = sum(w * (first - level) for w, level in zip(mix, others, strict=True))
            expected[split.report] += rest - slope * first
    assert model.oof_pmi_ == pytest.approx(expected, abs=2e-3)


@pytest.mark.filterwarnings("ignore::pointdep.errors.FitWarning")
def test_scale_is_a_unit_of_the_slope_and_normalised_embeddings_have_no_length():
    x, y, _ = towers()
    one, ten = (calibrate(x, y, scale=scale) for scale in (1.0, 10.0))
    assert ten.slope_ == pytest.approx(one.slope_ / 10, rel=1e-4)
    assert ten.pmi(x, y) == pytest.approx(one.pmi(x, y), abs=1e-3)
    x, y = embeddings(400, dim=6)
    length = np.random.default_rng(1).uniform(0.5, 2.0, size=(400, 1))
    one, other = (from_embeddings(side, y, progress=False) for side in (x, length * x))
    assert other.oof_pmi_ == pytest.approx(one.oof_pmi_, abs=1e-4)
    cosine = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert one.pmi(x, y) == pytest.approx(one.slope_ * cosine + one.shift_, abs=1e-3)


class Scores:
    """A function with pairs of its own."""

    asked = 0

    def __call__(self, x, y):
        return x @ y.T

    def pairs(self, x, y):
        self.asked += 1
        return (x * y).sum(1)


@pytest.mark.parametrize("loss", LOSSES)
def test_functions_matrix_and_embeddings_agree(loss):
    x, y, _ = towers(300)
    options, scores = {"loss": loss, "progress": False}, Scores()
    model = calibrate(x, y, loss=loss)
    function = from_logits(lambda a, b: a @ b.T, x, y, **options)
    matrix = from_logits((x @ y.T).astype(np.float32), **options)
    for other in (function, matrix):
        assert other.oof_pmi_ == pytest.approx(model.oof_pmi_, abs=1e-3)
    of_pairs = from_logits(scores, x, y, **options)
    assert of_pairs.oof_pmi_ == pytest.approx(function.oof_pmi_, abs=1e-4)
    assert scores.asked > 0
    wanted = model.pmi_matrix(x[:9], y[:7])
    assert function.pmi_matrix(x[:9], y[:7]) == pytest.approx(wanted, abs=1e-3)
    if loss != "softmax_one_sided":
        wanted = model.pmi(x[[1, 2]], y[[1, 5]])
        assert matrix.pmi([1, 2], [1, 5]) == pytest.approx(wanted, abs=1e-3)


def test_read_out_is_pmi_of_logits_and_of_what_was_fitted():
    x, y, _ = towers(300)
    queries, candidates, _ = towers(40, seed=2)
    model = calibrate(x, y, loss="softmax_one_sided")
    found = model.read_out(queries @ candidates.T, queries @ y.T)
    # A replica leaves its own fold out of the reference, and here none is left out.
    assert found == pytest.approx(model.pmi_matrix(queries, candidates), abs=0.1)
    model = calibrate(x, y)
    found = model.read_out(x @ y.T)
    model.set_params(loss="softmax_one_sided")
    assert np.array_equal(model.read_out(x @ y.T), found)


def test_whole_numbers_arrive_exactly_or_not_at_all():
    vectors, seen = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)), set()

    def logits(a, b):
        assert a.dtype == torch.int64
        seen.update(a.flatten().tolist())
        return 2 * vectors[a.flatten() % 300] @ b.T

    ids = torch.arange(2**24 - 299, 2**24 + 1)
    rows = vectors[ids % 300] + torch.randn(300, 4, generator=torch.Generator().manual_seed(1))
    with pytest.warns(FitWarning, match="check_fails"):  # an inner product is not log r
        model = from_logits(logits, ids, rows, progress=False)
    assert seen == set(ids.tolist())
    for call in (
        lambda: from_logits(logits, ids + 1, rows),
        lambda: from_logits(logits, -ids - 1, rows),
        lambda: model.pmi(ids + 1, rows),
        lambda: model.retrieve(ids + 1, rows, k=1),
    ):
        refused("X holds 16777217", call)


def test_a_module_on_images_and_tokens(tmp_path):
    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(7, 4)
            self.calls = []

        def forward(self, images, tokens):
            self.calls.append((tuple(images.shape[1:]), tokens.dtype))
            return images.flatten(1) @ self.words(tokens).mean(1).T

    torch.manual_seed(0)
    scores, tokens = Scores(), torch.randint(7, (300, 5))
    with torch.no_grad():
        images = scores.words(tokens).mean(1) + 0.3 * torch.randn(300, 4)
        images = images.view(300, 1, 2, 2)
        logits = scores(images, tokens).diagonal().numpy()
    with pytest.warns(match="check_fails"):
        model = from_logits(scores, images, tokens, loss="softmax", progress=False)
    assert set(scores.calls) == {((1, 2, 2), torch.int64)}
    found = model.pmi(images, tokens)
    assert found == pytest.approx(model.slope_ * logits + model.shift_, abs=1e-3)
    assert model.retrieve(images[:3], tokens, k=2).pmi.shape == (3, 2)
    refused(r"shape \(4, 1, 1\), calibrated were", model.pmi, images.view(300, 4, 1, 1), tokens)
    model.save(tmp_path / "model")
    assert not any("words" in name for name in model.model_.state_dict())
    refused("your own function", PointwiseDependency.load, tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model", critic=scores)
    assert np.array_equal(again.pmi(images, tokens), found)


def logits(rows=100, broken=None):
    table = draw(rows).log_ratio
    table[3, 4] = table[3, 4] if broken is None else broken
    return table


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_logits(logits()[:, :50]), r"shape \(100, 50\) but must be square"),
        (lambda: from_logits(logits()[0]), r"shape \(100,\) but must be square"),
        (lambda: from_logits(logits(broken=np.nan)), "nan in row 3, column 4"),
        (lambda: from_logits(logits(broken=-np.inf)), "-inf in row 3, column 4"),
        (lambda: from_logits(logits() > 0), "holds bool: give numbers"),
        (lambda: from_logits([[1.0], [1.0, 2.0]]), "no matrix"),
        (lambda: from_logits(logits(), loss="sigmod"), "did you mean 'sigmoid'"),
        (lambda: from_logits(logits(), queries="z"), "queries='z' must be 'x' or 'y'"),
        (lambda: from_logits(logits(20)), "20 pairs are too few to calibrate by"),
        (lambda: from_logits(logits(), folds=1), "folds=1 must be at least 2"),
        (lambda: from_logits(-logits(400)), "are these distances"),
        (lambda: from_logits(np.ones((100, 100))), "the logits are all the same"),
        (lambda: from_logits(10 * np.eye(100)), "give more held-out pairs"),
        (lambda: from_logits(logits(), np.zeros(100)), "a matrix holds its pairs already"),
        (lambda: from_logits(np.matmul), "X and Y are missing"),
        (lambda: from_logits(logits(), groups=np.zeros(100)), "groups has 1 distinct value"),
        (lambda: from_logits(logits(90), groups=np.arange(90) // 3), "30 groups are too few"),
        (lambda: from_embeddings(*embeddings(20)), "20 pairs are too few"),
        (lambda: from_embeddings(np.zeros((60, 2)), np.zeros((60, 3))), "must be of one space"),
        (lambda: from_embeddings(*embeddings(60), scale=-1.0), "scale=-1.0 must be a number above"),
        (lambda: from_embeddings(np.zeros((60, 2)), np.zeros((61, 2))), "inconsistent numbers"),
        (lambda: from_embeddings(["a"] * 60, ["b"] * 60), "holds strings"),
        (lambda: CalibratedDependency("separable").fit(*embeddings(60)), "unknown critic"),
        (lambda: CalibratedDependency().fit(embeddings(60)[0]), "target y is None"),
        (lambda: from_logits(lambda x, y: (x * y).sum(1), *PAIRS), r"\(100,\): .* \(100, 100\)"),
        (lambda: from_logits(lambda x, y: x @ y, *PAIRS), "failed: "),
        (lambda: from_logits(lambda x, y: (x @ y.T) * np.nan, *PAIRS), "gave NaN or infinity"),
    ],
)
def test_input_errors(call, message):
    refused(message, call)
    with pytest.raises(TypeError, match="did you mean 'normalize'"):
        CalibratedDependency(normalise=False)


@pytest.mark.parametrize(
    ("rows", "groups", "by"), [(100, None, "100 pairs"), (300, np.arange(300) // 4, "75 groups")]
)
def test_few_pairs_are_flagged(rows, groups, by):
    with pytest.warns(FitWarning, match=f"few_pairs: .*by {by}") as told:
        model = from_logits(logits(rows), groups=groups, progress=False)
    assert {one.filename for one in told} == {__file__}  # who called is told where
    assert "few_pairs" in [flag.name for flag in model.flags_]
    assert "few_pairs" in model.mutual_information().warnings[0]


@pytest.mark.parametrize(
    ("slope", "stderr", "flagged"),
    [(1.0, 0.2, False), (1.0, 0.3, True), (1.0, 0.9, True), (0.02, 0.05, False), (0, 0, False)],
)
def test_a_doubtful_slope_is_flagged(slope, stderr, flagged):
    assert bool(pair_flags(slope, stderr, spread=1.0, count=500, grouped=False)) == flagged


def test_copies_are_flagged():
    x, y = (np.repeat(side, 2, 0) for side in embeddings(200))
    with pytest.warns(FitWarning) as told:
        calibrate(x, y)
    assert any("duplicated_rows: " in str(one.message) for one in told)
    with pytest.warns(FitWarning, match="check_fails"):  # an inner product is not log r
        model = calibrate(x, y, groups=np.repeat(np.arange(200), 2))
    assert "duplicated_rows" not in [flag.name for flag in model.flags_]


@pytest.mark.parametrize(
    ("loss", "ask", "said"),
    [
        ("sigmoid", lambda m: m.pmi([300], [0]), "0 to 299: .* read_out"),
        ("sigmoid", lambda m: m.pmi([-1], [0]), "0 to 299: .* read_out"),
        ("sigmoid", lambda m: m.pmi([0.5], [0]), "0 to 299: .* read_out"),
        ("sigmoid", lambda m: m.read_out(logits(), logits()), "takes no reference"),
        ("softmax_one_sided", lambda m: m.read_out(logits()), "needs reference"),
        ("softmax_one_sided", lambda m: m.read_out(logits(), logits(50)), "same queries"),
        ("sigmoid", lambda m: m.read_out([1.0, np.nan]), "logits holds NaN"),
        ("sigmoid", lambda m: m.mutual_information(shuffles=9), "shuffles .* trained elsewhere"),
    ],
)
def test_what_may_not_be_asked(loss, ask, said):
    refused(said, ask, from_logits(logits(300), loss=loss, progress=False))
