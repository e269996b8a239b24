"""Progress as plain lines, as a bar, in a notebook, and not at all."""

import io
import re
import subprocess
import sys
import types

import pytest

from pointdep.fitting import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    made = types.SimpleNamespace(now=100.0, monotonic=lambda: made.now)
    monkeypatch.setattr(progress, "time", made)
    return made


def told(clock, steps, total, stream=None, **options):
    """The lines of work that did so much after so many seconds more; steps: (done, seconds)."""
    stream = stream or io.StringIO()
    with progress.Shown("fitting", stream, **options) as shown:
        for done, seconds in steps:
            clock.now += seconds
            shown.update(done, total, "epochs")
    return stream.getvalue().splitlines()


def test_lines_and_their_pace(clock):
    assert told(clock, [(1, 1.9)], 10) == []  # nothing for short work
    lines = told(clock, [(done, 1.0) for done in range(1, 31)], 60)
    assert lines[0] == "fitting: 2/60 epochs, 2 s"
    assert lines[1] == "fitting: 12/60 epochs, 12 s, at most 48 s left"
    assert [int(re.match(r"fitting: (\d+)/60", line)[1]) for line in lines] == [2, 12, 22]
    # A slow start is not taken for the pace.
    stream = io.StringIO()
    with progress.Shown("fitting", stream) as shown:
        for done, seconds in ((1, 5.0), (2, 3.0), (3, 3.0), (4, 0.5), (5, 0.5)):
            clock.now += seconds
            shown.update(done, 200, "epochs")
            shown.last_line = shown.started  # each is told
    *first, last = stream.getvalue().splitlines()
    assert [line for line in first if "left" in line] == first[3:]
    assert last == "fitting: 5/200 epochs, 12 s, at most 341 s left"
    # Nor what comes before the work.
    lines = told(clock, [(0, 60.0), (40, 20.0)], 100, left="about")
    assert lines[-1] == "fitting: 40/100 epochs, 80 s, about 30 s left"
    stream = io.StringIO()
    with progress.Shown("scoring", stream, left="about") as shown:
        clock.now += 60.0
        shown.begin(10)
        clock.now += 1.0
        shown.update(20, 40, "pairs")
    assert stream.getvalue() == "scoring: 20/40 pairs, 61 s, about 2 s left\n"
    # The bar says how long.
    lines = told(clock, [(4, 4.0)], 10, Terminal(), left="about")
    assert any("about 6 s left" in line for line in lines)


def test_show_and_durations(capsys):
    with progress.show("fitting", enabled=False) as silent:
        silent.update(1, 2)
    assert isinstance(silent, progress.Silent)
    assert isinstance(progress.show("fitting"), progress.Shown)
    assert capsys.readouterr() == ("", "")
    said = {0.4: "0 s", 599: "599 s", 600: "10 min", 3570: "1 h 0 min", 33600: "9 h 20 min"}
    assert {seconds: progress.duration(seconds) for seconds in said} == said


# In a notebook, with a stand-in for IPython that keeps what was displayed.


@pytest.fixture
def displayed(monkeypatch):
    """What a kernel would send to the page, in order."""
    seen = []

    def update(content, raw):
        assert raw
        seen.append(content)

    def display(content, raw, display_id):
        assert display_id is True
        update(content, raw)
        return types.SimpleNamespace(update=update)

    python, part = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    python.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    part.display = display
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    return seen


def test_one_line_that_goes_in_the_end(displayed, capsys, monkeypatch):
    with progress.show("fitting <5>") as shown:
        for done in (1, 2, 3):
            shown.update(done, 3, "epochs")
    assert len(displayed) == 4
    assert 'value="2" max="3"' in displayed[1]["text/html"]
    assert "fitting &lt;5&gt;: 2/3 epochs" in displayed[1]["text/html"]
    assert displayed[1]["text/plain"].startswith("fitting <5>: 2/3 epochs, 0 s, at most ")
    assert displayed[-1] == {"text/html": "", "text/plain": ""}
    assert capsys.readouterr() == ("", "")
    # Not too often.
    displayed.clear()
    monkeypatch.setattr(progress, "_EVERY_S", 60.0)
    with progress.show("fitting") as shown:
        for done in range(1, 101):
            shown.update(done, 100)
    values = [content["text/plain"].split(",")[0] for content in displayed]
    assert values == ["fitting: 1/100", "fitting: 100/100", ""]


def test_a_plain_shell_of_ipython_is_none_and_it_is_not_imported(monkeypatch):
    python = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", python)
    assert not progress.in_notebook()  # half imported
    for shell in (None, types.SimpleNamespace()):
        python.get_ipython = lambda shell=shell: shell
        assert not progress.in_notebook()
    code = (
        "import sys; sys.modules['IPython'] = None;"  # importing it would fail
        "from pointdep.fitting import progress; assert not progress.in_notebook()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
