"""Families: standalone classes that stand in for each other although they share no base.

A family is found from a factory that may return some of its members, with classes of the same suffix and methods
beside them, and from the configuration (`families = {strategies = ["FSDP2Strategy", …]}`).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project

_LAST_WORD = re.compile(r"[A-Z][a-z0-9]*$")
_FACTORY = re.compile(r"(get|make|create|build|init)_\w*(strategy|backend|engine|plugin)s?$")
_SUFFIXES = frozenset({"Strategy", "Backend", "Engine", "Plugin", "Accelerator", "Trainer", "Worker", "Manager"})
_SHARED = 0.5  # share of the smaller class's public methods that two members must have in common
_ENOUGH = 4  # and at least so many


class Family(NamedTuple):
    """Classes that callers may get in place of each other. `factory` is the function that chooses, if known."""

    name: str
    members: tuple[ClassDef, ...]
    factory: Method | None


def public_methods(cls: ClassDef) -> dict[str, Method]:
    """The methods that callers may use, inherited ones included; `__init__` and private ones left out."""
    found: dict[str, Method] = {}
    for owner in reversed(cls.mro):
        found.update((name, m) for name, m in owner.methods.items() if not name.startswith("_"))
    return found


def stands_out(deviating: int, others: int) -> bool:
    """Whether members of a family that do something otherwise are the odd ones out. Where several do, the family has
    kinds (for training, for inference) that callers know apart: the configuration says who gets which."""
    return deviating == 1 or 4 * deviating <= others


def hands_on(method: Method) -> bool:
    """Whether a method calls one of its own name on another object that it holds: what happens there nobody sees."""
    own = method.own_object
    calls = (call for call in method.facts.calls if call.method == method.name and own is not None)
    return any(call.receiver.startswith(f"{own}.") for call in calls)


def alike(a: ClassDef, b: ClassDef) -> bool:
    """Whether two classes share enough methods to stand in for each other."""
    first, second = set(public_methods(a)), set(public_methods(b))
    common = len(first & second)
    return common >= _ENOUGH and common >= _SHARED * min(len(first), len(second))


class Families:
    """The families of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> tuple[Family, ...]:
        """Every family with two members or more, and every single class that a factory returns."""
        return (*self._configured(), *self._from_factories())

    def of(self, cls: ClassDef) -> Family | None:
        """The family that a class belongs to."""
        return next((f for f in self.all if cls in f.members), None)

    def _configured(self) -> list[Family]:
        table = dict(getattr(self.project.config, "families", None) or {})
        by_name: dict[str, list[ClassDef]] = {}
        for cls in self.project.classes():
            by_name.setdefault(cls.name, []).append(cls)
            by_name.setdefault(f"{cls.module.name}.{cls.name}", []).append(cls)
        rows = ((name, [c for n in names for c in by_name.get(n, [])]) for name, names in table.items())
        return [Family(name, tuple(members), None) for name, members in rows if members]

    def _from_factories(self) -> list[Family]:
        """`get_strategy(args)`: a function whose name says so and that returns instances of project classes."""
        found: list[Family] = []
        taken: set[ClassDef] = set()
        for function in self.project.functions():
            if is_test(function.path) or not _FACTORY.match(function.name) or _is_hook(function):
                continue
            classes = {c for c in self.project.analysis(Objects).results(function) if not _is_base(c)}
            members = sorted(classes - taken, key=lambda c: (c.module.name, c.qualname))
            if members:
                taken.update(members)
                found.append(Family(_family_name(members), tuple(self._with_siblings(members)), function))
        return found

    def _with_siblings(self, members: list[ClassDef]) -> list[ClassDef]:
        """The members and the classes of the same suffix that are like one of them, known to the factory or not."""
        suffix = _suffix(members[0].name)
        candidates = (c for c in self.project.classes() if _suffix(c.name) == suffix and not is_test(c.path))
        others = [
            c for c in candidates if c not in members and any(alike(c, m) for m in members) and not _related(c, members)
        ]
        return members + sorted(others, key=lambda c: (c.module.name, c.qualname))


def _is_base(cls: ClassDef) -> bool:
    """Whether a class is there to be derived from: it is abstract, or leaves methods to the classes below it."""
    return cls.is_abstract or bool(cls.subclasses) and any(m.facts.stub == "raise" for m in cls.methods.values())


def _is_hook(function: Method) -> bool:
    """Whether a method is overridden: each class has an answer of its own, and its own code for it."""
    cls = function.cls
    others = (*cls.mro, *cls.descendants()) if cls is not None else ()
    return any(function.name in each.methods for each in others if each is not cls)


def _related(cls: ClassDef, members: list[ClassDef]) -> bool:
    return any(cls in m.mro or m in cls.mro for m in members)


def _suffix(name: str) -> str:
    match = _LAST_WORD.search(name)
    return match[0] if match and match[0] in _SUFFIXES else ""


def _family_name(members: list[ClassDef]) -> str:
    return _suffix(members[0].name) or members[0].name
