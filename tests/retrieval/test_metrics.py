"""The metrics against loops written out by hand, with ties and several right answers."""

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.pointwise.helpers import fit, fitted, new_pairs, pairs
from pointdep import retrieval_metrics
from pointdep.retrieval import metrics as metrics_module
from refusals import refused


def of_matrix(scores, **options):
    return retrieval_metrics(lambda rows: scores[rows], *scores.shape, **options)


def ranks_by_hand(scores, right):
    """Walk down each sorted row to the first right answer; right: (queries, candidates)."""
    ranks = []
    for row, answers in zip(scores, right, strict=True):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        ranks.append(1 + next(at for at, j in enumerate(order) if answers[j]))
    return np.array(ranks)


def mrr_by_hand(scores, right):
    return pytest.approx((1 / ranks_by_hand(scores, right)).mean())


def chance_to_win(row, answers, m):
    """Exactly: the wrong ones drawn must all be among those that a right answer beats."""
    wrong, chances = np.flatnonzero(~answers), []
    for mine in np.flatnonzero(answers):
        beaten = sum((row[j], -j) < (row[mine], -mine) for j in wrong)
        chances.append(comb(int(beaten), m - 1) / comb(len(wrong), m - 1))
    return np.mean(chances)


def example(seed, levels=5, queries=12, candidates=20, groups=4):
    """Scores with many ties, ids of both sides, and which candidates are right."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, (queries, candidates)).astype(float)
    asked = random.integers(0, groups, queries)
    given = random.permutation(np.resize(np.arange(groups), candidates))
    return scores, asked, given, asked[:, None] == given


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 10**6]))
def test_ranks(seed, levels):
    scores, asked, ids, right = example(seed, levels)
    found = of_matrix(scores, relevant=(asked, ids), ks=(1, 3, 20), matching=())
    ranks = ranks_by_hand(scores, right)
    assert found.recall == {k: pytest.approx((ranks <= k).mean()) for k in (1, 3, 20)}
    assert (found.mrr, found.median_rank) == (pytest.approx((1 / ranks).mean()), np.median(ranks))
    assert (found.queries, found.candidates, found.matching) == (12, 20, {})


def test_pairs_are_the_diagonal_equal_candidates_and_captions():
    scores = np.random.default_rng(0).integers(0, 4, (30, 30)).astype(float)
    found = of_matrix(scores)
    assert found.mrr == mrr_by_hand(scores, np.eye(30, dtype=bool))
    assert found == of_matrix(scores, relevant=(np.arange(30), np.arange(30)))
    x, y = new_pairs(rows=40)
    found = fitted("pc", "separable").retrieval_metrics(x, np.repeat(y[:1], 40, 0), matching=())
    assert (found.median_rank, found.mrr) == (20.5, pytest.approx(np.mean(1 / np.arange(1, 41))))
    model = fitted("pc", "separable")
    x, y = pairs(40, seed=3)
    numbers, ids = np.arange(10), np.arange(40) // 4
    found = model.retrieval_metrics(x[::4], y, relevant=(numbers, ids), matching=(5,))
    assert found.mrr == mrr_by_hand(model.pmi_matrix(x[::4], y), numbers[:, None] == ids)
    options = {"queries": "y", "relevant": (ids, numbers), "matching": ()}
    back = model.retrieval_metrics(x[::4], y, **options)
    assert (back.queries, back.candidates) == (40, 10)


@pytest.mark.parametrize("seed", range(3))
def test_matching_by_chance(seed):
    scores, asked, ids, right = example(seed)
    for m in (2, 5, 16):
        found = of_matrix(scores, relevant=(asked, ids), matching=(m,), draws=2000)
        wanted = np.mean([chance_to_win(*row, m) for row in zip(scores, right, strict=True)])
        assert found.matching[m] == pytest.approx(wanted, abs=0.02)


def test_matching_among_many_as_in_the_paper_and_in_blocks(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(40, 3000)).round(1)
    scores[:, 7] += 2.0
    ids = np.arange(3000)
    found = of_matrix(scores, relevant=(np.full(40, 7), ids), matching=(5, 60), draws=200)
    for m in (5, 60):
        wanted = np.mean([chance_to_win(row, ids == 7, m) for row in scores])
        assert found.matching[m] == pytest.approx(wanted, abs=0.02)
    scores = np.random.default_rng(0).normal(size=(23, 23)) + 2 * np.eye(23)
    fives = [[(i + 5 * j) % 23 for j in range(5)] for i in range(23)]
    won = sum(int(np.argmax(scores[i, five]) == 0) for i, five in enumerate(fives))
    found = of_matrix(scores, distractors="shifted", matching=(5,))
    assert found.matching == {5: pytest.approx(won / 23)}
    assert 0 < won < 23
    scores, asked, ids, _ = example(1)
    whole, asked_for = of_matrix(scores, relevant=(asked, ids)), []

    def block(rows):
        asked_for.append(rows.stop - rows.start)
        return scores[rows].tolist()

    monkeypatch.setattr(metrics_module, "_CELLS", 100)
    assert retrieval_metrics(block, 12, 20, relevant=(asked, ids)) == whole
    assert asked_for == [5, 5, 2]


@pytest.mark.parametrize("queries", ["x", "y"])
@pytest.mark.parametrize("critic", ["auto", "separable", "concat"])
@pytest.mark.parametrize("method", ["pc", "cpc", "drf"])
def test_of_a_model(critic, method, queries):
    model = fitted(method, critic)
    x, y = new_pairs(critic, 60)
    matrix = model.pmi_matrix(x, y)
    matrix = (matrix if queries == "x" else matrix.T).round(3)
    found = model.retrieval_metrics(x, y, queries=queries, matching=(5,))
    wanted = of_matrix(matrix.astype(float), matching=(5,))
    assert found.mrr == pytest.approx(wanted.mrr, abs=0.02)  # rounding may exchange neighbours
    assert found.median_rank == pytest.approx(wanted.median_rank, abs=1)
    assert found.matching[5] == pytest.approx(wanted.matching[5], abs=0.02)
    assert found.recall[100] == 1.0


@pytest.mark.parametrize("queries", ["x", "y"])
def test_categories_of_the_same_value_are_equally_right(queries):
    random = np.random.default_rng(0)
    numbers, kinds = random.normal(size=(90, 2)), random.choice(["a", "b", "c"], size=90)
    data = (numbers, kinds) if queries == "x" else (kinds, numbers)
    model, options = fit(*data, critic="separable"), {"queries": queries, "ks": (1,)}
    found, matrix = model.retrieval_metrics(*data, **options), model.pmi_matrix(*data)
    matrix = matrix if queries == "x" else matrix.T
    assert found.recall[1] == pytest.approx((kinds[matrix.argmax(1)] == kinds).mean())
    assert found.mrr == mrr_by_hand(matrix, kinds[:, None] == kinds)
    assert found == model.retrieval_metrics(*data, **options, relevant=(kinds, kinds))
    options["distractors"] = "shifted"
    refused("use 'random'", model.retrieval_metrics, *data, **options)


def test_one_side_of_categories():
    """Candidates that are numbers are right one by one; rows of several categories as a whole."""
    random = np.random.default_rng(0)
    numbers, kinds = random.normal(size=(80, 2)), random.choice(["a", "b"], size=(80, 2))
    model = fit(numbers, kinds, critic="separable")
    found = model.retrieval_metrics(numbers, kinds, queries="y", matching=())
    assert found.mrr == mrr_by_hand(model.pmi_matrix(numbers, kinds).T, np.eye(80, dtype=bool))
    ids = [f"{first} {second}" for first, second in kinds]
    found = model.retrieval_metrics(numbers, kinds)
    assert found == model.retrieval_metrics(numbers, kinds, relevant=(ids, ids))


def test_words_json_and_what_is_refused():
    assert [list(of_matrix(np.eye(size)).matching) for size in (4, 5)] == [[], [5]]
    found = of_matrix(np.eye(10), ks=(1, 5), matching=(3,))
    assert str(found) == (
        "10 queries, 10 candidates: recall 100.0% at 1, 100.0% at 5, mean reciprocal rank 1.000, "
        "median rank 1, 1:3 matching 100.0%"
    )
    counts = {"queries": 10, "candidates": 10, "mrr": 1.0, "median_rank": 1.0}
    assert found.to_dict() == {**counts, "recall": {"1": 1.0, "5": 1.0}, "matching": {"3": 1.0}}
    for message, shape, options in (
        ("4 queries and 5 candidates", (4, 5), {}),
        ("matching=5 needs 4 wrong candidates .* only 3", (4, 4), {"matching": (5,)}),
        ("ks=0", (9, 9), {"ks": (0,)}),
        ("matching=1", (9, 9), {"matching": (1,)}),
        ("did you mean 'shifted'", (9, 9), {"distractors": "shift"}),
        ("up to 20 rows after", (9, 9), {"distractors": "shifted"}),
        ("relevant: .* query 1, 1:", (2, 3), {"relevant": ([0, 1], [0, 0, 2])}),
        ("relevant: .* queries have shape", (2, 3), {"relevant": ([0], [0, 0, 2])}),
        ("relevant must be two arrays", (2, 3), {"relevant": "ids"}),
    ):
        refused(message, of_matrix, np.zeros(shape), **options)
    refused(r"shape \(3,\), not \(9, 9\)", retrieval_metrics, lambda rows: np.zeros(3), 9, 9)
    refused("NaN", of_matrix, np.full((9, 9), np.nan))
