"""`python -m bench report DIR …`: results as a table, Markdown, CSV, JSON or one HTML page, with plots.

DIR holds result directories, .jsonl files of results and training logs, at any depth.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.cli import OK, USAGE
from bench.compare.series import InputError
from bench.report.bmf import as_bmf
from bench.report.claims import answers
from bench.report.columns import as_csv, as_json, problems, table
from bench.report.matrices import HEADINGS
from bench.report.predicted import memory_errors
from bench.report.rows import Collection, collect
from bench.report.scaling import TARGET, Fit, fits
from bench.terminal.parsing import WIDE, Parser
from bench.terminal.text import grid

FORMATS = ("text", "markdown", "csv", "json", "html", "bmf")
SUFFIXES = {".md": "markdown", ".csv": "csv", ".json": "json", ".html": "html", ".txt": "text"}


def parser() -> argparse.ArgumentParser:
    """The flags of `bench report`."""
    p = Parser(prog="bench report", description=__doc__)
    p.add_argument("paths", nargs="+", type=Path, metavar="DIR", help="results, logs, a matrix: directories, files")
    p.add_argument("--format", choices=FORMATS, help="default: by the name of --output, else text")
    p.add_argument("--output", type=Path, metavar="FILE", help="write there and not to standard output")
    p.add_argument("--plots", type=Path, metavar="DIR", help="write each chart there as PNG and SVG")
    p.add_argument("--wide", action="store_true", help=WIDE)
    p.add_argument("--title", default="Results of bench")
    return p


def main(arguments: Sequence[str]) -> int:
    """Exit status 0; 2 for paths that cannot be read or written, with one line on stderr."""
    options = parser().parse_args(arguments)
    form = options.format or (SUFFIXES.get(options.output.suffix.lower(), "text") if options.output else "text")
    try:
        found = collect(options.paths)
        if options.plots:
            _save_plots(found, options.plots)
        text = _rendered(found, form, options).rstrip("\n")
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(f"{text}\n", encoding="utf-8")
    except InputError as error:
        print(f"bench report: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"bench report: {error.filename}: {error.strerror}", file=sys.stderr)
        return USAGE
    if options.output is None:
        print(text, flush=True)  # whatever stops this, such as a pager that was left, is no file's fault
    for note in found.passed_over:
        print(f"bench report: passed over: {note}", file=sys.stderr)
    return OK


def _save_plots(found: Collection, folder: Path) -> None:
    from bench.report.charts import charts

    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts(found):
        chart.save(folder)


def _rendered(found: Collection, form: str, options: argparse.Namespace) -> str:
    if form == "html":
        from bench.report.page import render

        return render(found, options.title)
    if form == "bmf":
        return as_bmf(found.rows)
    if form == "csv":
        return as_csv(found.rows)
    if form == "json":
        return as_json(found.rows, _more(found))
    style, whole = "github" if form == "markdown" else "simple", options.wide or options.output is not None
    return _text(found, style, options.title, whole)


def _text(found: Collection, style: str, title: str, wide: bool) -> str:
    """Table, failures, fits, memory and old statements, in this order; parts without content are left out."""
    mark = "## " if style == "github" else ""
    parts = [f"# {title}", ""] if style == "github" else []
    if found.rows:
        parts += [table(found.rows, style, wide), ""]
    bullet = "- " if style == "github" else ""
    parts += [f"{bullet}{line}" for line in problems(found.rows, style)]
    for heading, rows, headers in _sections(found):
        if rows:
            parts += ["", f"{mark}{heading}", "", grid(rows, headers, style)]
    return "\n".join(parts)


def _sections(found: Collection) -> list[tuple[str, list[list[str]], list[str]]]:
    memory = [
        [one.row.label, f"{one.measured / 1e9:.2f}", f"{one.predicted / 1e9:.2f}", f"{one.error:+.0%}"]
        for one in memory_errors(found.rows)
    ]
    old = [
        [a.claim.quantity, str(a.claim.layers), a.claim.said, a.seen, f"{a.within} of {a.rows}"]
        for a in answers(found.rows)
    ]
    curves = [
        [
            run.name,
            str(len(run.loss.values)),
            *(f"{run.loss.values[step]:.5g}" for step in (min(run.loss.values), max(run.loss.values))),
        ]
        for run in found.curves
        if run.loss
    ]
    crossed = [(f"Compatibility: {one.kind}", one.table(), list(HEADINGS)) for one in found.matrices]
    return [
        *crossed,
        ("Training runs", curves, ["run", "steps", "first loss", "last loss"]),
        ("Scaling with layers: cost = head + per layer × layers", [_fit_row(fit) for fit in fits(found.rows)],
         ["setting", "quantity", "depths", "head", "per layer", f"{TARGET} layers", "deeper: fit, measured, error"]),
        ("Memory, measured and predicted", memory, ["row", "measured GB", "predicted GB", "error"]),
        ("Old statements about this shape", old, ["quantity", "layers", "said", "seen", "rows that agree"]),
    ]  # fmt: skip


def _fit_row(fit: Fit) -> list[str]:
    scale = fit.quantity.scale
    checks = [f"{c.layers}: {c.predicted * scale:.1f}, {c.measured * scale:.1f}, {c.error:+.0%}" for c in fit.checks]
    return [
        fit.name, f"{fit.quantity.name}, {fit.quantity.unit}", ", ".join(map(str, fit.layers)),
        f"{fit.head * scale:.2f}", f"{fit.per_layer * scale:.3f}",
        f"{fit.at(TARGET) * scale:.1f}" if fit.sensible else "-", "; ".join(checks),
    ]  # fmt: skip


def _more(found: Collection) -> dict[str, Any]:
    """What the other formats show besides the rows, as plain values."""
    return {
        "scaling": [
            {
                "setting": fit.name, "quantity": fit.quantity.name, "layers": list(fit.layers), "head": fit.head,
                "per_layer": fit.per_layer,
                "checks": [
                    {"layers": c.layers, "predicted": c.predicted, "measured": c.measured, "error": c.error}
                    for c in fit.checks
                ],
            }
            for fit in fits(found.rows)
        ],
        "memory": [
            {"label": one.row.label, "measured": one.measured, "predicted": one.predicted, "error": one.error}
            for one in memory_errors(found.rows)
        ],
        "training": [
            {"run": run.name, "losses": {step: _finite(loss) for step, loss in sorted(run.loss.values.items())}}
            for run in found.curves
            if run.loss
        ],
        "matrices": [
            {
                "kind": one.kind, "command": one.command, "stack": one.stack,
                "cells": [{k: v for k, v in asdict(cell).items() if k != "log"} for cell in one.cells],
            }
            for one in found.matrices
        ],
        "statements": [asdict(answer) for answer in answers(found.rows)],
    }  # fmt: skip


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
