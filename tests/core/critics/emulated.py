"""The Hopper kernels in plain torch: what goes in and comes out is laid out as theirs is."""

from __future__ import annotations

import torch
from torch import Tensor


def places(device: torch.device) -> tuple[Tensor, Tensor]:
    """Word and bit of 128 units, (16, 4, 2): unit 8 t + 2 q + e is bit t + 16 e of word q."""
    t, q, e = torch.meshgrid(
        *(torch.arange(size, device=device) for size in (16, 4, 2)), indexing="ij"
    )
    return q, t + 16 * e


def packed(gate: Tensor) -> Tensor:
    """(R, n, n, k), zero or one -> words (R, n, n, k/128, 4)."""
    _, bit = places(gate.device)
    words = (gate.unflatten(-1, (-1, 16, 4, 2)).long() << bit).sum((-3, -1))
    return torch.where(words < 2**31, words, words - 2**32).int()


def unpacked(words: Tensor) -> Tensor:
    """Words (R, n, n, k/128, 4) -> (R, n, n, k), zero or one."""
    word, bit = places(words.device)
    return ((words[..., word] >> bit) & 1).flatten(-3).flatten(-2).float()


def first_layer(hx: Tensor, hy: Tensor) -> Tensor:
    """relu(hx_i + hy_j) as bfloat16 holds it, (R, n, n, h) in float32."""
    return torch.relu(hx[:, :, None].float() + hy[:, None].float()).bfloat16().float()


def forward(
    hx: Tensor, hy: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """As `hopper._forward`: the scores, in a part for each 128 units, and the signs."""
    replicas, outputs = len(weight), weight.shape[2]
    assert {hx.dtype, hy.dtype, weight.dtype} == {torch.bfloat16}
    second = first_layer(hx, hy) @ weight.float()[:, None] + bias.view(replicas, 1, 1, outputs)
    shares = torch.relu(second) * last_weight.view(replicas, 1, 1, outputs)
    return shares.unflatten(-1, (-1, 128)).sum(-1).permute(0, 3, 1, 2), packed(second > 0)


def backward(
    grad: Tensor, half_grad: Tensor, hx: Tensor, hy: Tensor, back: Tensor, gate: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `hopper._backward`, most sums in two parts."""
    assert {half_grad.dtype, back.dtype} == {torch.bfloat16}
    first, open_ = first_layer(hx, hy), unpacked(gate)
    cells = grad[..., None] * (open_ @ back.float().mT[:, None]) * (first > 0)
    gated = half_grad.float()[..., None] * open_
    parts = slice(0, 1), slice(1, None)  # of the rows that are summed over
    return (
        torch.stack([cells[:, :, part].sum(2) for part in parts], 1),
        torch.stack([cells[:, part].sum(1) for part in parts], 1),
        torch.stack([first[:, p].flatten(1, 2).mT @ gated[:, p].flatten(1, 2) for p in parts], 1),
        (grad[..., None] * open_).sum(2),
    )
