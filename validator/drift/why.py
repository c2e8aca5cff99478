"""What a comparison of two revisions knows of one line, for `--why`.

Whether the file and the function around the line changed and what was there before, which names on the line the change
took away, and what the rules about changes find there: also what they find elsewhere because of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from validator.analysis.interfaces.binding import signature
from validator.definitions import ClassDef, Method
from validator.drift.change import Change, Pair
from validator.drift.interfaces.signatures import Signatures
from validator.drift.names.occurrences import Occurrence
from validator.drift.names.removed import Names
from validator.drift.statements.differences import Edit, matcher
from validator.drift.statements.drops import Drops
from validator.errors import told
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.rule import LoadedRule
from validator.source import SourceFile

_SHOWN = 8  # statements or places listed of one kind
_LONGEST = 160  # characters of a statement
_WORD = re.compile(r"--([A-Za-z][\w.-]*)|([A-Za-z_]\w*)")


def why(change: Change, rules: Iterable[LoadedRule], path: str, line: int, reported: Iterable[Finding]) -> list[str]:
    """Lines of plain text about a line of a file as it is now. `reported`: the findings that the run shows there."""
    source = change.after.project.files[path]
    module = change.after.project.modules.get(source.absolute)
    unit = _around(change, source, line) if module is not None else None
    found = list(_findings(change, rules))
    first, last = _extent(unit, line)
    return [
        change.compared,
        *(
            _of_unit(change, unit, line)
            if unit is not None and _is_edited(change, source)
            else _of_file(change, source, line)
        ),
        *_names(change, source, line),
        *_unreported(found, path, line, set(reported)),
        *_elsewhere(found, path, first, last, line),
    ]


def _around(change: Change, source: SourceFile, line: int) -> Unit | None:
    """The innermost function or class around a line, or the module."""
    units = change.after.units(change.after.project.modules[source.absolute]).values()
    inside = [
        unit
        for unit in units
        if unit.code.kind == "module"
        or unit.code.kind in ("function", "class")
        and unit.code.at[0] <= line <= unit.code.at[2]
    ]
    return max(inside, key=lambda unit: (unit.code.kind != "module", unit.code.at[0]), default=None)


def _extent(unit: Unit | None, line: int) -> tuple[int, int]:
    """The lines that a finding elsewhere may name as its reason; a constructor stands for its class."""
    if unit is None or unit.code.kind == "module":
        return line, line
    first: int = unit.code.at[0]
    if unit.name == "__init__" and unit.cls is not None:
        first = min(first, unit.cls.facts.at[0])
    return first, unit.code.at[2]


def _is_edited(change: Change, source: SourceFile) -> bool:
    """Whether a file is there in both revisions and differs."""
    return source.absolute in change.changed and source.absolute in change.before.by_absolute


def _of_file(change: Change, source: SourceFile, line: int) -> Iterator[str]:
    """What became of a file as a whole, and of a line of it that is no Python."""
    if source.absolute not in change.changed:
        yield f"  {source.path} is as it was"
    elif source.absolute not in change.before.by_absolute:
        yield f"  {source.path} is new"
    else:
        old, new = change.before.by_absolute[source.absolute].lines, source.lines
        yield f"  {source.path} changed"
        for kind, a, b, c, d in matcher(old, new).get_opcodes():
            if kind != "equal" and c < line <= max(d, c + 1):
                gone = "\n".join(old[a:b])
                yield f"  `{_short(gone)}` stood here before" if gone.strip() else "  nothing stood here before"


def _of_unit(change: Change, unit: Unit, line: int) -> Iterator[str]:
    """What became of the function, class or module around a line of a changed file, and of the statement there."""
    shown = f"`{unit.qualname}`" if unit.code.kind != "module" else f"the top level of {unit.path}"
    pair = next((pair for pair in change.pairs if pair.new is unit), None)
    if pair is None:
        module = change.before.module(unit.module.source.absolute)
        known = module is not None and unit.code.key in change.before.units(module)
        yield f"  {unit.path} changed; {shown} {'is as it was' if known else 'is new'}"
        return
    yield f"  {shown} changed"
    if pair.methods is not None and signature(pair.methods[0]) != signature(pair.methods[1]):
        yield f"    it was `{signature(pair.methods[0])}`"
    edited = next((changed for each, _, _, changed in change.analysis(Drops).edited if each is pair), None)
    if edited is None:
        yield f"    {_why_not_compared(pair)}"
        return
    yield from _statements(edited, line)


def _why_not_compared(pair: Pair) -> str:
    if is_test(pair.new.path) or is_foreign(pair.new.path):
        return "its statements are not compared: tests and copies of other people's code are left out"
    return "its statements are not compared: too many of them are not what they were"


def _statements(edited: list[Edit], line: int) -> Iterator[str]:
    """The statement at a line as it was, and what went without another in its place."""
    for edit in edited:
        if edit.new is not None and _spans(edit, line):
            if edit.old is not None:
                yield f"    the statement here was `{_short(edit.old.text)}`"
            else:
                yield "    the statement here is new"
    gone = [edit.old.text for edit in edited if edit.new is None and edit.old is not None]
    if gone:
        yield f"    taken out: {'; '.join(f'`{_short(text)}`' for text in gone[:_SHOWN])}{_more(gone)}"


def _spans(edit: Edit, line: int) -> bool:
    """Whether a line is among those of the statement; of a compound statement those of its head."""
    assert edit.new is not None
    node = edit.new.node
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
    return node.lineno <= line <= max(last, node.lineno)


def _names(change: Change, source: SourceFile, line: int) -> Iterator[str]:
    """The names on a line whose definition or whose parameters the change altered."""
    lines = source.lines
    text = lines[line - 1] if line <= len(lines) else ""
    names = [(flag or word).replace("-", "_") for flag, word in _WORD.findall(text)]
    removed: dict[str, list[Occurrence]] = change.analysis(Names).removed
    changed = change.analysis(Signatures).changed
    for name in dict.fromkeys(names):
        if name in removed:
            yield _removed(change, name, removed[name])
        yield from _called(name, changed.get(name, []), source, line)


def _called(
    name: str, rows: list[tuple[Method | ClassDef, Method | ClassDef]], source: SourceFile, line: int
) -> Iterator[str]:
    """What is called by a name and takes other parameters since the change."""
    if name.startswith("__") and len(rows) > 1:
        return  # of which class it is, a finding says
    for old, new in rows:
        before, now = (each.find("__init__") if isinstance(each, ClassDef) else each for each in (old, new))
        if before is not None and now is not None and (now.path, now.facts.at[0]) != (source.path, line):
            yield f"  `{name}` has other parameters: `{signature(now)}` ({now.path}), before `{signature(before)}`"


def _removed(change: Change, name: str, rows: list[Occurrence]) -> str:
    """What became of a name that no file of the change defines any more."""
    renamed = change.analysis(Names).renamed(rows[0])
    now = f"; it may be `{renamed.name}` now ({renamed.path}:{renamed.at[0]})" if renamed is not None else ""
    left = [row for row in change.after.occurrences(name) if row.role == "defines" and row.kind != "parameter"]
    where = f"; {left[0].path}:{left[0].at[0]} still defines or sets it" if left else "; nothing else defines it"
    return f"  `{name}`: the change took away its definition (before: {rows[0].path}:{rows[0].at[0]}){now}{where}"


def _findings(change: Change, rules: Iterable[LoadedRule]) -> Iterator[Finding]:
    for each in rules:
        if each.check_change is not None:
            try:
                yield from each.check_change(change)
            except Exception as error:  # as in a run: one rule that fails takes none of the others along
                yield each.rule.finding("", (1, 1, 1, 1), f"internal error: {told(error)}")


def _unreported(found: list[Finding], path: str, line: int, reported: set[Finding]) -> Iterator[str]:
    """What comparing finds at a line and the run does not show."""
    shown = {(each.code, each.span, each.message) for each in reported}
    here = (each for each in found if each.path == path and each.span.line <= line <= max(each.span[::2]))
    for each in here:
        if (each.code, each.span, each.message) not in shown:
            yield f"  not reported (another rule has an error here, or it is silenced): {each.code}: {each.message}"


def _elsewhere(found: list[Finding], path: str, first: int, last: int, line: int) -> Iterator[str]:
    """The findings at other places that this line, or the function around it, is the reason for."""
    rows = [
        each
        for each in dict.fromkeys(found)
        if any(row.path == path and (row.line == line or first <= row.line <= last) for row in each.related)
        and not (each.path == path and each.span.line <= line <= max(each.span[::2]))
    ]
    for each in rows[:_SHOWN]:
        yield f"  breaks {each.path}:{each.span.line}: {each.code}: {each.message}"
    if len(rows) > _SHOWN:
        yield f"  breaks {len(rows) - _SHOWN} more places"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _more(rows: list[str]) -> str:
    return f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
