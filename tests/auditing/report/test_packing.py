"""Data on the way into the page: short, safe and the same when read again."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.auditing.report import page
from pointdep.auditing.report.page import pack, pack_table, shorten, to_script

from .helpers import make_audit


def unpack(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), "<" + packed["type"])


@given(st.lists(st.text() | st.sampled_from(["</script>", "<!--", "&amp;", "\u2028", "\x00"])))
def test_json_that_no_markup_can_end(texts):
    script = to_script({"x": texts})
    assert not set(script) & set("<>&\u2028\u2029")
    assert json.loads(script) == {"x": texts}


@given(st.lists(st.floats(width=32) | st.just(np.nan)))
def test_numbers_survive(values):
    np.testing.assert_array_equal(unpack(pack(values, "f4")), np.array(values, np.float32))


def test_the_table():
    labels = [None, "cat", None, "<b>"]
    marks = {"swapped_with": {0: 3, 3: 0}, "better_partner": {1: 2}, "better_partner_pmi": {1: 2.5}}
    audit = make_audit([-2.0, 1.0, np.nan, -3.0], suspects=2, labels=labels, **marks)
    packed = pack_table(audit.table)
    assert packed["rows"] == 4
    for name in ("pmi", "stderr", "posterior", "q_value", "rank"):
        expected = audit.table[name].to_numpy(np.float32)
        np.testing.assert_array_equal(unpack(packed["columns"][name]), expected)
    assert unpack(packed["suspects"]).tolist() == [0, 3]
    gaps = {
        name: dict(zip(unpack(g["rows"]).tolist(), unpack(g["values"]).tolist(), strict=True))
        for name, g in packed["gaps"].items()
    }
    assert gaps == {**marks, "duplicate_of": {}}
    assert packed["better_label"] == {"1": "cat", "3": "<b>"}


def test_short_texts_stay():
    assert shorten([["a", "b"], None], set()) == ([["a", "b"], None], None)


def test_a_long_text_is_cut():
    (cut, _), length = shorten([["a" * 5000, "b"], None], set())
    assert length == 1000
    assert cut == ["a" * 999 + "…", "b"]


def test_texts_are_cut_until_they_fit(monkeypatch):
    monkeypatch.setattr(page, "TEXT_BYTES", 30_000)
    texts = ["ä" * 400] * 100
    (x, y), length = shorten([texts, texts], {7})
    assert length == 60
    assert len(x[7]) == len(y[7]) == 400
    assert {len(text) for row, text in enumerate(x) if row != 7} == {60}
    assert sum(len(text.encode()) for text in [*x, *y]) < 30_000


@pytest.mark.parametrize("side", [None, []])
def test_nothing_to_show(side):
    assert shorten([side, side], set()) == ([side, side], None)
