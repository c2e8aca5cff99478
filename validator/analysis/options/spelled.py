"""In which ways the code of a project spells a name: as a text, or as an attribute, a parameter or a keyword."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.project import Project

_OF_BEGINNINGS = frozenset({"startswith", "removeprefix", "lstrip", "replace", "partition", "split"})


class Spelled:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._texts: dict[str, bool] = {}
        self._names: dict[str, bool] = {}

    def as_text(self, name: str) -> bool:
        """Whether some text is the name, or a dotted path with it in it, or what code takes off a longer name
        (`removeprefix("fsdp_")`): a key that is read, an alias, an old name."""
        if name not in self._texts:
            starts = [f"{name[:end]}_" for end, letter in enumerate(name) if letter == "_" and end]
            said = any(_says(unit, name) for unit in self._units(name))
            self._texts[name] = said or any(_begins(unit, each) for each in starts for unit in self._units(each))
        return self._texts[name]

    def as_name(self, name: str) -> bool:
        """Whether code asks some object for the name, or takes or passes an argument of that name."""
        if name not in self._names:
            self._names[name] = any(_uses(unit, name) for unit in self._units(name))
        return self._names[name]

    def as_part(self, owner: str, name: str) -> bool:
        """Whether code asks what is called so for the name: `config.training.strategy`."""
        return any(_asks(unit, owner, name) for unit in self._units(name))

    def _units(self, name: str) -> Iterator[Unit]:
        spellings = (name.encode(), name.replace("_", "-").encode())
        for module in self.project.modules.values():
            if any(each in module.source.data for each in spellings) and not is_test(module.path):
                yield from self.flow.whole_units(module)


def _says(unit: Unit, name: str) -> bool:
    texts = (value.data for value in unit.code.values if value.op == "const" and isinstance(value.data, str))
    return any(name in text.replace("-", "_").removeprefix("__").split(".") for text in texts)


def _begins(unit: Unit, start: str) -> bool:
    """Whether code compares the beginning of texts with one, or takes it off."""
    values = unit.code.values
    calls = (value for value in values if value.op == "call" and values[value.args[0]].op == "attr")
    given = (call.args[1:] for call in calls if values[call.args[0]].data in _OF_BEGINNINGS)
    return any(values[each].op == "const" and values[each].data == start for args in given for each in args)


def _asks(unit: Unit, owner: str, name: str) -> bool:
    for value in unit.code.values:
        asked = unit.code.values[value.args[0]] if value.op == "attr" and value.data == name else None
        if asked is not None and asked.op in ("attr", "name", "param") and owner in (asked.data, asked.data[-1]):
            return True
    return False


def _uses(unit: Unit, name: str) -> bool:
    for value in unit.code.values:
        if value.op in ("attr", "store_attr") and value.data == name:
            return True
        if value.op == "param" and value.data[1] == name:
            return True
        if value.op == "call" and name in value.data.names:
            return True
    return False
