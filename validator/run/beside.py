"""Runs functions in forked processes beside this one: files, and a part of the project rules, on the other cores.

*No child outlives its parent*, however that ends. Each holds the reading end of a pipe of which only the parent
holds the writing end, and a thread of the child waits for the end of that pipe: it comes when the parent exits, is
killed, or cuts the line. Linux could signal the child by itself (PR_SET_PDEATHSIG), but only Linux, only when the
*thread* that forked ends, and not if the parent was gone before the child asked for it.

*An interrupt (Ctrl-C) is the parent's business*: it goes to every process of the terminal, and a child would answer
with a traceback of its own. Children are forked with it blocked.
"""

from __future__ import annotations

import _thread
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from validator.errors import UsageError

T = TypeVar("T")


class Lifeline:
    """The pipe by whose end children learn that they are no longer wanted."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()

    def hold(self) -> None:
        """In a child, right after the fork: end with the parent."""
        os.close(self._writing)
        _thread.start_new_thread(_end_with, (self._reading,))

    def cut(self) -> None:
        """In the parent: end the children that are left. May be called again."""
        if self._writing >= 0:
            os.close(self._reading)
            os.close(self._writing)
            self._writing = -1


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)  # nothing is ever written: this returns when there is nobody left who could
    os._exit(1)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Interrupts wait meanwhile, where the system can make them; of a child forked meanwhile they are kept for good."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Shared(Generic[T]):
    """Items that this process takes from the front and a child from the back, each as it gets to them.

    A pipe holds one byte for each item, and whoever reads a byte may take the next one: when it is empty, all are
    taken, and none twice.
    """

    def __init__(self, items: Sequence[T]) -> None:
        self._items = items
        self._taken = 0
        self._bytes, writing = os.pipe()
        os.write(writing, bytes(len(items)))
        os.close(writing)

    def front(self) -> Iterator[T]:
        for each in self._items:
            if not os.read(self._bytes, 1):
                return
            self._taken += 1
            yield each

    def back(self) -> Iterator[T]:
        for each in reversed(self._items):
            if not os.read(self._bytes, 1):
                return
            yield each

    def rest(self) -> Sequence[T]:
        """What was not taken from the front."""
        return self._items[self._taken :]

    def close(self) -> None:
        os.close(self._bytes)


@contextmanager
def beside(function: Callable[[], T], instead: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start `function` in a child process; what is given waits for its result. The child ends with the block.

    The child inherits everything that has been computed so far. Whatever goes wrong with it, short of a
    UsageError, `instead` is run here, so that the answer never depends on the child.
    """
    line = Lifeline()
    reading, writing = os.pipe()
    with uninterrupted():
        child = os.fork()
        if child == 0:
            os.close(reading)
            line.hold()
            os._exit(_answer(function, writing))
    os.close(writing)
    status: int | None = None

    def result() -> T:
        nonlocal status
        with os.fdopen(os.dup(reading), "rb") as pipe:
            data = pipe.read()
        status = os.waitpid(child, 0)[1]
        if status != 0:
            return instead()
        kind, value = pickle.loads(data)
        if kind == "usage":
            raise UsageError(value)
        found: T = value
        return found

    try:
        yield result
    finally:
        os.close(reading)
        line.cut()
        if status is None:
            os.kill(child, 9)
            os.waitpid(child, 0)


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
