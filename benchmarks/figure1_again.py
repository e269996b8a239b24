"""Draw and judge a stored run of Figure 1 again, without training: after a change of the rules.

    python benchmarks/figure1_again.py figure1/ again/

The first folder is one that `pointdep reproduce figure1` wrote; docs/figure1 is made from the
second, without curves.csv and the SVG.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pointdep.experiments.figure1_report import write_again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stored", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    write_again(options.stored, options.output)


if __name__ == "__main__":
    main()
