"""Where logits come from: two towers' embeddings, the user's function, or a table of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pointdep.data.sides import RawSide, SideEncoder
from pointdep.errors import InputError
from pointdep.estimators.base import read_pairs
from pointdep.estimators.fit_rows import PairedRows, encode_rows
from pointdep.fitting.splits import Split, make_splits
from pointdep.inference.checks import FEWEST_ROWS

# Rows as an outside model takes them: neither scaled nor told apart from categories.

_EXACT = 1 << 24  # whole numbers up to here are exact in float32


class RowKind(NamedTuple):
    """A row's shape, as (3, 32, 32), and whether a function is to be given whole numbers."""

    shape: tuple[int, ...]
    whole: bool

    @classmethod
    def of(cls, values: Any, for_function: bool) -> RowKind:
        """Of rows (n,) or (n, ...)."""
        shape = tuple(int(size) for size in np.shape(values)[1:])
        dtype = str(getattr(values, "dtype", "")).removeprefix("torch.")
        return cls(shape or (1,), for_function and dtype.startswith(("int", "uint")))

    def flat(self, values: Any, side: str) -> Any:
        """Rows of more than two dimensions as (n, d); others as they are."""
        shape = tuple(getattr(values, "shape", ()))
        if len(shape) <= 2:
            return values
        if shape[1:] != self.shape:
            raise InputError(f"{side} has rows of shape {shape[1:]}, calibrated were {self.shape}")
        return values.reshape(shape[0], -1)

    def require_exact(self, raw: RawSide, side: str) -> None:
        """Refuse whole numbers that would reach a function of the user's rounded."""
        numbers = raw.numeric if self.whole else None
        if numbers is None or not numbers.size:
            return
        largest = max(int(numbers.max()), -int(numbers.min()))
        if largest > _EXACT:
            raise InputError(f"{side} holds {largest}: numbers above {_EXACT} would be rounded")


def draws(codes: NDArray[np.int64] | None, rows: int) -> int:
    """How many independent draws there are: groups, or rows where each is its own."""
    return rows if codes is None else len(np.unique(codes))


Kinds = tuple[RowKind, RowKind]
"""Of x and of y."""


def read_rows(
    X: Any, Y: Any, groups: Any, kinds: Kinds, *, folds: int, seed: int, device: torch.device
) -> PairedRows:
    """Check, split and encode the pairs that are to calibrate."""
    X, Y = (kind.flat(side, name) for side, kind, name in zip((X, Y), kinds, "XY", strict=True))
    raw_x, raw_y, codes = read_pairs(X, Y, groups, (False, False))
    kinds[0].require_exact(raw_x, "X")
    kinds[1].require_exact(raw_y, "Y")
    splits = [
        Split(np.sort(np.concatenate([s.train, s.stop])), s.stop[:0], s.report)
        for s in make_splits(raw_x.rows, folds=folds, groups=codes, seed=seed)
    ]
    count = draws(codes, raw_x.rows)
    if count < FEWEST_ROWS:
        raise InputError(
            f"{count} {'pairs' if codes is None else 'groups'} are too few to calibrate by: give "
            f"at least {FEWEST_ROWS}, and thousands where the mutual information is many nats"
        )
    encoders = _as_they_are(raw_x, "X"), _as_they_are(raw_y, "Y")
    how: dict[str, Any] = {"codes": codes, "seed": seed, "device": device}
    return encode_rows((raw_x, raw_y), encoders, splits, **how)


def _as_they_are(raw: RawSide, name: str) -> SideEncoder:
    """An encoder that leaves numbers alone."""
    width = raw.width
    about: dict[str, Any] = {"side": name, "names": raw.names, "named": raw.named}
    about |= {"center": np.zeros(width), "scale": np.ones(width), "numeric_at": tuple(range(width))}
    about["front"] = raw.front
    return SideEncoder(category_mask=(False,) * width, category_at=(), categories=(), **about)


_ROWS = 256  # given to the user's function at a time, of each side


class Source(nn.Module):
    """Logits of rows x and y, which are the same for all replicas."""

    has_inner = False  # whether a logit is the inner product of `vectors_x` and `vectors_y`

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits of the pairs. x: (n, dx), y: (n, dy) -> (n,)."""
        raise NotImplementedError

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits of all pairs. x: (..., n, dx), y: (..., m, dy) -> (..., n, m)."""
        raise NotImplementedError

    def vectors_x(self, x: Tensor) -> Tensor:
        """x: (n, dx) -> (n, e)."""
        raise NotImplementedError

    def vectors_y(self, y: Tensor) -> Tensor:
        """y: (m, dy) -> (m, e)."""
        raise NotImplementedError

    def same_row(self, x: Tensor, y: Tensor) -> Tensor | None:
        """Which of y: (m, dy) are of one group with which of x: (n, dx), where known: (n, m)."""
        del x, y
        return None


class Embeddings(Source):
    """scale * x . y of two towers' outputs, cosines where they are normalised."""

    has_inner = True

    def __init__(self, scale: float, normalize: bool) -> None:
        super().__init__()
        self.scale, self.normalize = scale, normalize

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.vectors_x(x) * self.vectors_y(y)).sum(-1)

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        return self.vectors_x(x) @ self.vectors_y(y).transpose(-1, -2)

    def vectors_x(self, x: Tensor) -> Tensor:
        return self.scale * self.vectors_y(x)

    def vectors_y(self, y: Tensor) -> Tensor:
        return F.normalize(y, dim=-1) if self.normalize else y


