"""The page in Chromium: what a person does with it, by mouse and by keyboard."""

import io

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from .conftest import Page, gaussian_check, make_audit, some_pmi

ROWS = 400


@pytest.fixture(scope="module")
def pmi():
    return some_pmi(ROWS).astype(np.float32)


@pytest.fixture(scope="module")
def opened(pmi, chromium, tmp_path_factory):
    x = [f"picture number {row}" for row in range(ROWS)]
    y = [f"{'cat' if row % 3 else 'dog'} {ROWS - row:03d}" for row in range(ROWS)]
    path = tmp_path_factory.mktemp("report") / "report.html"
    make_audit(pmi).to_html(path, show_x=x, show_y=y, progress=False)
    return Page(chromium, path).load()


@pytest.fixture
def page(opened, quiet_console):
    if opened.driver.current_url != opened.path.as_uri():
        opened.load()
    return opened.begin_again()


def lowest(pmi, mask=True):
    """Row numbers by PMI, of the rows in the mask."""
    return [int(row) for row in np.argsort(pmi, kind="stable") if (mask & np.isfinite(pmi))[row]]


def test_it_begins_with_the_suspects_worst_first(page, pmi):
    expected = lowest(pmi, pmi < -1)
    assert 0 < len(expected) <= 50
    assert (page.rows, page.count) == (expected, len(expected))
    assert page.column("Rank") == [str(rank + 1) for rank in range(len(expected))]
    assert page.column("x")[0] == f"picture number {expected[0]}"
    assert page.column("PMI")[0] == f"{pmi[expected[0]]:.2f} ± 0.25"
    # Nothing is fetched.
    assert page.js("return performance.getEntriesByType('resource').map(one => one.name)") == []
    policy = page.at("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe" not in policy


def test_all_rows_in_pages(page, pmi):
    page.show("all")
    assert page.count == ROWS
    seen = []
    for number in range(8):
        assert page.at("#page").text == f"Page {number + 1} of 8"
        assert len(page.rows) == 50
        seen += page.rows
        if number < 7:
            page.at("[data-go=next]").click()
    assert seen == lowest(pmi)
    assert not page.at("[data-go=next]").is_enabled()
    page.at("[data-go=first]").click()
    assert page.rows == lowest(pmi)[:50]
    page.show("below")
    assert page.count == int((pmi < 0).sum())


def test_sorting_and_search(page, pmi):
    page.show("all")
    page.sort("Row")
    assert page.rows == list(range(50))
    page.sort("Row")
    assert page.rows == list(range(ROWS - 1, ROWS - 51, -1))
    sorts = page.js("return [...document.querySelectorAll('#head th')].map(h => h.ariaSort)")
    assert sorts == ["none", "descending"] + ["none"] * 7
    page.sort("PMI")
    page.sort("PMI")
    assert page.rows == lowest(pmi)[::-1][:50]
    page.sort("y")
    assert page.column("y") == sorted(f"cat {ROWS - r:03d}" for r in range(ROWS) if r % 3)[:50]
    page.search("NUMBER 12")
    page.wait("document.getElementById('count').textContent.startsWith('11 ')")
    assert sorted(page.rows) == [12, *range(120, 130)]
    page.search("dog 397")
    page.wait("document.getElementById('count').textContent.startsWith('1 ')")
    assert page.rows == [3]
    page.search("nothing has this")
    page.wait("!document.getElementById('empty').hidden")
    assert page.rows == []
    page.at("#everything").click()
    assert page.count == ROWS
    assert page.at("#search").get_attribute("value") == ""


def test_the_range_by_fields(page, pmi):
    page.show("all")
    page.set_range("1", "1.5")
    inside = lowest(pmi, (pmi >= 1) & (pmi <= 1.5))
    assert page.rows == inside[:50]
    assert page.count == len(inside) > 0
    edges, bars = page.data()["histogram"]["edges"], page.bars()
    scale = (bars[-1]["x"] - bars[0]["x"]) / (edges[-2] - edges[0])
    band = page.number("#histogram .band", "width")
    assert band == pytest.approx(0.5 * scale, abs=0.1)
    start = page.number("#histogram .zero", "x1") + scale
    assert page.number("#histogram .band", "x") == pytest.approx(start, abs=0.1)
    ActionChains(page.driver).click(page.at("#histogram")).perform()  # keeps the range
    assert page.count == len(inside)
    assert page.number("#histogram .band", "width") == band
    page.at("#reset").click()
    assert page.count == ROWS
    assert page.number("#low") is None
    page.set_range("2", "")
    assert page.count == int((pmi >= 2).sum())


def test_the_range_by_brushing(page, pmi):
    page.show("all")
    pixels = page.brush(-3, 2)
    low, high = page.number("#low"), page.number("#high")
    assert (low, high) == pytest.approx((-3, 2), abs=pixels)
    assert page.count == int(((pmi >= low) & (pmi <= high)).sum())
    assert 0 < page.count < ROWS
    band = page.at("#histogram .band").size["width"]
    page.brush(2.5, 1.5)
    assert page.at("#histogram .band").size["width"] == pytest.approx(band / 5, abs=3)
    ActionChains(page.driver).double_click(page.at("#histogram")).perform()
    assert page.count == ROWS
    assert page.number("#histogram .band", "width") == 0
    edges = page.data()["histogram"]["edges"]  # over an end it means all beyond
    page.brush(1, edges[0] - 0.3)
    assert page.count == int((pmi <= page.number("#high")).sum())
    assert page.number("#low") is None
    page.brush(3, edges[-1] + 0.1)
    assert page.count == int((pmi >= page.number("#low")).sum())
    assert page.number("#high") is None


def test_the_bars_are_the_rows(page, pmi):
    bars, histogram = page.bars(), page.data()["histogram"]
    counts, heights = np.array(histogram["counts"]), np.array([bar["height"] for bar in bars])
    assert counts.sum() == ROWS
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max(), atol=0.01)
    below = np.array([bar["kind"] == "bar below" for bar in bars])
    assert counts[below].sum() == int((pmi < 0).sum())
    lefts, widths = (np.array([bar[name] for bar in bars]) for name in ("x", "width"))
    np.testing.assert_allclose(lefts[:-1] + widths[:-1], lefts[1:], atol=0.01)
    assert page.number("#histogram .zero", "x1") == pytest.approx(lefts[~below][0], abs=0.01)
    said = page.js("return document.querySelector('#histogram g g:nth-child(5) title').textContent")
    low, high = histogram["edges"][2:4]
    assert said == f"PMI from {low:.2f} to {high:.2f}: {counts[2]} rows"
    ticks = page.js(
        "return [...document.querySelectorAll('#histogram text')].map(t => [t.textContent,"
        "t.getAttribute('text-anchor') === 'middle' ? Number(t.getAttribute('x')) : null])"
    )
    assert [text for text, _ in ticks[-2:]] == ["PMI (nats)", "rows"]
    assert 0 in [float(text) for text, _ in ticks[:-2]]
    numbers, places = np.array([(float(t), x) for t, x in ticks[:-2] if x is not None]).T
    slope, start = np.polyfit(numbers, places, 1)
    np.testing.assert_allclose(start + slope * numbers, places, atol=0.01)
    assert start == pytest.approx(page.number("#histogram .zero", "x1"), abs=0.01)


