"""Writes requirements-dev.lock: every package of the development environment with its SHA-256.

It is of the Python and the system that it runs on, which its first line names. torch is left out:
constraints.txt has its version, and its builds for different devices share it.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    wanted = ["-c", "constraints.txt", ".[dev]", "setuptools", "wheel"]
    resolve = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", *wanted]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *resolve]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    lines = []
    for one in json.loads(told)["install"]:
        name, version = one["metadata"]["name"].lower(), one["metadata"]["version"]
        if name in ("pointdep", "torch"):
            continue
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    system = f"# {'.'.join(platform.python_version_tuple()[:2])} {sys.platform}"
    head = [f"{system} {platform.machine()}", "# Made by make lock; installed by .ci/install."]
    content = "\n".join([*head, *sorted(lines)])
    (ROOT / "requirements-dev.lock").write_text(content + "\n", "utf-8")


if __name__ == "__main__":
    main()
