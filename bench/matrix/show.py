"""A matrix as a table, as Markdown and JSON for the record, and the difference between two."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.compare.significance import change
from bench.configuration import ConfigurationError
from bench.matrix import READ, SCHEMA
from bench.matrix.cells import Cell, Refused
from bench.matrix.classify import WORKS, Outcome
from bench.process.files import read_json
from bench.results import file_kinds
from bench.results.measured import STEP, peak_memory, rate, seconds_per_token, spread, step_times
from bench.terminal.fitting import screen
from bench.terminal.text import MARKDOWN, plain

SPEED_CHANGE = 0.1
NOISY = 0.1
"""Spread of single steps from which a cell is called noisy."""
HEADERS = ("cell", "class", "tokens/s", "of default", "loss diff", "breaks", "detail", "log")
UNDECIDED = "undecided"


def entry(cell: Cell, row: Mapping[str, Any], outcome: Outcome, default: Mapping[str, Any] | None) -> dict[str, Any]:
    """One row of `matrix.json`: plain values, None where nothing was measured. `default` is the entry that speeds are
    held against; `doubt` is why the order of the two is not decided, empty where it is."""
    summary = row.get("summary")
    asked = row["configuration"]
    per_token = seconds_per_token(asked["num_gpus"], row["runs"]) if summary else []
    compared = None
    if per_token and default is not None:
        compared = change("time", "second", per_token, default["seconds_per_token"])
    effective = summary["effective"] if summary else {}
    return {
        "cell": cell.name, "class": outcome.kind, "detail": outcome.detail, "hash": row["hash"],
        "label": row["label"], "tokens_per_second": rate(per_token), "seconds_per_token": per_token,
        "spread": spread([step[STEP] for run in row["runs"] for step in step_times(run)]) if summary else None,
        "relative_speed": compared.ratio if compared else 1.0 if per_token else None,
        "doubt": compared.doubt if compared else "", "steady": effective.get("steady"),
        "loss_difference": outcome.loss_difference,
        "peak_memory": max(map(peak_memory, row["runs"])) if summary else None,
        "graphs": effective.get("graphs"), "attention_kernels": effective.get("attention_kernels"),
        "settings": {k: asked[k] for k in ("backend", "zero_stage", "attn", "compile", "packing", "num_layers")},
        "log": "",
    }  # fmt: skip


def copy_logs(entries: Sequence[dict[str, Any]], rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Put the log of each cell that ran beside the matrix and name it in its entry. `folder` may have been moved since
    the cell ran: its log is looked for where its row lies."""
    for one, row in zip(entries, rows, strict=True):
        log = Path(row["log"])
        source = folder / log.parent.name / log.name
        if row["log"] and source.is_file():
            name = "-".join(str(one["cell"]).replace("+", " ").split()) + ".log"
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / "logs" / name)
            one["log"] = f"logs/{name}"


def texts(one: Mapping[str, Any]) -> list[str]:
    """An entry under `HEADERS`. Those of schema 1 have a speed without the optimizer, and no spread."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    before = one.get("real_tokens_per_second")
    speed = f"{before:,.0f} without optimizer" if before else number(one.get("tokens_per_second"), ",.0f")
    relative, graphs = one.get("relative_speed"), one.get("graphs")
    open_ = one.get("doubt") or (before and relative != 1.0)
    return [
        one["cell"], one["class"], speed + (f" ±{one['spread']:.0%}" if one.get("spread") else ""),
        number(relative, ".2f") + (f" {UNDECIDED}" if open_ else ""), number(one.get("loss_difference"), ".1e"),
        str(graphs["graph_breaks"]) if graphs else "-", str(one.get("detail", "")), str(one.get("log", "")),
    ]  # fmt: skip


def table(entries: Sequence[Mapping[str, Any]], wide: bool = False) -> str:
    """For a terminal; details are cut."""
    rows = [[cell[:90] for cell in texts(one)][:-1] for one in entries]
    return "\n".join([screen(rows, HEADERS[:-1], HEADERS, wide), *doubts(entries)])


def doubts(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines on what the speeds do not prove: cells whose steps differ, and orders that are not decided."""
    noisy = [one["cell"] for one in entries if (one.get("spread") or 0.0) > NOISY or one.get("steady") is False]
    found = []
    if noisy:
        found.append(f"noisy, steps lie over ±{NOISY:.0%} apart or never became steady: {', '.join(noisy)}")
    open_ = [one for one in entries if one.get("doubt")]
    if any(len(one["seconds_per_token"]) < 2 for one in open_):
        found.append(f"{UNDECIDED}: one process a cell proves no order of speeds; --processes 3 measures more")
    found += [f"{one['cell']}: {one['doubt']}" for one in open_ if len(one["seconds_per_token"]) > 1]
    return found


