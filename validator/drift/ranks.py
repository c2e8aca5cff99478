"""What changed expressions tell of ranks: whose number they are, how many they count, whether ranks differ in them.

Both revisions are asked by the same analysis of values that the rules about ranks use, so that a name counts for what
it holds: `device = rank % torch.cuda.device_count()` is the number of a process within its host.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from validator.domains.axes import LOCAL, SOME, WHOLE, Axes
from validator.domains.spmd import UNIFORM, only
from validator.drift.change import Change, Pair, Side
from validator.drift.statements.differences import Edit, Statement, node_of
from validator.drift.statements.drops import Drops, differences
from validator.drift.statements.surroundings import called, is_told, last_name
from validator.flow.calls.groups import axes_in
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.substitution import instantiated

_WORDS = ("rank", "world_size", "process_index", "num_processes", "device_count")


class Told(NamedTuple):
    """`numbers`: the axes in which a rank is counted; `counts`: those whose ranks are counted; `differs`: whether ranks
    surely differ in the value by who they are; `same`: whether it is surely the same on all of them."""

    numbers: frozenset[Axes]
    counts: frozenset[Axes]
    differs: bool
    same: bool


class Exchanged(NamedTuple):
    """An expression that tells something else of ranks than the one that stood in its place. `text`: what."""

    pair: Pair
    edit: Edit
    old: ast.expr
    new: ast.expr
    text: str


class _Place(NamedTuple):
    """A call that went or came, and its statement."""

    pair: Pair
    statement: Statement
    call: ast.Call


class Ranks:
    """The expressions of a change that tell something else of ranks."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._values: dict[Unit, dict[tuple[int, ...], int]] = {}

    @cached_property
    def exchanged(self) -> list[Exchanged]:
        found: list[Exchanged] = []
        for pair, _, _, edits in self.change.analysis(Drops).small:
            if any(_is_word(name) for unit in pair for name in unit.words):
                for edit in edits:
                    found += self._of(pair, edit)
        return found + [row for before, after in self._moved() for row in self._of_call(before, after)]

    def _moved(self) -> Iterator[tuple[_Place, _Place]]:
        """The calls that went from one function and came into another one, with an argument about ranks that is
        written otherwise there."""
        gone: dict[str, list[_Place]] = {}
        came: dict[str, list[_Place]] = {}
        for pair, _, _, edits in self.change.analysis(Drops).edited:
            for edit in edits:
                for statement, other, into in ((edit.old, edit.new, gone), (edit.new, edit.old, came)):
                    call = called(statement.node) if statement is not None and other is None else None
                    if statement is not None and call is not None and any(map(_speaks_of_rank, call.args)):
                        into.setdefault(ast.unparse(call.func), []).append(_Place(pair, statement, call))
        for name in sorted(gone.keys() & came.keys()):
            before, after = gone[name], came[name]
            if len(before) == len(after) == 1 and before[0].pair is not after[0].pair:
                yield before[0], after[0]

    def _of_call(self, before: _Place, after: _Place) -> Iterator[Exchanged]:
        """The arguments of a call that tell something else of ranks in the function into which it was moved."""
        if len(before.call.args) != len(after.call.args):
            return
        for old, new in zip(before.call.args, after.call.args, strict=True):
            was = self._told(self.change.before, before.pair.old, before.statement.node, old)
            now = self._told(self.change.after, after.pair.new, after.statement.node, new)
            if ast.dump(old) == ast.dump(new) or was is None or now is None or not was.numbers or not now.numbers:
                continue
            if text := _exchange(was, now, after.statement.node, new):
                yield Exchanged(after.pair, Edit(before.statement, after.statement), old, new, text)

    def _of(self, pair: Pair, edit: Edit) -> Iterator[Exchanged]:
        if edit.old is None or edit.new is None or is_told(edit.new.node):
            return
        changed = differences(edit)
        if len(changed) > 2:
            return
        for old, new in changed:
            if not isinstance(old, ast.expr) or not isinstance(new, ast.expr):
                continue
            if not (_may_tell(pair.old, edit.old.node, old) or _may_tell(pair.new, edit.new.node, new)):
                continue  # to ask what values are takes a walk through what the function calls
            if _is_of_device(pair.new, edit.new.node, new):
                continue
            ways = zip(_around(edit.old.node, old), _around(edit.new.node, new), strict=False)
            for one, other in ways:
                before = self._told(self.change.before, pair.old, edit.old.node, one)
                after = self._told(self.change.after, pair.new, edit.new.node, other)
                if before is None or after is None:
                    continue
                if text := _exchange(before, after, edit.new.node, other):
                    yield Exchanged(pair, edit, one, other, text)
                if text or before.numbers or after.numbers or before.counts or after.counts:
                    break

    def _told(self, side: Side, unit: Unit, statement: ast.stmt, expression: ast.expr) -> Told | None:
        number = self.number(unit, statement, expression)
        if number < 0:
            return None
        number = unit.root(number)
        # a parameter is what its name says: to ask all callers would be to run through the project
        value = instantiated(
            Place(side.flow, unit, number).val, lambda position: side.flow.parameters.assumed(unit, position)
        )
        numbers = frozenset(frozenset(o[2]) for o in value.of("ordinal"))
        if not numbers and unit.code.values[number].op == "attr":
            told = only(Place(side.flow, unit, number).closed.v, "rank")  # of a namespace that is handed on
            numbers = frozenset({frozenset({LOCAL})}) if {c.axis for c in told} == {LOCAL} else numbers
        counts = frozenset(axes_in(o[1]) for o in value.of("size"))
        differs = any(c.kind in ("rank", "member") and not c.some for c in value.v) and UNIFORM not in value.v
        site = side.flow.result(unit).sites.get(number)
        does = site is not None and bool(
            site.targets
        )  # what a function of the project gives back tells not what it does
        constant = bool(value.objs) and all(o[0] == "const" for o in value.each) and not (does and value.is_const(None))
        return Told(
            numbers, counts, differs, not value.v - {UNIFORM} and (UNIFORM in value.v or constant or bool(counts))
        )

    def number(self, unit: Unit, statement: ast.stmt, expression: ast.expr) -> int:
        """The value that an expression is; of a variable what stands for it where it is used. -1: none."""
        known = self._values.get(unit)
        if known is None:
            known = self._values[unit] = {}
            for number, value in enumerate(unit.code.values):
                earlier = known.setdefault(value.at, number)
                if _stands_for(value.op, unit.code.values[earlier].op):
                    known[value.at] = number
        if not isinstance(expression, ast.Name) and (number := known.get(_at(expression), -1)) >= 0:
            return number
        for parent in ast.walk(statement):
            for place, child in _operands(parent):
                if child is expression and (number := known.get(_at(parent), -1)) >= 0:
                    value = unit.code.values[number]
                    if isinstance(place, str):
                        names = value.data.names if value.op == "call" else ()
                        place = 1 + names.index(place) if place in names else len(value.args)
                    return value.args[place] if place < len(value.args) else -1
        return -1


