"""What each rank had for itself by its number, and all ranks share since a change; and the other way round.

A file, a folder, a port, a seed or an entry of a cache is one for each rank because the rank stands in its name. A
change that leaves the rank out makes all of them write the same. Where one rank writes for all, the rank must not stand
there. With both revisions at hand the name of a rank is evidence enough.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Module
from validator.drift.change import Change, Pair, Side
from validator.drift.ranks import Ranks
from validator.drift.some_ranks import made_of
from validator.drift.statements.differences import Edit, Statement, in_head, paths, statements
from validator.drift.statements.drops import Drops, differences
from validator.drift.statements.intention import Intention
from validator.drift.statements.named_effects import tables
from validator.drift.statements.surroundings import RANKS, is_told, last_name
from validator.effects.files import Access, Files
from validator.facts.model import At
from validator.finding import Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.origins import returned, stores
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.random_draws import draws, rows_of

_WRITING = ("write", "append")
_NAMING = frozenset({"join", "binary", "call"})  # what puts a name or a number together


class Shared(NamedTuple):
    """A name that tells ranks apart no longer, or since the change. `text`: in words."""

    pair: Pair
    at: At
    before: str
    text: str
    severity: Severity = "warning"


class _Part(NamedTuple):
    """A part of a statement before and after the change."""

    pair: Pair
    edit: Edit
    old: ast.expr
    new: ast.expr
    was: Place
    now: Place


class ToldApart:
    """The names that a change made one for all ranks, or one for each."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._ranks: Ranks = change.analysis(Ranks)

    @cached_property
    def shared(self) -> list[Shared]:
        """The names in which a rank stands no longer, and by which all ranks write, or hold something, now."""
        known = {(id(row.pair), row.new.lineno) for row in self._ranks.exchanged}
        parts = [each for each in self._parts if _is_apart(each.was, each.old) and not _is_own(each.now, each.was)]
        parts = [each for each in parts if (id(each.pair), each.new.lineno) not in known]
        intention: Intention = self.change.analysis(Intention)
        found = []
        for each in parts:
            edits = [other.edit for other in parts if other.pair is each.pair]
            what = self._held(each) or (self._written(each) if _is_of_process(each.was) else "")
            words = frozenset(_ranks_in(each.was))
            severity = intention.severity(each.pair, edits, words - self._let_go(parts, each), frozenset(), True)
            if what and severity is not None:
                text = f"`{ast.unparse(each.new)}` is the same on all ranks since the change, {what}"
                found.append(_shared(each, text, severity))
        return found

    @cached_property
    def torn(self) -> list[Shared]:
        """The names in which a rank stands now, on one side alone of what writes a file and what reads it."""
        came = [each for each in self._parts if _is_apart(each.now, each.new) and not _ranks_in(each.was)]
        if not came:
            return []
        before, after = (_accesses(side) for side in (self.change.before, self.change.after))
        found: dict[Shared, None] = {}
        for key, written in before.items():
            if written.kind not in _WRITING or not written.name or key not in after:
                continue
            readers = (
                other for other, each in before.items() if each.kind not in _WRITING and each.name == written.name
            )
            for reader in readers:
                if reader in after and (row := _torn(came, after[key], after[reader])) is not None:
                    found[row] = None
        return list(found)

    @cached_property
    def _parts(self) -> list[_Part]:
        """The changed parts of statements in functions that speak of ranks."""
        found: list[_Part] = []
        for pair, _, _, edits in self.change.analysis(Drops).small:
            if not is_test(pair.new.path) and any(
                "rank" in word or "process" in word for unit in pair for word in unit.words
            ):
                for edit in edits:
                    if edit.old is not None and edit.new is not None and not _tells(edit.new.node):
                        found += self._of(pair, edit.old, edit.new)
        return found

    def _of(self, pair: Pair, before: Statement, now: Statement) -> Iterator[_Part]:
        edit = Edit(before, now)
        for old, new in differences(edit):
            if isinstance(old, ast.expr) and isinstance(new, ast.expr):
                places = (
                    self._place(side, unit, statement.node, part)
                    for side, unit, statement, part in (
                        (self.change.before, pair.old, before, old), (self.change.after, pair.new, now, new)
                    )
                )  # fmt: skip
                was, after = places
                if was is not None and after is not None:
                    yield _Part(pair, edit, old, new, was, after)

    def _place(self, side: Side, unit: Unit, statement: ast.stmt, part: ast.expr) -> Place | None:
        """The value that a part of a statement is; of a variable that another one is given, what stands for that."""
        number = self._ranks.number(unit, statement, part)
        if number < 0 and isinstance(statement, ast.Assign) and statement.value is part:
            names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
            lines = (n for name in names for n in unit.code.definitions.get(name, ()))
            number = next(iter(lines), -1)
        return Place(side.flow, unit, number) if number >= 0 else None

    def _written(self, part: _Part) -> str:
        """In words where all ranks write a file by a name; empty where none or one does."""
        for access in self.change.after.project.analysis(Files).accesses:
            if access.kind in _WRITING and _is_in(part.now, access):
                return "" if _is_of_some(access) else f"and line {access.place.at[0]} writes by it on all of them"
        writes = tables()["apart"]["writes"]
        name = next((each for each in _calls_given(part) if not _words(each).isdisjoint(writes)), "")
        return f"and `{name}` writes by it on all of them" if name and not _is_now_of_some(part) else ""

    def _held(self, part: _Part) -> str:
        """In words what each process needs for itself that is given the name."""
        words = tables()["apart"]["words"]
        name = next((each for each in _given_to(part) if not _words(each).isdisjoint(words)), "")
        return f"and `{name}` is given it, of which each rank had its own" if name and not _is_now_of_some(part) else ""

    def _let_go(self, parts: list[_Part], part: _Part) -> frozenset[str]:
        """The words for ranks that went in other functions in the same way: it is one mistake, not an intention."""
        others = [each for each in parts if each.pair is not part.pair]
        return frozenset(word for each in others for word in _ranks_in(each.was))


