"""The report as one HTML file: no network, no other file, everything from results escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.metrics import Metric
from bench.report import sections
from bench.report.columns import columns, heading
from bench.report.matrices import HEADINGS
from bench.report.rows import GOOD, Collection, Row, rank_word
from bench.results.measured import PHASES
from bench.terminal.text import NUMBER, valid_json

HERE = Path(__file__).parent
FILTERED = ("variant", "model", "gpus", "layers", "setting", "seq_len", "status")
"""Columns by whose values the table of rows can be filtered, where they have several."""
MOST_STEPS = 60
"""Steps of a row that are listed beside its log."""


def render(found: Collection, title: str) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([HERE, *sections.folders()]), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.jinja").render(
        title=title, sections=sections.of(found), columns=filled, sort_key=sort_key, filters=filters, settings=settings,
        heading=heading, rank=rank_word(found.rows),
        steps=steps, good=GOOD, is_number=NUMBER.fullmatch, embedded=embedded, matrix_headings=HEADINGS,
        library=_own("vendor/chart.umd.min.js"), script=_own("page.js"), style=_own("page.css"),
    )  # fmt: skip


def filled(rows: Sequence[Row]) -> list[Metric]:
    """The columns that any row fills."""
    return [column for column in columns() if any(column.value(row) is not None for row in rows)]


def _own(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def embedded(value: Any) -> str:
    """JSON that no text in it can end the script element with."""
    text = valid_json(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def filters(rows: Sequence[Row]) -> list[tuple[str, str, list[str]]]:
    """Key, title and the values of each column that rows can be filtered by."""
    found = []
    for column in columns():
        values = sorted({column.text(row) for row in rows}, key=lambda text: (len(text), text))
        if column.key in FILTERED and len(values) > 1:
            found.append((column.key, heading(column, rows), values))
    return found


def settings(row: Row) -> list[tuple[str, str, bool]]:
    """Every setting with its value, and whether that is another than the default."""
    usual = asdict(Configuration())
    return [(name, str(value), value != usual[name]) for name, value in asdict(row.configuration).items()]


def steps(row: Row) -> list[str]:
    """The measured steps of the first process, as the result keeps them: milliseconds by phase."""
    found = []
    for number, times in enumerate(row.steps[:MOST_STEPS]):
        shown = ", ".join(f"{phase} {times[phase] * 1e3:.2f}" for phase in PHASES if phase in times)
        found.append(f"step {number + 1}: {shown} ms")
    return found + [f"… {len(row.steps) - MOST_STEPS} more"] * (len(row.steps) > MOST_STEPS)


def sort_key(value: Any) -> str:
    """What a cell sorts by: the plain number, or the text."""
    return "" if value is None else repr(value) if isinstance(value, (int, float)) else str(value)
