"""The report page at 100,000 rows: its size, when it can be used, and how fast it answers.

    python benchmarks/report_page.py [--output benchmarks/results/report_page.json]

Each round starts a headless Chromium of its own and opens the page from its file. In ms from the
start of navigation: the table is filled and its controls attached (`table_ms`, a mark of the page);
a click on the PMI header, made as soon as that is seen, has been answered (`interactive_ms`, the
table's time and the click's); the figures are drawn and can be brushed (`ready_ms`). Then what an
action takes until the next frame. Other work on the machine shows in all of these: `load` is the
load average at the start of each round. `cpu_ms` is the processor time of the page's thread until
then, the first click included, which other work hardly changes. Needs chromium and chromedriver.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from report import report

from pointdep.auditing.result import Audit, Contamination
from pointdep.inference.checks import check_log_ratio
from pointdep.inference.mutual_information import MIEstimate

FLAGS = ("--headless=new", "--no-sandbox", "--disable-background-networking",
         "--disable-dev-shm-usage", "--window-size=1280,1000")  # fmt: skip
TARGET_MS, TARGET_MB = 3000, 30
SENTENCE = "a the dog cat runs over green grass with ball in its mouth while two people watch"


def make_audit(rows: int) -> Audit:
    """Of made-up PMI, one row in twenty a suspect with a better partner."""
    random = np.random.default_rng(0)
    wrong = random.random(rows) < 0.05
    pmi = random.normal(3.0, 1.0, rows) - 6.0 * wrong
    rank = np.empty(rows, dtype=np.int64)
    rank[np.argsort(pmi)] = np.arange(1, rows + 1)
    partner = pd.array(random.integers(0, rows, rows), dtype="Int64")
    missing = pd.array([pd.NA] * rows, dtype="Int64")
    partner[~wrong] = pd.NA
    table = pd.DataFrame(
        {
            "row": np.arange(rows),
            "pmi": pmi,
            "stderr": random.uniform(0.1, 0.5, rows),
            "posterior": 1 / (1 + np.exp(pmi + 1)),
            "q_value": rank / rows,
            "suspect": wrong,
            "below_zero": pmi < 0,
            "rank": rank,
            "better_partner": partner,
            "better_partner_pmi": np.where(wrong, 4.0, np.nan),
            "swapped_with": missing,
            "duplicate_of": missing,
            "why": ["price of y -2.1, age of x -0.8" if one else None for one in wrong],
        }
    )
    x = random.normal(size=(400, 1))
    log_ratio = -0.5 * np.log(0.36) - (0.64 * (x**2 + x.T**2) - 1.6 * x * x.T) / 0.72
    pairs = torch.eye(len(x))[None]
    return Audit(
        table=table,
        mutual_information=MIEstimate(3.0, 0.01, (2.98, 3.02), rows=rows, method="pc"),
        check=check_log_ratio(torch.from_numpy(log_ratio)[None], pairs, 1 - pairs),
        contamination=Contamination(0.05, given=False, stderr=0.002),
        fdr=0.1,
        folds=5,
        method="pc",
        flags=(),
    )


def sentences(rows: int, seed: int) -> list[str]:
    """About 60 characters each."""
    random = np.random.default_rng(seed)
    return [" ".join(words) for words in random.choice(SENTENCE.split(), (rows, 13)).tolist()]


def start_browser() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.page_load_strategy = "none"
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver") or ""))


def until(browser: Any, condition: str) -> None:
    while not browser.execute_script(f"return Boolean({condition})"):
        time.sleep(0.02)


def answer_ms(browser: Any, action: str) -> float:
    """From an action to the frame that shows what it did."""
    script = (
        "const done = arguments[0]; const start = performance.now();"
        f"{action}; requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)))"
    )
    return float(browser.execute_async_script(script))


def measure(path: Path) -> dict[str, float]:
    """One visit by a browser that was never there."""
    browser = start_browser()
    try:
        browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        browser.get(path.as_uri())
        until(browser, "performance.getEntriesByName('pointdep-table').length")
        sort = "document.querySelector('#head th:nth-child(5) button').click()"
        early = answer_ms(browser, sort)
        until(browser, "document.documentElement.dataset.ready")
        used = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        (busy,) = (one["value"] for one in used if one["name"] == "TaskDuration")
        marks = {
            name: browser.execute_script(
                "return performance.getEntriesByName(arguments[0])[0].startTime", f"pointdep-{name}"
            )
            for name in ("table", "ready")
        }
        all_rows = "document.querySelector('input[value=all]').click()"
        rate = "const slider = document.getElementById('fdr'); slider.value = '9';"
        key = "document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: 1}}))"
        number = "const field = document.getElementById('low'); field.value = '2';"
        return {
            "table_ms": marks["table"],
            "interactive_ms": marks["table"] + early,
            "ready_ms": marks["ready"],
            "cpu_ms": 1000 * busy,
            "show_all_ms": answer_ms(browser, all_rows),
            "sort_ms": answer_ms(browser, sort),
            "range_ms": answer_ms(browser, number + "field.dispatchEvent(new Event('change'))"),
            "rate_ms": answer_ms(browser, rate + "slider.dispatchEvent(new Event('input'))"),
            "decide_ms": answer_ms(browser, f"{key.format('j')}; {key.format('w')}"),
        }
    finally:
        browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", action="store_true", help="x is pictures that fill the page")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    audit = make_audit(arguments.rows)
    x: Any = sentences(arguments.rows, 0)
    y = sentences(arguments.rows, 1)
    if arguments.pictures:  # noise: the largest files that pictures of this size can be
        random = np.random.default_rng(0)
        x = random.integers(0, 256, (arguments.rows, 64, 64), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        start = time.perf_counter()
        audit.to_html(path, x, y)
        wrote = time.perf_counter() - start
        size = path.stat().st_size / 1e6
        load, rounds = [], []
        for _ in range(arguments.rounds):
            load.append(round(os.getloadavg()[0], 1))
            rounds.append(measure(path))
    result = {
        "rows": arguments.rows,
        "pictures": arguments.pictures,
        "characters": sum(map(len, y if arguments.pictures else x + y)),
        "write_s": round(wrote, 2),
        "file_mb": round(size, 2),
        **{name: [round(one[name]) for one in rounds] for name in rounds[0]},
        "interactive_median_ms": round(statistics.median(one["interactive_ms"] for one in rounds)),
        "ready_median_ms": round(statistics.median(one["ready_ms"] for one in rounds)),
        "cpus": os.cpu_count(),
        "load": load,
        "target_ms": TARGET_MS,
        "target_mb": TARGET_MB,
    }
    report("report_page", result, arguments.output)


if __name__ == "__main__":
    main()
