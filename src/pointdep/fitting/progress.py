"""What a person sees while something runs: a bar in a terminal or notebook, lines, or nothing."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any, Protocol, TextIO

# A progress bar in a notebook: one line that is written anew, and gone in the end.

_EVERY_S = 0.2  # a browser needs no more


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel; IPython is not imported for it."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return getattr(ask() if ask is not None else None, "kernel", None) is not None


class NotebookBar:
    """Drawn by the browser's own progress element: no widgets are needed."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = 0.0

    def update(self, done: int, total: int, text: str) -> None:
        """Show how far the work is; calls in quick succession are left out."""
        now = time.monotonic()
        if done < total and now - self._last < _EVERY_S:
            return
        self._last = now
        self._show(
            f'<progress value="{int(done)}" max="{int(total)}" '
            f'style="width:16em;vertical-align:middle"></progress> {escape(text)}',
            text,
        )

    def stop(self) -> None:
        """Take the line away."""
        if self._handle is not None:
            self._show("", "")

    def _show(self, html: str, plain: str) -> None:
        from IPython.display import display

        content = {"text/html": html, "text/plain": plain}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


_PATIENCE_S = 2.0  # nothing is shown for work that ends sooner
_LINE_EVERY_S = 10.0
_STEPS_TO_JUDGE = 3  # of long work: the pace of the first ones is that of a start


class Progress(Protocol):
    """Told how far the work is; `detail` is one short phrase."""

    def update(self, done: int, total: int, detail: str = "") -> None: ...


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, done: int, total: int, detail: str = "") -> None:
        del done, total, detail

    def note(self, text: str) -> None:
        """Nothing."""
        del text


class Shown:
    """A bar where standard error is a terminal or a notebook, else a plain line now and then.

    `left` says what the time left is: "at most" where the work may end early, else "about".
    """

    def __init__(self, title: str, stream: TextIO | None = None, left: str = "at most") -> None:
        self.title, self.left = title, left
        self.stream = stream or sys.stderr
        self._notebook = NotebookBar() if stream is None and in_notebook() else None
        self.started = self.last_line = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in (self._bar, self._notebook):
            if bar is not None:
                bar.stop()

    def update(self, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        left = self._time_left(now, done, total)
        if now - self.started < _PATIENCE_S:
            return
        count = f"{done}/{total} {detail}".rstrip()
        line = f"{self.title}: {count}, {now - self.started:.0f} s{left}"
        if self._notebook is not None:
            self._notebook.update(done, total, line)
        elif self.stream.isatty():
            self._update_bar(done, total, f"{detail}{left}".removeprefix(", "))
        elif now - self.last_line >= _LINE_EVERY_S or self.last_line == self.started:
            self.last_line = now
            print(line, file=self.stream, flush=True)

    def begin(self, done: int) -> None:
        """Count the time left from here: what came before was preparation, and `done` of it."""
        self._first = time.monotonic(), done

    def note(self, text: str) -> None:
        """One line at once, before the work that `update` tells of."""
        print(f"{self.title}: {text}", file=self.stream, flush=True)

    def _time_left(self, now: float, done: int, total: int) -> str:
        """By the pace since the first report, which leaves out what came before the work.

        Nothing is said after a few steps of many.
        """
        since, before = self._first or (self.started, 0)
        if self._first is None:
            self._first = now, done
        if done - before < min(_STEPS_TO_JUDGE, max(1, total // 10)):
            return ""
        seconds = (now - since) / (done - before) * (total - done)
        return f", {self.left} {duration(seconds)} left"

    def _update_bar(self, done: int, total: int, detail: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} {task.fields[detail]}"),
                TimeElapsedColumn(),
                console=Console(file=self.stream),
                transient=True,
            )
            self._task = self._bar.add_task(self.title, total=total, detail=detail)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, detail=detail)


def duration(seconds: float) -> str:
    """ "40 s", "12 min" or "9 h 20 min"."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def show(title: str, *, enabled: bool = True, left: str = "at most") -> Shown | Silent:
    """The progress of one piece of work, as a context manager."""
    return Shown(title, left=left) if enabled else Silent()
