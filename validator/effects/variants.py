"""Which modules are there only for one value of a variable that is set where they are imported.

`if version == "0.3": mode = "old"; from .old import LLM` and `else: mode = "new"; from .new import LLM`: behind
`if mode == "new":` nothing is an object of what `old` defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from validator.definitions import Module, Value
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Obj
from validator.project import Project

Settings = frozenset[tuple[Value, Any]]  # variables of modules, each with the constant that it is

_OF_CLASS = frozenset({"inst", "self", "class", "handle"})
_OF_UNIT = frozenset({"unit", "bound"})
_EQUAL = {"Eq": True, "NotEq": False, "In": True, "NotIn": False}


class Variants:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._settings: dict[Module, Settings] = {}

    def there(self, objs: frozenset[Obj], user: Place) -> frozenset[Obj]:
        """The objects without those of modules that are not imported where a value stands."""
        gone = {o for o in objs if (module := _module(o)) is not None and self.rules_out(user, module)}
        return objs - gone if gone else objs

    def rules_out(self, user: Place, module: Module) -> bool:
        """Whether a condition around a value asks for another value of a variable than what it is set to wherever a
        module is imported."""
        asked = [row for test, way in user.settled_tests if (row := self._asked(test, way)) is not None]
        settings = dict(self._of(module)) if asked else {}
        return any(variable in settings and (settings[variable] in held) is not way for variable, held, way in asked)

    def _asked(self, test: Place, way: bool) -> tuple[Value, list[Any], bool] | None:
        """A variable of a module that a condition compares with constants, these, and whether it is one of them."""
        value = test.value
        while value.op == "unary" and value.data == "Not":
            test, way = test.operand(0), not way
            value = test.value
        if value.op != "compare" or len(value.args) != 2 or value.data not in _EQUAL:
            return None
        left, right = test.operand(0), test.operand(1)
        if value.data in ("Eq", "NotEq") and left.root.value.op == "const":
            left, right = right, left
        others = _constants(right, value.data in ("In", "NotIn"))
        variable = self._variable(left) if others is not None else None
        return (variable, others, way is _EQUAL[value.data]) if variable is not None and others is not None else None

    def _variable(self, place: Place) -> Value | None:
        """The one variable of a module that a name is, whichever import it comes by."""
        unit = place.unit
        values = [unit.code.values[number] for number in origins(unit, place.root.number)]
        found = {self.flow.symbol(unit, each) if each.op in ("name", "import") else None for each in values}
        symbol = found.pop() if len(found) == 1 else None
        return symbol if isinstance(symbol, Value) else None

    # -- imports -------------------------------------------------------------------------------------------

    def _of(self, module: Module) -> Settings:
        """What is set wherever a module is imported first: beside the import, or wherever the importer is."""
        known = self._settings.get(module)
        if known is None:
            self._settings[module] = frozenset()  # of modules that import each other nothing is known
            rows = [self._beside(*row) | self._of(row[0].module) for row in self._importing.get(module, ())]
            started = b"__main__" in module.source.data
            known = self._settings[module] = frozenset.intersection(*rows) if rows and not started else frozenset()
        return known

    @cached_property
    def _importing(self) -> dict[Module, list[tuple[Unit, int]]]:
        """The imports of each module: where, and in which block."""
        found: dict[Module, list[tuple[Unit, int]]] = {}
        for module in self.project.modules.values():
            for unit in self.flow.units_of(module).values() if not is_test(module.path) else ():
                for value in unit.code.values:
                    if value.op == "import":
                        for each in self._imported(unit, value.data):
                            found.setdefault(each, []).append((unit, value.block))
            for name, level in module.facts.star_imports:
                starred = self.project.import_module(module, module.absolute(name, level))
                top = self.flow.units_of(module).get("<module>")
                if isinstance(starred, Module) and top is not None:
                    found.setdefault(starred, []).append((top, 0))
        return found

    def _imported(self, unit: Unit, data: tuple[str, str, int]) -> Iterator[Module]:
        """The modules that an import runs: the one that it names, or takes a name of, which may be a module too, and
        the packages around it."""
        name, member, level = data
        parts = [*unit.module.absolute(name, level).split("."), *([member] if member else [])]
        for path in (".".join(parts[: end + 1]) for end in range(len(parts))):
            found = self.project.import_module(unit.module, path) if path else None
            if isinstance(found, Module) and found is not unit.module:
                yield found

    def _beside(self, unit: Unit, block: int) -> Settings:
        """The variables that a module sets to constants in the block of an import, and to others elsewhere."""
        if unit.code.kind != "module":
            return frozenset()
        values = unit.code.values
        found = set()
        for store in values:
            if store.op == "store_global" and store.block == block:
                held = values[unit.root(store.args[0])]
                if held.op == "const" and self._is_set_here(unit, store.data, block):
                    found.add((Value(unit.module, store.data), held.data))
        return frozenset(found)

    def _is_set_here(self, unit: Unit, name: str, block: int) -> bool:
        """Whether nothing sets a variable of a file again after a block in which it is set."""
        others = (each for each in self.flow.units_of(unit.module).values() if each is not unit)
        inside = any(v.op == "store_global" and v.data == name for each in others for v in each.code.values)
        if inside or any(self.flow.stores.writers(name)):
            return False
        before = {v.block for v in unit.code.values if v.op == "store_global" and v.data == name} - {block}
        queue = list(before)
        for each in queue:
            fresh = {pred for pred, _ in unit.code.blocks[each].preds} - before
            before |= fresh
            queue += fresh
        return block not in before


def _module(o: Obj) -> Module | None:
    """The module that defines the class or function that an object is, or is of."""
    if o[0] in _OF_CLASS or o[0] in _OF_UNIT:
        found: Module = o[1].module
        return found
    return o[1] if o[0] == "module" and isinstance(o[1], Module) else None


def _constants(place: Place, several: bool) -> list[Any] | None:
    """The constant that is written at a place, or those of a collection; None for anything else."""
    root = place.root
    if not several:
        return [root.value.data] if root.value.op == "const" else None
    if root.value.op not in ("tuple", "list", "set") or root.value.data:
        return None
    held = [root.value_at(number).root.value for number in root.value.args]
    return [each.data for each in held] if all(each.op == "const" for each in held) else None
