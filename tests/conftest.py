"""One thread for torch; the tables of the library; one Chromium; the documentation, built once.

One thread here and in the processes that tests start: the networks of the tests are too small to
share out, and waiting threads spin. Beside other work on the machine two threads take four times as
long as one.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported

ROOT = Path(__file__).parents[1]
FLAGS = ("--headless=new", "--no-sandbox", "--disable-background-networking",
         "--disable-dev-shm-usage", "--window-size=1280,1000")  # fmt: skip


@pytest.fixture(autouse=True)
def tables():
    """The tables of methods, critics and file formats: after each test as they were before it."""
    from pointdep.core.critics import CRITICS
    from pointdep.core.methods import METHODS
    from pointdep.data.files import FORMATS

    held = [METHODS._entries, METHODS._made, CRITICS._entries, CRITICS._made, FORMATS]
    before = [dict(table) for table in held]
    yield
    for table, kept in zip(held, before, strict=True):
        if table != kept:
            table.clear()
            table.update(kept)


@pytest.fixture(scope="session")
def chromium():
    """The driver, or a skipped test where there is no Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The documentation, built strictly, once for all processes of pytest."""
    pytest.importorskip("mkdocs", reason="the extra pointdep[docs] is not installed")
    from filelock import FileLock

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    built = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (built / "index.html").exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", built]
            how = {"env": {**os.environ, "NO_MKDOCS_2_WARNING": "1"}, "cwd": ROOT, "text": True}
            ended = subprocess.run(command, capture_output=True, check=False, **how)
            assert ended.returncode == 0, ended.stderr
    return built
