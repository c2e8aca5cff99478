"""Functions that were alike: a statement, a default or a parameter that a change altered in one of them alone.

Twins are functions of one name (siblings of a family, versions of a module, recipes) and functions of one file that
share most of their statements. Who mends a formula or a guard in one of them mostly means all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.binding import misfit_of, parameters
from validator.definitions import Method
from validator.drift.change import Change, Pair, Side
from validator.drift.statements.differences import Edit, Statement, heads, similarity, statements
from validator.drift.statements.drops import Drops, between
from validator.drift.statements.intention import Intention, words_of
from validator.drift.statements.named_effects import collective, named
from validator.drift.statements.surroundings import called, is_report, last_name, own_head
from validator.drift.statements.weakened import is_parallel
from validator.facts.model import Param
from validator.finding import Severity
from validator.flow.callgraph.spelled_arguments import call_of
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test

_FEW = 2  # edits in a function, beyond which it is another one now
# What a formula, a guard or a call has more or less, or otherwise, where somebody mends or breaks it.
_MENDED = frozenset({"factor", "term", "number", "operand", "guard", "keyword", "sign", "comparison"})
_ALIKE = 0.5  # of the statements of two functions of one name, or of one file
_WORTH = 4  # names and operators in a statement that says something


class Left(NamedTuple):
    """A statement (or default) that a twin still has as it was here before the change. `line`: where it is here now."""

    pair: Pair
    line: int
    before: str
    now: str
    twin: Unit
    twin_line: int
    severity: Severity


class Untwinned(NamedTuple):
    """A parameter that a function lost and that the others of its name still have. `renamed`: what callers that choose
    among them pass in its place since the change; empty where they still pass it."""

    old: Method
    new: Method
    name: str
    twins: tuple[Method, ...]
    renamed: str = ""


class Twins:
    """What a change altered in one of several that agreed."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._statements: dict[Unit, list[Statement]] = {}

    def statements(self, unit: Unit) -> list[Statement]:
        known = self._statements.get(unit)
        if known is None:
            known = self._statements[unit] = statements(unit)
        return known

    @cached_property
    def left(self) -> list[Left]:
        found: list[tuple[Left, Edit]] = []
        for pair, old, _, edits in self.change.analysis(Drops).edited:
            if pair.new.code.kind == "function" and len(edits) <= _FEW:
                for edit in edits:
                    if edit.old is not None and _is_mend(edit) and says_something(edit.old.node):
                        found += ((each, edit) for each in self._of_edit(pair, old, edit))
                    elif edit.old is not None and edit.new is not None and _is_context(edit.old.node):
                        found += ((each, edit) for each in self._of_context(pair, edit.old, edit.new))
                    elif edit.old is not None and edit.new is not None and _is_meeting(edit):
                        found += ((each, edit) for each in self._of_meeting(pair, edit.old, edit.new))
                    elif edit.old is not None and edit.new is None and len(edits) == 1:
                        found += ((each, edit) for each in self._of_gone(pair, old, edit.old))
        rows = ((left, self._severity(left, edit)) for left, edit in found)
        return [left._replace(severity=severity) for left, severity in rows if severity is not None]

    def _severity(self, left: Left, edit: Edit) -> Severity | None:
        """What it is worth that a twin has a statement as it was: who mends one of two may mean one."""
        assert edit.old is not None
        unit = left.pair.new
        parts = heads(edit.old.node)
        about = any(map(is_parallel, parts)) or _is_context(edit.old.node) or _is_meeting(edit)
        words = frozenset[str]().union(*(words_of(part, unit) for part in parts))
        intention: Intention = self.change.analysis(Intention)
        return intention.severity(left.pair, [edit], frozenset(), words, about)

    def _of_edit(self, pair: Pair, old: list[Statement], edit: Edit) -> Iterator[Left]:
        assert edit.old is not None
        twins = [unit for unit in self._twins(pair) if similarity(old, self.statements(unit)) >= _ALIKE]
        if edit.new is not None and any(edit.new.text == s.text for unit in twins for s in self.statements(unit)):
            return  # the twins are of two kinds already, or were changed too
        for unit in twins:
            same = next((s for s in self.statements(unit) if s.text == edit.old.text), None)
            if same is not None:
                line = edit.new.node.lineno if edit.new is not None else pair.new.code.at[0]
                now = edit.new.text if edit.new is not None else ""
                yield Left(pair, line, edit.old.text, now, unit, same.node.lineno, "note")
                return

    def _of_context(self, pair: Pair, old: Statement, new: Statement) -> Iterator[Left]:
        """A context that other functions of the class or module enter as this one did before: save and load."""
        units = [unit for unit in self._twins(pair) if unit.module is pair.new.module and unit.cls is pair.new.cls]
        texts = [(unit, each) for unit in units for each in self.statements(unit)]
        if any(each.text == new.text for _, each in texts):
            return
        for unit, each in texts:
            if each.text == old.text:
                yield Left(pair, new.node.lineno, old.text, new.text, unit, each.node.lineno, "note")
                return

    def _of_meeting(self, pair: Pair, old: Statement, new: Statement) -> Iterator[Left]:
        """The same collective in another function of the class or module, which still takes it for the same."""
        for unit in self.change.after.units(pair.new.module).values():
            rows = self.statements(unit) if unit is not pair.new and unit.code.kind == "function" else []
            if any(each.text == new.text for each in rows):
                return
            for each in rows:
                if each.text == old.text:
                    yield Left(pair, new.node.lineno, old.text, new.text, unit, each.node.lineno, "note")
                    return

    def _of_gone(self, pair: Pair, old: list[Statement], gone: Statement) -> Iterator[Left]:
        """A statement about ranks or groups, the only one that went, which functions of the same name still have:
        versions of one function for several backends."""
        count = sum(each.text == gone.text for each in old)
        if count != 1 or not isinstance(gone.node, ast.Expr | ast.Assign | ast.AugAssign) or not is_parallel(gone.node):
            return
        for unit in self._twins(pair):
            rows = self.statements(unit)
            if unit.name != pair.new.name or similarity(old, rows) < _ALIKE:
                continue
            same = next((each for each in rows if each.text == gone.text), None)
            if same is not None:
                yield Left(pair, pair.new.code.at[0], gone.text, "", unit, same.node.lineno, "note")
                return

    def _twins(self, pair: Pair) -> Iterator[Unit]:
        """The other functions of the name of a changed one, and those of its class or module, as they are now."""
        side = self.change.after
        for method in side.methods.get(pair.new.name, ()):
            unit = side.unit_of(method)
            if unit is not None and unit is not pair.new and not is_test(unit.path) and not is_foreign(unit.path):
                yield unit
        for unit in side.units(pair.new.module).values():
            if unit.code.kind == "function" and unit is not pair.new and unit.name != pair.new.name:
                yield unit

    # -- parameters ----------------------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> list[Untwinned]:
        """Parameters that one of several functions of one name and one signature lost, while callers pass them."""
        found = []
        for pair in self.change.pairs:
            methods = pair.methods
            if pair.new.code.kind != "function" or methods is None or is_test(pair.new.path):
                continue
            old, new = methods
            gone = [p.name for p in old.facts.params if p.name not in {q.name for q in new.facts.params}]
            came = [p.name for p in new.facts.params if p.name not in {q.name for q in old.facts.params}]
            if len(gone) != 1 or len(old.facts.params) < 2:
                continue
            twins = tuple(self._alike(old, new, gone[0]))
            before, after = self.change.before, self.change.after
            if not twins:
                continue
            if not any(p.kind == "**" for p in new.facts.params) and _are_chosen(after, gone[0], twins[0], new):
                found.append(Untwinned(old, new, gone[0], twins))
            elif (
                len(came) == 1
                and _are_chosen(after, came[0], new, twins[0])
                and _are_chosen(before, gone[0], old, twins[0])
            ):
                found.append(Untwinned(old, new, gone[0], twins, came[0]))
        return found

    def _alike(self, old: Method, new: Method, gone: str) -> Iterator[Method]:
        """Functions that a caller may choose in place of a changed one, and that still have a parameter which that one
        lost: those of its name and signature, and the constructors of its file with most of its parameters."""
        names = _names(old.facts.params)
        for twin in self.change.after.methods.get(new.name, ()):
            if twin is new or is_test(twin.path):
                continue
            theirs = _names(twin.facts.params)
            near = twin.name == "__init__" and twin.path == new.path
            if theirs == names or near and gone in theirs and 2 * len(set(theirs) & set(names)) > len(names):
                yield twin