def _shared(part: _Part, text: str, severity: Severity) -> Shared:
    assert part.edit.old is not None
    return Shared(part.pair, part.pair.new.module.source_text.at(part.new), part.edit.old.text, text, severity)


def _torn(came: list[_Part], written: Access, read: Access) -> Shared | None:
    """A part in which a rank stands since the change, if it is in the name of one of two accesses of a file alone."""
    mine, other = (written, read) if written.apart else (read, written)
    part = next((each for each in came if _is_in(each.now, mine)), None)
    if part is None or mine.name == other.name or not mine.apart or other.apart:
        return None
    does, still = ("written", "reads") if mine is written else ("read", "writes")
    text = f"each rank has a name of its own here, by which the file is {does}; "
    return _shared(part, f"{text}line {other.place.at[0]} {still} `{other.name}`, as before the change", "warning")


def _is_now_of_some(part: _Part) -> bool:
    """Whether tests of the rank stand around a part since the change."""
    return bool(part.now.under) and not part.was.under


def _accesses(side: Side) -> dict[tuple[str, str, str, str, int], Access]:
    """The reads and writes of files by where they stand."""
    count: Counter[tuple[str, str, str, str]] = Counter()
    found = {}
    for access in side.project.analysis(Files).accesses:
        unit = access.place.unit
        key = (unit.path, unit.code.key, access.place.method, access.kind)
        place = (*key, count[key])
        found[place] = access
        count[key] += 1
    return found


def _is_in(place: Place, access: Access) -> bool:
    """Whether the path of a read or write is made of a value."""
    return any(part.root[1:] == place.root[1:] for written in access.written for part in _made_of(written))


def _is_of_some(access: Access) -> bool:
    """Whether tests of the rank, also such by name, stand around what reads or writes a file."""
    words = (word for test in access.place.tests for word in test.words)
    return bool(access.under) or any(not RANKS.isdisjoint(word.lower().split("_")) for word in words)


def _tells(node: ast.stmt) -> bool:
    """Whether a statement is there to tell people something."""
    return isinstance(node, ast.Expr | ast.Raise) and is_told(node)


def _is_apart(place: Place, part: ast.expr) -> bool:
    """Whether a name or number is put together with a rank."""
    return place.root.value.op in _NAMING and bool(_ranks_in(place)) and not isinstance(part, ast.Compare)


