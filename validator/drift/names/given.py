"""Names under which a value is given, in whose place a change wrote another name: `config.use_flash = args.flash` that
is `config.flash_attention = args.flash` now.

A value is given under a name where an attribute is stored, a key is put into a dictionary or stands in a file of
settings, where a parser gets an option, a script sets a variable of the environment, and a call passes a keyword. The
value itself, and all that is written around it, must be what it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Pair, Side
from validator.drift.names.occurrences import Occurrence, option_name
from validator.drift.statements.differences import alike_syntax
from validator.drift.statements.drops import Drops, differences
from validator.facts.config_files import Setting, settings_of
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.source import SourceFile


class _Named(NamedTuple):
    """A name in a statement, the value that is given under it, and the object to which it is given."""

    name: str
    value: ast.expr
    owner: ast.expr


class Given(NamedTuple):
    """A value that is given under `new.name` since the change, and was under `old`."""

    old: str
    new: Occurrence


class GivenOtherwise:
    """The values that a change gives under another name; asked for with `change.analysis(GivenOtherwise)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Given]:
        return [*self._in_code(), *self._in_files(), *self._in_scripts()]

    def _in_code(self) -> Iterator[Given]:
        for pair, _, _, edits in self.change.analysis(Drops).edited:
            for edit in edits if not is_foreign(pair.new.path) else ():
                if edit.old is None or edit.new is None:
                    continue
                for old, new in differences(edit):
                    if isinstance(old, ast.Call) and isinstance(new, ast.Call):
                        yield from _of_keyword(pair.new, old, new)
                    elif (found := self._stored(pair, (old, edit.old.node), (new, edit.new.node))) is not None:
                        yield found

    def _stored(self, pair: Pair, old: tuple[ast.AST, ast.stmt], new: tuple[ast.AST, ast.stmt]) -> Given | None:
        """An attribute or a key that is stored with the value that another one was stored with, in the same object."""
        one, other = _named(*old), _named(*new)
        if one is None or other is None or one.name == other.name or not alike_syntax(one.value, other.value):
            return None
        if not alike_syntax(one.owner, other.owner):
            return None
        at = pair.new.module.source_text.at(new[0])
        rows = self.change.after.of_file(pair.new.module.source).get(other.name, ())
        found = (row for row in rows if row.role == "defines" and row.unit is pair.new and row.at == at)
        kinds = ("attribute", "key", "option", *(() if pair.new.code.kind == "function" else ("variable",)))
        return next((Given(one.name, row) for row in found if row.kind in kinds), None)

    def _in_files(self) -> Iterator[Given]:
        """The only key of a mapping that went, and the only one that came, with the same value."""
        for old, new in self.change.settings_files:
            before, after = ({each.path: each for each in settings_of(each_file).settings} for each_file in (old, new))
            gone, came = before.keys() - after.keys(), after.keys() - before.keys()
            for place in gone:
                beside = [each for each in gone if each[:-1] == place[:-1]]
                now = [after[each] for each in came if each[:-1] == place[:-1]]
                if len(beside) == len(now) == 1 and _is_same(before[place], now[0]):
                    yield Given(place[-1].replace("-", "_"), _occurrence(new.path, now[0]))

    def _in_scripts(self) -> Iterator[Given]:
        """The only variable that a script sets no longer for what it runs, and the only one that it sets now, in the
        same line but for the name."""
        for path in self.change.changed:
            sides = [(side, side.by_absolute.get(path)) for side in (self.change.before, self.change.after)]
            before, after = (_environment(side, source) if source is not None else {} for side, source in sides)
            gone, came = before.keys() - after.keys(), after.keys() - before.keys()
            if len(gone) == len(came) == 1 and not is_test(after[min(came)].path):
                old, new = gone.pop(), came.pop()
                if _line(self.change.before, before[old]).replace(old, new) == _line(self.change.after, after[new]):
                    yield Given(old, after[new])


def _environment(side: Side, source: SourceFile) -> dict[str, Occurrence]:
    rows = (row for places in side.of_file(source).values() for row in places)
    return {row.name: row for row in rows if row.kind == "environment"}


def _line(side: Side, row: Occurrence) -> str:
    return side.project.files[row.path].lines[row.at[0] - 1]


def _occurrence(path: str, setting: Setting) -> Occurrence:
    *above, name = setting.path
    link = next((part for part in reversed(above) if not part.isdigit()), "")
    name = name.replace("-", "_")
    return Occurrence(name, "defines", "setting", None, -1, path, setting.at, link, tuple(above))


def _is_same(old: Setting, new: Setting) -> bool:
    return old.kind == new.kind and old.value == new.value and not old.path[-1].isdigit()


def _of_keyword(unit: Unit, old: ast.Call, new: ast.Call) -> Iterator[Given]:
    """The one keyword of a call that passes what another one passed."""
    if not alike_syntax(old.func, new.func) or list(map(ast.dump, old.args)) != list(map(ast.dump, new.args)):
        return
    gone = [each for each in old.keywords if not any(alike_syntax(each, other) for other in new.keywords)]
    came = [each for each in new.keywords if not any(alike_syntax(each, other) for other in old.keywords)]
    names = [each.arg for each in (*gone, *came) if each.arg]
    if len(gone) != 1 or len(names) != 2 or names[0] == names[1] or not alike_syntax(gone[0].value, came[0].value):
        return
    text = unit.module.source_text
    at, values = text.at(new), unit.code.values
    call = next((n for n, value in enumerate(values) if value.op == "call" and unit.at(value.at) == at), -1)
    if call >= 0:
        yield Given(names[0], Occurrence(names[1], "defines", "keyword", unit, call, unit.path, text.at(came[0])))


def _named(node: ast.AST, statement: ast.stmt) -> _Named | None:
    """The name under which a piece of syntax gives a value in a statement."""
    nothing = ast.Constant(None)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and isinstance(statement, ast.Assign):
        return _Named(node.id, statement.value, nothing)  # of a file of settings in Python, if that is all of one
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        value = getattr(statement, "value", None)
        return _Named(node.attr, value, node.value) if isinstance(value, ast.expr) else None
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    for each in ast.walk(statement):
        if isinstance(each, ast.Dict) and node in each.keys:
            return _Named(node.value, each.values[each.keys.index(node)], nothing)
        if isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Subscript) and target.slice is node:
                    return _Named(node.value, each.value, target.value)
        if isinstance(each, ast.Call) and node in each.args and node.value.startswith("--"):
            rest = [arg for arg in each.args if arg is not node] + [keyword.value for keyword in each.keywords]
            return _Named(option_name(node.value), ast.Tuple(rest, ast.Load()), each.func)
        if isinstance(each, ast.Call) and len(each.args) == 3 and each.args[1] is node:  # `setattr(config, "x", 1)`
            return _Named(node.value, each.args[2], each.args[0])
    return None
