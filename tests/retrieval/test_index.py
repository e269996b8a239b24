"""Indexes: the same answers as without, on disk and back, and for their model only."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from estimator.helpers import fit, fitted, new_pairs, pairs
from pointdep import InputError, PointwiseDependency
from pointdep.errors import ModelFileError
from pointdep.retrieval import vectors

CASES = [
    ("pc", "auto", "flat"),
    ("dv", "auto", "flat"),
    ("cpc", "auto", "flat"),
    ("pc", "separable", "flat"),
    ("drf", "separable", "flat"),
    ("pc", "concat", "flat"),
    ("pc", "encoders", "flat"),
    ("pc", "separable", "hnsw"),
    ("pc", "separable", "ivf"),
    ("dv", "auto", "hnsw"),
]


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


def test_by_the_model_from_disk(tmp_path):
    model = fitted("pc", "separable")
    x, y = new_pairs()
    model.save(tmp_path / "model")
    model.index(y).save(tmp_path / "index")
    again = PointwiseDependency.load(tmp_path / "model", device="cpu")
    assert_same(model.retrieve(x, y, 5), again.retrieve(x, again.load_index(tmp_path / "index"), 5))


def test_a_flat_index_moves_to_where_there_is_no_faiss(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    model = fitted("pc", "separable")
    x, y = new_pairs()
    here = model.retrieve(x, y, 5)
    model.index(y).save(tmp_path / "index")
    monkeypatch.setattr(vectors, "has_faiss", lambda: False)
    index = model.load_index(tmp_path / "index")
    assert isinstance(index.vectors, vectors.TorchVectors)
    assert_same(here, model.retrieve(x, index, 5))


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


class TestRefused:
    @pytest.fixture
    def place(self, tmp_path):
        fitted("pc", "separable").index(new_pairs()[1]).save(tmp_path / "index")
        return tmp_path / "index"

    def test_another_model(self, place):
        x, y = new_pairs()
        other = fit(critic="separable", random_state=1)
        with pytest.raises(InputError, match="was made with another model"):
            other.load_index(place)
        with pytest.raises(InputError, match="was made with another model"):
            other.retrieve(x, fitted("pc", "separable").index(y))

    def test_the_side_that_asks(self):
        model, (x, _) = fitted("pc", "separable"), new_pairs()
        with pytest.raises(InputError, match="holds x, and the queries are x too: set queries='y'"):
            model.retrieve(x, model.index(x, side="x"))
        with pytest.raises(InputError, match="unknown side 'z'"):
            model.index(x, side="z")

    def test_another_kind(self):
        model, (x, y) = fitted("pc", "separable"), new_pairs()
        with pytest.raises(InputError, match="a flat index already"):
            model.retrieve(x, model.index(y), index="hnsw")

    @pytest.mark.parametrize("name", ["candidates.safetensors", "index.json"])
    def test_damage(self, place, name):
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[:-9])
        with pytest.raises(ModelFileError, match="truncated"):
            fitted("pc", "separable").load_index(place)
        (place / name).unlink()
        with pytest.raises(ModelFileError, match=f"no readable {name}"):
            fitted("pc", "separable").load_index(place)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": "other"}, "is not a pointdep index"),
            ({"format_version": 99}, "has format 99"),
            ({"count": "many"}, "holds a wrong one"),
            ({"sha256": {}}, "truncated, edited or of another index"),
        ],
    )
    def test_an_edited_description(self, place, change, message):
        about = json.loads((place / "index.json").read_text())
        (place / "index.json").write_text(json.dumps(about | change))
        with pytest.raises(ModelFileError, match=message):
            fitted("pc", "separable").load_index(place)

    def test_no_index(self, tmp_path):
        with pytest.raises(ModelFileError, match="there is no such folder"):
            fitted("pc", "separable").load_index(tmp_path / "nowhere")

    def test_places(self, tmp_path):
        index = fitted("pc", "separable").index(new_pairs()[1])
        (tmp_path / "file").write_text("")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thesis.tex").write_text("")
        for name, message in (
            ("file", "is a file"),
            ("full", "holds other files, such as thesis.tex"),
            ("no/where", "is no folder"),
        ):
            with pytest.raises(InputError, match=message):
                index.save(tmp_path / name)
        assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_equal_vectors_are_equal_wherever_they_stand():
    """What ties by value rests on."""
    from pointdep.retrieval.inner import _pmi

    draw = torch.Generator().manual_seed(0)
    store = vectors.TorchVectors(101, 37, torch.device("cpu"))
    store.add(torch.randn(1, 37, generator=draw).expand(101, 37))
    queries = torch.randn(13, 37, generator=draw)
    numbers = torch.arange(101).expand(13, 101)
    pmi = _pmi(store, queries, torch.zeros(13), numbers)
    assert torch.equal(pmi, pmi[:, :1].expand(13, 101))
