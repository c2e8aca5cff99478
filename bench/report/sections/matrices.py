"""Compatibility matrices, a table each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report.matrices import HEADINGS, TOLD, Matrix
from bench.report.rows import Collection
from bench.terminal.text import grid

PLACE, TITLE, KEY, TEMPLATE = 90, "Compatibility", "matrices", "matrices.html.jinja"


def content(found: Collection) -> list[Matrix]:
    return found.matrices


def text(found: Sequence[Matrix], style: str, wide: bool) -> str:
    mark = "## " if style == "github" else ""
    parts = [
        [f"{mark}{TITLE}: {one.kind}", "", grid(one.table(), list(HEADINGS), style), "", *one.doubts] for one in found
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def data(found: Sequence[Matrix]) -> list[dict[str, Any]]:
    return [
        {
            "kind": one.kind, "command": one.command, "stack": one.stack,
            "cells": [{k: v for k, v in cell.items() if k in (*TOLD, "breaks")} for cell in one.cells],
        }
        for one in found
    ]  # fmt: skip
