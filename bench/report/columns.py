"""The table of results: one list of columns, shown as text, Markdown, CSV, JSON and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from bench.metrics import Metric as Column
from bench.metrics import Value, every
from bench.report.rows import Row, rank_word
from bench.terminal.fitting import screen
from bench.terminal.text import valid_json

LABEL = Column("label", "configuration", lambda row: row.label, place=0, rank=0)
STATUS = Column("status", "status", lambda row: row.status, place=8, rank=0.5)
MODEL = Column("model", "model", lambda row: row.model, place=2, rank=3.3)
LAYERS = Column("layers", "layers", lambda row: row.layers, place=4, rank=3.1)
SETTINGS = (
    Column("variant", "backend", lambda row: row.variant, place=1, rank=0), MODEL,
    Column("gpus", "GPUs", lambda row: row.configuration.num_gpus, place=3, rank=3), LAYERS,
    Column("setting", "attention, compile, packing", lambda row: row.setting, place=5, rank=3.2),
    Column(
        "seq_len", "seq len", lambda row: row.configuration.seq_len if not row.configuration.inputs else None, place=6,
        rank=11.5,
    ),
    Column("more", "more", lambda row: row.more or None, place=7, rank=3.4),
)  # fmt: skip
"""What was run, for rows of many sweeps."""


def columns() -> tuple[Column, ...]:
    """Every column of a report."""
    return (*SETTINGS, STATUS, *every())


def table(
    rows: Sequence[Row], style: str = "simple", wide: bool = True, first: Callable[[], Sequence[Column]] = columns
) -> str:
    """Rows for a terminal (`simple`) or Markdown (`github`); columns that no row fills are left out."""
    shown = [column for column in first() if any(column.value(row) is not None for row in rows)]
    cells = [[column.text(row) for column in shown] for row in rows]
    order = [heading(column, rows) for column in sorted(shown, key=lambda column: column.rank)]
    telling = [heading(column, rows) for column in SETTINGS]
    return screen(cells, [heading(column, rows) for column in shown], order, wide, style, telling)


def heading(column: Column, rows: Sequence[Row]) -> str:
    """Its title over these rows, of which some may not be of GPUs."""
    return column.title.replace("GPU", rank_word(rows))


def of_a_sweep() -> tuple[Column, ...]:
    """The columns at the end of a run, whose labels say every setting."""
    return (LABEL, MODEL, LAYERS, STATUS, *every())


def problem(row: Row) -> str:
    """A line on a row that did not end well, with what to change."""
    return f"{row.label}: {row.status}: {row.message}{f' ({row.hint})' * bool(row.hint)}"


def as_csv(rows: Sequence[Row]) -> str:
    """Plain numbers in seconds, bytes and tokens per second; empty where nothing was measured."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", *(column.key for column in columns()), "message"])
    for row in rows:
        values = [column.value(row) for column in columns()]
        writer.writerow([_no_formula(value) for value in (row.label, *values, row.message)])
    return out.getvalue()


def _no_formula(value: Value) -> Value:
    """Spreadsheets run cells that begin like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def as_json(rows: Sequence[Row], more: dict[str, Any]) -> str:
    """`{"version": 1, "rows": […], …}`; seconds, bytes, tokens per second; null where nothing was measured."""
    listed = [
        {"label": row.label, **{column.key: column.value(row) for column in columns()}, "message": row.message}
        for row in rows
    ]
    return valid_json({"version": 1, "rows": listed, **more}, indent=1, ensure_ascii=False)
