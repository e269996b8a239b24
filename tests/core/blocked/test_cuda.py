"""The same on a GPU, with compiled steps: skipped where there is none."""

import pytest
import torch

from pointdep.core import objectives
from pointdep.core.blocked import InnerScores, Others

from ..reference import CASES
from .drawn import draw
from .test_scores import NAMES, assert_same

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def on_gpu(drawn):
    """The same batch there; its matrix made there too."""
    inputs = [tensor.detach().cuda().requires_grad_() for tensor in drawn.inputs]
    matrix = inputs[0] @ inputs[1].mT + inputs[2].unsqueeze(-1)
    lean, full = (
        {k: w.cuda() if isinstance(w, torch.Tensor) else w for k, w in weights.items()}
        for weights in (drawn.inner_weights, drawn.weights)
    )
    inner = InnerScores(*inputs, cells=drawn.inner.cells)
    return drawn._replace(
        inner=inner, inner_weights=lean, matrix=matrix, weights=full, inputs=inputs
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", ["none", "dense"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_the_matrix(name, weights, dtype):
    drawn = draw((2,), 333, 16, cells=1 << 14, weights=weights, own=1, dtype=dtype, scale=0.5)
    assert_same(CASES[name], on_gpu(drawn), 1e-5 if dtype == torch.float32 else 1e-10)


def test_blocks_by_the_memory_of_the_device():
    x, y = (torch.randn(9000, 32, device="cuda") / 3 for _ in range(2))
    x.requires_grad_()
    groups = torch.arange(9000, device="cuda") // 3
    differ = (groups[:, None] != groups).float()
    for objective in (objectives.pc, objectives.cpc, objectives.dv):
        ours = objective(InnerScores(x, y), product=Others(ids=groups))
        theirs = objective(x @ y.T, joint=torch.eye(9000, device="cuda"), product=differ)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        gradients = [torch.autograd.grad(value, x)[0] for value in (ours, theirs)]
        bound = 1e-5 * float(gradients[1].abs().max())
        torch.testing.assert_close(*gradients, rtol=0, atol=bound)
