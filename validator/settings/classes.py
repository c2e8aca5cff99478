"""Classes whose fields are settings: what each field may hold, as its annotation says."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from validator.definitions import PLAIN_BASES, ClassDef
from validator.facts.model import At
from validator.flow import Flow
from validator.flow.annotations import choices
from validator.flow.constructors import PYDANTIC, body_of, takes_more
from validator.flow.values import NONE_OBJ, Val
from validator.project import Project

_TYPED_DICT = frozenset({"typing.TypedDict", "typing_extensions.TypedDict"})
# Bases of libraries that give a class of annotated names no fields of their own.
_BASES = (
    PLAIN_BASES
    | PYDANTIC
    | _TYPED_DICT
    | {"pydantic_settings.BaseSettings", "pydantic_config.BaseConfig", "typing.NamedTuple", "msgspec.Struct"}
    | {f"draccus{module}.{name}" for module in ("", ".choice_types") for name in ("ChoiceRegistry", "PluginRegistry")}
)


_ENUMERATIONS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag", "IntFlag"})


# Calls that are given a class and read nothing for it.
_NOT_READING = frozenset({"isinstance", "issubclass", "cast", "type", "super", "field", "fields", "Field"})
_OF_FIELDS = frozenset({"__init__", "__post_init__"})


class Field(NamedTuple):
    """What a field may hold: one object of `classes`, or a list (`seq`) or a dictionary (`dict`) of such objects
    (`around`); `choices` are the values that a `Literal` or an enumeration allows, none where it may be any; `members`
    the names and values of an enumeration: readers make a member of either."""

    name: str
    annotation: str
    classes: tuple[ClassDef, ...]
    around: str
    choices: tuple[object, ...]
    at: At
    members: tuple[tuple[object, ...], ...] = ()

    def spellings(self, text: str) -> set[str]:
        """The text, and, where it stands for a member of an enumeration, the name and the value of that."""
        return {text}.union(*(map(str, member) for member in self.members if text in member))


class Schema:
    """The fields of one class."""

    def __init__(self, cls: ClassDef, fields: dict[str, Field], takes_more: bool) -> None:
        self.cls = cls
        self.fields = fields
        self.takes_more = takes_more

    @property
    def is_typed_dict(self) -> bool:
        return not _TYPED_DICT.isdisjoint(self.cls.external_bases)

    @property
    def is_strict(self) -> bool:
        """Whether objects of the class hold what the annotations say, or are not made: models of pydantic."""
        return any(base.startswith("pydantic") for base in self.cls.external_bases)


class Schemas:
    """The settings classes of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._known: dict[ClassDef, Schema | None] = {}

    def of(self, cls: ClassDef) -> Schema | None:
        """The fields of a class that is made of its annotated names; None for other classes."""
        if cls not in self._known:
            self._known[cls] = self._find(cls)
        return self._known[cls]

    @cached_property
    def all(self) -> tuple[Schema, ...]:
        return tuple(schema for cls in self.project.classes() if (schema := self.of(cls)) is not None)

    @cached_property
    def by_field(self) -> dict[str, list[Schema]]:
        found: dict[str, list[Schema]] = {}
        for schema in self.all:
            for name in schema.fields:
                found.setdefault(name, []).append(schema)
        return found

    def is_read(self, cls: ClassDef) -> bool:
        """Whether the project is seen to make objects of a class from data: it hands the class to somebody
        (`tyro.cli(C)`), asks it for an object (`C.model_validate(x)`), unpacks a dictionary into it (`C(**x)`), or
        does so with a class that has it, or a base of it, as a field."""
        return not self._read.isdisjoint(cls.mro)

    def is_converted(self, cls: ClassDef) -> bool:
        """Whether somebody may make what the annotations say of the data that objects of a class are made from, such
        as a member of an enumeration of a text: whoever is handed the class, and does not only unpack data into it."""
        return not self._converted.isdisjoint(cls.mro) or any(base in PYDANTIC for base in cls.external_bases)

    @cached_property
    def _read(self) -> frozenset[ClassDef]:
        return self._with_fields(cls for cls, _ in self._handed_over)

    @cached_property
    def _converted(self) -> frozenset[ClassDef]:
        return self._with_fields(cls for cls, converted in self._handed_over if converted)

    def _with_fields(self, classes: Iterable[ClassDef]) -> frozenset[ClassDef]:
        """Some classes with those of their fields, and those below these."""
        queue = list(dict.fromkeys(classes))
        found = set(queue)
        for cls in queue:
            schema = self.of(cls)
            inner = (
                {each for field in schema.fields.values() for each in field.classes} if schema is not None else set()
            )
            inner |= set(cls.descendants())
            queue += sorted(inner - found, key=lambda each: (each.path, each.qualname))
            found |= inner
        return frozenset(found)

    @cached_property
    def _handed_over(self) -> tuple[tuple[ClassDef, bool], ...]:
        """The classes that are handed data or handed to somebody, and whether that may convert what it is given: a
        function, or a method that the project does not write."""
        names, found = {schema.cls.name for schema in self.all}, []
        for function in self.project.functions():
            for call in function.facts.calls:
                owner, _, method = call.target.rpartition(".")
                paths = [owner] if method not in _OF_FIELDS else []
                paths += [call.target] if any(a.keyword == "**" for a in call.args) else []
                own = len(paths)
                if method not in _NOT_READING:
                    shown = [a.value for a in call.args if a.kind in ("path", "tuple")]
                    paths += [part.strip() for text in shown for part in text.strip("()[]").split(",")]
                for number, path in enumerate(paths):
                    known = path.rpartition(".")[2] in names
                    symbol = self.project.lookup(function, path) if known and path != "cls" else function.cls
                    if (known or path == "cls") and isinstance(symbol, ClassDef):
                        away = path == owner and symbol.find(method) is None
                        found.append((symbol, number >= own or away))
        return tuple(found)

    def below(self, classes: Iterable[ClassDef]) -> list[Schema]:
        """The schemas of some classes and of those below them: a field holds any of them."""
        every = dict.fromkeys(each for cls in classes for each in (cls, *cls.descendants()))
        return [schema for cls in every if (schema := self.of(cls)) is not None]

    def _find(self, cls: ClassDef) -> Schema | None:
        if not _holds_settings(cls):
            return None
        rows = {name: text for each in reversed(cls.mro) for name, text in each.facts.attributes if text}
        shown = {n: t for n, t in rows.items() if not n.startswith("_") and "ClassVar" not in t}
        fields = {name: self._field(cls, name, text) for name, text in shown.items()}
        open_ended = takes_more(cls) or any(base not in _BASES for base in cls.external_bases)
        return Schema(cls, fields, open_ended) if fields else None

    def _field(self, cls: ClassDef, name: str, text: str) -> Field:
        declared = self.flow.fields.declared(cls, name)
        classes, around = _held(declared)
        allowed: Iterable[object] | None = choices(text) if "Literal" in text else None
        members: tuple[tuple[object, ...], ...] = ()
        if classes and all(is_enumeration(each) for each in classes):
            only = not around and declared.objs <= {NONE_OBJ, *(("self", each) for each in classes)}
            members = tuple(member for each in classes for member in _members(each))
            allowed, classes = (
                dict.fromkeys(spelling for member in members for spelling in member) if only else None,
                (),
            )
        places = (row.at for each in cls.mro for row in body_of(each) if row.target == name and row.annotation)
        return Field(name, text, classes, around, tuple(allowed or ()), next(places, cls.facts.name_at), members)


