"""Tables of a project that files fill when they are imported, by decorators or calls, and that other code asks by key.

@HEADS.register("linear")  # `self._items[name] = cls`
class Linear: ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.beside import Beside
from validator.definitions import ClassDef, Module
from validator.definitions import Value as Variable
from validator.facts.model import At
from validator.flow.containers import Filled
from validator.flow.foreign import is_unknown
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_by_hand, is_test
from validator.project import Project

_WORDS = re.compile(rb"\w+")

Table = Variable | ClassDef  # a variable of a file that is a table, or an object, or a class, that keeps one

# What imports a file whose name it is given, or runs it: Python's own, and those that make what a configuration names.
_IMPORTING = frozenset({
    "import_module", "__import__", "exec", "iter_modules", "walk_packages", "spec_from_file_location", "exec_module",
    "load_module", "run_module", "run_path", "entry_points", "iter_entry_points", "load_entry_point", "locate",
    "find_loader", "attach", "LazyLoader", "LazyImporter", "_LazyModule", "instantiate",
    "get_class", "get_object", "get_method", "SourceFileLoader", "import_string", "import_modules_from_strings",
    "import_user_module", "import_module_and_submodules", "import_plugins",
})  # fmt: skip


class Registration(NamedTuple):
    """A call with which a file, when it is imported, puts into a table what it defines."""

    table: Table
    place: Place
    keys: frozenset[str]

    @property
    def at(self) -> At:
        """Where it stands: of a decorator that itself, not what it decorates."""
        decorates = self.place.value.op == "call" and self.place.value.data.names == ("@",)
        return (self.place.operand(0) if decorates else self.place).at

    @property
    def module(self) -> Module:
        return self.place.unit.module


class Registrations:
    """Answers for one project; asked for with `project.analysis(Registrations)`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.flow = self.queries.flow

    @cached_property
    def by_table(self) -> dict[Table, list[Registration]]:
        """The registrations of files, by table; without tables that something else may fill, too."""
        found: dict[Table, list[Registration]] = {}
        open_tables: set[Table] = set(self._filled_otherwise)
        for unit, rows in self._filling.items():
            calls = [call for call in self.queries.calls_of(unit) if not is_test(call.unit.path)]
            for call in (each for each in calls if each.unit not in self._filling):
                for table in {self._table(call, row) for row in rows}:
                    if table is None or call.unit.code.kind != "module" or call.tests_inside:
                        open_tables.update(self._tables_of(calls, rows) if table is None else [table])
                    else:
                        found.setdefault(table, []).append(Registration(table, call, _keys(call)))
        for row in self._stored_at_import:
            found.setdefault(row.table, []).append(row)
        if self._are_filled_unseen:
            return {}
        return {table: rows for table, rows in found.items() if table not in open_tables}

    @cached_property
    def _are_filled_unseen(self) -> bool:
        """Whether a method that fills tables may be called on an object of which nothing is known."""
        names = {part for unit in self._filling for part in unit.qualname.split(".")}
        calls = self.queries.called_in_program(frozenset(names))
        return any(call.receiver is not None and is_unknown(call.operand(0).closed) for call in calls)

    @cached_property
    def _variables_filled(self) -> list[tuple[Variable, Unit, Filled]]:
        """What code puts into variables of files that are containers."""
        rows = ((row.owner, unit, row) for unit in self.queries.of_program() for row in unit.filled)
        return [(Variable(owner, row.name), unit, row) for owner, unit, row in rows if isinstance(owner, Module)]

    @cached_property
    def _stored_at_import(self) -> list[Registration]:
        """What files put into the tables of others as they are imported: `TABLE["linear"] = Linear`."""
        found = []
        for table, unit, row in self._variables_filled:
            if unit.code.kind == "module" and row.keys:
                place = Place(self.flow, unit, row.keys[-1])
                text = place.val.constant()
                found.append(Registration(table, place, frozenset({text} if isinstance(text, str) else ())))
        return found

    @cached_property
    def _filled_otherwise(self) -> set[Variable]:
        """Variables into which functions put something of their own, or whole dictionaries go."""
        return {
            table
            for table, unit, row in self._variables_filled
            if not row.keys or unit.code.kind != "module" and unit not in self._filling
        }

    @cached_property
    def _filling(self) -> dict[Unit, list[Filled]]:
        """The functions that put what they are given into a dictionary that others see, also through others."""
        units = (unit for unit in self.queries.of_program() if unit.code.kind == "function")
        rows = ((unit, [row for row in unit.filled if row.keys and _is_given(unit, row.added)]) for unit in units)
        found = {unit: rows for unit, rows in rows if rows}
        queue = list(found)
        for unit in queue:
            for call in self.queries.calls_of(unit):
                passing = call.unit.code.kind == "function" and self._is_passed_on(call, found[unit])
                if passing and call.unit not in found:
                    found[call.unit] = found[unit]
                    queue.append(call.unit)
        return found

    @staticmethod
    def _is_passed_on(call: Place, rows: list[Filled]) -> bool:
        """Whether a function has a table filled with what it is given itself: of its own object, or of one variable."""
        given = any(_is_given(call.unit, number) for number in call.value.args[1:])
        own = call.receiver is not None and call.receiver.root.value.op in ("param", "free")
        return given and (own or all(isinstance(row.owner, Module) for row in rows))

    def _tables_of(self, calls: list[Place], rows: list[Filled]) -> set[Table]:
        return {table for call in calls for row in rows if (table := self._table(call, row)) is not None}

    def _table(self, call: Place, row: Filled) -> Table | None:
        """The table that a call fills: the variable, or the object or class whose method is called."""
        return Variable(row.owner, row.name) if isinstance(row.owner, Module) else self._owner(call.operand(0))

    def _owner(self, callee: Place) -> Table | None:
        """The variable or class at the beginning of what is called: `HEADS` of `HEADS.register("linear")(cls)`."""
        place = callee.root
        while (table := self._symbol(place)) is None and place.value.op in ("call", "attr"):
            made, place = place.value.op == "call", place.operand(0).root
            if made and isinstance(self._symbol(place), ClassDef):
                return None  # an object of its own
        return table

    def _symbol(self, place: Place) -> Table | None:
        value = place.value
        symbol = self.flow.symbol(place.unit, value) if value.op in ("name", "import") else None
        if value.op in ("call", "dict") and place.number in place.unit.stored_globals:
            symbol = Variable(place.unit.module, place.unit.stored_globals[place.number])
        if value.op == "attr":
            owner = place.operand(0).root
            module = self.flow.symbol(owner.unit, owner.value) if owner.value.op in ("name", "import") else None
            symbol = module.member(value.data) if isinstance(module, Module) else None
        return symbol if isinstance(symbol, Variable | ClassDef) else None

    def is_written(self, table: Table) -> bool:
        """Whether something may stand in a table before files put theirs there."""
        if isinstance(table, ClassDef):
            return False
        units = self.flow.whole_units(table.module)
        stores = [place for unit in units for place in self.queries.values(unit, "store_global")]
        held = [place.operand(0).root for place in stores if place.value.data == table.name]
        parts = [part for each in held for part in _parts(each)]
        return any(part.value.op in ("list", "tuple", "set", "collect") for part in parts) or any(
            part.value.op == "dict" and part.value.args for part in parts
        )

    # -- who asks it ---------------------------------------------------------------------------------------

    def asked(self, table: Table, but: set[Module]) -> Place | None:
        """Where code asks a table for what stands under a key, in other files than some."""
        if isinstance(table, Variable):
            found = (place for place in self._keyed if self._symbol(place.operand(0).root) == table)
            used = (place for place in found if place.unit.module not in but and self._is_used(place, table))
            if (first := next(used, None)) is not None:
                return first
        asking = {place.unit for place in self._keyed if place.operand(0).root.value.op == "attr"} - set(self._filling)
        asking = {unit for unit in asking if unit.cls is not None}
        calls = (call for unit in sorted(asking, key=lambda each: each.place) for call in self.queries.calls_of(unit))
        others = (call for call in calls if not is_test(call.unit.path) and call.unit.module not in but)
        own = (call for call in others if call.receiver is not None)
        return next((call for call in own if self._owner(call.operand(0)) == table), None)

    def _is_used(self, place: Place, table: Variable) -> bool:
        """Whether it is another file than the table's that asks it, or somebody calls the function which does."""
        away = place.unit.module is not table.module or place.unit.code.kind == "module"
        return away or any(not is_test(call.unit.path) for call in self.queries.calls_of(place.unit))

    @cached_property
    def _keyed(self) -> list[Place]:
        """What asks something for a key that is not written out: `TABLE[name]`, `self._items.get(name)`."""
        places = (p for unit in self.queries.of_program() for p in self.queries.values(unit, "item", "call"))
        found = (_as_item(place) for place in places)
        return [place for place in found if place is not None]

    # -- who imports it ------------------------------------------------------------------------------------

    def is_unimported(self, module: Module) -> bool:
        """Whether a file only runs where something imports it, and nothing in the project does, or names it."""
        name = module.name.rpartition(".")[2]
        aside = module.is_package or is_by_hand(module.path) or b"__main__" in module.source.data
        if aside or name in self._imported or self.imports_by_name:
            return False
        return not self._acts(module) and not self._is_spelled(module, name)

    def is_named(self, keys: frozenset[str], module: Module) -> bool:
        """Whether a text in the code of another file is one of some names."""
        units = (u for u in self.queries.of_program() if u.module is not module)
        return any(value.op == "const" and value.data in keys for unit in units for value in unit.code.values)

    @cached_property
    def _imported(self) -> frozenset[str]:
        """Every link of what some file imports."""
        facts = (module.facts for module in self.project.modules.values())
        rows = [
            row for each in facts for row in (*((i.module, i.name or "") for i in each.imports), *each.star_imports)
        ]
        return frozenset(link for row in rows for part in row if isinstance(part, str) for link in part.split("."))

    @cached_property
    def imports_by_name(self) -> bool:
        """Whether something in the project imports files by names that it computes, or is given."""
        calls = self.queries.called_in_program(_IMPORTING)
        return any(not isinstance(_first(call), str) for call in calls)

    def _acts(self, module: Module) -> bool:
        """Whether a file does something when it is run besides making, and registering, what it defines."""
        places = {row.place.unit.at(row.place.value.at) for rows in self.by_table.values() for row in rows}
        return any(call.use == "discard" and call.at not in places for call in module.top.facts.calls)

    def _is_spelled(self, module: Module, name: str) -> bool:
        """Whether a text or a file of the project may name a file: by a path to it, in a list of what a package has, or
        to what imports it."""
        modules = [module for module in self.project.modules.values() if name.encode() in module.source.data]
        exported = any(name == each for module in modules for each, _ in module.facts.exports or ())
        given = (_first(call) for call in self.queries.called_in_program(_IMPORTING))
        if exported or any(isinstance(text, str) and name in _links(text) for text in given):
            return True
        if self._is_in_computed_exports(module) or any(self._is_named_for_import(each, name) for each in modules):
            return True
        values = (value for module in modules for unit in self.flow.whole_units(module) for value in unit.code.values)
        texts = (value.data for value in values if value.op == "const" and isinstance(value.data, str))
        texts = (text.replace(" = ", "=") for text in texts)  # of entry points
        paths = (links for text in texts for part in text.split() if len(links := _links(part)) > 1)
        if any(name in links for links in paths):
            return True
        others = (each for each in self.project.files.values() if each.facts.language != "python")
        marks = [form.format(name).encode() for form in (".{}", "/{}", "{}.py", "-m {}", "{}:")]
        if any(mark in each.data for each in others for mark in marks):
            return True
        read = (each.data for each in self.project.files.values() if each.facts.language != "python")
        return any(_imports(text, name.encode()) for text in (*read, *self.project.analysis(Beside).texts))

    def _is_in_computed_exports(self, module: Module) -> bool:
        """Whether `from package import *` runs a file: the package computes what it has, of the files in it."""
        package = self.project.module_at(module.source.absolute.rpartition("/")[0])
        if package is None or "__all__" not in package.facts.names or package.facts.exports is not None:
            return False
        rows = (row for each in self.project.modules.values() for row in each.facts.star_imports)
        return any(name.rpartition(".")[2] in ("", package.name.rpartition(".")[2]) for name, _ in rows)

    def _is_named_for_import(self, module: Module, name: str) -> bool:
        """Whether a file has a name in a list of what something imports: `custom_imports = dict(imports=["heads"])`."""
        for unit in self.flow.whole_units(module):
            texts = (place for place in self.queries.values(unit, "const") if place.value.data == name)
            lists = (user for text in texts for user in text.users if user.value.op in ("list", "tuple", "set"))
            for user in (user for each in lists for user in each.users):
                said = user.value.data.names if user.value.op == "call" else (user.value.data,)
                if any(isinstance(word, str) and "import" in word for word in said):
                    return True
        return False


