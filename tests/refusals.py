"""What is refused, in one line, and what is done without its warnings."""

import warnings
from contextlib import contextmanager

import pytest

from pointdep.errors import InputError


def refused(message, call, *args, **kwargs):
    """The call raises an InputError of one line, which matches the message and is returned."""
    with pytest.raises(InputError, match=message) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@contextmanager
def quietly(kind=Warning):
    """Warnings of this kind, such as those that a short fit earns, are ignored meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kind)
        yield
