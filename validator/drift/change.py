"""A project as it was and as it is: what rules about changes ask.

Both revisions are linked as projects of their own; a file that did not change is one and the same in both. Only files
that changed, and those that mention a name which the change is about, are lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from validator.analysis.commands.programs import Programs
from validator.definitions import ClassDef, External, Method, Module
from validator.drift.names.occurrences import Occurrence, in_file, in_unit
from validator.drift.statements.differences import matcher
from validator.facts.model import PROPERTY_DECORATORS
from validator.flow.callgraph.callers import Mention
from validator.flow.control import reachable
from validator.flow.objects import Objects
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.source import SourceFile


class Side:
    """One of the two revisions."""

    def __init__(self, sources: Iterable[SourceFile], config: Any) -> None:
        self.project = Project(sources, config)
        self.flow = self.project.analysis(Flow)  # one solver for all that is asked of this revision
        self.by_absolute = {source.absolute: source for source in self.project.files.values()}
        self._occurrences: dict[SourceFile, dict[str, list[Occurrence]]] = {}
        self._mentioning: dict[str, list[SourceFile]] = {}
        self._beside: dict[Module, frozenset[str]] = {}

    def module(self, absolute: str) -> Module | None:
        return self.project.modules.get(absolute)

    def units(self, module: Module) -> dict[str, Unit]:
        """The units of a module by key."""
        return self.flow.units_of(module)

    def twin(self, unit: Unit) -> Unit | None:
        """The unit of the same file and key in this revision."""
        module = self.module(unit.module.source.absolute)
        return self.units(module).get(unit.code.key) if module is not None else None

    def unit_of(self, method: Method) -> Unit | None:
        return self.flow.unit_of(method)

    def mentioning(self, name: str) -> list[SourceFile]:
        """The files in whose text a name stands, however it is meant."""
        known = self._mentioning.get(name)
        if known is None:
            texts = {each.encode("utf-8", "surrogatepass") for each in (name, name.replace("_", "-"))}
            known = self._mentioning[name] = [
                source
                for source in self.project.files.values()
                if source.facts.problem is None and any(text in source.data for text in texts)
            ]
        return known

    def occurrences(self, name: str) -> Iterator[Occurrence]:
        """Where a name stands in the project, and as what."""
        for source in self.mentioning(name):
            yield from self.of_file(source).get(name, ())

    def of_file(self, source: SourceFile) -> dict[str, list[Occurrence]]:
        """By name what stands in one file."""
        known = self._occurrences.get(source)
        if known is None:
            module = self.project.modules.get(source.absolute)
            found = (
                in_file(source)
                if module is None
                else (row for unit in self.units(module).values() for row in in_unit(unit))
            )
            known = self._occurrences[source] = {}
            for row in found:
                known.setdefault(row.name, []).append(row)
        return known

    def mention(self, unit: Unit, number: int) -> Mention | None:
        """What the place where a name stands shows of what it may mean."""
        return self.flow.calls_by_name.mention(unit, number)

    def classes_of(self, unit: Unit, number: int) -> tuple[ClassDef, ...]:
        """The classes that the owner of an attribute (read or stored, also by its name as a text: `getattr(x, "size")`)
        may be of, as annotations, constructors, callers tell."""
        if unit.code.values[number].op == "const":
            return self._classes_at(unit, _first_of(unit, number))
        mention = self.mention(unit, number)
        if mention is None or mention.symbol is not None and not isinstance(mention.symbol, ClassDef):
            return ()
        if mention.cls is not None:
            return (mention.cls,)
        if isinstance(named := self.project.lookup(unit.scope, _owner_path(unit, number)), ClassDef):
            return (named,)  # `Sample.Status.DONE`
        value = unit.code.values[number]
        return self._classes_at(unit, value.args[0] if value.op in ("attr", "store_attr") else -1)

    def _classes_at(self, unit: Unit, number: int) -> tuple[ClassDef, ...]:
        """The classes of the project of which a value may be an object."""
        if number < 0:
            return ()
        found = self.project.analysis(Objects).held(Place(self.flow, unit, number)).classes
        return tuple(sorted(found, key=lambda cls: (cls.path, cls.qualname)))

    def is_of_library(self, unit: Unit, number: int) -> bool:
        """Whether a test around an attribute says that the object which is asked is of a class of some library."""
        value = unit.code.values[number]
        tests = unit.class_tests.around(value.args[0], value.block) if value.op == "attr" else ()
        return any(holds and self._is_foreign(unit, classes) for classes, holds in tests)

    def is_made_by_library(self, unit: Unit, number: int) -> bool:
        """Whether the object that is asked for an attribute can only be one of classes of libraries, or None."""
        objs = Place(self.flow, unit, unit.code.values[number].args[0]).closed.objs - {NONE_OBJ}
        return bool(objs) and all(o[0] == "made" and _is_class(o[1]) for o in objs)

    def _is_foreign(self, unit: Unit, classes: int) -> bool:
        """Whether all classes of a test are of libraries."""
        value = unit.code.values[unit.root(classes)]
        if value.op in ("tuple", "binary"):
            return all(self._is_foreign(unit, each) for each in value.args)
        symbol = self.flow.symbol(unit, value) if value.op in ("name", "import") else None
        if value.op == "attr":
            symbol = self.project.lookup(unit.scope, unit.text(value.at))
        return isinstance(symbol, External)

    def beside(self, module: Module) -> frozenset[str]:
        """The paths of the modules that some program imports together with one."""
        if module not in self._beside:
            programs = self.project.analysis(Programs)
            parts = (programs.modules(entry) for entry in self.project.modules.values())
            self._beside[module] = frozenset(each.path for part in parts if module in part for each in part)
        return self._beside[module]

    def is_made(self, cls: ClassDef) -> bool:
        """Whether there are objects of a class: not where its constructor does nothing but raise."""
        made = cls.find("__init__")
        unit = self.unit_of(made) if made is not None else None
        return unit is None or any(unit.code.blocks[n].end[0] == "return" for n in reachable(unit.code))

    def is_property(self, method: Method) -> bool:
        """Whether a method is asked for without a call, under whatever names its file imports decorators."""
        if method.facts.is_property:
            return True
        return any(self.project.dotted(method, name) in PROPERTY_DECORATORS for name in method.facts.decorators)

    @cached_property
    def methods(self) -> dict[str, list[Method]]:
        """The functions and methods of the project by name."""
        found: dict[str, list[Method]] = {}
        for method in self.project.functions():
            if not method.name.startswith("<"):
                found.setdefault(method.name, []).append(method)
        return found


def _first_of(unit: Unit, number: int) -> int:
    """What a call is given before a text: the object of `getattr(x, "size")`; -1 where there is no such call."""
    calls = (unit.code.values[user] for user in unit.users.get(number, ()))
    return next((call.args[1] for call in calls if call.op == "call" and call.args[2:3] == (number,)), -1)


def _is_class(path: object) -> bool:
    """Whether a path into a library leads to a class, as its name is written."""
    return str(path).rpartition(".")[2].lstrip("_")[:1].isupper()


def _owner_path(unit: Unit, number: int) -> str:
    """What an attribute is read of, where that is a row of names: `package.module.Class`; else empty."""
    value, names = unit.code.values[number], list[str]()
    while value.op == "attr":
        names.append(str(value.data))
        value = unit.code.values[unit.root(value.args[0])]
    return ".".join([str(value.data), *reversed(names[1:])]) if value.op == "name" and names[1:] else ""


class Pair(NamedTuple):
    """A function, a class body or a module in both revisions."""

    old: Unit
    new: Unit

    @property
    def methods(self) -> tuple[Method, Method] | None:
        old, new = self.old.method, self.new.method
        return (old, new) if old is not None and new is not None else None


class Change:
    """Two revisions and what differs between them. `compared` says in words what was compared."""

    def __init__(self, before: Side, after: Side, changed: Iterable[str], compared: str = "") -> None:
        self.before = before
        self.after = after
        self.compared = compared
        self.changed = tuple(sorted(path for path in changed if self._is_read(path)))  # absolute paths
        self._analyses: dict[Any, Any] = {}
        self._lines: dict[str, tuple[frozenset[int], frozenset[int]]] = {}

    def _is_read(self, path: str) -> bool:
        """Whether a file could be read in both revisions: of one that could not nothing is known to have gone."""
        sources = (side.by_absolute.get(path) for side in (self.before, self.after))
        return all(source is None or source.facts.problem is None for source in sources)

    def analysis(self, kind: Any) -> Any:
        """The one instance of a class that answers questions about this change."""
        if kind not in self._analyses:
            self._analyses[kind] = kind(self)
        return self._analyses[kind]

    @cached_property
    def settings_files(self) -> tuple[tuple[SourceFile, SourceFile], ...]:
        """The changed files that are no code and no part of a test, before and after."""
        files = (path for path in self.changed if path not in self.after.project.modules)
        rows = ((self.before.by_absolute.get(path), self.after.by_absolute.get(path)) for path in files)
        return tuple((old, new) for old, new in rows if old is not None and new is not None and not is_test(new.path))

    @cached_property
    def modules(self) -> list[tuple[Module | None, Module | None]]:
        """The changed modules as they were and as they are."""
        pairs = ((self.before.module(path), self.after.module(path)) for path in self.changed)
        return [pair for pair in pairs if pair != (None, None)]

    @cached_property
    def pairs(self) -> list[Pair]:
        """The functions, class bodies and modules that are there in both revisions and whose code is not the same, with
        the functions without a name that they hold."""
        found = []
        for old, new in self.modules:
            if old is None or new is None:
                continue
            units = self.after.units(new)
            held = [_held(side.units(module)) for side, module in ((self.before, old), (self.after, new))]
            for key, unit in self.before.units(old).items():
                other = units.get(key)
                if unit.code.kind == "lambda" or other is None:
                    continue
                if not self.is_same(unit, other) or held[0].get(key) != held[1].get(key):
                    found.append(Pair(unit, other))
        return found

    def is_same(self, old: Unit, new: Unit) -> bool:
        """Whether two units are the same code but for their places."""
        return _shape(old) == _shape(new)

    @cached_property
    def classes(self) -> list[tuple[ClassDef, ClassDef]]:
        """The classes of changed files that are there in both revisions."""
        found = []
        for old, new in self.modules:
            if old is not None and new is not None:
                found += [(cls, new.classes[name]) for name, cls in old.classes.items() if name in new.classes]
        return found

    def is_changed(self, path: str) -> bool:
        """Whether the file that is reported under a path changed."""
        return path in self._changed_paths

    def wrote(self, path: str, line: int) -> bool:
        """Whether the change wrote a line of a file, or moved it."""
        source = self.after.project.files.get(path)
        return source is not None and line in self.lines(source.absolute)[1]

    def lines(self, path: str) -> tuple[frozenset[int], frozenset[int]]:
        """The lines of a file, by its absolute path, that the change took away, and those that it wrote."""
        known = self._lines.get(path)
        if known is None and path in self.changed:
            sources = (side.by_absolute.get(path) for side in (self.before, self.after))
            old, new = ([code_of(text) for text in each.lines] if each is not None else [] for each in sources)
            blocks = matcher(old, new).get_matching_blocks()
            same = [(a + n, b + n) for a, b, size in blocks for n in range(size)]
            gone, came = set(range(len(old))) - {a for a, _ in same}, set(range(len(new))) - {b for _, b in same}
            known = frozenset(n + 1 for n in gone), frozenset(n + 1 for n in came)
            self._lines[path] = known
        return known or (frozenset(), frozenset())

    @cached_property
    def _changed_paths(self) -> frozenset[str]:
        sides = (self.before, self.after)
        found = (side.by_absolute.get(path) for side in sides for path in self.changed)
        return frozenset(source.path for source in found if source is not None)


def code_of(line: str) -> str:
    """A line without the comment behind it."""
    return line.strip().partition("  #")[0].strip()


def _held(units: dict[str, Unit]) -> dict[str, list[tuple[Any, ...]]]:
    """By function the code of those without a name in it: only their places name them."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for unit in (each for each in units.values() if each.code.kind == "lambda"):
        outer = unit.outer
        while outer is not None and outer.code.kind == "lambda":
            outer = outer.outer
        if outer is not None:
            found.setdefault(outer.code.key, []).append(_shape(unit))
    return found


def _shape(unit: Unit) -> tuple[Any, ...]:
    code = unit.code
    values = tuple((v.op, v.args, _written(v.data)) for v in code.values)
    ends = tuple(block.end for block in code.blocks)
    decorators = unit.method.facts.decorators if unit.method is not None else ()
    return (code.params, values, ends, tuple(code.defaults), code.is_async, decorators)


def _written(data: Any) -> Any:
    """What a value is about as text: `1` and `True` are not the same."""
    try:
        return repr(data)
    except ValueError:  # an integer of more digits than Python writes out
        return type(data), data
