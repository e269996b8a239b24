"""What comes in and goes out: users' tables as numbers, files, and tasks with a known answer."""

from __future__ import annotations

from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import RawSide, SparseInputError, require_same_length
from pointdep.data.sides import as_side

__all__ = ["RawSide", "SideEncoder", "SparseInputError", "as_side", "require_same_length"]
