"""Settings, keys and attributes under the name that their owner had before a change, told by those beside them.

An owner gives names a meaning together: the fields of a class of settings, the parameters of a function, the options of
a parser, the keys of a dictionary, the variables of a module. Who sets or asks for several of them at one place means
that owner, whatever way the value takes from there to here. So a place that has the old name in the company of others
that the owner still has was left behind; unless something else in the project has as many of them and the old name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import ClassDef, External, Method, Module, Symbol
from validator.drift.change import Change, Side, code_of
from validator.drift.interfaces.calls import annotated, constructor
from validator.drift.names.occurrences import Occurrence, groups, variables_shown
from validator.drift.names.removed import Lost, Names, are_like
from validator.drift.settings.sections import Sections
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.source import SourceFile

_LITERAL = frozenset({"const", "tuple", "list", "unary", "binary"})
_COPYING = frozenset({"dict", "replace", "_replace", "update", "partial"})  # calls that make mappings and copies
_OF_OPTIONS = frozenset({"set_defaults", "Namespace", "SimpleNamespace"})  # calls whose keywords are names of options
_TAKING = frozenset({"reader", "dictionary"})  # owners that leave be what they do not know
_TOGETHER = 3  # names beside the old one that must be the owner's


class Owner(NamedTuple):
    """What has names. `kind`: class, function, method, parser, dictionary, module, namespace (`cfg.MODEL.HEAD`), reader
    (a function that looks up keys); `members`: what else its objects have; `within`: the function in which a dictionary
    is written, the class whose method it is."""

    kind: str
    name: str
    path: str
    at: At
    names: frozenset[str]
    members: frozenset[str] = frozenset()
    within: str = ""


class Stale(NamedTuple):
    """The first place in a file that has a name which its owner no longer has."""

    lost: Lost
    owner: Owner
    place: Occurrence

    @property
    def is_idle(self) -> bool:
        """Whether nothing minds the name: it stands in a recipe out of which code takes what it knows, and what it was
        for has no other name now; or it is put into a dictionary like another one, and not looked up."""
        unit = self.place.unit
        if unit is None:
            taken = self.owner.kind in _TAKING or self.owner.kind == "parser" and self.place.kind == "setting"
            return taken and not self.lost.renamed
        if self.owner.kind != "dictionary" or self.place.kind != "key":
            return False
        return all(
            unit.code.values[user].op in ("store_item", "dict") for user in unit.users.get(self.place.number, ())
        )


# Which owner the names at a place may be of.
_SETTING = frozenset({"class", "function", "parser", "dictionary", "namespace", "reader"})
_SETS = {"setting": _SETTING, "flag": _SETTING, "override": _SETTING, "variable": frozenset({"module"}),
         "key": frozenset({"class", "function", "dictionary"}), "keyword": frozenset({"class", "function", "parser"}),
         "text": frozenset({"method"}),
         "attribute": frozenset({"class", "parser"})}  # fmt: skip


class Company:
    """The places that a change left behind, as the names beside them tell."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self._groups: dict[SourceFile, list[list[Occurrence]]] = {}
        self._known: dict[Module, list[Owner]] = {}
        self._together: dict[frozenset[tuple[str, str]], bool] = {}
        self._sections = Sections(change.after)

    @cached_property
    def stale(self) -> list[Stale]:
        names: Names = self.change.analysis(Names)
        known = {(place.path, place.at) for lost in (*names.lost, *names.members) for place in lost.stale}
        found: dict[tuple[str, str], Stale] = {}  # one for each file
        for old, new in self._owners():
            gone = {name for name in old.names - new.names if len(name) > 1 and not name.startswith("_")}
            for name in sorted(gone):
                if old.kind == "class" and self._is_spelled_in(name, new):
                    continue
                for place in self._places(name, new):
                    if (place.path, place.at) not in known:
                        found.setdefault((place.path, name), Stale(_lost(name, old, new, place), new, place))
        return list(found.values())

    # -- owners --------------------------------------------------------------------------------------------

    def _owners(self) -> Iterator[tuple[Owner, Owner]]:
        """What has other names than before, in changed files."""
        for old, new in self.change.modules:
            if old is None or new is None or is_test(new.path) or is_foreign(new.path):
                continue
            after: dict[tuple[str, str], list[Owner]] = {}
            for each in self._of(new):
                after.setdefault((each.kind, each.name), []).append(each)
            for owner in _of_module(self.change.before, old):
                same = after.get((owner.kind, owner.name), ())
                kept = frozenset(name for other in same for name in other.names)  # of all dictionaries of a function
                other = max(same, key=lambda each: len(each.names & owner.names), default=None)
                if other is not None and owner.names - kept and 2 * len(owner.names & other.names) >= len(owner.names):
                    yield owner._replace(names=owner.names - (kept - other.names)), other

    def _of(self, module: Module) -> list[Owner]:
        """The owners of names in a file as it is now."""
        if module not in self._known:
            self._known[module] = list(_of_module(self.after, module))
        return self._known[module]

    def _others(self, name: str) -> Iterator[Owner]:
        """What else in the project has a name."""
        modules = {row.unit.module for row in self.after.occurrences(name) if row.unit is not None}
        for module in modules:
            if not is_test(module.path):
                yield from (
                    owner
                    for owner in self._of(module)
                    if name in owner.names and (owner.kind != "module" or self._reads(module, name))
                )

    def _reads(self, module: Module, name: str) -> bool:
        """Whether a file reads a variable of its own top: else it is a recipe like others."""
        return any(is_read(unit, name) for unit in self.after.units(module).values())

    # -- places --------------------------------------------------------------------------------------------

    def _places(self, name: str, owner: Owner) -> Iterator[Occurrence]:
        for source in self.after.mentioning(name):
            if is_test(source.path) or is_foreign(source.path):
                continue
            for group in self._of_file(source):
                for place in [row for row in group if row.name == name and owner.kind in _SETS.get(row.kind, ())]:
                    if place.kind == "attribute" and (name in owner.members or self._is_stored(name)):
                        continue
                    if owner.kind == "method" and (place.path != owner.path or not _is_inside(place.unit, owner)):
                        continue
                    if owner.kind == "dictionary" and place.unit is not None and place.unit.qualname == owner.within:
                        continue  # which makes one dictionary out of another
                    if self._stood_before(place) and self._is_of(group, place, owner) and not self._is_taken(place):
                        yield place

    def _is_spelled_in(self, name: str, owner: Owner) -> bool:
        """Whether a class still deals with a name as a text: it takes settings that were written for it before."""
        for row in self.after.occurrences(name):
            outer = row.unit.qualname if row.unit is not None else ""
            if row.path == owner.path and row.role == "spells" and outer.startswith(f"{owner.name}."):
                return True
        return False

    def _stood_before(self, place: Occurrence) -> bool:
        """Whether the line stood in the file before the change, and in the same function: what the change writes itself
        was not left behind."""
        if place.unit is not None and self.change.before.twin(place.unit) is None:
            return False
        sides = (self.change.before, self.after)
        before, after = (side.project.files.get(place.path) for side in sides)
        if before is None or after is None:
            return False
        return before is after or code_of(after.lines[place.at[0] - 1]) in {code_of(line) for line in before.lines}

    def _of_file(self, source: SourceFile) -> list[list[Occurrence]]:
        """The names of a file by what they are set in, or asked of."""
        known = self._groups.get(source)
        if known is None:
            module = self.after.project.modules.get(source.absolute)
            known = groups(source)
            for unit in self.after.units(module).values() if module is not None else ():
                known += _of_unit(unit)
            self._groups[source] = known
        return known

    def _is_of(self, group: list[Occurrence], place: Occurrence, owner: Owner) -> bool:
        targets = {row.name for row in group if row.kind == "target"}
        if targets:
            return owner.name in targets
        if (told := self._is_in_section(group, place, owner)) is not None:
            return told
        beside = {row.name for row in group if row.kind != "value"} - {place.name}
        own = len(beside & owner.names)
        if owner.kind == "namespace":
            return bool(beside) and beside <= owner.names and place.link == owner.name.rpartition(".")[2]
        if place.kind == "setting" and beside and beside <= owner.names and _sound_alike(place.link, owner.name):
            return True
        if own < _TOGETHER:
            return False
        if place.kind == "keyword" and not self._is_for(place, owner):
            return False
        if place.kind == "text":  # its class tells which function is meant
            return True
        others = [each for each in self._others(place.name) if each.kind in _SETS[place.kind]]
        if owner.kind == "reader":  # which makes an object of a class with what it reads
            others = [each for each in others if each.name not in owner.members]
        near = self._beside(place)
        if owner.path in near:  # one of another program cannot be meant
            others = [each for each in others if each.path in near]
        if place.kind == "flag" and any(self._are_parsed_together(owner, each) for each in others):
            return False
        return all(len(beside & each.names) < own for each in others)

    def _is_in_section(self, group: list[Occurrence], place: Occurrence, owner: Owner) -> bool | None:
        """Whether the path before a name leads through fields to the class that is its owner; None where it leads to
        no class. A single link must have another field of the owner below it."""
        classes, depth = self._sections.below(place.above) if owner.kind == "class" else (frozenset(), 0)
        if not any((cls.path, cls.qualname) == (owner.path, owner.name) for cls in classes):
            return None
        beside = {row.name for row in group if row.above == place.above} & owner.names
        return (depth > 1 or bool(beside)) and all(place.name not in _of_class(cls) for cls in classes)

    def _beside(self, place: Occurrence) -> frozenset[str]:
        """The paths of the modules that some program imports together with the one of a place."""
        return self.after.beside(place.unit.module) if place.unit is not None else frozenset()

    def _is_for(self, place: Occurrence, owner: Owner) -> bool:
        """Whether a keyword may be for an owner: options are set by calls that are there for it."""
        assert place.unit is not None
        callee = place.unit.code.values[place.unit.code.values[place.number].args[0]]
        if owner.kind == "parser" or callee.data in _OF_OPTIONS:
            return owner.kind in ("parser", "class") and callee.data in _OF_OPTIONS
        return not passes_to_library(self.after, place.unit, place.number)

    def _are_parsed_together(self, one: Owner, other: Owner) -> bool:
        """Whether the fields of two classes are options of one program: some call is given both."""
        if one.kind != "class" or other.kind != "class" or (one.path, one.name) == (other.path, other.name):
            return False
        key = frozenset(((one.path, one.name), (other.path, other.name)))
        if key not in self._together:
            modules = (self.after.project.modules.get(source.absolute) for source in self.after.mentioning(one.name))
            units = (unit for module in modules if module is not None for unit in self.after.units(module).values())
            self._together[key] = any(self._names_all(unit, key) for unit in units)
        return self._together[key]

    def _names_all(self, unit: Unit, classes: frozenset[tuple[str, str]]) -> bool:
        """Whether one call or tuple of a unit is given several classes side by side."""
        for value in unit.code.values:
            if value.op in ("tuple", "list", "call"):
                given = {self._class_at(unit, number) for number in value.args[1 if value.op == "call" else 0 :]}
                if classes <= given:
                    return True
        return False

    def _class_at(self, unit: Unit, number: int) -> tuple[str, str]:
        """The class that a value is, by its file and name."""
        value = unit.code.values[unit.root(number)]
        symbol: Symbol | None = None
        if value.op in ("name", "import"):
            symbol = self.after.flow.symbol(unit, value)
        elif value.op == "attr":
            owner = unit.code.values[unit.root(value.args[0])]
            module = self.after.flow.symbol(unit, owner) if owner.op in ("name", "import") else None
            symbol = module.member(value.data) if isinstance(module, Module) else None
        return (symbol.path, symbol.qualname) if isinstance(symbol, ClassDef) else ("", "")

    def _is_stored(self, name: str) -> bool:
        """Whether something stores an attribute of that name on an object from elsewhere."""
        return any(row.role == "defines" and row.kind == "attribute" for row in self.after.occurrences(name))

    def _is_taken(self, place: Occurrence) -> bool:
        """Whether the function that is called takes a keyword itself, or refuses it, which is told elsewhere."""
        if place.kind != "keyword" or place.unit is None:
            return False
        callee = place.unit.code.values[place.unit.code.values[place.number].args[0]]
        meant: list[Symbol] = [self.after.flow.symbol(place.unit, callee)] if callee.op in ("name", "import") else []
        if callee.op == "attr":
            meant += self.after.methods.get(callee.data, ())
        known = [
            constructor(each) if isinstance(each, ClassDef) else each.facts.params
            for each in meant
            if isinstance(each, ClassDef | Method)
        ]
        return any(
            params is None or place.name in {p.name for p in params} or not any(p.kind == "**" for p in params)
            for params in known
        )


