"""Review on the page, in Chromium: keys and buttons, what is kept, and what decisions tell."""

import io
import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from .conftest import make_audit, some_pmi

ROWS = 300


@pytest.fixture
def page(open_page):
    """Of 300 rows, 15 of them suspects, whose q rises with PMI; nothing is decided yet."""
    audit = make_audit(some_pmi(ROWS))
    page = open_page(audit, show_x=[f"=photo {row}" for row in range(ROWS)])
    page.js("localStorage.clear()")
    return page.load()


def press(page, keys):
    for key in keys:
        ActionChains(page.driver).send_keys(key).perform()


def current(page):
    found = "[...document.querySelectorAll('tr[aria-current]')].map(r => Number(r.dataset.row))"
    return page.js(f"return {found}")


def pressed(page):
    """Row -> the verdict whose button is down."""
    found = page.js(
        "return [...document.querySelectorAll('[data-verdict][aria-pressed=true]')]"
        ".map(b => [b.closest('tr').dataset.row, b.dataset.verdict])"
    )
    return {int(row): verdict for row, verdict in found}


def downloaded(page, selector):
    """Name and lines of what a button gives."""
    page.js(
        "window.made = []; URL.createObjectURL = (blob) => { blob.text().then((t) => made.push(t));"
        "return '#' }; HTMLAnchorElement.prototype.click = function () { made.push(this.download) }"
    )
    page.at(selector).click()
    page.wait("made.length === 2")
    name, text = sorted(page.js("return made"), key=len)
    return name, pd.read_csv(io.StringIO(text))


def test_by_keys_and_buttons_and_kept_in_the_browser(page):
    rows = page.rows
    assert page.at("#counter").text == "0 reviewed: 0 right, 0 wrong, 0 unsure."
    assert not page.at("#decisions").is_enabled()
    press(page, "w")  # only shows which row is meant
    assert (current(page), pressed(page)) == ([rows[0]], {})
    press(page, ["w", "r", "u", Keys.ARROW_DOWN, Keys.ARROW_UP, "k"])
    assert current(page) == [rows[2]]
    decided = {rows[0]: "wrong", rows[1]: "right", rows[2]: "unsure"}
    assert pressed(page) == decided
    press(page, "cj")  # takes it back, and goes on
    page.at(f"tr[data-row='{rows[5]}'] [data-verdict=wrong]").click()
    page.at(f"tr[data-row='{rows[6]}'] [data-verdict=right]").click()
    page.at(f"tr[data-row='{rows[6]}'] [data-verdict=right]").click()
    press(page, "j")  # from the row of the button
    assert current(page) == [rows[7]]
    decided = {rows[0]: "wrong", rows[1]: "right", rows[5]: "wrong"}
    assert pressed(page) == decided
    assert page.at("#counter").text == "3 reviewed: 1 right, 2 wrong, 0 unsure."
    page.search("r")  # is no verdict in a field
    ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("u").key_up(Keys.CONTROL).perform()
    assert page.load().at("#counter").text == "3 reviewed: 1 right, 2 wrong, 0 unsure."
    assert pressed(page) == decided
    page.show("reviewed")
    assert sorted(page.rows) == sorted(decided)
    name, table = downloaded(page, "#decisions")
    assert name == "decisions.csv"
    assert dict(zip(table["row"], table["decision"], strict=True)) == decided


def test_on_other_pages_and_the_cleaned_list(page):
    page.show("all")
    rows = page.rows
    press(page, "j" * 50)
    assert current(page) == [rows[49]]
    press(page, "jw")
    assert page.at("#page").text == "Page 2 of 6"
    wrong = page.rows[0]
    press(page, "kk")
    assert (page.at("#page").text, current(page)) == ("Page 1 of 6", [rows[49]])
    page.show("suspects")
    suspects = page.rows
    press(page, "jr")
    name, table = downloaded(page, "#cleaned")
    assert name == "kept.csv"
    kept = set(range(ROWS)) - set(suspects[1:]) - {wrong}
    assert list(table["row"]) == sorted(kept)
    assert list(table["x"]) == [f"'=photo {row}" for row in table["row"]]


def test_the_rate_decides_again(page):
    first = page.at(".finding").text
    q = make_audit(some_pmi(ROWS)).table["q_value"].to_numpy()
    slider = page.at("#fdr")
    for key, rate in ((Keys.ARROW_RIGHT, 0.15), (Keys.ARROW_RIGHT, 0.2)):
        slider.send_keys(key)
        count = int((q <= rate).sum())
        assert page.at("#at-rate").text == f"{100 * rate:.0f}%: {count} suspects"
        assert page.at("#suspects strong").text == str(count)
        assert page.count == count
    assert f"{count} of 300 pairs are suspects: up to 20%" in page.at(".finding").text
    press(page, "jw")  # letters decide, arrows are the slider's
    assert page.at("#counter").text.startswith("1 reviewed")
    slider.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert (page.at(".finding").text, page.count) == (first, 15)


def wilson_by_roots(wrong, n, rows):
    """Where (share - p)^2 = z^2 p (1 - p) / n, with the correction for finite strata."""
    if n == rows:
        return wrong / n, wrong / n
    size, share = n * (rows - 1) / (rows - n), wrong / n
    z = 1.96**2 / size
    return sorted(np.roots([1 + z, -(2 * share + z), share**2]).real)


