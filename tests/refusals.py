"""What is refused, in one line."""

import pytest

from pointdep.errors import InputError


def refused(message, call, *args, **kwargs):
    """The call raises an InputError of one line, which matches the message and is returned."""
    with pytest.raises(InputError, match=message) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)
