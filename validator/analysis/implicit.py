"""Functions that run without being called by name: properties, context managers, and the wrappers of decorators."""

from __future__ import annotations

from collections.abc import Iterator

from validator.facts.model import At, Call
from validator.project import ClassDef, Method, Project

_MANAGING = ("__enter__", "__aenter__", "__exit__", "__aexit__")


def runs(project: Project) -> Iterator[tuple[Method, Call, Method]]:
    """(function, place as a call, what runs there) of everything that runs without a call of its own."""
    names = {m.name for m in project.functions() if m.cls is not None and m.facts.is_property}
    managers = {name for cls in project.classes() for name in (cls.name,) if cls.find(_MANAGING[2]) is not None}
    for function in project.functions():
        for decorator in function.facts.decorators:
            for wrapper in _wrappers(project, function, decorator):
                yield function, _at(decorator, function.facts.name_at), wrapper
        for ref in function.facts.refs:
            if ref.context == "load" and ref.path.rpartition(".")[2] in names:
                for method in _properties(project, function, ref.path):
                    yield function, _at(ref.path, ref.at), method
        for call in function.facts.calls:
            if call.method in managers and _follows_with(function, call.at):
                for method in _managing(project, function, call):
                    yield function, call, method


def is_managing(method: Method) -> bool:
    """Whether a method runs at a `with`."""
    return method.name in _MANAGING


def _at(path: str, at: At) -> Call:
    return Call(path, (), "value", (), at, at)


def _wrappers(project: Project, function: Method, decorator: str) -> Iterator[Method]:
    """The functions inside a decorator of the project that it, or what it returns, gives back."""
    made = project.lookup(function.enclosing or function.module.top, decorator.partition("(")[0])
    if isinstance(made, Method):
        for inner in made.module.functions.values():
            outer = inner.enclosing
            if outer is not None and made in (outer, outer.enclosing) and _returned(outer, inner.name):
                yield inner


def _returned(outer: Method, name: str) -> bool:
    return any(row.value == name for row in outer.facts.returns)


def _properties(project: Project, function: Method, path: str) -> Iterator[Method]:
    owner, _, name = path.rpartition(".")
    for cls in project.types.of(function, owner):
        method = cls.find(name)
        if method is not None and method.facts.is_property and method is not function and not _is_kept(method):
            yield method


def _is_kept(method: Method) -> bool:
    """Whether a property runs at the first access alone, which is seldom the one that is looked at."""
    return any(d.endswith("cached_property") for d in method.facts.decorators)


def _follows_with(function: Method, at: At) -> bool:
    return function.module.source_text.lines[at[0] - 1][: at[1] - 1].rstrip().endswith("with")


def _managing(project: Project, function: Method, call: Call) -> Iterator[Method]:
    cls = project.lookup(function, call.target)
    if isinstance(cls, ClassDef):
        yield from (m for name in _MANAGING if (m := cls.find(name)) is not None)
