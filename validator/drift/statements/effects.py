"""Calls made for what they do, that a change took out of a function or put under a condition.

What a function does is its statements that are calls whose result nobody takes, its `with` blocks and its checks. The
rest of the function must stay as it was: of a function that is written anew nothing is said. An effect that turns up
elsewhere in the change has moved and is not lost.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from validator.drift.change import Change, Pair
from validator.drift.statements import exits, narrowed
from validator.drift.statements.differences import (
    Edit,
    Statement,
    heads,
    in_head,
    matcher,
    node_of,
    paths,
    statements,
)
from validator.drift.statements.drops import MUCH, Drops
from validator.drift.statements.intention import Intention, words_of
from validator.drift.statements.named_effects import (
    filling,
    firsts,
    is_of_tables,
    meeting,
    named,
    table,
    tables,
)
from validator.drift.statements.several import Several
from validator.drift.statements.surroundings import (
    BRANCHES,
    CONTEXTS,
    RANKS,
    called,
    called_names,
    condition,
    conditions,
    conjuncts,
    depth,
    exclude,
    goes_with_its_case,
    has_other_way,
    is_about_sizes,
    is_alone,
    is_guard,
    is_less_guarded,
    is_mode,
    is_needed,
    is_report,
    knows,
    last_name,
    lets_all_in,
    name_of_call,
    taken,
)
from validator.drift.statements.weakened import is_parallel
from validator.finding import Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, numbers_of
from validator.flow.queries.outside_program import is_test

_SEVERAL = 2  # functions that do the same: no chance
_FEW = 3  # edits in a function, beyond which it does something else now


class Lost(NamedTuple):
    """An effect that a function has no longer on some way, or in another order.

    `kind`: `call`, `context`, `decorator`, `check`, `guard` (a condition that stood around what is there still),
    `order`, `exit` (a way leaves before it), `each` (it happens for one of several things), `fewer` (it happens for all
    but one of several), `extracted` (the statements around it went into a function without it). `condition`: under
    which it still happens; of `order` the call that it now comes before or after, of `exit` what leaves, of `each` the
    several, of `fewer` what is left out, of `extracted` where it was before. `words`: of `fewer` those that tell what
    is left out.
    """

    pair: Pair
    statement: Statement
    kind: str
    name: str
    line: int
    condition: str
    severity: Severity = "note"
    words: frozenset[str] = frozenset()


class Effects:
    """The effects that a change took away."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.drops: Drops = change.analysis(Drops)
        self.intention: Intention = change.analysis(Intention)
        self.several: Several = change.analysis(Several)

    @cached_property
    def lost(self) -> list[Lost]:
        found: list[Lost] = []
        few = sum(len(edits) for *_, edits in self.drops.edited) <= MUCH
        for pair, old, new, edits in self.drops.small:
            gone = [edit for edit in edits if edit.old is not None and edit.new is None]
            if len(edits) <= _FEW and not _is_block(gone):
                plain = [edit for edit in gone if edit.old and not isinstance(edit.old.node, CONTEXTS)]
                plain = [edit for edit in plain if len(gone) == len(edits) or few and is_of_tables(edit.old, pair.new)]
                found += self._removed(pair, old, new, plain, edits)
                found += self._only_on_one(pair)
            found += self._uncovered(pair, old, new, edits)
            if not edits:
                found += _sunk(pair, old, new)
            found += _conditional(pair, old, new, edits)
            found += self._deeper_collectives(pair, old, new, edits)
            found += self._reordered(pair, old, new, edits)
            found += self._overtaken(pair, old, new, edits)
            found += self._narrowed(pair, old, new, edits)
            found += _for_one(pair, old, new, edits)
            found += self._on_fewer(pair, old, new, edits)
            found += _undecorated(pair, new)
        changed = {id(pair): edits for pair, _, _, edits in self.drops.small}
        found = [each for each in found if not _is_asked_for(each)]
        rows = ((each, self._severity(each, changed[id(each.pair)])) for each in found)
        return _once([each._replace(severity=severity) for each, severity in rows if severity is not None])

    def _severity(self, lost: Lost, edits: list[Edit]) -> Severity | None:
        """What a loss is worth: of a call its name tells what went, of a condition all that it asks."""
        node, unit = lost.statement.node, lost.pair.new
        if lost.kind == "fewer":
            heads_of = lost.statement.inside
            own = [
                edit
                for edit in edits
                if any(lost.name in exits.names(each) or each.text in heads_of for each in edit if each is not None)
            ]
            return self.intention.severity(lost.pair, own, lost.words, frozenset(), True)
        along = _moved(edits) if lost.kind == "exit" else frozenset()
        own = [
            edit for edit in edits if any(_is_of(lost, each) or each.text in along for each in edit if each is not None)
        ]
        own += _now_first(lost) if lost.kind == "guard" else []
        words = frozenset[str]().union(*(words_of(part, unit) for part in heads(node)))
        telling = words if lost.kind in ("guard", "check", "store") else frozenset({lost.name})
        came = (part for each in own if each.new is not None for part in heads(each.new.node))
        about = (
            lost.kind == "guard"
            or lost.name in named()
            and lost.name not in tables()["effects"]["precision"]
            or lost.name in self._waiting
            or any(map(is_parallel, heads(node)))
            or self._is_of_rank_library(lost)
            or lost.kind == "call"
            and self._is_kept_elsewhere(lost)
        )
        beside = words.union(*(words_of(part, unit) for part in came))
        return self.intention.severity(lost.pair, own, telling, beside, about)

    def _is_kept_elsewhere(self, lost: Lost) -> bool:
        """Whether several other functions still make the call right before the statement that followed it here."""
        before = [each.text for each in statements(lost.pair.old)]
        followed = dict(pairwise(before)).get(lost.statement.text, "")
        others = 0
        for source in self.change.after.mentioning(lost.name):
            module = self.change.after.project.modules.get(source.absolute)
            for unit in self.change.after.units(module).values() if module and not is_test(source.path) else ():
                if lost.name in unit.named and unit is not lost.pair.new:
                    rows = [each.text for each in statements(unit)]
                    others += (lost.statement.text, followed) in pairwise(rows)
        return others >= _SEVERAL

    def _only_on_one(self, pair: Pair) -> Iterator[Lost]:
        """A function that waits for other ranks, and that a decorator lets only one of them into since the change."""
        fresh = [name for name in _decorators(pair.new) - _decorators(pair.old) if _is_of_one_rank(name)]
        waits = [name for name in called_names(pair.new) if self.waits(name)]
        if fresh and waits and pair.new.code.kind == "function" and (rows := statements(pair.new)):
            statement = next((each for each in rows if waits[0] in taken(each.node)), rows[0])
            yield Lost(pair, statement, "call", waits[0], pair.new.code.at[0], f"@{fresh[0]}")

    def _uncovered(self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
        """Contexts and guards that went while all that stood in them is still there."""
        here = {each.text for each in new}
        for edit in edits:
            if edit.old is None or edit.new is not None:
                continue
            inside = [each.text for each in old if edit.old.text in each.inside]
            if (is_mode(edit.old, here) or lets_all_in(edit.old, old, new)) and len(edits) <= _FEW:
                yield Lost(pair, edit.old, "guard", edit.old.text, line_of(old, new, edit.old), "")
            if not inside or not here.issuperset(inside):
                continue
            if isinstance(edit.old.node, CONTEXTS):
                kind, name = self._effect(edit.old, pair)
                if name and name not in _decorators(pair.new) and not any(f"{name}(" in text for text in here):
                    yield Lost(pair, edit.old, kind, name, line_of(old, new, edit.old), "")
            elif len(edits) <= _FEW and self._is_let_go(edit.old.node, old, new, inside):
                yield Lost(pair, edit.old, "guard", edit.old.text, line_of(old, new, edit.old), "")

    def _is_let_go(self, node: ast.stmt, old: list[Statement], new: list[Statement], inside: list[str]) -> bool:
        """Whether what stood under a condition runs now on ranks, or in steps, that it kept out."""
        if is_guard(node, old, new, inside):
            return not self._are_waited_for([each for each in new if each.text in inside], node)
        return _is_of_last_step(node, old, new, inside)

    def _are_waited_for(self, rows: list[Statement], guard: ast.stmt) -> bool:
        """Whether what left a condition that let one rank in are calls that all ranks must make: there it hung."""
        test = guard.test if isinstance(guard, ast.If) else None
        if test is None or any(isinstance(n, ast.In | ast.NotIn | ast.NotEq | ast.Lt | ast.Gt) for n in ast.walk(test)):
            return False
        asked = {ast.unparse(each) for each in conjuncts(test)}
        free = [each for each in rows if not asked <= conditions(each)]
        return bool(free) and all(any(map(self._is_awaited, exits.names(each))) for each in free)

    def _deeper_collectives(
        self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]
    ) -> Iterator[Lost]:
        """Calls that wait for other ranks, whose result is taken, and that moved under a condition which was there."""
        heads = {each.text for each in old if isinstance(each.node, ast.If)}
        for statement in new if len(edits) <= _FEW + 1 else ():
            if called(statement.node) is not None:
                continue
            for name in taken(statement.node):
                if not self.waits(name):
                    continue
                before, after = ([each for each in rows if name in taken(each.node)] for rows in (old, new))
                if len(before) != 1 or len(after) != 1:
                    continue
                added = [
                    h for h in statement.inside if h.startswith("if ") and h not in before[0].inside and h in heads
                ]
                if added and not any(has_other_way(new, head) for head in added):
                    yield Lost(pair, statement, "call", name, statement.node.lineno, added[-1])

    def _reordered(self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
        """Effects that come before or after another one with which they changed places."""
        if len(edits) > _FEW + 1:
            return
        gone = {edit.old.text for edit in edits if edit.old is not None and edit.new is None}
        came = {edit.new.text: edit.new for edit in edits if edit.new is not None and edit.old is None}
        for text in sorted(gone & set(came)):
            call = called(came[text].node)
            if call is None or not self.is_effect(last_name(call.func)):
                alone = call is not None and len(edits) == 2 and not is_report(came[text].node)
                if alone and (condition := _deeper(old, new, text)):
                    yield Lost(pair, came[text], "call", name_of_call(came[text]), came[text].node.lineno, condition)
                if (late := _late(old, new, text)) is not None:
                    yield Lost(pair, late, "order", name_of_call(late), late.node.lineno, f"after `{text}`")
                continue
            context = isinstance(came[text].node, CONTEXTS)
            if not context and (condition := _deeper(old, new, text)) and last_name(call.func) in named():
                yield Lost(pair, came[text], "call", last_name(call.func), came[text].node.lineno, condition)
                continue
            if _is_turned_round(_round(old, text), _round(new, text)):
                continue
            before, after = _around(old, text), _around(new, text)
            for other in sorted(before[0] & after[1] | before[1] & after[0]):
                place = "before" if other in after[1] else "after"
                yield Lost(
                    pair, came[text], "order", last_name(call.func), came[text].node.lineno, f"{place} `{other}`"
                )
                break

    def _overtaken(self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
        """Effects before which the function may be left now, and was not before."""
        if len(edits) > 2 * _FEW:
            return
        others = frozenset((*table()["waiting"], *table()["writing"]))  # what others wait for, or read
        waits = frozenset(
            name for each in new for name in exits.names(each) if self._is_awaited(name) or name in others
        )
        awaited = frozenset(name for name in waits if self._is_awaited(name))
        came = list(exits.came(new, edits, awaited & meeting())) or exits.came(new, edits, awaited)  # the surest first
        ways = (*exits.moved(old, new, waits), *came, *exits.uncaught(old, new, waits))
        for row in ways:
            name = name_of_call(row.effect) or next(iter(sorted(exits.names(row.effect) & waits)))
            yield Lost(pair, row.effect, "exit", name, row.exit.node.lineno, row.text)

    def _narrowed(self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
        """Calls that wait for other ranks, behind a condition that asks for more than it did: of an `if`, or within an
        expression (`done and any_rank(done)`)."""
        for edit in edits if len(edits) <= _FEW else ():
            if edit.old is None or edit.new is None:
                continue
            added = narrowed.added(edit.old.node, edit.new.node)
            if (
                added is not None
                and knows(old, pair, added)
                and not is_alone(added)
                and not has_other_way(new, edit.new.text)
            ):
                inside = (each for each in new if edit.new.text in each.inside)
                rows = ((each, name) for each in inside for name in sorted(exits.names(each)))
                for statement, name in rows:
                    if self.waits(name):
                        yield Lost(pair, statement, "call", name, edit.new.node.lineno, edit.new.text)
                        break
            for call, test in narrowed.shortcuts(edit.old.node, edit.new.node):
                name = last_name(call.func)
                if self.waits(name):
                    row = Statement(ast.unparse(call), edit.new.node, ())
                    yield Lost(pair, row, "call", name, edit.new.node.lineno, f"if {ast.unparse(test)}")

    def _on_fewer(self, pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
        """Calls that were made on several things, and that the function leaves out for one of them."""
        gone = {each.old.text for each in edits if each.old is not None}
        touched = (name_of_call(each) for each in old if not gone.isdisjoint((each.text, *each.inside)))
        names = frozenset(name for name in touched if name and self.is_effect(name))
        for name, thing, statement, words in self.several.missed(pair, old, new, names):
            call = called(statement.node)
            if call is None or _is_of_dictionary(call) or self._is_made_later(call, pair):
                continue
            yield Lost(pair, statement, "fewer", name, line_of(old, new, statement), thing.text, words=words)

    def _removed(
        self, pair: Pair, old: list[Statement], new: list[Statement], plain: list[Edit], edits: list[Edit]
    ) -> Iterator[Lost]:
        for edit in plain:
            assert edit.old is not None
            kind, name = self._effect(edit.old, pair)
            if goes_with_its_case(edit.old, edits) or kind == "store" and pair.new.name == "__init__":
                continue  # a case that there is no more, or an object that begins otherwise now
            call = called(edit.old.node)
            if call is not None and self._is_made_later(call, pair):
                continue
            if any(called_names(pair.new)[each] for each in tables()["implied"].get(name, ())):
                continue
            if not name and call is not None and self._is_needed(pair, call, new):
                kind, name = "call", last_name(call.func)
            if name and not (kind == "call" and self.several.is_still_made(pair, edit.old, name, new)):
                yield Lost(pair, edit.old, kind, name, line_of(old, new, edit.old), "")

    def _is_made_later(self, call: ast.Call, pair: Pair) -> bool:
        """Whether a constructor made a call on a part of the object that another method of the class makes too."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if pair.new.name != "__init__" or not isinstance(owner, ast.Attribute) or pair.new.cls is None:
            return False
        others = [unit for unit in self.change.after.units(pair.new.module).values() if unit.cls is pair.new.cls]
        calls = (called(each.node) for unit in others if unit is not pair.new for each in statements(unit))
        return any(each is not None and ast.dump(each) == ast.dump(call) for each in calls)

    def _effect(self, statement: Statement, pair: Pair) -> tuple[str, str]:
        node = statement.node
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            kept = self._is_reset(node) or self._is_setting(node, pair)
            return ("store", node.targets[0].attr) if kept else ("", "")
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            # others see what an object holds; a variable beside another one that is still scaled alike
            kept = isinstance(node.target, ast.Attribute | ast.Subscript) or _has_sibling(node, pair)
            return ("store", ast.unparse(node.target)) if kept else ("", "")
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and self._is_filled(node, pair):
            return "store", ast.unparse(node.targets[0])
        if isinstance(node, ast.Assert):
            return ("check", statement.text) if is_about_sizes(node.test) else ("", "")
        call = called(node)
        if call is None:
            return "", ""
        name = last_name(call.func)
        if _is_of_dictionary(call):
            return "", ""
        kind = "context" if isinstance(node, CONTEXTS) else "call"
        return (kind, name) if self.is_effect(name) else ("", "")

    @staticmethod
    def _is_filled(node: ast.Assign, pair: Pair) -> bool:
        """Whether a statement stores into what a collective of the function was given: its own part, as a rule, through
        which alone gradients flow."""
        target, function = node.targets[0], node_of(pair.new)
        owner = target.value if isinstance(target, ast.Subscript) else None
        if not isinstance(owner, ast.Name) or function is None:
            return False
        calls = (n for n in ast.walk(function) if isinstance(n, ast.Call) and last_name(n.func) in filling())
        return any(isinstance(each, ast.Name) and each.id == owner.id for call in calls for each in call.args[:1])

    def _is_reset(self, node: ast.Assign) -> bool:
        """Whether a statement sets back what is counted or noted on an object, and others still read it."""
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or not isinstance(node.value, ast.Constant | ast.List | ast.Dict):
            return False
        rows = [row for row in self.change.after.occurrences(target.attr) if not is_test(row.path)]
        return any(row.role == "asks" for row in rows) and any(row.role == "defines" for row in rows)

    def _is_setting(self, node: ast.Assign, pair: Pair) -> bool:
        """Whether a statement sets what another object goes by, to a value that was computed for this and is still used
        otherwise: an object of a library, or of a class that reads the attribute itself."""
        target, function = node.targets[0], node_of(pair.new)
        if not isinstance(target, ast.Attribute) or function is None or ast.unparse(target.value) in ("self", "cls"):
            return False
        asked, spoken = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}, paths(function)
        if not asked or not asked <= spoken or ast.unparse(target) in spoken:
            return False
        return any(self._is_gone_by(owner, target.attr, spoken) for owner in self._owners(node, pair))

    def _owners(self, node: ast.stmt, pair: Pair) -> Iterator[Place]:
        """The objects in which a statement of the revision before stores something."""
        for number in numbers_of(pair.old, ("store_attr",)):
            if pair.old.code.values[number].at[0] == node.lineno:
                yield Place(self.change.before.flow, pair.old, number).operand(0)

    def _is_gone_by(self, owner: Place, name: str, spoken: frozenset[str]) -> bool:
        """Whether an object that is still there is a library's, or a part of one, or of a class that reads what it
        stores by a name."""
        while True:
            owner = owner.root
            held = owner.closed.each
            if held and all(o[0] == "ext" for o in held):
                return True
            if owner.called in spoken or owner.text in spoken:
                classes = {each for o in held if o[0] == "inst" for each in o[1].mro}
                units = (u for cls in classes for u in self.change.after.units(cls.module).values() if u.cls in classes)
                if any(name in unit.named and name not in unit.stored for unit in units):
                    return True
                if held and all(o[0] == "made" for o in held):
                    return True
            if owner.value.op != "attr":
                return False
            owner = owner.operand(0)

    def _is_of_rank_library(self, lost: Lost) -> bool:
        """Whether a setting was one of an object of a library that is about ranks."""
        libraries = tuple(tables()["libraries"]["of_ranks"])
        owners = self._owners(lost.statement.node, lost.pair) if lost.kind == "store" else ()
        return any(str(o[1]).startswith(libraries) for owner in owners for o in owner.closed.of("made"))

    def _is_needed(self, pair: Pair, call: ast.Call, new: list[Statement]) -> bool:
        """Whether a call that went is the second half of a pair of which the first is still there, or comes in the
        company of another one everywhere else."""
        name = last_name(call.func)
        if name not in self.change.after.methods or called_names(pair.new)[name]:
            return False
        partners = frozenset(_partners(name))
        owner = ast.dump(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        for other in filter(None, (called(each.node) for each in new)):
            same = ast.dump(other.func.value) if isinstance(other.func, ast.Attribute) else ""
            if same == owner and last_name(other.func) in partners:
                return True
        return bool(self._is_missed(pair, name))

    def _is_missed(self, pair: Pair, name: str) -> str:
        """A call of the function such that all others that make it call this one too; empty if there is none."""
        known = self._callees
        here = known.get((pair.new.path, pair.new.qualname), frozenset())
        for other in sorted(here):
            if "_" not in other.strip("_") or other not in self.change.after.methods:
                continue
            rows = [
                names for key, names in known.items() if other in names and key != (pair.new.path, pair.new.qualname)
            ]
            if len(rows) >= 2 and all(name in names for names in rows):
                return other
        return ""

    @cached_property
    def _callees(self) -> dict[tuple[str, str], frozenset[str]]:
        """By function the names of what it calls."""
        functions = self.change.after.project.functions()
        return {(f.path, f.qualname): frozenset(call.method for call in f.facts.calls) for f in functions}

    def is_effect(self, name: str) -> bool:
        """Whether a call by this name does something that is missed: of the tables, of a function of the project that
        waits for other ranks, or of one that nothing calls any more."""
        if name in named():
            return True
        methods = self.change.after.methods.get(name, ())
        if not methods:
            return False
        says = not set(name.split("_")).isdisjoint(table()["words"])
        return says or name in self._waiting or self._is_uncalled(name)

    def _is_awaited(self, name: str) -> bool:
        """Whether a call by this name waits for other ranks."""
        if self.waits(name):
            return True
        return name in self.change.after.methods and not set(name.split("_")).isdisjoint(table()["words"])

    def waits(self, name: str) -> bool:
        """Whether ranks surely meet in a call by this name: a collective, or what leads to one."""
        return name in meeting() or name in self._waiting

    def _is_uncalled(self, name: str) -> bool:
        """Whether nothing but tests speaks of a function that is still there."""
        if name.startswith("__"):
            return False
        rows = (row for row in self.change.after.occurrences(name) if not is_test(row.path))
        return not any(row.role in ("asks", "spells", "tries") for row in rows) and not self._is_named(name)

    def _is_named(self, name: str) -> bool:
        """Whether a function is called or imported by its bare name."""
        side = self.change.after
        for source in side.mentioning(name):
            module = side.project.modules.get(source.absolute)
            for unit in side.units(module).values() if module is not None and not is_test(source.path) else ():
                if any(
                    unit.code.values[number].op in ("name", "import", "free") for number in unit.named.get(name, ())
                ):
                    return True
        return False

    @cached_property
    def _waiting(self) -> frozenset[str]:
        """The names of functions of the project from which calls lead to where ranks meet."""
        callers: dict[str, set[str]] = {}
        for function in self.change.after.project.functions():
            for call in function.facts.calls:
                callers.setdefault(call.method, set()).add(function.name)
        found: set[str] = set()
        queue = sorted(meeting())
        while queue:
            for name in callers.get(queue.pop(), ()):
                if name not in found and not name.startswith("<") and "_" in name.strip("_"):
                    found.add(name)
                    queue.append(name)
        return frozenset(found)


def _once(found: list[Lost]) -> list[Lost]:
    """Each call that went once, as what it is worth most: that the other of two things has it tells more of some."""
    best: dict[tuple[int, str], Lost] = {}
    for each in found:
        known = best.get(key := (id(each.pair), each.statement.text))
        if _is_gone(each) and (known is None or known.severity == "note"):
            best[key] = each
    gone = {id(each) for each in best.values()}
    return [each for each in found if not _is_gone(each) or id(each) in gone]


def _is_gone(lost: Lost) -> bool:
    """Whether a call is not made at all any more, at least on one thing."""
    return lost.kind == "fewer" or lost.kind == "call" and not lost.condition


def _moved(edits: list[Edit]) -> frozenset[str]:
    """The statements that went in one place and came in another one of the same function."""
    gone, came = ({each.text for edit in edits if (each := edit[side]) is not None} for side in (0, 1))
    return frozenset(gone & came)


def _now_first(lost: Lost) -> list[Edit]:
    """The condition that was an `elif` of one that went, and is an `if` now: nobody wrote it."""
    node = lost.statement.node
    after = node.orelse[0] if isinstance(node, ast.If) and len(node.orelse) == 1 else None
    old = next((each for each in statements(lost.pair.old) if each.node is after), None)
    new = [each for each in statements(lost.pair.new) if old is not None and each.text == old.text]
    return [Edit(old, new[0])] if isinstance(after, ast.If) and len(new) == 1 else []


def _is_of(lost: Lost, statement: Statement) -> bool:
    """Whether a statement is one of those in which an effect was lost: itself, its condition, or what went with it."""
    if statement.text in (lost.statement.text, lost.condition, *lost.statement.inside):
        return True
    if statement.node is lost.statement.node:
        return True
    return any(head.endswith(lost.statement.text) for head in statement.inside)


def _is_asked_for(lost: Lost) -> bool:
    """Whether a call is made only where there is what it needs: elsewhere it raised before."""
    test = condition(lost.condition) if lost.kind == "call" else None
    return test is not None and is_needed(test, lost.statement.node)


def _for_one(pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
    """Effects that were made for each of several things, and are for one of these now."""
    for edit in edits if len(edits) <= _FEW else ():
        loop = edit.old.node if edit.old is not None and edit.new is None else None
        if edit.old is None or not isinstance(loop, ast.For):
            continue
        several = ast.unparse(loop.iter)
        for each in (row for row in old if edit.old.text in row.inside):
            call = called(each.node)
            if call is None or last_name(call.func) not in named():
                continue
            for other in (row for row in new if name_of_call(row) == last_name(call.func)):
                parts = (n.value for n in in_head(other.node) if isinstance(n, ast.Subscript))
                if other.text not in {row.text for row in old} and any(ast.unparse(n) == several for n in parts):
                    yield Lost(pair, other, "each", last_name(call.func), other.node.lineno, several)


def _has_sibling(node: ast.AugAssign, pair: Pair) -> bool:
    """Whether the function still scales another variable in the same way, and still reads this one."""
    function = node_of(pair.new)
    nodes = list(ast.walk(function)) if function is not None else []
    name = ast.unparse(node.target)
    alike = any(
        isinstance(n, ast.AugAssign) and type(n.op) is type(node.op) and ast.dump(n.value) == ast.dump(node.value)
        for n in nodes
    )
    return alike and any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in nodes)


def _is_of_dictionary(call: ast.Call) -> bool:
    """Whether a call puts values into a dictionary; `update()` of a scaler is given none."""
    return last_name(call.func) == "update" and bool(call.args or call.keywords)


def _is_block(gone: list[Edit]) -> bool:
    """Whether a stretch of several statements went together: with a barrier what it was there for."""
    rows = [edit.old for edit in gone if edit.old is not None]
    return len(rows) > 2 and len({each.inside for each in rows}) == 1


def _partners(name: str) -> Iterator[str]:
    """The names of what a call undoes: `sleep` of `wake_up`, `switch_for_inference` of `switch_for_training`."""
    words = name.split("_")
    for first, second in tables()["undo"]["pairs"]:
        one, other = first.split("_"), second.split("_")
        for at in range(len(words) - len(other) + 1):
            if words[at : at + len(other)] == other:
                yield "_".join([*words[:at], *one, *words[at + len(other) :]])


def _undecorated(pair: Pair, new: list[Statement]) -> Iterator[Lost]:
    """Decorators under which a function computed otherwise, and which it lost."""
    methods = pair.methods
    if methods is None or pair.new.code.kind != "function" or not new:
        return
    names = set(table()["contexts"])
    left = _decorators(pair.new)
    for decorator in methods[0].facts.decorators:
        name = decorator.removesuffix("()").rpartition(".")[2]
        inside = any(f"{name}(" in each.text for each in new)
        if name in names and name not in left and not inside:
            statement = Statement(f"@{decorator}", new[0].node, ())
            yield Lost(pair, statement, "decorator", name, pair.new.code.at[0], "")


def _is_of_last_step(node: ast.stmt, old: list[Statement], new: list[Statement], inside: list[str]) -> bool:
    """Whether a statement let what goes on with gradients run only where those of all steps are accumulated, and they
    run at each step now."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    made = {name_of_call(each) for each in new if each.text in inside}
    return not made.isdisjoint(_of_last_step(node.test)) and is_less_guarded(old, new, inside, node.test)


def _of_last_step(test: ast.expr) -> frozenset[str]:
    """The calls that must wait for the gradients of all steps, if a condition asks whether these are there: by a
    remainder by a number that is called after the accumulation, or of a library, whose optimizer waits by itself."""
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute | ast.Call) and last_name(node) in table()["complete"]:
            return frozenset(table()["bounding"])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "accum" in last_name(node.right).lower():
            return frozenset(table()["training"])
    return frozenset()


def _decorators(unit: Unit) -> frozenset[str]:
    """The last names of the decorators of a function."""
    decorators = unit.method.facts.decorators if unit.method is not None else ()
    return frozenset(each.removesuffix("()").rpartition(".")[2] for each in decorators)


def _deeper(old: list[Statement], new: list[Statement], text: str) -> str:
    """The condition under which a statement stands now and stood under none of its kind before."""
    before, after = ([each for each in rows if each.text == text] for rows in (old, new))
    if len(before) != 1 or len(after) != 1 or after[0].inside[: len(before[0].inside)] != before[0].inside:
        return ""
    added = [head for head in after[0].inside[len(before[0].inside) :] if head.startswith(BRANCHES)]
    return added[-1] if added and not has_other_way(new, added[-1]) else ""


def _sunk(pair: Pair, old: list[Statement], new: list[Statement]) -> Iterator[Lost]:
    """Calls made for what they do that the change only moved to the right: into the block that stands above them."""
    for before, after in zip(old, new, strict=True):
        depth_before = len(before.inside)
        added = [head for head in after.inside[depth_before:] if head.startswith(BRANCHES)]
        if not added or after.inside[:depth_before] != before.inside or has_other_way(new, added[-1]):
            continue
        if (call := called(after.node)) is not None and not is_report(after.node):
            yield Lost(pair, after, "call", last_name(call.func), after.node.lineno, added[-1])


def _is_of_one_rank(name: str) -> bool:
    """Whether a decorator speaks of one rank: `rank_zero_only`, `master_only`, `on_main_process`."""
    words = frozenset(name.strip("_").lower().split("_"))
    return not words.isdisjoint(RANKS) and not words.isdisjoint(("only", "on", "zero", "main", "0"))


def _late(old: list[Statement], new: list[Statement], text: str) -> Statement | None:
    """The effect that must come first and that a statement was moved in front of: `set_epoch` and `iter(loader)`."""
    for name, later in firsts().items():
        before, after = (_behind(rows, text, name) for rows in (old, new))
        moved = next((each for each in new if each.text == text), None)
        if moved is None or before is not None or after is None:
            continue
        if any(last_name(n.func) in later for n in ast.walk(moved.node) if isinstance(n, ast.Call)):
            return after
    return None


def _behind(rows: list[Statement], text: str, name: str) -> Statement | None:
    """The call by a name that stands behind a statement, in the same block."""
    place = next((index for index, each in enumerate(rows) if each.text == text), len(rows))
    for each in rows[place + 1 :]:
        call = called(each.node)
        if call is not None and last_name(call.func) == name and each.inside == rows[place].inside:
            return each
    return None


def _round(rows: list[Statement], text: str) -> list[str]:
    """The effects of the loop in which a statement stands, in their order."""
    loops = [head for each in rows if each.text == text for head in each.inside if head.startswith(("for ", "while "))]
    inside = [each for each in rows if loops and loops[-1] in each.inside]
    calls = ((each.text, called(each.node)) for each in inside)
    return [text for text, call in calls if call is not None and last_name(call.func) in named()]


def _is_turned_round(old: list[str], new: list[str]) -> bool:
    """Whether a loop does the same in turn and only begins elsewhere; of two effects nobody can tell."""
    return len(old) > 2 and any(old[at:] + old[:at] == new for at in range(1, len(old)))


def _around(rows: list[Statement], text: str) -> tuple[set[str], set[str]]:
    """The effects before and after a statement that stands once, on the ways that pass it."""
    place = [index for index, each in enumerate(rows) if each.text == text]
    if len(place) != 1:
        return set(), set()

    def effects(part: list[Statement]) -> set[str]:
        calls = ((each.text, called(each.node)) for each in part if not exclude(each, rows[place[0]]))
        return {text for text, call in calls if call is not None and last_name(call.func) in named()}

    return effects(rows[: place[0]]), effects(rows[place[0] + 1 :])


def _conditional(pair: Pair, old: list[Statement], new: list[Statement], edits: list[Edit]) -> Iterator[Lost]:
    """Effects that stand under a condition now and stood under none of it before."""
    fresh = {
        edit.new.text: edit.new.node.test
        for edit in edits
        if edit.new is not None and edit.old is None and isinstance(edit.new.node, ast.If)
    }
    if not fresh or len(edits) > _FEW:
        return
    before = Counter(each.text for each in old)
    for statement in new:
        added = [
            head
            for head in statement.inside
            if head.startswith("if ") and head in fresh and knows(old, pair, fresh[head]) and not is_alone(fresh[head])
        ]
        call = called(statement.node)
        if not added or call is None or before[statement.text] != 1 or isinstance(statement.node, CONTEXTS):
            continue  # what stands in a context goes with it
        if _is_of_dictionary(call):
            continue
        earlier = next(each for each in old if each.text == statement.text)
        if depth(earlier) >= depth(statement) or conditions(earlier) >= conditions(statement):
            continue  # a condition took the place of another, or of a part of it
        name = last_name(call.func)
        if name in named() and called_names(pair.new)[name] == called_names(pair.old)[name]:
            yield Lost(pair, statement, "call", name, statement.node.lineno, added[-1])


def line_of(old: list[Statement], new: list[Statement], gone: Statement) -> int:
    """The line of the new function before which what went would stand: of the statement that followed it."""
    place = next(index for index, each in enumerate(old) if each is gone)
    for start, where, size in matcher([each.text for each in old], [each.text for each in new]).get_matching_blocks():
        if size and start > place:
            return new[where].node.lineno
    return new[-1].node.end_lineno or new[-1].node.lineno if new else 0
