"""Which modules a function shards with FSDP2 or splits for tensor parallelism, itself or through functions it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.analysis.places import within
from validator.analysis.sharding import Sharding
from validator.facts.model import At, Call
from validator.facts.text import path_of
from validator.project import Method, Project

SHARD, SPLIT = "shard", "split"

_SPLITTING = ("parallelize_module", "apply_tensor_parallelism")
_STYLES = ("ColwiseParallel", "RowwiseParallel", "SequenceParallel")  # what distributes parameters
_DEPTH = 3


class Spread(NamedTuple):
    """A call that shards or splits a module. `path`: of the module, for a loop's variable of what it runs over.

    `made`: where that is done, at the end of the calls, as a file and a line. `later`: the place of the lambda that
    holds the call, which runs when that is called and not where it is written; None for a call outside of them.
    """

    kind: str
    call: Call
    path: str
    made: tuple[str, int]
    later: At | None


class Spreading:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> dict[Method, list[Spread]]:
        """The functions that shard or split modules, with the calls in their order."""
        found: dict[Method, dict[Spread, None]] = {}
        for function, row in self._direct():
            found.setdefault(function, {})[row] = None
        for _ in range(_DEPTH):
            for helper in list(found):
                self._hand_up(found, helper)
        return {function: sorted(rows, key=lambda row: row.call.at) for function, rows in found.items()}

    def _direct(self) -> Iterator[tuple[Method, Spread]]:
        for function, calls in self.project.analysis(Sharding).direct.items():
            for call in calls:
                for path in _given(call):
                    if "[" not in path:  # one of several, which the path does not tell apart
                        yield function, Spread(SHARD, call, path, (function.path, call.at[0]), _later(function, call))
        for function, call in self.project.calls(*_SPLITTING):
            if _splits(function, call) and not self.project.types.called(function, call.target):
                for path in _given(call):
                    yield function, Spread(SPLIT, call, path, (function.path, call.at[0]), _later(function, call))

    def _hand_up(self, found: dict[Method, dict[Spread, None]], helper: Method) -> None:
        """Adds what a helper does to what it is given, to the functions that call it."""
        if helper.name.startswith("<") or helper.name == "__init__":
            return
        for caller, call in self.project.calls(helper.name):
            if caller is helper or helper not in self.project.types.targets(caller, call):
                continue
            known = list(found.get(caller, ()))
            later = _later(caller, call)
            for row in [row for row in found[helper] if row.later is None]:  # a lambda may run after the helper
                for path in _outside(helper, caller, call, row.path, known):
                    found.setdefault(caller, {})[row._replace(call=call, path=path, later=later)] = None


def _later(function: Method, call: Call) -> At | None:
    """The place of the innermost lambda around a call."""
    text, node = function.module.source_text, function.node
    lambdas = [text.at(n) for n in ast.walk(node) if isinstance(n, ast.Lambda)] if node is not None else []
    return max((place for place in lambdas if within(call.at, place)), default=None)


def _outside(helper: Method, caller: Method, call: Call, path: str, known: list[Spread]) -> list[str]:
    """A path of a function as its caller knows it: below an argument, or below the object of a method."""
    root, dot, rest = path.partition(".")
    if root == helper.own_object:
        return [f"{call.receiver}{dot}{rest}"] if call.receiver else []
    argument = bind(helper, call).get(root)
    if argument is None:
        return []
    if argument.kind == "call":  # `split(shard(model))`
        outer = _whole([row.path for row in known if row.call.at == argument.at])
    else:
        outer = _looped(call, argument.value) if argument.kind == "path" else []
        outer = [_named(caller, each, known) for each in outer]
    return [f"{each}{dot}{rest}" for each in dict.fromkeys(outer)]


def _named(caller: Method, path: str, known: list[Spread]) -> str:
    """The model that a name holds which is bound to the result of sharding or splitting it."""
    for row in caller.facts.assigns:
        if row.target == path and row.kind == "call":
            return next(iter(_whole([each.path for each in known if within(each.call.at, row.at)])), path)
    return path


def _whole(paths: list[str]) -> list[str]:
    """The shortest of the paths that one call shards or splits: that of the model itself."""
    return [min(paths, key=len)] if paths else []


def _given(call: Call) -> list[str]:
    """The paths of the module that a call is given first."""
    module = next((a for a in call.args if a.keyword in (None, "module", "model")), None)
    return _looped(call, module.value) if module is not None and module.kind == "path" else []


def _looped(call: Call, path: str) -> list[str]:
    """A path with the variables of the loops around it replaced by what they run over."""
    paths = [path]
    for guard in reversed(call.guards):
        if guard.kind != "loop" or " in " not in guard.text:
            continue
        try:
            node = ast.parse(f"for {guard.text}: pass").body[0]
        except SyntaxError:
            continue
        names = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)} if isinstance(node, ast.For) else set()
        over = _paths(node.iter) if isinstance(node, ast.For) else []
        paths = [
            outer + each[len(each.partition(".")[0]) :]
            for each in paths
            for outer in (over if each.partition(".")[0] in names else [each.partition(".")[0]])
        ]
    return paths


def _paths(node: ast.expr) -> list[str]:
    """The modules that an iterable holds: of `enumerate(model.layers)` and `model.named_children()` their owners."""
    if isinstance(node, ast.Name | ast.Attribute):
        return [path_of(node)]
    if isinstance(node, ast.Call):
        inner = [node.func.value] if isinstance(node.func, ast.Attribute) else node.args
        return [path for each in inner for path in _paths(each)]
    if isinstance(node, ast.List | ast.Tuple):
        return [path for each in node.elts for path in _paths(each)]
    return _paths(node.value) if isinstance(node, ast.Starred | ast.Subscript) else []


def _splits(function: Method, call: Call) -> bool:
    """Whether a call distributes parameters: its plan is a table, or one of the styles that do."""
    plan = call.keyword("parallelize_plan") or (call.positional[2] if len(call.positional) > 2 else None)
    if plan is None or plan.kind == "call":
        return plan is not None and _distributes(plan.value) or call.method != _SPLITTING[0]
    rows = [row for row in function.facts.assigns if row.target == plan.value]
    return not rows or any(row.kind != "call" or _distributes(row.value) for row in rows)


def _distributes(made: str) -> bool:
    """Whether a plan is made by a function, or is one of the styles that distribute parameters."""
    name = made.rpartition(".")[2].lstrip("_")
    return not name[:1].isupper() or name.endswith(_STYLES)