def markdown(document: Mapping[str, Any]) -> str:
    """The matrix with the stack that it holds for and links to the logs."""
    lines = [f"# Compatibility: {document['kind']}", "", f"`{document['command']}`", ""]
    lines += [f"- {name} {version}" for name, version in document["stack"].items()]
    lines += ["", f"| {' | '.join(HEADERS)} |", f"|{' --- |' * len(HEADERS)}"]
    for one in document["rows"]:
        cells = [plain(cell, MARKDOWN) for cell in texts(one)]
        cells[-1] = f"[log]({one['log']})" if one["log"] else "-"
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- {plain(line, MARKDOWN)}" for line in doubts(document["rows"]))]
    if document["never"]:
        lines += ["", "Never together:", ""]
        lines += [f"- {' with '.join(one['settings'])}: {one['reason']}" for one in document["never"]]
    return "\n".join(lines) + "\n"


def document(
    kind: str, entries: Sequence[Mapping[str, Any]], never: Sequence[Refused], environment: Mapping[str, Any]
) -> dict[str, Any]:
    """`matrix.json`, one per software stack."""
    stack = {"python": environment["python"], **environment["versions"]}
    if environment["gpus"]:
        stack["gpu"] = environment["gpus"][0]["name"]
    listed = [{"settings": [f"{k} {v}" for k, v in one.settings], "reason": one.reason} for one in never]
    return {
        "schema": SCHEMA, "kind": kind, "stack": stack, "command": environment["command"], "rows": list(entries),
        "never": listed,
    }  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """A `matrix.json`, or the directory that holds one. Raises `ConfigurationError`, one line."""
    file = path / "matrix.json" if path.is_dir() else path
    found: Any = read_json(file)
    if not isinstance(found, dict) or found.get("schema") not in READ or not isinstance(found.get("rows"), list):
        raise ConfigurationError(f"{file}: {file_kinds.told(file)}")
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Lines on what changed from one stack to another, and whether something that worked no longer does."""
    lines = [
        f"{name}: {old['stack'].get(name, 'absent')} → {new['stack'].get(name, 'absent')}"
        for name in sorted({*old["stack"], *new["stack"]})
        if old["stack"].get(name) != new["stack"].get(name)
    ]  # fmt: skip
    before = {one["cell"]: one for one in old["rows"]}
    if any(one["cell"] in before and before[one["cell"]].get("hash") != one.get("hash") for one in new["rows"]):
        commands = (str(one.get("command", "?")) for one in (old, new))
        lines.append(f"the settings are not the same, so speeds do not compare: {' → '.join(commands)}")
    if any(document["schema"] != SCHEMA for document in (old, new)):
        lines.append("one of the two was written before speeds were those of whole steps: speeds are not compared")
    worse = False
    for one in new["rows"]:
        was = before.pop(one["cell"], None)
        if was is None:
            lines.append(f"{one['cell']}: new: {one['class']}")
            continue
        if was["class"] != one["class"]:
            lines.append(f"{one['cell']}: {was['class']} → {one['class']}{': ' * bool(one['detail'])}{one['detail']}")
            worse = worse or (was["class"] in WORKS and one["class"] not in WORKS)
        lines += _speeds(was, one)
    lines += [f"{name}: gone" for name in before]
    return lines, worse


def _speeds(was: Mapping[str, Any], one: Mapping[str, Any]) -> list[str]:
    """A line where a cell's speed is another, with the doubt that noise leaves."""
    before, after = was.get("seconds_per_token"), one.get("seconds_per_token")
    if not before or not after:
        return []
    found = change("time", "second", after, before)
    if abs(found.ratio - 1) <= SPEED_CHANGE:
        return []
    doubt = f", {found.doubt}" if found.doubt else ""
    return [f"{one['cell']}: {rate(before):,.0f} → {rate(after):,.0f} tokens/s{doubt}"]
