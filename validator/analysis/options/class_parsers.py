"""Command-line options that libraries make of the fields of classes (`HfArgumentParser`, `tyro.cli`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.options.option import Option
from validator.definitions import ClassDef
from validator.facts.model import Call
from validator.flow.literals import UNKNOWN
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Index
from validator.flow.values import Val, elements
from validator.models.signatures import Signature, signature
from validator.project import Method, Project
from validator.settings.classes import Field, Schemas

# By the function that reads the command line, the options that it has besides those of the class.
_READERS = {"tyro.cli": ("--help",), "draccus.parse": ("--config_path",), "pyrallis.parse": ("--config_path",)}
_OTHER_WAYS = frozenset({"config", "args", "default", "use_underscores", "add_help", "subparsers"})  # of tyro
_NUMBERS = {f"{before}{name}{after}": name for name in ("int", "float") for before, after in (
    ("", ""), ("Optional[", "]"), ("Union[", ",None]"), ("", "|None"), ("None|", ""),
)}  # fmt: skip


class Reading(NamedTuple):
    """A call that reads the command line into an object of a class, in the function that says which class."""

    function: Method
    call: Call
    cls: ClassDef
    more: tuple[str, ...]
    plain: bool


class ClassParsers:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.queries = project.analysis(Queries)
        self.schemas = project.analysis(Schemas)
        self.index = Index(self.queries.flow)

    def readings(self) -> Iterator[Reading]:
        """The calls of libraries whose options are dotted: one for each class, where callers say which."""
        for reader, more in _READERS.items():
            for place in self.queries.calls_anywhere(reader):
                words = {name for name in place.value.data.names if name is not None}
                given = place.operand(1) if len(place.value.args) > 1 else None
                for unit, number, cls in self._classes(place, given.val) if given is not None else ():
                    if (said := _call_at(unit, number)) is not None:
                        yield Reading(*said, cls, more, words.isdisjoint(_OTHER_WAYS))

    @staticmethod
    def given(place: Place) -> tuple[list[ClassDef], list[Signature], bool]:
        """The classes that a call is given, one or a tuple of them: the project's, those of the tables of libraries,
        and whether these are all."""
        given = place.argument("dataclass_types", 0)
        if given is None:
            return [], [], False
        inside = elements(given.closed) if given.closed.of("tuple") or given.closed.of("seq") else given.closed
        classes = [o[1] for o in inside.each if o[0] == "class"]
        taken = [found for o in inside.each if o[0] == "ext" and (found := signature(o[1])) is not None]
        known = len(classes) + len(taken)
        return classes, taken, bool(known) and known == len(inside.objs)

    def _classes(
        self, place: Place, value: Val, seen: frozenset[Unit] = frozenset()
    ) -> Iterator[tuple[Unit, int, ClassDef]]:
        """The classes that a value is, each with the call that names it: of a parameter, those of the callers."""
        for o in value.each:
            if o[0] == "class":
                yield place.unit, place.number, o[1]
            elif o[0] == "param" and place.unit not in seen:
                for caller, number, target in self.index.sites(place.unit):
                    passed = target.argument(o[1])
                    if passed is not None:
                        yield from self._classes(Place(place.flow, caller, number), passed, seen | {place.unit})

    def options(self, cls: ClassDef, prefix: str = "", nested: bool = True) -> tuple[list[Option], bool]:
        """The options for the fields of a class, and whether these are all."""
        schema = self.schemas.of(cls)
        if schema is None or schema.is_typed_dict:
            return [], False
        found: list[Option] = []
        complete = not schema.takes_more
        for field in schema.fields.values():
            inner = self.schemas.below(field.classes) if nested and not field.around else []
            if len(inner) > 1 or field.classes and not inner:
                complete = False
            elif inner:
                rows, whole = self.options(inner[0].cls, f"{prefix}{field.name}.")
                found, complete = [*found, *rows], complete and whole
            else:
                found.append(_option(cls, field, prefix))
                complete = complete and "tyro." not in field.annotation
        return found, complete


def library_class(cls: ClassDef) -> Signature | None:
    """The class of a library whose fields a data class of the project has beside its own, where a table has it."""
    known = [signature(base) for base in cls.external_bases]
    plain = all(each.has_plain_decorators and (each.is_record or not each.facts.attributes) for each in cls.mro)
    return known[0] if len(known) == 1 and plain else None


def _option(cls: ClassDef, field: Field, prefix: str) -> Option:
    """The option for a field that holds a plain value."""
    name = f"{prefix}{field.name}"
    plain = field.annotation.replace(" ", "").replace("typing.", "")
    choices = [value for value in field.choices if value is not None] or None
    nargs = "?" if plain == "bool" else None if plain in _NUMBERS or choices else UNKNOWN
    flags = tuple(_spellings(prefix, field.name, plain == "bool"))
    return Option(name, flags, _NUMBERS.get(plain, plain), "store", nargs, choices, UNKNOWN, False, cls.path, field.at)


def _spellings(prefix: str, name: str, switch: bool) -> Iterator[str]:
    """`--model.use_cache`, `--model.use-cache`, and what switches it off."""
    for each in (name, f"no_{name}") if switch else (name,):
        yield from dict.fromkeys((f"--{prefix}{each}", f"--{prefix}{each}".replace("_", "-")))


def _call_at(unit: Unit, number: int) -> tuple[Method, Call] | None:
    """The facts of a call of a unit."""
    at = unit.at(unit.code.values[number].at)
    function = unit.method
    call = next((each for each in function.facts.calls if each.at == at), None) if function is not None else None
    return (function, call) if function is not None and call is not None else None