def test_the_reliability_curve(page):
    points = page.data()["reliability"]
    drawn = page.js(
        "return [...document.querySelectorAll('#reliability .point')].map(p => ["
        "p.lastChild.getAttribute('cx'), p.lastChild.getAttribute('cy')].map(Number))"
    )
    x, y = np.array(drawn).T
    for pixels, name, sign in ((x, "predicted", 1), (y, "observed", -1)):
        values = np.array([point[name] for point in points])
        slope, start = np.polyfit(values, pixels, 1)
        assert np.sign(slope) == sign
        np.testing.assert_allclose(start + slope * values, pixels, atol=0.01)
    x1, x2, y1, y2 = (page.number("#reliability .equal", name) for name in ("x1", "x2", "y1", "y2"))
    assert x1 < x.min() < x.max() < x2
    assert y2 < y.min() < y.max() < y1


def test_by_keyboard_alone(page):
    page.at("h1").click()
    for _ in range(40):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        focused = page.driver.switch_to.active_element
        if focused.text.startswith("Row"):
            break
    assert focused.tag_name == "button"
    assert page.js("return getComputedStyle(arguments[0]).outlineStyle", focused) == "solid"
    focused.send_keys(Keys.ENTER)
    assert page.rows == sorted(page.rows)
    page.at("input[value=suspects]").send_keys(*[Keys.ARROW_RIGHT] * 4)
    assert page.count == ROWS
    page.at("[data-go=next]").send_keys(Keys.ENTER)
    assert page.rows == list(range(50, 100))


