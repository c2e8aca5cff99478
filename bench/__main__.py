"""`python -m bench`, and the console scripts `meshproof-bench` and `meshproof bench`."""

from __future__ import annotations

import sys

import bench
from bench.cli import main


def script() -> int:
    """The console script, whose import path does not hold the working directory."""
    bench.ours_first()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
