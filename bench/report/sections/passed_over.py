"""Files that could not be used."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.rows import Collection
from bench.report.sections import Table

PLACE, TITLE = 110, "Passed over"


def content(found: Collection) -> list[str]:
    return found.passed_over


def table(notes: Sequence[str]) -> Table:
    return Table(("file",), [[note] for note in notes])


def text(notes: Sequence[str], style: str, wide: bool) -> str:
    """Said on standard error instead."""
    return ""
