"""The page: data on the way into it, words, the policy, what was left out, hostile texts."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointdep.auditing.report import page, wording
from pointdep.auditing.report.page import pack, pack_table, render, shorten, to_script
from pointdep.auditing.report.wording import caveat, finding, histogram, outer_bars, share_in_words
from pointdep.auditing.result import Contamination
from pointdep.errors import Flag

from .conftest import gaussian_check, make_audit, some_pmi


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


def test_the_policy_and_the_rows_that_are_shown():
    text = render(make_audit([-3.0, 1.0]))
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1]
    for name in ("script", "style"):
        (inside,) = re.findall(rf"<{name}>(.*?)</{name}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}';" in policy
    # Rows of the audit where nothing is named.
    x, y = np.arange(6.0).reshape(3, 2) + 0.5, np.array(["cat", "dog", "hen"])
    audit = replace(make_audit([-3.0, 1.0, 2.0]), sides=(x, y))
    text, named = render(audit), render(audit, show_x=["one", "two", "three"])
    assert all(shown in text for shown in ('"2.5, 3.5"', '"dog"'))
    assert all(shown in named for shown in ('"two"', '"dog"'))
    assert '"2.5, 3.5"' not in named
    assert "row" in render(replace(audit, sides=(object(), y)))


def test_cut_texts_are_said_once(monkeypatch):
    audit, texts = make_audit(some_pmi(100)), ["a" * 2000] * 100
    assert '<p class="hint">Texts are cut at 1,000 characters.</p>' in render(audit, show_x=texts)
    monkeypatch.setattr(page, "TEXT_BYTES", 30_000)
    said = "Texts are cut at 200 characters, those of the first 5,000 suspects at 1,000."
    assert said in render(audit, show_x=texts)


@pytest.mark.parametrize("width", [360, 390, 700, 900, 1280])
def test_the_last_card_does_not_hang_alone(open_page, width):
    page = open_page(make_audit([-3.0, 1.0, np.nan]))
    page.resize(width)
    right, last = page.js(
        "return [document.querySelector('.cards'), document.querySelector('.cards li:last-child')]"
        ".map(one => one.getBoundingClientRect().right)"
    )
    assert last == pytest.approx(right, abs=1)


def test_the_finding():
    found = make_audit(some_pmi(2000), suspects=37)
    said = "37 of 2,000 pairs are suspects: about 29% of these are expected to be right."
    assert (finding(found), f"{found.suspects['q_value'].max():.2f}") == (said, "0.29")
    sure = make_audit([-20.0, -19.0, 3.0], suspects=2)
    assert finding(sure).endswith(": under 0.1% of these are expected to be right.")
    assert finding(make_audit([0.0, 1.0], suspects=1)).startswith("1 of 2 pairs is a suspect: ")
    assert finding(make_audit([0.0, 1.0], suspects=0)).startswith("None of the 2 pairs")


def test_the_cards():
    found = make_audit([-2.0, -0.5, 1.0, 3.0])

    def cards(audit):
        card = r'name">(.*?)</span> <strong>(.*?)</strong> <span class="note">(.*?)<'
        return re.findall(card, html.unescape(render(audit)))

    assert cards(found)[:4] == [
        (
            "Mutual information",
            "1.500 nats",
            "95% interval 1.460 to 1.540 nats; 2.164 bits (2.106 to 2.222)",
        ),
        ("Rows", "4", "5 folds, method pc"),
        ("Suspects", "1", "25% of the rows, at a false discovery rate of 10%"),
        ("PMI below zero", "2", "50% of the rows: together less often than chance"),
    ]
    assert [card[:2] for card in cards(found)[4:]] == [("Chance pairs", "3.2%")]
    named = replace(found, answered="closed form alone")
    assert cards(named)[1][2] == "5 folds, method pc, closed form alone"
    squared = replace(found.mutual_information, estimates="squared-loss mutual information")
    told = ("Squared-loss mutual information", "1.500", "95% interval 1.460 to 1.540")
    assert cards(replace(found, mutual_information=squared))[0] == told


def test_caveat_numbers_and_shares_in_words():
    assert caveat(make_audit([-2.0, 1.0], check=gaussian_check())) == ""
    for check in (gaussian_check(wrong=2.0), gaussian_check(rows=20)):
        assert not check.passed
        said = caveat(make_audit([-2.0, 1.0], check=check))
        assert said.startswith("Suspects are judged against mismatched pairs, so")
        assert caveat(make_audit([-2.0, 1.0], check=check, suspects=0)) == ""
        unsure = replace(
            make_audit([-2.0, 1.0], check=check), flags=(Flag("wide_interval", (), "it is wide"),)
        )
        assert caveat(unsure).startswith("The fit is uncertain")
    values = {0: "<0.001", 0.0009: "<0.001", 0.001: "0.001", 0.25: "0.250", None: "-"}
    assert {value: wording.probability(value) for value in values} == values
    shares = {0: "0%", 0.1: "10%", 0.032: "3.2%", 0.05: "5%", 0.00042: "0.042%", 1: "100%"}
    assert {share: wording.percent(share) for share in shares} == shares
    assert share_in_words(Contamination(0.1, given=True)).endswith("as given")
    estimated = share_in_words(Contamination(0.1, given=False, stderr=0.012))
    assert "by chance ± 1.2%; too high where some right pairs look like" in estimated


@given(st.lists(st.floats(-1e4, 1e4, allow_subnormal=False), min_size=1, max_size=200))
def test_every_value_is_in_a_bar_on_its_side_of_zero(values):
    found = histogram(values)
    edges, counts = np.array(found["edges"]), np.array(found["counts"])
    assert len(edges) == len(counts) + 1
    assert (np.diff(edges) > 0).all()
    assert counts.sum() == len(values)
    low, high = edges[0], edges[-1]
    assert found["beyond"] == [sum(v < low for v in values), sum(v > high for v in values)]
    if edges[0] < 0 < edges[-1]:
        assert 0 in edges
    assert counts[edges[1:] <= 0].sum() == sum(value < 0 for value in values)


def test_bars_against_a_loop():
    values = some_pmi(500)
    found = histogram(values)
    edges = found["edges"]
    for low, high, count in zip(edges[:-2], edges[1:-1], found["counts"], strict=False):
        assert count == sum(low <= value < high for value in values)
    assert 60 <= len(found["counts"]) <= 100
    assert histogram([np.nan, np.inf]) == {"edges": [], "counts": [], "beyond": [0, 0]}
    found = histogram([1.0] * 90 + [-4.0] * 10)
    assert found["edges"][0] <= -4.0
    assert (found["beyond"], sum(found["counts"])) == ([0, 0], 100)


def test_outliers_do_not_squash_the_bars():
    found = histogram(np.append(np.linspace(-1, 1, 999), 1e5))
    assert found["edges"][-1] < 10
    assert (found["beyond"], sum(found["counts"])) == ([0, 1], 1000)
    # Nor does a twentieth of the rows.
    random = np.random.default_rng(0)
    values = np.append(random.normal(3, 1, 570), random.normal(-50, 3, 30))
    found = histogram(values)
    edges, counts = np.array(found["edges"]), np.array(found["counts"])
    assert -8 < edges[0] < -3
    assert edges[-1] == pytest.approx(values.max(), abs=0.2)
    assert (counts > 0).sum() > 30
    assert counts[0] == 30
    assert outer_bars(found) == [f"30 rows below {edges[0]:.1f} are in the first bar."]
    one = {"edges": [-20.0, 0.0, 7.0], "beyond": [1, 1234]}
    said = ["1 row below -20.0 is in the first bar.", "1,234 rows above 7.0 are in the last bar."]
    assert outer_bars(one) == said
    assert outer_bars(histogram([])) == outer_bars(histogram([0.0, 1.0])) == []


HOSTILE = [
    "<script>window.hacked=1</script>",
    '"><img src=x onerror="window.hacked=2">',
    "</script><script>window.hacked=3</script>",
    "<!-- <script>",
    "{{ 7 * 7 }} {% raw %}",
    "line\u2028separator\u2029here",
    "javascript:window.hacked=4",
    "=HYPERLINK(\"http://example.org\")",
    "a\x00b\x1b[31mc",
    "\u202eright to left",
    "\udc80 lone surrogate",
    "<svg onload=window.hacked=5>",
    "&lt;b&gt;",
]  # fmt: skip


def shown(text):
    """As the browser gives it back."""
    return text.encode("utf-8", "replace").decode()


def test_texts_are_shown_as_they_are(open_page):
    labels = [*HOSTILE[:-1], None]
    audit = make_audit(np.arange(len(HOSTILE)) - 20.0, labels=labels, flags=HOSTILE[:5])
    page = open_page(audit, show_x=HOSTILE, show_y=HOSTILE[::-1], title=HOSTILE[2])
    found = page.texts("#body tr .text")  # x and y of one row after the other
    assert found[::2] == found[::-2] == [shown(text) for text in HOSTILE]
    assert page.texts(".notes strong") == [shown(text) for text in labels[:-1]]
    assert page.at("h1").text == page.driver.title == HOSTILE[2]
    assert HOSTILE[0] in page.at("section.warning").text
    page.search("onerror")
    page.wait("document.getElementById('count').textContent.startsWith('2 ')")
    assert page.js("return window.hacked === undefined")
    assert page.texts("#body img, #body script, #body svg") == []


def test_a_script_that_got_in_would_not_run(open_page, chromium):
    page = open_page(make_audit([-3.0, 1.0, 2.0]))
    for name, inner in (
        ("script", "textContent = 'window.hacked = 1'"),
        ("div", "innerHTML = '<img src=data:, onerror=window.hacked=2>'"),
    ):
        made = f"const made = document.createElement('{name}'); made.{inner}"
        page.js(f"{made}; document.body.append(made)")
    page.wait("document.images.length === 1 && document.images[0].complete")
    assert page.js("return window.hacked === undefined")
    refused = [entry["message"] for entry in chromium.get_log("browser")]
    assert any("Content Security Policy" in message for message in refused)


def test_spreadsheets_get_no_formulas_and_other_files_are_names_only(open_page, tmp_path):
    page = open_page(make_audit([-3.0, -2.5, 1.0]), show_x=["=1+1", "@x", 'say "a, b"'])
    page.js(
        "window.made = []; URL.createObjectURL = (blob) => { blob.text().then((t) => made.push(t));"
        "return '#' }; HTMLAnchorElement.prototype.click = () => {}"
    )
    page.show("all")
    page.at("#download").click()
    page.wait("made.length === 1")
    lines = page.js("return made[0]").splitlines()
    assert [line.split(",")[1] for line in lines[1:3]] == ["'=1+1", "'@x"]
    assert '"say ""a, b"""' in lines[3]
    names = [str(tmp_path / name) for name in ("x.svg", "x.html", "x.pdf")]
    for name in names:
        Path(name).write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='hacked=1'></svg>")
    page = open_page(make_audit([-3.0, -2.0, -1.5]), show_x=names)
    assert page.column("x") == names
    assert page.texts("#body img, #body svg") == []
