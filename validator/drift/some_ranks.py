"""What was the same on all ranks, and since a change is so no longer: for some values, or on some ranks.

A variable that every rank was given and one rank alone is given now, while all of them still read it; a measure that
was reduced along with others, and is handed on as each rank has it now, while the others are still reduced; a variable
that was made of what a collective gave all ranks, and is made of what each rank gave it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import NamedTuple

from validator.domains.spmd import UNIFORM
from validator.drift.change import Change, Pair
from validator.drift.statements.differences import Edit, Statement, in_head, node_of, own_paths, paths
from validator.drift.statements.drops import Drops
from validator.drift.statements.effects import Effects, line_of
from validator.drift.statements.named_effects import collective, sounds_collective
from validator.drift.statements.surroundings import (
    condition,
    has_other_way,
    is_about_ranks,
    is_alone,
    last_name,
    names_called,
)
from validator.finding import Severity
from validator.flow.queries.base import Place

_LEAVING = (ast.Return, ast.Continue, ast.Break)


class Unshared(NamedTuple):
    """A variable that all ranks had alike before a change. `line`: where that was, or what stands there now; `before`:
    the statement that did it; `text`: in words."""

    pair: Pair
    line: int
    before: str
    text: str
    severity: Severity = "warning"


class _Reduced(NamedTuple):
    """A variable that a statement gets from all ranks, and the function by which it does."""

    statement: Statement
    function: str
    name: str


class SomeRanks:
    """The variables that ranks no longer have alike."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._effects: Effects = change.analysis(Effects)

    @cached_property
    def unshared(self) -> list[Unshared]:
        found: list[Unshared] = []
        for pair, old, new, edits in self.change.analysis(Drops).small:
            found += self._given_to_some(pair, old, new, edits)
            found += self._reduced_in_part(pair, old, new, edits)
            found += self._made_of_own(pair, old, new, edits)
        return found

    # -- what only some ranks are given ----------------------------------------------------------------------

    def _given_to_some(
        self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]
    ) -> Iterator[Unshared]:
        """Variables that a call gave all ranks, and that it gives those alone which a test of the rank lets in now."""
        for before, now in _same_calls(old, new, edits):
            head = _guard(now)
            if not head or _guard(before) or has_other_way(new, head):
                continue
            common = _stored(before) & _stored(now)
            later = [each for each in new[_place(new, now) + 1 :] if head not in each.inside]
            made = common.union(*(made_of(later, name) for name in common))
            if any(self._shares(each, made) or _leaves(each) for each in later):
                continue
            lines = ((name, _line_read_by_all(pair, later, name)) for name in sorted(common))
            if (row := next((each for each in lines if each[1]), None)) is not None:
                text = f"`{row[0]}` gets this value only under `{head}` since the change, line {row[1]} reads it on all"
                yield Unshared(pair, now.node.lineno, before.text, f"{text} ranks")

    def _shares(self, statement: Statement, names: frozenset[str]) -> bool:
        """Whether a statement gives other ranks one of some variables: a collective, or a function in which ranks meet
        and whose result takes the place of the variable."""
        if not own_paths(statement.node, ast.Load) & names:
            return False
        called = names_called(statement.node)
        if any(name in collective() or sounds_collective(name) for name in called):
            return True
        return bool(_stored(statement) & names) and any(map(self._meets, called))

    def _meets(self, name: str) -> bool:
        """Whether ranks meet in a call by this name."""
        return self._effects.waits(name) or sounds_collective(name)

    # -- what is reduced in part -----------------------------------------------------------------------------

    def _reduced_in_part(
        self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]
    ) -> Iterator[Unshared]:
        """Variables that one function made alike, where it still does so for some of them, or what is made of these."""
        was, now = list(self._reduced(old)), list(self._reduced(new))
        gone = {id(each.old.node) for each in edits if each.old is not None}
        for function in sorted({row.function for row in was}):
            earlier = {row.name: row.statement for row in was if row.function == function}
            later = {row.name for row in now if row.function == function}
            given = [paths(part) for each in new for part in _given(each, function) if names_called(each.node)]
            made = {name: made_of(new, name) for name in earlier}
            still = {name for name in earlier if name in later or any(made[name] & each for each in given)}
            for name in sorted(earlier.keys() - still) if still else ():
                if id(earlier[name].node) in gone and (line := _handed_on(new, made[name])):
                    text = (
                        f"`{name}` goes on as each rank has it since the change (line {line}), while "
                        f"`{sorted(still)[0]}` still goes through `{function}`"
                    )
                    yield Unshared(pair, line_of(old, new, earlier[name]), earlier[name].text, text)

    def _reduced(self, rows: list[Statement]) -> Iterator[_Reduced]:
        """The variables that statements get from all ranks: `x = reduced(x)`, `dist.all_reduce(x)`, `x.all_reduce()`.
        Of a variable that goes through a row of others, these."""
        several: dict[str, list[str]] = {}
        for each in rows:
            node = each.node
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
                several[ast.unparse(node.target)] = [ast.unparse(part) for part in node.iter.elts]
            function, name = self._reduced_by(each)
            yield from (_Reduced(each, function, part) for part in several.get(name, [name]) if function)

    def _reduced_by(self, statement: Statement) -> tuple[str, str]:
        """The function through which a statement gets a variable from all ranks, and the variable; else empty."""
        node = statement.node
        call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
        if not isinstance(call, ast.Call):
            return "", ""
        function, of = last_name(call.func), call.args[0] if call.args else None
        if isinstance(of, ast.Name | ast.Attribute):
            if isinstance(node, ast.Assign):
                got = ast.unparse(of) in _stored(statement) and self._meets(function)
            else:
                got = function in collective()
            return (function, ast.unparse(of)) if got else ("", "")
        alone = isinstance(node, ast.Expr) and not call.args and not call.keywords
        owner = call.func.value if alone and isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name | ast.Attribute) and self._reduces_itself(function):
            return function, ast.unparse(owner)
        return "", ""

    def _reduces_itself(self, method: str) -> bool:
        """Whether a method by this name of a class of the project takes what all ranks have into its object."""
        methods = self.change.after.methods.get(method, ()) if self._meets(method) else ()
        units = (self.change.after.unit_of(each) for each in methods if each.cls is not None)
        return any(value.op == "store_attr" for unit in units if unit is not None for value in unit.code.values)

    # -- what is made of what each rank has ------------------------------------------------------------------

    def _made_of_own(
        self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]
    ) -> Iterator[Unshared]:
        """Variables that were made of what a collective gave all ranks, where the same statement makes them of what the
        collective was given. A warning where the function goes on by them; what is only told is a note."""
        for gone in (each.old for each in edits if each.old is not None and each.new is None):
            for shared, own in self._alike(pair, gone):
                for before, now in edits:
                    if before is None or now is None or not _stored(now) or _stored(before) != _stored(now):
                        continue
                    if shared in paths(before.node) and _with(before.node, shared, own) == ast.dump(now.node):
                        name = min(_stored(now))
                        decides = _decided_by(new[_place(new, now) + 1 :], name)
                        text = (
                            f"`{name}` was made of `{shared}`, which was the same on all ranks before the change: "
                            f"each rank makes it of its own `{own}` now{decides}"
                        )
                        yield Unshared(pair, now.node.lineno, gone.text, text, "warning" if decides else "note")

    def _alike(self, pair: Pair, statement: Statement) -> Iterator[tuple[str, str]]:
        """The variable to which a statement gives what a collective makes the same on all ranks, and that of which each
        rank gave the collective its own."""
        node = statement.node
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(call, ast.Call) or not self._meets(last_name(call.func)):
            return
        for name in sorted(_stored(statement)):
            for number in pair.old.code.definitions.get(name, ()):
                made = Place(self.change.before.flow, pair.old, number)
                if made.value.op == "call" and made.value.at[0] == node.lineno and UNIFORM in made.val.v:
                    given = (each for each in call.args if isinstance(each, ast.Name))
                    yield from ((name, each.id) for each in given)


