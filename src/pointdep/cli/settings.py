"""The options that `mi`, `fit` and `audit` share, as one object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pointdep.cli import options
from pointdep.errors import InputError

if TYPE_CHECKING:
    from pointdep.estimators.classical.estimator import ClassicalDependency
    from pointdep.estimators.pointwise import PointwiseDependency

_OF_NETWORKS = (
    *("critic", "hidden", "max_epochs", "weight_decay", "negatives", "reference_size"),
    *("stream", "curve"),
)


@dataclass(frozen=True)
class Settings:
    """Which rows to read, and how to fit them.

    Options
    -------
    discrete: Sides that are categories: x, y, both or none; by default, by type.
    method_option: Option of the method as NAME=VALUE, e.g. eta=2.
    hidden: Widths of the layers, as 256,64, or auto.
    max_epochs: Limit on the epochs.
    weight_decay: Of the optimiser: pulls weights towards zero.
    negatives: Counter-examples per row and step, or auto.
    reference_size: Rows of y that cpc keeps to normalise by.
    stream: Read rows as they are needed, or hold them in memory. [hold up to 2^27 numbers]
    curve: Also fit a quarter and half of the rows, to see whether more rows would help. [if the
        rows are held in memory]
    """

    x_columns: options.XColumns = None
    y_columns: options.YColumns = None
    groups: options.Groups = None
    group_column: options.GroupColumn = None
    discrete: str | None = None
    method_option: list[str] | None = None
    critic: options.CriticName = "auto"
    hidden: str = "auto"
    folds: options.Folds = 5
    max_epochs: int = 200
    weight_decay: float = 0.0
    negatives: str = "auto"
    reference_size: int = 1024
    stream: bool | None = None
    curve: bool | None = None
    confidence: options.Confidence = 0.95
    seed: options.Seed = 0
    device: options.Device = "auto"

    def read(self, files: list[Path]) -> tuple[Any, Any, Any]:
        """x, y, and the groups of the rows or None."""
        from pointdep.data.readers import read_pairs

        x, y = read_pairs(files, x_columns=self.x_columns, y_columns=self.y_columns)
        return x, y, options.read_groups(self.groups, self.group_column, files)

    def networks(
        self, method: str, *, quiet: bool, checkpoint: Path | None = None
    ) -> PointwiseDependency:
        """The estimator with networks."""
        from pointdep.estimators.pointwise import PointwiseDependency

        given = {name: getattr(self, name) for name in _OF_NETWORKS}
        given["hidden"] = options.parse_widths(self.hidden)
        given["negatives"] = options.parse_count(self.negatives)
        common = self._common(method, quiet)
        return PointwiseDependency(device=self.device, checkpoint=checkpoint, **given, **common)

    def classical(self, method: str, *, quiet: bool) -> ClassicalDependency:
        """The estimator without networks; options that are about networks are refused."""
        from pointdep.estimators.classical.estimator import ClassicalDependency

        changed = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        refused = [name for name in _OF_NETWORKS if name in changed]
        if self.device not in ("auto", "cpu"):
            refused.append("device")
        refuse_for_classical(method, refused)
        return ClassicalDependency(**self._common(method, quiet))

    def _common(self, method: str, quiet: bool) -> dict[str, Any]:
        discrete_x, discrete_y = options.parse_sides(self.discrete)
        return {
            "method": method,
            "method_options": options.parse_options(self.method_option),
            "folds": self.folds,
            "random_state": self.seed,
            "discrete_x": discrete_x,
            "discrete_y": discrete_y,
            "progress": not quiet,
        }


def refuse_for_classical(method: str, names: list[str]) -> None:
    """InputError where there are names: of options that mean nothing without networks."""
    if names:
        listed = ", ".join("--" + name.replace("_", "-") for name in names)
        raise InputError(f"--method {method} trains no networks: leave out {listed}")


def takes_settings(command: Callable[..., None], without: Sequence[str] = ()) -> Callable[..., Any]:
    """Show typer the parameter `settings` of a command as one option for each of its fields.

    without: fields that mean nothing to the command, and keep their defaults.
    """
    hints, told = get_type_hints(Settings, include_extras=True), options.told_options(Settings)[1]
    own = {field.name: (hints[field.name], field.default) for field in fields(Settings)}
    for name, how in told.items():
        own[name] = options.option(name, *own[name], *how), own[name][1]
    own = {name: how for name, how in own.items() if name not in without}
    shown: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        shown |= own if name == "settings" else {name: (parameter.annotation, parameter.default)}

    @functools.wraps(command)
    def spread(**values: Any) -> None:
        command(**values, settings=Settings(**{name: values.pop(name) for name in own}))

    options.show(spread, shown)
    return spread
