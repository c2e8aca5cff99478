"""What LibCST must not be given: its parser recurses in native code, and a stack that overflows ends the process.

Seen with LibCST 1.9.0 and a stack of 8 MB: 2,000 nested brackets, 6,000 attributes or lambdas in a row and
20,000 `elif` end it with a segmentation fault; chains of 3,000 calls take minutes. Python itself reads no more
than 200 nested brackets.
"""

from __future__ import annotations

_BRACKETS = 200
_LINE = 5_000  # characters: what nests without brackets stands on one line
_BRANCHES = 1_000
_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def too_many_brackets(text: str) -> bool:
    """Whether brackets nest deeper than any Python reads (those in strings and comments are counted too)."""
    if sum(text.count(each) for each in "([{") <= _BRACKETS:
        return False
    depth = 0
    for char in text:
        if step := _DEPTH.get(char):
            depth = max(depth + step, 0)
            if depth > _BRACKETS:
                return True
    return False


def too_deep(text: str) -> bool:
    """Whether LibCST might not survive this text."""
    return (
        too_many_brackets(text) or text.count("elif") > _BRANCHES or any(len(line) > _LINE for line in text.split("\n"))
    )
