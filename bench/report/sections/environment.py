"""What rows were measured on, and by which commands."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from bench.report.rows import Collection
from bench.results.identity import processor

PLACE, TITLE, TEMPLATE = 100, "Environment and commands", "environment.html.jinja"


class Told(NamedTuple):
    """Each different environment once as JSON, with its processor and the commands that were run in it; how many rows
    say none."""

    environments: list[tuple[str, str, list[str]]]
    silent: int
    rows: int


def content(collection: Collection) -> Told | None:
    found: dict[tuple[str, str], list[str]] = {}
    for row in (row for row in collection.rows if row.environment):
        rest = {key: value for key, value in row.environment.items() if key not in ("command", "time")}
        text = json.dumps(_steady(rest), indent=1, sort_keys=True, ensure_ascii=False)
        commands = found.setdefault((processor(row.environment), text), [])
        command = str(row.environment.get("command", ""))
        if command and command not in commands:
            commands.append(command)
    silent = sum(not row.environment.get("command") for row in collection.rows)
    environments = [(*environment, commands) for environment, commands in found.items()]
    return Told(environments, silent, len(collection.rows)) if collection.rows else None


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
