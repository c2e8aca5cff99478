"""Sections of configuration files that code hands to a class: `C(**section)`, `C.from_dict(section)`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.analysis.recipes.composed import Compositions, Node
from validator.analysis.recipes.sections import Sections
from validator.definitions import ClassDef
from validator.facts.model import At
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.settings.classes import Schema, Schemas

_MOST = 1.5  # two of three keys

Written = tuple[str, At]  # the file of a section, and the place of its first key


class Handed:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.schemas = project.analysis(Schemas)

    @cached_property
    def classes(self) -> dict[Written, tuple[Schema, ...]]:
        """By section the classes that make an object of it: of the files that the program is given, else of those that
        have a section under the same keys, most of which are fields."""
        found: dict[Written, tuple[Schema, ...]] = {}
        for place, section, schema in self._calls():
            sections = self.project.analysis(Sections)
            nodes = [part.node for part in sections.of(section.closed) if not part.open]
            for node in nodes or self._alike(section, schema):
                rows = [child for child in node.children.values() if child.path]
                if rows and not is_test(place.unit.path):
                    known = found.get((rows[0].path, rows[0].at), ())
                    found[rows[0].path, rows[0].at] = known if schema in known else (*known, schema)
        return found

    def _alike(self, section: Place, schema: Schema) -> Iterator[Node]:
        compositions = self.project.analysis(Compositions)
        for _, calls, path in section.closed.of("section"):
            if not path or self.project.analysis(Sections).roots(calls):
                continue  # what a whole file is does not show
            for file, (source, _) in compositions.files.items():
                node = compositions.tree(file).find(path.split("."))
                known = sum(name in schema.fields for name in node.children) if node is not None else 0
                if node is not None and known * _MOST > len(node.children) and not is_test(source.path):
                    yield node

    def _calls(self) -> Iterator[tuple[Place, Place, Schema]]:
        """The calls that a section is handed to, the section and the class."""
        if not any("settings" in source.facts.extra for source in self.project.files.values()):
            return
        for unit in self.queries.of_program():
            for place in self.queries.calls_in(unit):
                given = list(zip(place.value.data.names, place.value.args[1:], strict=True))
                if len(given) != 1 or given[0][0] not in (None, "**"):
                    continue
                section = place.value_at(given[0][1])
                if not section.closed.of("section"):
                    continue
                schemas = [self.schemas.of(cls) for cls in _made(place, whole=given[0][0] == "**")]
                yield from ((place, section, each) for each in schemas if each is not None)


def _made(place: Place, whole: bool) -> Iterator[ClassDef]:
    """The classes whose object a call makes of its only argument: the class itself, or a method of it that is called on
    the class."""
    for o in place.operand(0).closed.each:
        if o[0] == "class" and whole:
            yield o[1]
        elif o[0] == "bound" and not whole and o[1].method is not None and o[1].method.facts.is_classmethod:
            yield from (owner[1] for owner in o[2].each if owner[0] == "class")
