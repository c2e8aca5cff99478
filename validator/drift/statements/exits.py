"""Ways out of a function that a change put in front of an effect.

Who leaves before a collective does not take part in it, and the others wait. Three changes do so without touching the
call: a `return` or `raise` that stood behind it is moved in front of it; a new one lets some ranks out, by their rank,
by what is reckoned from it, or by the batch that each of them has; and a handler goes that caught what failed above it
and let the function go on to it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from validator.drift.statements.differences import Edit, Statement, header
from validator.drift.statements.surroundings import (
    called,
    exclude,
    is_about_rank,
    is_about_ranks,
    is_alone,
    last_name,
    taken,
)

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_GOING_ON = (ast.Return, ast.Continue, ast.Break)  # by which the others are left waiting; who raises ends the job
_LOOPS = ("for ", "while ")
_RECKONING = frozenset({"int", "min", "max", "len", "abs", "round", "ceil", "floor"})


class Overtaken(NamedTuple):
    """An effect that some way no longer passes: the effect as it stands now, and where that way leaves."""

    effect: Statement
    exit: Statement
    text: str


def names(statement: Statement) -> set[str]:
    """The last names of what a statement calls on its own lines."""
    call = called(statement.node)
    return taken(statement.node) | ({last_name(call.func)} if call is not None else set())


def moved(old: list[Statement], new: list[Statement], effects: frozenset[str]) -> Iterator[Overtaken]:
    """Effects that stood in front of an exit and stand behind it now."""
    for before, leaving in _alike(old, new, _LEAVING):
        for effect in (each for each in new if names(each) & effects):
            earlier = [each for each in old if each.text == effect.text]
            if len(earlier) != 1 or exclude(effect, leaving) or not leaving.inside:
                continue
            if _is_behind(old, before, earlier[0]) or not _is_behind(new, leaving, effect):
                continue
            if _place(old, earlier[0]) < _place(old, before):
                yield Overtaken(effect, leaving, f"{leaving.inside[-1]}: {leaving.text}")
                break


def came(new: list[Statement], edits: list[Edit], effects: frozenset[str]) -> Iterator[Overtaken]:
    """Effects that stood before, and behind a new exit now by which only some ranks leave."""
    fresh = {id(edit.new.node) for edit in edits if edit.new is not None and edit.old is None}
    for leaving in (each for each in new if id(each.node) in fresh and isinstance(each.node, _GOING_ON)):
        nodes = (each.node for each in new if id(each.node) in fresh)
        guard = next((node for node in nodes if isinstance(node, ast.If) and _lets_out(node, leaving)), None)
        if guard is None:
            continue
        ranks = is_about_ranks(guard.test) and not is_alone(guard.test)
        if not ranks and _read(guard.test).isdisjoint(_of_batch(new, leaving) | _of_rank(new)):
            continue
        for effect in (each for each in new if names(each) & effects and id(each.node) not in fresh):
            if not exclude(effect, leaving) and _is_behind(new, leaving, effect):
                yield Overtaken(effect, leaving, f"{leaving.inside[-1]}: {leaving.text}")
                break


def _lets_out(node: ast.If, leaving: Statement) -> bool:
    """Whether an exit is all that a condition decides about."""
    return not node.orelse and len(node.body) == 1 and node.body[0] is leaving.node


def _of_batch(rows: list[Statement], leaving: Statement) -> frozenset[str]:
    """The variables that hold what the loop around a statement takes from its loader in this round: not a number by
    which the rounds are counted, which is the same on all ranks."""
    loops = [
        each.node
        for each in rows
        if isinstance(each.node, ast.For | ast.AsyncFor) and any(part is leaving.node for part in ast.walk(each.node))
    ]
    target: ast.expr | None = None
    if loops and isinstance(leaving.node, ast.Continue | ast.Break):
        target, taken_from = loops[-1].target, loops[-1].iter
        counting = last_name(taken_from.func) if isinstance(taken_from, ast.Call) else ""
        if counting == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[-1]
        elif counting in ("range", "enumerate") or not _is_loader(taken_from):
            target = None
    found = _stored(target) if target is not None else set()
    for each in rows if found else ():
        if isinstance(each.node, ast.Assign) and not _read(each.node.value).isdisjoint(found):
            found |= {name for part in each.node.targets for name in _stored(part)}
    return frozenset(found)


def _of_rank(rows: list[Statement]) -> frozenset[str]:
    """The variables that hold what is reckoned from the rank: `start = rank * batch_size`."""
    found: set[str] = set()
    for each in rows:
        node = each.node
        if not isinstance(node, ast.Assign) or not _is_reckoned(node.value):
            continue
        if is_about_rank(node.value) or not _read(node.value).isdisjoint(found):
            found |= {name for part in node.targets for name in _stored(part)}
    return frozenset(found)


def _is_reckoned(value: ast.expr) -> bool:
    """Whether an expression only reckons: what else a call makes of a rank may be the same on all of them."""
    calls = (last_name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call))
    return all(name in _RECKONING or "rank" in name for name in calls)


def _is_loader(iterated: ast.expr) -> bool:
    """Whether a loop goes over a loader by the names in it: `enumerate(self.train_loader)`, `log_every(loader)`."""
    names_in = (last_name(each).lower() for each in ast.walk(iterated) if isinstance(each, ast.Name | ast.Attribute))
    return any("loader" in name for name in names_in)


def _read(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _stored(node: ast.expr) -> set[str]:
    names_in = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names_in if isinstance(each.ctx, ast.Store)}


def uncaught(old: list[Statement], new: list[Statement], effects: frozenset[str]) -> Iterator[Overtaken]:
    """Effects that follow a `try` whose handlers let the function go on, where what was tried is tried no longer."""
    count = Counter(each.text for each in new)
    here = {each.text: each for each in new if count[each.text] == 1}
    for statement in old:
        node = statement.node
        if not isinstance(node, ast.Try) or not node.handlers or any(map(_leaves, node.handlers)):
            continue
        tried = [header(inner) for each in node.body for inner in ast.walk(each) if isinstance(inner, ast.stmt)]
        kept = [here[text] for text in tried if text in here]
        if not kept or not all(count[text] for text in tried) or any(_is_tried(new, each) for each in kept):
            continue
        if not any(isinstance(n, ast.Call) for each in node.body for n in ast.walk(each)):
            continue
        for effect in (each for each in old if names(each) & effects and each.text in here):
            now = here[effect.text]
            behind = effect.inside == statement.inside and _place(old, effect) > _place(old, statement)
            if behind and _place(new, now) > _place(new, kept[-1]):
                failing = next((each for each in kept if called(each.node) is not None), kept[0])
                yield Overtaken(now, failing, f"{failing.text}: raise")
                break


def _alike(
    old: list[Statement], new: list[Statement], kinds: tuple[type[ast.stmt], ...]
) -> Iterator[tuple[Statement, Statement]]:
    """The statements of some kinds that stand once under the same condition in both revisions."""

    def told(rows: list[Statement]) -> dict[tuple[str, str], list[Statement]]:
        found: dict[tuple[str, str], list[Statement]] = {}
        for each in rows:
            if isinstance(each.node, kinds) and each.inside:
                found.setdefault((each.inside[-1], each.text), []).append(each)
        return found

    after = told(new)
    for key, rows in told(old).items():
        if len(rows) == 1 and len(after.get(key, ())) == 1:
            yield rows[0], after[key][0]


def _is_behind(rows: list[Statement], leaving: Statement, effect: Statement) -> bool:
    """Whether a statement is only reached by what did not leave: it follows in the block in which the condition of the
    exit stands, or deeper."""
    around = leaving.inside[:-1]
    if isinstance(leaving.node, ast.Continue | ast.Break) and not any(head.startswith(_LOOPS) for head in around):
        return False
    return effect.inside[: len(around)] == around and _place(rows, effect) > _place(rows, leaving)


def _place(rows: list[Statement], statement: Statement) -> int:
    return next(index for index, each in enumerate(rows) if each is statement)


def _is_tried(rows: list[Statement], statement: Statement) -> bool:
    """Whether a statement still stands in the body of a `try`."""
    return any(
        isinstance(each.node, ast.Try)
        and any(inner is statement.node for part in each.node.body for inner in ast.walk(part))
        for each in rows
    )


def _leaves(handler: ast.ExceptHandler) -> bool:
    """Whether a handler does not go on to what follows its `try`."""
    return any(isinstance(node, _LEAVING) for part in handler.body for node in ast.walk(part))
