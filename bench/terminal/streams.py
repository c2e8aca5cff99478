"""What commands print, without what a terminal would obey. Texts come from logs, results and paths of others."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

_UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BAR = re.compile("(\r(?:\x1b\\[K)?)")
"""With what a bar of progress draws its line anew."""


def visible(text: str) -> str:
    """The text with control characters, changes of direction and halves of characters written as `\\x1b`; tabs and
    line ends stay."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Visible:
    """A stream that shows such characters and, as escapes, those that its encoding lacks."""

    def __init__(self, stream: TextIO, bars: bool = False) -> None:
        self._stream, self._bars = stream, bars

    def write(self, text: str) -> int:
        parts = _BAR.split(text) if self._bars else [text]
        shown = "".join(part if self._bars and _BAR.fullmatch(part) else visible(part) for part in parts)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable() -> Iterator[None]:
    """Show them on both standard streams. Bars of progress go back to the start of their line: standard error may."""
    with ExitStack() as stack:
        if sys.stdout is not None:
            stack.enter_context(redirect_stdout(Visible(sys.stdout)))
        if sys.stderr is not None:
            stack.enter_context(redirect_stderr(Visible(sys.stderr, bars=True)))
        yield
