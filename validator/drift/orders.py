"""The order of what a function does and the moments at which its ranks meet, and where a change turned it round.

What ranks share comes after a collective, what one rank prepares for the others before a barrier. A statement that a
change moves to the other side still runs, and works on what one rank alone has. So it is with the moment at which a
module is spread over ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair, Side
from validator.drift.file_orders import read_too_early
from validator.drift.statements.differences import Edit, Statement, in_head, own_paths
from validator.drift.statements.drops import Drops
from validator.drift.statements.named_effects import collective, sounds_collective, table
from validator.drift.statements.surroundings import called_names, condition, is_about_ranks, last_name, names_called
from validator.drift.statements.weakened import is_parallel
from validator.effects.files import Files
from validator.facts.model import At
from validator.finding import Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, numbers_of
from validator.models import models

_ASKING = frozenset({"exists", "isfile", "isdir", "listdir", "glob", "iterdir"})  # of files, without reading them
_STARTING = frozenset({"isend", "irecv", "batch_isend_irecv"})
_ASIDE = frozenset({"group", "src", "dst", "op", "async_op", "process_group"})  # arguments that are not transferred
_USES = ("binary", "compare", "item", "store_item", "store_attr", "call")


class Turned(NamedTuple):
    """A place that comes on the other side of a meeting of ranks than before the change. `text`: in words."""

    pair: Pair
    at: At
    before: str
    text: str
    severity: Severity | None = None


class Orders:
    """The places of a change whose order was turned round."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def turned(self) -> list[Turned]:
        found: list[Turned] = []
        for pair, old, new, edits in self.change.analysis(Drops).small:
            for each in _moved(old, new, edits):
                found += self._late(pair, each)
                found += _early(pair, each)
                found += _unshared(pair, each)
                found += _scaled(pair, each)
                found += _rewrapped(pair, each)
                found += self._unwritten(pair, each)
            if {each.at[0] for each in found if each.pair == pair}.isdisjoint(_lines(edits)):
                found += self._unmet(pair, edits)
        return found

    def _late(self, pair: Pair, moved: Moved) -> Iterator[Turned]:
        """A wait for transfers that came before statements which use what is transferred, and comes behind them now; a
        barrier, likewise, before statements that read or write files, themselves or, behind what one rank does for the
        others, in what they run. Either of both was moved."""
        if _waits(moved.statement):
            handed = _handed_over(moved.new[: moved.now + 1])
            for each in moved.passed_down():
                if self._needs(pair, moved, moved.statement, each, handed):
                    line = f"line {each.node.lineno}, `{_cut(each.text)}`"
                    yield _turned(pair, moved, f"this waits only behind {line}, which came after it before")
                    return
        for wait in filter(_waits, moved.passed_up()):
            handed = _handed_over(moved.new[: _index(moved.new, wait) + 1])
            if self._needs(pair, moved, wait, moved.statement, handed):
                line = f"line {wait.node.lineno}, `{_cut(wait.text)}`"
                yield _turned(pair, moved, f"this comes before {line}, which waits, and came behind it before")
                return

    def _unwritten(self, pair: Pair, moved: Moved) -> Iterator[Turned]:
        """What reads a file before the call that writes it, and did so behind it."""
        for reading, writing, part in read_too_early(self.change.after, pair.new, moved):
            line = f"line {writing.node.lineno}, `{_cut(writing.text)}`, which writes there"
            text = f"this reads what lies below `{part}` before {line}, and did so behind it"
            yield Turned(pair, pair.new.module.source_text.at(reading.node), reading.text, text)

    def _needs(self, pair: Pair, moved: Moved, wait: Statement, use: Statement, handed: frozenset[str]) -> bool:
        """Whether a statement needs what is waited for."""
        if not any("barrier" in name for name in _waits(wait)):
            return bool(_named_in(use.node) & handed)
        files = frozenset({*self.change.after.project.analysis(Files).names, *table()["writing"], *_ASKING})
        if names_called(use.node) & files:
            return True
        if not any(_of_some(each) for each in moved.directly_before(wait)):
            return False
        flow, queries = self.change.after.flow, self.change.after.project.analysis(Queries)
        lines = {each.lineno for each in in_head(use.node) if isinstance(each, ast.Call)}
        calls = (Place(flow, pair.new, number) for number in numbers_of(pair.new, ("call",)))
        run = [unit for call in calls if call.at[0] in lines for unit in queries.targets(call)]
        return any(not files.isdisjoint(called_names(unit)) for unit in queries.reached(run))

    def _unmet(self, pair: Pair, edits: list[Edit]) -> Iterator[Turned]:
        """What reads a variable before the collective that it came behind."""
        read = frozenset[str]().union(*(_names(each.old.node) for each in edits if each.old is not None))
        if not read & _reassigned(pair.old):
            return  # what the edited statements read is asked first: to follow a whole function takes its time
        before, after = (_readings(Place(side.flow, unit, 0), read) for side, unit in self._sides(pair))
        for key, use in before.items():
            now = after.get(key)
            if now is None or not use.met or now.met:
                continue
            names = sorted(use.met & _meetings(Place(self.change.after.flow, pair.new, 0), key[1]))
            if names:
                text = f"`{_cut(key[0])}` reads `{key[1]}` before `{names[0]}`, of which it read the result before"
                yield Turned(pair, now.place.at, key[0], text)

    def _sides(self, pair: Pair) -> tuple[tuple[Side, Unit], tuple[Side, Unit]]:
        return (self.change.before, pair.old), (self.change.after, pair.new)


