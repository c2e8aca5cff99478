"""A name that nothing defines.

What it does
    Reports a name that is read in a file where no scope around the place binds it and Python does not know it:
    no import, assignment, parameter, loop or built-in. Names in annotations that Python evaluates count. Files
    with star imports or with names made at run time (`globals()`, `exec`) are left alone, and so is code behind
    a handler for NameError, a test for the name as a text (`"x" in globals()`), a name that the file replaces in texts
    (`inspect.getsource(kernel).replace("BLOCK", "128")`),
    and so are stubs (`.pyi`), which nobody runs. One finding per name and function,
    and one where the function first calls it.

Why is this bad
    NameError when the line runs: often after hours, on a path that only one option or one failure takes.

References
    https://docs.python.org/3/reference/executionmodel.html#resolution-of-names
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator

from validator.errors import nearest
from validator.facts.model import At, Unresolved
from validator.finding import Finding, Related
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP204", "undefined-name", "error", stable_since="0.1.0")

_PYTHON_2 = frozenset({"unicode", "basestring", "long", "xrange", "raw_input", "unichr", "reduce", "cmp", "file"})
_BRANCHES_ON_VERSION = re.compile(r"\bPY[23]\b|version_info|sys\.version")


def check_file(source: SourceFile) -> Iterator[Finding]:
    choices = [*source.facts.names, *dir(builtins)]
    if source.path.endswith(".pyi"):  # nobody runs it
        return
    rows: dict[str, list[Unresolved]] = {}
    for row in source.facts.unresolved:
        if row.name in _PYTHON_2 and _BRANCHES_ON_VERSION.search(source.text):
            continue
        if _is_own_module(source, row.name) or _is_asked_for(source, row) or _is_replaced(source, row.name):
            continue
        rows.setdefault(row.name, []).append(row)
    for first, *others in rows.values():  # what one import, or one definition, mends is one mistake
        for at in dict.fromkeys((first.at, _first_call(source, first))):
            yield _report(source, first, at, choices, others)


def _is_own_module(source: SourceFile, name: str) -> bool:
    """Whether a package's own file imports one of its modules by its full name, which binds it in the package."""
    *_, folder, file = ("", "", *source.path.split("/"))
    ending = f".{folder}.{name}"
    return file == "__init__.py" and any(
        row.name is None and f".{row.module}".endswith(ending) for row in source.facts.imports
    )


def _is_asked_for(source: SourceFile, row: Unresolved) -> bool:
    """Whether a test around the place asks for the name as a text: `if "wandb" in sys.modules`, `"x" in globals()`."""
    quoted = (f"'{row.name}'", f'"{row.name}"')
    for function in source.facts.functions if any(text in source.text for text in quoted) else ():
        if function.qualname != row.scope:
            continue
        rows = [(ref.at, ref.guards) for ref in function.refs] + [(call.at, call.guards) for call in function.calls]
        around = [guard for at, guards in rows if _holds(at, row.at) for guard in guards]
        if any(text in guard.text for guard in (*function.guards, *around) for text in quoted):
            return True
    return False


def _is_replaced(source: SourceFile, name: str) -> bool:
    """Whether the file puts something else in the place of a name, in a text: in the source of a function, say."""
    quoted = (f"'{name}'", f'"{name}"')
    calls = (call for function in source.facts.functions for call in function.calls if call.method == "replace")
    return any(text in source.text for text in quoted) and any(
        call.args and call.args[0].value in (*quoted, name) and call.args[0].kind == "const" for call in calls
    )


def _holds(outer: At, inner: At) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def _first_call(source: SourceFile, row: Unresolved) -> At:
    """Where the function first calls the name (a reader looks there, not at a test before it)."""
    own = (f for f in source.facts.functions if f.qualname == row.scope)
    calls = (call.name_at for function in own for call in function.calls if call.target == row.name)
    return next(calls, row.at)


def _shown(scope: str) -> str:
    return scope.replace(".<locals>", "")


def _report(source: SourceFile, row: Unresolved, at: At, choices: list[str], others: list[Unresolved]) -> Finding:
    elsewhere = any(i.bound_as == row.name for i in source.facts.imports)
    hint = "; only another function imports it" if elsewhere else ""
    where = "" if row.scope == "<module>" else f" in `{_shown(row.scope)}`"
    return RULE.finding(
        source.path,
        at,
        f"`{row.name}` is not defined{where}{hint}",
        help=f"import or define it before it is used{nearest(row.name, choices, 0.8)}",
        related=[Related(source.path, other.at[0], f"nor is it in `{_shown(other.scope)}`") for other in others],
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
    """import torch.distributed as dist


def shard(module):
    assert fully_shard is not None  # error: MP204
    for child in module.children():
        fully_shard(child)  # error: MP204
    return fully_shard(module)
""",
)

CORRECT = (
    """# file: core/__init__.py
import core.state

mpu = state
# file: core/state.py
""",
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
    # the source of the function is a text in which the name is replaced
    """\
import inspect

import torch


def kernel(x):
    return x + BLOCK_SIZE


def build(path, size):
    path.write_text(inspect.getsource(kernel).replace("BLOCK_SIZE", str(size)))
    return torch
""",
    # asked for first
    """\
import sys

# import wandb

if "EVAL_DATA" in globals():
    print("evaluating on " + EVAL_DATA)


def log(strategy, loss):
    if "wandb" in sys.modules:
        wandb.log({"loss": loss})
    return strategy
""",
)
