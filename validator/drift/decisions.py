"""What all ranks decided alike, by what a collective gave them, and since a change each decides by what it has itself.

A loop that stops, a step that is left out, a learning rate that falls: what ranks do next must be the same on all of
them. Both revisions are asked what a condition is made of, or what is handed on. It counts where that came out of a
collective before, and is made of what each rank gave the collective now.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.spmd import UNIFORM
from validator.drift.change import Change, Pair, Side
from validator.drift.orders import Orders
from validator.drift.ranks import Ranks
from validator.drift.some_ranks import SomeRanks
from validator.drift.statements.differences import Edit, Statement, header
from validator.drift.statements.drops import Drops
from validator.drift.statements.effects import Effects
from validator.drift.statements.intention import Intention
from validator.drift.statements.named_effects import sounds_collective, table
from validator.drift.statements.surroundings import called, called_names, is_told, last_name, name_of_call
from validator.effects.reduced_values import contents, made_of
from validator.facts.model import At
from validator.finding import Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.models import Row

_FEW = 4  # edits of a function, beyond which it does something else now
_COMPUTED = frozenset({"call", "binary", "compare", "collect"})


class Decided(NamedTuple):
    """Something by which each rank decides for itself since a change. `line`: where the change wrote what it is made
    of; `by`: what gave it to all ranks before."""

    pair: Pair
    at: At
    line: int
    text: str
    by: str
    severity: Severity


class Decisions:
    """The decisions that ranks no longer make alike."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._effects: Effects = change.analysis(Effects)
        self._ranks: Ranks = change.analysis(Ranks)

    @cached_property
    def own(self) -> list[Decided]:
        found: list[Decided] = []
        turned = [row.pair for row in (*self.change.analysis(Orders).turned, *self.change.analysis(SomeRanks).unshared)]
        told = {id(pair) for pair in (*turned, *(each.pair for each in self._effects.lost if each.severity != "note"))}
        for pair, old, new, edits in self.change.analysis(Drops).small:
            if edits and _without_moved(edits) <= _FEW and id(pair) not in told and not is_test(pair.new.path):
                known = self.change.before.methods
                if any(name in known or self._may_meet(str(name)) for name in called_names(pair.old)):
                    rows = {row.by: row for row in reversed(list(self._of_pair(pair, old, new, edits)))}
                    found += rows.values()
        return found

    def _of_pair(self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Decided]:
        for before, now in _counterparts(old, new, edits):
            asked = (self._place(self.change.before, pair.old, before, part) for part in self._asked_in(before))
            was = [place for place in asked if place is not None]
            shared = [call for place in was for call in _sources(place) if self._gave_all(call)]
            for part in self._asked_in(now) if shared else ():
                place = self._place(self.change.after, pair.new, now, part)
                if place is None or self._is_of_all(place) or any(_spelled(each) == _spelled(place) for each in was):
                    continue
                by = next((call for call in shared if _is_made_of_given(place, call)), None)
                severity = self._severity(pair, now, by, edits) if by is not None else None
                if by is not None and severity is not None:
                    yield self._decided(pair, now, part, by, edits)._replace(severity=severity)
                    break

    def _asked_in(self, statement: Statement) -> list[ast.expr]:
        """The expressions by which a statement decides, or that it hands on; of a loop what it goes through, where
        ranks meet in its rounds."""
        node = statement.node
        if isinstance(node, ast.For):
            calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
            return [node.iter] if any(self._may_meet(last_name(each.func)) for each in calls) else []
        return _asked(node)

    def _place(self, side: Side, unit: Unit, statement: Statement, part: ast.expr) -> Place | None:
        """The value that a part of a statement is: of a test what is branched by."""
        at = (part.lineno, part.col_offset, part.end_lineno, part.end_col_offset)
        tests = (unit.code.blocks[block].end[1] for block, test in unit.code.tests.items() if test.test == at)
        number = next(tests, -1)
        if number < 0:
            number = self._ranks.number(unit, statement.node, part)
        return Place(side.flow, unit, number) if number >= 0 else None

    def _may_meet(self, name: str) -> bool:
        return self._effects.waits(name) or sounds_collective(name)

    def _gave_all(self, call: Place) -> bool:
        """Whether a call is a collective that gives all ranks the same, or a function of the project that does so by
        one."""
        if call.value.op != "call":
            return False
        site = call.result.sites.get(call.number)
        if site is None:
            return False
        rows = [operation.row for operation in site.operations]
        if any(row.equal is not None or row.result == "uniform" for row in rows):
            return True
        named = [target for target in site.targets if target.unit.name == call.method]
        inner = (operation.row for operation, _ in call.reached()) if named else ()
        return any(row.equal is not None or row.result == "uniform" for row in inner)

    def _is_of_all(self, place: Place) -> bool:
        """Whether a value may be the same on all ranks: by what is known of it, or by the calls that it is made of."""
        if UNIFORM in place.val.v:
            return True
        calls = (each for each in _sources(place, in_round=True) if each.value.op == "call")
        return any(self._may_meet(call.method) for call in calls) or any(map(self._gave_all, _sources(place)))

    def _severity(self, pair: Pair, now: Statement, by: Place, edits: list[Edit]) -> Severity | None:
        """What it is worth: nothing where people are only told, or the change has the collective elsewhere."""
        node = now.node
        if isinstance(node, ast.If | ast.While) and all(map(_only_tells, (*node.body, *node.orelse))):
            return None
        if isinstance(node, ast.Expr) and (is_told(node) or name_of_call(now) not in table()["deciding"]):
            return None
        intention: Intention = self.change.analysis(Intention)
        return intention.severity(pair, edits, frozenset({by.method}), frozenset(), True)

    def _decided(self, pair: Pair, now: Statement, part: ast.expr, by: Place, edits: list[Edit]) -> Decided:
        text = ast.unparse(part)
        does = "decides" if isinstance(now.node, ast.If | ast.While) else "is handed on"
        does = "decides how often ranks meet" if isinstance(now.node, ast.For) else does
        lines = [each.new.node.lineno for each in edits if each.new is not None and each.new.node is not now.node]
        near = [line for line in lines if line <= now.node.lineno]
        said = (
            f"`{text}` {does} here as each rank has it: before the change this was made of what `{by.method}` gave all"
        )
        at = pair.new.module.source_text.at(part)
        return Decided(pair, at, max(near, default=now.node.lineno), said, by.text, "warning")


