"""What a change left without a reader: parameters and variables of a function, options and fields of the project.

Whoever drops the last use of a value on purpose drops the value too. One that is still passed, computed or set, and
that nothing reads since the change, shows that something else went with the lines that were taken out.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.interfaces.now_positional import called
from validator.drift.statements.differences import (
    Edit,
    Statement,
    changed_calls,
    edits,
    node_of,
    similarity,
    statements,
)
from validator.drift.statements.intention import Intention, words_in
from validator.drift.statements.surroundings import called_names
from validator.drift.statements.weakened import is_parallel
from validator.facts.model import At
from validator.finding import Severity
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_SAME = 0.6  # of the statements that must be as they were: else the function was written anew
_FILLING = frozenset({"append", "extend", "insert", "add", "appendleft"})
_WHOLE = frozenset({"locals", "vars", "eval", "exec", "globals", "save_hyperparameters"})  # which read all variables


class Unread(NamedTuple):
    """A name of a function that was read before the change and is not now. `kind`: `parameter` or `variable`; `last`
    is what read it."""

    unit: Unit
    name: str
    kind: str
    at: At
    last: Statement
    severity: Severity


class Unused:
    """What the functions of a change read no longer."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def names(self) -> list[Unread]:
        found: list[Unread] = []
        for pair in self.change.pairs:
            if not is_test(pair.new.path) and not is_foreign(pair.new.path):
                found += self._of_pair(pair)
        often = Counter((each.kind, each.name) for each in found)
        params = Counter(each.unit for each in found if each.kind == "parameter")
        beside = Counter(id(each.last.node) for each in found)  # one statement that read several of them
        # what goes in several places, or along with others, is meant
        return [
            each
            for each in found
            if often[each.kind, each.name] == 1 and params[each.unit] < 2 and beside[id(each.last.node)] == 1
        ]

    def _of_pair(self, pair: Pair) -> Iterator[Unread]:
        old, new = node_of(pair.old), node_of(pair.new)
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        if not isinstance(old, functions) or not isinstance(new, functions):
            return
        if pair.new.method is None or pair.new.method.facts.stub:
            return
        gone = _read(old) - _read(new)
        if not gone or not _WHOLE.isdisjoint(called_names(pair.new)):
            return
        params = {arg.arg: arg for arg in _parameters(new)[pair.new.has_receiver :]}
        stored = {n.id: n for n in ast.walk(new) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        counted = _of_loops(new)  # a loop that counts may leave its number unread
        rows = [name for name in sorted(gone) if (name in params or name in stored) and name not in counted]
        if not rows:
            return
        before, after = statements(pair.old), statements(pair.new)
        if similarity(before, after) < _SAME:
            return
        changed = edits(before, after)
        given = not params.keys().isdisjoint(rows) and self._is_handed_on(pair.new)
        for name in rows:
            if given and name in params:
                continue  # who calls the function says what it takes
            readers = [edit for edit in changed if edit.old is not None and name in _read(edit.old.node)]
            last = readers[-1].old if readers else None
            if (
                last is None
                or _is_kept_only(old, last.node)
                or name.startswith("_")
                or name not in params
                and (_is_only_filled(old, name) or _is_unpacked(changed, name) or _is_nothing(new, name))
            ):
                continue
            node = params.get(name) or stored[name]
            kind = "parameter" if name in params else "variable"
            at = pair.new.module.source_text.at(node)
            severity = self._severity(pair, name, readers)
            if severity is not None:
                yield Unread(pair.new, name, kind, at, last, severity)

    def _severity(self, pair: Pair, name: str, readers: list[Edit]) -> Severity | None:
        """What it is worth that a name is read no longer: one of ranks matters, and one still described to callers."""
        told = name in dict(pair.new.code.params) and name in _described(node_of(pair.new))
        about = told or is_parallel(ast.Name(name, ast.Load())) or self._is_asked_for(pair, name, readers)
        intention: Intention = self.change.analysis(Intention)
        return intention.severity(pair, readers, frozenset({name}), frozenset(), about)

    def _is_asked_for(self, pair: Pair, name: str, readers: list[Edit]) -> bool:
        """Whether a call leaves out what it was passed it for, by that name or by a keyword, and what is called still
        has such a parameter."""
        objects = self.change.after.project.analysis(Objects)
        for edit in readers:
            for before, now in changed_calls(edit):
                if name in _read(now):
                    continue
                keywords = {each.arg for each in before.keywords if name in _read(each.value)}
                wanted = keywords - {each.arg for each in now.keywords}
                if any(isinstance(each, ast.Name) and each.id == name for each in before.args):
                    wanted.add(name)
                rows = called(objects, pair.new, now) if wanted else ()
                if rows and all(wanted.intersection(param.name for param in each.params) for each in rows):
                    return True
        return False

    def _is_handed_on(self, unit: Unit) -> bool:
        """Whether a function is given to a call as a value: a hook, which must take what its caller passes."""
        for other in self.change.after.units(unit.module).values():
            named = set(other.named.get(unit.name, ()))
            for value in other.code.values if named else ():
                if value.op == "call" and any(other.root(number) in named for number in value.args[1:]):
                    return True
        return False


def _described(node: ast.AST | None) -> frozenset[str]:
    """The words of what a function says of itself to its callers."""
    text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
    return words_in(text or "")


def _is_unpacked(changed: list[Edit], name: str) -> bool:
    """Whether the change wrote a statement that unpacks several values, of which this one must have some name."""
    nodes = [edit.new.node for edit in changed if edit.new is not None]
    targets = [each for node in nodes if isinstance(node, ast.Assign) for each in node.targets]
    several = [each for each in targets if isinstance(each, ast.Tuple | ast.List)]
    return any(isinstance(n, ast.Name) and n.id == name for each in several for n in ast.walk(each))


def _is_nothing(node: ast.AST, name: str) -> bool:
    """Whether all that a variable is given is None: nothing is computed."""
    stores = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(node))
    nones = [n for n in ast.walk(node) if isinstance(n, ast.Assign) and ast.unparse(n.value) == "None"]
    return stores == sum(isinstance(t, ast.Name) and t.id == name for each in nones for t in each.targets)


def _is_kept_only(node: ast.AST, last: ast.stmt) -> bool:
    """Whether a statement only gave its value to a variable that nothing read."""
    target = last.targets[0] if isinstance(last, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id not in _read(node)


def _is_only_filled(node: ast.AST, name: str) -> bool:
    """Whether all that is ever done with a variable is to put values into it."""
    reads = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(node))
    calls = (n.value for n in ast.walk(node) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call))
    called = [call.func for call in calls]
    owners = [f.value for f in called if isinstance(f, ast.Attribute) and f.attr in _FILLING]
    return reads == sum(isinstance(owner, ast.Name) and owner.id == name for owner in owners)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    args = node.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


def _of_loops(node: ast.AST) -> set[str]:
    """The variables of loops."""
    targets = [n.target for n in ast.walk(node) if isinstance(n, ast.For | ast.AsyncFor | ast.comprehension)]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _read(node: ast.AST) -> set[str]:
    """The names that are read in a part of the source; `x += 1` reads x."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}
    for each in ast.walk(node):
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
    return found
