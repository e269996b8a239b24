"""``python -m pointdep``."""

from pointdep.cli import main

if __name__ == "__main__":
    main()
