"""A progress bar in a notebook: one line that is written anew, and gone in the end."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

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
