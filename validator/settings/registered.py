"""Classes that a decorator registers under a text: `@OptimizerConfig.register_subclass("adam")`."""

from __future__ import annotations

from collections.abc import Iterable

from validator.flow import Flow
from validator.flow.program import Unit
from validator.project import ClassDef, Project


class Registered:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.flow = project.analysis(Flow)
        self._known: dict[ClassDef, frozenset[str]] = {}

    def names(self, classes: Iterable[ClassDef]) -> frozenset[str]:
        """The texts under which some classes are registered."""
        return frozenset().union(*(self._of(cls) for cls in classes))

    def _of(self, cls: ClassDef) -> frozenset[str]:
        if cls not in self._known:
            body = self.flow.body_of(cls) if any(each.endswith("()") for each in cls.facts.decorators) else None
            outer = body.outer if body is not None else None
            self._known[cls] = frozenset(_texts(outer, body)) if outer is not None and body is not None else frozenset()
        return self._known[cls]


def _texts(outer: Unit, body: Unit) -> Iterable[str]:
    """The texts by position in the calls that make the decorators of a class."""
    values = outer.code.values
    for number in outer.decorating(body):
        made = values[values[number].args[0]]
        if made.op == "call":
            given = (values[arg] for arg, name in zip(made.args[1:], made.data.names, strict=True) if name is None)
            yield from (each.data for each in given if each.op == "const" and isinstance(each.data, str))
