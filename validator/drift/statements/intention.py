"""Whether a change means what it took away: one question, asked of all that only may be a mistake.

Two places that no longer fit each other are wrong whatever their author meant. A statement that is gone, a factor, a
condition that was added: these are in the lines that somebody wrote, and mostly meant. Who means them shows it: the
change speaks of the same thing in another line too. It moves it, renames it, takes along what it was made of or its
import, does the same in several places, or explains it in a comment, a test, a recipe. What slipped away stands alone.

What ranks do together is told nowhere but in the code, and no test on one process misses it. So a loss is a *warning*
where it is about ranks and nothing else in the change speaks of anything in its place, a *note* where it is about
something else, and nothing where the change speaks of the very thing, or took away what it was about.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

from validator.drift.change import Change, Pair, code_of
from validator.drift.statements.differences import Edit, Statement, node_of
from validator.drift.statements.drops import Drops
from validator.finding import Severity
from validator.flow.program.unit import Unit
from validator.source import SourceFile

_WORD = re.compile(r"[^\W\d]\w*")
_OWN = frozenset({"self", "cls", *dir(builtins)})
_FEW = 2  # places in which the same may have slipped away
_Line = tuple[int, str, int]  # the revision (0: before), the file, the line


class Intention:
    """What the lines of a change speak of."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._words: dict[SourceFile, Counter[str]] = {}

    def severity(
        self, pair: Pair, own: Iterable[Edit], telling: frozenset[str], beside: frozenset[str], about_ranks: bool
    ) -> Severity | None:
        """What a loss is worth: `own` are the edits in which it happened, `telling` the words for what went, `beside`
        other words in the same place. None where the change means it."""
        own = list(own)
        places = [self._gone.get(edit.old.text, []) for edit in own if edit.old is not None]
        if any(len(rows) > _FEW or any(edit is None for _, edit in rows) for rows in places):
            return None  # what goes in many places, or in one that was written anew, is meant
        same = [row for rows in places for row in rows]
        others = [(other, edit) for other, edit in same if edit is not None and other is not pair]
        lines = frozenset(
            line for at, edit in [*((pair, each) for each in own), *others] for line in _lines(at, [edit])
        )
        left = self._counts(pair.new.module.source)
        gone = telling | {word for word in beside if not left[word]}
        if self._is_spoken_of(gone, pair, lines | self._imports):
            return None
        if self._is_spoken_of(gone, pair, lines):
            return "note"  # an import that nothing needs any more goes whether or not the rest was meant
        return "note" if others or not about_ranks or self._is_spoken_of(beside, pair, lines) else "warning"

    def _is_spoken_of(self, words: frozenset[str], pair: Pair, own: frozenset[_Line]) -> bool:
        """Whether the change wrote or took away a line with one of the words, or moved one, but for some lines. Of a
        variable of the function the lines of that function count."""
        variables = {name for unit in pair for name in (*unit.code.definitions, *dict(unit.code.params))}
        inside = {line for side, unit in enumerate(pair) for line in _span(side, unit)}
        for word in words:
            spoken = (line for line in self._spoken.get(word, ()) if line not in own)
            if any(word not in variables or line in inside for line in spoken):
                return True
        here = [Counter(w for n, path, line in own if n == side for w in self._at(side, path, line)) for side in (0, 1)]
        (was, now), (mine, other) = self._total, here
        return any(was[word] - mine[word] != now[word] - other[word] for word in words - variables)

    @cached_property
    def _gone(self) -> dict[str, list[tuple[Pair, Edit | None]]]:
        """By statement where it went; without an edit: in a function that was written anew."""
        drops: Drops = self.change.analysis(Drops)
        found: dict[str, list[tuple[Pair, Edit | None]]] = {}
        for pair, _, _, edits in drops.edited:
            for edit in edits:
                if edit.old is not None:
                    found.setdefault(edit.old.text, []).append((pair, edit))
        for pair, gone in drops.rewritten:
            for text in gone:
                found.setdefault(text, []).append((pair, None))
        return found

    @cached_property
    def _imports(self) -> frozenset[_Line]:
        """The lines of imports in the changed files."""
        found: set[_Line] = set()
        for path in self.change.changed:
            for number, side in enumerate((self.change.before, self.change.after)):
                source = side.by_absolute.get(path)
                for row in source.facts.imports if source is not None else ():
                    found.update((number, path, line) for line in range(row.at[0], row.at[2] + 1))
        return frozenset(found)

    def _told(self, path: str) -> frozenset[int]:
        """The lines of a file that were comments, or texts that stand for one."""
        source, module = self.change.before.by_absolute[path], self.change.before.module(path)
        found = {number for number, line in enumerate(source.lines, 1) if line.lstrip().startswith("#")}
        for node in ast.walk(source.tree) if module is not None else ():
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return frozenset(found)

    def changed_in(self, pair: Pair) -> frozenset[str]:
        """The words on the lines of a function that the change wrote or took away."""
        lines = self.change.lines(pair.new.module.source.absolute)
        here = (line for side, unit in enumerate(pair) for line in _span(side, unit) if line[2] in lines[side])
        return frozenset(word for line in here for word in self._at(*line))

    def _at(self, side: int, path: str, line: int) -> list[str]:
        """The words of a line."""
        source = (self.change.before, self.change.after)[side].by_absolute[path]
        return _WORD.findall(code_of(source.lines[line - 1]))

    @cached_property
    def _spoken(self) -> dict[str, list[_Line]]:
        """By word the lines that the change wrote or took away; a comment that went explains nothing."""
        found: dict[str, list[_Line]] = {}
        for path in self.change.changed:
            for side, lines in enumerate(self.change.lines(path)):
                told = self._told(path) if side == 0 and lines else frozenset[int]()
                for line in sorted(lines - told):
                    for word in self._at(side, path, line):
                        found.setdefault(word, []).append((side, path, line))
        return found

    @cached_property
    def _total(self) -> tuple[Counter[str], Counter[str]]:
        """How often each word stands in the changed files, before and after."""
        sides = self.change.before, self.change.after
        sources = ([side.by_absolute.get(path) for path in self.change.changed] for side in sides)
        old, new = (sum((self._counts(each) for each in rows if each is not None), Counter[str]()) for rows in sources)
        return old, new

    def _counts(self, source: SourceFile) -> Counter[str]:
        """How often each word stands in a file."""
        known = self._words.get(source)
        if known is None:
            known = self._words[source] = Counter(w for line in source.lines for w in _WORD.findall(code_of(line)))
        return known


