"""Reading ahead: the next piece is prepared while the last one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

_END = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next one made by a thread of its own; an error comes in its place."""
    ready: queue.Queue[object] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def offer(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not offer(item):
                    return
            offer(_END)
        except BaseException as error:
            offer(error)

    thread = threading.Thread(target=work, name="pointdep-ahead", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
