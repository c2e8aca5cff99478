"""What a method may run in the end: itself, methods of its object, and the project's functions below."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Project

_DEPTH = 5
_MOST = 120


class Reach:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[tuple[ClassDef, Method], tuple[Method, ...]] = {}

    def below(self, cls: ClassDef, method: Method) -> tuple[Method, ...]:
        """The functions that `method`, called on an object of `cls`, may run; itself first, at most 120 of them."""
        key = (cls, method)
        if key not in self._known:
            self._known[key] = tuple(self._walk(cls, method))
        return self._known[key]

    def _walk(self, cls: ClassDef, method: Method) -> Iterator[Method]:
        seen: dict[Method, int] = {method: 0}
        queue = [method]
        while queue and len(seen) < _MOST:
            function = queue.pop(0)
            yield function
            depth = seen[function] + 1
            if depth > _DEPTH:
                continue
            for below in [*self.project.nested(function), *self._called(cls, function)]:
                if below not in seen:
                    seen[below] = depth
                    queue.append(below)

    def _called(self, cls: ClassDef, function: Method) -> Iterator[Method]:
        first = self_name(function)
        for call in function.facts.calls:
            if first and call.receiver == first and function.cls in cls.mro:
                own = cls.find(call.method)
                if own is not None:
                    yield own
            else:
                yield from self.project.analysis(Objects).targets(function, call)


def self_name(function: Method) -> str:
    """What a method calls its object: usually `self`; empty for functions and static methods."""
    params = function.facts.params
    return params[0].name if function.is_method and params else ""


def words(function: Method) -> Iterator[str]:
    """Every path and literal that a function's facts show, its parameters left out."""
    for call in function.facts.calls:
        yield call.target
        for argument in call.args:
            yield argument.value
            if argument.keyword:
                yield argument.keyword
    for ref in function.facts.refs:
        yield ref.path
    for row in function.facts.assigns:
        yield row.target
        yield row.value