def _around(statement: ast.stmt, expression: ast.expr) -> list[ast.expr]:
    """An expression and those around it, from the inside outwards."""
    inside = {id(expression)}
    found = [expression]
    rows = [node for node in ast.walk(statement) if isinstance(node, ast.expr | ast.keyword)]
    for node in reversed(rows):  # what is inside comes before what is around it
        if id(node) not in inside and any(id(child) in inside for child in ast.iter_child_nodes(node)):
            inside.add(id(node))
            found += [node] if isinstance(node, ast.expr) else []
    return found


def _stands_for(op: str, earlier: str) -> bool:
    """Whether a value stands for an expression, and an earlier one at its place does not: the bound of a slice that is
    left out, the first text of a formatted one, a variable that a loop goes round with."""
    return op in ("slice", "join") and earlier == "const" or earlier == "phi" and op not in ("phi", "mut")


def _at(node: ast.AST) -> tuple[int, ...]:
    return (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _operands(node: ast.AST) -> Iterator[tuple[Any, ast.expr]]:
    """The parts of an expression, with their place among the operands of its value; of keywords with their name."""
    if isinstance(node, ast.BinOp):
        yield from enumerate((node.left, node.right))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from enumerate((node.left, *node.comparators))
    elif isinstance(node, ast.Subscript):
        yield from enumerate((node.value, node.slice))
    elif isinstance(node, ast.Attribute | ast.UnaryOp):
        yield 0, node.value if isinstance(node, ast.Attribute) else node.operand
    elif isinstance(node, ast.Tuple | ast.List):
        yield from enumerate(node.elts)
    elif isinstance(node, ast.Call):
        yield from enumerate(node.args, 1)
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)


