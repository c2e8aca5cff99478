"""Small programs after silent errors in training that others have reported, each wrong one beside a right one.

    python -m tests.rules.silent_gradients

The reports are NVIDIA/Megatron-LM#7452 (errors in the composition of parallelisms, found with `spmd_types`; nine of its
findings) and the workloads of TrainCheck (OrderLab/TrainCheck-Evaluation-Workloads, OSDI 2025). A wrong program counts
as found where a rule reports an error or a warning, a right one as silent where none does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import tomllib
from tabulate import tabulate

from validator.registry import load_rules
from validator.run.checker import Check, check_sources
from validator.run.config import Config
from validator.source import SourceFile

TABLE = Path(__file__).parent.parent / "data" / "silent_gradients.toml"


class Case(NamedTuple):
    name: str
    source: str
    wrong: str
    right: str


def cases() -> list[Case]:
    return [Case(**row) for row in tomllib.loads(TABLE.read_text())["case"]]


def found(text: str) -> list[str]:
    """The errors and warnings in a program."""
    rules = load_rules()
    source = SourceFile("program.py", "/program.py", text.encode())
    result = check_sources([source], Check(Config(root="/"), rules, rules))
    assert not result.errors, result.errors
    return [f"{f.code} {f.span.line}: {f.message}" for f in result.findings if f.severity != "note"]


def main() -> int:
    rows = []
    for case in cases():
        wrong, right = found(case.wrong), found(case.right)
        rows.append([case.name, case.source, "; ".join(wrong) or "missed", "; ".join(right) or "silent"])
    print(tabulate(rows, ["program", "report", "wrong", "right"], tablefmt="github"))
    hits = sum(row[2] != "missed" for row in rows)
    false = sum(row[3] != "silent" for row in rows)
    print(f"{hits} of {len(rows)} found, {false} right ones reported")
    return 0


if __name__ == "__main__":
    sys.exit(main())
