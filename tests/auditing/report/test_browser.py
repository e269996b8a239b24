"""The page in Chromium: what a person does with it, by mouse and by keyboard."""

from __future__ import annotations

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
    assert page.js("return document.getElementById('histogram').layout.shapes.length") == 2
    page.at("#reset").click()
    assert page.count == ROWS
    assert page.at("#low").get_attribute("value") == ""
    page.set_range("2", "")
    assert page.count == int((pmi >= 2).sum())


def test_the_range_by_brushing(page, pmi):
    page.show("all")
    plot = page.at("#histogram .nsewdrag")
    width = plot.size["width"]
    brush = ActionChains(page.driver, duration=20).move_to_element_with_offset(plot, -width // 4, 0)
    brush.click_and_hold().move_by_offset(width // 8, 20).move_by_offset(width // 8, 0).release()
    brush.perform()
    page.wait(f"!document.getElementById('count').textContent.startsWith('{ROWS} ')")
    low, high = (float(page.at(name).get_attribute("value")) for name in ("#low", "#high"))
    left, right = page.js("return document.getElementById('histogram').layout.xaxis.range")
    assert low == pytest.approx(left + (right - left) / 4, abs=0.05 * (right - left))
    assert high == pytest.approx((left + right) / 2, abs=0.05 * (right - left))
    assert page.count == pytest.approx(int(((pmi >= low) & (pmi <= high)).sum()), abs=1)
    assert 0 < page.count < ROWS


def test_a_brush_over_an_end_means_all_beyond(page, pmi):
    page.show("all")
    code = (
        "document.getElementById('histogram').emit('plotly_selected', {range: {x: arguments[0]}})"
    )
    page.js(code, [-99, 0])
    assert page.count == int((pmi <= 0).sum())
    assert page.at("#low").get_attribute("value") == ""
    page.js(code, [99, 3])
    assert page.count == int((pmi >= 3).sum())


def test_the_bars_are_the_rows(page, pmi):
    bars = page.js("return document.getElementById('histogram').data[0]")
    assert sum(bars["y"]) == ROWS
    colours = np.array(bars["marker"]["color"])
    below = colours == colours[0]
    assert sum(np.array(bars["y"])[below]) == int((pmi < 0).sum())
    assert len(set(colours)) == 2


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
    assert {address.split(":")[0] for address in asked} <= {"blob"}  # the charting library
    policy = page.at("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_no_sideways_scrolling(page):
    for width in (360, 800, 1600):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.wait(f"innerWidth === {width}")
        page.wait("document.documentElement.scrollWidth <= innerWidth")
        page.sort("Row")
        assert page.at("#body tr").is_displayed()
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
    ink = page.js("return document.getElementById('histogram').layout.font.color")
    page.at("#theme").click()
    assert darkness() > 700
    assert page.js("return document.getElementById('histogram').layout.font.color") != ink


def test_charts_where_a_script_with_an_address_is_refused(page, tmp_path, chromium):
    text = page.path.read_text("utf-8")
    start = text.index('data-hash="sha256-') + len('data-hash="sha256-')
    path = tmp_path / "other.html"
    path.write_text(text[:start] + "A" * 43 + text[start + 43 :], "utf-8")
    other = Page(chromium, path).load()
    assert len(other.js("return document.getElementById('histogram').data[0].y")) > 10
    refused = [entry["message"] for entry in chromium.get_log("browser")]
    assert len(refused) == 1
    assert "Loading the script 'blob:" in refused[0]


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
