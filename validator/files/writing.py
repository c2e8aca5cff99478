"""Writes a file as a whole or not at all; its mode and a link that names it stay."""

from __future__ import annotations

import os
import stat
import tempfile

from validator.run.beside import uninterrupted


def replace(path: str, data: bytes) -> None:
    """Replace the content of `path` atomically. Raises OSError; then the old content is intact.

    Interrupts wait meanwhile, so that no temporary file is left beside it.
    """
    target = os.path.realpath(path)
    if _stream(path):
        with open(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
            file.write(data)
        return
    with uninterrupted():
        descriptor, temporary = tempfile.mkstemp(prefix=".meshproof-", dir=os.path.dirname(target))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.chmod(temporary, _mode(target))
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


def _stream(path: str) -> bool:
    """Whether a path names a pipe, a device, or an open file such as /dev/stdout: nothing to replace."""
    if os.path.abspath(path).startswith(("/dev/", "/proc/")) and os.path.exists(path):
        return not os.path.abspath(path).startswith("/dev/shm/")
    return os.path.exists(path) and not os.path.isfile(path)


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
