"""The kill sweep, at some of the calls: `make torture` tries all."""

import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("sweep.py")


@pytest.mark.parametrize("job", ["save", "checkpoint"])
def test_what_is_killed_leaves_the_old_or_the_new(job):
    command = [sys.executable, str(SWEEP), "--only", job, "--every", "4", "--kills", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if "calls" in line]
    assert len(rows) == {"save": 3, "checkpoint": 1}[job]
    assert all(" 0 lost, 0 left behind" in row and " 0 killed" not in row for row in rows)
