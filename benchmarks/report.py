"""Print a benchmark's result as JSON, with what it ran on; write it where asked."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import pointdep


def report(name: str, result: dict[str, Any], output: str | None) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    content = {
        "benchmark": name,
        "command": " ".join(["python", *sys.argv]),
        "pointdep": pointdep.__version__,
        "commit": commit,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device,
        "threads": torch.get_num_threads(),
        **result,
    }
    text = json.dumps(content, indent=1)
    print(text)
    if output:
        Path(output).write_text(text + "\n", "utf-8")
