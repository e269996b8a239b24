"""Rows out of step: shifted, reversed and resorted stretches, and none where there are none."""

import numpy as np
import pandas as pd
import pytest
import torch

from pointdep import PointwiseDependency, audit
from pointdep.auditing.mended import read_decisions
from pointdep.auditing.out_of_step import FittedScorer, Stretch, find, find_by_columns
from pointdep.auditing.saved import read_audit
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::pointdep.errors.PointdepWarning")
ROWS = 1200


def draw(seed, rows=ROWS):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 6))
    return x, x @ random.normal(size=(6, 5)) + 0.3 * random.normal(size=(rows, 5))


def look(x, y):
    found, partner, _ = find_by_columns(*(torch.from_numpy(side).float() for side in (x, y)))
    return found, partner


@pytest.mark.parametrize("lost", [70, 700, 1130])
@pytest.mark.parametrize("count", [1, 4])
def test_lost_rows(lost, count):
    x, y = draw(lost)
    gone = np.arange(lost, lost + count)
    # y lacks rows: from there on the y of the x some rows later.
    (one,), partner = look(x[: ROWS - count], np.delete(y, gone, 0))
    assert (one.kind, one.shift, one.last) == ("shifted", -count, ROWS - count - 1)
    assert abs(one.first - lost) <= count
    assert (partner[one.first + count :] == np.arange(one.first, ROWS - 2 * count)).all()
    (one,), _ = look(np.delete(x, gone, 0), y[: ROWS - count])
    assert (one.kind, one.shift) == ("shifted", count)
    many = "one row" if count == 1 else "4 rows"
    assert str(one) == f"rows {one.first:,} to {one.last:,}: y is {many} late"


def test_wrong_pairs_inside_do_not_end_a_stretch():
    x, y = draw(5)
    y = np.delete(y, 400, 0)
    y[700:706] = draw(6)[1][:6]
    (one,), partner = look(x[:-1], y)
    assert (one.shift, one.last) == (-1, ROWS - 2)
    assert (partner[420:] == np.arange(419, ROWS - 2)).all()


def test_reversed_and_resorted():
    x, y = draw(1)
    turned, mixed = y.copy(), y.copy()
    turned[300:500] = turned[300:500][::-1]
    order = np.random.default_rng(2).permutation(150)
    mixed[600:750] = y[600:750][order]
    (one,), partner = look(x, turned)
    assert one.kind == "reversed"
    assert abs(one.first - 300) + abs(one.last - 499) <= 6
    assert (partner[310:490] == 799 - np.arange(310, 490)).all()
    (one,), partner = look(x, mixed)
    assert one.kind == "resorted"
    assert abs(one.first - 600) + abs(one.last - 749) <= 10
    inner = np.arange(610, 740)
    assert (partner[inner] == 600 + order.argsort()[inner - 600]).mean() > 0.9


def series(random, memory):
    """(1500, 3), each row like the one before."""
    noise = random.normal(size=(1500, 3))
    for row in range(1, 1500):
        noise[row] += memory * noise[row - 1]
    return noise


@pytest.mark.parametrize("seed", range(3))
def test_nothing_where_nothing_is_wrong(seed):
    random = np.random.default_rng(seed)
    x, y = draw(seed)
    shuffled = y.copy()
    shuffled[random.permutation(ROWS)[:300]] = random.permutation(shuffled[:300])
    labels = np.sort(random.integers(0, 5, ROWS))
    foreign = y.copy()
    foreign[200:300] = draw(seed + 50)[1][:100]
    smooth = series(random, 0.95)
    for name, one, other in (
        ("clean", x, y),
        ("wrong pairs", x, shuffled),
        ("independent", x, random.permutation(y)),
        (
            "sorted labels",
            np.eye(5)[labels] + 0.3 * random.normal(size=(ROWS, 5)),
            np.eye(5)[labels],
        ),
        ("y of no x", x, foreign),
        ("time series", smooth, smooth + random.normal(size=smooth.shape)),
        ("two time series", smooth, series(random, 0.95)),
        ("repeated x", np.repeat(x[:240], 5, 0), np.repeat(y[:240], 5, 0)),
        ("few", x[:30], y[:30]),
    ):
        assert look(one, other)[0] == [], name


def test_by_a_fitted_model_where_columns_are_not_linear():
    class Known:
        """log r of y = x^2 + noise is known up to a constant."""

        def __init__(self, x, y):
            self.x, self.y = x, y

        def pairs(self, rows, others):
            return 3.0 - 50.0 * np.square(self.y[others] - np.square(self.x[rows]))

    random = np.random.default_rng(0)
    x = random.normal(size=900)
    y = np.square(x) + 0.1 * random.normal(size=900)
    (one,), _, _ = find(Known(x[:-1], np.delete(y, 500)), 899)
    assert abs(one.first - 500) <= 3
    # A model's own scores, each x by the replica that did not see it.
    model = PointwiseDependency(hidden=(16,), folds=2, max_epochs=2, random_state=0, progress=False)
    model.fit(x[:200, None], y[:200, None])
    held = model.training_rows_.paired
    fold = np.zeros(200, np.int64)
    fold[held.splits[1].report] = 1
    scorer = FittedScorer(model.model_, held.x, held.y, fold)
    every = np.arange(200)
    np.testing.assert_allclose(scorer.pairs(every, every), model.oof_pmi_, atol=1e-4)
    part = np.arange(20)
    own = scorer.matrix(part, part).diagonal()
    np.testing.assert_allclose(own, model.oof_pmi_[:20], atol=1e-4)


