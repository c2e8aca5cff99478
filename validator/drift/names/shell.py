"""The names that a script sets: flags, overrides of settings, variables of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from validator.facts.model import At
from validator.facts.script import Assign, Command, Script, Word, parts

if TYPE_CHECKING:
    from validator.drift.names.occurrences import Occurrence
    from validator.source import SourceFile

_FLAG = re.compile(r"--([A-Za-z][\w.-]*)")
_KEPT = re.compile(r"(?<!\S)--([A-Za-z][\w.-]*)")
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w@/-]*(?:\.[\w@-]+)+)=|\+{0,2}([A-Za-z_]\w*)=")


def in_script(source: SourceFile, script: Script) -> Iterator[Occurrence]:
    """Flags (`--name`), overrides (`a.b.name=1`) and variables that are exported, or set for one command, in the order
    of a script."""
    yield from _set_by(source, parts(script))
    for assign in _for_commands(script):
        yield _environment(source, assign)


def of_commands(source: SourceFile, script: Script) -> Iterator[list[Occurrence]]:
    """What each command of a script sets, and each list of words out of which one is made: `ARGS=(--lr 1 …)`."""
    for words in _commands(script):
        yield list(_set_by(source, (part for word in words for part in parts(word))))


def _commands(node: Any) -> Iterator[tuple[Word, ...]]:
    if isinstance(node, Command):
        yield node.words
    if isinstance(node, Assign) and node.items:
        yield node.items
    if isinstance(node, tuple):
        for each in node:
            yield from _commands(each)


def _for_commands(node: Any) -> Iterator[Assign]:
    """The variables that a script sets for one command: `DEBUG=1 python train.py`."""
    if isinstance(node, Command) and node.words:
        yield from node.assigns
    if isinstance(node, tuple):
        for each in node:
            yield from _for_commands(each)


def _environment(source: SourceFile, assign: Assign) -> Occurrence:
    from validator.drift.names.occurrences import Occurrence

    return Occurrence(assign.name, "sets", "environment", None, -1, source.path, assign.at)


def _kept(source: SourceFile, value: Word) -> Iterator[Occurrence]:
    """The flags in a text that a variable keeps for a command: `OPTIONS="--lr 1 --seed 2"`."""
    for piece in value.pieces:
        for match in _KEPT.finditer(piece.value) if piece.kind == "text" and piece.quoted else ():
            before = piece.value[: match.start()]
            line, column = piece.line + before.count("\n"), match.start() - before.rfind("\n")
            column += piece.column if "\n" not in before else 0
            yield _flag(source, match[1], (line, column, line, column + len(match[0])))


def _flag(source: SourceFile, text: str, at: At) -> Occurrence:
    from validator.drift.names.occurrences import Occurrence

    *above, name = text.replace("-", "_").split(".")
    link = above[-1] if above else ""
    return Occurrence(name, "sets", "flag", None, -1, source.path, at, link, tuple(above))


def _set_by(source: SourceFile, rows: Iterable[Word | Assign]) -> Iterator[Occurrence]:
    from validator.drift.names.occurrences import Occurrence

    for part in rows:
        if isinstance(part, Assign):
            if part.keyword == "export":
                yield _environment(source, part)
            yield from _kept(source, part.value) if part.value is not None else ()
            continue
        text = part.pieces[0].value if part.pieces and part.pieces[0].kind == "text" else ""
        if match := _FLAG.match(text):
            yield _flag(source, match[1], part.at)
        elif match := _OVERRIDE.match(text):
            *above, name = (match[1] or match[2]).split(".")
            link = above[-1] if above else ""
            yield Occurrence(name, "sets", "override", None, -1, source.path, part.at, link, tuple(above))
