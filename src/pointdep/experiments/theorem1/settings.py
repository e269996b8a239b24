"""What is fitted to show Theorem 1: methods, numbers of rows, the pairs, the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pointdep.core.critics import ACTIVATIONS
from pointdep.core.methods import METHODS, get_method
from pointdep.data.tasks.continuous import Joint, correlated
from pointdep.errors import InputError, require_whole, unknown_name

CRITICS = ("concat", "separable")
_FEWEST_ROWS = 50  # fewer leave a network nothing to learn from


@dataclass(frozen=True)
class Theorem1:
    """The experiment: every method on every number of rows, `seeds` times.

    Attributes
    ----------
    rows: numbers of rows n; the slope is fitted over them.
    dim, mi: x and y are Gaussian, of `dim` columns each, with `mi` nats between them.
    critic, hidden, activation: the network, one for all methods and all n, so that methods differ
        in learning and inference alone. ReLU is the paper's; log r of these pairs is smooth, which
        a smooth activation may suit better.
    folds: networks per estimate; each row is held out from one of them.
    seeds: estimates of each kind, on rows of their own, with seeds `seed`, `seed` + 1, ...
    """

    methods: tuple[str, ...] = ("pc", "drf")
    rows: tuple[int, ...] = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
    dim: int = 5
    mi: float = 1.0
    critic: str = "concat"
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    folds: int = 2
    seeds: int = 10
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for part in ("methods", "rows"):
            if not getattr(self, part):
                raise InputError(f"{part} must name at least one")
            object.__setattr__(self, part, tuple(dict.fromkeys(getattr(self, part))))
        for name in self.methods:
            _require_plug_in(name)
        for rows in self.rows:
            require_whole("rows", rows, least=_FEWEST_ROWS)
        if len(self.rows) < 2:
            raise InputError(
                f"rows={self.rows} must name at least two, over which a slope is fitted"
            )
        object.__setattr__(self, "rows", tuple(sorted(self.rows)))
        if self.critic not in CRITICS:
            raise unknown_name("critic", self.critic, CRITICS)
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        for name, least in (("dim", 1), ("folds", 2), ("seeds", 2), ("seed", 0)):
            require_whole(name, getattr(self, name), least=least)
        if self.seed + self.seeds > 2**32:
            raise InputError(f"seed={self.seed} must be at most {2**32 - self.seeds}")
        if not self.hidden:
            raise InputError("hidden must name at least one layer")
        for width in self.hidden:
            require_whole("hidden", width)
        if not (math.isfinite(self.mi) and self.mi > 0):
            raise InputError(f"mi={self.mi!r} must be a positive number of nats")
        _ = self.joint  # refuses more nats than so few columns can carry

    def quick(self) -> Theorem1:
        """A smaller version of the same figure."""
        return replace(self, rows=(300, 1_000, 3_000, 10_000), hidden=(32, 32), seeds=5)

    @property
    def joint(self) -> Joint:
        """The distribution of the pairs."""
        return correlated(self.dim, self.mi)

    def exact_sd(self, rows: int) -> float:
        """Standard deviation of the mean of the exact PMI over so many rows, in nats.

        PMI is a quadratic form of Gaussians; its variance is rho^2 for each of the `dim` columns.
        """
        return math.sqrt(self.dim * -math.expm1(-2.0 * self.mi / self.dim) / rows)

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        return (
            f"pointdep reproduce theorem1 --methods {','.join(self.methods)} --rows "
            f"{','.join(map(str, self.rows))} --dim {self.dim} --mi {self.mi} --critic "
            f"{self.critic} --hidden {','.join(map(str, self.hidden))} --activation "
            f"{self.activation} --folds {self.folds} --seeds {self.seeds} --seed {self.seed} "
            f"--device {self.device}"
        )


def _require_plug_in(name: str) -> None:
    """The theorem speaks of the mean of log r over the rows, and of no other inference."""
    if get_method(name).is_mean_of_pmi:
        return
    able = [key for key, method in METHODS.items() if method.is_mean_of_pmi]
    raise InputError(
        f"method {name!r} infers something else than the mean of PMI, of which Theorem 1 speaks: "
        f"choose from {', '.join(able)}"
    )