def _is_word(name: str) -> bool:
    return any(word in name.lower() for word in _WORDS)


def _speaks_of_rank(value: ast.expr) -> bool:
    return any(_is_word(last_name(n)) for n in ast.walk(value) if isinstance(n, ast.Name | ast.Attribute))


def _may_tell(unit: Unit, statement: ast.stmt, expression: ast.expr) -> bool:
    """Whether an expression, what is right around it, or what its variables were made of, names a rank or a number of
    ranks."""
    function = node_of(unit)
    made: dict[str, list[ast.expr]] = {}
    for each in (n for n in ast.walk(function) if isinstance(n, ast.Assign)) if function is not None else ():
        for target in each.targets:
            for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                made.setdefault(name, []).append(each.value)
    stack: list[ast.expr] = list(_around(statement, expression)[:3])
    seen: set[str] = set()
    while stack:
        for node in ast.walk(stack.pop()):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            name = last_name(node) if isinstance(node, ast.expr) and not text else text
            if _is_word(name):
                return True
            if isinstance(node, ast.Name) and name not in seen:
                seen.add(name)
                stack += made.get(name, ())
    return False


def _exchange(before: Told, after: Told, statement: ast.stmt, new: ast.expr) -> str:
    """What an expression tells of ranks that the one before it did not; empty where that is the same, or not known."""
    was, now = before.numbers, after.numbers
    if was and now and not was & now and (_are_known(was, now) or now == {WHOLE}):
        return f"this is the number of a rank {_among(now)}, and was one {_among(was)} before the change"
    was, now = before.counts, after.counts
    if was and now and not was & now and _are_known(was, now):
        return f"this is the number of ranks {_among(now)}, and was that {_among(was)} before the change"
    if isinstance(statement, ast.If | ast.While):
        return ""
    if before.differs and after.same:
        return "this told ranks apart before the change, and is the same on all of them now"
    if before.same and after.differs and _is_index(statement, new):
        return "all ranks took the same before the change, each takes another one now"
    return ""


def _are_known(*several: frozenset[Axes]) -> bool:
    return all(axes and not axes & SOME for each in several for axes in each)


def _among(several: frozenset[Axes]) -> str:
    axes = frozenset(axis for each in several for axis in each)
    if axes == WHOLE:
        return "of the whole job"
    if axes & SOME:
        return "within a group"
    return "within a host" if axes == {LOCAL} else f"along {', '.join(sorted(axes))}"


def _is_index(statement: ast.stmt, expression: ast.expr) -> bool:
    """Whether an expression says which element of something is taken."""
    return any(isinstance(node, ast.Subscript) and node.slice is expression for node in ast.walk(statement))


def _is_of_device(unit: Unit, statement: ast.stmt, expression: ast.expr) -> bool:
    """Whether an expression, or the variable that it gives its value, says which device is meant: there the number
    within a host is right."""
    if any(part is expression for said in _devices(statement) for part in ast.walk(said)):
        return True
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    function = node_of(unit)
    given = (part for said in _devices(function) for part in ast.walk(said)) if function is not None else ()
    return any(isinstance(part, ast.Name) and part.id in names for part in given)


def _devices(node: ast.AST) -> Iterator[ast.expr]:
    """What calls are given as the device."""
    for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
        said = [*((last_name(call.func), each) for each in call.args), *((k.arg or "", k.value) for k in call.keywords)]
        yield from (given for name, given in said if "device" in name or name == "cuda")
