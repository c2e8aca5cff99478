"""What leaves a unit, as its code says: this does not change from one evaluation to the next."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit

_LEAVING = frozenset({"yield", "yield from", "store_attr", "store_global", "store_class"})


class Leaving:
    """The returns, stores and changed parameters of one unit, by the numbers of their values."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._code = unit.code
        self._blocks = unit.order.blocks

    @cached_property
    def returns(self) -> list[tuple[int, int]]:
        """(block, value) of each `return` that is reached."""
        ends = ((block, self._code.blocks[block].end) for block in self._blocks)
        return [(block, end[1]) for block, end in ends if end[0] == "return"]

    @cached_property
    def stored(self) -> list[int]:
        """What is yielded, and stored where others find it."""
        values = self._code.values
        numbers = (number for block in self._blocks for number in self._code.blocks[block].values)
        return [n for n in numbers if values[n].op in _LEAVING and values[n].args]

    @cached_property
    def changed(self) -> list[int]:
        """Variables behind calls that were given them."""
        values = self._code.values
        numbers = (number for block in self._blocks for number in self._code.blocks[block].values)
        return [n for n in numbers if values[n].op == "mut"]

    def stores_of(self, root: int) -> list[int]:
        """The stores in attributes of a value, or of what calls have made of it."""
        values, root_of = self._code.values, self._unit.root
        return [n for n in self.stored if values[n].op == "store_attr" and root_of(values[n].args[1]) == root]

    def changed_parameters(self, but: frozenset[int]) -> list[tuple[int, list[int]]]:
        """Parameters that calls change in place, with what is left of them at the ends but some (`but`: blocks); to
        bind the name anew changes nothing for callers."""
        return self._changed_anywhere if not but else self._changed(but)

    @cached_property
    def _changed_anywhere(self) -> list[tuple[int, list[int]]]:
        return self._changed(frozenset())

    def _changed(self, but: frozenset[int]) -> list[tuple[int, list[int]]]:
        found = []
        for position, (name, _) in enumerate(self._code.params):
            ends = self._forms(position, [kept[name] for block, kept in self._code.exits if block not in but])
            if any(self._code.values[number].op == "mut" for number in ends):
                found.append((position, ends))
        return found

    def _forms(self, position: int, ends: list[int]) -> list[int]:
        """What is left of the object that was passed, where the variable still holds it: as passed, or changed."""
        values, seen, stack = self._code.values, dict.fromkeys(ends), list(ends)
        while stack:
            value = values[stack.pop()]
            for each in value.args if value.op == "phi" else ():
                if each not in seen:
                    seen[each] = None
                    stack.append(each)
        roots = {number: values[self._unit.root(number)] for number in seen}
        return [number for number, root in roots.items() if root.op == "param" and root.data[0] == position]