def _are_chosen(side: Side, keyword: str, method: Method, other: Method) -> bool:
    """Whether some call passes the keyword to a function that it only knows when it runs, and that may be this one as
    well as another one."""
    for row in side.occurrences(keyword):
        if row.kind != "keyword" or row.unit is None or is_test(row.path):
            continue
        for number, value in enumerate(row.unit.code.values):
            if (
                value.op == "call"
                and keyword in value.data.names
                and _may_choose(side, row.unit, number, method, other)
            ):
                return True
    return False


def _may_choose(side: Side, unit: Unit, number: int, method: Method, other: Method) -> bool:
    """Whether a call may be one of a method: through a value that is only known when it runs, or by its name on an
    object that may be of its class, with arguments that fit."""
    place = unit.code.values[number].args[0]
    callee = unit.code.values[place]
    if callee.op == "attr":
        own = unit.is_receiver(callee.args[0])
        if callee.data != method.name or callee.data == "__init__":
            return False
        if unit.method in (method, other):
            return False  # one of the two hands on to what it wraps
        if own and (unit.cls is None or not {method.cls, other.cls} <= set(unit.cls.relatives)):
            return False
        classes = () if own else side.classes_of(unit, place)
        kin = {each for cls in classes for each in cls.relatives}
        if classes and not {method.cls, other.cls} <= kin:
            return False
    elif callee.op not in ("param", "free", "phi", "call"):
        return False
    params = parameters(method)
    return params is None or misfit_of(params, call_of(unit, number)) is None


