"""Tables and lines for people, of texts that come from files of others: no cell breaks out of its row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MARKDOWN = "github"
_MARKS = ("\\", "|", "`", "<", "[", "*")


def plain(text: str, style: str = "simple") -> str:
    """One line; in Markdown (`github`) without borders of cells, tags, links and emphasis."""
    line = " ".join(text.split())
    if style == MARKDOWN:
        for mark in _MARKS:
            line = line.replace(mark, f"\\{mark}")
    return line


def grid(rows: Iterable[Sequence[str]], headers: Sequence[str], style: str = "simple") -> str:
    """Rows of cells for a terminal (`simple`) or Markdown (`github`), as they are written: numbers stay as given."""
    from tabulate import tabulate

    cells = [[plain(cell, style) for cell in row] for row in rows]
    return tabulate(cells, headers=headers, tablefmt=style, disable_numparse=True)
