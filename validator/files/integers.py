"""Whole numbers out of text that somebody else wrote."""

from __future__ import annotations

# One object for equal numbers, as `same(n, n)`: places in a project name the same lines millions of times.
same = dict[int, int]().setdefault

_LONGEST = 18  # digits: fits 64 bits; and `int` refuses texts of thousands of digits


def whole(text: str) -> int | None:
    """The number that plain digits stand for; None for other text, such as `²`, `٣`, `1_0`, ` 1` or a long one.

    `str.isdigit` holds for `²`, of which `int` makes nothing.
    """
    return int(text) if is_whole(text) else None


def is_whole(text: str) -> bool:
    """Whether `whole` makes a number of a text."""
    return len(text) <= _LONGEST and text.isascii() and text.isdecimal()