def _spelled(place: Place) -> frozenset[str]:
    """How all is written of which a value is made."""
    return frozenset(each.text for each in place.sources)


def _counterparts(
    old: list[Statement], new: list[Statement], edits: list[Edit]
) -> Iterator[tuple[Statement, Statement]]:
    """The statements that decide or hand on, before and after: those that are as they were, that were edited, and
    conditions that moved, or of which what stands under them is as it was."""
    gone = [each.old for each in edits if each.old is not None]
    came = [each.new for each in edits if each.new is not None]
    kept = (
        [s for s in rows if not any(s.node is each.node for each in part)] for rows, part in ((old, gone), (new, came))
    )
    yield from (row for row in zip(*kept, strict=False) if _asked(row[1].node) or isinstance(row[1].node, ast.For))
    yield from (
        (each.old, each.new) for each in edits if each.old and each.new and type(each.old.node) is type(each.new.node)
    )
    alone = [each.old for each in edits if each.old and each.new is None and isinstance(each.old.node, ast.If)]
    for now in (each.new for each in edits if each.new and each.old is None and isinstance(each.new.node, ast.If)):
        same = [each for each in alone if each.text == now.text or _under(each.node) == _under(now.node)]
        yield from ((same[0], now) for _ in same[:1])


def _without_moved(edits: list[Edit]) -> int:
    """How many edits there are besides those by which a statement moved."""
    gone, came = ({row.text for each in edits if (row := each[side]) is not None} for side in (0, 1))
    return sum(any(row is not None and row.text not in gone & came for row in each) for each in edits)


