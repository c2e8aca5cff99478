"""A name that nothing defines.

What it does
    Reports a name that is read in a file where no scope around the place binds it and Python does not know it:
    no import, assignment, parameter, loop or built-in. Names in annotations that Python evaluates count. Files
    with star imports or with names made at run time (`globals()`, `exec`) are left alone, and so is code behind
    a handler for NameError. One finding per name and function.

Why is this bad
    NameError when the line runs: often after hours, on a path that only one option or one failure takes.

References
    https://docs.python.org/3/reference/executionmodel.html#resolution-of-names
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from validator.errors import nearest
from validator.facts.model import Unresolved
from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP204", "undefined-name", "error", stable_since="0.1.0")


def check_file(source: SourceFile) -> Iterator[Finding]:
    names = source.facts.names
    seen: dict[str, Unresolved] = {}
    for row in source.facts.unresolved:
        if row.name in seen:
            continue
        seen[row.name] = row
        elsewhere = any(i.bound_as == row.name for i in source.facts.imports)
        hint = "; it is imported in another function only" if elsewhere else ""
        choices = [*names, *dir(builtins)]
        where = "" if row.scope == "<module>" else f" in `{row.scope.replace('.<locals>', '')}`"
        yield RULE.finding(
            source.path,
            row.at,
            f"`{row.name}` is not defined{where}{hint}",
            help=f"import or define it before it is used{nearest(row.name, choices)}",
            context=f"{row.scope}:{row.name}",
        )


INCORRECT = (
    """def prepare(eval_dataset):
    if eval_dataset:
        sys.exit(1)  # error: MP204
    return eval_dataset
""",
    """import torch


class Actor:
    def fit(self, queue: Queue) -> torch.Tensor:  # error: MP204
        return torch.ones(device_mesh)  # error: MP204
""",
)

CORRECT = (
    """from __future__ import annotations


class Actor:
    def fit(self, queue: Queue) -> Later:
        return [later for later in self.items if (n := later)] + [n]


try:
    unicode
except NameError:
    unicode = str
""",
    """from torch import *


def load(path):
    return tensor(path)
""",
)
