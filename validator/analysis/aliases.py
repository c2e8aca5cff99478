"""Under which names an object was known before it got where it is used."""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.binding import bind
from validator.flow.objects import Objects
from validator.project import Method, Project

_DEPTH = 6


class Aliases:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[tuple[Method, str], tuple[tuple[Method, str], ...]] = {}

    def of(self, function: Method, path: str) -> tuple[tuple[Method, str], ...]:
        """The (function, path) pairs that may mean the object which `path` means in `function`; itself first.

        Followed backwards: plain assignments, attributes to where methods set them, parameters to what callers pass.
        """
        key = (function, path)
        if key not in self._known:
            found = {key: 0}
            queue = [key]
            while queue:
                each = queue.pop(0)
                for before in self._before(*each) if found[each] < _DEPTH else ():
                    if before not in found:
                        found[before] = found[each] + 1
                        queue.append(before)
            self._known[key] = tuple(found)
        return self._known[key]

    def _before(self, function: Method, path: str) -> Iterator[tuple[Method, str]]:
        head, _, name = path.rpartition(".")
        if not head:
            rows = (row for row in function.facts.assigns if row.target == path and row.kind == "path")
            yield from ((function, row.value) for row in rows)
            if any(param.name == path for param in function.facts.params):
                for caller, call in self.project.analysis(Objects).callers(function):
                    argument = bind(function, call).get(path)
                    if argument is not None and argument.kind in ("path", "call"):
                        yield caller, argument.value + "()" * (argument.kind == "call")
        elif head == function.own_object and function.cls is not None:
            for method in (each for owner in function.cls.mro for each in owner.every_method()):
                for row in method.facts.assigns:
                    if row.target == f"{method.own_object}.{name}":
                        yield method, row.target
                        if row.kind == "path":
                            yield method, row.value
