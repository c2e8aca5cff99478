"""`python -m bench report DIR …`: results as a table, Markdown, CSV, JSON or one HTML page.

DIR holds result directories, .jsonl files of results and training logs, at any depth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cli import OK
from bench.problems import Problem, in_one_line
from bench.report import sections
from bench.report.bmf import as_bmf
from bench.report.columns import as_csv, as_json
from bench.report.rows import Collection, collect
from bench.terminal.parsing import WIDE, Parser
from bench.terminal.text import grid

FORMATS = ("text", "markdown", "csv", "json", "html", "bmf")
SUFFIXES = {".md": "markdown", ".csv": "csv", ".json": "json", ".html": "html", ".txt": "text"}


def parser() -> argparse.ArgumentParser:
    """The flags of `bench report`."""
    p = Parser(prog="bench report", description=__doc__)
    p.add_argument("paths", nargs="*", default=[Path("results")], type=Path, metavar="DIR",
                   help="results, logs, a matrix: directories, files; default ./results")  # fmt: skip
    p.add_argument("--format", choices=FORMATS, help="default: by the name of --output, else text")
    p.add_argument("--output", type=Path, metavar="FILE", help="write there and not to standard output")
    p.add_argument("--wide", action="store_true", help=WIDE)
    p.add_argument("--title", default="Results of bench")
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0; 2 for paths that cannot be read or written, with one line on stderr."""
    options = parser().parse_args(arguments)
    form = options.format or _format_of(options.output)
    found = collect(options.paths)
    text = _rendered(found, form, options).rstrip("\n")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(f"{text}\n", encoding="utf-8")
        print(f"bench report: wrote {len(found.rows)} rows to {options.output}", file=sys.stderr)
    else:
        print(text, flush=True)
    for note in found.passed_over:
        print(f"bench report: passed over: {note}", file=sys.stderr)
    return OK


def _format_of(output: Path | None) -> str:
    """The format that a file's name asks for. Raises `Problem` for one that is not written."""
    suffix = output.suffix.lower() if output is not None else ""
    if not suffix:
        return "text"
    if suffix not in SUFFIXES:
        raise Problem(f"--output {output}: {suffix} is not written; there are {', '.join(SUFFIXES)}, or give --format")
    return SUFFIXES[suffix]


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
    """Every section that has text, in order."""
    mark = "## " if style == "github" else ""
    parts = [f"# {title}"] if style == "github" else []
    for section in sections.of(found):
        table = section.table
        if hasattr(section.module, "text"):
            parts.append(section.module.text(section.content, style, wide).strip("\n"))
        elif table is not None:
            parts.append("\n".join([f"{mark}{section.title}", "", grid(table.rows, list(table.headings), style)]))
    return "\n\n".join(filter(None, parts))


def _more(found: Collection) -> dict[str, Any]:
    """What the other formats show besides the rows, as plain values; empty lists of what is not there."""
    made = {section.module.KEY: section.module.data(section.content)
            for section in sections.of(found) if hasattr(section.module, "KEY")}  # fmt: skip
    return {**{key: [] for key in sections.names()}, **made}