class Function(Source):
    """The user's ``function(x, y)``: n rows of x and m rows of y give (n, m) logits.

    Rows are given in the shape and kind of number they were calibrated with. A method
    ``function.pairs(x, y)``, giving (n,), is called for pairs where there is one.
    """

    def __init__(self, function: Callable[..., Any], kinds: Kinds) -> None:
        super().__init__()
        # In a tuple, so that a module of the user's is neither moved, nor copied, nor saved.
        self._function = (function,)
        self.kinds = kinds

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        own = getattr(self._function[0], "pairs", None)
        parts = zip(torch.split(x, _ROWS), torch.split(y, _ROWS), strict=True)
        if callable(own):
            return torch.cat([self._call(own, a, b, (len(a),)) for a, b in parts])
        return torch.cat([self._block(a, b).diagonal() for a, b in parts])

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        n, m = x.shape[-2], y.shape[-2]
        found = []
        sides = x.reshape(-1, n, x.shape[-1]), y.reshape(-1, m, y.shape[-1])
        for xs, ys in zip(*sides, strict=True):
            columns = torch.split(ys, _ROWS)
            bands = [[self._block(a, b) for b in columns] for a in torch.split(xs, _ROWS)]
            found.append(torch.cat([torch.cat(band, 1) for band in bands]))
        return torch.stack(found).view(*x.shape[:-1], m)

    def _block(self, x: Tensor, y: Tensor) -> Tensor:
        return self._call(self._function[0], x, y, (len(x), len(y)))

    def _call(self, function: Any, x: Tensor, y: Tensor, shape: tuple[int, ...]) -> Tensor:
        given = [
            (rows.round().long() if kind.whole else rows).reshape(len(rows), *kind.shape)
            for rows, kind in zip((x, y), self.kinds, strict=True)
        ]
        shapes = " and ".join(str(tuple(rows.shape)) for rows in given)
        called = f"logits, called with rows of shape {shapes}"
        try:
            with torch.no_grad():
                found = torch.as_tensor(function(*given))
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{called}, failed: {error}") from error
        if found.shape != shape:
            raise InputError(f"{called}, gave shape {tuple(found.shape)}: it must give {shape}")
        found = found.to(x)
        if not bool(found.isfinite().all()):
            raise InputError(f"{called}, gave NaN or infinity")
        return found


class Table(Source):
    """Logits that are known: x and y are numbers of rows and columns, (n, 1).

    names: (2, n), the groups of rows and of columns, -1 for those that did not calibrate.
    """

    logits: Tensor
    names: Tensor

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.register_buffer("logits", logits)
        self.register_buffer("names", torch.full((2, len(logits)), -1))

    def name_rows(self, x: Tensor, y: Tensor, codes: NDArray[np.int64] | None) -> None:
        """Say which rows and columns are pairs, or of one group; x, y: (m, 1), codes: (m,)."""
        names = torch.arange(len(x)) if codes is None else torch.from_numpy(codes)
        self.names[0, self._numbers(x, "X")] = names.to(self.names)
        self.names[1, self._numbers(y, "Y")] = names.to(self.names)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        return self.logits[self._numbers(x, "X"), self._numbers(y, "Y")]

    def matrix(self, x: Tensor, y: Tensor) -> Tensor:
        rows, columns = self._numbers(x, "X"), self._numbers(y, "Y")
        return self.logits[rows.unsqueeze(-1), columns.unsqueeze(-2)]

    def same_row(self, x: Tensor, y: Tensor) -> Tensor | None:
        of_x, of_y = self.names[0, self._numbers(x, "X")], self.names[1, self._numbers(y, "Y")]
        return (of_x.unsqueeze(1) == of_y) & (of_y >= 0)

    def _numbers(self, rows: Tensor, side: str) -> Tensor:
        """(..., n, 1) -> (..., n), refused where there is no such row."""
        numbers = rows.squeeze(-1).round().long()
        wrong = (numbers < 0) | (numbers >= len(self.logits)) | (numbers != rows.squeeze(-1))
        if bool(wrong.any()):
            raise InputError(
                f"{side} names row {rows.squeeze(-1)[wrong][0].item():g} of a matrix of logits "
                f"whose rows are 0 to {len(self.logits) - 1}: for other pairs use read_out(logits)"
            )
        return numbers


def as_table(logits: Any) -> NDArray[np.float32]:
    """A user's matrix of logits, (n, n), pairs on the diagonal."""
    if isinstance(logits, Tensor):
        logits = logits.detach().cpu().float().numpy()
    try:
        table = np.asarray(logits)
    except ValueError as error:
        raise InputError(f"logits is no matrix ({error})") from None
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
        raise InputError(f"logits has shape {table.shape} but must be square, (n, n)")
    if table.dtype.kind not in "iuf":
        raise InputError(f"logits holds {table.dtype}: give numbers")
    wrong = ~np.isfinite(table)
    if wrong.any():
        i, j = (int(index[0]) for index in np.nonzero(wrong))
        raise InputError(f"logits has {table[i, j]} in row {i}, column {j}: give finite numbers")
    return table.astype(np.float32)
