"""Reads a file that somebody else put there: a regular one, or nothing."""

from __future__ import annotations

import errno
import os
import stat


class NotRegular(OSError):
    """A pipe, a socket or a device: reading it may block, never end, or do something."""


def regular(path: str, limit: int = -1) -> bytes:
    """The bytes of a regular file, at most `limit` of them. Raises OSError; `NotRegular` for a pipe or a device.

    It is looked at before it is opened (opening a device may do something) and again when it is open (it may have
    been exchanged); opened so that a pipe does not wait for its writer.
    """
    _check(path, os.stat(path).st_mode)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        _check(path, os.fstat(descriptor).st_mode)
        return file.read(limit)


def _check(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder `open` says itself what it is
        raise NotRegular(errno.EINVAL, "not a regular file", path)
