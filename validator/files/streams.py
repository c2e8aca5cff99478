"""The standard streams, each of which may be closed, full, or without anybody at its other end."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from validator.errors import UsageError


def prepare() -> None:
    """Make the three streams usable, before anything is opened.

    A file opened while one of the first three descriptors is closed takes its number, and then what is printed
    goes into that file. `sys.stdout` and `sys.stdin` stay None where they were closed: that is for who needs them
    to say. What is said on a closed standard error is lost, as whoever closed it wants.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file name may hold anything


def is_terminal() -> bool:
    """Whether standard output goes to a person's terminal, which obeys what is printed."""
    return sys.stdout is not None and sys.stdout.isatty()


def say(text: str) -> None:
    """One line for a person on standard error: `meshproof: …`, whatever the text holds."""
    from validator.output import clean

    try:
        print(f"meshproof: {clean(' '.join(text.split()))}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _give_up(sys.stderr, 2)  # there is nobody left to tell


def write(text: str, path: str | None) -> int:
    """Write a report to a file, or to standard output; 0. Raises UsageError, and BrokenPipeError."""
    if path is None:
        if sys.stdout is None:
            raise UsageError("standard output is closed; --output FILE writes a file")
        try:
            sys.stdout.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _full(error) from error
        flush()
        return 0
    from validator.files import writing

    try:
        writing.replace(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    return 0


def flush() -> None:
    """Let standard output go out. Raises UsageError where it cannot, and BrokenPipeError."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _full(error) from error


def lose_reader() -> None:
    """What is still buffered for a reader that has gone must have somewhere to go."""
    _give_up(sys.stdout, 1)


def _full(error: OSError) -> UsageError:
    _give_up(sys.stdout, 1)
    return UsageError(f"standard output cannot be written: {error.strerror}")


def _give_up(stream: TextIO | None, number: int) -> None:
    """Send what is left of a stream nowhere, so that the end of the process does not fail on it."""
    try:
        if stream is None or stream.fileno() != number:
            return  # not the process's own: a test's
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    except (OSError, ValueError):
        return


def read() -> bytes:
    """All of standard input. Raises UsageError."""
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    try:
        data: bytes = sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from error
    return data
