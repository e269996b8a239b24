"""The command line: parse, call, print."""

import sys


def main() -> None:
    """Entry point of ``pointdep``."""
    from pointdep.cli.app import run

    sys.exit(run(sys.argv[1:]))
