"""Tables and lines for people, of texts that come from files of others: no cell breaks out of its row. And JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

MARKDOWN = "github"
NUMBER = re.compile(r"[-+]?[\d.,]+(?:e[-+]?\d+)?(?:%| ms| GB)?(?: ±[\d.]+%)?|-")
"""A number as tables have it, with its spread where it has one."""
_MARKS = ("\\", "|", "`", "<", "[", "*")


def plain(text: str, style: str = "simple") -> str:
    """One line; in Markdown (`github`) without borders of cells, tags, links and emphasis."""
    line = " ".join(text.split())
    if style == MARKDOWN:
        for mark in _MARKS:
            line = line.replace(mark, f"\\{mark}")
    return line


def grid(rows: Iterable[Sequence[str]], headers: Sequence[str], style: str = "simple") -> str:
    """Rows of cells for a terminal (`simple`) or Markdown (`github`), as they are written: numbers stay as given. In
    a terminal columns of numbers end at one place."""
    import tabulate

    cells = [[plain(cell, style) for cell in row] for row in rows]
    columns = [list(filter(None, column)) for column in zip(*cells, strict=True)]
    numbers = [style == "simple" and bool(column) and all(map(NUMBER.fullmatch, column)) for column in columns]
    align = ["right" if number else "left" for number in numbers] or None
    padding = tabulate.MIN_PADDING  # of the whole process: other tables must not change with this one
    tabulate.MIN_PADDING = 0  # it would leave two columns beside each heading
    try:
        return tabulate.tabulate(cells, headers=headers, tablefmt=style, disable_numparse=True, colalign=align)
    finally:
        tabulate.MIN_PADDING = padding


def counted(noun: str, numbers: Iterable[int], shown: int | None = None) -> str:
    """Numbers behind what they count, stretches as such: `rank 3`, `steps 0-2, 5`; the first `shown` stretches."""
    found = sorted(numbers)
    stretches: list[list[int]] = []
    for number in found:
        if stretches and number == stretches[-1][-1] + 1:
            stretches[-1] = [stretches[-1][0], number]
        else:
            stretches.append([number])
    more = len(stretches) - len(stretches[:shown])
    text = ", ".join("-".join(map(str, each)) for each in stretches[:shown])
    return f"{noun}{'s' * (len(found) > 1)} {text}" + f" and {more} more ranges" * bool(more)


def valid_json(value: Any, **options: Any) -> str:
    """JSON as its readers know it: infinities and what is no number, which it lacks, are null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
