"""`python -m validator` and the script `meshproof`: see `validator` for what happened to `sys.path` before this.

An interrupt while the modules are imported is an interrupt like any other, and no traceback. The process ends
without taking itself apart: facts and trees are many objects, and freeing them one by one is time that people
would wait for nothing.
"""

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and end the process with its exit status."""
    gc.disable()
    status = _status()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed: what could be said of it has been said
            continue
    os._exit(status)


def _status() -> int:
    try:
        from validator.cli import main as run

        return run()
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # people press Ctrl-C more than once
        return 130


if __name__ == "__main__":
    main()
