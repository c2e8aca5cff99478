"""`python -m validator` and the script `meshproof`: see `validator` for what happened to `sys.path` before this.

*An interrupt (Ctrl-C) ends the process at once.* As an exception it would come out in the middle of anything, the
threads of a pool of processes among them, which answer with tracebacks or never. Children end with their parent
(`validator.run.beside`), and the one thing that must not be left half done, replacing a file, holds interrupts back.

*The process ends without taking itself apart*: facts and trees are many objects, and freeing them one by one is time
that people would wait for nothing.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than everything else here
if TYPE_CHECKING:
    from typing import NoReturn

INTERRUPTED = 130  # as shells report it


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


def script() -> NoReturn:
    """The console script: as `python -m validator`, but `meshproof bench …` is the harness (a path is `./bench`)."""
    if sys.argv[1:2] != ["bench"]:
        main()
    del sys.argv[1]
    from bench.__main__ import script as harness

    sys.exit(harness())


def _status() -> int:
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
            signal.signal(signal.SIGINT, _end)
        from validator.cli import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


# CPython takes the frames of functions from chunks of 16 KB and gives a chunk back when its first frame returns: a
# loop deep in a recursion that calls across the end of a chunk maps and unmaps memory in each round. A function that
# seems to want a large stack gets one large chunk, for all that is called below it; what is not used is never touched.
_status.__code__ = _status.__code__.replace(co_stacksize=1 << 17)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
