"""Progress in a notebook, with a stand-in for IPython that keeps what was displayed."""

from __future__ import annotations

import io
import subprocess
import sys
import types

import pytest

from pointdep.fitting import progress
from pointdep.fitting.progress import in_notebook


class Handle:
    def __init__(self, seen):
        self.seen = seen

    def update(self, content, raw):
        assert raw
        self.seen.append(content)


@pytest.fixture
def displayed(monkeypatch):
    """What a kernel would send to the page, in order."""
    seen = []

    def display(content, raw, display_id):
        assert raw
        assert display_id is True
        seen.append(content)
        return Handle(seen)

    python, part = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    python.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    part.display = display
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr("pointdep.fitting.progress._EVERY_S", 0.0)
    return seen


def test_one_line_that_goes_in_the_end(displayed, capsys):
    with progress.show("fitting <5>") as shown:
        for done in (1, 2, 3):
            shown.update(done, 3, "epochs")
    assert len(displayed) == 4
    assert 'value="2" max="3"' in displayed[1]["text/html"]
    assert "fitting &lt;5&gt;: 2/3 epochs" in displayed[1]["text/html"]
    assert displayed[1]["text/plain"].startswith("fitting <5>: 2/3 epochs, 0 s, at most ")
    assert displayed[-1] == {"text/html": "", "text/plain": ""}
    assert capsys.readouterr() == ("", "")


def test_not_too_often(displayed, monkeypatch):
    monkeypatch.setattr("pointdep.fitting.progress._EVERY_S", 60.0)
    with progress.show("fitting") as shown:
        for done in range(1, 101):
            shown.update(done, 100)
    values = [content["text/plain"].split(",")[0] for content in displayed]
    assert values == ["fitting: 1/100 ", "fitting: 100/100 ", ""]


def test_a_stream_that_is_named_has_lines(displayed):
    stream = io.StringIO()
    with progress.Shown("fitting", stream) as shown:
        shown.update(1, 2, "epochs")
    assert stream.getvalue().startswith("fitting: 1/2 epochs")
    assert displayed == []


def test_a_plain_shell_of_ipython_is_none(monkeypatch):
    python = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", python)
    assert not in_notebook()  # half imported
    python.get_ipython = lambda: None
    assert not in_notebook()
    python.get_ipython = lambda: types.SimpleNamespace()
    assert not in_notebook()


def test_ipython_is_not_imported():
    code = """
import sys
sys.modules["IPython"] = None  # importing it would fail
from pointdep.fitting.progress import in_notebook
assert not in_notebook()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
