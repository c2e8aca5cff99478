"""Runs a function in a forked process beside this one: half of the project rules on the second core."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import TypeVar

from validator.errors import UsageError

T = TypeVar("T")


def beside(function: Callable[[], T]) -> Callable[[], T]:
    """Start `function` in a child process; what is returned waits for its result.

    The child inherits everything that has been computed so far. Whatever goes wrong with it, short of a
    UsageError, the function is run here instead, so that the answer never depends on the child.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_answer(function, writing))
    os.close(writing)

    def result() -> T:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(child, 0)
        if status != 0:
            return function()
        kind, value = pickle.loads(data)
        if kind == "usage":
            raise UsageError(value)
        found: T = value
        return found

    return result


def _answer(function: Callable[[], object], writing: int) -> int:
    """The child's side: its exit status."""
    try:
        try:
            answer = ("result", function())
        except UsageError as error:
            answer = ("usage", str(error))
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe, pickle.HIGHEST_PROTOCOL)
    except BaseException:  # the parent does the work again, and meets the cause
        return 1
    return 0
