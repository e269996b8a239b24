"""The page in Chromium: what a person does with it, by mouse and by keyboard."""

import io

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from .conftest import Page
from .helpers import gaussian_check, make_audit, some_pmi

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
    assert page.rows == expected
    assert page.count == len(expected)
    assert page.column("Rank") == [str(rank + 1) for rank in range(len(expected))]
    assert page.column("x")[0] == f"picture number {expected[0]}"
    assert page.column("PMI")[0] == f"{pmi[expected[0]]:.2f} ± 0.25"


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


def test_sorting(page, pmi):
    page.show("all")
    page.sort("Row")
    assert page.rows == list(range(50))
    page.sort("Row")
    assert page.rows == list(range(ROWS - 1, ROWS - 51, -1))
    sorts = page.js("return [...document.querySelectorAll('#head th')].map(h => h.ariaSort)")
    assert sorts == ["none", "descending"] + ["none"] * 6
    page.sort("PMI")
    page.sort("PMI")
    assert page.rows == lowest(pmi)[::-1][:50]
    page.sort("y")
    assert page.column("y") == sorted(f"cat {ROWS - r:03d}" for r in range(ROWS) if r % 3)[:50]


def test_search(page):
    page.show("all")
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
    band = page.at("#histogram .band")
    edges, bars = page.data()["histogram"]["edges"], page.bars()
    scale = (bars[-1]["x"] - bars[0]["x"]) / (edges[-2] - edges[0])
    assert float(band.get_attribute("width")) == pytest.approx(0.5 * scale, abs=0.1)
    zero = float(page.at("#histogram .zero").get_attribute("x1"))
    assert float(band.get_attribute("x")) == pytest.approx(zero + scale, abs=0.1)
    page.at("#reset").click()
    assert page.count == ROWS
    assert page.at("#low").get_attribute("value") == ""
    page.set_range("2", "")
    assert page.count == int((pmi >= 2).sum())


def test_the_range_by_brushing(page, pmi):
    page.show("all")
    pixels = page.brush(-3, 2)
    low, high = (float(page.at(name).get_attribute("value")) for name in ("#low", "#high"))
    assert (low, high) == pytest.approx((-3, 2), abs=pixels)
    assert page.count == int(((pmi >= low) & (pmi <= high)).sum())
    assert 0 < page.count < ROWS
    band = page.at("#histogram .band").size["width"]
    page.brush(2.5, 1.5)
    assert page.at("#histogram .band").size["width"] == pytest.approx(band / 5, abs=3)
    ActionChains(page.driver).double_click(page.at("#histogram")).perform()
    assert page.count == ROWS
    assert page.at("#histogram .band").get_attribute("width") == "0"


def test_a_click_on_the_bars_keeps_the_range(page, pmi):
    page.show("all")
    page.set_range("1", "1.5")
    before, band = page.count, page.at("#histogram .band").get_attribute("width")
    ActionChains(page.driver).click(page.at("#histogram")).perform()
    assert page.count == before == int(((pmi >= 1) & (pmi <= 1.5)).sum())
    assert page.at("#histogram .band").get_attribute("width") == band


def test_a_brush_over_an_end_means_all_beyond(page, pmi):
    page.show("all")
    edges = page.data()["histogram"]["edges"]
    page.brush(1, edges[0] - 0.3)
    high = float(page.at("#high").get_attribute("value"))
    assert page.count == int((pmi <= high).sum())
    assert page.at("#low").get_attribute("value") == ""
    page.brush(3, edges[-1] + 0.1)
    low = float(page.at("#low").get_attribute("value"))
    assert page.count == int((pmi >= low).sum())
    assert page.at("#high").get_attribute("value") == ""


def test_the_bars_are_the_rows(page, pmi):
    bars, histogram = page.bars(), page.data()["histogram"]
    counts, heights = np.array(histogram["counts"]), np.array([bar["height"] for bar in bars])
    assert counts.sum() == ROWS
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max(), atol=0.01)
    below = np.array([bar["kind"] == "bar below" for bar in bars])
    assert counts[below].sum() == int((pmi < 0).sum())
    lefts, widths = (np.array([bar[name] for bar in bars]) for name in ("x", "width"))
    np.testing.assert_allclose(lefts[:-1] + widths[:-1], lefts[1:], atol=0.01)
    zero = float(page.at("#histogram .zero").get_attribute("x1"))
    assert zero == pytest.approx(lefts[~below][0], abs=0.01)
    said = page.js("return document.querySelector('#histogram g g:nth-child(5) title').textContent")
    low, high = histogram["edges"][2:4]
    assert said == f"PMI from {low:.2f} to {high:.2f}: {counts[2]} rows"


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
    line = page.at("#reliability .equal")
    ends = [float(line.get_attribute(name)) for name in ("x1", "x2", "y1", "y2")]
    assert ends[0] < x.min() < x.max() < ends[1]
    assert ends[3] < y.min() < y.max() < ends[2]