def passes_to_library(side: Side, unit: Unit, number: int) -> bool:
    """Whether the keywords of a call go to something that nothing in the project defines, and that makes no mapping,
    copy or namespace with them: `template.render(…)`."""
    callee = unit.code.values[unit.code.values[number].args[0]]
    if callee.op == "attr":
        return callee.data not in _COPYING | _OF_OPTIONS and callee.data not in side.methods
    symbol = side.flow.symbol(unit, callee) if callee.op in ("name", "import") else None
    return isinstance(symbol, External) and symbol.path.rpartition(".")[2] not in _COPYING | _OF_OPTIONS


def _is_inside(unit: Unit | None, owner: Owner) -> bool:
    """Whether a place stands in the class of a method, outside of that method."""
    name = unit.qualname if unit is not None else ""
    return name.startswith(f"{owner.within}.") and name != owner.name


def _sound_alike(link: str, name: str) -> bool:
    """Whether the mapping in which settings stand is called after their owner: `deadlock` and `DeadlockDetect`."""
    return len(link) > 3 and link.replace("_", "").lower() in name.replace("_", "").lower()


def _of_module(side: Side, module: Module) -> Iterator[Owner]:
    """The owners of names in one file."""
    for name, cls in module.classes.items():
        if names := _of_class(cls):
            members = frozenset(member for each in cls.mro for member in (*each.methods, *dict(each.facts.attributes)))
            yield Owner("class", name, cls.path, cls.facts.at, names, members)
    for name, method in module.functions.items():
        if not name.startswith("<") and method.facts.params:
            names = frozenset(p.name for p in method.facts.params if p.kind in ("any", "kw"))
            kind, within = ("function", "") if method.cls is None else ("method", method.cls.qualname)
            yield Owner(kind, name, method.path, method.facts.at, names, within=within)
    rows = side.of_file(module.source)
    options = {name: place for name, places in rows.items() for place in places if place.kind == "option"}
    if options:
        first = min(options.values(), key=lambda row: row.at)
        yield Owner("parser", f"the parser in {module.name}", module.path, first.at, frozenset(options))
    for unit in side.units(module).values():
        for number, value in enumerate(unit.code.values):
            if value.op in ("dict", "call") and (keys := _keys(unit, number)):
                yield Owner(
                    "dictionary", f"the dictionary in {unit.qualname}", unit.path, unit.at(value.at), keys,
                    within=unit.qualname,
                )  # fmt: skip
        yield from _read(unit)
        yield from _namespaces(unit)
    top = frozenset(name for name, kind in module.facts.names.items() if kind not in ("def", "class", "import"))
    if top:
        yield Owner("module", module.name, module.path, (1, 1, 1, 1), top)


