"""A matrix as a table, as Markdown and JSON for the record, and the difference between two."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.configuration import ConfigurationError
from bench.matrix.cells import Cell, Refused
from bench.matrix.classify import WORKS, Outcome
from bench.terminal.fitting import screen
from bench.terminal.text import MARKDOWN, plain

SCHEMA = 1
SPEED_CHANGE = 0.1
HEADERS = ("cell", "class", "tokens/s/GPU", "of default", "loss diff", "breaks", "detail", "log")


def entry(cell: Cell, row: Mapping[str, Any], outcome: Outcome, default_speed: float | None) -> dict[str, Any]:
    """One row of `matrix.json`: plain values, None where nothing was measured."""
    summary = row.get("summary")
    speed = summary["real_tokens_per_second"] if summary else None
    asked = row["configuration"]
    effective = summary["effective"] if summary else {}
    return {
        "cell": cell.name, "class": outcome.kind, "detail": outcome.detail, "hash": row["hash"],
        "label": row["label"], "real_tokens_per_second": speed,
        "relative_speed": speed / default_speed if speed and default_speed else None,
        "loss_difference": outcome.loss_difference, "peak_memory": summary["peak_memory"] if summary else None,
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


def _cells(one: Mapping[str, Any]) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    graphs = one["graphs"]
    return [
        one["cell"], one["class"], number(one["real_tokens_per_second"], ",.0f"), number(one["relative_speed"], ".2f"),
        number(one["loss_difference"], ".1e"), str(graphs["graph_breaks"]) if graphs else "-", one["detail"],
        one["log"],
    ]  # fmt: skip


def table(entries: Sequence[Mapping[str, Any]], wide: bool = False) -> str:
    """For a terminal; details are cut."""
    rows = [[cell[:90] for cell in _cells(one)][:-1] for one in entries]
    return screen(rows, HEADERS[:-1], HEADERS, wide)


def markdown(document: Mapping[str, Any]) -> str:
    """The matrix with the stack that it holds for and links to the logs."""
    lines = [f"# Compatibility: {document['kind']}", "", f"`{document['command']}`", ""]
    lines += [f"- {name} {version}" for name, version in document["stack"].items()]
    lines += ["", f"| {' | '.join(HEADERS)} |", f"|{' --- |' * len(HEADERS)}"]
    for one in document["rows"]:
        cells = [plain(cell, MARKDOWN) for cell in _cells(one)]
        cells[-1] = f"[log]({one['log']})" if one["log"] else "-"
        lines.append(f"| {' | '.join(cells)} |")
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
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    except ValueError:
        raise ConfigurationError(f"{file}: not JSON") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("rows"), list):
        raise ConfigurationError(f"{file}: not a matrix that this version wrote")
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
    worse = False
    for one in new["rows"]:
        was = before.pop(one["cell"], None)
        if was is None:
            lines.append(f"{one['cell']}: new: {one['class']}")
            continue
        if was["class"] != one["class"]:
            lines.append(f"{one['cell']}: {was['class']} → {one['class']}{': ' * bool(one['detail'])}{one['detail']}")
            worse = worse or (was["class"] in WORKS and one["class"] not in WORKS)
        speeds = (was["real_tokens_per_second"], one["real_tokens_per_second"])
        if all(speeds) and abs(speeds[1] / speeds[0] - 1) > SPEED_CHANGE:
            lines.append(f"{one['cell']}: {speeds[0]:,.0f} → {speeds[1]:,.0f} tokens/s/GPU")
    lines += [f"{name}: gone" for name in before]
    return lines, worse