class Moved(NamedTuple):
    """A statement that stands elsewhere in a function now, with all statements of both revisions. `kept`: the places
    of those that stand in both, before and now."""

    statement: Statement
    old: list[Statement]
    new: list[Statement]
    was: int
    now: int
    kept: list[tuple[int, int]]

    def passed_down(self) -> list[Statement]:
        """What came behind it before the change and comes before it now."""
        return [self.new[now] for was, now in self.kept if was > self.was and now < self.now]

    def passed_up(self) -> list[Statement]:
        """What came before it before the change and comes behind it now."""
        return [self.new[now] for was, now in self.kept if was < self.was and now > self.now]

    def directly_before(self, wait: Statement) -> list[Statement]:
        """The statements of the block that came right before a wait, before the change; without blocks the one."""
        place = _index(self.new, wait)
        was = next((was for was, now in self.kept if now == place), self.was)
        ahead = [each for each in self.old[:was] if each.text not in self.old[was].inside]
        outermost = ahead[-1].inside[:1] if ahead else ()
        return [each for each in ahead if outermost and each.inside[:1] == outermost] or ahead[-1:]


def _moved(old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Moved]:
    gone = [each.old for each in edits if each.old is not None and each.new is None]
    came = [each.new for each in edits if each.new is not None and each.old is None]
    kept = _kept(old, new, edits)
    for each in came:
        was = [other for other in gone if other.text == each.text]
        if len(was) == 1 and [other.text for other in came].count(each.text) == 1:
            yield Moved(each, old, new, _index(old, was[0]), _index(new, each), kept)


def _kept(old: list[Statement], new: list[Statement], edits: list[Edit]) -> list[tuple[int, int]]:
    """The places, before and now, of the statements that stand in both revisions."""
    edited = ({id(row.node) for each in edits if (row := each[side]) is not None} for side in (0, 1))
    same = (
        [n for n, s in enumerate(rows) if id(s.node) not in gone] for rows, gone in zip((old, new), edited, strict=True)
    )
    turned = [(_index(old, each.old), _index(new, each.new)) for each in edits if each.old and each.new]
    return sorted([*zip(*same, strict=True), *turned])


def _index(statements: list[Statement], statement: Statement) -> int:
    return next(index for index, each in enumerate(statements) if each.node is statement.node)


def _waits(statement: Statement) -> frozenset[str]:
    """The waits that a statement makes."""
    return frozenset(names_called(statement.node)) & frozenset(table()["waiting"])


def _early(pair: Pair, moved: Moved) -> Iterator[Turned]:
    """A barrier that came behind what some ranks do for all, and comes before that now."""
    if not any("barrier" in name or name == "wait_for_everyone" for name in names_called(moved.statement.node)):
        return
    waiting = frozenset(table()["waiting"]) | collective()
    later = [index for index, each in enumerate(moved.new) if index > moved.now and names_called(each.node) & waiting]
    for each in moved.passed_up():
        guarded = any((test := condition(head)) is not None and is_about_ranks(test) for head in each.inside)
        place = _index(moved.new, each)
        if guarded and names_called(each.node) and not any(index > place for index in later):
            text = (
                f"this waits before line {each.node.lineno}, `{_cut(each.text)}`, which only some ranks do, not behind"
            )
            yield _turned(pair, moved, text)
            return