def words_in(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(_WORD.findall(text))


def words_of(node: ast.AST, unit: Unit) -> frozenset[str]:
    """The names in a piece of syntax, without those of modules, builtins and the object itself."""
    imported = {name for name, kind in unit.module.facts.names.items() if kind == "import"}
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.keyword) and each.arg:
            found.add(each.arg)
        elif isinstance(each, ast.Name):
            found.add(each.id)
    owners = {n.value.id for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    return frozenset(found - _OWN - (owners & imported))


def _lines(pair: Pair, edits: Iterable[Edit]) -> Iterator[_Line]:
    """The lines on which the statements of some edits stand."""
    path = pair.new.module.source.absolute
    for edit in edits:
        for number, statement in enumerate(edit):
            if statement is not None:
                yield from ((number, path, line) for line in _own_lines(statement))


def _span(side: int, unit: Unit) -> Iterator[_Line]:
    node = node_of(unit)
    last = getattr(node, "end_lineno", None) or len(unit.module.source.lines)
    yield from ((side, unit.module.source.absolute, line) for line in range(unit.code.at[0], last + 1))


def _own_lines(statement: Statement) -> range:
    node = statement.node
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if isinstance(body, list) and body and isinstance(body[0], ast.stmt) else node.end_lineno
    return range(node.lineno, max(end or node.lineno, node.lineno) + 1)