def _holds_settings(cls: ClassDef) -> bool:
    return any(each.is_record for each in cls.mro) or any(
        base in _BASES and base not in PLAIN_BASES for base in cls.external_bases
    )


def is_enumeration(cls: ClassDef) -> bool:
    """Whether a class is an enumeration."""
    return any(base.rpartition(".")[2] in _ENUMERATIONS for base in cls.external_bases)


def _members(cls: ClassDef) -> list[tuple[object, ...]]:
    """The name of each member of an enumeration, and its value where that is written; none where the enumeration may
    make others of what it is given."""
    if cls.find("_missing_") is not None:
        return []
    rows = [row for row in body_of(cls) if not row.target.startswith("_")]
    return [(row.target, *([ast.literal_eval(row.value)] if row.kind == "const" else [])) for row in rows]


def _held(value: Val) -> tuple[tuple[ClassDef, ...], str]:
    """The classes of which a field holds an object, a list or a dictionary; none where it may be one or the other."""
    direct = tuple(o[1] for o in value.each if o[0] == "self")
    around = [(inner[0], o[0]) for o in value.each if o[0] in ("seq", "dict") and (inner := _held(o[-1]))[0]]
    if direct or not around:
        return (direct, "") if not around else ((), "")
    return around[0] if len(around) == 1 else ((), "")