def _unshared(pair: Pair, moved: Moved) -> Iterator[Turned]:
    """What some ranks do to something that a broadcast gives to all, and that comes behind the broadcast now: one of
    both was moved."""
    statement = moved.statement
    if guard := _of_some(statement):
        block = [each for each in moved.new if guard in each.inside]
        touched = frozenset[str]().union(*(_named_around(each, guard) for each in block))
        shared = (each for each in moved.passed_down() if _shares(each) and _named_around(each) & touched)
        first = next(shared, None) if statement.node is _last_call(block) else None  # told once, of the whole block
        if first is not None:
            yield _turned(pair, moved, f"only some ranks do this, behind {_shown(first)}")
    elif _shares(statement):
        for each in moved.passed_up():
            if (guard := _of_some(each)) and _named_around(each, guard) & _named_around(statement):
                text = f"only some ranks do this, behind {_shown(statement)}"
                yield Turned(pair, pair.new.module.source_text.at(each.node), each.text, text)
                return


def _shown(shared: Statement) -> str:
    return f"line {shared.node.lineno}, `{_cut(shared.text)}`, which came after it and gave all of them what it makes"


def _shares(statement: Statement) -> bool:
    """Whether a statement gives all ranks what one has."""
    return any(name in collective() and "broadcast" in name for name in names_called(statement.node))


def _of_some(statement: Statement) -> str:
    """The condition by which only some ranks come to a call; empty where all do."""
    tests = ((head, condition(head)) for head in statement.inside if names_called(statement.node))
    return next((head for head, test in tests if test is not None and is_about_ranks(test)), "")


def _last_call(block: list[Statement]) -> ast.stmt | None:
    """The last statement of a block that is there for what it does."""
    rows = [each.node for each in block if isinstance(each.node, ast.Expr) and isinstance(each.node.value, ast.Call)]
    return rows[-1] if rows else None


def _named_around(statement: Statement, guard: str = "") -> frozenset[str]:
    """The variables of a statement and of the loops around it; of those inside of a condition, if one is named."""
    heads = statement.inside[statement.inside.index(guard) + 1 if guard else 0 :]
    loops = [ast.parse(f"{head}: pass").body[0] for head in heads if head.startswith("for ")]
    return frozenset[str]().union(*(_names(each) for each in (statement.node, *loops))) - {"self"}


def _scaled(pair: Pair, moved: Moved) -> Iterator[Turned]:
    """What reads a number behind the statement that divides or multiplies it by a number of ranks, and read it before,
    or the other way round."""
    read = own_paths(moved.statement.node, ast.Load)
    for rows, word, was in ((moved.passed_down(), "behind", "before"), (moved.passed_up(), "before", "behind")):
        for each in rows:
            stored = own_paths(each.node, ast.Store) & read
            names = sorted(stored & _scaling(each.node))
            if names and not stored & own_paths(moved.statement.node, ast.Store):
                line = each.node.lineno
                text = f"this reads `{names[0]}` {word} line {line}, `{_cut(each.text)}`, and read it {was} it"
                yield _turned(pair, moved, text)
                return


def _rewrapped(pair: Pair, moved: Moved) -> Iterator[Turned]:
    """What works on the parameters of a module before it is wrapped, and did so behind it, or the other way round: a
    mend as often as a mistake, but no small thing. What is frozen before DDP sees it is not reduced, a module of which
    nothing is left to train it refuses; an optimizer that is made before parameters are sharded holds those of before.
    """
    worked_on = _parameters_of(moved.statement.node)
    ways = ((moved.passed_down(), "behind", "before"), (moved.passed_up(), "before", "behind"))
    for rows, word, was in ways if worked_on else ():
        for each in rows:
            call = next(
                (n for n in in_head(each.node) if isinstance(n, ast.Call) and last_name(n.func) in _wrappers()), None
            )
            given = {ast.unparse(n) for n in call.args if isinstance(n, ast.Name | ast.Attribute)} if call else set()
            if call is not None and (names := sorted(given & worked_on)):
                line = f"line {each.node.lineno}, where `{last_name(call.func)}` wraps it"
                text = f"this works on the parameters of `{names[0]}` {word} {line}, and did so {was} it"
                yield _turned(pair, moved, text)._replace(severity="note")
                return


@cache
def _wrappers() -> frozenset[str]:
    """The last names of the calls that spread a module over ranks."""
    rows = models().calls.items()
    return frozenset(name.rpartition(".")[2] for name, row in rows if row.wraps is not None or row.state is not None)


def _parameters_of(node: ast.stmt) -> frozenset[str]:
    """The modules of whose parameters a statement asks, or that it freezes."""
    calls = (each.func for each in in_head(node) if isinstance(each, ast.Call))
    asked = ("parameters", "named_parameters", "requires_grad_")
    owners = (each.value for each in calls if isinstance(each, ast.Attribute) and each.attr in asked)
    return frozenset(ast.unparse(each) for each in owners)


