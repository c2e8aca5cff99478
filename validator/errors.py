"""The one exception that ends a run with a message instead of a traceback."""

from __future__ import annotations

import os

_MANY = 1_000  # a program with thousands of options, each misspelt, would be compared with itself for hours


class UsageError(Exception):
    """Wrong usage or configuration. Its text is one line for a person; the exit status is 2."""


def nearest(word: str, choices: list[str], cutoff: float = 0.6) -> str:
    """A hint ` (did you mean 'x'?)`, or nothing where no choice is close, or where there are too many to compare."""
    found = close(word, choices, 1, cutoff)
    return f" (did you mean {found[0]!r}?)" if found else ""


def close(word: str, choices: list[str], count: int, cutoff: float = 0.6) -> list[str]:
    """The choices that are spelled like a word, the nearest first; none where there are too many to compare."""
    import difflib

    if len(choices) > _MANY:
        return []
    lowered = {choice.lower(): choice for choice in choices}
    return [lowered[each] for each in difflib.get_close_matches(word.lower(), list(lowered), count, cutoff)]


def told(error: BaseException) -> str:
    """An exception in one line, with the innermost place it came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if trace is None or isinstance(error, SyntaxError):  # which says itself where it is
        return text
    return f"{text} ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
