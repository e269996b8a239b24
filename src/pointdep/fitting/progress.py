"""What a person sees while something runs: a bar on a terminal, plain lines, or nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Protocol, TextIO

_PATIENCE_S = 2.0  # nothing is shown for work that ends sooner
_LINE_EVERY_S = 10.0


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


class Shown:
    """A rich bar where standard error is a terminal, else a plain line now and then."""

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        self.title = title
        self.stream = stream or sys.stderr
        self.started = self.last_line = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Shown:
        self.started = self.last_line = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, detail: str = "") -> None:
        now = time.monotonic()
        if now - self.started < _PATIENCE_S:
            return
        if self.stream.isatty():
            self._update_bar(done, total, detail)
        elif now - self.last_line >= _LINE_EVERY_S or self.last_line == self.started:
            self.last_line = now
            left = (now - self.started) / max(done, 1) * (total - done)
            print(
                f"{self.title}: {done}/{total} {detail}, {now - self.started:.0f} s, "
                f"at most {left:.0f} s left",
                file=self.stream,
                flush=True,
            )

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


def show(title: str, *, enabled: bool = True) -> Shown | Silent:
    """The progress of one piece of work, as a context manager."""
    return Shown(title) if enabled else Silent()
