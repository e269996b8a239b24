"""What surrounds the rows: the policy, what was left out, and where the cards stand."""

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from pointdep.auditing.report import page
from pointdep.auditing.report.page import render

from .helpers import make_audit, some_pmi


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
    text = render(audit)
    assert '"2.5, 3.5"' in text
    assert '"dog"' in text
    named = render(audit, show_x=["one", "two", "three"])
    assert '"two"' in named
    assert '"2.5, 3.5"' not in named
    assert '"dog"' in named
    assert "row" in render(replace(audit, sides=(object(), y)))


@pytest.mark.parametrize("width", [360, 390, 700, 900, 1280])
def test_the_last_card_does_not_hang_alone(open_page, width):
    page = open_page(make_audit([-3.0, 1.0, np.nan]))
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.wait(f"innerWidth === {width}")
    right, last = page.js(
        "return [document.querySelector('.cards'), document.querySelector('.cards li:last-child')]"
        ".map(one => one.getBoundingClientRect().right)"
    )
    assert last == pytest.approx(right, abs=1)
