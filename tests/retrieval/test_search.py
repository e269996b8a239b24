"""The search, also by indexes, against sorting all of `pmi_matrix`, in both directions."""

import json
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.pointwise.helpers import CRITICS, fit, fitted, new_pairs, pairs
from pointdep import PointwiseDependency, Retrieved
from pointdep.data import storage
from pointdep.errors import ModelFileError
from pointdep.estimators.pointwise import encode_side
from pointdep.retrieval import pairwise
from pointdep.retrieval import search as search_module
from pointdep.retrieval.search import top_k
from refusals import refused

K = 5
METHODS = ("pc", "cpc", "drf", "nwj")
LOUD = "dv"  # by this method the default critic keeps its network, however short the fit


def sorted_matrix(model, x, y, queries):
    """All PMI, (queries, candidates), and the numbers of the candidates from best to worst."""
    matrix = model.pmi_matrix(x, y)
    matrix = matrix if queries == "x" else matrix.T
    return matrix, np.argsort(-matrix, axis=1, kind="stable")


def sides(queries, x, y):
    return (x, y) if queries == "x" else (y, x)


def assert_best(found, matrix, order, k=K, atol=1e-5):
    """What was found is as good as the first k of the sorted matrix, up to rounding."""
    best = np.take_along_axis(matrix, order[:, :k], 1)
    assert found.indices.shape == found.pmi.shape == best.shape
    assert (found.indices.dtype, found.pmi.dtype) == (np.int64, np.float32)
    np.testing.assert_allclose(found.pmi, best, rtol=0, atol=atol)
    there = np.take_along_axis(matrix, found.indices, 1)
    np.testing.assert_allclose(there, best, rtol=0, atol=atol)
    assert all(len(set(row)) == k for row in found.indices.tolist())


def share_found(indices, order):
    rows = zip(indices, order[:, : indices.shape[1]], strict=True)
    return np.mean([np.isin(row, best).mean() for row, best in rows])


@pytest.fixture
def without_faiss(monkeypatch):
    monkeypatch.setattr(pairwise, "has_faiss", lambda: False)


def assert_searches(model, asked, given, queries, *all_options):
    matrix, order = sorted_matrix(model, *sides(queries, asked, given), queries)
    for options in all_options:
        found = model.retrieve(asked, given, K, queries=queries, **options)
        assert_best(found, matrix, order)
        assert found.exact or (found.recall == 1.0 and found.recall_queries == len(asked))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("critic", CRITICS)
def test_critics(critic, method):
    x, y = new_pairs(critic, 60)
    for queries in "xy":
        asked, others = sides(queries, x[:35], y)
        options = {}, {"exact": True}, {"shortlist": len(others) - 1}
        assert_searches(fitted(method, critic), asked, others, queries, *options)


@pytest.mark.parametrize("link", ["log_ratio", "asinh"])
@pytest.mark.parametrize("method", ["drf", "cpc"])
def test_links(method, link):
    model = fit(method=method, link=link, critic="separable")
    for queries in "xy":
        assert_searches(model, *sides(queries, *new_pairs()), queries, {"shortlist": 29})


@pytest.mark.parametrize("critic", ["auto", "separable", "concat"])
def test_one_replica_on_prepared_rows_and_blocks_of_any_size(critic, monkeypatch, without_faiss):
    model = fitted("pc", critic)
    x, y = map(encode_side, [model] * 2, new_pairs(critic), "xy")
    one = model.model_.select([1])
    matrix = one.log_ratio_matrix(x[None], y[None])[0].numpy()
    assert_best(top_k(one, x, y, K), matrix, np.argsort(-matrix, axis=1))
    assert_best(top_k(one, y, x, K, queries="y"), matrix.T, np.argsort(-matrix.T, axis=1))
    for name, size in {"QUERIES": 7, "BLOCK": 6, "CELLS": 200, "LISTED_NUMBERS": 500}.items():
        monkeypatch.setattr(search_module, f"_{name}", size)
    for name, size in {"NUMBERS": 300, "COLUMNS": 11, "QUERIES": 3}.items():
        monkeypatch.setattr(pairwise, f"_{name}", size)
    model, pair = fitted(LOUD, critic), new_pairs(critic, 50)
    for queries in "xy":
        assert_searches(model, *sides(queries, *pair), queries, {}, {"shortlist": 49})


