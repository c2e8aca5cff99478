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
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # people press Ctrl-C more than once
        return 130


if __name__ == "__main__":
    sys.exit(main())
