"""The report as one HTML file: no network, no other file, everything from results escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.metrics.times import PHASES
from bench.report.claims import answers
from bench.report.columns import columns
from bench.report.glance import works
from bench.report.matrices import HEADINGS
from bench.report.predicted import memory_errors
from bench.report.rows import Collection, Row
from bench.report.scaling import TARGET, fits
from bench.report.series import chart_data
from bench.terminal.text import valid_json


@dataclass(frozen=True)
class Cell:
    """One field of the compatibility grid: the worst status of its rows, and where its log is shown."""

    status: str
    title: str
    anchor: str


def render(found: Collection, title: str) -> str:
    """The page as text."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.get_template("page.html.jinja")
    shown = [column for column in columns() if any(column.value(row) is not None for row in found.rows)]
    done = works(found.rows)
    data = chart_data(found, done)
    return template.render(
        title=title, rows=found.rows, columns=shown, sort_key=sort_key, notes=found.passed_over, target=TARGET,
        works=done, ident=id, numbers={id(row): number for number, row in enumerate(found.rows)},
        filters=filters(found.rows),
        library=LIBRARY.read_text(encoding="utf-8") if any(data.values()) else "", data=embedded(data),
        shown={name: [group["name"] for group in groups] for name, groups in data.items()}, script=_own("page.js"),
        style=_own("page.css"), fits=fits(found.rows), answers=answers(found.rows), settings=settings, steps=steps,
        memory=memory_errors(found.rows), grid=grid(found.rows), logs=logs(found.rows),
        environments=environments(found.rows), good=GOOD, matrices=found.matrices,
        matrix_headings=HEADINGS,
    )  # fmt: skip


GOOD = ("ok", "unsupported", "interrupted")
"""Statuses from best to less good; all others are failures."""


LIBRARY = Path(__file__).parent / "vendor" / "chart.umd.min.js"
FILTERED = ("variant", "model", "gpus", "layers", "setting", "seq_len", "status")
"""Columns by whose values the table of rows can be filtered, where they have several."""
MOST_STEPS = 60
"""Steps of a row that are listed beside its log."""


def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


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
            found.append((column.key, column.title, values))
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


def grid(rows: Sequence[Row]) -> dict[str, Any]:
    """Backends against settings. Several rows in one field show the worst of them."""
    variants = list(dict.fromkeys(row.variant for row in rows))
    settings = sorted(dict.fromkeys(row.setting for row in rows))
    cells: dict[tuple[str, str], Cell] = {}
    for number, row in enumerate(rows):
        key = (row.variant, row.setting)
        old = cells.get(key)
        if old is None or _badness(row.status) > _badness(old.status):
            text = row.message or f"{row.label}: {row.status}"
            cells[key] = Cell(row.status, text, f"log-{number}")
    return {"variants": variants, "settings": settings, "cells": cells}


def _badness(status: str) -> int:
    return GOOD.index(status) if status in GOOD else len(GOOD)


def logs(rows: Sequence[Row]) -> list[tuple[str, Row, str]]:
    """Anchor, row, and the end of its log: what the grid's fields lead to."""
    return [(f"log-{number}", row, row.log_tail()) for number, row in enumerate(rows)]


def environments(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Each different environment once as JSON, with the commands that were run in it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        rest = {key: value for key, value in row.environment.items() if key != "command"}
        if not row.environment:
            continue
        commands = found.setdefault(json.dumps(_steady(rest), indent=1, sort_keys=True, ensure_ascii=False), [])
        command = str(row.environment.get("command", ""))
        if command and command not in commands:
            commands.append(command)
    return list(found.items())


def _steady(environment: dict[str, Any]) -> dict[str, Any]:
    """Without what a GPU shows at the moment: clocks, temperature and power differ from row to row."""
    moment = ("clocks", "temperature", "power")
    gpus = environment.get("gpus")
    if not isinstance(gpus, list):
        return environment
    kept = [
        {k: v for k, v in gpu.items() if not k.startswith(moment)} if isinstance(gpu, dict) else gpu for gpu in gpus
    ]
    return {**environment, "gpus": kept}