def test_ticks_are_round_numbers(page):
    texts = page.js(
        "return [...document.querySelectorAll('#histogram text')].map(t => t.textContent)"
    )
    assert texts[-2:] == ["PMI (nats)", "rows"]
    numbers = [float(text) for text in texts[:-2]]
    assert 0 in numbers
    places = page.js(
        "return [...document.querySelectorAll('#histogram text')].slice(0, -2).filter("
        "t => t.getAttribute('text-anchor') === 'middle').map(t => Number(t.getAttribute('x')))"
    )
    slope, start = np.polyfit(numbers[: len(places)], places, 1)
    np.testing.assert_allclose(start + slope * np.array(numbers[: len(places)]), places, atol=0.01)
    assert slope * 0 + start == pytest.approx(
        float(page.at("#histogram .zero").get_attribute("x1")), abs=0.01
    )


def test_by_keyboard_alone(page):
    page.at("h1").click()
    for _ in range(40):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        focused = page.driver.switch_to.active_element
        if focused.text.startswith("Row"):
            break
    assert focused.tag_name == "button"
    outline = page.js("return getComputedStyle(arguments[0]).outlineStyle", focused)
    assert outline == "solid"
    focused.send_keys(Keys.ENTER)
    assert page.rows == sorted(page.rows)
    focused = page.at("input[value=suspects]")
    focused.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
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


def test_nothing_is_fetched(page):
    asked = page.js("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert asked == []
    policy = page.at("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe" not in policy


def test_no_sideways_scrolling(page):
    for width in (360, 800, 1600):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.wait(f"innerWidth === {width}")
        page.wait("document.documentElement.scrollWidth <= innerWidth")
        page.sort("Row")
        assert page.at("#body tr").is_displayed()
        for name in ("#histogram", "#reliability"):
            page.wait(
                f"document.querySelector('{name} svg').viewBox.baseVal.width === "
                f"document.querySelector('{name}').clientWidth"
            )
    assert page.rows == sorted(page.rows)


def test_dark(page):
    def background():
        return page.js("return getComputedStyle(document.body).backgroundColor")

    def darkness():
        return sum(int(part) for part in background().strip("rgb()").split(","))

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


def test_rows_far_out_are_said_to_be_in_the_outer_bar(open_page, pmi):
    far = pmi.copy()
    far[:20] = -57.8
    page = open_page(make_audit(far))
    edges = page.data()["histogram"]["edges"]
    assert edges[0] > -20
    assert f"20 rows below {edges[0]:.1f} are in the first bar." in page.at(".figures").text
    page.show("all")
    page.brush(edges[0] - 0.1, edges[0] + 0.1)
    assert set(range(20)) <= set(page.rows)


def test_a_check_that_fails_says_what_stands(page, open_page, pmi):
    said = "Suspects are judged by counting mismatched pairs, so they stand even where log r is off"
    assert said not in page.at("main").text
    other = open_page(make_audit(pmi, check=gaussian_check(wrong=2.0)))
    assert other.at(".verdict").get_attribute("class") == "verdict bad"
    assert said in other.at(".figures").text


def test_a_pmi_beyond_all_rows_is_no_number(open_page):
    marks = {"better_partner": {0: 3, 1: 2}, "better_partner_pmi": {0: 22.79, 1: 1.25}}
    page = open_page(make_audit([-5.0, -4.0, 2.0, 7.4, np.inf, np.nan], **marks))
    assert page.column("Note") == ["better partner: y of row 3, PMI > 7.40",
                                   "better partner: y of row 2, PMI 1.25"]  # fmt: skip


def test_labels_and_small_probabilities(open_page):
    labels = ["cat", None, None]
    audit = make_audit([-9.0, -8.0, 1.0], labels=labels, better_partner={0: 0})
    audit.table["q_value"] = [0.0, 0.0009, 0.3]
    page = open_page(audit, show_y=["dog", "dog", "cat"])
    page.show("all")
    assert page.column("Note") == ["better label: cat", "", ""]
    assert page.column("q") == ["<0.001", "<0.001", "0.300"]


def test_rows_without_a_pmi_come_last(open_page):
    pmi = np.array([2.0, np.nan, -1.0, -np.inf, 1.0])
    page = open_page(make_audit(pmi, suspects=0, check=gaussian_check(rows=20)))
    assert "None of the 5 pairs is a suspect" in page.at(".finding").text
    assert "Cannot tell" in page.at(".verdict").text
    assert page.count == 5
    page.sort("PMI")
    assert page.column("PMI")[-1] == "\u2013 ± 0.25"
    assert page.rows == [3, 2, 4, 0, 1]
    page.sort("PMI")
    assert page.rows == [0, 4, 2, 3, 1]
    page.set_range("-5", "")
    assert page.rows == [0, 4, 2]
