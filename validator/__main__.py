"""`python -m validator` and the script `meshproof`: see `validator` for what happened to `sys.path` before this.

An interrupt while the modules are imported is an interrupt like any other, and no traceback.
"""

import sys


def main() -> int:
    """The exit status of the command line."""
    try:
        from validator.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
