"""Ctrl-C and SIGTERM in the middle of a step: granted after it, when there is a state to keep."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered, the first signal is only noted; a second one is not waited with."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # others cannot
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def leave(self) -> None:
        """Do now what was asked for."""
        asked = self.asked
        self.__exit__()
        if asked is not None:
            signal.raise_signal(asked)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        again, self.asked = self.asked is not None, number
        if again:
            self.leave()
