"""Backends against settings: what works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.report.rows import GOOD, Collection, Row
from bench.results.identity import processor

PLACE, TITLE, TEMPLATE = 70, "What works", "grid.html.jinja"

REFUSED = ("unsupported", "skipped", "interrupted")
"""Statuses of rows that did not run to an end, by which they say nothing of other machines."""


@dataclass(frozen=True)
class Cell:
    """One field of the compatibility grid: the worst status of its rows, and where its log is shown."""

    status: str
    title: str
    anchor: str


def content(found: Collection) -> dict[str, Any] | None:
    """Backends against settings. Several rows in one field show the worst of them; but what was refused elsewhere says
    nothing where another machine or device has measured it."""
    rows = found.rows
    measured: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for row in rows:
        if row.status == "ok":
            measured.setdefault((row.variant, row.setting), set()).add(_place(row))
    variants = list(dict.fromkeys(row.variant for row in rows))
    settings = sorted(dict.fromkeys(row.setting for row in rows))
    cells: dict[tuple[str, str], Cell] = {}
    for row in rows:
        key = (row.variant, row.setting)
        if row.status in REFUSED and _place(row) not in measured.get(key, {_place(row)}):
            continue
        old = cells.get(key)
        if old is None or _badness(row.status) > _badness(old.status):
            text = row.message or f"{row.label}: {row.status}"
            cells[key] = Cell(row.status, text, f"log-{row.number}")
    return {"variants": variants, "settings": settings, "cells": cells} if rows else None


def _place(row: Row) -> tuple[str, str]:
    """The machine and the device on which a row ran, or was refused."""
    return processor(row.environment), row.configuration.device


def _badness(status: str) -> int:
    return GOOD.index(status) if status in GOOD else len(GOOD)