def _read(unit: Unit) -> Iterator[Owner]:
    """A function as the reader of a mapping that it is given: the keys that it looks up there."""
    values, found = unit.code.values, dict[int, set[str]]()
    for value in values:
        held, key = -1, -1
        if value.op == "item":
            held, key = value.args
        elif value.op == "compare" and value.data in ("In", "NotIn"):
            key, held = value.args
        elif value.op == "call" and len(value.args) > 1 and values[value.args[0]].op == "attr":
            held, key = values[value.args[0]].args[0], value.args[1]
            key = key if values[value.args[0]].data in ("get", "pop") else -1
        if key >= 0 and values[key].op == "const" and isinstance(values[key].data, str):
            root = unit.root(held)
            if values[root].op == "param":
                found.setdefault(root, set()).add(values[key].data)
    for keys in found.values():
        if len(keys) > _TOGETHER:
            named = frozenset(unit.named)
            yield Owner("reader", f"{unit.qualname}", unit.path, unit.at(unit.code.at), frozenset(keys), named)


def _namespaces(unit: Unit) -> Iterator[Owner]:
    """The rows of attributes that a unit fills: `cfg.MODEL.HEAD` of `cfg.MODEL.HEAD.DIM = 64`."""
    values, found = unit.code.values, dict[str, set[str]]()
    for value in values:
        if value.op != "store_attr":
            continue
        path = unit.text(value.at).split(".")[1:-1]  # behind the variable, before the name
        if path and all(part.isidentifier() for part in path):
            found.setdefault(".".join(path), set()).add(str(value.data))
    for name, names in found.items():
        if len(names) > _TOGETHER:
            yield Owner("namespace", name, unit.path, unit.at(unit.code.at), frozenset(names))


