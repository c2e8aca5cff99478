"""Validates a real tree as a user does, and knows which findings on OpenRLHF a person has judged."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

VERDICTS = Path(__file__).resolve().parents[2] / "reports" / "openrlhf.md"


@cache
def report(tree: Path) -> dict[str, Any]:
    """The validator's JSON report on the folder `openrlhf` of a tree, notes apart; nothing may go wrong inside."""
    command = [sys.executable, "-m", "validator", "--isolated", "--notes", "--format", "json", "openrlhf"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    document["notes"] = [each for each in document["findings"] if each["severity"] == "note"]
    document["findings"] = [each for each in document["findings"] if each["severity"] != "note"]
    assert done.returncode == bool(document["findings"])
    assert document["summary"]["internal_errors"] == 0
    return document


def files(tree: Path) -> list[Path]:
    return list((tree / "openrlhf").rglob("*.py"))


def thousand_lines(tree: Path) -> float:
    return sum(path.read_bytes().count(b"\n") for path in files(tree)) / 1000


def not_judged(tree: Path) -> list[str]:
    """The findings of which no row of the verdicts speaks: one that names the rule and the file."""
    rows = [row for row in VERDICTS.read_text(encoding="utf-8").splitlines() if row.startswith("|")]
    return [
        f"{finding['path']}:{finding['line']}: {finding['code']} {finding['message']}"
        for finding in report(tree)["findings"]
        if not any(finding["code"] in row and Path(finding["path"]).name in row for row in rows)
    ]


def found(tree: Path) -> set[tuple[str, str, str]]:
    """Findings and notes as (rule, file, message)."""
    document = report(tree)
    return {(each["code"], each["path"], each["message"]) for each in (*document["findings"], *document["notes"])}
