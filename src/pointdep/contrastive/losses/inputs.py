"""What a loss refuses, by shapes alone: looking at values would stop the device."""

from __future__ import annotations

import torch
from torch import Tensor

from pointdep.errors import InputError


def check_pairs(
    z1: Tensor,
    z2: Tensor,
    dims: tuple[int, int] | None,
    *,
    same: bool,
    paired: bool = True,
    second: str = "z2",
) -> None:
    """Refuse representations whose shapes do not fit each other or the critic.

    same: both sides need the same number of columns. paired: they need the same number of rows.
    second: what the caller calls z2.
    """
    check_rows("z1", z1, dims, side=0)
    check_rows(second, z2, dims, side=1)
    if paired and len(z1) != len(z2):
        raise InputError(f"z1 has {len(z1)} rows and z2 has {len(z2)}: row i of both is one pair")
    if same and z1.shape[1] != z2.shape[1]:
        raise InputError(
            f"z1 has {z1.shape[1]} columns and {second} has {z2.shape[1]}: the inner product and "
            "negatives='all' need as many; use critic='bilinear' with negatives='cross'"
        )


def check_rows(name: str, z: Tensor, dims: tuple[int, int] | None, *, side: int) -> None:
    """Refuse what is no matrix with columns, and another number of them than dims[side]."""
    if not isinstance(z, Tensor) or z.ndim != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise InputError(f"{name} must be a tensor of shape (rows, columns), got {shape}")
    if not z.shape[1]:
        raise InputError(f"{name} has no columns: a representation needs at least one")
    if dims is not None and z.shape[1] != dims[side]:
        raise InputError(f"{name} has {z.shape[1]} columns where dims={dims} says {dims[side]}")


def group_ids(groups: Tensor | None, z1: Tensor) -> Tensor | None:
    """The groups as (n,) int64 where the rows are, or None."""
    if groups is None:
        return None
    groups = torch.as_tensor(groups)
    if groups.shape != z1.shape[:1]:
        raise InputError(
            f"groups has shape {tuple(groups.shape)}; it must be ({len(z1)},), one number a row"
        )
    if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
        raise InputError(f"groups must be whole numbers, got {groups.dtype}")
    return groups.to(z1.device, torch.int64)
