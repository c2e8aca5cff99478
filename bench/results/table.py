"""Results as the table at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.report.columns import of_a_sweep, table
from bench.report.glance import workloads
from bench.report.rows import to_row


def _remarks(result: dict[str, Any]) -> list[str]:
    """What one has to know of times that were measured: what compiling took, and whether they had settled."""
    effective = (result.get("summary") or {}).get("effective", {})
    graphs, found = effective.get("graphs", {}), []
    if graphs.get("graphs"):
        found.append(
            f"compiled in {graphs['compile_seconds']:.1f} s: {graphs['graphs']} graphs, {graphs['graph_breaks']} "
            f"breaks, {graphs['recompiles']} recompilations"
        )
    if Path(result["configuration"]["model"]).is_dir() and effective.get("weights") not in (None, "checkpoint"):
        found.append(f"its folder holds no weights: they were {effective['weights']}")
    if effective.get("steady") is False:
        found.append(f"step times were not steady after {effective['warmup_steps']} steps of warm-up")
    return found


def problem(result: dict[str, Any]) -> str:
    """A line on a row that did not end well: why, what to change, and where its log is."""
    hint = f" ({result['hint']})" if result["hint"] else ""
    kept = f"; what was found {result['kept']} is kept" if result.get("kept") else ""
    log = f"; log: {result['log']}" if result["log"] else ""
    return f"{result['label']}: {result['status']}: {result['message']}{hint}{kept}{log}"


def render(results: Sequence[dict[str, Any]], wide: bool = False) -> str:
    """The table, and below it which row is fastest, as the report has it, and a line per row that was compiled, that
    never became steady, or that did not end well, with what to change."""
    rows = [replace(to_row(result, Path()), label=result["label"]) for result in results]
    done = workloads(rows)
    notes = [f"{one.name}: {told}" if len(done) > 1 else told for one in done if (told := one.told())]
    remarked: dict[str, list[str]] = {}
    for result in results:
        for remark in _remarks(result):
            remarked.setdefault(remark, []).append(result["label"])
    for remark, labels in remarked.items():
        notes.append(f"{'all rows' if 1 < len(labels) == len(results) else ', '.join(labels)}: {remark}")
    notes += [problem(result) for result in results if result["status"] != "ok"]
    return "\n".join([table(rows, wide=wide, first=of_a_sweep), *([""] if notes else []), *notes])
