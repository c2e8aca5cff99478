"""The one exception that ends a run with a message instead of a traceback."""

from __future__ import annotations


class UsageError(Exception):
    """Wrong usage or configuration. Its text is one line for a person; the exit status is 2."""


def nearest(word: str, choices: list[str]) -> str:
    """A hint ` (did you mean 'x'?)`, or nothing where no choice is close."""
    import difflib

    lowered = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(lowered), 1, 0.6)
    return f" (did you mean {lowered[close[0]]!r}?)" if close else ""
