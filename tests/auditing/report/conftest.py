"""Audits made by hand, without the time of a fit, and their report in Chromium."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pointdep.auditing.result import Audit, Contamination
from pointdep.errors import Flag
from pointdep.inference.checks import check_log_ratio
from pointdep.inference.mutual_information import MIEstimate


@dataclass
class Page:
    """A report in the browser, and what can be seen of it."""

    driver: Any
    path: Path

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def at(self, selector):
        return self.driver.find_element("css selector", selector)

    def load(self):
        self.driver.get(self.path.as_uri())
        self.wait("document.documentElement.dataset.ready === 'yes'")
        return self

    def wait(self, condition):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, 0.05).until(lambda _: self.js(f"return {condition}"))

    def texts(self, selector):
        found = f"[...document.querySelectorAll('{selector}')]"
        return self.js(f"return {found}.map(one => one.textContent)")

    def column(self, label):
        """The texts of one column, as they stand in the table."""
        cells = "[...document.querySelectorAll('#body td')]"
        own = f"{cells}.filter(c => c.dataset.label === arguments[0])"
        return self.js(f"return {own}.map(c => c.innerText.trim())", label)

    @property
    def rows(self):
        return [int(text) for text in self.column("Row")]

    @property
    def count(self):
        """How many rows the page says it shows."""
        return int(self.at("#count").text.split()[0].replace(",", ""))

    def sort(self, name):
        cells = self.driver.find_elements("css selector", "#head th")
        headers = [cell.text.split()[0] for cell in cells]
        self.at(f"#head th:nth-child({headers.index(name) + 1}) button").click()

    def resize(self, width):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.wait(f"innerWidth === {width}")

    def show(self, which):
        self.at(f"input[value={which}]").click()

    def begin_again(self):
        """As it was when it was opened, which takes longer."""
        self.js("document.getElementById('everything').click()")
        if self.js("return document.querySelector('#head th').ariaSort !== 'ascending'"):
            self.sort("Rank")
        self.show("suspects")
        return self

    def search(self, text):
        self.at("#search").clear()
        self.at("#search").send_keys(text)

    def number(self, selector, name="value"):
        """An attribute, None where it is empty."""
        text = self.at(selector).get_attribute(name)
        return float(text) if text else None

    def data(self):
        """What the page was made of."""
        return json.loads(self.js("return document.getElementById('data').textContent"))

    def bars(self):
        """x, width, height and class of each bar, as drawn."""
        return self.js(
            "return [...document.querySelectorAll('#histogram .bar')].map(b => ({"
            "x: Number(b.getAttribute('x')), width: Number(b.getAttribute('width')),"
            "height: Number(b.getAttribute('height')), kind: b.getAttribute('class')}))"
        )

    def brush(self, low, high):
        """Drag the mouse over the bars from one PMI to another, which may lie outside them."""
        from selenium.webdriver.common.action_chains import ActionChains

        edges, bars = self.data()["histogram"]["edges"], self.bars()
        scale = (bars[-1]["x"] - bars[0]["x"]) / (edges[-2] - edges[0])
        chart = self.at("#histogram")
        middle = self.js("return arguments[0].clientWidth", chart) / 2
        start, end = (bars[0]["x"] + (value - edges[0]) * scale - middle for value in (low, high))
        actions = ActionChains(self.driver, duration=20)
        actions.move_to_element_with_offset(chart, round(start), 0).click_and_hold()
        actions.move_by_offset(round((end - start) / 2), 20)
        actions.move_by_offset(round(end) - round(start) - round((end - start) / 2), 0)
        actions.release().perform()
        return 1.5 / scale

    def set_range(self, low, high):
        for name, value in (("#low", low), ("#high", high)):
            field = self.at(name)
            field.clear()
            field.send_keys(value, "\t")


@pytest.fixture
def quiet_console(chromium):
    """After the test, the console must have stayed empty."""
    chromium.get_log("browser")
    yield
    assert chromium.get_log("browser") == []
    for name in ("setEmulatedMedia", "clearDeviceMetricsOverride"):
        chromium.execute_cdp_cmd(f"Emulation.{name}", {})


@pytest.fixture
def open_page(chromium, quiet_console, tmp_path):
    """Write the report of an audit and open it."""

    def load(audit, **options):
        audit.to_html(tmp_path / "report.html", progress=False, **options)
        return Page(chromium, tmp_path / "report.html").load()

    return load


def gaussian_check(rows=200, correlation=0.8, wrong=1.0):
    """A real check: of the log r of Gaussian pairs, exact, or wrong by a factor."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 1))
    y = correlation * x + np.sqrt(1 - correlation**2) * random.normal(size=(rows, 1))
    rest = 1 - correlation**2
    exponent = correlation**2 * (x**2 + y.T**2) - 2 * correlation * x * y.T
    log_ratio = torch.from_numpy(wrong * (-0.5 * np.log(rest) - exponent / (2 * rest)))
    pairs = torch.eye(rows)[None]
    return check_log_ratio(log_ratio[None], pairs, 1 - pairs)


def make_audit(pmi, *, suspects=None, flags=(), labels=None, check=None, **columns):
    """pmi: (n,); suspects: how many of the lowest are; columns: others of the table."""
    pmi = np.asarray(pmi, dtype=np.float32)
    rows, order = len(pmi), np.argsort(pmi, kind="stable")
    rank = np.empty(rows, dtype=np.int64)
    rank[order] = np.arange(1, rows + 1)
    count = int((pmi < -1).sum()) if suspects is None else suspects
    posterior, q_value = 1 / (1 + np.exp(pmi + 3)), np.empty(rows)
    q_value[order] = np.cumsum(1 - posterior[order]) / np.arange(1, rows + 1)
    missing = pd.array([pd.NA] * rows, dtype="Int64")
    numbers = {"row": np.arange(rows), "pmi": pmi, "stderr": np.full(rows, 0.25, dtype=np.float32)}
    judged = {"posterior": posterior, "q_value": q_value, "suspect": rank <= count}
    found = {"better_partner": missing, "better_partner_pmi": np.full(rows, np.nan)}
    found |= {"swapped_with": missing, "duplicate_of": missing}
    table = pd.DataFrame({**numbers, **judged, "below_zero": pmi < 0, "rank": rank, **found})
    if labels is not None:
        table["better_label"] = pd.Series(labels, dtype=object)
    for name, values in columns.items():
        for row, value in values.items():
            table.loc[row, name] = value
    return Audit(
        table=table,
        mutual_information=MIEstimate(1.5, 0.02, (1.46, 1.54), rows=rows, method="pc"),
        check=check or gaussian_check(),
        contamination=Contamination(share=0.032, given=False, stderr=0.004),
        fdr=0.1,
        folds=5,
        method="pc",
        flags=tuple(Flag("not_converged", (0,), message) for message in flags),
    )


def some_pmi(rows, seed=0):
    """(rows,): mostly right pairs, a twentieth far below zero."""
    random = np.random.default_rng(seed)
    pmi = random.normal(3, 1, rows)
    pmi[: rows // 20] -= 6
    return random.permutation(pmi)
