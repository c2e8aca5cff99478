"""What the sections of configurations hold that a program reads: by the files that it is given.

Where a file is named says which: the text itself, what an option of the command line is set to (its default, and each
script that sets it), or the configuration that Hydra composes, with every file that stands beside a chosen one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from validator.analysis.commands.command_line import CommandLines
from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.parsers import Parser
from validator.analysis.recipes.composed import Compositions, Node
from validator.facts.config_files import MAPPING
from validator.files.languages import SETTINGS, language
from validator.flow.callgraph.sections import path_of
from validator.flow.foreign import is_unknown
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Val
from validator.project import Project

_LIKE = 2  # keys of a section that a value must be asked for by whose owner is not known
_WORDS = re.compile(r"[.=+\s]+")
_PUTTING = frozenset(
    {"dict", "update", "create", "merge", "edict", "easydict", "configdict", "dictconfig", "setdefault"}
)
_ABOUT_PATHS = frozenset({"join", "abspath", "realpath", "expanduser", "str", "Path"})
_ASKING = frozenset({"get", "pop", "getattr", "hasattr"})


class Part(NamedTuple):
    """What one configuration holds under a path of keys. `given`: a program is given it; else it stands beside.
    `open`: it may hold more than is known."""

    node: Node
    keys: str
    given: bool
    open: bool = False


class Sections:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.compositions = project.analysis(Compositions)
        self.queries = project.analysis(Queries)
        self._roots: dict[tuple[Any, ...], tuple[Part, ...]] = {}
        self._put: dict[str, bool] = {}

    def of(self, value: Val) -> list[Part]:
        """The sections that a value may be, one for each configuration that has it."""
        found = []
        for o in value.of("section"):
            for root in self.roots(o[1]):
                links = o[2].split(".") if o[2] else []
                node = root.node.find(links)
                if node is not None and node.kind == MAPPING and node.children:
                    ways = (root.node.find(links[:end]) for end in range(len(links) + 1))
                    found.append(Part(node, o[2], root.given, any(way is not None and way.open for way in ways)))
        return found

    def is_put(self, name: str) -> bool:
        """Whether anything of the project puts something under a key: another file, a script, or code."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        others = (source for path, source in self.project.files.items() if language(path) != "python")
        if any(name.encode() in source.data and word.search(source.text) for source in others):
            return True
        return self.is_put_by_code(name)

    def is_put_by_code(self, name: str) -> bool:
        """Whether code may put something under a key: into an object that is none of the project's classes, into a
        dictionary, as a field of a class, or by a text that is more than looked up."""
        known = self._put.get(name)
        if known is None:
            fields = any(name in dict(cls.facts.attributes) for cls in self.project.classes())
            known = self._put[name] = fields or any(_puts(place, name) for place in self._saying(name))
        return known

    def _saying(self, name: str) -> Iterator[Place]:
        for module in self.project.modules.values():
            for unit in self.queries.flow.whole_units(module) if name.encode() in module.source.data else ():
                yield from self.queries.values(unit, "const", "call", "store_attr")

    def at(self, place: Place) -> list[Part]:
        """The sections that a value may be; where nobody knows what it is a part of, those of its last keys."""
        found = self.of(place.closed)
        return found or [Part(node, ".".join(path), False, True) for path, node in self._called(_links(place))]

    def _called(self, links: tuple[str, ...]) -> list[tuple[tuple[str, ...], Node]]:
        """The sections of all files whose paths end with some keys."""
        return self._by_links.get(links[-_LIKE:], []) if len(links) >= _LIKE else []

    @cached_property
    def _by_links(self) -> dict[tuple[str, ...], list[tuple[tuple[str, ...], Node]]]:
        found: dict[tuple[str, ...], list[tuple[tuple[str, ...], Node]]] = {}
        for path, (source, settings) in self.compositions.files.items():
            if is_test(source.path):
                continue
            root = self.compositions.tree(path)
            for each in settings.settings:
                if each.kind == MAPPING and len(each.path) >= _LIKE and (node := root.find(each.path)) is not None:
                    found.setdefault(each.path[-_LIKE:], []).append((each.path, node))
        return found

    def roots(self, calls: tuple[Any, ...]) -> tuple[Part, ...]:
        """The configurations that some calls read."""
        known = self._roots.get(calls)
        if known is None:
            rows = {(id(row.node), row.given): row for row in self._read(calls)}
            known = self._roots[calls] = tuple(rows.values())
        return known

    def _read(self, calls: tuple[Any, ...]) -> Iterator[Part]:
        unit, number = calls[-1]
        if number is None:
            yield from self._of_hydra(unit.module)
        elif (path := path_of(unit, number)) is not None:
            place = Place(self.queries.flow, unit, path)
            if tail := self._tail(place, calls[:-1]):
                yield from self._file(tail, unit.module.source.absolute)
                return
            place, _ = self._outwards(place, calls[:-1])
            for held in self.project.analysis(Namespaces).held(place.operand(0)) if place.value.op == "attr" else ():
                yield from self._of_option(held.parser, held.below(str(place.value.data)))

    def _outwards(self, place: Place, calls: tuple[Any, ...]) -> tuple[Place, tuple[Any, ...]]:
        """A value where it is written, what a parameter is given by the calls that led here (the innermost last), and
        the calls that are left."""
        place = place.root
        while place.value.op == "param":
            position = place.value.data[0]
            if calls:
                *outer, (caller, number) = calls
                given, calls = argument_of(caller, number, place.unit, position), tuple(outer)
                before = Place(self.queries.flow, caller, given) if given is not None else self._default(place)
            else:
                before = self._default(place) if not self._is_passed(place.unit, position) else None
            if before is None:
                break
            place = before.root
        return place, calls

    def _default(self, place: Place) -> Place | None:
        """What a parameter is where nothing is passed for it."""
        unit = place.unit
        default = unit.code.defaults.get(unit.code.params[place.value.data[0]][0])
        return Place(self.queries.flow, unit.outer, default) if default is not None and unit.outer is not None else None

    def _is_passed(self, unit: Unit, position: int) -> bool:
        """Whether any call passes something for a parameter."""
        flow = self.queries.flow
        rows = ((caller, row.site) for caller in flow.callers(unit) for row in flow.result(caller).passed.get(unit, ()))
        return any(argument_of(caller, site, unit, position) is not None for caller, site in rows)

    def _tail(self, place: Place, calls: tuple[Any, ...]) -> str:
        """The written end of a path: `join(here, "configs", name)`, `here / "a.yaml"`; empty where nothing is."""
        place, calls = self._outwards(place, calls)
        constant = place.val.constant()
        if isinstance(constant, str):
            return constant
        if place.value.op == "binary" and place.value.data == "Div":
            parts = place.value.args
        elif place.value.op == "call" and place.method in _ABOUT_PATHS:
            parts = place.value.args[1:]
        else:
            return ""
        *above, last = [self._tail(place.value_at(number), calls) for number in parts] or [""]
        return posixpath.join(*(part for part in above if part), last) if last else ""

    def _of_option(self, parser: Parser, name: str) -> Iterator[Part]:
        """The files that an option names: by default, and where scripts set it."""
        option = parser.option(name)
        if option is not None and isinstance(option.default, str):
            yield from self._file(option.default, parser.module.source.absolute)
        for launch, line in self.project.analysis(CommandLines).all if option is not None else ():
            source = self.project.files.get(launch.path)
            for given in line.given if launch.parser is parser else ():
                if given.option is option and source is not None:
                    for value in given.values:
                        yield from self._file(value.text, source.absolute)

    def _file(self, named: str, near: str = "") -> Iterator[Part]:
        """The one file of that path: below the folder of another, or anywhere in the project."""
        tail = posixpath.normpath(named).lstrip("./")
        if not tail.endswith(SETTINGS):
            return
        files = self.compositions.files
        folder = posixpath.dirname(near)
        while folder and f"{folder}/{tail}" not in files:
            folder = posixpath.dirname(folder) if folder != "/" else ""
        found = [f"{folder}/{tail}"] if folder else [path for path in files if path.endswith(f"/{tail}")]
        if len(found) == 1:
            yield Part(self.compositions.inherited(found[0]), "", True)

    def _of_hydra(self, module: object) -> Iterator[Part]:
        for main, root in self.compositions.programs.items():
            if main is module:
                yield Part(root, "", True)
                yield from (Part(other, "", False) for other in self.compositions.beside(main))


def _puts(place: Place, name: str) -> bool:
    data = place.value.data
    if place.value.op == "call":
        return name in data.names and not _PUTTING.isdisjoint(place.method.lower().split("_"))
    if place.value.op == "store_attr":
        return bool(data == name) and not any(o[0] in ("self", "inst", "class") for o in place.operand(0).closed.each)
    spelled = isinstance(data, str) and (data == name or name in _WORDS.split(data))  # a key may have dots in it
    return spelled and not (place.users and all(_looks_up(user, place) for user in place.users))


def _looks_up(user: Place, key: Place) -> bool:
    """Whether a value is only read under a key, or asked for one."""
    if user.value.op == "call":
        return user.method in _ASKING
    return user.value.op == "item" and user.value.args[1] == key.number or user.value.op == "compare"


def _links(place: Place) -> tuple[str, ...]:
    """The keys by which a value is asked for, from the last object of which something is known."""
    place = place.root
    if place.value.op == "attr":
        key: object = place.value.data
    elif place.value.op == "item":
        key = place.operand(1).val.constant()
    else:
        return ()
    owner = place.operand(0)
    return (*_links(owner), key) if isinstance(key, str) and is_unknown(place.closed) else ()
