"""Pickles of others, of which nothing is executed: a pickle is a program, and what it may ask for is named here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

LONGEST_NAME = 120

# The unpickler written in C makes room for every number that a stream gives to an object: eight bytes of a file take
# gigabytes of memory. The one written in Python keeps those in a dictionary.
_Base: Any = pickle._Unpickler


class RestrictedUnpickler(_Base):
    """Reads plain values, and what `allowed` names by module and name; everything else raises
    `pickle.UnpicklingError` before anything of it runs."""

    def __init__(self, file: BinaryIO, allowed: Mapping[tuple[str, str], Callable[..., Any]] | None = None) -> None:
        super().__init__(file)
        self.allowed = allowed or {}

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a class or function of the stream."""
        try:
            return self.allowed[(module, name)]
        except KeyError:
            asked = " ".join(f"{module}.{name}".split())
            asked = asked if len(asked) <= LONGEST_NAME else f"{asked[:LONGEST_NAME]}…"
            raise pickle.UnpicklingError(f"it asks for {asked}, which is not allowed") from None

    def persistent_load(self, pid: Any) -> Any:
        """Refused: an object outside of the stream."""
        raise pickle.UnpicklingError("it refers to objects outside the file")


def one_line(error: BaseException) -> str:
    """The first line of what an error says, with the next where it ends in a colon; its type where it says nothing."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return first if len(first) <= 2 * LONGEST_NAME else f"{first[: 2 * LONGEST_NAME]}…"
