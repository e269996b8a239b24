"""The documentation in Chromium: wide and narrow, light and dark, served and as files."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
# Every page of the site but the reports that commands have written, which are tables alone.
PAGES = sorted(
    str(path.relative_to(ROOT / "docs").with_suffix(".html"))
    for pattern in ("*.md", "howto/*.md", "api/*.md")
    for path in (ROOT / "docs").glob(pattern)
)
BROKEN = (
    "return [...document.images].filter("
    "i => i.offsetParent && !i.src.includes('only-') && !i.naturalWidth).map(i => i.src)"
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing about the requests."""

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def served(site):
    """The address of the site on this machine."""
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def show(chromium, served):
    """Open a page at a size, in a scheme; afterwards the console must have stayed empty."""
    chromium.get_log("browser")

    def load(page, size="wide", scheme="light", base=served):
        set_screen(chromium, size, scheme)
        chromium.get(base + page)
        return chromium

    yield load
    assert chromium.get_log("browser") == []
    chromium.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": False})
    for name in ("setEmulatedMedia", "clearDeviceMetricsOverride"):
        chromium.execute_cdp_cmd(f"Emulation.{name}", {})


def set_screen(driver, size, scheme):
    """What the page is told of the screen, and of the colours that the system has."""
    width, height = SIZES[size]
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def wait(driver, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 20, 0.05).until(lambda _: driver.execute_script(f"return {condition}"))


def check(driver, size, scheme, served):
    """It fits, is coloured as asked, has its pictures, and asked nobody else for anything."""
    scheme = {"light": "default", "dark": "slate"}[scheme]
    wait(driver, f"document.body.getAttribute('data-md-color-scheme') === '{scheme}'")
    assert driver.execute_script("return document.documentElement.scrollWidth") == SIZES[size][0]
    assert driver.execute_script(BROKEN) == []
    asked = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [url for url in driver.execute_script(asked) if not url.startswith(served)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_page(page, show, served):
    driver = show(page)
    check(driver, "wide", "light", served)
    set_screen(driver, "narrow", "dark")
    check(driver, "narrow", "dark", served)


@pytest.mark.parametrize("page", ["index.html", "howto/estimate-mi.html", "methods.html"])
def test_the_other_colours(page, show, served):
    for size, scheme in (("wide", "dark"), ("narrow", "light")):
        check(show(page, size, scheme), size, scheme, served)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_picture_is_shown(show, size, scheme):
    driver = show("index.html", size, scheme)
    code = (
        "return [...document.querySelectorAll('.pmi-picture img')].filter(i => i.offsetParent)"
        ".map(i => [i.currentSrc.split('/').pop().split('#')[0], i.naturalWidth > 0])"
    )
    wait(driver, "[...document.images].every(i => i.complete)")
    assert driver.execute_script(code) == [[f"pmi-{size}-{scheme}.svg", True]]


def test_the_colours_can_be_chosen(show):
    driver = show("index.html", scheme="light")
    driver.execute_script("localStorage.clear()")
    for expected in ("default", "slate"):
        toggles = driver.find_elements("css selector", "[data-md-component=palette] label")
        next(toggle for toggle in toggles if toggle.is_displayed()).click()
        wait(driver, f"document.body.getAttribute('data-md-color-scheme') === '{expected}'")
    driver.execute_script("localStorage.clear()")


@pytest.mark.parametrize("how", ["served", "as files"])
def test_search(show, site, served, how):
    base = served if how == "served" else f"{site.as_uri()}/"
    driver = show("api/audit.html", base=base)
    field = driver.find_element("css selector", ".md-search__input")
    field.click()
    field.send_keys("everything is a suspect")
    first = "document.querySelector('.md-search-result__link[href*=everything-is-a-suspect]')"
    wait(driver, f"{first} !== null")
    driver.get(driver.execute_script(f"return {first}.href"))
    assert driver.title.startswith("Troubleshooting")
    assert driver.current_url.startswith(base)