def _imports(text: bytes, name: bytes) -> bool:
    """Whether a line of a file that is no code has the name of a file after what imports: `python -c "import heads"`,
    `imports: [heads]`, with the items below."""
    listed = False
    for line in text.splitlines() if name in text and b"import" in text else ():
        before, said, rest = line.partition(b"import")
        module = before.rpartition(b"from ")[2] if b"from " in before else b""
        is_item = line.lstrip().startswith(b"-")
        if (said or listed and is_item) and name in _WORDS.findall(module + rest if said else line):
            return True
        listed = not rest.strip(b"s: ") if said else listed and is_item
    return False


def _links(text: str) -> list[str]:
    """The links of a path, as imports, files and entry points write it (`pkg.heads:Linear`)."""
    return text.replace("/", ".").replace(":", ".").replace("=", ".").split(".")


def _is_given(unit: Unit, number: int) -> bool:
    """Whether a value of a function comes from its caller."""
    return unit.code.values[unit.root(number)].op in ("param", "free")


def _parts(made: Place) -> list[Place]:
    """What something is made from: the arguments of a call; else that itself."""
    given = made.value.args[1:] if made.value.op == "call" else (made.number,)
    return [made.value_at(number).root for number in given]


def _keys(call: Place) -> frozenset[str]:
    """The names under which a call may put something: the texts that it is passed, else the names of what it is."""
    texts: set[str] = set()
    names: set[str] = set()
    place = call
    while place.value.op == "call":
        for argument in (place.value_at(number) for number in place.value.args[1:]):
            constant = argument.val.constant()
            texts.update([constant] if isinstance(constant, str) else ())
            names.update(o[1].name for o in argument.val.each if o[0] in ("class", "unit"))
        place = place.operand(0).root
    return frozenset(texts or names)


def _as_item(place: Place) -> Place | None:
    """What asks for a key, with the table as its first operand; None of anything else."""
    if place.value.op == "item":
        key = place.operand(1).root.value.op
        return place if key not in ("const", "slice", "undefined") else None
    asked = place.method == "get" and place.receiver is not None and len(place.value.args) > 1
    return place.operand(0) if asked and place.operand(1).root.value.op != "const" else None


def _first(call: Place) -> object:
    return call.operand(1).closed.constant() if len(call.value.args) > 1 else None


def registering(rows: list[Registration]) -> Iterator[tuple[Module, list[Registration]]]:
    """The registrations of a table by the files that make them."""
    modules: dict[Module, list[Registration]] = {}
    for row in rows:
        modules.setdefault(row.module, []).append(row)
    yield from sorted(modules.items(), key=lambda each: each[0].path)
