"""Tables of a module whose rows are dictionaries or sequences, and the keys that readers look up in any of the rows.

MODELS = {"small": {"layers": 4, "heads": 2}, "large": {"layers": 32}}
row = MODELS[args.model]
heads = row["heads"]
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.facts.model import At
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.project import Module, Project
from validator.project import Value as Variable

_LEAST = 3  # rows of a table
_WRITING = frozenset({"update", "setdefault"})


class Row(NamedTuple):
    """One row of a table: what it is found by, the keys that a dictionary has, how many parts a sequence has."""

    name: str
    keys: frozenset[str]
    at: At
    length: int | None


class Table(NamedTuple):
    """A variable of a module that holds rows; `listed`: without keys of their own."""

    module: Module
    name: str
    rows: tuple[Row, ...]
    listed: bool


class Lookup(NamedTuple):
    """A key that a reader looks up in whichever row of a table it has."""

    table: Table
    key: str
    place: Place


class Tables:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)

    @cached_property
    def all(self) -> dict[tuple[Module, str], Table]:
        """The tables whose rows are all written out where the variable gets its value."""
        found = {}
        for module in self.project.modules.values():
            if is_test(module.path) or is_foreign(module.path):
                continue
            unit = self.flow.units_of(module).get("<module>")
            for value in unit.code.values if unit is not None else ():
                if unit is not None and value.op == "store_global" and (rows := _rows(unit, value.args[0])):
                    listed = unit.code.values[unit.root(value.args[0])].op != "dict"
                    found[module, str(value.data)] = Table(module, str(value.data), rows, listed)
        return found

    @cached_property
    def lookups(self) -> list[Lookup]:
        """The keys that are looked up with `row[key]`, where nothing is asked of the row before."""
        names = {name for _, name in self.all}
        found: list[Lookup] = []
        for module in self.project.modules.values() if names else ():
            if is_test(module.path) or not any(name.encode() in module.source.data for name in names):
                continue
            units = self.flow.whole_units(module)
            rows = [row for unit in units for row in self._in_unit(unit) if not self._is_told_apart(row)]
            written = {key for unit in units for key in _written(unit)}
            found += [row for row in rows if row.key not in written]
        return found

    def _is_told_apart(self, lookup: Lookup) -> bool:
        """Whether the rows without a key all bear another one that the rows with it lack, and that code of the module
        asks a row for (`if "error" in MODELS[name]: continue`): such rows are kept from those who look the key up."""
        rows = lookup.table.rows
        having = {key for row in rows if lookup.key in row.keys for key in row.keys}
        lacking = [row.keys for row in rows if lookup.key not in row.keys]
        marks = frozenset.intersection(*lacking) - having if lacking else frozenset()
        return bool(marks) and not marks.isdisjoint(self._asked(lookup.table.module))

    def _asked(self, module: Module) -> Iterator[str]:
        """The keys that code of a module asks some row for: `"error" in row`, `row.get("error")`."""
        for unit in self.flow.whole_units(module):
            values = unit.code.values
            for value in values:
                asked, owner = None, -1
                if value.op == "compare" and value.data in ("In", "NotIn"):
                    asked, owner = values[value.args[0]].data, value.args[1]
                elif value.op == "call" and len(value.args) > 1 and (callee := values[value.args[0]]).op == "attr":
                    asked, owner = values[value.args[1]].data if callee.data == "get" else None, callee.args[0]
                if isinstance(asked, str) and any(self._tables_of_row(unit, owner, frozenset())):
                    yield asked

    def of_row(self, place: Place) -> list[Table]:
        """The tables of which a value may be any row."""
        return list(dict.fromkeys(self._tables_of_row(place.unit, place.number, frozenset())))

    def _in_unit(self, unit: Unit) -> Iterator[Lookup]:
        values = unit.code.values
        tried = {values[v.args[0]].data for v in values if v.op == "compare" and v.data in ("In", "NotIn")}
        for number, value in enumerate(values):
            key = values[value.args[1]].data if value.op == "item" and values[value.args[1]].op == "const" else None
            if not isinstance(key, str) or key in tried:
                continue
            place = Place(self.flow, unit, number)
            tables = set(self._tables_of_row(unit, value.args[0], frozenset()))
            if not tables or place.catches("KeyError", "Exception") or place.asked_about(place.operand(0)):
                continue
            yield from (Lookup(table, key, place) for table in sorted(tables, key=lambda each: each.name))

    def _tables_of_row(self, unit: Unit, number: int, seen: frozenset[int]) -> Iterator[Table]:
        """The tables of which a value may be any row."""
        number = unit.root(number)
        value = unit.code.values[number]
        if number in seen:
            return
        seen |= {number}
        if value.op == "phi":
            for each in value.args:
                yield from self._tables_of_row(unit, each, seen)
        elif value.op == "item" and unit.code.values[value.args[1]].op != "const":
            yield from self._tables(unit, value.args[0], seen)
        elif value.op == "call" and len(value.args) > 1 and unit.code.values[value.args[1]].op != "const":
            callee = unit.code.values[value.args[0]]
            if callee.op == "attr" and callee.data == "get":
                yield from self._tables(unit, callee.args[0], seen)
        elif value.op == "next":
            yield from self._rounds(unit, value.args[0], "values", seen)
        elif value.op == "unpack" and value.data[0] == 1:
            inner = unit.code.values[unit.root(value.args[0])]
            if inner.op == "next":
                yield from self._rounds(unit, inner.args[0], "items", seen)

    def _rounds(self, unit: Unit, iterator: int, method: str, seen: frozenset[int]) -> Iterator[Table]:
        """The tables through whose rows a loop goes: `for row in T`, `in T.values()`, `for name, row in T.items()`."""
        values = unit.code.values
        iterated = values[unit.root(values[unit.root(iterator)].args[0])] if values[unit.root(iterator)].args else None
        if iterated is None:
            return
        callee = values[iterated.args[0]] if iterated.op == "call" else iterated
        if iterated.op == "call" and callee.op == "attr" and callee.data == method:
            yield from (table for table in self._tables(unit, callee.args[0], seen) if not table.listed)
        elif iterated.op in ("name", "import", "attr", "phi") and method == "values":
            found = self._tables(unit, values[unit.root(iterator)].args[0], seen)
            yield from (table for table in found if table.listed)

    def _tables(self, unit: Unit, number: int, seen: frozenset[int]) -> Iterator[Table]:
        """The tables that a value may be."""
        number = unit.root(number)
        value = unit.code.values[number]
        if value.op == "phi" and number not in seen:
            for each in value.args:
                yield from self._tables(unit, each, seen | {number})
        elif (table := self._named(unit, value)) is not None:
            yield table

    def _named(self, unit: Unit, value: Value) -> Table | None:
        symbol = self.flow.symbol(unit, value) if value.op in ("name", "import") else None
        if value.op == "attr":
            owner = unit.code.values[unit.root(value.args[0])]
            module = self.flow.symbol(unit, owner) if owner.op in ("name", "import") else None
            symbol = module.member(value.data) if isinstance(module, Module) else None
        return self.all.get((symbol.module, symbol.name)) if isinstance(symbol, Variable) else None


def _rows(unit: Unit, number: int) -> tuple[Row, ...]:
    """The rows of a literal whose elements are all dictionaries with literal keys, or all sequences that are written
    out; none where it is anything else."""
    values = unit.code.values
    made = values[unit.root(number)]
    if made.op == "dict":
        pairs = list(zip(made.args[::2], made.args[1::2], strict=True))
        if any(key < 0 for key, _ in pairs):
            return ()
        named = [(unit.text(values[key].at), held) for key, held in pairs]
    elif made.op in ("list", "tuple") and not made.data:
        named = [(str(index), held) for index, held in enumerate(made.args)]
    else:
        return ()
    found = []
    for name, held in named:
        row = _row(unit, name, values[unit.root(held)])
        if row is None:
            return ()
        found.append(row)
    is_of_one_kind = len({row.length is None for row in found}) == 1
    return tuple(found) if len(found) >= _LEAST and is_of_one_kind else ()


def _row(unit: Unit, name: str, made: Value) -> Row | None:
    if made.op in ("list", "tuple"):
        return Row(name, frozenset(), unit.at(made.at), len(made.args)) if not made.data else None
    keys = [unit.code.values[key] for key in made.args[::2] if key >= 0] if made.op == "dict" else []
    if not keys or 2 * len(keys) != len(made.args) or any(key.op != "const" for key in keys):
        return None
    return Row(name, frozenset(key.data for key in keys if isinstance(key.data, str)), unit.at(made.at), None)


def _written(unit: Unit) -> Iterator[str]:
    """The keys that a unit stores in whatever dictionary: a row may get them there."""
    values = unit.code.values
    for value in values:
        if value.op == "store_item" and isinstance(values[value.args[1]].data, str):
            yield values[value.args[1]].data
        elif value.op == "call" and values[value.args[0]].op == "attr" and values[value.args[0]].data in _WRITING:
            yield from (str(name) for name in value.data.names if name)
            yield from (v.data for n in value.args[1:] if isinstance((v := values[n]).data, str) and v.op == "const")
