"""The numbers that sentences about representations are judged by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pointdep.experiments.representations.pixels import Pixels
from pointdep.experiments.representations.results import Curve
from pointdep.experiments.representations.settings import NAMES, Experiment
from pointdep.experiments.representations.summary import above_fixed, difference, finals_of
from pointdep.experiments.words.claims import Finding, finding
from pointdep.experiments.words.numbers import Measured

PAR = 0.3  # points within which two objectives are on a par


@dataclass(frozen=True)
class Evidence:
    """The curves and the baseline of one experiment."""

    experiment: Experiment
    curves: Sequence[Curve]
    pixels: Pixels

    def above(self, one: str, other: str, margin: float = 0.0) -> Finding:
        """Is `one` above `other` by more than the margin, in points? Both were run."""
        found = self._difference(one, other)
        supports = None if found is None else found.above(margin)
        return self._finding(one, other, found, supports)

    def above_its_like(self, one: str, other: str) -> Finding:
        """The same of two that are one objective: not, where they are on a par."""
        found = self._difference(one, other)
        supports = None if found is None else found.above(0.0)
        if found is not None and found.low > -PAR and found.high < PAR:
            supports = False
        return self._finding(one, other, found, supports)

    def above_pixels(self, objective: str) -> Finding:
        finals = finals_of(self.curves, objective, 1 / self.pixels.classes)
        found = above_fixed(finals, self.pixels.accuracy, self.pixels.test)
        return _finding(f"{NAMES[objective]} less pixels", found, found.above(0.0))

    def missing(self, objectives: Iterable[str]) -> list[str]:
        """Those that were not run."""
        run = {curve.objective for curve in self.curves}
        return [objective for objective in dict.fromkeys(objectives) if objective not in run]

    def _difference(self, one: str, other: str) -> Measured | None:
        finals = [finals_of(self.curves, o, 1 / self.pixels.classes) for o in (one, other)]
        return difference(finals[0], finals[1], self.pixels.test)

    def _finding(
        self, one: str, other: str, found: Measured | None, supports: bool | None
    ) -> Finding:
        about = f"{NAMES[one]} less {NAMES[other]}"
        if found is None:
            return finding(f"{about}, no seed in common", None)
        values = self.experiment.paper_values
        known = {one, other} <= values.keys()
        paper = 100 * (values[one] - values[other]) if known else None
        return _finding(about, found, supports, paper)


def _finding(
    about: str, found: Measured, supports: bool | None, paper: float | None = None
) -> Finding:
    seeds = "1 seed" if found.n == 1 else f"{found.n} seeds"
    return finding(f"{about}, points, {seeds}", found, paper=paper, supports=supports)