def test_the_download_is_what_is_shown(page, pmi):
    page.js(
        "window.made = []; const keep = URL.createObjectURL.bind(URL);"
        "URL.createObjectURL = (b) => { b.text().then((t) => made.push(t)); return keep(b) };"
        "window.click_link = HTMLAnchorElement.prototype.click;"
        "HTMLAnchorElement.prototype.click = function () { made.push(this.download) }"
    )
    page.at("#download").click()
    page.wait("made.length === 2")
    page.js("HTMLAnchorElement.prototype.click = click_link")
    text = next(one for one in page.js("return made") if one != "rows.csv")
    table = pd.read_csv(io.StringIO(text))
    assert list(table["row"]) == lowest(pmi, pmi < -1)
    np.testing.assert_allclose(table["pmi"], pmi[table["row"]], rtol=1e-6)
    assert list(table["x"]) == [f"picture number {row}" for row in table["row"]]
    assert table["suspect"].all()
    assert table["better_partner"].isna().all()


def test_no_sideways_scrolling_and_dark(page):
    for width in (360, 800, 1600):
        page.resize(width)
        page.wait("document.documentElement.scrollWidth <= innerWidth")
        page.sort("Row")
        assert page.at("#body tr").is_displayed()
        for name in ("#histogram", "#reliability"):
            drawn = f"document.querySelector('{name} svg').viewBox.baseVal.width"
            page.wait(f"{drawn} === document.querySelector('{name}').clientWidth")
    assert page.rows == sorted(page.rows)

    def darkness():
        colour = page.js("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(","))

    assert darkness() > 700
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    page.wait("document.documentElement.dataset.theme === 'dark'")
    assert darkness() < 150
    colour = "return getComputedStyle(document.querySelector('#histogram text')).fill"
    ink = page.js(colour)
    page.at("#theme").click()
    assert darkness() > 700
    assert page.js(colour) != ink


def test_rows_far_out_and_a_check_that_fails_are_said(open_page, pmi):
    far = pmi.copy()
    far[:20] = -57.8
    page = open_page(make_audit(far))
    edges = page.data()["histogram"]["edges"]
    assert edges[0] > -20
    assert f"20 rows below {edges[0]:.1f} are in the first bar." in page.at(".figures").text
    page.show("all")
    page.brush(edges[0] - 0.1, edges[0] + 0.1)
    assert set(range(20)) <= set(page.rows)
    said = "Suspects are judged against mismatched pairs, so an error in the size of PMI"
    assert said not in page.at("main").text
    other = open_page(make_audit(pmi, check=gaussian_check(wrong=2.0)))
    assert other.at(".verdict").get_attribute("class") == "verdict bad"
    assert said in other.at(".figures").text


def test_notes_labels_small_probabilities_and_rows_without_a_pmi(open_page):
    marks = {"better_partner": {0: 3, 1: 2}, "better_partner_pmi": {0: 22.79, 1: 1.25}}
    page = open_page(make_audit([-5.0, -4.0, 2.0, 7.4, np.inf, np.nan], **marks))
    notes = ["better partner: y of row 3, PMI > 7.40", "better partner: y of row 2, PMI 1.25"]
    assert page.column("Note") == notes  # a PMI beyond all rows is no number
    audit = make_audit([-9.0, -8.0, 1.0], labels=["cat", None, None], better_partner={0: 0})
    audit.table["q_value"] = [0.0, 0.0009, 0.3]
    page = open_page(audit, show_y=["dog", "dog", "cat"])
    page.show("all")
    assert page.column("Note") == ["better label: cat", "", ""]
    assert page.column("q") == ["<0.001", "<0.001", "0.300"]
    # Rows without a PMI come last.
    pmi = np.array([2.0, np.nan, -1.0, -np.inf, 1.0])
    page = open_page(make_audit(pmi, suspects=0, check=gaussian_check(rows=20)))
    assert "None of the 5 pairs is a suspect" in page.at(".finding").text
    assert "Cannot tell" in page.at(".verdict").text
    assert page.count == 5
    page.sort("PMI")
    assert (page.column("PMI")[-1], page.rows) == ("\u2013 ± 0.25", [3, 2, 4, 0, 1])
    page.sort("PMI")
    assert page.rows == [0, 4, 2, 3, 1]
    page.set_range("-5", "")
    assert page.rows == [0, 4, 2]