def _names(params: tuple[Param, ...]) -> tuple[str, ...]:
    return tuple(p.name for p in params)


def _is_mend(edit: Edit) -> bool:
    """Whether one part of a statement came, went, or is another number."""
    if edit.old is None or edit.new is None:
        return False
    gone, came = between(edit), between(Edit(edit.new, edit.old))
    if gone:
        return all(kind in _MENDED for kind, *_ in gone)
    return bool(came) and all(kind in _MENDED - {"keyword"} for kind, *_ in came)


def _is_meeting(edit: Edit) -> bool:
    """Whether a collective that a statement is makes something else of the same: `MIN` for `MAX`."""
    call = called(edit.old.node) if edit.old is not None else None
    changed = between(edit) if call is not None and last_name(call.func) in collective() else []
    return [kind for kind, *_ in changed] == ["name"] and all(_is_member(each) for each in changed[0][1:3])


def _is_member(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.isupper()


def _is_context(node: ast.stmt) -> bool:
    """Whether a statement enters a context in which something else is computed, and says how."""
    call = called(node) if isinstance(node, ast.With | ast.AsyncWith) else None
    return call is not None and len(call.args) + len(call.keywords) > 1 and last_name(call.func) in named()


def says_something(node: ast.stmt, worth: int = _WORTH) -> bool:
    """Whether a statement holds a formula, a condition or a call with arguments, and is no report to people. `worth`:
    how many names and operators it has at least."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass | ast.Global | ast.Raise):
        return False
    parts = [n for n in ast.walk(own_head(node)) if isinstance(n, ast.Name | ast.Attribute | ast.operator | ast.cmpop)]
    if len(parts) < worth:
        return False
    return not is_report(node)