@pytest.mark.parametrize("critic", ["auto", "separable", "concat"])
@pytest.mark.parametrize("k", [1, 30, 90])
def test_copies_come_in_the_order_of_their_numbers(critic, k):
    model = fitted("pc", critic)
    x, y = new_pairs(critic)
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(4), 25))
    matrix, _ = sorted_matrix(model, x, y[:4], "x")
    for row, numbers in zip(matrix, model.retrieve(x, y[kinds], k).indices, strict=True):
        best = np.argsort(-row)[np.arange(k) // 25]  # any 25 of a kind, before the next kind
        np.testing.assert_array_equal(kinds[numbers], best)
        assert all((np.diff(numbers[best == kind]) > 0).all() for kind in range(4))


@pytest.mark.parametrize("critic", ["auto", "auto, silent", "separable"])
def test_categories(critic):
    x, _ = pairs()
    model = fit(x, np.where(x[:, 0] > 0, "right", "left"), critic=critic.split(",")[0])
    if "silent" in critic:
        model.model_.critic.silence()
        assert model.model_.inner_is_exact
    found = model.retrieve(x[:20], np.array(["left", "right"] * 50), 3)
    first = model.pmi_matrix(x[:20], ["left", "right"]).argmax(1)
    np.testing.assert_array_equal(found.indices % 2, first[:, None] + [0, 0, 0])
    back = model.retrieve(["left", "right"], x, 10, queries="y")
    assert_best(back, *sorted_matrix(model, x, ["left", "right"], "y"), k=10)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_ties_of_blocks(seed, k):
    """The values of a sort; of all candidates, its order too."""
    random = np.random.default_rng(seed)
    values = torch.from_numpy(random.integers(0, 6, (4, 60)))
    wanted = (-values).argsort(dim=1, stable=True)
    top, numbers = pairwise.topk_of_blocks(values.split(int(random.integers(1, 61)), 1), k)
    assert torch.equal(top, values.gather(1, wanted[:, :k]))
    assert torch.equal(top, values.gather(1, numbers))
    shuffled = torch.from_numpy(random.permuted(np.tile(np.arange(60), (4, 1)), axis=1))
    found = pairwise.best_first(values.gather(1, shuffled), shuffled, k)
    assert torch.equal(found[1], wanted[:, :k])
    assert torch.equal(found[0], top)


@pytest.mark.parametrize("critic", ["auto", "separable"])
def test_with_and_without_faiss(critic, monkeypatch):
    pytest.importorskip("faiss")
    for queries in "xy":
        asked, given = sides(queries, *pairs(3000, seed=4))
        found = []
        for has in (True, False):
            monkeypatch.setattr(pairwise, "has_faiss", lambda has=has: has)
            found.append(fitted("pc", critic).retrieve(asked[:500], given, 20, queries=queries))
        np.testing.assert_array_equal(found[1].indices, found[0].indices)
        np.testing.assert_array_equal(found[1].pmi, found[0].pmi)


def searched(method, critic, asked=100, given=800):
    """A model, queries and candidates, and their sorted matrix."""
    model, x, y = fitted(method, critic), pairs(asked, seed=5)[0], pairs(given, seed=6)[1]
    return model, x, y, *sorted_matrix(model, x, y, "x")


class TestNotExact:
    def test_recall_is_the_share_of_the_true_best(self):
        model, x, y, _, order = searched(LOUD, "auto")
        assert not model.model_.critic.silent
        found = model.retrieve(x, y, K, shortlist=K)
        share = share_found(found.indices, order)
        assert not found.exact
        assert (found.recall_queries, found.recall) == (len(x), pytest.approx(share))
        assert 0.05 < share < 0.99
        assert f"recall {share:.1%} of the true best, by 100 queries" in str(found)
        unmeasured = model.retrieve(x, y, K, shortlist=K, measure_recall=False)
        assert unmeasured.recall is None
        assert "recall not measured" in str(unmeasured)
        np.testing.assert_array_equal(unmeasured.indices, found.indices)

    def test_lists_are_as_long_as_they_need_to_be(self, monkeypatch):
        for name, value in {"_FEW_PAIRS": 0, "_SHORTEST": 5, "_PER_K": 1}.items():
            monkeypatch.setattr(search_module, name, value)
        model, x, y, _, order = searched(LOUD, "auto")
        found = model.retrieve(x, y, K)
        assert found.exact or found.recall > 0.95
        length = None if found.exact else int(found.searched.split()[2])
        assert length is None or K < length <= 400
        assert share_found(found.indices, order) > 0.95
        monkeypatch.setattr(search_module, "_LONGEST", 6)
        assert "PMI of 6 each" in model.retrieve(x, y, K).searched

    @pytest.mark.parametrize("kind", ["hnsw", "ivf"])
    @pytest.mark.parametrize("critic", ["auto", "separable"])
    @pytest.mark.parametrize("method", ["pc", LOUD])
    def test_faster_indexes(self, kind, critic, method):
        pytest.importorskip("faiss")
        model, x, y, matrix, order = searched(method, critic, 60, 2000)
        found = model.retrieve(x, y, K, index=kind, shortlist=300)
        share = share_found(found.indices, order)
        assert not found.exact
        assert kind in found.searched
        assert 0.5 < share == pytest.approx(found.recall, abs=0.01)
        there = np.take_along_axis(matrix, found.indices, 1)
        np.testing.assert_allclose(found.pmi, there, rtol=0, atol=1e-5)

    def test_cells_with_fewer_than_k(self):
        pytest.importorskip("faiss")
        model, x, y, matrix, order = searched("pc", "separable", 60, 500)
        found = model.retrieve(x, y, 200, index="ivf")
        assert (found.indices >= 0).all()
        assert_best(found, matrix, order, k=200)
        assert found.recall == 1.0


def test_k_where_nobody_says_and_what_an_index_keeps():
    model = fitted(LOUD, "auto")
    x, y = new_pairs()
    assert model.retrieve(x, y, shortlist=3).indices.shape == (len(x), 3)
    for candidates, k in ((30, 10), (4, 4), (1, 1)):
        found = model.retrieve(x, y[:candidates])
        assert found.indices.shape == (len(x), k)
        assert np.array_equal(model.retrieve(x, model.index(y[:candidates])).indices, found.indices)
    y = new_pairs()[1]
    for method, critic, has_vectors, has_rows in (
        ("pc", "separable", True, False),
        ("drf", "separable", True, True),
        ("dv", "auto", True, True),
        ("pc", "concat", False, True),
    ):
        index = fitted(method, critic).index(y)
        assert (index.vectors is not None, index.rows is not None) == (has_vectors, has_rows)


def test_options_that_are_refused():
    given, retrieve = new_pairs(), fitted("pc", "separable").retrieve
    refused("k=31 .* 30 candidates", retrieve, *given, k=31)
    refused("k=0", retrieve, *given, k=0)
    refused("0 sample", retrieve, given[0][:0], given[1])
    refused("k=2.5", retrieve, *given, k=2.5)
    refused("queries 'z'", retrieve, *given, queries="z")
    refused("index 'hsnw': did you mean 'hnsw'", retrieve, *given, index="hsnw")
    refused("shortlist=3 must be at least 10", retrieve, *given, shortlist=3, k=10)
    refused("shortlist=0", retrieve, *given, shortlist=0)
    refused("exact=True .* index='hnsw'", retrieve, *given, exact=True, index="hnsw")
    no_product = fitted("pc", "concat").retrieve
    refused("index='hnsw' .* this critic is none", no_product, *given, index="hnsw")


def test_searches_that_cannot_be_and_what_a_person_reads(without_faiss):
    model, (x, y) = fitted("pc", "separable"), new_pairs()
    refused(None, model.retrieve, x[:0], y)
    refused("Y has 2 features.*expecting 3 features as input$", model.retrieve, x, x)
    refused(r"X has 3 .*; did you mean queries='y'\?$", model.retrieve, y, x)
    refused(r"Y has 2 features.*; did you mean side='x'\?$", model.index, x)
    refused("Y is missing", model.retrieve, x, None)
    refused("X has 3 features.*as input$", model.retrieve, y, y, queries="y")
    refused(r"did you mean queries='x'\?$", model.retrieve, x, y, queries="y")
    refused("index='ivf' needs FAISS", model.retrieve, x, y, index="ivf")
    numbers, pmi = np.array([[3, 1], [0, 2]]), np.array([[1.5, 0.1], [0.0, -2.0]], np.float32)
    found = Retrieved(numbers, pmi, True, None, 0, "all pairs", 4)
    assert found.without_partner == 1
    assert str(found) == (
        "The best 2 of 4 candidates for each of 2 queries, by all pairs (exact); 1 queries have "
        "none of PMI above 0"
    )


FLAT = [("pc", critic) for critic in ("auto", "separable", "concat", "encoders")]
FLAT += [("dv", "auto"), ("cpc", "auto"), ("drf", "separable")]
FASTER = [("pc", "separable", "hnsw"), ("pc", "separable", "ivf"), ("dv", "auto", "hnsw")]
CASES = [(method, critic, "flat") for method, critic in FLAT] + FASTER


def assert_same(here, there):
    np.testing.assert_array_equal(there.indices, here.indices)
    np.testing.assert_array_equal(there.pmi, here.pmi)
    assert (there.exact, there.recall, there.searched) == (here.exact, here.recall, here.searched)


@pytest.mark.parametrize("side", ["x", "y"])
@pytest.mark.parametrize(("method", "critic", "kind"), CASES)
def test_saved_and_loaded(method, critic, kind, side, tmp_path):
    model = fitted(method, critic)
    x, y = pairs(300, seed=4)
    asked, given = (x[:20], y) if side == "y" else (y[:20], x)
    options = {"queries": "x" if side == "y" else "y", "shortlist": 40}
    index = model.index(given, side=side, kind=kind)
    assert len(index) == 300
    here = model.retrieve(asked, given, 5, index=kind, **options)
    assert_same(here, model.retrieve(asked, index, 5, **options))
    index.save(tmp_path / "index")
    again = model.load_index(tmp_path / "index")
    assert (again.side, again.kind, again.count) == (side, kind, 300)
    assert_same(here, model.retrieve(asked, again, 5, **options))
    index.save(tmp_path / "index")  # in place of itself
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index"]


def test_by_the_model_from_disk_and_without_faiss(tmp_path, monkeypatch):
    model = fitted("pc", "separable")
    x, y = new_pairs()
    here = model.retrieve(x, y, 5)
    model.save(tmp_path / "model")
    model.index(y).save(tmp_path / "index")
    again = PointwiseDependency.load(tmp_path / "model", device="cpu")
    assert_same(here, again.retrieve(x, again.load_index(tmp_path / "index"), 5))
    monkeypatch.setattr(pairwise, "has_faiss", lambda: False)
    assert_same(here, again.retrieve(x, again.load_index(tmp_path / "index"), 5))


@pytest.fixture
def place(tmp_path):
    fitted("pc", "separable").index(new_pairs()[1]).save(tmp_path / "index")
    return tmp_path / "index"


def unreadable(cause, place):
    with pytest.raises(ModelFileError, match=cause):
        fitted("pc", "separable").load_index(place)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_files_of_faiss_are_checked_before_faiss_reads_them(kind, tmp_path, monkeypatch):
    """It would allocate what they ask for, and follow links to anywhere."""
    faiss = pytest.importorskip("faiss")
    place = tmp_path / "index"
    fitted("pc", "separable").index(new_pairs()[1], kind=kind).save(place)
    file, about = place / "vectors.faiss", json.loads((place / "index.json").read_text())
    content = file.read_bytes()
    entry = content.index(b"IxF2") - 20  # of the graph
    large, far = (2**40).to_bytes(8, "little"), (10**6).to_bytes(4, "little")
    ending = (
        content[:entry] + far + content[entry + 4 :] if kind == "hnsw" else content[:-8] + large
    )
    monkeypatch.setattr(faiss, "read_index", Mock(side_effect=AssertionError))
    for changed in (content[:-1], content + b"0", content[:37] + large + content[45:], ending):
        file.write_bytes(changed)
        about.pop("about_sha256", None)
        about["sha256"][file.name] = storage.file_digest(file)
        about["about_sha256"] = storage.digest_of(about)
        (place / "index.json").write_text(json.dumps(about))
        unreadable("vectors.faiss cannot be read", place)


def test_another_model_side_or_kind_and_an_edited_description(place, tmp_path):
    model, (x, y) = fitted("pc", "separable"), new_pairs()
    other = fit(critic="separable", random_state=1)
    refused("another model", other.load_index, place)
    refused("another model", other.retrieve, x, model.index(y))
    refused("holds x, .* queries='y'", model.retrieve, x, model.index(x, side="x"))
    refused("unknown side 'z'", model.index, x, side="z")
    refused("index='hnsw' .* flat index", model.retrieve, x, model.index(y), index="hnsw")
    about = json.loads((place / "index.json").read_text())
    for change, cause in (
        ({"format": "other"}, "is not a pointdep index"),
        ({"format_version": 99}, "has format 99"),
        ({"count": about["count"] - 1}, "was edited or damaged"),
        ({"has_own": not about["has_own"]}, "was edited or damaged"),
        ({"format_version": 1}, "was edited or damaged"),
    ):
        (place / "index.json").write_text(json.dumps(about | change))
        unreadable(cause, place)
    del about["about_sha256"]
    for change, cause in (  # by someone who knows of the digest
        ({"count": "many"}, "missing or wrong"),
        ({"side": "z"}, "missing or wrong"),
        ({"count": about["count"] - 1}, "holds .* candidates where"),
        ({"sha256": {}}, "of another index"),
    ):
        made = about | change
        made["about_sha256"] = storage.digest_of(made)
        (place / "index.json").write_text(json.dumps(made))
        unreadable(cause, place)
    unreadable("no such folder", tmp_path / "nowhere")
    index = fitted("pc", "separable").index(new_pairs()[1])
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    for name, cause in (("file", "is a file"), ("full", "thesis.tex"), ("no/where", "not exist")):
        refused(cause, index.save, tmp_path / name)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_full_disk(kind, tmp_path):
    import resource

    index = fitted("pc", "separable").index(new_pairs()[1], kind=kind)
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, kept[1]))
        refused("cannot write .*index", index.save, tmp_path / "index")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("queries", ["x", "y"])
