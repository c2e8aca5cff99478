"""The table of results: one list of columns, shown as text, Markdown, CSV, JSON and HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.report.predicted import predicted
from bench.report.rows import Row
from bench.terminal.fitting import screen
from bench.terminal.text import plain, valid_json

Value = float | int | str | None


@dataclass(frozen=True)
class Column:
    """`value` is a plain number in base units (or a text), for CSV, JSON and sorting; `show` makes it readable."""

    key: str
    title: str
    value: Callable[[Row], Value]
    show: Callable[[Any], str] = str

    def text(self, row: Row) -> str:
        value = self.value(row)
        return "-" if value is None else self.show(value)


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:.1f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f}"


COLUMNS = (
    Column("variant", "backend", lambda r: r.variant),
    Column("model", "model", lambda r: r.model),
    Column("gpus", "GPUs", lambda r: r.configuration.num_gpus),
    Column("layers", "layers", lambda r: r.layers),
    Column("setting", "attention, compile, packing", lambda r: r.setting),
    Column("seq_len", "seq len", lambda r: r.configuration.seq_len if not r.configuration.inputs else None),
    Column("more", "more", lambda r: r.more or None),
    Column("status", "status", lambda r: r.status),
    Column("forward", "forward ms", lambda r: r.seconds.get("forward"), _milliseconds),
    Column("backward", "backward ms", lambda r: r.seconds.get("backward"), _milliseconds),
    Column("optimizer", "optimizer ms", lambda r: r.seconds.get("optimizer"), _milliseconds),
    Column("tokens", "tokens/s/GPU", lambda r: r.tokens, _count),
    Column("with_optimizer", "with optimizer", lambda r: r.with_optimizer, _count),
    Column("flops", "TFLOP/s", lambda r: r.flops, lambda v: f"{v / 1e12:.3g}"),
    Column("peak_share", "of peak", lambda r: r.peak_share, _share),
    Column("network", "network", lambda r: r.network, _share),
    Column("memory", "peak GB", lambda r: r.memory, _gigabytes),
    Column("predicted", "predicted GB", predicted, _gigabytes),
    Column("first_loss", "first loss", lambda r: r.losses[0] if r.losses else None, lambda v: f"{v:.4f}"),
    Column("last_loss", "last loss", lambda r: r.losses[-1] if r.losses else None, lambda v: f"{v:.4f}"),
    Column("loss_steps", "after steps", lambda r: len(r.losses) or None),
    Column("processes", "processes", lambda r: r.processes or None),
)


ORDER = (
    "backend", "status", "tokens/s/GPU", "peak GB", "GPUs", "layers", "attention, compile, packing", "model", "more",
    "last loss", "backward ms", "forward ms", "optimizer ms", "TFLOP/s", "of peak", "predicted GB", "seq len",
)  # fmt: skip
"""Titles, the most important first."""


def table(rows: Sequence[Row], style: str = "simple", wide: bool = True) -> str:
    """Rows for a terminal (`simple`) or Markdown (`github`); columns that no row fills are left out."""
    shown = [column for column in COLUMNS if any(column.value(row) is not None for row in rows)]
    cells = [[column.text(row) for column in shown] for row in rows]
    return screen(cells, [column.title for column in shown], ORDER, wide, style)


def problems(rows: Sequence[Row], style: str = "simple") -> list[str]:
    """One line per row that did not end well, with what to change."""
    found = []
    for row in rows:
        if row.status != "ok":
            hint = f" ({row.hint})" if row.hint else ""
            found.append(plain(f"{row.label}: {row.status}: {row.message}{hint}", style))
    return found


def as_csv(rows: Sequence[Row]) -> str:
    """Plain numbers in seconds, bytes and tokens per second; empty where nothing was measured."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", *(column.key for column in COLUMNS), "message"])
    for row in rows:
        values = [column.value(row) for column in COLUMNS]
        writer.writerow([_no_formula(value) for value in (row.label, *values, row.message)])
    return out.getvalue()


def _no_formula(value: Value) -> Value:
    """Spreadsheets run cells that begin like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def as_json(rows: Sequence[Row], more: dict[str, Any]) -> str:
    """`{"version": 1, "rows": […], …}`; seconds, bytes, tokens per second; null where nothing was measured."""
    listed = [
        {"label": row.label, **{column.key: column.value(row) for column in COLUMNS}, "message": row.message}
        for row in rows
    ]
    return valid_json({"version": 1, "rows": listed, **more}, indent=1, ensure_ascii=False)
