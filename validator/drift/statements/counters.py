"""Numbers that each round of a loop raised before a change, and only some rounds raise since, as the statement slipped
into a branch that stood beside it.

A branch that came with the change says when to count. One that was there, and has the statement behind it inside of it
now, says nothing of counting: the rounds that take the other way all have the number of the one before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change
from validator.drift.statements.differences import Statement
from validator.drift.statements.drops import Drops
from validator.drift.statements.surroundings import BRANCHES
from validator.facts.model import At
from validator.facts.script import Arm, Assign, Branch, For, Function, Group, Loop, Script, Word, parts
from validator.facts.script import Statement as InScript
from validator.source import SourceFile

_LOOPS = ("for ", "while ")


class Uncounted(NamedTuple):
    """A statement that raises a number in some rounds alone since the change. `where`: the function, or the script."""

    path: str
    at: At
    text: str
    name: str
    where: str


class Counters:
    """The numbers that no longer count all rounds; asked for with `change.analysis(Counters)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Uncounted]:
        return [*self._in_code(), *self._in_scripts()]

    def _in_code(self) -> Iterator[Uncounted]:
        for pair, old, new, edits in self.change.analysis(Drops).small:
            came = [each.new for each in edits if each.new is not None and each.old is None]
            gone = [each.old for each in edits if each.old is not None and each.new is None]
            texts = {each.text for each in came} & {each.text for each in gone}
            rows = [(s, t) for s in old for t in new if s.text == t.text and (texts or s.inside != t.inside)]
            for was, now in rows:
                name = _raised(was)
                alone = [each.text for each in new].count(now.text) == [each.text for each in old].count(was.text) == 1
                if name and alone and _slipped(was, now, {each.text for each in old}):
                    at = pair.new.module.source_text.at(now.node)
                    yield Uncounted(pair.new.path, at, now.text, name, pair.new.qualname)

    def _in_scripts(self) -> Iterator[Uncounted]:
        for old, new in self.change.settings_files:
            before, after = _script(old), _script(new)
            if before is not None and after is not None:
                yield from _slipped_in(new, before, after)


def _raised(statement: Statement) -> str:
    """The variable or attribute that a statement raises or lowers by what does not change."""
    node = statement.node
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add | ast.Sub):
        return ""
    return ast.unparse(node.target) if isinstance(node.value, ast.Constant) else ""


def _slipped(was: Statement, now: Statement, before: set[str]) -> bool:
    """Whether a statement of a loop stands in one branch more now, one that was there before."""
    more = now.inside[len(was.inside) :]
    if now.inside[: len(was.inside)] != was.inside or len(more) != 1 or not more[0].startswith(BRANCHES):
        return False
    head = more[0].removeprefix("orelse of ")
    return head in before and bool(was.inside) and was.inside[-1].startswith(_LOOPS)


def _script(source: SourceFile) -> Script | None:
    found = source.facts.extra.get("script")
    return found if isinstance(found, Script) else None


def _slipped_in(source: SourceFile, before: Script, after: Script) -> Iterator[Uncounted]:
    """The variables that a loop of a script raises in one arm of a branch, and raised beside that branch before."""
    was = [(_heads(loop), name) for loop in _loops(before.statements) for name, _ in _counted(loop.body)]
    for loop in _loops(after.statements):
        beside = {name for name, _ in _counted(loop.body)}
        for branch in (each for each in loop.body if isinstance(each, Branch)):
            counted = [dict(_counted(arm.body)) for arm in branch.arms]
            for name in {name for names in counted for name in names} - beside:
                ways = [names[name] for names in counted if name in names]
                complete = len(ways) == len(branch.arms) and not branch.arms[-1].test
                if not complete and any(_head(branch) in heads and name == each for heads, each in was):
                    line, column, *end = ways[0].at
                    text = source.lines[line - 1].strip()
                    yield Uncounted(source.path, (line, column, *end[:2]), text, name, source.path)  # type: ignore[arg-type]


def _loops(statements: tuple[InScript, ...]) -> Iterator[For | Loop]:
    for each in statements:
        if isinstance(each, For | Loop):
            yield each
        for body in _bodies(each):
            yield from _loops(body)


def _bodies(statement: InScript) -> list[tuple[InScript, ...]]:
    if isinstance(statement, Branch):
        return [arm.body for arm in statement.arms]
    return [statement.body] if isinstance(statement, For | Loop | Function | Group) else []


def _counted(body: tuple[InScript, ...]) -> Iterator[tuple[str, Assign]]:
    """The variables that some statements give the value of a formula of themselves: `N=$((N + 1))`."""
    for each in body:
        pieces = each.value.pieces if isinstance(each, Assign) and each.value is not None else ()
        if isinstance(each, Assign) and len(pieces) == 1 and pieces[0].kind == "arithmetic":
            words = pieces[0].value.replace("$", " ").replace("+", " ").replace("-", " ").split()
            if each.name in words:
                yield each.name, each


def _heads(loop: For | Loop) -> list[tuple[str, ...]]:
    return [_head(each) for each in loop.body if isinstance(each, Branch)]


def _head(branch: Branch) -> tuple[str, ...]:
    """What a branch asks, as far as it is the same wherever it stands."""
    return tuple(_asked(arm) for arm in branch.arms)


def _asked(arm: Arm) -> str:
    return " ".join([*_words(arm.test), *arm.patterns])


def _words(node: object) -> Iterator[str]:
    """The pieces of the words in a part of a script, without their places."""
    for part in parts(node):
        if isinstance(part, Word):
            yield "".join(f"{piece.kind}:{piece.value}" for piece in part.pieces)
