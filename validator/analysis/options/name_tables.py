"""Tables of a project in which functions, classes or settings stand under a name, and the names that each has.

OPTIMIZERS = {"adam": Adam}
OPTIMIZERS["sgd"] = SGD

@register("lion")  # which does `OPTIMIZERS[name] = cls`
class Lion: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.definitions import Module
from validator.definitions import Value as Variable
from validator.flow.constructors import body_of
from validator.flow.containers import Filled
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import stores
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.text_origins import text_origins
from validator.project import Project
from validator.settings.classes import is_enumeration

_ASKING = frozenset({"get", "keys", "values", "items", "copy", "__contains__"})
_ADDING = frozenset({"update", "setdefault"})
# Functions that keep nothing of a table which they are given.
_LOOKING = frozenset({
    "len", "list", "sorted", "print", "str", "repr", "isinstance", "set", "tuple", "iter", "enumerate", "dict", "join",
    "format", "bool", "type", "zip", "reversed", "max", "min", "any", "all", "map", "filter",
})  # fmt: skip
_ORDERING = frozenset({"list", "sorted", "tuple", "set", "frozenset"})
_MAKING = frozenset({"dict", "OrderedDict", "MappingProxyType"})


class NameTable(NamedTuple):
    """`names`: all that it has. `grown`: some are put there by functions, as code outside of the project may do."""

    names: frozenset[str]
    label: str
    path: str
    line: int
    grown: bool = False


class NameTables:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow
        self._of_variables: dict[tuple[Module, str], NameTable | None] = {}
        self._kept: dict[str, bool] = {}
        self._asked: set[tuple[Unit, int]] = set()
        self._known: dict[tuple[Unit, int], NameTable | None] = {}

    def of(self, place: Place) -> NameTable | None:
        """The table that a value is; None where it is none, or where it may have names that are not known."""
        place = place.root
        asked = (place.unit, place.number)
        if asked in self._known:
            return self._known[asked]
        if asked in self._asked:
            return None  # it is made of itself
        self._asked.add(asked)
        try:
            found = self._of(place)
        finally:
            self._asked.discard(asked)
        if not self._asked:  # else an answer that was cut off may be a part of it
            self._known[asked] = found
        return found

    def _of(self, place: Place) -> NameTable | None:
        if (variable := self._variable(place)) is not None:
            return self._of_variable(variable)
        if place.value.op == "dict":
            names = self._written(place)
            added = self._added_to_local(place) if names is not None else None
            at = place.unit.at(place.value.at)
            label = place.unit.variables.get(place.number, "the dictionary")
            return None if names is None or added is None else NameTable(names | added, label, place.unit.path, at[0])
        if place.value.op == "call" and place.method in ("keys", "copy") and place.receiver is not None:
            return self.of(place.receiver)
        if place.value.op == "call" and place.method in _ORDERING and len(place.value.args) == 2:
            return self.of(place.operand(1))
        if (members := self._of_enumeration(place)) is not None:
            return members
        if place.value.op == "attr":
            return self._of_attribute(place)
        return None

    @staticmethod
    def _of_enumeration(place: Place) -> NameTable | None:
        """The names of the members of an enumeration: `Mode[name]` looks one up."""
        held = list(place.closed.each)
        cls = held[0][1] if len(held) == 1 and held[0][0] == "class" else None
        if cls is None or not is_enumeration(cls) or cls.find("__class_getitem__") is not None:
            return None
        names = frozenset(row.target for row in body_of(cls) if not row.target.startswith("_"))
        return NameTable(names, cls.name, cls.path, cls.facts.name_at[0]) if names else None

    def _of_attribute(self, place: Place) -> NameTable | None:
        """The table that objects, or a class, keep as an attribute: whatever is put into one of that name counts."""
        name = str(place.value.data)
        if not self._is_kept_attribute(name):
            return None
        found = list(_stores_of_attribute(place))
        written = [self._written(each.root) for each in found]
        if not found or any(names is None for names in written):
            return None
        names = frozenset().union(*(names for names in written if names is not None))
        rows = self._fillings_of.get(name, [])
        more = [self._filled(unit, row) for unit, row in rows]
        if any(each is None for each in more):
            return None
        names = names.union(*(each for each in more if each is not None))
        return NameTable(names, place.text, found[0].unit.path, found[0].at[0], bool(rows)) if names else None

    def _is_kept_attribute(self, name: str) -> bool:
        """Whether nothing is done with any attribute of a name that may put something unknown into it."""
        known = self._kept.get(name)
        if known is None:
            known = self._kept[name] = all(
                self._keeps(place, user) for place in self.queries.attributes(name) for user in place.users
            )
        return known

    def _variable(self, place: Place) -> Variable | None:
        value = place.value
        if place.unit.code.kind == "module" and place.number in place.unit.stored_globals:
            return Variable(place.unit.module, place.unit.stored_globals[place.number])
        symbol = self.flow.symbol(place.unit, value) if value.op in ("name", "import") else None
        if value.op == "attr":
            owner = place.operand(0).root
            module = self.flow.symbol(owner.unit, owner.value) if owner.value.op in ("name", "import") else None
            symbol = module.member(value.data) if isinstance(module, Module) else None
        return symbol if isinstance(symbol, Variable) else None

    def _of_variable(self, variable: Variable) -> NameTable | None:
        key = (variable.module, variable.name)
        if key not in self._of_variables:
            self._of_variables[key] = None  # what is made of itself has no end
            self._of_variables[key] = self._whole(variable)
        return self._of_variables[key]

    def _whole(self, variable: Variable) -> NameTable | None:
        stores = list(self._stores(variable))
        if next(iter(self.flow.stores.writers(variable.name)), None) is not None:
            return None  # another module may replace it: `registry.TABLE = {}`
        written = [self._written(store.operand(0).root) for store in stores]
        if not stores or any(names is None for names in written) or not all(self._is_followed(variable)):
            return None
        names = frozenset().union(*(names for names in written if names is not None))
        grown = False
        for unit, row in self._fillings.get((variable.module, variable.name), ()):
            more = self._filled(unit, row)
            if more is None:
                return None
            names, grown = names | more, grown or unit.code.kind != "module"
        line = stores[0].at[0]
        return NameTable(names, variable.name, variable.module.path, line, grown) if names else None

    def _stores(self, variable: Variable) -> Iterator[Place]:
        for unit in self.flow.whole_units(variable.module):
            for place in self.queries.values(unit, "store_global"):
                if place.value.data == variable.name:
                    yield place

    # -- the names that code gives it ----------------------------------------------------------------------

    def _written(self, place: Place) -> frozenset[str] | None:
        """The names of a dictionary that is written out; None where some are not known."""
        value = place.value
        if value.op in ("list", "tuple", "set"):
            texts = [place.value_at(each).closed.constant() for each in value.args]
            return frozenset(map(str, texts)) if texts and all(isinstance(text, str) for text in texts) else None
        if value.op == "dict":
            found: frozenset[str] = frozenset()
            for key, held in zip(value.args[::2], value.args[1::2], strict=True):
                names = self._spread(place.value_at(held)) if key < 0 else self._named(place.value_at(key))
                if names is None:
                    return None
                found |= names
            return found
        if value.op == "call" and place.method in _MAKING:
            found = frozenset(str(name) for name in value.data.names if name not in (None, "*", "**"))
            for name, number in zip(value.data.names, value.args[1:], strict=True):
                names = self._spread(place.value_at(number)) if name in (None, "*", "**") else frozenset()
                if names is None:
                    return None
                found |= names
            return found
        return None

    def _spread(self, place: Place) -> frozenset[str] | None:
        """The names of a dictionary that another one takes in."""
        table = self.of(place)
        return table.names if table is not None else self._written(place.root)

    def _named(self, place: Place) -> frozenset[str] | None:
        """The texts that a key may be: none of one that is a number; None where that is not known."""
        constant = place.closed.constant()
        if constant is not None or place.value.op == "const":
            return frozenset({constant}) if isinstance(constant, str) else frozenset()
        found: set[str] = set()
        for origin in text_origins(place, _names_a_class):
            here = origin.place
            text = here.value.data if here.value.op == "const" else here.closed.constant()
            if here.value.op == "const" or isinstance(text, str):
                found.update([text] if isinstance(text, str) else ())
            elif _names_a_class(here) and (names := self._class_names(here.operand(0))):
                found |= names
            else:
                return None
            if origin.folded:
                found |= {name.lower() for name in found} | {name.upper() for name in found}
        return frozenset(found) or None

    def _class_names(self, place: Place) -> set[str]:
        """The names of the classes and functions that a value may be, for all callers; empty where one is not known."""
        found: set[str] = set()
        for origin in text_origins(place, _is_definition):
            objs = [o for o in origin.place.val.each if o[0] in ("class", "unit")]
            if not objs:
                return set()
            found.update(o[1].name for o in objs)
        return found

    @cached_property
    def _fillings(self) -> dict[tuple[Module | None, str], list[tuple[Unit, Filled]]]:
        """By variable of a module, or attribute of anything else (None), what the program puts into it."""
        found: dict[tuple[Module | None, str], list[tuple[Unit, Filled]]] = {}
        for module in self.project.modules.values():
            for unit in self.flow.whole_units(module):
                for row in unit.filled:
                    found.setdefault((self._owner(unit, row), row.name), []).append((unit, row))
        return found

    @cached_property
    def _fillings_of(self) -> dict[str, list[tuple[Unit, Filled]]]:
        """The same by the name alone."""
        found: dict[str, list[tuple[Unit, Filled]]] = {}
        for (_, name), rows in self._fillings.items():
            found.setdefault(name, []).extend(rows)
        return found

    def _owner(self, unit: Unit, row: Filled) -> Module | None:
        if not isinstance(row.owner, int):
            return row.owner
        value = unit.code.values[unit.root(row.owner)]
        symbol = self.flow.symbol(unit, value) if value.op in ("name", "import") else None
        return symbol if isinstance(symbol, Module) else None

    def _filled(self, unit: Unit, row: Filled) -> frozenset[str] | None:
        """The names under which a unit puts something into a table."""
        if row.keys:
            return self._named(Place(self.flow, unit, row.keys[-1]))
        return self._spread(Place(self.flow, unit, row.added))

    def _added_to_local(self, place: Place) -> frozenset[str] | None:
        """The names that a unit gives to a dictionary of its own after it is made."""
        unit, found = place.unit, frozenset[str]()
        values = unit.code.values
        for each in values:
            if each.op == "store_item" and unit.root(each.args[0]) == place.number:
                names = self._named(place.value_at(each.args[1]))
            elif each.op == "call" and any(unit.root(n) == place.number for n in each.args[1:]):
                names = frozenset() if values[each.args[0]].data in _LOOKING else None
            elif each.op == "attr" and unit.root(each.args[0]) == place.number:
                names = frozenset() if each.data in _ASKING else None
            else:
                continue
            if names is None:
                return None
            found |= names
        return found

    # -- who else may give it names ------------------------------------------------------------------------

    def _is_followed(self, variable: Variable) -> Iterator[bool]:
        """Of each use of a variable, whether all that it may put into the table is known."""
        for module in self.project.modules.values():
            if is_test(module.path) or variable.name.encode() not in module.source.data:
                continue
            for unit in self.flow.whole_units(module):
                own = [store.operand(0).root for store in self._stores(variable) if store.unit is unit]
                for place in [*own, *self.queries.values(unit, "name", "import", "attr")]:
                    if self._variable(place) == variable:
                        yield from (self._keeps(place, user) for user in place.users)

    def _keeps(self, place: Place, user: Place) -> bool:
        value = user.value
        if value.op == "mut":
            return value.args[0] != place.number or all(self._keeps(user, each) for each in user.users)
        if value.op == "attr":
            return value.data in _ASKING | _ADDING
        if value.op == "call":
            return user.method in _LOOKING
        if value.op == "dict":  # taken in by another one
            return place.number in value.args[1::2] and value.args[value.args.index(place.number) - 1] < 0
        if value.op in ("item", "store_item"):
            return value.args[0] == place.number
        return value.op in ("compare", "iter", "join", "store_global")


def _stores_of_attribute(place: Place) -> Iterator[Place]:
    """What is stored in an attribute of the objects, and in the bodies of the classes, of which it is read, or of those
    below and above."""
    yield from (store.operand(1) for store in stores(place))
    owners = [o[1] for o in place.operand(0).closed.each if o[0] in ("inst", "self", "class")]
    classes = {cls for owner in owners for cls in (*owner.mro, *owner.relatives)}
    for cls in sorted(classes, key=lambda each: (each.path, each.qualname)):
        body = place.flow.body_of(cls)
        for number, value in enumerate(body.code.values) if body is not None else ():
            if body is not None and value.op == "store_class" and value.data == place.value.data:
                yield Place(place.flow, body, number).operand(0)


def _names_a_class(place: Place) -> bool:
    return place.value.op == "attr" and place.value.data in ("__name__", "__qualname__")


def _is_definition(place: Place) -> bool:
    return place.value.op == "closure"
