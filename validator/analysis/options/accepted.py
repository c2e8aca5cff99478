"""Which texts the program takes where it looks something up by name, or refuses a name that it does not know.

`OPTIMIZERS[args.optim]` raises KeyError for a name that the table lacks; `if name == "adam": … else: raise` says itself
what it takes. The value is followed back to the option, the key of a configuration or the text that it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.programs import Programs
from validator.analysis.options.name_tables import NameTables
from validator.analysis.options.namespaces import Held, Namespaces
from validator.analysis.options.parsers import Parser
from validator.errors import nearest
from validator.finding import Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import returned
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.no_texts import is_no_text
from validator.flow.queries.values.text_origins import Origin, text_origins
from validator.flow.values import Obj
from validator.project import ClassDef, Missing, Module, Project
from validator.settings.classes import Schemas, is_enumeration

_REFUSING = frozenset({"KeyError", "LookupError", "Exception", "BaseException"})
_COMPARING = frozenset({"Eq", "NotEq", "In", "NotIn"})
_TEXT_BASES = frozenset({"str", "builtins.str", "enum.StrEnum"})
_SHOWN = 6  # names that a message lists
_LEAST = 2  # names that something takes before a text is held against it


class Taken(NamedTuple):
    """What a place takes: `names`, of a table or of the conditions that stand before a `raise` (`table` is empty).

    `grown`: functions put names into the table, as code outside of the project may do. `under`: another condition
    decides first whether the value is held against the names.
    """

    place: Place
    names: frozenset[str]
    table: str
    path: str
    line: int
    grown: bool
    module: Module | None = None  # what a name is looked up in: `getattr(models, name)`
    under: bool = False


class Asked(NamedTuple):
    """A value that comes from `origin` to a place that takes some names only."""

    taken: Taken
    origin: Origin

    def refuses(self, text: str) -> bool:
        """Whether a text is refused there; a condition on the way may have seen to it before."""
        names, module = self.taken.names | self.origin.said, self.taken.module
        if module is not None:
            return text.isidentifier() and text not in names and isinstance(module.member(text), Missing)
        if self.origin.folded:
            return bool(text) and text.lower() not in {name.lower() for name in names}
        return bool(text) and text not in names

    def always_refuses(self, text: str) -> bool:
        """Whether a text is refused whatever else is set."""
        return self.refuses(text) and not self.taken.under

    @property
    def is_certain(self) -> bool:
        """Whether nothing else decides on the way, and nobody else puts names into the table."""
        return not (self.origin.conditional or self.taken.grown or self.taken.under)

    def told(self, text: str) -> str:
        """What happens to a text that is refused, and what is taken, for messages."""
        place, names = self.taken.place, sorted(self.taken.names)
        listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        if self.taken.module is not None:
            return f"module `{self.taken.table}` has no {text!r}: AttributeError. It has {listed}"
        if self.taken.table:
            return f"`{self.taken.table}`{place.where} has no {text!r}: KeyError. It has {listed}"
        where = "the program" if place.unit.code.kind == "module" else f"`{place.unit.qualname}`"
        return f"{where} refuses {text!r}: it takes {listed}"

    def advice(self, text: str) -> str:
        return f"name one of these, or add it{nearest(text, sorted(self.taken.names))}"

    @property
    def related(self) -> Related:
        return Related(self.taken.path, self.taken.line, "what it takes is written here")


class Accepted:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self.tables = project.analysis(NameTables)
        self.namespaces = project.analysis(Namespaces)

    @cached_property
    def texts(self) -> tuple[Asked, ...]:
        """The texts in the code that come to such a place."""
        return tuple(asked for asked in self._all if _is_text(asked.origin.place))

    @cached_property
    def numbers(self) -> tuple[Asked, ...]:
        """What is surely no text, and comes to conditions that refuse all but some texts."""
        rows = (asked for asked in self._all if not (asked.taken.table or asked.origin.typed))
        return tuple(asked for asked in rows if is_no_text(asked.origin.place))

    @cached_property
    def options(self) -> dict[tuple[Parser, str], list[Asked]]:
        """By parser and destination where the values of an option come to."""
        found: dict[tuple[Parser, str], list[Asked]] = {}
        for asked in self._all:
            for parser, name in self._option(asked.origin.place):
                if not self.namespaces.is_written(frozenset({Held(parser, "")}), name) and self._is_of_program(
                    asked, parser.module
                ):
                    found.setdefault((parser, name), []).append(asked)
        return found

    @cached_property
    def keys(self) -> list[tuple[Obj, str, Asked]]:
        """The sections of configurations, with the key whose value comes to such a place."""
        rows = ((o, key, asked) for asked in self._all for o, key in _keys(asked.origin.place))
        return [row for row in rows if self._is_of_program(row[2], row[0][1][0][0].module)]

    @cached_property
    def fields(self) -> dict[tuple[ClassDef, str], list[Asked]]:
        """By class and field where the values of a field of settings come to, that nothing else is put into."""
        found: dict[tuple[ClassDef, str], list[Asked]] = {}
        for asked in self._all:
            for cls, name in self._field(asked.origin.place):
                if self._only_replaced(name, asked):
                    found.setdefault((cls, name), []).append(asked)
        return found

    def _only_replaced(self, name: str, asked: Asked) -> bool:
        """Whether a field is stored by nothing but by what is looked up for it: `c.mode = Mode[c.mode]`."""
        units = self.queries.flow.mentions.units(name)
        stores = (each for unit in units for each in self.queries.values(unit, "store_attr") if each.value.data == name)
        return all(each.operand(1).root.key == asked.taken.place.root.key for each in stores)

    def _is_of_program(self, asked: Asked, entry: Module) -> bool:
        """Whether a place is in the program that reads an option or a file: functions that several programs share hand
        on the values of all of them."""
        modules = self.project.analysis(Programs).modules(entry)
        return all(place.unit.module in modules for place in (asked.taken.place, asked.origin.place))

    @cached_property
    def _all(self) -> tuple[Asked, ...]:
        found = []
        for unit in self.queries.of_program():
            rows = [] if is_aside(unit.path) else [*self._lookups(unit), *self._refusals(unit)]
            compared = self._compared_in(unit) if rows else {}
            for key, taken in rows:
                origins = text_origins(key, self._is_setting, taken.place)
                kept = (each for each in origins if self._is_told(each.place))
                here = compared.get(key.root.hint, set())
                found += [Asked(taken, self._with_all_said(origin, here)) for origin in kept]
        return tuple(found)

    def _is_told(self, place: Place) -> bool:
        return _is_text(place) or is_no_text(place) or self._is_setting(place)

    def _with_all_said(self, origin: Origin, here: set[str]) -> Origin:
        """An origin with the texts that code anywhere compares with what is called so, and the function itself with the
        variable: who asks for them may see to it that they do not come to the place."""
        names = origin.kept | {str(key) for _, key in (*self._option(origin.place), *_keys(origin.place))}
        said = origin.said.union(here, *(self._compared.get(name.rpartition(".")[2], ()) for name in names))
        return origin._replace(said=said)

    @cached_property
    def _compared(self) -> dict[str, set[str]]:
        """By the name of an attribute, a key, or a function the texts that code compares with it, or its result."""
        found: dict[str, set[str]] = {}
        for unit in self.queries.of_program():
            for part, texts in self._comparisons(unit):
                name: object = None
                if part.value.op == "attr":
                    name = part.value.data
                elif part.value.op == "item" or _is_get(part):
                    name = part.operand(1).value.data
                elif part.value.op == "call":
                    name = part.method
                stored = (each.value for each in part.users if each.value.op == "store_attr")
                names = {each.data for each in stored if each.args[1] == part.number}  # `self.x = x`, then `self.x`
                for each in names if name is None else {name}:
                    found.setdefault(str(each), set()).update(texts)
        return found

    def _compared_in(self, unit: Unit) -> dict[str, set[str]]:
        """By the name of a variable the texts that a function compares with it."""
        found: dict[str, set[str]] = {}
        for part, texts in self._comparisons(unit):
            if part.value.op in ("param", "phi", "free", "name") and part.hint:
                found.setdefault(part.hint, set()).update(texts)
        return found

    def _comparisons(self, unit: Unit) -> Iterator[tuple[Place, set[str]]]:
        """The parts of each comparison with texts, and these."""
        for place in self.queries.values(unit, "compare"):
            parts = list(place.parts) if place.value.data in _COMPARING else []
            constants = (part.closed.constant() for part in parts if part.value.op in ("const", "name", "attr"))
            texts = {each for each in constants if isinstance(each, str)}
            yield from ((part, texts) for part in parts if texts)

    def _lookups(self, unit: Unit) -> Iterator[tuple[Place, Taken]]:
        """`TABLE[name]`, `getattr(module, name)`, where nothing catches what that raises."""
        for place in self.queries.values(unit, "item"):
            key, owner = place.operand(1), place.operand(0)
            if key.value.op in ("const", "slice") or place.catches(*_REFUSING):
                continue
            if owner.root.value.op == "attr" and owner.root.value.data == "__dict__":
                yield from self._members(place, owner.root.operand(0), key)
            table = self.tables.of(owner)
            if table is not None and len(table.names) >= _LEAST:
                yield key, Taken(place, table.names, table.label, table.path, table.line, table.grown)
        for place in self.queries.calls_in(unit):
            asks = place.method == "getattr" and len(place.value.args) == 3
            if asks and place.operand(2).value.op != "const" and not place.catches("AttributeError", *_REFUSING):
                yield from self._members(place, place.operand(1), place.operand(2))

    def _members(self, place: Place, owner: Place, key: Place) -> Iterator[tuple[Place, Taken]]:
        """What is looked up among the names of a module."""
        objs = owner.closed.objs
        module = next(iter(objs))[1] if len(objs) == 1 and all(o[0] == "module" for o in objs) else None
        if isinstance(module, Module):
            names = frozenset(name for name in module.facts.names if not name.startswith("_"))
            yield key, Taken(place, names, module.name, module.path, 1, False, module)

    def _refusals(self, unit: Unit) -> Iterator[tuple[Place, Taken]]:
        """`if name == "a": … elif name in TABLE: … else: raise …`, with all names that the conditions tell."""
        blocks = unit.code.blocks
        for number, block in enumerate(blocks):
            if block.end[0] != "raise":
                continue
            key, names, first, grown, under = None, frozenset[str](), None, False, False
            for test, way in _before(unit, number):
                told = self._told(Place(self.flow, unit, test), way)
                if told is None or key is not None and told[0].key != key.key:
                    under = key is not None and not _asks(Place(self.flow, unit, test), key)
                    break
                key, names, first, grown = told[0], names | told[1], Place(self.flow, unit, test), grown or told[2]
            if key is None or first is None or first.is_tried or _is_verdict(key):
                continue
            if len(names) >= _LEAST:
                yield key, Taken(first, names, "", unit.path, first.at[0], grown, under=under)

    def _told(self, test: Place, way: bool) -> tuple[Place, frozenset[str], bool] | None:
        """What is compared by a condition, and the names of which it is none where the condition goes one way."""
        while test.value.op == "unary" and test.value.data == "Not":
            test, way = test.operand(0), not way
        value = test.value
        if value.op != "compare" or len(value.args) != 2 or way is not (value.data in ("NotEq", "NotIn")):
            return None
        left, right = test.operand(0), test.operand(1)
        if value.data in ("Eq", "NotEq"):
            left, right = (right, left) if isinstance(left.val.constant(), str) else (left, right)
            texts = self._texts(right)
            return (left, texts, False) if texts else None
        if value.data not in ("In", "NotIn"):
            return None
        held = right.root
        if held.value.op in ("tuple", "list", "set"):
            rows = [self._texts(held.value_at(number)) for number in held.value.args]
            return (left, frozenset().union(*rows), False) if all(rows) and not held.value.data else None
        table = self.tables.of(held)
        return (left, table.names, table.grown) if table is not None else None

    def _texts(self, place: Place) -> frozenset[str]:
        """What a value is compared with, in the words of who writes it: a text; of a member of an enumeration that is
        no text itself, and of which one has been made, the name and the value."""
        text = place.closed.constant()  # what callers pass, all the same, is what is compared with it
        if not isinstance(text, str):
            return frozenset()
        classes = [o[1] for o in place.operand(0).val.of("class")] if place.value.op == "attr" else []
        made = any(is_enumeration(cls) and not _TEXT_BASES.intersection(cls.external_bases) for cls in classes)
        return frozenset({text, str(place.value.data)} if made else {text})

    def _is_setting(self, place: Place) -> bool:
        return bool(self._option(place)) or bool(_keys(place)) or bool(self._field(place))

    def _field(self, place: Place) -> list[tuple[ClassDef, str]]:
        """The field of a class of settings that an attribute is."""
        if place.value.op != "attr":
            return []
        name, schemas = str(place.value.data), self.project.analysis(Schemas)
        classes = [o[1] for o in place.operand(0).closed.each if o[0] in ("self", "inst")]
        found = [(cls, schemas.of(cls)) for cls in classes]
        return [(cls, name) for cls, schema in found if schema is not None and name in schema.fields]

    def _option(self, place: Place) -> list[tuple[Parser, str]]:
        if place.value.op != "attr":
            return []
        held = self.namespaces.held(place.operand(0))
        return [(each.parser, each.below(str(place.value.data))) for each in held]


def _is_get(place: Place) -> bool:
    return place.value.op == "call" and place.method == "get" and len(place.value.args) > 1


def _is_text(place: Place) -> bool:
    return place.value.op == "const" and isinstance(place.value.data, str)


def _is_verdict(key: Place) -> bool:
    """Whether what is tested is what a function of the project says of its arguments, and is used for nothing else:
    `assert kind_of(row) in ("text", "image")` refuses rows, and is there for what it refuses."""
    root = key.root
    used = {user.value.op for user in root.users} - {"mut"}  # the call may change its arguments
    return root.value.op == "call" and used == {"compare"} and returned(root) is not None


def _asks(test: Place, key: Place) -> bool:
    """Whether a condition asks something of the value itself: `if name:`, `name is not None`."""
    return any(part.key == key.key for part in (test, *test.parts))


def _keys(place: Place) -> list[tuple[Obj, str]]:
    """Of what is read of a configuration: the section, and the key."""
    owner: Place | None = place.operand(0) if place.value.op in ("attr", "item") else None
    key = place.value.data
    if place.value.op == "item":
        key = place.operand(1).val.constant()
    elif _is_get(place):
        owner, key = place.receiver, place.operand(1).val.constant()
    return [(o, key) for o in owner.closed.of("section")] if owner is not None and isinstance(key, str) else []


def _before(unit: Unit, block: int) -> Iterator[tuple[int, bool]]:
    """The conditions that lead to a block and to nothing else, the last first, each with the way that is taken."""
    blocks = unit.code.blocks
    seen = {block}
    while True:
        before = [pred for pred, raised in blocks[block].preds if not raised]
        if len(before) != 1 or before[0] in seen:
            return
        end = blocks[before[0]].end
        if end[0] == "branch":
            yield end[1], end[2] == block
        seen.add(before[0])
        block = before[0]