def _ranks_in(place: Place) -> dict[str, None]:
    """The ranks of which a value is made in its function, as the source calls them: to follow all of them would take
    its time."""
    found: dict[str, None] = {}
    for each in place.parts:
        ranks, name = each.flow.models.ranks, each.hint or each.unit.variables.get(each.number, "")
        if name in ranks["names"] | ranks["attributes"] or each.value.op == "call" and "rank" in name.split("_"):
            found[name] = None
    return found


def _is_of_process(place: Place) -> bool:
    """Whether a rank of which a value is made is that of a process: by its name, or because the file speaks of several
    processes. Matrices have ranks, too."""
    return set(_ranks_in(place)) != {"rank"} or _is_of_several(place.unit.module)


def _is_of_several(module: Module) -> bool:
    """Whether a file speaks of several processes."""
    return any(word in module.source.data for word in (b"distributed", b"world_size", b"num_processes", b"local_rank"))


def _is_own(place: Place, before: Place) -> bool:
    """Whether a value may be another one on each rank: by a rank, by what is asked of the process, by chance, or by a
    call of which nothing is known and that was not there before."""
    if place.varies("rank", "member") or any("rank" in each.hint.lower().split("_") for each in _made_of(place)):
        return True
    known = {each.text for each in _made_of(before)}
    calls = [each for each in _made_of(place) if each.value.op == "call"]
    if any(
        call.text not in known
        and returned(call) is None
        and not call.operand(0).val.of("ext")
        and not _is_builtin(call)
        for call in calls
    ):
        return True
    return any(
        draws(call) or any(row is not None and row.result == "own" for _, row in rows_of(call)) for call in calls
    )


def _is_builtin(call: Place) -> bool:
    """Whether a call is one of a function of Python, or of a method of a text."""
    return call.operand(0).value.op == "name" and hasattr(builtins, call.method) or hasattr(str, call.method)


def _made_of(place: Place) -> Iterator[Place]:
    """What a value is made of, also in what functions of the project give back and attributes hold."""
    stack, seen = [place], set()
    while stack:
        each = stack.pop()
        if (each.unit, each.number) in seen:
            continue
        seen.add((each.unit, each.number))
        yield each
        args = each.value.args[:1] if each.value.op == "mut" else each.value.args
        stack += [each.value_at(number) for number in args if number >= 0]
        if each.value.op == "call":
            stack += returned(each) or ()
        elif each.value.op == "attr":
            stack += stores(each)


def _given_to(part: _Part) -> Iterator[str]:
    """The names of what is given a part of a statement: variables, keys, keywords, functions."""
    assert part.edit.new is not None
    node = part.edit.new.node
    yield from _around(node, part.new)
    if isinstance(node, ast.Return):
        yield part.pair.new.name
    targets = node.targets if isinstance(node, ast.Assign) else []
    for target in targets:
        key = target.slice if isinstance(target, ast.Subscript) else None
        if isinstance(key, ast.Constant):
            yield str(key.value)
        yield last_name(target)


def _calls_given(part: _Part) -> Iterator[str]:
    """The names of the calls that are given a part of a statement, or a variable that is made of it."""
    assert part.edit.new is not None
    node = part.edit.new.node
    rows = statements(part.pair.new)
    targets = node.targets if isinstance(node, ast.Assign) else []
    made = frozenset[str]().union(*(made_of(rows, ast.unparse(each)) for each in targets))
    yield from _around(node, part.new)
    for call in (each for row in rows for each in in_head(row.node) if isinstance(each, ast.Call)):
        if any(not made.isdisjoint(paths(given)) for given in call.args):
            yield last_name(call.func)


def _around(node: ast.stmt, part: ast.expr) -> Iterator[str]:
    for call in (each for each in in_head(node) if isinstance(each, ast.Call)):
        for keyword in call.keywords:
            if any(each is part for each in ast.walk(keyword.value)):
                yield keyword.arg or ""
        if any(each is part for given in call.args for each in ast.walk(given)):
            yield last_name(call.func)
            yield last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _words(name: str) -> frozenset[str]:
    """The words of a name, in whatever way it is put together."""
    spaced = "".join(f"_{letter}" if letter.isupper() and not name.isupper() else letter for letter in name)
    return frozenset(spaced.lower().split("_"))