@pytest.fixture(scope="module")
def shifted():
    """y lost row 260 of 601; two pairs before it exchanged their y."""
    x, y = draw(3, 601)
    y = np.delete(y, 260, 0)
    y[[10, 20]] = y[[20, 10]]
    return x[:-1], y


def quick():
    how = {"hidden": (16,), "max_epochs": 30, "folds": 2, "progress": False}
    return PointwiseDependency(random_state=0, **how)


def test_an_audit_of_shifted_rows(shifted, tmp_path):
    x, y = shifted
    found = audit(x, pd.DataFrame(y), model=quick())
    (one,) = found.out_of_step
    assert (one.kind, one.shift, one.last) == ("shifted", -1, 599)
    assert abs(one.first - 260) <= 1
    outside = np.arange(600) >= one.first
    table = found.table
    assert list(table["row"]) == list(range(600))
    assert table["out_of_step"].notna().tolist() == outside.tolist()
    assert (table["out_of_step"][300:] == np.arange(299, 599)).all()
    assert {10, 20} <= set(found.suspects["row"]) <= {10, 20, 259, 260, 261}
    assert table["q_value"][outside].isna().all()
    assert not table["suspect"][outside].any()
    assert table["rank"][outside].min() == one.first + 1
    assert sorted(table["rank"]) == list(range(1, 601))
    # As they stand they do not belong together; in their order they do.
    assert table["pmi"][outside].median() < -2 < 2 < table["better_partner_pmi"][300:].median()
    assert not set(found.kept) & set(np.flatnonzero(outside))
    for name in ("page.html", "rows.parquet"):
        found.to_html(tmp_path / name) if name[-1] == "l" else found.to_parquet(tmp_path / name)
        again = read_audit(tmp_path / name)
        assert again.out_of_step == found.out_of_step
        assert list(again.kept) == list(found.kept)
    assert f"<li>{one}</li>" in (tmp_path / "page.html").read_text("utf-8")
    plain = audit(x[:250], y[:250], model=quick())
    assert plain.out_of_step == ()
    assert "out_of_step" not in plain.table


def test_rows_that_cannot_be_scored_do_not_hide_others(shifted):
    x, y = (side.copy() for side in shifted)
    x[[50, 400], 0] = np.nan
    found = audit(x, y, model=quick().set_params(missing="drop"))
    assert [one.shift for one in found.out_of_step] == [-1]
    assert np.flatnonzero(found.table["pmi"].isna()).tolist() == [50, 400]
    assert list(found.left_out) == [50, 400]
    table = pd.DataFrame({"row": [0, 1, 2], "decision": [None, "wrong", np.nan]})
    assert read_decisions(table, 3) == {1: "wrong"}


def test_decisions_are_taken_back(shifted):
    x, y = (side[:250] for side in shifted)
    first = audit(x, y, model=quick())
    suspects = [int(row) for row in first.suspects["row"]]
    given = {10: "wrong", 20: "right", 5: "wrong", 7: "unsure"}
    found = audit(x, y, model=quick(), decisions=given)
    table = found.table
    assert {row: verdict for row, verdict in enumerate(table["decision"]) if verdict} == given
    assert table["suspect"][[10, 5, 20]].tolist() == [True, True, False]
    assert table["q_value"][[10, 5, 20]].tolist() == [0.0, 0.0, 1.0]
    assert {10, 20} <= set(suspects)
    # Rows that are wrong are left out of the fit, whose other rows are those of a smaller audit.
    rest = np.delete(np.arange(250), [5, 10])
    smaller = audit(x[rest], y[rest], model=quick()).table
    np.testing.assert_allclose(table["pmi"][rest], smaller["pmi"], atol=1e-5)
    partner = smaller["better_partner"].dropna()
    assert list(table["better_partner"][rest].dropna()) == list(rest[partner.to_numpy(int)])
    assert np.isfinite(table["pmi"][[5, 10]]).all()
    same = pd.DataFrame({"row": list(given), "decision": list(given.values())})
    assert audit(x, y, model=quick(), decisions=same).table["q_value"].equals(table["q_value"])
    for decisions, message in (
        ({3: "bad"}, "row 3 is 'bad', which is none of right, wrong, unsure"),
        ({999: "right"}, "row 999 is none of the 250 rows"),
        (pd.DataFrame({"row": [1]}), "needs the columns row and decision"),
    ):
        refused(message, audit, x, y, model=quick(), decisions=decisions)
    streamed = quick().set_params(stream=True)
    refused("needs all rows in memory", audit, x, y, model=streamed, decisions=given)


def test_in_words():
    assert str(Stretch(512, 2047, "shifted", 1)) == "rows 512 to 2,047: y is one row late"
    assert str(Stretch(0, 9, "shifted", -3)) == "rows 0 to 9: y is 3 rows early"
    assert str(Stretch(1, 30, "resorted")) == "rows 1 to 30: y is in another order"
