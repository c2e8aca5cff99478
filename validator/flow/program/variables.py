"""What the variables of modules hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from validator.definitions import Module
from validator.flow.program.stores import is_of_tests, on_all_ranks
from validator.flow.program.unit import Unit
from validator.flow.values import NOT_YET, UNKNOWN, Val, join_origins

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow


class Variables:
    """What the variables of the modules of a program hold."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def variable(self, module: Module, name: str) -> Val:
        """What a variable of a module holds, in closed form; BOTTOM while no store of it is known."""
        found, stored = [], False
        for unit in self.flow.whole_units(module):
            if any(v.op == "store_global" and v.data == name for v in self._stores(unit)):
                stored = True
                stores = self.flow.part(("unit", unit), ("globals", name))
                stores = stores if stores is not None else (NOT_YET,)
                found += [on_all_ranks(self.flow.close(value, unit)) for value in stores]
        found += [*self.filled(module, name), *self._from_elsewhere(module, name)] if stored else ()
        return join_origins(found) if stored else UNKNOWN

    def _from_elsewhere(self, module: Module, name: str) -> Iterator[Val]:
        """What functions of other modules store in a variable of a module: `import comm; comm.GROUP = group`."""
        for method in self.flow.stores.writers(name):
            unit = self.flow.unit_of(method)
            if unit is None or is_of_tests(unit, module.path):
                continue
            rows = self.flow.part(("unit", unit), ("stored", name))
            if rows is None:
                yield NOT_YET
            for owner, value in rows or ():
                if ("module", module) in self.flow.close(owner, unit).objs:
                    yield on_all_ranks(self.flow.close(value, unit))

    def filled(self, module: Module, name: str) -> list[Val]:
        """What functions put into the container that a variable of a module is."""
        return list(self.flow.stores.fillings(name, lambda o: o == ("module", module), module.path))

    def _stores(self, unit: Unit) -> list[Any]:
        known = self._stores_of.get(unit)
        if known is None:
            known = self._stores_of[unit] = [v for v in unit.code.values if v.op == "store_global"]
        return known

    @cached_property
    def _stores_of(self) -> dict[Unit, list[Any]]:
        return {}