def _with(node: ast.stmt, name: str, other: str) -> str:
    """The syntax of a statement in which another variable stands for one."""
    made = deepcopy(node)
    for each in ast.walk(made):
        if isinstance(each, ast.Name) and each.id == name:
            each.id = other
    return ast.dump(made)


def _decided_by(later: list[Statement], name: str) -> str:
    """In words how a variable, or what is made of it, decides what is done; empty where it does not."""
    made = made_of(later, name)
    for each in later:
        node = each.node
        test = node.test if isinstance(node, ast.If | ast.While | ast.Assert) else None
        counted = node.iter if isinstance(node, ast.For) else None
        bounds = [part for n in in_head(node) if isinstance(n, ast.Slice) for part in (n.lower, n.upper) if part]
        if test is not None and made & paths(test):
            return f", and line {node.lineno} decides by it"
        if counted is not None and made & paths(counted):
            return f", and line {node.lineno} goes round by it"
        if any(made & paths(part) for part in bounds):
            return f", and line {node.lineno} cuts by it"
    return ""


def _guard(statement: Statement) -> str:
    """The condition around a statement that lets some ranks in by their rank; empty where none does."""
    for head in statement.inside:
        test = condition(head)
        if test is not None and is_about_ranks(test) and not is_alone(test):
            return head
    return ""


