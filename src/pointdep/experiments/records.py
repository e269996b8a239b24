"""One line a run, and the file that keeps them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from pointdep.errors import InputError


@dataclass(frozen=True)
class Run:
    """One fit: `estimator` on `rows` rows of `task`, and all else that its result depends on."""

    task: str
    estimator: str
    rows: int
    seed: int
    confidence: float
    device: str
    pointdep: str


@dataclass(frozen=True)
class Result(Run):
    """What a run found; None where the estimator has no such answer, and `reason` says why.

    true_mi, mi, stderr, low, high, error: nats; the pmi columns compare with the exact PMI of fresh
    rows; seconds: of fitting and of the mutual information; flags: names, separated by spaces.
    """

    true_mi: float
    mi: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    covered: bool | None = None
    pmi_rmse: float | None = None
    pmi_pearson: float | None = None
    pmi_spearman: float | None = None
    seconds: float | None = None
    flags: str = ""
    reason: str = ""

    @property
    def run(self) -> Run:
        """What was asked."""
        return Run(*(getattr(self, field.name) for field in fields(Run)))

    @property
    def failed(self) -> bool:
        """Whether an error ended it before there was any answer."""
        return self.seconds is None


COLUMNS = tuple(field.name for field in fields(Result))
_TEXT = ("task", "estimator", "device", "pointdep", "flags", "reason")
_PARSERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(COLUMNS, lambda text: float(text) if text else None),
    **dict.fromkeys(_TEXT, str),
    **dict.fromkeys(("rows", "seed"), int),
    "covered": lambda text: {"True": True, "False": False, "": None}[text],
}


class ResultFile:
    """A CSV file to which each result is added when its run ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = self._read() if path.exists() else {}

    def add(self, result: Result) -> None:
        """Write one line, whole, so that a run that is ended leaves those before it."""
        new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write((_line(COLUMNS) if new else "") + _line(astuple(result)))
        self.results[result.run] = result

    def _read(self) -> dict[Run, Result]:
        """The results by what was asked; of two the later one."""
        self._cut_torn_line()
        with self.path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            if tuple(next(lines, COLUMNS)) != COLUMNS:
                raise InputError(
                    f"{self.path} has other columns than this version writes: choose another folder"
                )
            found = [self._parse(cells, lines.line_num) for cells in lines]
        return {result.run: result for result in found}

    def _parse(self, cells: list[str], line: int) -> Result:
        try:
            pairs = zip(COLUMNS, cells, strict=True)
            return Result(**{name: _PARSERS[name](cell) for name, cell in pairs})
        except (KeyError, ValueError):
            raise InputError(
                f"{self.path}, line {line}, is not a result: delete the line or choose another "
                "folder"
            ) from None

    def _cut_torn_line(self) -> None:
        """A run that was killed while writing may have left half a line at the end."""
        content = self.path.read_bytes()
        if content and not content.endswith(b"\n"):
            with self.path.open("r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)


def _line(cells: tuple[Any, ...]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue()
