"""Progress as plain lines, as a bar, and not at all."""

import io
import re

import pytest

from pointdep.fitting import progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_nothing_for_short_work(clock):
    stream = io.StringIO()
    with progress.Shown("fitting", stream) as shown:
        clock.now += 1.9
        shown.update(1, 10, "epochs")
    assert stream.getvalue() == ""


def test_lines_now_and_then(clock):
    stream = io.StringIO()
    with progress.Shown("fitting", stream) as shown:
        for done in range(1, 31):
            clock.now += 1.0
            shown.update(done, 60, "epochs")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "fitting: 2/60 epochs, 2 s"
    assert lines[1] == "fitting: 12/60 epochs, 12 s, at most 48 s left"
    assert [int(re.match(r"fitting: (\d+)/60", line)[1]) for line in lines] == [2, 12, 22]


def test_a_slow_start_is_not_taken_for_the_pace(clock):
    stream = io.StringIO()
    with progress.Shown("fitting", stream) as shown:
        for done, seconds in ((1, 5.0), (2, 3.0), (3, 3.0), (4, 0.5), (5, 0.5)):
            clock.now += seconds
            shown.update(done, 200, "epochs")
            shown.last_line = shown.started  # each is told
    *first, last = stream.getvalue().splitlines()
    assert [line for line in first if "left" in line] == first[3:]
    assert last == "fitting: 5/200 epochs, 12 s, at most 341 s left"


def test_what_comes_before_the_work_is_not_its_pace(clock):
    stream = io.StringIO()
    with progress.Shown("training", stream, left="about") as shown:
        clock.now += 60.0  # compiling
        shown.update(0, 100, "iterations")
        clock.now += 20.0
        shown.update(40, 100, "iterations")
    last = stream.getvalue().splitlines()[-1]
    assert last == "training: 40/100 iterations, 80 s, about 30 s left"


def test_the_bar_says_how_long(clock):
    stream = Terminal()
    with progress.Shown("fitting", stream, left="about") as shown:
        clock.now += 4.0
        shown.update(4, 10, "epochs")
    assert "about 6 s left" in stream.getvalue()


def test_show(capsys):
    with progress.show("fitting", enabled=False) as silent:
        silent.update(1, 2)
    assert isinstance(silent, progress.Silent)
    assert isinstance(progress.show("fitting"), progress.Shown)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (599, "599 s"), (600, "10 min"), (3570, "1 h 0 min"), (33600, "9 h 20 min")],
)
def test_durations(seconds, said):
    assert progress.duration(seconds) == said


def test_the_time_left_is_counted_from_where_work_begins(clock):
    stream = io.StringIO()
    with progress.Shown("scoring", stream, left="about") as shown:
        clock.now += 60.0
        shown.begin(10)
        clock.now += 1.0
        shown.update(20, 40, "pairs")
    assert stream.getvalue() == "scoring: 20/40 pairs, 61 s, about 2 s left\n"
