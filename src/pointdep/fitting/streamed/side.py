"""One side of stored rows: from what was read to what the critics take."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from pointdep.core.rank_map import RankMap
from pointdep.data.encoder import SideEncoder
from pointdep.data.raw import Array
from pointdep.data.stored.base import RowSource

_PART = 1 << 17  # numbers encoded at a time: they stay in the cache
_PART_GPU = 1 << 24
_TABLE_ROWS = 1 << 16  # with fewer a table of all values does not pay
_UNSIGNED = {"u2": np.int32, "u4": np.int64, "u8": np.float64}  # which torch cannot compute with


class StreamedSide:
    """Encodes and maps rows as they come, on the device, to the numbers they have in memory.

    encoder: None for a source that gives encoded rows already. Columns of float16 or int8 have few
    possible values: on the CPU, where a rank map is slow, it is looked up in a table of them all.
    """

    def __init__(
        self, source: RowSource, encoder: SideEncoder | None, front: nn.Module, device: torch.device
    ) -> None:
        self.source, self.encoder, self.front, self.device = source, encoder, front, device
        self.dim = source.width if encoder is None else encoder.dim
        # Where there is no float64 the encoding is done before the rows go there.
        self._early = torch.device("cpu") if device.type == "mps" else device
        self._table: Tensor | None = None

    def tensor(self, values: Array) -> Tensor:
        """values: (n, width) as read -> (n, dim) float32 on the device, prepared."""
        if self._uses_table:
            return self._looked_up(values)
        rows = as_tensor(values).to(self._early)
        out = torch.empty(len(rows), self.dim, device=self.device)
        # A GPU would rather have them all at once.
        step = max(1, (_PART if self.device.type == "cpu" else _PART_GPU) // max(1, self.dim))
        for part, place in zip(torch.split(rows, step), torch.split(out, step), strict=True):
            place.copy_(self.front(self.encoded(part).to(self.device)))
        return out

    def encoded(self, rows: Tensor) -> Tensor:
        """(n, width) of any type -> (n, dim) float32, as `SideEncoder.encode` does."""
        if self.encoder is None:
            return rows.float()
        at = self.encoder.numeric_at
        chosen = rows if len(at) == rows.shape[1] else rows[:, list(at)]
        center, scale = (
            torch.from_numpy(part).to(rows.device)
            for part in (self.encoder.center, self.encoder.scale)
        )
        return ((chosen.double() - center) / scale).float()

    @property
    def _uses_table(self) -> bool:
        size = self.source.dtype.itemsize
        maps = isinstance(self.front, RankMap) and self.encoder is not None
        few = size == 1 or (size == 2 and self.source.rows >= _TABLE_ROWS)
        return maps and few and self.device.type == "cpu"

    def _looked_up(self, values: Array) -> Tensor:
        assert self.encoder is not None
        table = self._all_values()
        size = values.dtype.itemsize
        codes = values.view(np.uint8 if size == 1 else np.int16)
        codes = codes[:, list(self.encoder.numeric_at)] if self.dim < values.shape[1] else codes
        out = torch.empty(len(values), self.dim)
        step = max(1, _PART // self.dim)
        for first in range(0, len(values), step):
            part = torch.from_numpy(np.ascontiguousarray(codes[first : first + step].T)).long()
            if size == 2:
                part &= 0xFFFF
            out[first : first + step] = table.gather(1, part).T
        return out

    def _all_values(self) -> Tensor:
        """(dim, 256 or 65,536): every possible value of a column, mapped, by its bits."""
        if self._table is None:
            assert self.encoder is not None
            size, dtype = self.source.dtype.itemsize, self.source.dtype
            bits = np.arange(256**size, dtype=np.uint8 if size == 1 else np.uint16)
            values = as_tensor(np.nan_to_num(bits.view(dtype), posinf=0.0, neginf=0.0))
            wide = values.double().unsqueeze(1)
            encoder = self.encoder
            step = max(1, _PART // self.dim)
            center, scale = torch.from_numpy(encoder.center), torch.from_numpy(encoder.scale)
            self._table = torch.empty(self.dim, len(values))
            for first in range(0, len(values), step):
                part = ((wide[first : first + step] - center) / scale).float()
                self._table[:, first : first + step] = self.front(part).T
        return self._table


def as_tensor(values: Array) -> Tensor:
    """As torch can compute with it: unsigned integers of many bits become wider ones."""
    wider = _UNSIGNED.get(values.dtype.str[1:])
    if wider is not None:
        return torch.from_numpy(values.astype(wider))
    if values.dtype.byteorder not in "=|<" or not values.flags.writeable:
        values = np.array(values, dtype=values.dtype.newbyteorder("="))
    return torch.from_numpy(values)
