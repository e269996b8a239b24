"""What speaks against a pair: columns against a loop by hand, and words that are left out."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from pointdep import PointwiseDependency, audit
from pointdep.auditing import why

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.PointdepWarning")
ROWS = 300


def quick():
    how = {"hidden": (16,), "max_epochs": 30, "folds": 2, "progress": False}
    return PointwiseDependency(random_state=0, **how)


@pytest.fixture(scope="module")
def found():
    random = np.random.default_rng(0)
    x = pd.DataFrame(random.normal(size=(ROWS, 3)), columns=["age", "height", "<b>price</b>"])
    kind = np.where(x["age"] > 0, "old", "new")
    y = pd.DataFrame(x.to_numpy() + 0.2 * random.normal(size=(ROWS, 3)), columns=["a", "h", "p"])
    x["kind"] = np.where(random.random(ROWS) < 0.05, "old", kind)
    y.loc[7, "h"] = -y["h"][7] - 3 * np.sign(y["h"][7])
    y.loc[9, "p"] = -y["p"][9] - 3 * np.sign(y["p"][9])
    return audit(x, y, model=quick())


def test_the_columns_that_are_wrong_come_first(found):
    text = found.table["why"]
    assert set(text[7].split(", ")[0].rsplit(" ", 1)[0].split(" of ")) <= {"h", "height", "x", "y"}
    assert text[9].split(" ")[0] in ("p", "<b>price</b>")
    assert text.notna().sum() <= len(found.suspects) + 100
    assert text[found.suspects["row"]].notna().all()
    weights = [[float(one.rsplit(" ", 1)[1]) for one in told.split(", ")] for told in text.dropna()]
    assert all(told == sorted(told) and told[0] < 0 for told in weights)
    assert max(map(len, weights)) <= 3


def test_against_a_loop(monkeypatch):
    monkeypatch.setattr(why, "_DRAWS", 3)
    random = np.random.default_rng(0)
    x, y = (torch.from_numpy(random.normal(size=(20, 3))).float() for _ in range(2))

    def score(model, one, other):
        return (one * other).sum(-1) * model.scale

    monkeypatch.setattr(why, "score_pairs", score)
    take = {"x_of": lambda rows: x[rows], "y_of": lambda rows: y[rows]}
    among, model = SimpleNamespace(x=x, y=y, **take), SimpleNamespace(scale=2.0)
    rows, columns = np.array([4, 11]), [("first", slice(0, 1)), ("rest", slice(1, 3))]
    against = {4: [], 11: []}
    why._by_columns(model, among, rows, columns, "y", np.random.default_rng(1), against)
    others = np.random.default_rng(1).integers(0, 20, 6).reshape(3, 2)
    for place, row in enumerate(rows):
        for (weight, name), (expected, at) in zip(against[row], columns, strict=True):
            changes = []
            for other in others[:, place]:
                changed = y[row].clone()
                changed[at] = y[other][at]
                changes.append(2.0 * float(x[row] @ (y[row] - changed)))
            assert (name, weight) == (expected, pytest.approx(np.mean(changes), abs=1e-5))


def test_words_left_out(monkeypatch):
    known = {"dog": -2.0, "on": 0.0, "grass": 1.0}

    def encode(fitted, texts, side):
        del fitted, side
        return torch.tensor([[sum(known[word] for word in text.split())] for text in texts])

    monkeypatch.setattr(why, "encode_side", encode)
    monkeypatch.setattr(why, "score_pairs", lambda model, x, y: (x * y)[:, 0])
    x, y = torch.ones(3, 1), torch.ones(3, 1)
    take = {"x_of": lambda rows: x[rows], "y_of": lambda rows: y[rows]}
    among, against = SimpleNamespace(x=x, y=y, **take), {0: [], 1: [], 2: []}
    texts = ["dog on grass dog", "dog", "on dog"]
    why._by_words(None, None, among, np.array([0, 1, 2]), texts, "y", against)
    assert against == {
        0: [(-4.0, '"dog" of y'), (0.0, '"on" of y'), (1.0, '"grass" of y')],
        1: [],
        2: [(0.0, '"on" of y'), (-2.0, '"dog" of y')],
    }


def test_nothing_to_tell():
    random = np.random.default_rng(0)
    one = random.normal(size=(120, 1))
    assert "why" not in audit(one, one + random.normal(size=one.shape), model=quick()).table
