"""Scores in half precision, as a training loop under autocast gives them."""

import pytest
import torch

from pointdep.core.methods import METHODS


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("key", METHODS)
def test_as_in_float32(key, dtype):
    scores = torch.randn(300, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    eye = torch.eye(300)
    whole = METHODS[key].objective(scores.float())
    torch.testing.assert_close(METHODS[key].objective(scores), whole)
    weighted = METHODS[key].objective(scores, joint=eye, product=1 - eye)
    torch.testing.assert_close(weighted, whole, rtol=1e-4, atol=1e-5)
    half = scores.clone().requires_grad_()
    METHODS[key].objective(half).backward()
    assert half.grad.dtype == dtype
    assert torch.isfinite(half.grad).all()