def _same_calls(old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[tuple[Statement, Statement]]:
    """The calls whose results some variables get before and after, where the change wrote or moved them."""
    before, after = (Counter(each.text for each in rows) for rows in (old, new))
    earlier = {each.text: each for each in old}
    for now in new:
        if before[now.text] == after[now.text] == 1 and _call_taken(now):
            yield earlier[now.text], now
    gone = [edit.old for edit in edits if edit.old is not None and _call_taken(edit.old)]
    for came in (edit.new for edit in edits if edit.new is not None):
        alike = [each for each in gone if _call_taken(each) == _call_taken(came) and _stored(each) & _stored(came)]
        if len(alike) == 1 and alike[0].text != came.text:
            yield alike[0], came


def _place(rows: list[Statement], statement: Statement) -> int:
    return next(index for index, each in enumerate(rows) if each.node is statement.node)


def _call_taken(statement: Statement) -> str:
    """The name of the call whose result a statement gives to variables."""
    node = statement.node
    call = node.value if isinstance(node, ast.Assign) else None
    return last_name(call.func) if isinstance(call, ast.Call) else ""


def _stored(statement: Statement) -> frozenset[str]:
    targets = statement.node.targets if isinstance(statement.node, ast.Assign) else []
    nodes = (node for target in targets for node in ast.walk(target))
    return frozenset(
        ast.unparse(node)
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
    )


def _leaves(statement: Statement) -> bool:
    """Whether some ranks leave the function, or the round of a loop, here."""
    return isinstance(statement.node, _LEAVING) and bool(_guard(statement))


def _line_read_by_all(pair: Pair, later: list[Statement], name: str) -> int:
    """The line at which all ranks read a variable that one of them was given; 0 where none does: not where a condition
    asks for the variable itself, which tells those that have it."""
    for each in later:
        asked = any(name in paths(test) for head in each.inside if (test := condition(head)) is not None)
        if name in _stored(each):
            return 0
        if name in own_paths(each.node, ast.Load) and not _guard(each) and not asked and not _asks_for(each.node, name):
            return each.node.lineno
    return _read_in_functions(pair, name) if pair.new.code.kind == "module" else 0


def _asks_for(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.If) and name in paths(node.test)


def _read_in_functions(pair: Pair, name: str) -> int:
    """The line at which a function of the module reads a variable of its top level."""
    for node in ast.walk(node_of(pair.new) or ast.Pass()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == name]
            args = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
            if names and name not in args and all(isinstance(each.ctx, ast.Load) for each in names):
                return names[0].lineno
    return 0


def _given(statement: Statement, function: str) -> Iterator[ast.expr]:
    """What a statement passes to a function."""
    for node in in_head(statement.node):
        if isinstance(node, ast.Call) and last_name(node.func) == function:
            yield from node.args


def made_of(rows: list[Statement], name: str) -> frozenset[str]:
    """The variables that are made of one, or of what is made of it, and the objects whose methods are given such."""
    found = {name}
    before = 0
    while before != len(found):
        before = len(found)
        for each in rows:
            node = each.node
            if isinstance(node, ast.Assign | ast.AugAssign) and not found.isdisjoint(paths(node.value)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {ast.unparse(part) for target in targets for part in _leaves_of(target)}
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                given = [*call.args, *(keyword.value for keyword in call.keywords)]
                if any(not found.isdisjoint(paths(part)) for part in given):
                    found.add(ast.unparse(call.func.value))
    return frozenset(found)


def _leaves_of(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _leaves_of(each)
    elif isinstance(target, ast.Name | ast.Attribute):
        yield target
    elif isinstance(target, ast.Subscript):
        yield target.value


def _handed_on(rows: list[Statement], names: frozenset[str]) -> int:
    """The line at which a function gives back one of some variables, on all ranks."""
    for each in rows:
        if isinstance(each.node, ast.Return) and not names.isdisjoint(paths(each.node)) and not _guard(each):
            return each.node.lineno
    return 0
