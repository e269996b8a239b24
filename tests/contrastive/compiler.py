"""Whether this machine can compile what torch asks it to."""

import pytest
import torch


def needs_compiler() -> None:
    """Skip the test where torch.compile has nothing to compile with, such as a C++ compiler."""
    try:
        torch.compile(lambda x: x.sin() + 1.0)(torch.zeros(2))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        pytest.skip(f"torch.compile does not run here: {reason}")
