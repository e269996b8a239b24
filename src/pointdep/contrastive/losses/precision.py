"""The numbers of a loss are float32 or float64, whatever type the encoder ran in.

That is how they are stored. A product of matrices (scores over all cells, a critic's layers) is
still computed in TF32 where you allow that to torch, with three digits: `no_autocast` does not turn
it off. The two d x d matrices of the O(B d^2) identity never are, in value and first derivative;
but under `torch.compile` and `torch.func`, and in second derivatives, they follow your setting too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pointdep.core.precision import Gram as _Gram

_HALF = (torch.float16, torch.bfloat16)


def no_autocast(tensor: Tensor) -> torch.autocast:
    """Autocast off on the tensor's device: scores in bfloat16 have two or three digits."""
    return torch.autocast(tensor.device.type, enabled=False)


def raised(*tensors: Tensor) -> list[Tensor]:
    """The tensors in one type: float32 where they are in half precision or whole numbers."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.dtype not in _HALF and tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def transformed() -> bool:
    """Whether a transform of `torch.func` is under way."""
    return torch._C._are_functorch_transforms_active()


def own_functions_apply() -> bool:
    """Whether our autograd functions may stand for plain operations.

    torch.compile fuses plain ones by itself, and the transforms of `torch.func` need them.
    """
    return not (torch.compiler.is_compiling() or transformed())


def gram(rows: Tensor) -> Tensor:
    """rows' rows, (n, d) -> (d, d), without TF32 in value and gradient, see above.

    A sum over all cells stands on these few numbers: TF32's three digits would be all it has.
    """
    if not rows.is_cuda or not own_functions_apply():
        return rows.T @ rows
    product: Tensor = _Gram.apply(rows)  # type: ignore[no-untyped-call]
    return product
