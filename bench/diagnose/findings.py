"""Which finding of the validator explains a stall: the tree is read, never run."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from bench import validation
from bench.process.stacks import Frame

RULES = "MP5,MP4"
"""Codes of rules about ranks and groups."""

HANGS = ("MP501", "MP502", "MP503", "MP504", "MP505", "MP506", "MP507", "MP508", "MP510", "MP513")
"""Rules whose subject is a collective that not all ranks reach alike."""


@dataclass(frozen=True)
class Explanation:
    """A finding and how near it is to where the ranks stand: 3 in the same function, 2 the same file, 1 the tree.
    `place` is called as the stacks call it; `possible` is what the validator calls a note."""

    code: str
    path: str
    line: int
    place: str
    message: str
    help: str
    nearness: int
    possible: bool


def explain(tree: Path, frames: Sequence[Frame]) -> list[Explanation]:
    """Findings of the tree, nearest first, those about unmatched collectives before others.

    Without any in a file of the stacks, those about unmatched collectives anywhere. What the validator alone holds for
    possible, a note, counts where the ranks stand still in that very function: there the stall bears it out. Raises
    `bench.validation.ValidatorError`.
    """
    reported = validation.findings(["."], tree, "--isolated", "--notes", "--select", RULES)
    found = [_explanation(tree, finding, frames) for finding in reported]
    near = [one for one in found if _counts(one)]
    return sorted(near, key=lambda one: (-one.nearness, one.code not in HANGS, one.possible, one.path, one.line))


def _counts(one: Explanation) -> bool:
    if one.possible:
        return one.nearness == 3 and one.code in HANGS
    return one.nearness > 1 or one.code in HANGS


def _explanation(tree: Path, finding: dict[str, Any], frames: Sequence[Frame]) -> Explanation:
    path, line = str(finding["path"]), int(finding["line"])
    places = [(path, line), *((str(r["path"]), int(r["line"])) for r in finding.get("related", ()))]
    nearness = max(_nearness(tree, place, at, frames) for place, at in places)
    recorded = next((frame.file for frame in frames if _same_file(frame.file, path)), None)
    place = f"{path}:{line}" if recorded is None else Frame(recorded, line, "").place()
    return Explanation(
        str(finding["code"]), path, line, place, str(finding["message"]), str(finding.get("help") or ""), nearness,
        finding["severity"] == "note",
    )  # fmt: skip


def _nearness(tree: Path, path: str, line: int, frames: Sequence[Frame]) -> int:
    same = [frame for frame in frames if _same_file(frame.file, path)]
    if not same:
        return 1
    bounds = _function(tree / path, line)
    return 3 if any(bounds[0] <= frame.line <= bounds[1] for frame in same) else 2


def _same_file(recorded: str, path: str) -> bool:
    """Whether a path of the job's machine ends in that of the tree."""
    parts = PurePath(path).parts
    return PurePath(recorded).parts[-len(parts) :] == parts


def _function(path: Path, line: int) -> tuple[int, int]:
    """First and last line of the innermost function around a line; the line itself outside of any."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return line, line
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [(n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, kinds)]
    around = [bounds for bounds in around if bounds[0] <= line <= bounds[1]]
    return max(around, default=(line, line))
