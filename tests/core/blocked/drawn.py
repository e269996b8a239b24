"""Inner-product scores in both forms, with weights in both forms."""

from typing import NamedTuple

import torch
from torch import Tensor

from pointdep.core.blocked import InnerScores, Others, Pairs

WEIGHTS = ("none", "dense", "shared", "rows", "ids", "rows and ids")


class Drawn(NamedTuple):
    """A batch without its matrix, and with it."""

    inner: InnerScores
    inner_weights: dict[str, Tensor | Pairs | Others | None]
    matrix: Tensor
    weights: dict[str, Tensor | None]
    inputs: list[Tensor]


def draw(
    lead=(),
    n=9,
    e=4,
    *,
    cells=20,
    weights="none",
    own=0,
    parts=False,
    dtype=torch.float64,
    scale=1.0,
    seed=0,
) -> Drawn:
    """own: how many of the two own terms there are; parts: the last of `lead` counts them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (scale * values).to(dtype).requires_grad_()

    x, y = normal(*lead, n, e), normal(*lead, n, e)
    own_x = normal(*lead, n) if own > 0 else None
    own_y = normal(*lead, n) if own > 1 else None
    matrix = x @ y.mT
    if own_x is not None:
        matrix = matrix + own_x.unsqueeze(-1)
    if own_y is not None:
        matrix = matrix + own_y.unsqueeze(-2)
    lean, full = weights_of(weights, lead, n, dtype, generator)
    if parts:
        matrix = matrix.flatten(-3, -2)
        laid = {k: w.expand(*lead, n, n).flatten(-3, -2) for k, w in full.items() if w is not None}
        full = {**full, **laid}
        lean = {k: full[k] if isinstance(w, Tensor) else w for k, w in lean.items()}
        eye = torch.eye(n, dtype=dtype).repeat(lead[-1], 1)
        full["joint"] = eye if full["joint"] is None else full["joint"]
        full["product"] = 1 - eye if full["product"] is None else full["product"]
    inner = InnerScores(x, y, own_x, own_y, parts=parts, cells=cells)
    return Drawn(inner, lean, matrix, full, [t for t in (x, y, own_x, own_y) if t is not None])


def weights_of(kind, lead, n, dtype, generator):
    """Weights of inner scores, and the same as matrices."""
    off = 1 - torch.eye(n, dtype=dtype)
    some = (torch.rand(*lead, n, generator=generator, dtype=dtype) - 0.3).clamp(min=0.0)
    some[..., :2] = 0.7  # at least one sample of each
    ids = torch.randint(0, 3, (*lead, n), generator=generator)
    ids[..., :2] = torch.tensor([0, 1])
    differ = (ids.unsqueeze(-1) != ids.unsqueeze(-2)).to(dtype)
    both, joint = some.unsqueeze(-1) * some.unsqueeze(-2) * off, torch.diag_embed(some)
    if kind == "none":
        return {"joint": None, "product": None}, {"joint": None, "product": None}
    if kind in ("dense", "shared"):
        shape = (*lead, n, n) if kind == "dense" else (1, n)
        product = (torch.rand(shape, generator=generator, dtype=dtype) - 0.3).clamp(min=0.0)
        product[..., 0, 1] = 0.5
        own = joint if kind == "dense" else torch.eye(n, dtype=dtype)
        return {"joint": own, "product": product}, {"joint": own, "product": product}
    if kind == "ids":
        return {"joint": None, "product": Others(ids=ids)}, {"joint": None, "product": differ}
    used, full = (None, both) if kind == "rows" else (ids, both * differ)
    return {"joint": Pairs(some), "product": Others(some, used)}, {"joint": joint, "product": full}