def _of_class(cls: ClassDef) -> frozenset[str]:
    """What a class is made with; of one with a base of a library its annotated fields."""
    params = constructor(cls)
    if params is not None:
        return frozenset(p.name for p in params if p.kind in ("any", "kw"))
    return annotated(cls)


def _keys(unit: Unit, number: int) -> frozenset[str]:
    """The literal keys of a dictionary, those that are set later with them; those of what `locals()` makes."""
    code, made = unit.code, unit.code.values[number]
    if made.op == "call":
        return variables_shown(unit, made)
    keys = [code.values[key] for key in made.args[::2] if key >= 0]
    keys += [
        code.values[value.args[1]]
        for value in code.values
        if value.op == "store_item" and unit.root(value.args[0]) == number
    ]
    return frozenset(key.data for key in keys if key.op == "const" and isinstance(key.data, str))


def _of_unit(unit: Unit) -> list[list[Occurrence]]:
    """The names that one unit sets in, or asks of, one object; at the top of a file its variables."""
    found: dict[tuple[int, str], list[Occurrence]] = {}
    for number, value in enumerate(unit.code.values):
        for root, kind, name, place in _named(unit, number, value):
            if isinstance(name, str) and name:
                at = unit.at(unit.code.values[_shown(unit, kind, name, place)].at)
                row = Occurrence(name, "asks", kind, unit, place, unit.path, at)
                found.setdefault((root, kind), []).append(row)
    return [rows for rows in found.values() if len({row.name for row in rows}) > _TOGETHER]


