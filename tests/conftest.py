"""One thread for torch, here and in the processes that tests start.

The networks of the tests are too small to share out, and waiting threads spin: beside other work on
the machine two threads take four times as long as one.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported
