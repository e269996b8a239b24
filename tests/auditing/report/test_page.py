"""The page: data on the way into it, the policy, what was left out, and where the cards stand."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.auditing.report import page
from pointdep.auditing.report.page import pack, pack_table, render, shorten, to_script

from .helpers import make_audit, some_pmi


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


def test_long_texts_are_cut_until_they_fit(monkeypatch):
    for sides in ([["a", "b"], None], [None, None], [[], []]):
        assert shorten(sides, set()) == (sides, None)
    (cut, _), length = shorten([["a" * 5000, "b"], None], set())
    assert (cut, length) == (["a" * 999 + "…", "b"], 1000)
    monkeypatch.setattr(page, "TEXT_BYTES", 30_000)
    texts = ["ä" * 400] * 100
    (x, y), length = shorten([texts, texts], {7})
    assert length == 60
    assert len(x[7]) == len(y[7]) == 400
    assert {len(text) for row, text in enumerate(x) if row != 7} == {60}
    assert sum(len(text.encode()) for text in [*x, *y]) < 30_000


def test_the_policy_names_the_script_and_the_style_that_are_there():
    text = render(make_audit([-3.0, 1.0]))
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1]
    for name in ("script", "style"):
        (inside,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}';" in policy


def test_cut_texts_are_said_once(monkeypatch):
    audit = make_audit(some_pmi(100))
    texts = ["a" * 2000] * 100
    assert '<p class="hint">Texts are cut at 1,000 characters.</p>' in render(audit, show_x=texts)
    monkeypatch.setattr(page, "TEXT_BYTES", 30_000)
    said = "Texts are cut at 200 characters, those of the first 5,000 suspects at 1,000."
    assert said in render(audit, show_x=texts)


def test_the_rows_of_the_audit_are_shown_where_nothing_is_named():
    x, y = np.arange(6.0).reshape(3, 2) + 0.5, np.array(["cat", "dog", "hen"])
    audit = replace(make_audit([-3.0, 1.0, 2.0]), sides=(x, y))
    text, named = render(audit), render(audit, show_x=["one", "two", "three"])
    assert all(shown in text for shown in ('"2.5, 3.5"', '"dog"'))
    assert all(shown in named for shown in ('"two"', '"dog"'))
    assert '"2.5, 3.5"' not in named
    assert "row" in render(replace(audit, sides=(object(), y)))


@pytest.mark.parametrize("width", [360, 390, 700, 900, 1280])
def test_the_last_card_does_not_hang_alone(open_page, width):
    page = open_page(make_audit([-3.0, 1.0, np.nan]))
    page.resize(width)
    right, last = page.js(
        "return [document.querySelector('.cards'), document.querySelector('.cards li:last-child')]"
        ".map(one => one.getBoundingClientRect().right)"
    )
    assert last == pytest.approx(right, abs=1)
