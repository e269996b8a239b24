"""The documentation as a site: links, spelling, and the numbers that it quotes.

It is built strictly, in conftest.py. Its code blocks are tested in test_docs.py, its names in
test_site_names.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from pointdep import METHODS

ROOT = Path(__file__).parents[1]
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LOADED = {"script": "src", "img": "src", "source": "srcset", "iframe": "src", "link": "href"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if found.get(LOADED.get(tag)):
            self.loads.append(found[LOADED[tag]])


@pytest.fixture(scope="session")
def pages(site):
    # 404.html is shown for any address, so that its links begin at the root of a server.
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def broken(pages):
    """(page, link) of each that leads nowhere on this site."""
    for path, page in pages.items():
        for link in {*page.links, *page.loads}:
            address, anchor = urldefrag(urljoin(path.as_uri(), link))
            if not address.startswith("file:"):
                continue
            target = Path(unquote(address.removeprefix("file://")))
            known = target in pages and (not anchor or unquote(anchor) in pages[target].anchors)
            picture = target not in pages and target.is_file()
            if not known and not picture:
                yield path.name, link


def test_every_link_anchor_and_image_is_there(pages):
    assert len(pages) > 40
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert not list(broken(pages))


@pytest.mark.parametrize(
    "text",
    ['<a href="b.html">', '<a href="#c">', '<a href="a.html#c">', '<img src="d.svg#only-light">'],
)
def test_a_broken_link_is_noticed(tmp_path, text):
    path = tmp_path / "a.html"
    path.write_text(f'<h1 id="b"><a href="#b"></a>{text}')
    assert [link for _, link in broken({path: Page(path)})] == [text.split('"')[1]]


def test_nothing_is_loaded_from_elsewhere(site, pages):
    # Navigation (<link rel=next>) is relative too: there is no address that the site belongs to.
    assert not [(p.name, load) for p, page in pages.items() for load in page.loads if ":" in load]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text("utf-8")), style


def test_spelling(tmp_path):
    pytest.importorskip("codespell_lib", reason="the extra pointdep[docs] is not installed")

    def misspelt(*files):
        command = [sys.executable, "-m", "codespell_lib", *files]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout

    assert not misspelt(*TEXTS, ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.py"))
    (tmp_path / "page.md").write_text("The dependancy of x and y.\n")
    assert "dependency" in misspelt(tmp_path / "page.md")


def test_the_methods_page_is_that_of_the_code():
    text = (ROOT / "docs/methods.md").read_text("utf-8")
    sections = dict(re.findall(r"^### `(\w+)`: (.*?)(?=^##|\Z)", text, re.M | re.S))
    assert set(sections) == set(METHODS)
    for key, section in sections.items():
        method = METHODS[key]
        if method.name != "Density-Ratio Fitting, relative form":
            assert section.startswith(method.name)
        numbers = re.findall(r"(?:Eq\.|Prop\.) \(?(\d)", f"{method.learning} {method.reading}")
        assert {*numbers} <= {*re.findall(r"(?:Eq\.|Prop\.) \(?(\d)", section)}, key
        assert re.search(r"\*\*Identifies\*\*\s(r\b|what `dv` does)", section), key


def quoted():
    """(text of docs/benchmarks.md, file of results, how to find the number, its format)."""
    yield from (
        (f"| {task} | {{:.0f}} % | {{:+.3f}} |", "coverage",
         lambda d, task=task: (100 * d["summary"][task]["coverage"], d["summary"][task]["bias"]))
        for task in ("cubic, 5-d, MI 2", "gaussian, 20-d, MI 2", "mixture-clusters", "student-3",
                     "table", "uniform-0.75")
    )  # fmt: skip
    yield from (
        (f"| `{key}` | {{:.2f}} | {{:.2f}} |", "gaussians",
         lambda d, key=key: next(
             (r["error"], r["pmi_rmse"]) for r in d["results"] if r["method"] == key))
        for key in ("cpc", "nwj", "js", "dv", "smile", "variational", "pc", "dm1", "dm2", "drf")
    )  # fmt: skip
    for name, key in (("digits", "digits"), ("mnist_halves", "mnist_halves"), ("words", "words")):
        yield ("| {:.3f} | {:.0f} % | {:.0f} % |", f"planted_{name}", lambda d, key=key: (
            d[key]["auroc"]["mean"], 100 * d[key]["false_discovery_proportion"]["mean"],
            100 * d[key]["recall"]["mean"]))  # fmt: skip
    yield "| audit | {:.1f} % |", "labels", lambda d: [100 * d["audit"]["precision_at_flipped"]]
    yield "ours | {:.1f} % |", "labels", lambda d: [
        100 * d["cleanlab_network"]["precision_at_flipped"]]  # fmt: skip
    yield "regression | {:.1f} % |", "labels", lambda d: [
        100 * d["cleanlab_logistic_regression"]["precision_at_flipped"]]  # fmt: skip
    yield "{:.0f} s and {:.1f} GiB", "audit_speed", lambda d: [d["seconds"], d["peak_gib"]]
    yield "{:.0f} s on an H200, after {:.0f} s", "figure1_speed", lambda d: [
        d["train_seconds"], d["setup_seconds"]]  # fmt: skip
    yield "{:.0f} s on two cores", "figure1_quick", lambda d: [d["train_seconds"]]
    yield "{:.2f} of the time", "replicas", lambda d: [d["ratio"]]
    yield "{:.1f} ms and {:.0f} MiB", "drfc_loss", lambda d: [
        d["drfc"]["median_ms"], d["drfc"]["peak_mib"]]  # fmt: skip
    yield "{:.2f} s on an H200, {:.2f} times", "simclr_epoch", lambda d: [
        d["compiled_drfc"]["epoch_s"], d["compiled_drfc"]["ratio"]]  # fmt: skip
    yield "| {:.0f} s | `python benchmarks/ray_score.py`", "ray_score", lambda d: [
        d["ray"]["seconds"]]  # fmt: skip
    yield "{:.0f} % of the p-values", "null", lambda d: [100 * d["share_below_0.1"]]
    yield "p = {:.2f};", "null", lambda d: [d["kolmogorov_smirnov_p"]]
    yield "{:.2f} times the seconds", "faiss_search", lambda d: [d["ours_seconds_ratio"]]


def test_the_benchmarks_page_quotes_the_results():
    text = re.sub(r"\s+", " ", (ROOT / "docs/benchmarks.md").read_text("utf-8"))
    for shape, name, find in quoted():
        results = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
        assert shape.format(*find(results)) in text, (name, shape)