def _named(unit: Unit, number: int, value: Value) -> Iterator[tuple[int, str, object, int]]:
    """The names that a value sets or asks for: (of which object, as what, the name, where it stands)."""
    values, op = unit.code.values, value.op
    if op == "store_global" and unit.code.kind == "module":
        if values[value.args[0]].op in _LITERAL and not is_read(unit, value.data):
            yield -1, "variable", value.data, number
    elif op == "attr" and not unit.is_receiver(value.args[0]):
        yield unit.root(value.args[0]), "attribute", value.data, number
    elif op in ("item", "store_item") and values[value.args[1]].op == "const":
        yield unit.root(value.args[0]), "key", values[value.args[1]].data, value.args[1]
    elif op == "dict":
        keys = (each for each in value.args[::2] if each >= 0 and values[each].op == "const")
        yield from ((number, "key", values[each].data, each) for each in keys)
    elif op in ("tuple", "list", "set"):
        yield from ((number, "text", values[each].data, each) for each in value.args if values[each].op == "const")
    elif op == "call":
        callee = values[value.args[0]]
        yield from ((number, "keyword", name, number) for name in value.data.names if name not in (None, "*", "**"))
        if callee.op == "name" and callee.data == "dict":
            shape = zip(value.data.names, value.args[1:], strict=True)
            yield from ((number, "key", name, operand) for name, operand in shape if name not in (None, "*", "**"))
        elif callee.op == "attr" and callee.data in ("get", "pop") and len(value.args) > 1:
            yield unit.root(callee.args[0]), "key", values[value.args[1]].data, value.args[1]


def _shown(unit: Unit, kind: str, name: str, place: int) -> int:
    """The value at which a name is shown: of a keyword what is passed by it."""
    value = unit.code.values[place]
    return value.args[1 + value.data.names.index(name)] if kind == "keyword" else place


def is_read(unit: Unit, name: str) -> bool:
    """Whether anything in a file reads a variable of its top."""
    found = (unit.code.values[number] for number in unit.named.get(name, ()))
    return any(value.op == "name" and value.data == name for value in found)


def _lost(name: str, old: Owner, new: Owner, place: Occurrence) -> Lost:
    was = Occurrence(name, "defines", "field", None, -1, old.path, old.at)
    came, gone = new.names - old.names, old.names - new.names
    only = next(iter(came)) if len(came) == len(gone) == 1 else ""
    renamed = only if only and (are_like(only, name) or set(only.split("_")) & set(name.split("_"))) else ""
    now = was._replace(name=renamed, path=new.path, at=new.at) if renamed else None
    return Lost(name, "field", was, renamed, now, (place,))
