"""What all losses share: `ContrastiveLoss`, its options and what it says of collapse."""

from __future__ import annotations

import difflib
import inspect
import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pointdep.contrastive.losses import joined_batch
from pointdep.contrastive.losses.joined_batch import JoinedBatch, Similarity, loss_critic
from pointdep.core.methods import get_method
from pointdep.core.precision import no_autocast, transformed
from pointdep.errors import MEANINGS, Flag, InputError, require_known, require_whole

UNIT_SPREAD = 1e-4
"""Collapsed below it, rows of unit length: they differ by angles of 0.01, and at any usual
temperature all scores are the same to a thousandth."""

FREE_SPREAD = 1e-8
"""Collapsed below it, rows of any length: they differ in their fourth digit at best. A critic with
weights can work with a mean a thousand times the spread, so that less is asked where lengths are
left alone; constant rows rounded in float32 are at 1e-14."""

# One divides similarities and the other multiplies them; a loss has one of the two.
_TWINS = {"scale": "temperature", "temperature": "scale"}

CriticLike = str | nn.Module | tuple[nn.Module, nn.Module]


class ContrastiveLoss(nn.Module):
    """``loss(z1, z2, groups=None)``: minus a learning objective of Table 1, to be minimised.

    Row i of z1, (n, d1), and row i of z2, (n, d2), are a pair; the other rows are its negatives.

    Half precision is raised to float32, and autocast is off inside; only a critic whose own weights
    are in half precision, after ``loss.half()``, runs in it. TF32 is left as you set it for
    matrices of scores and critics. The d x d matrices of `DRFCLoss` and `RPCLoss` never use it in
    value and first derivative, except under `torch.compile` and `torch.func`.

    Derivatives of higher order are supported, as for a gradient penalty. Under `torch.func` (grad,
    vmap and so on) blocks are kept for the backward pass, and nothing for `flags`.

    Parameters
    ----------
    own : float
        Options of the objective: `lam` (DM1), `eta` (DM2), `alpha` (D-RFC), `a`, `b` and `c` (RPC).
    temperature, scale : float, optional
        What similarities are divided by (losses whose score is log r) or multiplied by (whose score
        is r). The default is the loss's own for the inner product of unit vectors, else 1.
    normalize : bool, optional
        Bring rows to unit length. None: yes for the inner product, no for other critics.
    clip : float, optional
        Bound the scores smoothly, ``clip * tanh(score / clip)``.
    learn_scale : bool
        Make the temperature or scale a parameter, kept as its logarithm.
    critic : str, module or two modules
        "inner", without weights of its own; "bilinear", "separable" or "concat"; a module called on
        paired rows; or two encoders whose inner product is the score.
    dims : int or (int, int), optional
        (d1, d2), or one number for both, if a named critic has weights.
    negatives : {"cross", "all"}
        z1 against z2; or both views against both, as in SimCLR. Then an anchor meets all other
        representations of either view, and its positive is its other view; a critic with two sides
        takes the anchor on its x side.
    symmetric : bool
        In "all", the anchors are both views, or z1 alone if false. In "cross", CPC takes the mean
        of its row-wise and column-wise forms; the other objectives are sums over cells and do not
        change.
    gather : bool
        If `torch.distributed` is initialised, the batch is that of all processes: the value and,
        after DDP's mean, the gradients are those of one process with all rows. See
        `pointdep.contrastive.distributed`.
    block_size : int or "auto"
        Rows of the score matrix that memory should be enough for. "auto": all of them up to 2^26
        numbers, then blocks that suit the device, so that the matrix never lives as a whole.

    Notes
    -----
    Groups are (n,) whole numbers. Cells between rows of one group are neither positives nor
    negatives. A batch of one group has no negatives: an error on the CPU, and a NaN on a device,
    which is not stopped to look.
    """

    method_key: ClassVar[str]
    multiplies: ClassVar[Literal["temperature", "scale"]]
    default: ClassVar[float]  # of temperature or scale
    __signature__: ClassVar[inspect.Signature]

    def __init__(
        self,
        *,
        temperature: float | None = None,
        scale: float | None = None,
        normalize: bool | None = None,
        clip: float | None = None,
        learn_scale: bool = False,
        critic: CriticLike = "inner",
        dims: int | tuple[int, int] | None = None,
        negatives: Literal["cross", "all"] = "cross",
        symmetric: bool = True,
        gather: bool = True,
        block_size: int | Literal["auto"] = "auto",
        **own: float,
    ) -> None:
        super().__init__()
        for name, value in (("temperature", temperature), ("scale", scale), ("clip", clip)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < math.inf):
                raise InputError(f"{name}={value!r} must be a positive number")
        flags = {"learn_scale": learn_scale, "symmetric": symmetric, "gather": gather}
        flags["normalize"] = False if normalize is None else normalize
        for name, flag in flags.items():
            if not isinstance(flag, bool):
                raise InputError(f"{name}={flag!r} must be true or false")
        require_known("negatives", negatives, ("cross", "all"))
        if block_size != "auto":
            require_whole("block_size", block_size)
        self._own_options = {**_own_defaults(self.method_key), **own}
        for name, option in self._own_options.items():
            setattr(self, name, option)
        self.method = get_method(self.method_key, self._own_options)
        self.negatives, self.symmetric = negatives, symmetric
        self.gather, self.block_size = gather, block_size
        plain = isinstance(critic, str) and critic == "inner"
        unit = plain if normalize is None else normalize
        given = temperature if self.multiplies == "temperature" else scale
        if given is None:
            given = self.default if plain and unit else 1.0
        self.dims = None if dims is None else joined_batch.dimensions(str(critic), dims)
        multiplier = 1.0 / given if self.multiplies == "temperature" else given
        self.scores = Similarity(loss_critic(critic, dims), unit, multiplier, learn_scale, clip)
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def __init_subclass__(cls) -> None:
        """Show the options of the objective, and those of all losses, as the loss's own."""
        super().__init_subclass__()
        shared = inspect.signature(ContrastiveLoss.__init__).parameters.values()
        kind = inspect.Parameter.KEYWORD_ONLY
        own = _own_defaults(cls.method_key).items()
        shown = [inspect.Parameter(k, kind, default=v, annotation="float") for k, v in own]
        hidden = _TWINS[cls.multiplies]
        shown += [p for p in shared if p.kind is kind and p.name != hidden]
        cls.__signature__ = inspect.Signature(shown)

    def __new__(cls, *_: Any, **options: Any) -> ContrastiveLoss:
        """Answer a misspelt option with the nearest right one, and `scale` with `temperature`."""
        known = inspect.signature(cls).parameters
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, [*known, *_TWINS], n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                if near and near[0] not in known:
                    hint = f"; did you mean {_TWINS[near[0]]!r}, which is 1 / {near[0]}?"
                raise TypeError(f"{cls.__name__} has no option {name!r}{hint}")
        return super().__new__(cls)

    def forward(self, z1: Tensor, z2: Tensor, groups: Tensor | None = None) -> Tensor:
        """Minus the objective, (). z1: (n, d1), z2: (n, d2), groups: (n,) whole numbers."""
        both = self.negatives == "all"
        self._check(z1, z2, same=both)
        with no_autocast(z1):
            rows = self.scores.rows(z1, z2)
            layout = {"both_views": both, "symmetric": self.symmetric, "joined": self.gather}
            size = None if self.block_size == "auto" else self.block_size
            ids = _group_ids(groups, z1)
            batch = JoinedBatch(self.scores, rows[0], rows[1], ids, **layout, block_size=size)
            loss = -self.method.objective(batch)
        # Looked at when asked: nothing is computed, or waited for, in training.
        last = rows[0].detach(), rows[1].detach(), loss.detach()
        self._last = None if transformed() else last  # tensors do not outlive a transform
        return loss

    @torch.no_grad()
    def pmi(self, z1: Tensor, z2: Tensor) -> Tensor:
        """log r of each pair, (n,), without gradient: a function of that pair alone.

        z1: (n, d1), z2: (n, d2). A read-out with a floor, r >= 1e-4, ends at -9.2.
        """
        self._check(z1, z2)
        with no_autocast(z1):
            sides = self.scores.sides(*self.scores.rows(z1, z2))
            return self.method.read_out(self.scores.pairs(*sides))

    @torch.no_grad()
    def pmi_matrix(self, z1: Tensor, z2: Tensor) -> Tensor:
        """log r of all pairs, in blocks. z1: (n, d1), z2: (m, d2) -> (n, m), without gradient."""
        self._check(z1, z2, paired=False)
        with no_autocast(z1):
            sides = self.scores.sides(*self.scores.rows(z1, z2))
            return self.method.read_out(self.scores.matrix(*sides))

    @property
    def temperature(self) -> float:
        """What similarities are divided by, as it is now."""
        return self._strength("temperature")

    @property
    def scale(self) -> float:
        """What similarities are multiplied by, as it is now."""
        return self._strength("scale")

    def _strength(self, name: str) -> float:
        if name != self.multiplies:
            raise AttributeError(f"{type(self).__name__} has a {self.multiplies} and no {name}")
        return 1.0 / self.scores.strength if name == "temperature" else self.scores.strength

    @property
    def spread(self) -> float:
        """How much the rows of the last batch vary, the smaller of the two sides.

        0 where they are constant, 1 where they are centred; NaN before the first batch. On several
        processes: of the rows of this one.
        """
        if self._last is None:
            return math.nan
        sides = [spread(rows) for rows in self._last[:2] if len(rows) > 1]
        return min((float(side) for side in sides), default=math.nan)

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What is wrong with the last batch: "collapsed" or "diverged"."""
        if self._last is None:
            return ()
        value, limit = self.spread, UNIT_SPREAD if self.scores.normalize else FREE_SPREAD
        said = f"{MEANINGS['collapsed']} (spread {value:.1e}, limit {limit:.0e})"
        lost = "the loss is not finite: look for such rows, or lower rate or scale"
        found = [Flag("collapsed", (), said)] if value < limit else []
        if not math.isfinite(float(self._last[2])):
            found.append(Flag("diverged", (), lost))
        return tuple(found)

    def extra_repr(self) -> str:
        shown = {
            **self._own_options,
            self.multiplies: float(f"{self._strength(self.multiplies):.6g}"),
            "normalize": self.scores.normalize,
            "clip": self.scores.clip,
            "negatives": self.negatives,
            "symmetric": self.symmetric,
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def __getstate__(self) -> dict[str, Any]:
        # A copy, or what is pickled, does not take the last batch along.
        return {**self.__dict__, "_last": None}

    def _check(
        self, z1: Tensor, z2: Tensor, *, same: bool = False, paired: bool = True, second: str = "z2"
    ) -> None:
        """Refuse representations whose shapes do not fit each other or the critic.

        same: both sides need the same number of columns, whatever the critic. paired: they need the
        same number of rows. second: what the caller calls z2. Values are not looked at: that would
        stop the device.
        """
        self._check_rows("z1", z1, side=0)
        self._check_rows(second, z2, side=1)
        if paired and len(z1) != len(z2):
            raise InputError(f"z1 has {len(z1)} rows and z2 has {len(z2)}: row i of both is a pair")
        if (same or self.scores.critic is None) and z1.shape[1] != z2.shape[1]:
            raise InputError(
                f"z1 has {z1.shape[1]} columns and {second} has {z2.shape[1]}: the inner product "
                "and negatives='all' need as many; use critic='bilinear' with negatives='cross'"
            )

    def _check_rows(self, name: str, z: Tensor, *, side: int) -> None:
        """Refuse what is no matrix with columns, and another number of them than dims[side]."""
        if not isinstance(z, Tensor) or z.ndim != 2:
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise InputError(f"{name} must be a tensor of shape (rows, columns), got {shape}")
        if not z.shape[1]:
            raise InputError(f"{name} has no columns: a representation needs at least one")
        dims = self.dims
        if dims is not None and z.shape[1] != dims[side]:
            raise InputError(f"{name} has {z.shape[1]} columns where dims={dims} says {dims[side]}")


def _own_defaults(key: str) -> dict[str, Any]:
    """The options of a method that its objective takes; those of a read-out train nothing."""
    method = get_method(key)
    takes = inspect.signature(method.objective).parameters
    return {name: value for name, value in method.options.items() if name in takes}


@torch.no_grad()
def spread(rows: Tensor) -> Tensor:
    """Total variance over mean squared length, (..., n, d) -> (...): 0 if constant, 1 if centred.

    It does not change with the scale of the rows; rows that are all zero have none.
    """
    centred = rows - rows.mean(-2, keepdim=True)
    tiny = torch.finfo(rows.dtype).tiny
    return centred.square().sum((-2, -1)) / rows.square().sum((-2, -1)).clamp(min=tiny)


def _group_ids(groups: Tensor | None, z1: Tensor) -> Tensor | None:
    """The groups as (n,) int64 where the rows are, or None."""
    if groups is None:
        return None
    groups = torch.as_tensor(groups)
    if groups.shape != z1.shape[:1]:
        raise InputError(f"groups has shape {tuple(groups.shape)}, but must be ({len(z1)},)")
    if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
        raise InputError(f"groups must be whole numbers, got {groups.dtype}")
    return groups.to(z1.device, torch.int64)
