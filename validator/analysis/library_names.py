"""Names that code imports from modules of libraries, or asks them for, and that no release of the library has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.imports import is_excused
from validator.analysis.interfaces.library_calls import is_replaced
from validator.analysis.requirements import Requirements
from validator.facts.model import At, Import
from validator.finding import Severity
from validator.flow import Flow
from validator.flow.queries.base import Place
from validator.models.members.public_names import LIBRARIES, Names, first_lacking, table
from validator.project import External, Module, Project

# What a test says that asks which release is there.
_RELEASE = re.compile(r"version|release|nightly|greater|at_least|_gt_|_ge_|_gte|\d[._]\d", re.I)


class Lacking(NamedTuple):
    """`torch.arrange`, where `torch` has no such name."""

    importer: Module
    at: At
    text: str
    where: str
    module: str
    name: str
    severity: Severity

    @property
    def names(self) -> Names:
        return table(self.module.partition(".")[0])


class LibraryNames:
    """Answers for one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self.requirements = project.analysis(Requirements)

    def lacking(self) -> Iterator[Lacking]:
        """Every import and every attribute that nothing gives, and that no test or handler excuses."""
        for module in self.project.modules.values():
            yield from self._imported(module)
            yield from self._asked(module)

    def _imported(self, module: Module) -> Iterator[Lacking]:
        for row in module.facts.imports:
            if row.level or not self._is_library(row.module.partition(".")[0]):
                continue
            path = f"{row.module}.{row.name}" if row.name not in (None, "*") else row.module
            lost = first_lacking(path)
            if lost is None or not isinstance(self.project.imported(module, row), External) or _is_guarded(row):
                continue
            yield from self._lacking(module, row.at, path, "", *lost)

    def _asked(self, module: Module) -> Iterator[Lacking]:
        for unit in self.flow.whole_units(module):
            for number, value in enumerate(unit.code.values):
                if value.op != "attr":
                    continue
                place = Place(self.flow, unit, number)
                owner = _module_of(place.operand(0))
                if not self._is_library(owner.partition(".")[0]) or not table(owner.partition(".")[0]).lacks(
                    owner, value.data
                ):
                    continue
                if not self._is_replaced(place) and not _is_asked_for(place):
                    yield from self._lacking(module, place.at, place.text, place.where, owner, value.data)

    def _lacking(self, importer: Module, at: At, text: str, where: str, module: str, name: str) -> Iterator[Lacking]:
        severity = self._severity(table(module.partition(".")[0]), importer)
        if severity is not None and name not in self._set:
            yield Lacking(importer, at, text, where, module, name, severity)

    def _severity(self, names: Names, importer: Module) -> Severity | None:
        """An error where every release that is admitted is known to lack a name; None where only older ones are."""
        declared = self.requirements.admitted(names.library, importer.source.absolute)
        first = names.releases[0]
        if declared and all(row.high is not None and row.high <= first for row in declared):
            return None
        knows = not declared or any(row.has_release(each) for row in declared for each in names.releases)
        older = any(row.low is not None and row.low < first for row in declared)
        return "error" if knows and not older and names.is_gapless else "warning"

    def _is_library(self, top: str) -> bool:
        return top in LIBRARIES and top not in self._own

    @cached_property
    def _own(self) -> frozenset[str]:
        """The libraries that the project brings itself, or fills by computed names."""
        found = {module.name.partition(".")[0] for module in self.project.modules.values()}
        for function in self.project.functions():
            for row in function.facts.assigns:
                if "sys.modules" in row.target:
                    found |= {each for each in LIBRARIES if each in row.target}
            for call in function.facts.calls:
                if call.target == "setattr" and len(call.args) > 1 and call.args[1].kind != "const":
                    found.add(self._meant(function.module, call.args[0].value))
        return frozenset(found)

    @staticmethod
    def _meant(module: Module, path: str) -> str:
        head = path.partition(".")[0]
        rows = (row for row in module.facts.imports if row.bound_as == head)
        return next((row.module.partition(".")[0] for row in rows), "")

    @cached_property
    def _set(self) -> frozenset[str]:
        """The names that code of the project sets on what it imports."""
        found: set[str] = set()
        for function in self.project.functions():
            bound = {row.bound_as for row in function.module.facts.imports}
            for ref in function.facts.refs:
                owner, dot, name = ref.path.rpartition(".")
                if ref.context == "store" and dot and owner.partition(".")[0] in bound:
                    found.add(name)
            for call in function.facts.calls:
                if call.method == "setattr" or "register" in call.method:
                    found |= {each.value.strip("'\"") for each in call.args if each.kind == "const"}
        return frozenset(found)

    @staticmethod
    def _is_replaced(place: Place) -> bool:
        root = place.operand(0).text.partition(".")[0]
        top = place.unit.module.top
        return top is not None and is_replaced(top, root)


def _module_of(place: Place) -> str:
    """The dotted name of what a value certainly is, where that is outside the project; else none."""
    if place.root.value.op not in ("import", "name", "free", "attr", "phi"):
        return ""
    objs = place.closed.objs
    return next((str(o[1]) for o in objs if len(objs) == 1 and o[0] == "ext"), "")


def _is_guarded(row: Import) -> bool:
    tests = (guard.text for guard in row.guards if guard.kind == "if")
    hidden = any(g.kind == "try" and any(n in g.text for n in ("Exception", "*", "AttributeError")) for g in row.guards)
    return hidden or is_excused(row.guards) or any(_RELEASE.search(text) for text in tests)


def _is_asked_for(place: Place) -> bool:
    """Whether an attribute is asked for where code reckons with its absence."""
    if place.may_lack(place.value.data) or place.catches("*") or place.after_missing_name:
        return True
    return any(_RELEASE.search(word) for test in place.tests for word in test.words)