def test_the_estimate_is_that_of_the_sample(page):
    table = make_audit(some_pmi(ROWS)).table
    page.show("sample")
    rows = page.rows
    for row in (rows[3], rows[40]):  # rows decided out of order wait for those before them
        page.at(f"tr[data-row='{row}'] [data-verdict=wrong]").click()
    assert page.at("#estimate").text.startswith("0 of the first 30 rows of the sample")
    page.js("document.querySelector('tr[data-row]').click()")
    verdicts = {row: "unsure" if i == 7 else "wrong" if row in (rows[3],) or table["pmi"][row] < 0
                else "right" for i, row in enumerate(rows[:32])}  # fmt: skip
    for row, verdict in verdicts.items():
        press(page, "j" if row == rows[3] else verdict[0])
    q, rank = table["q_value"].to_numpy(np.float32), table["rank"].to_numpy()
    place = np.searchsorted(np.float32([0.05, 0.1, 0.2, 0.3, 0.5]), q)
    rest = np.flatnonzero(place == 5)
    place[rest[np.argsort(rank[rest])][max(100, len(rest) // 20) :]] = 6
    share, below, above, count = 0.0, 0.0, 0.0, 0
    for stratum in np.unique(place):
        members = np.flatnonzero(place == stratum)
        seen = [verdicts[row] for row in rows[:32] if place[row] == stratum]
        known = [verdict == "wrong" for verdict in seen if verdict != "unsure"]
        low, high = wilson_by_roots(sum(known), len(known), len(members))
        weight, own = len(members) / ROWS, np.mean(known)
        share += weight * own
        below, above = below + (weight * (own - low)) ** 2, above + (weight * (high - own)) ** 2
        count += len(seen)
    assert count == 32
    said = page.at("#estimate").text
    assert said.startswith("By the first 32 rows of the sample, ")
    told = [float(number) for number in re.findall(r"([\d.]+)%", said.splitlines()[0])]
    ends = [max(0, share - below**0.5), min(1, share + above**0.5)]
    assert [told[0], *told[2:]] == pytest.approx([100 * share, *(100 * np.array(ends))], abs=0.51)
    assert f"{(q <= np.float32(0.2)).sum()} suspects at 20%: " in said


def test_the_estimate_is_unbiased_and_its_interval_holds(page):
    script = (files("pointdep.auditing.report") / "assets" / "estimate.js").read_text("utf-8")
    found = page.js(
        script
        + """
        const [rows, draws] = [2000, 300];
        let [bias, inside, all] = [0, 0, 0];
        let state = 7;
        const random = () => {
          state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
          return state / 2 ** 32;
        };
        for (let draw = 0; draw < draws; draw++) {
          const at = Array.from({ length: rows }, random);
          const rank = new Int32Array(rows);
          const order = Array.from(at.keys()).sort((a, b) => at[a] - at[b]);
          order.forEach((row, i) => { rank[row] = i + 1; });
          const q_value = Float32Array.from(rank, (one) => Math.min(1, (one / 300) ** 2));
          const chance = (one) => (one < 150 ? 0.8 : one < 400 ? 0.2 : 0.02);
          const wrong = Array.from(rank, (one) => random() < chance(one));
          const strata = makeStrata({ q_value, rank });
          const decided = new Map(wrong.map((one, row) => [row, one ? "wrong" : "right"]));
          const found = estimateShares(strata, makeSample(strata), decided);
          const truth = wrong.filter((one) => one).length / rows;
          bias += (found.wrong.share - truth) / draws;
          inside += found.wrong.low <= truth && truth <= found.wrong.high;
          for (const { cut, low, high } of found.cuts) {
            const chosen = wrong.filter((_, row) => q_value[row] <= Math.fround(cut));
            const precision = chosen.filter((one) => one).length / chosen.length;
            inside += low <= precision && precision <= high;
            all += 1;
          }
          all += 1;
        }
        return [bias, inside / all];"""
    )
    assert abs(found[0]) < 0.004
    assert 0.93 < found[1] <= 1.0


def test_a_browser_that_keeps_nothing(open_page, chromium):
    nothing = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no') }})"
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = chromium.execute_cdp_cmd(command, {"source": nothing})
    try:
        page = open_page(make_audit(some_pmi(60)))
        assert page.at("#kept-here").is_displayed()
        press(page, "jw")
        assert page.at("#counter").text.startswith("1 reviewed: 0 right, 1 wrong")
    finally:
        chromium.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_what_columns_and_files_say(open_page, tmp_path):
    audit = make_audit(some_pmi(60))
    audit.table["why"] = pd.Series(["<b>price</b> (y) -2.1", *[None] * 59], dtype=object)
    names = [str(tmp_path / f"a long name-{row} of a picture.png") for row in range(60)]
    page = open_page(audit, show_x=names)
    hints = page.js("return [...document.querySelectorAll('#head button')].map(b => b.title)")
    assert len(hints) == 9
    assert all(hints)
    page.show("all")
    page.sort("Row")
    assert page.at("tr[data-row='0'] .why").text == "<b>price</b> (y) -2.1"
    name = page.at("tr[data-row='0'] .file")
    assert name.text == "a long name-0 of a picture.png"
    assert name.get_attribute("title") == names[0]
    assert page.js("return getComputedStyle(arguments[0]).whiteSpace", name) == "nowrap"