def test_none_where_nothing_belongs(queries):
    model = fitted("pc", "separable")
    x, y = new_pairs()
    asked, given = sides(queries, x, y)
    plain = model.retrieve(asked, given, K, queries=queries)
    assert (plain.min_pmi, plain.false_matches) == (None, None)
    found = model.retrieve(asked, given, K, queries=queries, min_pmi=0.5, held_out=(x, y))
    above = plain.pmi > 0.5
    assert (found.indices == np.where(above, plain.indices, -1)).all()
    np.testing.assert_array_equal(found.pmi, np.where(above, plain.pmi, np.nan))
    assert found.without_partner == (~above[:, 0]).sum()
    # Each query without its own: how often would as many candidates hold one above?
    matrix, _ = sorted_matrix(model, x, y, queries)
    np.fill_diagonal(matrix, -np.inf)
    shares = (matrix > 0.5).sum(1) / (len(x) - 1)
    rates = 1 - (1 - shares) ** len(x)
    assert found.false_matches == pytest.approx(rates.mean(), abs=1e-6)
    assert found.false_match_stderr == pytest.approx(rates.std() / len(x) ** 0.5)
    assert found.held_out == len(x)
    assert f"{rates.mean():.2%}" in str(found)
    sure = model.retrieve(asked, given, K, queries=queries, min_pmi=50.0)
    assert (sure.without_partner, sure.false_matches) == (len(asked), 0.0)  # rows of the fit
    assert sure.held_out > 0
    refused("give min_pmi too", model.retrieve, x, y, held_out=(x, y))
    refused("min_pmi='low' must be a number", model.retrieve, x, y, min_pmi="low")


@pytest.mark.parametrize("name", ["candidates.safetensors", "index.json"])
def test_damage(place, name):
    (place / name).write_bytes((place / name).read_bytes()[:-9])
    unreadable("truncated", place)
    (place / name).unlink()
    unreadable(f"has no .*{name}", place)
