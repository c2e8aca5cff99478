"""The texts that the code of a project may make: those that it spells, and those that it puts together of parts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from validator.analysis.interfaces.unspelled import FILLED_IN
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test


class WrittenTexts:
    """Answers for one project."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def may_write(self, text: str, but: Collection[Place] = ()) -> bool:
        """Whether code spells a text, besides at some places, or puts together what may be it."""
        return text in self.plain(but) or any(form.fullmatch(text) for form in self._forms)

    def plain(self, but: Collection[Place] = ()) -> set[str]:
        """The texts that code spells, besides at some places."""
        left = {(place.unit, place.number) for place in but}
        return {text for unit, number, text in self._spelled if (unit, number) not in left}

    @cached_property
    def _spelled(self) -> tuple[tuple[Unit, int, str], ...]:
        return tuple(
            (unit, number, value.data)
            for unit in self._units
            for number, value in enumerate(unit.code.values)
            if value.op == "const" and isinstance(value.data, str)
        )

    @cached_property
    def _forms(self) -> tuple[re.Pattern[str], ...]:
        rows = dict.fromkeys(tuple(parts) for unit in self._units for parts in _put_together(unit) if any(parts))
        return tuple(re.compile(".*".join(map(re.escape, parts)), re.DOTALL) for parts in rows)

    @cached_property
    def _units(self) -> tuple[Unit, ...]:
        modules = self.flow.project.modules.values()
        return tuple(u for module in modules if not is_test(module.path) for u in self.flow.whole_units(module))


def _put_together(unit: Unit) -> Iterator[list[str]]:
    """The known parts of each text that is made of several, with anything between them."""
    values = unit.code.values
    for value in values:
        if value.op == "join" or value.op == "binary" and value.data in ("Add", "Mod"):
            found = [values[each].data if values[each].op == "const" else None for each in value.args]
            if any(isinstance(each, str) for each in found):
                yield _between(found)
        elif value.op == "const" and isinstance(value.data, str) and FILLED_IN.search(value.data):
            yield FILLED_IN.split(value.data)


def _between(parts: list[object]) -> list[str]:
    """Known parts one after the other are one; an unknown one stands between two."""
    found = [""]
    for part in parts:
        if isinstance(part, str):
            found[-1] += part
        else:
            found.append("")
    return found