def _scaling(node: ast.stmt) -> frozenset[str]:
    """The variables and attributes that a statement makes anew out of themselves and a number of ranks."""
    if isinstance(node, ast.AugAssign):
        value: ast.AST = node.value
        names = own_paths(ast.Expr(node.target), ast.Store)
        return names if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv) and is_parallel(value) else frozenset()
    if not isinstance(node, ast.Assign):
        return frozenset()
    parts = [each for each in ast.walk(node.value) if isinstance(each, ast.BinOp)]
    scaled = any(isinstance(each.op, ast.Mult | ast.Div | ast.FloorDiv) and is_parallel(each) for each in parts)
    return own_paths(node, ast.Store) & own_paths(node, ast.Load) if scaled else frozenset()


def _turned(pair: Pair, moved: Moved, text: str) -> Turned:
    return Turned(pair, pair.new.module.source_text.at(moved.statement.node), moved.statement.text, text)


class _Reading(NamedTuple):
    place: Place
    met: frozenset[str]  # the collectives that the variable came out of


def _readings(unit: Place, names: frozenset[str]) -> dict[tuple[str, str], _Reading]:
    """What is made of variables, by its text and the variable, where that stands once."""
    found: dict[tuple[str, str], list[_Reading]] = {}
    for number in numbers_of(unit.unit, _USES):
        place = unit.value_at(number)
        for operand in place.value.args:
            name = unit.unit.variables.get(operand, "") if operand >= 0 else ""
            if name in names:
                found.setdefault((place.text, name), []).append(_Reading(place, _met(unit.value_at(operand), name)))
    return {key: rows[0] for key, rows in found.items() if len(rows) == 1}


def _met(place: Place, name: str) -> frozenset[str]:
    """The collectives that a variable came out of, on some way to here."""
    found: set[str] = set()
    seen, stack = {place.number}, [place]
    while stack:
        each = stack.pop()
        value = each.value
        call = each.operand(1) if value.op == "mut" else each
        if call.value.op == "call" and _is_given(call, name) and _is_meeting(call):
            found.add(call.method)
        fresh = value.args if value.op == "phi" else value.args[:1] if value.op == "mut" else ()
        stack += [each.value_at(number) for number in fresh if number not in seen]
        seen.update(fresh)
    return frozenset(found)


def _meetings(unit: Place, name: str) -> frozenset[str]:
    """The collectives that a variable is given to, or that it gets its value from."""
    calls = (unit.value_at(number) for number in numbers_of(unit.unit, ("call",)))
    return frozenset(call.method for call in calls if _is_given(call, name) and _is_meeting(call))


def _is_given(call: Place, name: str) -> bool:
    """Whether a call is given a variable as what it works on."""
    variables = call.unit.variables
    return any(variables.get(number) == name for number in call.value.args[1:2])


def _is_meeting(call: Place) -> bool:
    """Whether a call is a collective, runs one, or has the name of one."""
    return sounds_collective(call.method) or next(call.reached(), None) is not None


def _reassigned(unit: Unit) -> frozenset[str]:
    """The variables that calls change, or that are given what a call makes of them."""
    values, variables = unit.code.values, unit.variables
    found = set()
    for number in numbers_of(unit, ("call", "mut")):
        value = values[number]
        if value.op == "mut":
            found.add(variables.get(value.args[0], ""))
        elif (name := variables.get(number)) and name in map(variables.get, value.args[1:]):
            found.add(name)
    return frozenset(found) - {"", "self"}


def _lines(edits: list[Edit]) -> set[int]:
    nodes = [each.new.node for each in edits if each.new is not None]
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _names(node: ast.stmt) -> frozenset[str]:
    return frozenset(each.id for each in in_head(node) if isinstance(each, ast.Name))


def _named_in(node: ast.stmt) -> frozenset[str]:
    """The variables and attributes of which a statement speaks on its own lines."""
    return frozenset(
        ast.unparse(each)
        for each in in_head(node)
        if isinstance(each, ast.Attribute) or isinstance(each, ast.Name) and each.id != "self"
    )


def _handed_over(statements: list[Statement]) -> frozenset[str]:
    """What the transfers work on that some statements start without waiting."""
    found: set[str] = set()
    for statement in statements:
        for call in (each for each in in_head(statement.node) if isinstance(each, ast.Call)):
            starts = any(keyword.arg == "async_op" for keyword in call.keywords) or last_name(call.func) in _STARTING
            given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg not in _ASIDE)]
            for each in (node for part in given for node in ast.walk(part)) if starts else ():
                if isinstance(each, ast.Attribute) or isinstance(each, ast.Name) and each.id != "self":
                    found.add(ast.unparse(each))
    return frozenset(found)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
