"""A row of a table that lacks a key which is looked up in every row.

What it does
    Takes the variables of modules that hold three or more dictionaries, by a key or in a list: tables of models, tasks,
    data sets. Finds where a row is taken that an option or a loop chooses (`row = MODELS[args.model]`, `for row in
    TASKS`), and reports the rows without a key that is looked up there with `row["key"]`, if most rows have it.
    Silent: `.get("key")`, readers that ask for the key or test anything of the row first, that catch KeyError, that
    write the key into a dictionary themselves, and tables that are not written out (`**common`).

Why is this bad
    KeyError, on the day somebody chooses that row.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.tables import Lookup, Row, Tables
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP309", "row-without-key", "warning", "0.3.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    seen: set[tuple[str, Row, str]] = set()
    for lookup in project.analysis(Tables).lookups:
        table = lookup.table
        lacking = [row for row in table.rows if row.length is None and lookup.key not in row.keys]
        if 2 * len(lacking) >= len(table.rows):
            continue  # what most rows lack is looked up only in those that have it
        for row in lacking:
            if (table.module.path, row, lookup.key) not in seen:
                seen.add((table.module.path, row, lookup.key))
                yield _report(lookup, row)


def _report(lookup: Lookup, row: Row) -> Finding:
    table, place = lookup.table, lookup.place
    name = f"row {row.name}" if table.listed else f"`{row.name}`"
    return RULE.finding(
        table.module.path,
        row.at,
        f"{name} of `{table.name}` has no key `{lookup.key}`, which is looked up in whichever row is chosen",
        help="give the row the key as the others have it, or look it up with `.get`",
        related=[Related(place.unit.path, place.at[0], f"the look-up in `{place.unit.qualname}`")],
        context=f"{table.name}:{row.name}:{lookup.key}",
    )


INCORRECT = (
    """# file: rl/__init__.py
# file: rl/models.py
MODELS = {
    "small": {"layers": 4, "quantized": False},
    "medium": {"layers": 8, "quantized": True},
    "large": {"layers": 32},  # error: MP309
}
# file: rl/run.py
from rl.models import MODELS


def start(args, load):
    if args.model in MODELS:
        row = MODELS[args.model]
    else:
        row = MODELS["small"]
    return load(row["layers"], quantized=row["quantized"])
""",
    """TASKS = [
    {"name": "gsm8k", "shots": 8},
    {"name": "math", "shots": 4},
    {"name": "mmlu"},  # error: MP309
]


def evaluate(run):
    for task in TASKS:
        run(task["name"], shots=task["shots"])
""",
)
CORRECT = (
    # what marks the rows without the key is asked for where they are left out
    """MODELS = {
    "small": {"layers": 4, "size": 1},
    "medium": {"layers": 8, "size": 2},
    "large": {"error": "does not answer", "size": 3},
}


def usable(names):
    return [name for name in names if "error" not in MODELS[name]]


def start(args, load):
    for name in usable(args.models):
        load(MODELS[name]["layers"], MODELS[name]["size"])
""",
    """TASKS = [
    {"name": "gsm8k", "shots": 8},
    {"name": "math", "shots": 4},
    {"name": "mmlu"},
]


def evaluate(run):
    for task in TASKS:
        run(task["name"], shots=task.get("shots", 0))
""",
    """MODELS = {
    "small": {"kind": "dense", "layers": 4},
    "large": {"kind": "dense", "layers": 32},
    "remote": {"kind": "served", "url": "http://localhost"},
}


def start(args, load, connect):
    row = MODELS[args.model]
    if row["kind"] == "served":
        return connect(row["url"])
    if row["kind"] == "dense":
        return load(row["layers"])
    raise NotImplementedError
""",
    """MODELS = {
    "small": {"layers": 4, "quantized": False},
    "medium": {"layers": 8, "quantized": True},
    "large": {"layers": 32},
}


def start(load):
    return load(MODELS["small"]["quantized"])
""",
)
