"""Indexes: the same answers as without, on disk and back, and for their model only."""

import json

import numpy as np
import pytest

from estimators.pointwise.helpers import fit, fitted, new_pairs, pairs
from pointdep import PointwiseDependency
from pointdep.errors import ModelFileError
from pointdep.retrieval import pairwise
from refusals import refused

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


def test_it_keeps_no_more_than_it_needs():
    y = new_pairs()[1]
    for method, critic, has_vectors, has_rows in (
        ("pc", "separable", True, False),
        ("drf", "separable", True, True),
        ("dv", "auto", True, True),
        ("pc", "concat", False, True),
    ):
        index = fitted(method, critic).index(y)
        assert (index.vectors is not None, index.rows is not None) == (has_vectors, has_rows)


@pytest.fixture
def place(tmp_path):
    fitted("pc", "separable").index(new_pairs()[1]).save(tmp_path / "index")
    return tmp_path / "index"


def unreadable(cause, place):
    with pytest.raises(ModelFileError, match=cause):
        fitted("pc", "separable").load_index(place)


def test_another_model_side_or_kind(place):
    model, (x, y) = fitted("pc", "separable"), new_pairs()
    other = fit(critic="separable", random_state=1)
    refused("another model", other.load_index, place)
    refused("another model", other.retrieve, x, model.index(y))
    refused("holds x, .* queries='y'", model.retrieve, x, model.index(x, side="x"))
    refused("unknown side 'z'", model.index, x, side="z")
    refused("index='hnsw' .* flat index", model.retrieve, x, model.index(y), index="hnsw")


@pytest.mark.parametrize("name", ["candidates.safetensors", "index.json"])
def test_damage(place, name):
    (place / name).write_bytes((place / name).read_bytes()[:-9])
    unreadable("truncated", place)
    (place / name).unlink()
    unreadable(f"has no .*{name}", place)


def test_an_edited_description(place):
    about = json.loads((place / "index.json").read_text())
    for change, cause in (
        ({"format": "other"}, "is not a pointdep index"),
        ({"format_version": 99}, "has format 99"),
        ({"count": "many"}, "missing or wrong"),
        ({"sha256": {}}, "of another index"),
    ):
        (place / "index.json").write_text(json.dumps(about | change))
        unreadable(cause, place)


def test_places(tmp_path):
    unreadable("no such folder", tmp_path / "nowhere")
    index = fitted("pc", "separable").index(new_pairs()[1])
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    for name, cause in (("file", "is a file"), ("full", "thesis.tex"), ("no/where", "not exist")):
        refused(cause, index.save, tmp_path / name)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]
