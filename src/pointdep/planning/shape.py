"""How large a job is: rows and columns, and what the estimator's defaults make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pointdep.errors import InputError, require_whole

# The defaults of the estimator, which cannot be imported without torch; a test compares them.
IN_MEMORY = 1 << 27
WIDE, WIDEST_MODULATED = 25, 64
_HIDDEN = ((50_000, (256, 64)), (5_000, (128, 64)), (0, (128, 32)))
_HIDDEN_WIDE = ((129, (512, 512)), (0, (256, 256)))
_EMBEDDING, _STOP = 64, 0.15
_PASS_STEPS, _SMALLEST_BATCH, _LARGEST_BATCH, _LARGEST_STREAMED = 40, 32, 256, 1024
_BLOCK, _STOP_BLOCK, _LARGEST_STOP_BLOCK, _MIN_STEPS = 8, 16, 256, 20
_STOP_ROWS, _STOP_NUMBERS = 1 << 14, 1 << 25
_KEPT_ROWS, _KEPT_NUMBERS = 1 << 17, 1 << 26
_CHUNK, _MOMENT_ROWS, _TABLE_ROWS = 1 << 25, 1 << 20, 1 << 16
_RESIDENT = 1 << 33  # of float32 in a quarter of the memory of the GPU that was measured
_PARTS, _PARTS_WIDE, _MANY_COLUMNS = 5, 2, 200


@dataclass(frozen=True)
class Network:
    """Multiply-adds and numbers of the default critic, of one replica.

    x_macs, y_macs: of a row of each side, closed_x_macs, closed_y_macs: of its coordinates in the
    closed form; pair_macs: of a pair beside those of its rows; units:
    numbers of the hidden layers of a row of both sides; pair_units: of a pair; vector: columns of
    what is searched; weights: parameters.
    """

    x_macs: int
    y_macs: int
    closed_x_macs: int
    closed_y_macs: int
    pair_macs: int
    units: int
    pair_units: int
    vector: int
    weights: int

    @property
    def macs(self) -> int:
        """Of a pair, all included."""
        closed = self.closed_x_macs + self.closed_y_macs + self.vector
        return self.x_macs + self.y_macs + self.pair_macs + closed


def make_network(
    x_dim: int, y_dim: int, wide: bool, hidden: Sequence[int], embedding: int
) -> Network:
    """The default critic: two encoders for wide data, else a network on pairs; closed form too."""
    kept = min(x_dim, y_dim)
    if wide:
        x_macs, y_macs = (
            sum(a * b for a, b in pairwise([dim, *hidden, embedding])) for dim in (x_dim, y_dim)
        )
        units = 2 * (sum(hidden) + embedding)
        return Network(
            x_macs=x_macs,
            y_macs=y_macs,
            closed_x_macs=x_dim * kept,
            closed_y_macs=y_dim * kept,
            pair_macs=embedding,
            units=units,
            pair_units=0,
            vector=embedding + kept,
            weights=x_macs + y_macs + units,
        )
    first = hidden[0]
    x_macs, y_macs = (2 * (dim + 6) * first + first * first for dim in (x_dim, y_dim))
    pair = sum(a * b for a, b in pairwise([*hidden, 1]))
    return Network(
        x_macs=x_macs,
        y_macs=y_macs,
        closed_x_macs=x_dim * (x_dim + 8) + 8,
        closed_y_macs=y_dim * (y_dim + 8) + 8,
        pair_macs=pair,
        units=6 * first,
        pair_units=sum(hidden),
        vector=kept,
        weights=x_macs + y_macs + pair + sum(hidden) + 5 * first,
    )


@dataclass(frozen=True)
class Shape:
    """A job on `rows` pairs of x_dim + y_dim columns of numbers, by the default critic.

    hidden, embedding: layers, None for those that the estimator chooses. stream: None for its
    choice. queries: of a search among `rows` candidates; listed: candidates of a query that are
    scored, where it is known. keeping: whether streamed rows stay in a GPU that has room for them.
    """

    rows: int
    x_dim: int
    y_dim: int
    epochs: int
    folds: int = 5
    queries: int = 10_000
    hidden: tuple[int, ...] | None = None
    embedding: int = _EMBEDDING
    stream: bool | None = None
    listed: int | None = None
    keeping: bool = False

    def __post_init__(self) -> None:
        for name in ("rows", "x_dim", "y_dim", "epochs", "folds", "queries"):
            require_whole(name, getattr(self, name))
        if self.rows < max(10, 2 * self.folds):
            raise InputError(
                f"rows={self.rows}: {self.folds} folds need at least {max(10, 2 * self.folds)}"
            )

    @property
    def width(self) -> int:
        """Numbers in a pair."""
        return self.x_dim + self.y_dim

    @property
    def numbers(self) -> int:
        """Of all pairs."""
        return self.rows * self.width

    @property
    def large(self) -> bool:
        """Whether they are more than are held in memory."""
        return self.numbers > IN_MEMORY

    @property
    def streamed(self) -> bool:
        """Whether a fit reads its rows as it needs them."""
        return self.large if self.stream is None else self.stream

    @property
    def resident(self) -> bool:
        """Whether the rows of a streamed fit are read once, and stay in the GPU."""
        return self.keeping and self.streamed and self.numbers <= _RESIDENT

    @property
    def wide(self) -> bool:
        """Whether the default critic is a pair of encoders."""
        return max(self.x_dim, self.y_dim) > WIDE

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The widths of the hidden layers."""
        if self.hidden is not None:
            return self.hidden
        if self.wide:
            columns = max(self.x_dim, self.y_dim)
            return next(widths for least, widths in _HIDDEN_WIDE if columns >= least)
        return next(widths for least, widths in _HIDDEN if self.rows >= least)

    @cached_property
    def network(self) -> Network:
        return make_network(self.x_dim, self.y_dim, self.wide, self.layers, self.embedding)

    @property
    def kept(self) -> int:
        """Rows that are in memory."""
        if not self.streamed:
            return self.rows
        return min(self.rows, _KEPT_ROWS, max(1024, _KEPT_NUMBERS // self.width))

    @property
    def stop(self) -> int:
        """Rows that decide when a replica stops."""
        fitted = self.rows * (1 - self._held)
        if not self.streamed:
            return max(2, round(fitted * _STOP))
        most = min(_STOP_ROWS, max(64, _STOP_NUMBERS // (self.width * self.folds)))
        return max(4, round(min(most, self.rows * _STOP) * (1 - self._held)))

    @property
    def train(self) -> int:
        """Rows that a replica trains on."""
        return max(1, round(self.rows * (1 - self._held)) - self.stop)

    @property
    def _held(self) -> float:
        return 0.2 if self.folds == 1 else 1.0 / self.folds

    @property
    def batch(self) -> int:
        """Rows of a step."""
        largest = _LARGEST_STREAMED if self.streamed else _LARGEST_BATCH
        batch = min(max(self.train // _PASS_STEPS, _SMALLEST_BATCH), largest, self.train)
        return batch if self.wide else max(_BLOCK, batch - batch % _BLOCK)

    @property
    def block(self) -> int:
        """Rows that are set against each other in a step."""
        return self.batch if self.wide else min(_BLOCK, self.batch)

    @property
    def stop_block(self) -> int:
        """The same among the stopping rows."""
        most = _LARGEST_STOP_BLOCK if self.streamed else self.block
        return min(self.stop, max(_STOP_BLOCK, min(self.block, most)))

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return max(1 if self.streamed else _MIN_STEPS, round(self.train / self.batch))

    @property
    def chunk(self) -> int:
        """Rows that are read at a time."""
        most = max(_CHUNK // self.width, 1)
        return -(-self.rows // -(-self.rows // most))

    @property
    def moment_rows(self) -> int:
        """Rows behind the closed form of a streamed fit."""
        return min(self.rows, _MOMENT_ROWS)

    @property
    def table(self) -> int:
        """Columns whose every possible float16 value is mapped once, on a CPU."""
        return self.width if self.streamed and self.rows >= _TABLE_ROWS else 0

    @property
    def parts(self) -> int:
        """Parts that are left out in turn for the closed form."""
        return _PARTS_WIDE if max(self.x_dim, self.y_dim) > _MANY_COLUMNS else _PARTS

    @property
    def modulated(self) -> int:
        """Columns of the features that narrow data have beside their own, 0 for none."""
        if self.wide or max(self.x_dim, self.y_dim) > WIDEST_MODULATED:
            return 0
        return 2 * self.width + 4
