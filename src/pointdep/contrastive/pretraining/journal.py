"""What a run writes down while it trains: its history, and TensorBoard's files."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
"""epoch, step, seconds, rate, and loss, knn or linear with one value a replica."""

_VALUES = ("loss", "knn", "linear")


class Journal:
    """The entries so far; with a folder, also TensorBoard's event files, if that is installed."""

    def __init__(self, names: Sequence[str], folder: Path | None = None) -> None:
        """names: of the replicas."""
        self.names, self.folder = tuple(names), folder
        self.entries: list[Entry] = []
        self._writer: Any = None

    def add(self, entry: Entry) -> None:
        """Keep one entry."""
        if self._writer is None and self.folder is not None:
            self._open(self.folder)
        self.entries.append({key: _finite(value) for key, value in entry.items()})
        if self.folder is not None:
            self.write_csv(self.folder / "history.csv")
        if self._writer is None:
            return
        step = entry["step"]
        for kind in _VALUES:
            for name, value in zip(self.names, entry.get(kind, ()), strict=False):
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        for kind in ("rate", "images_per_second"):
            if kind in entry:
                self._writer.add_scalar(kind, entry[kind], step)
        self._writer.flush()

    def last(self, kind: str) -> list[float | None]:
        """The newest values of a kind, one a replica; None where there are none."""
        found = (entry[kind] for entry in reversed(self.entries) if kind in entry)
        return list(next(found, [None] * len(self.names)))

    def write_csv(self, path: Path) -> None:
        """One line an entry and replica."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["run", "epoch", "step", "seconds", "rate", *_VALUES])
            for entry in self.entries:
                for replica, name in enumerate(self.names):
                    values = [entry[kind][replica] if kind in entry else "" for kind in _VALUES]
                    about = [entry.get(key, "") for key in ("epoch", "step", "seconds", "rate")]
                    writer.writerow([name, *about, *("" if v is None else v for v in values)])

    def _open(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        # What a killed run wrote after its last checkpoint is written again.
        step = self.entries[-1]["step"] + 1 if self.entries else 0
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def close(self) -> None:
        """Finish the event files."""
        if self._writer is not None:
            self._writer.close()


def _finite(value: Any) -> Any:
    """As JSON takes it: what is not finite becomes None."""
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