def _under(node: ast.stmt) -> list[str]:
    return [header(each) for each in node.body] if isinstance(node, ast.If) else []


def _asked(node: ast.stmt) -> list[ast.expr]:
    """The expressions by which a statement decides, or that it hands on."""
    if isinstance(node, ast.If | ast.While):
        return list(_parts(node.test))
    if isinstance(node, ast.Return) and node.value is not None:
        return list(node.value.elts) if isinstance(node.value, ast.Tuple) else [node.value]
    call = called(node) if isinstance(node, ast.Expr) else None
    return [*call.args, *(keyword.value for keyword in call.keywords)] if call is not None else []


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    """What a condition asks, without `and`, `or`, `not` and comparisons."""
    if isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _parts(each)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        yield from (test.left, test.comparators[0])
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)
    else:
        yield test


def _sources(place: Place, in_round: bool = False) -> Iterator[Place]:
    """What a value is made of; calls that were given a variable count where they made it the same on all ranks.
    `in_round`: not what a loop goes through that gives the values of a round."""
    stack, seen = [place], {place.number}
    while stack:
        each = stack.pop()
        yield each
        args = each.value.args
        if each.value.op == "mut" and UNIFORM not in each.val.v:
            args = args[:1]
        if each.value.op == "next" and in_round:
            args = ()
        fresh = [number for number in args if number >= 0 and number not in seen]
        seen.update(fresh)
        stack += map(each.value_at, fresh)


def _is_made_of_given(place: Place, call: Place) -> bool:
    """Whether a value is made of what a collective was given before the change, or in the way of it; of a function,
    also of all that it was given."""
    sources = list(_sources(place))
    named = {each.text for each in sources}
    texts = {each.text for each in sources if each.value.op in _COMPUTED}
    operands = [call.operand(index) for index in range(1, len(call.value.args))]
    given = [*operands, *(tensor for meeting in _meetings(call) if (tensor := contents(*meeting)) is not None)]
    made = [part for each in given for part in _on_all_ways(each)]
    if any(part.text in texts for part in made if part.value.op in _COMPUTED and _may_differ(part)):
        return True
    if any(part.text in named for part in made if part.value.op == "attr"):
        return True
    if any(test.text in named for part in made for test in _chosen_by(part)):
        return True
    wanted = {each.text for each in operands if each.val.constant() is None}
    return bool(wanted) and any(
        wanted <= {each.text for each in _sources(part)} for part in sources if part.value.op == "call"
    )


def _may_differ(part: Place) -> bool:
    """Whether what a rank gave a collective may be another on each: it is known to be, or is asked of an object."""
    asked = (each for each in _sources(part) if each.value.op == "attr")
    return bool(part.val.v or part.val.n) or any(not _is_named(each.operand(0)) for each in asked)


def _is_named(place: Place) -> bool:
    """Whether a value is a module or something of a library, by its name."""
    return any(o[0] in ("ext", "module") for o in place.val.each)


def _on_all_ways(tensor: Place) -> Iterator[Place]:
    """The values from which alone a tensor is made, on whatever way."""
    stack, seen = [tensor], {tensor.number}
    while stack:
        for part, _ in made_of(stack.pop()):
            yield part
            fresh = [number for number in part.value.args if number not in seen] if part.value.op == "phi" else []
            seen.update(fresh)
            stack += map(part.value_at, fresh)


def _meetings(call: Place) -> Iterator[tuple[Place, Row]]:
    """The collectives that run in a call, with their rows in the tables."""
    yield from ((place, operation.row) for operation, place in call.reached())


def _chosen_by(part: Place) -> Iterator[Place]:
    """What decides which of two values stands within an expression: `1.0 if done else 0.0`."""
    first, last = part.value.at[:2], part.value.at[2:]
    for block, test in part.unit.code.tests.items():
        if test.kind == "ifexp" and first <= test.at[:2] and test.at[2:] <= last:
            yield part.value_at(part.unit.code.blocks[block].end[1])


def _only_tells(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or is_told(node)
