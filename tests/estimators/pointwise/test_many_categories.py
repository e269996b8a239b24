"""Two columns of many categories: the table that the default critic then is, through every call."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pointdep import ClassicalDependency, PointwiseDependency, audit
from pointdep.data.tasks.discrete import outcomes

KIND, ROWS = "low-rank table", 1_500
# Of 60 times 60 outcomes, so few rows show a part, as the flag says; the interval holds the truth.
pytestmark = pytest.mark.filterwarnings("ignore:rises_with_rows")


def _topics(categories: int, count: int, seed: int) -> NDArray[np.float64]:
    x, y = np.random.default_rng(seed).dirichlet(np.full(categories, 0.1), (2, count))
    return np.einsum("ti,tj->ij", x, y) / count


TASK = outcomes(_topics(60, 5, 0)).draw("topics", ROWS, 0)


def _names(codes: NDArray[np.int64], letter: str) -> NDArray[np.str_]:
    return np.char.add(letter, codes.astype(str))


X, Y = _names(TASK.x, "x"), _names(TASK.y, "y")


def _fit(x: object = X, y: object = Y, **options: object) -> PointwiseDependency:
    return PointwiseDependency(random_state=0, progress=False, **options).fit(x, y)


@pytest.fixture(scope="module")
def model() -> PointwiseDependency:
    return _fit()


def test_pmi_and_information_are_near_the_truth(model: PointwiseDependency) -> None:
    assert model.model_.answered == KIND
    counted = ClassicalDependency("counting", random_state=0, progress=False).fit(X, Y)
    error, by_counts = (
        np.square(found.oof_pmi_ - TASK.pmi).mean() ** 0.5 for found in (model, counted)
    )
    assert error < 0.7 * by_counts
    low, high = model.mutual_information(confidence=0.9).ci
    assert low <= TASK.mutual_information <= high
    assert model.history_ == []


def test_saved_models_matrix_retrieval_check_and_permutations(
    model: PointwiseDependency, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    again = PointwiseDependency.load(tmp_path / "model")
    assert np.array_equal(again.pmi(X, Y), model.pmi(X, Y))
    assert again.mutual_information() == model.mutual_information()
    every_y = np.unique(Y)
    matrix = model.pmi_matrix(X[:40], every_y)
    single = model.pmi(np.repeat(X[:40], len(every_y)), np.tile(every_y, 40))
    assert np.allclose(matrix.ravel(), single, atol=1e-5)
    found = model.retrieve(X[:40], every_y, k=5)
    assert np.allclose(found.pmi, np.sort(matrix, 1)[:, ::-1][:, :5], atol=1e-5)
    assert model.check().verdict
    assert model.mutual_information(shuffles=19).null_p == pytest.approx(1 / 20)


def test_names_and_the_order_of_rows_matter_little(model: PointwiseDependency) -> None:
    renamed = _fit(_names(np.random.default_rng(1).permutation(60)[TASK.x], "z"), Y)
    assert np.allclose(renamed.oof_pmi_, model.oof_pmi_, atol=0.02)
    order = np.random.default_rng(2).permutation(ROWS)
    shuffled = _fit(X[order], Y[order]).mutual_information()
    there = model.mutual_information()
    assert shuffled.nats == pytest.approx(there.nats, abs=there.stderr)


def test_audits_find_mismatched_rows_and_groups_count_once() -> None:
    task = outcomes(np.kron(np.eye(5), np.full((8, 8), 1 / 64)) / 5).draw("blocks", 1_500, 0)
    wrong, y = np.random.default_rng(3).permutation(1_500)[:45], task.y.copy()
    y[wrong] = (y[wrong] + 8) % 40
    table = audit(_names(task.x, "x"), _names(y, "y"), random_state=0, progress=False).table
    assert np.isin(table["rank"].to_numpy().argsort()[:45], wrong).mean() > 0.9
    groups = np.repeat(np.arange(ROWS // 3), 3)
    x, y = X[groups], Y[groups]  # each pair three times
    plain, grouped = _fit(X[:500], Y[:500]), PointwiseDependency(random_state=0, progress=False)
    found = grouped.fit(x, y, groups=groups).mutual_information()
    assert found.nats == pytest.approx(plain.mutual_information().nats, abs=0.25)
    assert found.stderr > 0.6 * plain.mutual_information().stderr


@pytest.mark.filterwarnings("ignore::pointdep.FitWarning")
def test_networks_that_are_asked_for_are_kept_and_too_few_rows_flagged() -> None:
    assert _fit(X[:300], Y[:300], hidden=(8, 8), max_epochs=1).model_.answered != KIND
    assert _fit(X[:300], Y[:300], critic="bilinear", max_epochs=1).model_.answered == ""
    few = [np.char.add("c", (side % 10).astype(str)) for side in (TASK.x, TASK.y)]
    assert _fit(*few, max_epochs=1).model_.answered != KIND
    task = outcomes(_topics(400, 20, 1)).draw("topics", 1_000, 0)
    model = _fit(_names(task.x, "x"), _names(task.y, "y"))
    assert "rises_with_rows" in {flag.name for flag in model.flags_}
    most = max(len(np.unique(side)) for side in (task.x, task.y))
    assert f"1,000 rows of {most} categories" in str(model.flags_)


@pytest.mark.filterwarnings("ignore::pointdep.FitWarning")
def test_no_interval_exceeds_the_entropy_of_a_side() -> None:
    random = np.random.default_rng(4)
    y = random.integers(0, 3, 400)
    x = y[:, None] * 10.0 + random.normal(size=(400, 2))
    for one, other in ((x, _names(y, "y")), (_names(y, "x"), _names(y, "y"))):
        found = _fit(one, other, max_epochs=5).mutual_information(confidence=0.999)
        # Two standard errors and Miller and Madow's term above the plug-in entropy of the labels.
        share = np.bincount(y) / 400
        spread = np.sqrt(share @ np.log(share) ** 2 - (share @ np.log(share)) ** 2)
        limit = -share @ np.log(share) + 2 / 800 + 2 * spread / 20
        assert found.ci[0] <= found.nats <= found.ci[1] <= limit + 1e-9


def test_a_rise_that_the_correction_holds_is_not_flagged() -> None:
    joint = outcomes(_topics(200, 6, 3))
    x, y, _ = joint.sample(3_000, np.random.default_rng(0))
    model = _fit(_names(x, "x"), _names(y, "y"))
    found = model.mutual_information()
    assert found.curve.rise[0] > 3 * found.curve.rise[1]
    assert found.ci[0] < joint.mutual_information < found.ci[1]
    assert "rises_with_rows" not in {flag.name for flag in model.flags_}
