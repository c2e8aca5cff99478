"""Tables that fit a terminal: what is the same in all rows stands in one line, and the least important columns go."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from bench.terminal.text import grid

GAP = 2
"""Spaces between columns."""
LEAST = 2
"""Columns of values that stay before those go by which rows are told apart."""


def screen(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    order: Sequence[str],
    wide: bool = False,
    style: str = "simple",
    telling: Sequence[str] = (),
) -> str:
    """A table for standard output: whole for a file, a pipe and with `wide`; for a terminal as wide as that, without
    what is the same in all rows, and without the last columns of `order`, which names the most important first, but
    with those of `telling` that tell rows apart."""
    width = None if wide or style != "simple" else terminal()
    return grid(rows, headers, style) if width is None else fitted(rows, headers, order, width, telling)


def terminal() -> int | None:
    """The columns of standard output where it is a terminal, or that COLUMNS asks for, else None."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def fitted(
    rows: Sequence[Sequence[str]], headers: Sequence[str], order: Sequence[str], width: int, telling: Sequence[str] = ()
) -> str:
    """The table in at most `width` columns of text, as far as the first column of `order` leaves room for others; below
    it lines on what it leaves out."""
    same = [n for n, _ in enumerate(headers) if len(rows) > 1 and len({row[n] for row in rows}) == 1]
    same = [n for n in same if headers[n] != order[0]]
    kept = [n for n, _ in enumerate(headers) if n not in same]
    ranks = {name: rank for rank, name in enumerate(order)}
    names = [n for n in kept if headers[n] in telling]
    dropped: list[int] = []
    while len(kept) > 1 and _width(rows, headers, kept) > width:
        by_rank = sorted(kept, key=lambda n: (ranks.get(headers[n], len(ranks)), n))
        needed = [n for n in kept if n in names and _tells(rows, [m for m in kept if m in names], n)]
        values = sum(n not in names for n in kept)
        spare = [n for n in by_rank if n not in needed and (n in names or values > LEAST)]
        last = (spare or by_rank)[-1]
        kept.remove(last)
        dropped.append(last)
    told = [f"{headers[n]} {rows[0][n]}" for n in same if rows[0][n] != "-"]
    notes = [_wrapped(f"in all rows: {', '.join(told)}", width)] * bool(told)
    notes += [_wrapped(f"--wide shows {', '.join(headers[n] for n in sorted(dropped))} too", width)] * bool(dropped)
    return "\n".join([grid([[row[n] for n in kept] for row in rows], [headers[n] for n in kept]), *notes])


def _tells(rows: Sequence[Sequence[str]], columns: Sequence[int], column: int) -> bool:
    """Whether rows that these columns tell apart would be alike without one of them."""
    rest = [n for n in columns if n != column]
    return len({tuple(row[n] for n in rest) for row in rows}) < len({tuple(row[n] for n in columns) for row in rows})


def _width(rows: Sequence[Sequence[str]], headers: Sequence[str], columns: Sequence[int]) -> int:
    cells = [max(len(headers[n]), *(len(row[n]) for row in rows)) for n in columns]
    return sum(cells) + GAP * (len(cells) - 1)


def _wrapped(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, max(width, 20), subsequent_indent="  "))
